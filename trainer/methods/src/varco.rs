//! VARCO (Cerviño, Turja, Mostafa, Himayat, Ribeiro: "Distributed Training of Large Graph Neural Networks with Variable Communication
//! Rates", arXiv 2406.17611): full exchange at a compression rate that falls while the model is trained.
//!
//! At rate c, one value of c travels. Sender and receiver draw the same ones, from a key of the run, the epoch, the layer and the pair of
//! partitions, so no indices travel. The receiver takes zero for the others and scales nothing. The gradients of the values that travelled
//! go back; the others have none.

use grappa_formats::permutation::Feistel;
use grappa_kernels::for_each;
use tch::{Device, Tensor};

use super::{
    boundary::{Boundary, Channel},
    config::{RateSchedule, RateUnit},
    exchange::{BoundaryExchange, BoundaryRows, ExchangeState, RowsError, bytes_of},
    wire::Wire,
};
use grappa_trainer::{Result, train::key};

/// Units that are drawn at once.
const DRAWN_AT_ONCE: usize = 4096;
/// Names of kept values: the lowest loss, and how often it stalled.
const LOWEST: &str = "lowest_loss";
const STALLS: &str = "stalls";

/// What decides the values that travel.
pub(super) struct VarcoOptions {
    pub schedule: RateSchedule,
    pub unit: RateUnit,
    /// Epochs of the schedule.
    pub epochs: u64,
    pub seed: u64,
}

/// VARCO's exchange.
pub(super) struct Varco {
    options: VarcoOptions,
    epoch: u64,
    rate: f64,
    stalls: Stalls,
    wire: Option<Wire>,
    /// What travels at each layer.
    travelling: Vec<Option<Travelling>>,
    error: RowsError,
}

/// The units that travel at a layer, int64; none if all do.
struct Travelling {
    /// Among the states that this process sends.
    sent: Option<Tensor>,
    /// Among the states that arrive.
    arriving: Option<Tensor>,
}

/// How often the loss of the validation nodes has stalled.
#[derive(Debug, Clone, Copy, Default)]
struct Stalls {
    lowest: Option<f64>,
    waited: f64,
    halvings: u32,
}

impl Stalls {
    fn observe(&mut self, loss: f64, patience: f64) {
        if self.lowest.is_none_or(|lowest| loss < lowest) {
            (self.lowest, self.waited) = (Some(loss), 0.0);
            return;
        }
        self.waited += 1.0;
        if self.waited >= patience {
            (self.waited, self.halvings) = (0.0, self.halvings + 1);
        }
    }
}

impl Varco {
    pub(super) fn new(options: VarcoOptions, layers: usize, wire: Option<Wire>) -> Self {
        Self {
            options,
            epoch: 0,
            rate: 1.0,
            stalls: Stalls::default(),
            wire,
            travelling: (0..layers).map(|_| None).collect(),
            error: RowsError::default(),
        }
    }

    /// The units that travel at a layer in some channels, int64, ascending in each channel. None if all do.
    fn draw(&self, layer: usize, width: i64, channels: &[Channel], device: Device) -> Option<Tensor> {
        if self.rate <= 1.0 {
            return None;
        }
        let per_row = self.units_of_row(width);
        let units_of = |channel: &Channel| channel.copies.len() as u64 * per_row;
        let counts = channels.iter().map(|channel| units_to_send(units_of(channel), self.rate) as usize);
        let mut indices = vec![0; counts.clone().sum()];
        let mut rest = &mut indices[..];
        let parts = channels.iter().zip(counts).map(|(channel, count)| {
            let pair = (u64::from(channel.from) << 32) | u64::from(channel.to);
            let order = Feistel::new(units_of(channel), key([self.options.seed, self.epoch, layer as u64, pair]));
            let indices = rest.split_off_mut(..count).expect("room for all channels");
            (order, channel.copies.start as u64 * per_row, indices)
        });
        for_each(parts.collect(), |(order, first, indices): (Feistel, u64, &mut [i64])| {
            draw_ascending(&order, first, indices);
        });
        Some(Tensor::from_slice(&indices).to_device(device))
    }

    /// Number of values of a channel that travel.
    fn values_of(&self, width: i64, channel: &Channel) -> u64 {
        let per_row = self.units_of_row(width);
        units_to_send(channel.copies.len() as u64 * per_row, self.rate) * width as u64 / per_row
    }

    fn units_of_row(&self, width: i64) -> u64 {
        match self.options.unit {
            RateUnit::Value => width as u64,
            RateUnit::Row => 1,
        }
    }

    /// The values of some units of `rows`.
    fn taken(&self, rows: &Tensor, units: Option<&Tensor>) -> Tensor {
        match (units, self.options.unit) {
            (None, _) => rows.shallow_clone(),
            (Some(units), RateUnit::Value) => rows.reshape([-1]).index_select(0, units),
            (Some(units), RateUnit::Row) => rows.index_select(0, units),
        }
    }

    /// Rows of `width` values: `values` where `units` are, and zeros.
    fn spread(&self, values: Tensor, units: Option<&Tensor>, copies: usize, width: i64) -> Tensor {
        let shape = [copies as i64, width];
        let Some(units) = units else {
            return values.reshape(shape);
        };
        let zeros = Tensor::zeros(shape, (values.kind(), values.device()));
        match self.options.unit {
            RateUnit::Value => zeros.view([-1]).index_copy(0, units, &values.view([-1])).view(shape),
            RateUnit::Row => zeros.index_copy(0, units, &values.view([-1, width])),
        }
    }
}

/// A number as two of f32, the second of what the first lacks.
fn bits_of(number: f64) -> Tensor {
    let high = number as f32;
    Tensor::from_slice(&[high, (number - f64::from(high)) as f32])
}

fn of_bits(parts: &Tensor) -> f64 {
    parts.double_value(&[0]) + parts.double_value(&[1])
}

/// Fills `indices` with the first results of a permutation, ascending, plus `first`.
///
/// The results become a set of bits, which takes less time than sorting them. Rows whose values are read and written in the order of
/// memory take less time than in the order of the draws.
fn draw_ascending(order: &Feistel, first: u64, indices: &mut [i64]) {
    let mut set = vec![0u64; order.size().div_ceil(64) as usize];
    let mut drawn = [0; DRAWN_AT_ONCE];
    for start in (0..indices.len()).step_by(DRAWN_AT_ONCE) {
        let drawn = &mut drawn[..DRAWN_AT_ONCE.min(indices.len() - start)];
        drawn.iter_mut().zip(start as u64..).for_each(|(unit, number)| *unit = number);
        order.forward_all(drawn);
        for unit in drawn {
            set[(*unit / 64) as usize] |= 1 << (*unit % 64);
        }
    }
    let mut rest = indices.iter_mut();
    for (mut word, base) in set.into_iter().zip((first..).step_by(64)) {
        while word != 0 {
            let index = rest.next().expect("a bit for each draw");
            *index = (base + u64::from(word.trailing_zeros())) as i64;
            word &= word - 1;
        }
    }
}

/// The number of units of a message that travel.
fn units_to_send(units: u64, rate: f64) -> u64 {
    (units as f64 / rate).ceil() as u64
}

impl BoundaryExchange for Varco {
    fn begin(&mut self, epoch: u64, _boundary: &Boundary) {
        self.epoch = epoch;
        self.rate = self.options.schedule.at(epoch, self.options.epochs, self.stalls.halvings);
        self.error = RowsError::default();
    }

    fn states(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        let width = sent.rows.size()[1];
        let units = self.draw(sent.layer, width, &sent.boundary.channels, sent.rows.device());
        let values = self.taken(&sent.rows, units.as_ref());
        sent.bytes.add(sent.layer, bytes_of(&values));
        if units.is_some() {
            self.error.add_part(&sent.rows, &values);
        }
        let travelling = match &self.wire {
            None => Travelling { arriving: units.as_ref().map(Tensor::shallow_clone), sent: units },
            Some(_) => Travelling {
                arriving: self.draw(sent.layer, width, &sent.boundary.arriving_channels, sent.rows.device()),
                sent: units,
            },
        };
        let arrived = match &self.wire {
            None => values,
            Some(wire) => wire.states(&values, sent.boundary, |channel| self.values_of(width, channel))?,
        };
        let arrived = self.spread(arrived, travelling.arriving.as_ref(), sent.boundary.arriving.len(), width);
        self.travelling[sent.layer] = Some(travelling);
        Ok(arrived)
    }

    fn gradients(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        let width = sent.rows.size()[1];
        let travelling = self.travelling[sent.layer].take().expect("states travelled before");
        let values = self.taken(&sent.rows, travelling.arriving.as_ref());
        sent.bytes.add(sent.layer, bytes_of(&values));
        let arrived = match &self.wire {
            None => values,
            Some(wire) => wire.gradients(&values, sent.boundary, |channel| self.values_of(width, channel))?,
        };
        Ok(self.spread(arrived, travelling.sent.as_ref(), sent.boundary.copies(), width))
    }

    fn observe(&mut self, val_loss: f64) {
        if let Some(patience) = self.options.schedule.patience() {
            self.stalls.observe(val_loss, patience);
        }
    }

    fn state(&self) -> ExchangeState {
        let Stalls { lowest, waited, halvings } = self.stalls;
        let lowest = lowest.map(|lowest| (LOWEST.to_owned(), bits_of(lowest)));
        let counts = Tensor::from_slice(&[waited as f32, halvings as f32]);
        lowest.into_iter().chain([(STALLS.to_owned(), counts)]).collect()
    }

    fn restore(&mut self, state: ExchangeState) {
        for (name, value) in state {
            match &*name {
                LOWEST => self.stalls.lowest = Some(of_bits(&value)),
                _ => {
                    self.stalls.waited = value.double_value(&[0]);
                    self.stalls.halvings = value.double_value(&[1]) as u32;
                }
            }
        }
    }

    fn error(&self) -> Option<RowsError> {
        Some(self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_first_ones_of_the_permutation_and_ascend() {
        for (units, count) in [(1, 1), (63, 0), (64, 64), (10_000, 5000), (10_000, 3)] {
            let order = Feistel::new(units, 7);
            let mut expected: Vec<i64> = (0..count).map(|number| 100 + order.forward(number) as i64).collect();
            expected.sort_unstable();
            let mut indices = vec![0; count as usize];
            draw_ascending(&order, 100, &mut indices);
            assert_eq!(indices, expected, "{count} of {units}");
        }
    }
}
