//! The exchange of states of boundary nodes, and of their gradients.

use tch::{Kind, Tensor};

use super::boundary::Boundary;

/// Bytes that partitions sent each other in a step, by what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TransferBytes {
    /// Features of boundary nodes: the input of the first layer.
    pub(crate) features: u64,
    /// Hidden states of boundary nodes, and their gradients.
    pub(crate) activations: u64,
}

impl TransferBytes {
    /// Counts the rows at the input of a layer.
    pub(crate) fn add(&mut self, layer: usize, bytes: u64) {
        match layer {
            0 => self.features += bytes,
            _ => self.activations += bytes,
        }
    }
}

/// What an exchange keeps from epoch to epoch, by name.
pub(crate) type Kept = Vec<(String, Tensor)>;

/// What partitions receive of the rows that other partitions send.
///
/// A step calls [`begin`](Self::begin), then [`states`](Self::states) for each layer from the first, then
/// [`gradients`](Self::gradients) for each layer from the last to the second: features have no gradient.
pub(crate) trait BoundaryExchange: Send {
    /// The step of an epoch begins.
    fn begin(&mut self, _epoch: u64, _boundary: &Boundary) {}

    /// What arrives of the states at the input of a layer, `[copies, width]`, one row for each of [`Boundary::rows`].
    fn states(&mut self, layer: usize, sent: Tensor, boundary: &Boundary, bytes: &mut TransferBytes) -> Tensor;

    /// What arrives of their gradients, on the way back.
    fn gradients(&mut self, layer: usize, sent: Tensor, boundary: &Boundary, bytes: &mut TransferBytes) -> Tensor;

    /// An evaluation found this loss of the validation nodes.
    fn observe(&mut self, _val_loss: f64) {}

    /// What later epochs depend on, for a checkpoint.
    fn kept(&self) -> Kept {
        Vec::new()
    }

    /// Continues from what an exchange of the same run [kept](Self::kept).
    fn restore(&mut self, _kept: Kept) {}

    /// The mean squared error of the states that arrived in this step, relative to the mean square of what was sent. None if they are
    /// exact.
    fn error(&self) -> Option<f64> {
        None
    }
}

/// Bytes of a tensor.
pub(super) fn bytes_of(rows: &Tensor) -> u64 {
    (rows.numel() * rows.kind().elt_size_in_bytes()) as u64
}

/// The name of a kept value: whether features have travelled.
pub(super) const HAS_FEATURES: &str = "has_features";

/// A kept value.
pub(super) fn flag(name: &str, is_set: bool) -> (String, Tensor) {
    (name.into(), Tensor::from_slice(&[f32::from(u8::from(is_set))]))
}

/// Whether a [`flag`] is kept, and set.
pub(super) fn is_set(name: &str, kept: &Kept) -> bool {
    kept.iter()
        .any(|(found, value)| found == name && value.double_value(&[0]) == 1.0)
}

/// The kept rows of each layer, which have the names `KIND.LAYER`.
pub(super) fn kept_layers<'a>(
    kind: &'a str,
    layers: &'a [Option<Tensor>],
) -> impl Iterator<Item = (String, Tensor)> + 'a {
    let layers = layers.iter().enumerate();
    layers.filter_map(move |(layer, rows)| Some((format!("{kind}.{layer}"), rows.as_ref()?.shallow_clone())))
}

/// The rows of [`kept_layers`].
pub(super) fn restored_layers(kind: &str, count: usize, kept: &Kept) -> Vec<Option<Tensor>> {
    let of_layer = |layer| {
        let name = format!("{kind}.{layer}");
        kept.iter()
            .find(|(found, _)| *found == name)
            .map(|(_, rows)| rows.shallow_clone())
    };
    (0..count).map(of_layer).collect()
}

/// The error of rows that arrived, added up over the layers of a step.
#[derive(Debug, Default)]
pub(super) struct RowsError {
    squares: f64,
    errors: f64,
}

impl RowsError {
    pub(super) fn add(&mut self, sent: &Tensor, arrived: &Tensor) {
        let sum = |rows: &Tensor| rows.square().sum(Kind::Double).double_value(&[]);
        self.squares += sum(sent);
        self.errors += sum(&(arrived - sent));
    }

    pub(super) fn relative(&self) -> f64 {
        if self.squares > 0.0 {
            self.errors / self.squares
        } else {
            0.0
        }
    }
}
