//! Evaluation of links: embeddings of all nodes by one exact inference, then scores of the edges that are held out.
//!
//! Rank 0 does it alone; the others wait.

use grappa_engine::aggregate::StateRows;
use grappa_formats::{EdgePart, manifest::FeatureDtype};
use grappa_run::{
    config::Evaluate,
    scores::{LinkReport, ScoreReport},
};
use grappa_sampling::{NodeSet, links::KnownEdges};

use super::{
    evaluate::Evaluation, host_values::values, inference::needed::Needed, links::LinkData, model_on_graph::ModelOnGraph,
};
use crate::{
    Result,
    links::{LinkEmbeddings, RankedEdges},
};

/// The table of embeddings is in memory if it takes at most 1/TABLE_SHARE of the memory of inference.
const TABLE_SHARE: u64 = 3;

/// Scores the edges for validation, and the edges for test if `improves` says that the monitored number is better than all before, or there are
/// no edges for validation. None on ranks other than 0.
pub(super) fn evaluate(on: &mut ModelOnGraph<'_>, improves: &dyn Fn(f64) -> bool) -> Result<Option<Evaluation>> {
    let scored = match on.processes.is_first() {
        true => scores(on, improves).map(Some),
        false => Ok(None),
    };
    on.processes.agree(scored, on.progress)
}

fn scores(on: &mut ModelOnGraph<'_>, improves: &dyn Fn(f64) -> bool) -> Result<Evaluation> {
    let listed = on.data.links().map_or(0, LinkData::candidate_bytes);
    let mut room = on.make_room(listed, false);
    let store = &on.data.store;
    let (nodes, width) = (store.manifest().nodes, on.learner.model.options().outputs);
    let share = room.inference / TABLE_SHARE;
    let mut left = share;
    let mut rows = StateRows::create(&on.config.folder, nodes, width, FeatureDtype::F32, &mut left)?;
    room.inference -= share - left;
    let needed = Needed::all(store, on.config.layers);
    on.with_inference(room, |inference, model| {
        inference.run_needed(model, &needed, on.progress, &mut |positions, embeddings| {
            Ok(rows.write(positions.start, &values(embeddings))?)
        })
    })?;
    let embeddings = LinkEmbeddings {
        decoder: on.learner.model.decoder().expect("a model of links has a decoder"),
        rows: &rows,
        nodes: &NodeSet::all(nodes),
        memory: room.inference,
        threads: on.config.threads(),
        device: on.config.device,
    };
    let val = report(on, &embeddings, EdgePart::Val)?;
    let is_tested = on.config.monitor.of(&val).is_none_or(improves);
    let test = match is_tested {
        true => Some(report(on, &embeddings, EdgePart::Test)?),
        false => None,
    };
    Ok(Evaluation {
        val,
        test,
        method: Evaluate::Exact,
    })
}

/// The scores of a part of the edges. Edges that come before, and its own, are known.
fn report(on: &ModelOnGraph<'_>, embeddings: &LinkEmbeddings<'_>, part: EdgePart) -> Result<ScoreReport> {
    let (store, progress) = (&on.data.store, on.progress);
    let links = on.data.links().expect("links are scored");
    if links.edges[part as usize] == 0 {
        return Ok(ScoreReport::default());
    }
    let edges = links.held_out(part, embeddings.memory / 2, progress)?;
    let known = |of_store: &EdgePart| *of_store <= part && links.edges[*of_store as usize] > 0;
    let parts: Vec<EdgePart> = EdgePart::ALL.into_iter().filter(known).collect();
    let ranked = RankedEdges {
        store,
        parts: &parts,
        known: &KnownEdges::new(store, &parts, Vec::new())?,
        candidates: &links.candidates,
        edges: edges.edges(),
        first: 0,
    };
    let scores = embeddings.rank(&ranked, progress)?;
    Ok(of_links(scores.report(links.ranked_among())))
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
