//! The graphs, their sizes and limits.

use std::process::Command;

use grappa_benches::inputs::{EDGE_FACTOR, SEED};

use crate::options::{Args, Row};

/// Shares of training, validation and test nodes.
type Splits = [f64; 3];

const STORED_SPLITS: Splits = [0.01, 0.0015, 0.0015];
const PROCEDURAL_SPLITS: Splits = [0.01, 0.0001, 0.0001];
const CLASSES: u32 = 16;
const CLASSES_OF_BLOCKS: u32 = 10;
const DIM: u32 = 64;
/// Chunks of the graph that a slice is of, and of the slice.
const CHUNKS: u64 = 1024;
const SLICE_CHUNKS: u64 = 2;

const GIB: f64 = (1u64 << 30) as f64;
/// The least budget: below it, programs need more for themselves.
const MEMORY_MIN: f64 = (64u64 << 20) as f64;
/// Memory limits have this for the program: code, libtorch, the model and its steps.
const PROGRAM_BYTES: f64 = 1e9;
/// The rest of the limits, at the scales that follow from 26.
const LIMIT_BYTES: f64 = 3e9;
const LARGE_LIMIT_BYTES: f64 = 8.0 * GIB - PROGRAM_BYTES;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graph {
    /// R-MAT with stored features.
    Stored,
    /// A block model without features.
    Blocks,
    /// R-MAT with computed features.
    Procedural,
    /// A slice of R-MAT with computed features.
    Slice,
}

impl Graph {
    pub const ALL: [Self; 4] = [Self::Stored, Self::Blocks, Self::Procedural, Self::Slice];

    /// Whether the row is measured on this graph.
    pub fn has(self, row: Row) -> bool {
        self == match row {
            Row::Default | Row::Exact | Row::ExactSampledFirstHop => Self::Stored,
            Row::Sample => Self::Blocks,
            Row::Procedural => Self::Procedural,
            Row::Slice => Self::Slice,
        }
    }

    pub fn name(self, args: &Args) -> String {
        let scale = self.scale(args);
        match self {
            Self::Stored => format!("R-MAT {scale}, stored features"),
            Self::Blocks => format!("block model of 2^{scale} nodes"),
            Self::Procedural => format!("R-MAT {scale}, computed features"),
            Self::Slice => format!("{SLICE_CHUNKS} of {CHUNKS} chunks of R-MAT {scale}, computed features"),
        }
    }

    pub fn scale(self, args: &Args) -> u32 {
        match self {
            Self::Stored => args.scale,
            Self::Blocks => args.sbm_scale.unwrap_or(args.scale + 2),
            Self::Procedural => args.procedural_scale.unwrap_or(args.scale + 3),
            Self::Slice => args.slice_scale.unwrap_or(args.scale + 10),
        }
    }

    /// The size relative to the full bench.
    fn share(self, args: &Args) -> f64 {
        let full = match self {
            Self::Stored => 26,
            Self::Blocks => 28,
            Self::Procedural => 29,
            Self::Slice => 36,
        };
        (f64::from(self.scale(args)) - f64::from(full)).exp2()
    }

    pub fn memory(self, args: &Args) -> u64 {
        let (given, full) = match self {
            Self::Stored => (args.memory, 2.0 * GIB),
            _ => (args.large_memory, 6.0 * GIB),
        };
        given.map_or((self.share(args) * full).max(MEMORY_MIN) as u64, |size| size.0)
    }

    /// The memory limit, page cache included.
    pub fn limit(self, args: &Args) -> Option<u64> {
        let (given, full) = match self {
            Self::Stored => (args.limit, LIMIT_BYTES),
            Self::Blocks => return None,
            Self::Procedural | Self::Slice => (args.large_limit, LARGE_LIMIT_BYTES),
        };
        Some(given.map_or((PROGRAM_BYTES + self.share(args) * full) as u64, |size| size.0))
    }

    fn splits(self) -> Option<Splits> {
        match self {
            Self::Stored => Some(STORED_SPLITS),
            Self::Blocks => None,
            Self::Procedural | Self::Slice => Some(PROCEDURAL_SPLITS),
        }
    }

    /// The share of the graph that is made.
    pub fn made(self) -> f64 {
        match self {
            Self::Slice => SLICE_CHUNKS as f64 / CHUNKS as f64,
            _ => 1.0,
        }
    }

    /// Options of `grappa-gen`.
    pub fn generate(self, args: &Args, command: &mut Command) {
        let nodes = (1u64 << self.scale(args)).to_string();
        let scale = self.scale(args).to_string();
        match self {
            Self::Blocks => command.args(["sbm", "--nodes", &nodes, "--classes", &CLASSES_OF_BLOCKS.to_string()]),
            _ => command.args(["rmat", "--scale", &scale, "--classes", &CLASSES.to_string()]),
        };
        command.args(["--edge-factor", &EDGE_FACTOR.to_string(), "--seed", &SEED.to_string()]);
        if let Some(splits) = self.splits() {
            for (name, share) in ["train", "val", "test"].iter().zip(splits) {
                command.args([format!("--{name}-fraction"), share.to_string()]);
            }
            command.args(["--feature-dim", &DIM.to_string()]);
        }
        match self {
            Self::Stored => command.args(["--feature-dtype", "f16"]),
            Self::Blocks => command,
            Self::Procedural => command.args(["--features", "procedural"]),
            Self::Slice => {
                command.args(["--features", "procedural", "--chunks", &CHUNKS.to_string()]);
                command.args(["--only-chunks", &format!("0-{}", SLICE_CHUNKS - 1)])
            }
        };
    }

    /// Options of `grappa-store plan` for the whole graph, before it is made.
    pub fn planned(self, args: &Args) -> Vec<String> {
        let nodes = 1u64 << self.scale(args);
        let edges = (nodes as f64 * EDGE_FACTOR) as u64;
        let mut options = vec![format!("--nodes={nodes}"), format!("--edges={edges}")];
        let classes = format!("--classes={CLASSES}");
        match self {
            Self::Stored => {
                let [train, val, test] = STORED_SPLITS;
                options.extend([
                    classes,
                    "--train".to_owned(),
                    format!("--dim={DIM}"),
                    "--dtype=f16".to_owned(),
                    format!("--train-fraction={train}"),
                    format!("--scored-fraction={}", val + test),
                ]);
            }
            Self::Blocks => options.extend([format!("--classes={CLASSES_OF_BLOCKS}"), "--degrees=even".to_owned()]),
            Self::Procedural => options.push(classes),
            Self::Slice => options.extend([classes, format!("--chunks={CHUNKS}")]),
        }
        options
    }
}
