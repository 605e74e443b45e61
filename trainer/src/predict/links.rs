//! Predictions of links: scores of pairs, and the best destinations of sources.

use std::path::Path;

use grappa_engine::{
    aggregate::{Budget, StateRows},
    export::{pair_table::write_scored_pairs, table::TableOut},
};
use grappa_formats::{EdgePart, NodeId, manifest::FeatureDtype};
use grappa_io::{ledger::Ledger, progress::Progress};
use grappa_sampling::NodeSet;
use grappa_storage::Relation;

use super::memory::PredictionMemory;
use crate::{
    Error, Result,
    links::{EndRows, LinkEmbeddings, Search},
    train::{
        host_values,
        inference::check_sets,
        trained_model::{InferenceRequest, Output, PredictedGraph, RequestedNodes, Trained},
    },
};

/// The links to predict.
#[derive(Debug, Clone, Copy)]
pub enum LinkRequest<'a> {
    /// The scores of pairs, source and destination, in this order.
    Pairs(&'a [(NodeId, NodeId)]),
    /// The best destinations of sources, the best one first. A node is no destination of itself.
    TopK {
        /// The sources, in the order of the rows.
        sources: &'a [NodeId],
        /// Destinations of each source, at least 1.
        k: usize,
        /// The nodes that destinations are among; none for all nodes.
        among: Option<&'a NodeSet>,
        /// Whether to leave out the destinations of known edges: of the graph, and of the parts that are held out of it.
        excludes_known: bool,
    },
}

/// A written table of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictedLinks {
    /// Number of rows.
    pub rows: u64,
    /// Length of the table in bytes.
    pub bytes: u64,
    /// Sources with fewer destinations than wanted: they have edges to the others, or scores are NaN.
    pub short: u64,
    /// Who may take how much of the memory, by stage.
    pub memory: Ledger,
}

/// Predicts links and writes them to a table with the columns `source`, `target` and `score`. Each embedding is computed once. Scratch files
/// are in the folder `scratch`.
///
/// # Errors
/// If the model predicts no links or does not fit the store, the store is a slice and all nodes are asked for, files cannot be read or
/// written, or memory is too small.
///
/// # Panics
/// If a node does not exist, or 0 destinations are wanted.
pub fn predict_links<'a>(
    trained: &Trained,
    on: impl Into<PredictedGraph<'a>>,
    (out, scratch): (TableOut<'_>, &Path),
    request: LinkRequest<'_>,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<PredictedLinks> {
    let Some(decoder) = trained.model().decoder() else {
        return Err(Error::Options(
            "the model of the run predicts nodes, not links: give a run that was trained with --task link".into(),
        ));
    };
    let on = on.into();
    trained.check_graph(on)?;
    let Relation { sources, edges: store, destinations } = on.links;
    let all = [sources, destinations].map(|store| store.manifest().nodes);
    check_sets(all.into_iter().max().unwrap_or(0), trained.model().options().layers, budget.memory, "raise --memory")?;
    let set_of = |end: usize, nodes: Vec<NodeId>| NodeSet::from_members(all[end], nodes);
    let mut ends = match request {
        LinkRequest::Pairs(pairs) => {
            [set_of(0, pairs.iter().map(|pair| pair.0).collect()), set_of(1, pairs.iter().map(|pair| pair.1).collect())]
        }
        LinkRequest::TopK { sources, among: Some(among), .. } => [set_of(0, sources.to_vec()), among.clone()],
        LinkRequest::TopK { .. } if !store.manifest().is_whole() => {
            return Err(Error::WrongStore(format!(
                "{}: the store is a slice of its graph, so it does not know the best of all nodes: score pairs of its own nodes with --links",
                store.path().display()
            )));
        }
        LinkRequest::TopK { sources, .. } => [set_of(0, sources.to_vec()), NodeSet::all(all[1])],
    };
    if on.links.joins_one_type() {
        let both = ends[0].union(&ends[1]);
        ends = [both.clone(), both];
    }
    let mut memory = PredictionMemory::new(budget);
    let rows = embeddings(trained, on, &ends, scratch, &mut memory, progress)?;
    let comparisons = memory.comparisons()?;
    let end_rows = match on.links.joins_one_type() {
        true => EndRows::one_type(&ends[1]),
        false => EndRows::two_types([&ends[0], &ends[1]]),
    };
    let embeddings = LinkEmbeddings {
        decoder,
        rows: &rows,
        sources: end_rows[0],
        targets: end_rows[1],
        destinations: match request {
            LinkRequest::TopK { among: Some(among), .. } => among,
            _ => &ends[1],
        },
        memory: comparisons.memory,
        threads: comparisons.threads,
        device: trained.device(),
    };
    let memory = memory.ledger;
    match request {
        LinkRequest::Pairs(pairs) => {
            let scores = embeddings.score(pairs, progress)?;
            let pairs = pairs.iter().zip(scores);
            let scored: Vec<_> = pairs.map(|(&(source, target), score)| (source, target, score)).collect();
            let bytes =
                write_scored_pairs(store, out, scored.len() as u64, progress, |write| Ok::<_, Error>(write(&scored)?))?;
            Ok(PredictedLinks { rows: scored.len() as u64, bytes, short: 0, memory })
        }
        LinkRequest::TopK { sources, k, excludes_known, .. } => {
            let known = match excludes_known {
                true => [vec![EdgePart::Graph], store.manifest().held_out()].concat(),
                false => Vec::new(),
            };
            let search = Search { store, sources, k, known: &known, held_out: &[] };
            let (bytes, [rows, short]) = write_best(&embeddings, out, &search, progress)?;
            Ok(PredictedLinks { rows, bytes, short, memory })
        }
    }
}

/// Finds the best destinations and writes them. Returns the length of the table in bytes, the number of rows, and the number of sources with
/// too few.
fn write_best(
    embeddings: &LinkEmbeddings<'_>,
    out: TableOut<'_>,
    search: &Search<'_>,
    progress: &dyn Progress,
) -> Result<(u64, [u64; 2])> {
    let (k, k_max) = (search.k as u64, embeddings.search_max());
    if k.min(embeddings.destinations.len()) > k_max {
        return Err(Error::Options(format!(
            "top-k is {k}, and memory has room for {k_max} destinations of one source: raise --memory, or give --top-k {k_max} or less"
        )));
    }
    let (mut rows, mut short) = (0, 0);
    let rows_max = (search.sources.len() as u64).saturating_mul(k);
    let bytes = write_scored_pairs(search.store, out, rows_max, progress, |write| {
        embeddings.search(search, progress, |sources, best| {
            short += best.iter().filter(|best| best.len() < search.k).count() as u64;
            let scored = sources.iter().zip(best);
            let scored: Vec<_> = scored
                .flat_map(|(&source, best)| best.into_iter().map(move |(target, score)| (source, target, score)))
                .collect();
            rows += scored.len() as u64;
            Ok(write(&scored)?)
        })
    })?;
    Ok((bytes, [rows, short]))
}

/// The embeddings of the nodes of both ends, which are the same set if they have one type, in memory if they take at most half of it.
fn embeddings(
    trained: &Trained,
    on: PredictedGraph<'_>,
    ends: &[NodeSet; 2],
    scratch: &Path,
    memory: &mut PredictionMemory,
    progress: &dyn Progress,
) -> Result<StateRows> {
    let mut room = memory.embeddings_max();
    let width = trained.model().options().outputs;
    let nodes = match on.links.joins_one_type() {
        true => vec![ends[1].clone()],
        false => ends.to_vec(),
    };
    let count = nodes.iter().map(NodeSet::len).sum();
    let mut rows = StateRows::create(scratch, count, width, FeatureDtype::F32, &mut room)?;
    memory.hold_embeddings(rows.memory());
    let inference = memory.inference()?;
    // The outputs of a model with a decoder are embeddings.
    let inference_request = InferenceRequest { nodes: RequestedNodes::Ends(nodes), output: Output::Logits };
    trained.infer(on, inference_request, inference, scratch, progress, &mut |positions, states| {
        Ok(rows.write(positions.start, &host_values(states))?)
    })?;
    Ok(rows)
}
