//! PipeGCN (Wan, Li, Wolfe, Kyrillidis, Kim, Lin: "PipeGCN: Efficient Full-Graph Training of Graph Convolutional Networks with Pipelined
//! Feature Communication", ICLR 2022).
//!
//! A partition waits neither for the states of boundary nodes nor for the gradients of its own nodes. It takes the states and gradients of the
//! last epoch, and zeros in the first. With smoothing s, it takes s times what it took before and 1 - s times what arrived last. Features are exact, and travel
//! once.

use tch::Tensor;

use super::{
    boundary::Boundary,
    exchange::{
        BoundaryExchange, BoundaryRows, ExchangeState, HAS_FEATURES, RowsError, bytes_of, flag, is_set, kept_layers,
        restored_layers,
    },
};
use grappa_trainer::Result;

/// The exchange of PipeGCN.
#[derive(Debug)]
pub(super) struct PipeGcn {
    smoothing: f64,
    has_features: bool,
    /// What the next epoch uses, by layer.
    states: Vec<Option<Tensor>>,
    gradients: Vec<Option<Tensor>>,
    error: RowsError,
}

impl PipeGcn {
    pub(super) fn new(smoothing: f64, layers: usize) -> Self {
        let none = || (0..layers).map(|_| None).collect();
        Self { smoothing, has_features: false, states: none(), gradients: none(), error: RowsError::default() }
    }
}

/// Returns the rows of the last epoch, and keeps those for the next one.
fn late(state: &mut Option<Tensor>, sent: &Tensor, smoothing: f64) -> Tensor {
    let before = state.take();
    *state = Some(match &before {
        Some(before) if smoothing > 0.0 => before * smoothing + sent * (1.0 - smoothing),
        _ => sent.copy(),
    });
    before.unwrap_or_else(|| sent.zeros_like())
}

impl BoundaryExchange for PipeGcn {
    fn begin(&mut self, _epoch: u64, _boundary: &Boundary) {
        self.error = RowsError::default();
    }

    fn states(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        if sent.layer == 0 {
            if !self.has_features {
                sent.bytes.add(0, bytes_of(&sent.rows));
            }
            self.has_features = true;
            return Ok(sent.rows);
        }
        sent.bytes.add(sent.layer, bytes_of(&sent.rows));
        let arrived = late(&mut self.states[sent.layer], &sent.rows, self.smoothing);
        self.error.add(&sent.rows, &arrived);
        Ok(arrived)
    }

    fn gradients(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        sent.bytes.add(sent.layer, bytes_of(&sent.rows));
        Ok(late(&mut self.gradients[sent.layer], &sent.rows, self.smoothing))
    }

    fn state(&self) -> ExchangeState {
        kept_layers("states", &self.states)
            .chain(kept_layers("gradients", &self.gradients))
            .chain([flag(HAS_FEATURES, self.has_features)])
            .collect()
    }

    fn restore(&mut self, state: ExchangeState) {
        self.states = restored_layers("states", self.states.len(), &state);
        self.gradients = restored_layers("gradients", self.gradients.len(), &state);
        self.has_features = is_set(HAS_FEATURES, &state);
    }

    fn error(&self) -> Option<RowsError> {
        Some(self.error)
    }
}
