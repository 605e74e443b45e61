//! The exchange of states of boundary nodes, and of their gradients.

use tch::{Kind, Tensor};

use super::boundary::Boundary;
use grappa_trainer::Result;

/// Values whose squares are added up at once: 1 MiB as f64.
const SQUARED_AT_ONCE: i64 = 1 << 17;

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

/// Rows that partitions send each other at the input of a layer: states of boundary nodes, or their gradients.
pub(crate) struct BoundaryRows<'a> {
    /// The layer.
    pub(crate) layer: usize,
    /// One row for each copy of a boundary node that this process sends, or receives if these are gradients.
    pub(crate) rows: Tensor,
    /// The copies.
    pub(crate) boundary: &'a Boundary,
    /// Counts what is sent.
    pub(crate) bytes: &'a mut TransferBytes,
}

/// What an exchange keeps from epoch to epoch, by name.
pub(crate) type ExchangeState = Vec<(String, Tensor)>;

/// What partitions receive of the rows that other partitions send.
///
/// A step calls [`begin`](Self::begin), then [`states`](Self::states) for each layer from the first, then
/// [`gradients`](Self::gradients) for each layer from the last to the second: features have no gradient.
pub(crate) trait BoundaryExchange: Send {
    /// The step of an epoch begins.
    fn begin(&mut self, _epoch: u64, _boundary: &Boundary) {}

    /// What arrives of states, `[copies, width]`: one row for each of [`Boundary::arriving`].
    ///
    /// # Errors
    /// If another process has left or cannot be reached.
    fn states(&mut self, rows: BoundaryRows<'_>) -> Result<Tensor>;

    /// What arrives of gradients of states, on the way back: one row for each of [`Boundary::rows`].
    ///
    /// # Errors
    /// As [`states`](Self::states).
    fn gradients(&mut self, rows: BoundaryRows<'_>) -> Result<Tensor>;

    /// An evaluation found this loss of the validation nodes.
    fn observe(&mut self, _val_loss: f64) {}

    /// What later epochs depend on, for a checkpoint.
    fn state(&self) -> ExchangeState {
        Vec::new()
    }

    /// Continues from what an exchange of the same run [kept](Self::kept).
    fn restore(&mut self, _kept: ExchangeState) {}

    /// The error of the states that this process sent in this step. None if they arrive as they are.
    fn error(&self) -> Option<RowsError> {
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
pub(super) fn is_set(name: &str, state: &ExchangeState) -> bool {
    state.iter().any(|(found, value)| found == name && value.double_value(&[0]) == 1.0)
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
pub(super) fn restored_layers(kind: &str, count: usize, state: &ExchangeState) -> Vec<Option<Tensor>> {
    let of_layer = |layer| {
        let name = format!("{kind}.{layer}");
        state.iter().find(|(found, _)| *found == name).map(|(_, rows)| rows.shallow_clone())
    };
    (0..count).map(of_layer).collect()
}

/// The error of rows that arrived, added up over the layers of a step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowsError {
    /// The sum of the squares of what was sent.
    pub(crate) squares: f64,
    /// The sum of the squares of the differences.
    pub(crate) errors: f64,
}

impl RowsError {
    pub(super) fn add(&mut self, sent: &Tensor, arrived: &Tensor) {
        self.squares += squares(sent);
        self.errors += squares(&(arrived - sent));
    }

    /// Adds rows that arrived as `values` and zeros.
    pub(super) fn add_part(&mut self, sent: &Tensor, values: &Tensor) {
        let all = squares(sent);
        self.squares += all;
        self.errors += (all - squares(values)).max(0.0);
    }
}

/// The sum of the squares of all values. By parts, because each operator writes a tensor of its own.
fn squares(rows: &Tensor) -> f64 {
    let parts = rows.reshape([-1]).split(SQUARED_AT_ONCE, 0);
    parts.iter().map(|part| part.square().sum(Kind::Double).double_value(&[])).sum()
}
