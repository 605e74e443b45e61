//! Evaluation by minibatches of the scored nodes over the whole graph, with larger fanouts than in training.
//!
//! Most evaluations that sample neighbors take one pass for each layer instead (`scored`): it computes a node once, and reads files in
//! their order. Minibatches remain for random walks, and for slices of graphs so large that memory does not hold sets of their nodes.
//! All evaluations of a run draw the same neighbors, so that they can be compared. The ranks of a host divide the minibatches.

use std::sync::Arc;

use grappa_io::progress::check_stopped;
use grappa_sampling::sample::Sampler;
use roaring::RoaringTreemap;
use tch::no_grad;

use crate::train::{
    data::{edge_data, splits::SplitScores, times},
    model_on_graph::ModelOnGraph,
};
use crate::{
    Result,
    nn::{Pass, Scaling},
};

/// Scores on the nodes of a split, from sampled neighbors, as far as this process has its minibatches.
pub(crate) fn sampled_scores<'a>(on: &mut ModelOnGraph<'_>, split: &'a RoaringTreemap) -> Result<SplitScores<'a>> {
    let config = on.config;
    let sampler = config.evaluation_sampler(config.knows_first_hop())?;
    let sampler = edge_data::with_values(sampler, on.data.stored_edge_values());
    let sampler = Arc::new(times::with_times(sampler, &on.data.graph, config)?);
    let mut batch = config.evaluation_batch(config.knows_first_hop());
    loop {
        let scores = match split.is_empty() {
            true => Ok(SplitScores::new([split], on.data.labels().spec(), true, on.target_scale().as_ref())),
            false => scores_of_batches(on, split, &sampler, batch),
        };
        // The processes of a host divide the same minibatches.
        match on.processes.agree(scores, on.progress) {
            Err(error) if error.is_budget() && batch > 1 => batch /= 2,
            scores => return scores,
        }
    }
}

fn scores_of_batches<'a>(
    on: &mut ModelOnGraph<'_>,
    split: &'a RoaringTreemap,
    sampler: &Arc<Sampler>,
    batch: usize,
) -> Result<SplitScores<'a>> {
    let (share, progress, config_device) = (on.processes.share_within(), on.progress, on.config.device);
    let loading = on.partitions.loading(on.config, on.data, &on.learner.model, None);
    let scale = on.target_scale();
    let loader = &mut on.partitions.loader;
    let seeds = on.data.positions(split);
    let batches = loader.whole_graph_batches(&seeds, None, sampler.clone(), batch, share, progress)?;
    progress.steps("evaluating", batches.steps());
    let mut scores = SplitScores::new([split], on.data.labels().spec(), true, scale.as_ref());
    for batch in loader.deliver(&batches) {
        check_stopped(progress)?;
        let batch = Arc::new(batch?);
        let mut tensors = loading.model_tensors(&batch)?;
        if let Some(tables) = &on.learner.embeddings {
            let gathered = tables.gather(&on.data.graph, batch.minibatches(), None, config_device);
            gathered.append_to(&mut tensors.rows.own);
        }
        let pass = Pass { training: None, names: None, scaling: Scaling::HorvitzThompson };
        let model = &on.learner.model;
        let logits = no_grad(|| model.forward(&tensors.blocks, tensors.input(), &[], pass));
        let minibatch = &batch.minibatches()[on.data.target];
        scores.add(&minibatch.nodes[..minibatch.seeds], &logits, on.data.labels())?;
        progress.advance(1, batch.minibatches().iter().map(|minibatch| minibatch.edges() as u64).sum());
    }
    Ok(scores)
}
