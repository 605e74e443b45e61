//! Links that are predicted with --links or --top-k.

use std::{io::Write, path::Path, time::Instant};

use anyhow::{Context, bail};
use grappa_console::{Console, Summary, count};
use grappa_engine::{
    NodeId, Progress, Store,
    aggregate::Budget,
    export::table::{TableFormat, TableOut},
    io::durable::{self, Destination},
    node_list::read_nodes,
    pair_list::read_pairs,
    sample::NodeSet,
    store::Relation,
};
use grappa_trainer::{
    predict::{LinkRequest, PredictedLinks, predict_links},
    train::trained_model::{PredictedGraph, Trained},
};
use serde::Serialize;

use super::{model::PredictingModel, written::WrittenFile};
use crate::args;

#[derive(Serialize)]
struct WrittenLinks {
    #[serde(flatten)]
    file: WrittenFile,
    /// Pairs with a score.
    links: u64,
    /// The time at which they are predicted, in the unit of the store; null without times.
    at: Option<i64>,
    model: PredictingModel,
}

impl Summary for WrittenLinks {
    fn text(&self) -> String {
        let time = self.at.map_or(String::new(), |time| format!(" as of {time}"));
        self.file.text(&format!("{} links{time}", count(self.links)), &self.model)
    }
}

/// Tells what was predicted, unless the links went to stdout.
pub fn tell(
    predicted: PredictedLinks,
    out: &Path,
    (model, at): (PredictingModel, Option<i64>),
    begin: Instant,
    console: &Console,
) -> anyhow::Result<()> {
    if predicted.short > 0 {
        tracing::warn!(
            "{} node(s) of --for have fewer destinations than --top-k asks for: all others are known, or their scores are NaN",
            predicted.short
        );
    }
    if out.as_os_str() == "-" {
        return Ok(());
    }
    let file = WrittenFile::new(out, predicted.bytes, predicted.memory, begin);
    console.finish(&WrittenLinks { file, links: predicted.rows, at, model })
}

pub fn predict(
    options: &args::PredictArgs,
    out: &Path,
    trained: &Trained,
    on: PredictedGraph<'_>,
    budget: Budget,
    progress: &dyn Progress,
) -> anyhow::Result<PredictedLinks> {
    let links = &options.links;
    let Relation { sources: from, edges, destinations: to } = on.links;
    let pairs = links.pairs.as_ref().map(|path| read_pairs(edges, path)).transpose()?;
    let sources = links.sources.as_ref().map(|path| read_nodes(from, path)).transpose()?;
    let among = match &links.among {
        Some(path) => Some(NodeSet::from_members(to.manifest().nodes, nodes_among(to, path)?)),
        None => None,
    };
    let request = match (&pairs, &sources, links.top_k) {
        (None, Some(sources), Some(k)) => {
            LinkRequest::TopK { sources, k: k.get(), among: among.as_ref(), excludes_known: links.exclude_known }
        }
        _ => LinkRequest::Pairs(pairs.as_deref().unwrap_or_default()),
    };
    if out.as_os_str() == "-" {
        let mut stdout = grappa_console::stdout();
        let place = (TableOut::Stream(&mut stdout, TableFormat::Csv), options.run.as_path());
        let predicted = predict_links(trained, on, place, request, budget, progress)?;
        stdout.flush().context("cannot write to stdout")?;
        return Ok(predicted);
    }
    if !matches!(TableFormat::from_path(out), Some(TableFormat::Parquet | TableFormat::Csv)) {
        bail!(
            "{}: links are written to files that end with .parquet or .csv, or as CSV to stdout with --out -",
            out.display()
        );
    }
    let destination = Destination { path: out, replaces: options.force };
    destination.check()?;
    let place = (TableOut::File(destination), durable::parent(out));
    Ok(predict_links(trained, on, place, request, budget, progress)?)
}

/// The nodes of --among.
fn nodes_among(store: &Store, path: &Path) -> anyhow::Result<Vec<NodeId>> {
    let nodes = read_nodes(store, path)?;
    if nodes.is_empty() {
        bail!("{}: no nodes: list the id of a destination in each line", path.display());
    }
    Ok(nodes)
}
