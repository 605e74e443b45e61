//! Full exchange.

use tch::Tensor;

use super::{
    boundary::Boundary,
    exchange::{BoundaryExchange, HAS_FEATURES, Kept, TransferBytes, bytes_of, flag, is_set},
};

/// Everything travels. Features travel once, because they do not change.
#[derive(Debug, Default)]
pub(super) struct Full {
    has_features: bool,
}

impl BoundaryExchange for Full {
    fn states(&mut self, layer: usize, sent: Tensor, _boundary: &Boundary, bytes: &mut TransferBytes) -> Tensor {
        if layer > 0 || !self.has_features {
            bytes.add(layer, bytes_of(&sent));
        }
        self.has_features = true;
        sent
    }

    fn gradients(&mut self, layer: usize, sent: Tensor, _boundary: &Boundary, bytes: &mut TransferBytes) -> Tensor {
        bytes.add(layer, bytes_of(&sent));
        sent
    }

    fn kept(&self) -> Kept {
        vec![flag(HAS_FEATURES, self.has_features)]
    }

    fn restore(&mut self, kept: Kept) {
        self.has_features = is_set(HAS_FEATURES, &kept);
    }
}
