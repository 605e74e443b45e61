//! Full exchange.

use tch::Tensor;

use super::{
    exchange::{BoundaryExchange, BoundaryRows, ExchangeState, HAS_FEATURES, bytes_of, flag, is_set},
    wire::Wire,
};
use grappa_trainer::Result;

/// Everything travels. Features travel once, because they do not change.
pub(super) struct Full {
    wire: Option<Wire>,
    has_features: bool,
    /// The features that arrived from other processes. A run that continues sends them again.
    features: Option<Tensor>,
}

impl Full {
    pub(super) fn new(wire: Option<Wire>) -> Self {
        Self { wire, has_features: false, features: None }
    }
}

impl BoundaryExchange for Full {
    fn states(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        if sent.layer == 0
            && let Some(features) = &self.features
        {
            return Ok(features.shallow_clone());
        }
        if sent.layer > 0 || !self.has_features {
            sent.bytes.add(sent.layer, bytes_of(&sent.rows));
        }
        self.has_features = true;
        let Some(wire) = &self.wire else { return Ok(sent.rows) };
        let width = sent.rows.size()[1];
        let arrived = wire.states(&sent.rows, sent.boundary, |channel| channel.copies.len() as u64 * width as u64)?;
        let arrived = arrived.view([-1, width]);
        if sent.layer == 0 {
            self.features = Some(arrived.shallow_clone());
        }
        Ok(arrived)
    }

    fn gradients(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        sent.bytes.add(sent.layer, bytes_of(&sent.rows));
        let Some(wire) = &self.wire else { return Ok(sent.rows) };
        let width = sent.rows.size()[1];
        let arrived =
            wire.gradients(&sent.rows, sent.boundary, |channel| channel.copies.len() as u64 * width as u64)?;
        Ok(arrived.view([-1, width]))
    }

    fn state(&self) -> ExchangeState {
        vec![flag(HAS_FEATURES, self.has_features)]
    }

    fn restore(&mut self, state: ExchangeState) {
        // Several processes do send them again.
        self.has_features = self.wire.is_none() && is_set(HAS_FEATURES, &state);
    }
}
