//! `grappa-store add-features`: features computed from the graph.

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use grappa_console::{ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::{
    Error, Graph,
    aggregate::Budget,
    derive::features::{
        AddFeatures, AddedFeatures, FastRp, FeatureKind, FeatureTarget, NeighborMeans, add_features, partial_folder,
    },
};
use serde::Serialize;

use crate::{args, members};

/// Defaults of `fastrp`, close to the paper's.
const DIM: u32 = 128;
const HOPS: u32 = 3;
const SEED: u64 = 1;

#[derive(Serialize)]
struct FeaturesSummary {
    kind: String,
    #[serde(flatten)]
    added: AddedFeatures,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::AddFeaturesArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let graph = Graph::open(&options.store)?;
    let (target, kind) = match options.kind {
        args::FeatureKind::Mean => {
            let name = options.node_type.as_deref().expect("required");
            let node_type = members::node_type(&graph, name)?;
            let relations = options.relations.iter().map(|name| members::relation(&graph, name));
            let relations = relations.collect::<anyhow::Result<Vec<_>>>()?;
            let means = NeighborMeans::new(&graph, node_type, &relations)?;
            (FeatureTarget::node_type(&graph, node_type), FeatureKind::Mean(means))
        }
        _ if graph.has_types() => bail!(
            "{}: the graph has node types, which --kind {} does not tell apart: use --kind mean --type TYPE",
            options.store.display(),
            options.kind.to_possible_value().expect("all kinds have names").get_name()
        ),
        _ => (FeatureTarget::node_type(&graph, 0), kind(options)?),
    };
    if graph.is_timed() {
        tracing::warn!(
            "{}: the graph has times, and these features are made of all edges: they tell a model of edges that are later than what it predicts",
            options.store.display()
        );
    }
    let add = AddFeatures {
        kind,
        dtype: options.dtype,
        budget: Budget::new(options.memory.0, options.threads.get()?),
        writer: concat!("grappa-store ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    signals::leaves_folder(partial_folder(target), "rerun the command to continue");
    let added = add_features(target, &add, &console.bars()).map_err(explain)?;
    console.finish(&FeaturesSummary {
        kind: add.kind.name().to_owned(),
        added,
        seconds: begin.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
        store: options.store.display().to_string(),
    })
}

/// Adds to an I/O error, such as a full disk, that no data is lost.
fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Io { .. } => {
            anyhow!("{error}; the store is unchanged and finished work is kept: fix the cause, then rerun the command")
        }
        _ => error.into(),
    }
}

fn kind(options: &args::AddFeaturesArgs) -> anyhow::Result<FeatureKind> {
    for (name, is_set) in [("--type", options.node_type.is_some()), ("--relations", !options.relations.is_empty())] {
        if is_set {
            bail!("{name} is for --kind mean: other kinds are for graphs without types");
        }
    }
    match options.kind {
        args::FeatureKind::Mean => unreachable!("it is of a type"),
        args::FeatureKind::Degrees => {
            for (name, is_set) in [
                ("--dim", options.dim.is_some()),
                ("--hops", options.hops.is_some()),
                ("--hop-weights", !options.hop_weights.is_empty()),
                ("--seed", options.seed.is_some()),
            ] {
                if is_set {
                    bail!("{name} is for --kind fastrp: the features of --kind degrees are fixed");
                }
            }
            Ok(FeatureKind::Degrees)
        }
        args::FeatureKind::Fastrp => Ok(FeatureKind::FastRp(FastRp {
            dim: options.dim.unwrap_or(DIM),
            hop_weights: match options.hop_weights.is_empty() {
                true => vec![1.0; options.hops.unwrap_or(HOPS) as usize],
                false => options.hop_weights.clone(),
            },
            seed: options.seed.unwrap_or(SEED),
        })),
    }
}

impl Summary for FeaturesSummary {
    fn text(&self) -> String {
        let note = match self.added.chunks_kept {
            0 => String::new(),
            chunks => format!(", {chunks} chunks of an earlier run kept"),
        };
        format!(
            "{}: {} features added, {} values for each of {} nodes, {} on disk; {}{note}",
            printable(&self.store),
            self.kind,
            self.added.dim,
            count(self.added.nodes),
            ByteSize(self.added.bytes),
            duration(Duration::from_secs_f64(self.seconds))
        )
    }
}
