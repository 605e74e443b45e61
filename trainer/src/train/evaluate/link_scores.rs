//! Evaluation of links: embeddings of all nodes by one exact inference, then scores of the edges that are held out.
//!
//! Each rank ranks a part of the edges. The candidates of an edge may be any nodes, so each rank computes the embeddings of all: ranks exchange
//! gradients, and never embeddings. Rank 0 adds up the counts, which are the counts of a single process.

use grappa_engine::aggregate::StateRows;
use grappa_formats::{EdgePart, NodeId, manifest::FeatureDtype};
use grappa_io::ledger::MemoryShare;
use grappa_run::{
    config::Evaluate,
    scores::{LinkReport, LinkScores, ScoreReport},
};
use grappa_sampling::{NodeSet, policy::EMBEDDINGS};

use super::{
    evaluations::Evaluation,
    ranked_links::{known_parts, of_rank},
    timed_links,
};
use crate::train::{
    data::training_data::TrainingData, links::LinkData, model_on_graph::ModelOnGraph, tensors::host_values,
};
use crate::{
    Result,
    links::{EndRows, LinkEmbeddings},
};

/// The edges of a part, which are ranked by pieces.
const HELD_OUT: MemoryShare = MemoryShare::one(
    "held-out edges",
    2,
    "all edges of the part at 16 bytes; candidates and scores of some of them have the other 1/2; chosen, not measured",
);

/// Scores the edges for validation, and the edges for test if `improves` says that the monitored number is better than all before, or there are
/// no edges for validation. None on ranks other than 0.
pub(crate) fn evaluate(on: &mut ModelOnGraph<'_>, improves: &dyn Fn(f64) -> bool) -> Result<Option<Evaluation>> {
    if on.data.uses_times {
        return evaluate_parts(on, Evaluate::Sampled, improves, timed_links::scores);
    }
    let embedded = embed(on);
    let (rows, memory) = on.processes.agree(embedded, on.progress)?;
    let links = on.data.links().expect("links are scored");
    let nodes = end_nodes(on.data, links).map(NodeSet::all);
    let [sources, targets] = match links.joins_one_type {
        true => EndRows::one_type(&nodes[1]),
        false => EndRows::two_types([&nodes[0], &nodes[1]]),
    };
    let embeddings = LinkEmbeddings {
        decoder: on.learner.model.decoder().expect("a model of links has a decoder"),
        rows: &rows,
        sources,
        targets,
        destinations: links.destinations().unwrap_or(&nodes[1]),
        memory,
        threads: on.config.threads(),
        device: on.config.device,
    };
    evaluate_parts(on, Evaluate::Exact, improves, |on, part| scores(on, links, &embeddings, part))
}

/// Scores the edges for validation, and for test if that is wanted. `scores` returns the scores of the edges that this rank ranks.
fn evaluate_parts(
    on: &mut ModelOnGraph<'_>,
    method: Evaluate,
    improves: &dyn Fn(f64) -> bool,
    mut scores: impl FnMut(&mut ModelOnGraph<'_>, EdgePart) -> Result<LinkScores>,
) -> Result<Option<Evaluation>> {
    let val = report(on, EdgePart::Val, &mut scores)?;
    let is_tested = on.processes.broadcast("test", || {
        let val = val.as_ref().expect("rank 0 has the scores");
        Ok(on.config.monitor.value_in(val).is_none_or(improves))
    })?;
    let test = match is_tested {
        true => report(on, EdgePart::Test, &mut scores)?,
        false => None,
    };
    Ok(val.map(|val| Evaluation { val, test, method }))
}

/// The numbers of nodes of the types of sources and of destinations.
fn end_nodes(data: &TrainingData, links: &LinkData) -> [u64; 2] {
    let relation = data.graph.relation(links.task.relation.number);
    [relation.sources, relation.destinations].map(|store| store.manifest().nodes)
}

/// The embeddings of all nodes that may be ends, and the bytes of memory that are left to compute with them.
fn embed(on: &mut ModelOnGraph<'_>) -> Result<(StateRows, u64)> {
    let links = on.data.links().expect("links are scored");
    let (listed, [sources, targets]) = (links.candidate_bytes(), end_nodes(on.data, links));
    let nodes = if links.joins_one_type { targets } else { sources + targets };
    let mut room = on.make_room(listed, false)?;
    let width = on.learner.model.options().outputs;
    let share = EMBEDDINGS.bytes(room.inference);
    let mut left = share;
    let mut rows = StateRows::create(&on.config.folder, nodes, width, FeatureDtype::F32, &mut left)?;
    room.inference -= share - left;
    on.infer(room, &on.needed_by_all(), None, &mut |positions, embeddings| {
        Ok(rows.write(positions.start, &host_values(embeddings))?)
    })?;
    Ok((rows, room.inference))
}

/// The scores of a part of the edges, of all ranks. None on ranks other than 0.
fn report(
    on: &mut ModelOnGraph<'_>,
    part: EdgePart,
    scores: &mut impl FnMut(&mut ModelOnGraph<'_>, EdgePart) -> Result<LinkScores>,
) -> Result<Option<ScoreReport>> {
    let links = on.data.links().expect("links are scored");
    if links.edges[part as usize] == 0 {
        return Ok(Some(ScoreReport::default()));
    }
    let scores = scores(on, part);
    let mut scores = on.processes.agree(scores, on.progress)?;
    if let Some(group) = &on.processes.group {
        let Some(all) = group.gather_words(&scores.as_words(), on.progress)? else {
            return Ok(None);
        };
        all[1..].iter().for_each(|words| scores.merge_words(words));
    }
    Ok(Some(of_links(scores.report(links.ranked_among()))))
}

/// The scores of the edges of a part that this rank ranks. The edges of all parts are known: a true edge is never a wrong answer.
fn scores(
    on: &ModelOnGraph<'_>,
    links: &LinkData,
    embeddings: &LinkEmbeddings<'_>,
    part: EdgePart,
) -> Result<LinkScores> {
    let (store, progress) = (&links.task.store, on.progress);
    let edges = links.held_out(part, HELD_OUT.bytes(embeddings.memory), progress)?;
    let parts = known_parts(links);
    let mut scores = embeddings.rank(&of_rank(on, links, part, &edges, &parts)?, progress)?;
    if links.ranks_destinations {
        let mut edges = edges.into_edges();
        edges.sort_unstable();
        edges.dedup();
        // A rank ranks the destinations of whole sources.
        let (rank, ranks) = (on.processes.rank() as usize, on.processes.count() as usize);
        let [start, end] = [rank, rank + 1].map(|rank| first_of_source(&edges, edges.len() * rank / ranks));
        scores.by_source = embeddings.rank_destinations(store, &parts, &edges[start..end], progress)?;
    }
    Ok(scores)
}

/// The index of the first edge of the source of an edge, among edges in the order of sources. Their number, if there is no edge at `index`.
fn first_of_source(edges: &[(NodeId, NodeId)], index: usize) -> usize {
    edges.get(index).map_or(edges.len(), |edge| edges.partition_point(|other| other.0 < edge.0))
}

/// Scores of links, where scores of nodes are expected.
fn of_links(links: LinkReport) -> ScoreReport {
    ScoreReport {
        nodes: links.edges,
        roc_auc: links.auc,
        average_precision: links.average_precision,
        links: Some(links),
        ..ScoreReport::default()
    }
}
