//! Evaluation of links: embeddings of all nodes by exact inference, then scores of the edges that are held out.

use grappa_formats::{EdgePart, NodeId};
use grappa_io::progress::check_stopped;
use grappa_run::{
    config::Evaluate,
    scores::{LinkCandidates, LinkReport, LinkScores, ScoreReport},
};
use grappa_sampling::{
    links::{KnownEdges, Positives},
    sample::draw_below,
};
use tch::{Tensor, no_grad};

use super::super::{evaluate::Evaluation, host_values::values, inference::needed::Needed, model_on_graph::ModelOnGraph};
use crate::Result;

/// Candidates of each edge.
const CANDIDATES: u32 = 100;
/// Edges that are scored at a time.
const EDGES: usize = 1024;

/// Scores the edges for validation, and the edges for test if `improves` says that the monitored number is better than all before, or there are
/// no edges for validation. `held` are the bytes of memory that other parts of training hold. None on ranks other than 0, which only wait.
pub fn evaluate(
    on: &mut ModelOnGraph<'_>,
    held: u64,
    improves: &dyn Fn(f64) -> bool,
) -> Result<Option<Evaluation>> {
    let scored = match on.processes.is_first() {
        true => scores(on, held, improves).map(Some),
        false => Ok(None),
    };
    on.processes.agree(scored, on.progress)
}

fn scores(on: &mut ModelOnGraph<'_>, held: u64, improves: &dyn Fn(f64) -> bool) -> Result<Evaluation> {
    let room = on.make_room(held, false);
    let needed = Needed::all(&on.data.store, on.config.layers);
    let mut rows = Vec::new();
    on.with_inference(room, |inference, model| {
        inference.run_needed(model, &needed, on.progress, &mut |_, embeddings| {
            rows.push(embeddings.copy());
            Ok(())
        })
    })?;
    let embeddings = Tensor::cat(&rows, 0);
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

fn report(on: &ModelOnGraph<'_>, embeddings: &Tensor, part: EdgePart) -> Result<ScoreReport> {
    let store = &on.data.store;
    let links = on.data.links().expect("links are scored");
    let edges = match links.edges[part as usize] {
        0 => Positives::default(),
        _ => Positives::of_part(store, part, None, on.config.memory.0, on.progress)?,
    };
    let parts: Vec<EdgePart> = EdgePart::ALL
        .into_iter()
        .filter(|&of_store| of_store <= part && links.edges[of_store as usize] > 0)
        .collect();
    let known = KnownEdges::new(store, &parts, Vec::new())?;
    let decoder = on.learner.model.decoder().expect("a model of links has a decoder");
    let nodes = store.manifest().nodes;
    let mut scores = LinkScores::default();
    let index = |nodes: &[NodeId]| {
        let nodes: Vec<i64> = nodes.iter().map(|node| node.0 as i64).collect();
        embeddings.index_select(0, &Tensor::from_slice(&nodes).to_device(on.config.device))
    };
    for (first, edges) in (0u64..).step_by(EDGES).zip(edges.edges().chunks(EDGES)) {
        check_stopped(on.progress)?;
        let (sources, targets): (Vec<NodeId>, Vec<NodeId>) = edges.iter().copied().unzip();
        let (mut from, mut others, mut pairs) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        for (edge, &source) in (first..).zip(&sources) {
            for candidate in 0..u64::from(CANDIDATES) {
                let mut number = (edge * u64::from(CANDIDATES) + candidate) << 8;
                let other = loop {
                    let other = NodeId(draw_below(part as u64, number, nodes));
                    if other != source && !known.contains(store, source, other)? || number & 255 == 255 {
                        break other;
                    }
                    number += 1;
                };
                from.push(source);
                others.push(other);
            }
            pairs[0].push(NodeId(draw_below(7 + part as u64, 2 * edge, nodes)));
            pairs[1].push(NodeId(draw_below(7 + part as u64, 2 * edge + 1, nodes)));
        }
        let [of_edges, of_others, of_pairs] = no_grad(|| {
            [
                decoder.score(&index(&sources), &index(&targets)),
                decoder.score(&index(&from), &index(&others)),
                decoder.score(&index(&pairs[0]), &index(&pairs[1])),
            ]
        });
        let (of_edges, of_others, of_pairs) = (values(&of_edges), values(&of_others), values(&of_pairs));
        for (edge, (candidates, pair)) in of_edges.iter().zip(of_others.chunks(CANDIDATES as usize).zip(of_pairs.iter())) {
            scores.filtered.add_scores(*edge, candidates.iter().copied());
            scores.raw.add_scores(*edge, candidates.iter().copied());
            scores.add_pair(*edge, *pair);
        }
    }
    let report = scores.report(LinkCandidates {
        count: Some(CANDIDATES),
        kind: "uniform".to_owned(),
    });
    Ok(of_links(report))
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
