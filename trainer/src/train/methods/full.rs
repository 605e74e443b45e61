//! Full exchange.

use tch::Tensor;

use super::{
    boundary::Boundary,
    exchange::{BoundaryExchange, HAS_FEATURES, Kept, TransferBytes, bytes_of, flag, is_set},
    wire::Wire,
};
use crate::Result;

/// Everything travels. Features travel once, because they do not change.
pub(super) struct Full {
    wire: Option<Wire>,
    has_features: bool,
    /// The features that arrived from other processes. A run that continues sends them again.
    features: Option<Tensor>,
}

impl Full {
    pub(super) fn new(wire: Option<Wire>) -> Self {
        Self {
            wire,
            has_features: false,
            features: None,
        }
    }
}

impl BoundaryExchange for Full {
    fn states(&mut self, layer: usize, sent: Tensor, boundary: &Boundary, bytes: &mut TransferBytes) -> Result<Tensor> {
        if layer == 0
            && let Some(features) = &self.features
        {
            return Ok(features.shallow_clone());
        }
        if layer > 0 || !self.has_features {
            bytes.add(layer, bytes_of(&sent));
        }
        self.has_features = true;
        let Some(wire) = &self.wire else { return Ok(sent) };
        let width = sent.size()[1];
        let arrived = wire.states(&sent, boundary, |channel| channel.copies.len() as u64 * width as u64)?;
        let arrived = arrived.view([-1, width]);
        if layer == 0 {
            self.features = Some(arrived.shallow_clone());
        }
        Ok(arrived)
    }

    fn gradients(
        &mut self,
        layer: usize,
        sent: Tensor,
        boundary: &Boundary,
        bytes: &mut TransferBytes,
    ) -> Result<Tensor> {
        bytes.add(layer, bytes_of(&sent));
        let Some(wire) = &self.wire else { return Ok(sent) };
        let width = sent.size()[1];
        let arrived = wire.gradients(&sent, boundary, |channel| channel.copies.len() as u64 * width as u64)?;
        Ok(arrived.view([-1, width]))
    }

    fn kept(&self) -> Kept {
        vec![flag(HAS_FEATURES, self.has_features)]
    }

    fn restore(&mut self, kept: Kept) {
        // Several processes do send them again.
        self.has_features = self.wire.is_none() && is_set(HAS_FEATURES, &kept);
    }
}
