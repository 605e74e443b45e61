//! Evaluation of links at their times: each edge is scored with its candidates at its own time, from minibatches.
//!
//! The embedding of a node depends on the time at which it is asked for, so no inference of all nodes serves several edges. An edge and its
//! candidates are a group of pairs that share their neighborhoods. All evaluations of a run draw the same neighbors and candidates.

use std::sync::Arc;

use grappa_formats::{EdgePart, NodeId};
use grappa_io::progress::check_stopped;
use grappa_run::scores::LinkScores;
use grappa_sampling::{
    links::{EdgeBank, ExcludedEdges, LinkTask, Negatives, Positives},
    policy::EDGE_LIST,
};
use tch::no_grad;

use super::ranked_links::{known_parts, of_rank};
use crate::{
    Result,
    links::DrawnPart,
    nn::{Pass, Scaling},
    train::{
        data::{edge_data, times},
        model_on_graph::ModelOnGraph,
        tensors::host_values,
    },
};

/// Pairs that are listed at once, at most, unless an edge has more.
const LISTED: usize = 1 << 18;
/// Pairs of a minibatch, unless memory is too small.
const PAIRS: usize = 1 << 12;

/// The scores of the edges of a part that this rank ranks.
pub(super) fn scores(on: &mut ModelOnGraph<'_>, part: EdgePart) -> Result<LinkScores> {
    let data = on.data.clone();
    let links = data.links().expect("links are scored");
    let store = &links.task.store;
    let edges = links.held_out(part, EDGE_LIST.bytes(on.config.memory.0), on.progress)?;
    let parts = known_parts(links);
    let ranked = of_rank(on, links, part, &edges, &parts)?;
    let known = ranked.drawn.is_none().then(|| ranked.open_known()).transpose()?;
    // Links without times of their own are there once.
    let bank = EdgeBank::open(store)?;
    let pairs_of_edge = 2 + 2 * links.candidates.count.unwrap_or(0) as usize;
    let edges_at_once = (LISTED / pairs_of_edge).max(1);
    let (mut all, mut batch) = (LinkScores::default(), PAIRS);
    on.progress.steps("evaluating", ranked.edges.len() as u64);
    for first in (0..ranked.edges.len()).step_by(edges_at_once) {
        check_stopped(on.progress)?;
        let block = ranked.part(first, first + edges_at_once);
        let drawn = block.candidates(known.as_ref(), on.config.threads())?;
        let (mut pairs, mut pair_times, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for (drawn, &time) in drawn.iter().zip(block.times) {
            groups.push(pairs.len() as u64);
            drawn.put_pairs(&mut pairs);
            pair_times.resize(pairs.len(), time);
        }
        let pairs = Arc::new(Positives::at_times(pairs, pair_times).in_groups(groups));
        let scores = score(on, &pairs, &links.task, &mut batch)?;
        DrawnPart::add_scores(&drawn, scores.into_iter(), &mut all);
        if let Some(bank) = &bank {
            let of_bank =
                |(pair, &time): (&(NodeId, NodeId), &i64)| Ok(f32::from(u8::from(bank.contains(*pair, time)?)));
            let scores = pairs.edges().iter().zip(pairs.times()).map(of_bank).collect::<Result<Vec<f32>>>()?;
            DrawnPart::add_scores(&drawn, scores.into_iter(), all.edge_bank.get_or_insert_default());
        }
        on.progress.advance(drawn.len() as u64, 0);
    }
    Ok(all)
}

/// The scores of pairs at their times, in order, from minibatches of at most `batch` pairs. If memory is too small for these, `batch` gets smaller.
fn score(on: &mut ModelOnGraph<'_>, pairs: &Arc<Positives>, learned: &LinkTask, batch: &mut usize) -> Result<Vec<f32>> {
    let task = Arc::new(LinkTask {
        store: learned.store.clone(),
        relation: learned.relation,
        negatives: Negatives::None,
        candidates: learned.candidates.clone(),
        destinations: None,
        without_negative: learned.without_negative,
        known: None,
        // With equal times, the edge that is asked about is among the messages, as in training.
        excluded: match times::sees_equal(on.config) {
            true => learned.excluded,
            false => ExcludedEdges::None,
        },
        ends: learned.ends.clone(),
    });
    loop {
        match score_in_batches(on, pairs, &task, *batch) {
            Err(error) if error.is_budget() && *batch > 1 => *batch /= 2,
            scores => return scores,
        }
    }
}

fn score_in_batches(
    on: &mut ModelOnGraph<'_>,
    pairs: &Arc<Positives>,
    task: &Arc<LinkTask>,
    batch: usize,
) -> Result<Vec<f32>> {
    let sampler = edge_data::with_values(on.config.sampler(false)?, on.data.stored_edge_values());
    let sampler = Arc::new(times::with_times(sampler, &on.data.graph, on.config)?);
    let loading = on.partitions.loading(on.config, on.data, &on.learner.model, None);
    let loader = &mut on.partitions.loader;
    let batches = loader.whole_graph_links(pairs.clone(), sampler, task.clone(), batch, on.progress)?;
    let mut scores = vec![f32::NAN; pairs.edges().len()];
    let mut indices = Vec::new();
    for batch in loader.deliver(&batches) {
        let batch = Arc::new(batch?);
        let mut tensors = loading.model_tensors(&batch)?;
        if let Some(tables) = &on.learner.embeddings {
            let gathered = tables.gather(&on.data.graph, batch.minibatches(), None, on.config.device);
            gathered.append_to(&mut tensors.rows.own);
        }
        let rows = loading.pairs(&batch, batches.places(batch.index()), &batches).positives;
        let pass = Pass { training: None, names: None, scaling: Scaling::HorvitzThompson };
        let model = &on.learner.model;
        let of_batch = no_grad(|| {
            let embeddings = model.forward(&tensors.blocks, tensors.input(), &[], pass);
            let [sources, destinations] = rows.map(|rows| embeddings.index_select(0, &rows));
            model.decoder().expect("a model of links has a decoder").score(&sources, &destinations)
        });
        batches.seed_indices(batch.index(), &mut indices);
        indices.iter().zip(&*host_values(&of_batch)).for_each(|(&index, &score)| scores[index as usize] = score);
    }
    Ok(scores)
}
