//! FastRP: embeddings of a graph by random projection (Chen, Sultan, Tian, Chen and Skiena, "Fast and Accurate Network
//! Embeddings via Very Sparse Random Projection", CIKM 2019, arXiv 1908.11512, algorithm 1).
//!
//! ```text
//! N_0 = L R                           a random row for each node, over the root of its in-degree + 1
//! N_h = the mean of N_(h-1) over in-neighbors        h = 1 .. hops, out of core
//! E   = sum of w_h N_h / |N_h|                        |.|: the length of a row
//! features = sqrt(dim) E / |E|                        so values are about 1; zeros for a node that nothing leads to
//! ```
//!
//! Two choices differ from the paper. Its L is a power of the degree, found by search; here the power is -1/2, as in GCN.
//! Its R has one non-zero value in sqrt(nodes), which saves work in a sparse product. Here rows are dense anyway, and in a
//! large graph most of them would be empty. So R is the matrix of Achlioptas ("Database-friendly Random Projections", 2003): 1 and
//! -1 with probability 1/6 each, else 0.
//!
//! A row of R depends on the seed and the external id only. If the graph grows and is ingested again, its old nodes start
//! with the same rows, and a trained model can be applied to the new store.

use std::{fmt, ops::Range, path::PathBuf};

use grappa_formats::{
    ChunkId, NodeId,
    features::FeatureLayout,
    manifest::{ExternalIds, FeatureDtype},
    random::scale,
};
use grappa_io::{Error, Result, ledger::Lease, progress::Progress};
use grappa_sampling::EdgeValues;
use grappa_storage::{
    Store,
    feature_rows::{self, ENCODE_ROWS, FeatureRowsWriter},
};
use grappa_synthetic::random::{Purpose, Source};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    aggregate::{Budget, Mean, NodeRows, ScaledRows, StoredRows, WholeGraph},
    derive::features::DIM_MAX,
};

/// Of six equally likely draws, one gives 1 and one gives -1.
const DRAWS: u64 = 6;
/// Bytes that are read of each earlier hop before they are decoded, at most.
const READ_BYTES: u64 = 1 << 20;

/// Embeddings by random projection.
#[derive(Debug, Clone, PartialEq)]
pub struct FastRp {
    /// Values of a node.
    pub dim: u32,
    /// The weight of each hop, from the first on. There are as many hops as weights.
    pub hop_weights: Vec<f32>,
    /// The seed of the random rows.
    pub seed: u64,
}

impl FastRp {
    pub(super) fn check(&self) -> Result<()> {
        if !(1..=DIM_MAX).contains(&self.dim) {
            return Err(Error::out_of_range("--dim", format!("1 to {DIM_MAX} values per node"), self.dim));
        }
        if let Some(weight) = self.hop_weights.iter().find(|weight| !weight.is_finite()) {
            return Err(Error::out_of_range("--hop-weights", "finite numbers", weight));
        }
        match self.hop_weights.last() {
            Some(&last) if last != 0.0 => Ok(()),
            Some(_) => {
                Err(Error::conflict("the last hop has weight 0, so it adds nothing", "leave it out of --hop-weights"))
            }
            None => Err(Error::out_of_range("--hops", "at least 1", 0)),
        }
    }
}

impl fmt::Display for FastRp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights: Vec<String> = self.hop_weights.iter().map(f32::to_string).collect();
        let (dim, seed) = (self.dim, self.seed);
        write!(f, "--kind fastrp --dim {dim} --hop-weights {} --seed {seed}", weights.join(","))
    }
}

/// Writes the feature rows of the nodes from `first` on. `folder` creates the folder of an earlier hop, from 1 on. Returns who took how much
/// of the memory in the last hop, which takes most.
///
/// # Errors
/// If the memory is too small, or files cannot be read or written.
pub fn make(
    store: &Store,
    options: &FastRp,
    folder: &dyn Fn(usize) -> Result<PathBuf>,
    out: &mut FeatureRowsWriter<'_>,
    first: u64,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<Vec<Lease>> {
    let source = Source::new(options.seed, Purpose::Projection);
    let projection = Projection { store, source, width: options.dim as usize };
    let scaled = ScaledRows::new(&projection, store)?;
    let reduce = Mean { width: options.dim as usize };
    let layout = FeatureLayout::new(FeatureDtype::F32, options.dim);
    let mut earlier: Vec<StoredRows<'_>> = Vec::new();
    let hops = options.hop_weights.len();
    // The last hop holds most beside the aggregation. A budget that suffices for it suffices for all.
    let beside = out.memory().max(FeatureRowsWriter::memory_of(layout)) + Sum::memory_of(options);
    let graph =
        WholeGraph { relation: store.into(), rows: &scaled, edge_values: EdgeValues::Nothing, budget, scratch: None };
    let whole_budget = || Error::in_budget(budget.memory, |least| least + beside);
    for hop in 1..hops {
        let rows = earlier.last().map_or(&scaled as &dyn NodeRows, |rows| rows);
        let folder = folder(hop)?;
        let mut made = FeatureRowsWriter::new(store, &folder, layout);
        let first = made.keep_finished(budget.threads, progress)?;
        let hop_budget = less(budget, made.memory());
        let sink = &mut |nodes: Range<u64>, rows: &mut Vec<f32>| made.write(nodes, rows);
        let graph = WholeGraph { rows, budget: hop_budget, scratch: Some(&folder), ..graph };
        graph.run(&reduce, first, progress, sink).map_err(whole_budget())?;
        made.complete()?;
        let files = (0..store.chunks().chunks()).map(|chunk| {
            let (file, _) = feature_rows::open(&folder, store.chunks(), ChunkId(chunk))?;
            Ok(Some(file.close()))
        });
        earlier.push(StoredRows::new(store, files.collect::<Result<_>>()?, layout));
    }

    let mut leases = vec![
        Lease { bytes: beside - Sum::memory_of(options), ..out.lease() },
        Lease::new("sum of all hops", Sum::memory_of(options), "some rows of the sum and of an earlier hop at a time"),
    ];
    let mut sum = Sum::new(options, &earlier);
    let last_budget = less(budget, beside);
    let rows = earlier.last().map_or(&scaled as &dyn NodeRows, |rows| rows);
    let scratch = out.folder().to_owned();
    let sink = &mut |nodes: Range<u64>, rows: &mut Vec<f32>| {
        let mut node = nodes.start;
        for rows in rows.chunks(ENCODE_ROWS * reduce.width) {
            let nodes = node..node + (rows.len() / reduce.width) as u64;
            node = nodes.end;
            out.write(nodes.clone(), sum.rows_of(nodes, rows)?)?;
        }
        Ok(())
    };
    let graph = WholeGraph { rows, budget: last_budget, scratch: Some(&scratch), ..graph };
    leases.extend(graph.run(&reduce, first, progress, sink).map_err(whole_budget())?);
    Ok(leases)
}

fn less(budget: Budget, bytes: u64) -> Budget {
    Budget { memory: budget.memory.saturating_sub(bytes), ..budget }
}

/// The rows of R.
struct Projection<'a> {
    store: &'a Store,
    source: Source,
    width: usize,
}

impl Projection<'_> {
    /// The number that selects a node's row, independent of its place in the store: its external id, or the hash of a string
    /// id.
    fn key(&self, node: NodeId, text: &mut Vec<u8>) -> Result<u64> {
        let ids = self.store.ids();
        match self.store.manifest().ids.external {
            ExternalIds::Dense | ExternalIds::Sparse => ids.integer(node),
            ExternalIds::String => {
                text.clear();
                ids.append_text(node, text)?;
                Ok(xxh3_64(text))
            }
        }
    }
}

impl NodeRows for Projection<'_> {
    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        let mut text = Vec::new();
        for (node, row) in nodes.map(NodeId).zip(out.chunks_exact_mut(self.width)) {
            let mut stream = self.source.stream(self.key(node, &mut text)?);
            for value in row {
                *value = match scale(stream.next_number(), DRAWS) {
                    0 => 1.0,
                    1 => -1.0,
                    _ => 0.0,
                };
            }
        }
        Ok(())
    }
}

/// The weighted sum of all hops, for some nodes at a time.
struct Sum<'a> {
    options: &'a FastRp,
    earlier: &'a [StoredRows<'a>],
    hop: Vec<f32>,
    sums: Vec<f32>,
}

impl<'a> Sum<'a> {
    fn new(options: &'a FastRp, earlier: &'a [StoredRows<'a>]) -> Self {
        let values = ENCODE_ROWS * options.dim as usize;
        Self { options, earlier, hop: vec![0.0; values], sums: vec![0.0; values] }
    }

    fn memory_of(options: &FastRp) -> u64 {
        2 * 4 * ENCODE_ROWS as u64 * u64::from(options.dim) + READ_BYTES
    }

    /// The features of `nodes`. `last` has their rows of the last hop.
    fn rows_of(&mut self, nodes: Range<u64>, last: &[f32]) -> Result<&[f32]> {
        let dim = self.options.dim as usize;
        let sums = &mut self.sums[..last.len()];
        sums.fill(0.0);
        let (last_weight, weights) = self.options.hop_weights.split_last().expect("there is a hop");
        for (rows, &weight) in self.earlier.iter().zip(weights) {
            if weight != 0.0 {
                let hop = &mut self.hop[..last.len()];
                rows.read(nodes.clone(), hop)?;
                add(hop, weight, dim, sums);
            }
        }
        add(last, *last_weight, dim, sums);
        for row in sums.chunks_exact_mut(dim) {
            let factor = (dim as f64).sqrt() / length(row);
            if factor.is_finite() {
                row.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
            }
        }
        Ok(sums)
    }
}

/// Adds vectors of length `weight` in the direction of `rows`.
fn add(rows: &[f32], weight: f32, dim: usize, sums: &mut [f32]) {
    for (row, sums) in rows.chunks_exact(dim).zip(sums.chunks_exact_mut(dim)) {
        let factor = f64::from(weight) / length(row);
        if factor.is_finite() {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += (f64::from(*value) * factor) as f32;
            }
        }
    }
}

/// The length of a row. Values are added in order, so the result has the same bits everywhere.
fn length(row: &[f32]) -> f64 {
    row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt()
}
