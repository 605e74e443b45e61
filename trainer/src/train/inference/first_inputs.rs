//! The inputs of the first layer, kept from one inference to the next.

use std::{cell::OnceCell, ops::Range};

use tch::Tensor;

/// The inputs of the update of a range of nodes at a layer.
#[derive(Debug)]
pub(super) struct UpdateInputs {
    /// The nodes, as positions among the outputs of the layer.
    pub positions: Range<u64>,
    /// Their states.
    pub own: Tensor,
    /// The aggregates of their in-neighbours.
    pub aggregated: Tensor,
    /// Their in-degrees, for GCN.
    pub degrees: Option<Tensor>,
}

/// Memory for the inputs of the first layer's updates: features and their aggregates.
///
/// Unless messages have parameters, these are the same in each inference of the same nodes. On a small graph, reading them takes
/// longer than all products. The first inference fills the memory, if they fit, and later ones take them from it.
#[derive(Debug)]
pub struct FirstInputs {
    bytes_max: u64,
    parts: OnceCell<Vec<UpdateInputs>>,
}

impl FirstInputs {
    /// Empty memory for at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            parts: OnceCell::new(),
        }
    }

    /// Bytes that are in use, apart from in-degrees.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts.get().into_iter().flatten();
        parts
            .map(|part| 4 * (part.own.numel() + part.aggregated.numel()) as u64)
            .sum()
    }

    /// Whether `bytes` fit.
    pub(super) fn holds(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    /// The inputs, if an inference left them.
    pub(super) fn get(&self) -> Option<&[UpdateInputs]> {
        self.parts.get().map(Vec::as_slice)
    }

    /// Keeps the inputs of all updates. Nothing happens if there are some.
    pub(super) fn set(&self, parts: Vec<UpdateInputs>) {
        // Both would be of the same nodes.
        let _ = self.parts.set(parts);
    }
}
