//! The results of an inference.

use grappa_engine::aggregate::NodeRows;
use grappa_io::progress::Progress;

use super::{
    historical::{HistoricalNodes, HistoricalRows},
    keeper::Keeper,
    layers::{Layers, Results},
    needed::{Needed, NeededGraph},
    task::{Inference, OnRows},
};
use crate::train::data::degrees::Degrees;
use crate::{Result, nn::Model};

impl Inference<'_> {
    /// Passes the logits of all nodes to `on_logits`, range after range in the order of nodes.
    ///
    /// # Errors
    /// If files cannot be read, scratch files cannot be written, or memory is too small. Also the errors of `on_logits`.
    pub fn run(&self, model: &Model, progress: &dyn Progress, on_logits: &mut OnRows<'_>) -> Result<()> {
        let nodes = self.store.manifest().nodes;
        let needed = Needed::all(&NeededGraph::untyped(self.chunks, nodes, model.options().layers));
        self.run_needed(model, &needed, progress, on_logits)
    }

    /// Passes the results of the wanted nodes to `on_rows`, range after range: their states after the layers that `needed` is for.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If the model has fewer layers.
    pub fn run_needed(
        &self,
        model: &Model,
        needed: &Needed,
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        let degrees = Degrees::with_weights(self.chunks.clone(), self.weight_sums.cloned());
        let results = &mut Results { states: Some(on_rows), kept: None };
        self.run_layers(model, needed, &degrees, progress, results)
    }

    /// The historical embeddings of some nodes. `needed` is [`HistoricalNodes::needed`]. With `on_logits`, it also has wanted nodes,
    /// whose logits are passed to it.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If neighbors are kept and the model does not support it ([`Model::has_neighbors`]), or if there are no pre-aggregated
    /// features then.
    pub fn historical(
        &self,
        model: &Model,
        nodes: &HistoricalNodes,
        needed: &Needed,
        on_logits: Option<&mut OnRows<'_>>,
        progress: &dyn Progress,
    ) -> Result<HistoricalRows> {
        let degrees = Degrees::with_weights(self.chunks.clone(), self.weight_sums.cloned());
        let mut keeper = Keeper::new(self, nodes, &degrees)?;
        if !nodes.sets().is_empty() || on_logits.is_some() {
            let results = &mut Results { states: on_logits, kept: Some(&mut keeper) };
            self.run_layers(model, needed, &degrees, progress, results)?;
        }
        Ok(keeper.finish())
    }

    /// Bytes of the scratch files that [`Inference::run_needed`] has at a time.
    pub fn scratch_bytes(&self, model: &Model, needed: &Needed) -> u64 {
        let normalized = model.normalized(self.features);
        self.layers(model, needed, normalized.as_ref().map_or(self.features, |rows| rows)).scratch_bytes()
    }

    fn run_layers(
        &self,
        model: &Model,
        needed: &Needed,
        degrees: &Degrees,
        progress: &dyn Progress,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<()> {
        let normalized = model.normalized(self.features);
        self.layers(model, needed, normalized.as_ref().map_or(self.features, |rows| rows))
            .run(degrees, progress, results)
    }

    fn layers<'a>(&'a self, model: &'a Model, needed: &'a Needed, features: &'a dyn NodeRows) -> Layers<'a> {
        Layers { inference: self, model, needed, features }
    }
}
