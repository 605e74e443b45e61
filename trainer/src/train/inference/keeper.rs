//! Saves historical embeddings while inference runs.

use std::{ops::Range, sync::Arc};

use grappa_engine::aggregate::{Beside, NodeRows, StateRows};
use grappa_formats::NodeId;
use grappa_io::progress::check_stopped;
use grappa_sampling::NodeSet;
use tch::no_grad;

use super::{
    historical::{HistoricalNodes, HistoricalRows, KEPT_AS, SetRows, as_kept},
    pass::LayerPass,
    task::Inference,
};
use crate::train::data::degrees::Degrees;
use crate::{Result, train::tensors::host_values};

/// Saves the aggregates of some nodes, layer by layer, or their differences to the contributions of neighbors.
pub(super) struct Keeper<'a> {
    inference: &'a Inference<'a>,
    nodes: &'a HistoricalNodes,
    rows_kept: HistoricalRows,
    /// Memory that is left for rows, in bytes.
    memory: u64,
    /// The rows of the current layer.
    current: Option<SetRows>,
}

impl<'a> Keeper<'a> {
    /// A keeper that has the inputs of neighbors, which are known before the first layer.
    pub(super) fn new(inference: &'a Inference<'a>, nodes: &'a HistoricalNodes, degrees: &Degrees) -> Result<Self> {
        let mut keeper = Self {
            inference,
            nodes,
            rows_kept: HistoricalRows::default(),
            memory: inference.kept_memory,
            current: None,
        };
        if !nodes.drawn().is_empty() {
            let first_hop = inference.first_hop.expect("aggregates of features");
            let rows = Beside(inference.features, first_hop);
            let all = NodeSet::all(inference.store.manifest().nodes);
            let first = keeper.gathered(&Beside(&rows, degrees), &all, 0)?;
            keeper.rows_kept.inputs = keeper.chain(first, 0)?;
        }
        Ok(keeper)
    }

    /// Begins a layer whose aggregates have `width` values. Only layers between the first and the last are saved.
    pub(super) fn begin(&mut self, layer: usize, width: usize) -> Result<()> {
        self.current = match layer.checked_sub(1).and_then(|at| self.nodes.sets().get(at)) {
            Some(nodes) => Some(self.rows(nodes.clone(), width)?),
            None => None,
        };
        Ok(())
    }

    /// Saves aggregates of the outputs at some positions. They are the first values of `state_width` of each row.
    pub(super) fn take(
        &mut self,
        pass: &LayerPass<'_>,
        positions: Range<u64>,
        rows: &[f32],
        state_width: usize,
    ) -> Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let width = current.rows.width();
        let outputs = pass.nodes(positions).into_iter().zip(rows.chunks_exact(state_width));
        let wanted: Vec<(NodeId, &[f32])> = outputs.filter(|(node, _)| current.nodes.contains(*node)).collect();
        let widths = self.rows_kept.inputs.iter().map(|rows| rows.rows.width());
        let widest = widths.max().unwrap_or(0).max(width);
        for piece in wanted.chunks(self.inference.step_nodes(widest) as usize) {
            check_stopped(pass.progress)?;
            let nodes: Vec<NodeId> = piece.iter().map(|(node, _)| *node).collect();
            let mut aggregates: Vec<f32> = piece.iter().flat_map(|(_, row)| &row[..width]).copied().collect();
            if !self.rows_kept.inputs.is_empty() {
                let (device, threads) = (self.inference.device, self.inference.budget.threads);
                let degrees = as_kept(&pass.degrees.of_each(nodes.iter().copied())?).to_device(device);
                let neighbor = self
                    .rows_kept
                    .neighbor(pass.layer, degrees, |rows| Ok(rows.of_sorted(&nodes, threads)?.to_device(device)))?;
                let shares = host_values(&no_grad(|| pass.model.neighbor_share(pass.layer, &neighbor)));
                aggregates.iter_mut().zip(&*shares).for_each(|(all, share)| *all -= share);
            }
            // The outputs are a range of nodes, so these are neighbors in their set.
            current.rows.write(current.nodes.position(nodes[0]), &aggregates)?;
        }
        Ok(())
    }

    /// Ends a layer.
    pub(super) fn end(&mut self, layer: usize) -> Result<()> {
        if let Some(rows) = self.current.take() {
            let chain = self.chain(rows, layer - 1)?;
            self.rows_kept.layers.push(chain);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> HistoricalRows {
        self.rows_kept
    }

    /// Rows of the nodes of the set `at`, then rows of their neighbors, of the neighbors of these, and so on.
    fn chain(&mut self, first: SetRows, at: usize) -> Result<Vec<SetRows>> {
        let mut all = vec![first];
        for next in at + 1..self.nodes.drawn().len() {
            let last = all.last().expect("there is one");
            let (rows, nodes) = (&last.rows, last.nodes.clone());
            let gathered = self.gathered(rows, &nodes, next)?;
            all.push(gathered);
        }
        Ok(all)
    }

    /// For each node of the set `at`, the row of its neighbor. `rows` are the rows of the nodes in `rows_of`.
    fn gathered(&mut self, rows: &dyn NodeRows, rows_of: &NodeSet, at: usize) -> Result<SetRows> {
        let mut out = self.rows(self.nodes.sets()[at].clone(), rows.width())?;
        let threads = self.inference.budget.threads;
        self.nodes.drawn()[at].gather(rows, rows_of, threads, &mut out.rows)?;
        Ok(out)
    }

    /// Space for rows of some nodes.
    fn rows(&mut self, nodes: Arc<NodeSet>, width: usize) -> Result<SetRows> {
        let scratch = self.inference.scratch;
        let rows = StateRows::create(scratch, nodes.len(), width, KEPT_AS, &mut self.memory)?;
        Ok(SetRows { nodes, rows })
    }
}
