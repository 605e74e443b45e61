//! VARCO (Cerviño, Turja, Mostafa, Himayat, Ribeiro: "Distributed Training of Large Graph Neural Networks with Variable Communication
//! Rates", arXiv 2406.17611): full exchange at a compression rate that falls while the model is trained.
//!
//! At rate c, one value of c travels. Sender and receiver draw the same ones, from a key of the run, the epoch, the layer and the pair of
//! partitions, so no indices travel. The receiver takes zero for the others and scales nothing. The gradients of the values that travelled
//! go back; the others have none.

use grappa_formats::permutation::Feistel;
use tch::{Device, Tensor};

use super::{
    boundary::{Boundary, Channel},
    config::{RateSchedule, RateUnit},
    exchange::{BoundaryExchange, BoundaryRows, Kept, RowsError, bytes_of},
    wire::Wire,
};
use grappa_trainer::{Result, train::key};

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

    /// The units that travel at a layer in some channels, int64. None if all do.
    fn draw(&self, layer: usize, width: i64, channels: &[Channel], device: Device) -> Option<Tensor> {
        if self.rate <= 1.0 {
            return None;
        }
        let per_row = self.units_of_row(width);
        let mut indices = Vec::new();
        for channel in channels {
            let (first, units) = (channel.copies.start as u64 * per_row, channel.copies.len() as u64 * per_row);
            let pair = (u64::from(channel.from) << 32) | u64::from(channel.to);
            let order = Feistel::new(units, key([self.options.seed, self.epoch, layer as u64, pair]));
            let mut drawn: Vec<u64> = (0..kept(units, self.rate)).collect();
            order.forward_all(&mut drawn);
            indices.extend(drawn.into_iter().map(|unit| (first + unit) as i64));
        }
        Some(Tensor::from_slice(&indices).to_device(device))
    }

    /// Number of values of a channel that travel.
    fn values_of(&self, width: i64, channel: &Channel) -> u64 {
        let per_row = self.units_of_row(width);
        kept(channel.copies.len() as u64 * per_row, self.rate) * width as u64 / per_row
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

/// The number of units of a message that travel.
fn kept(units: u64, rate: f64) -> u64 {
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

    fn kept(&self) -> Kept {
        let Stalls { lowest, waited, halvings } = self.stalls;
        let lowest = lowest.map(|lowest| (LOWEST.to_owned(), bits_of(lowest)));
        let counts = Tensor::from_slice(&[waited as f32, halvings as f32]);
        lowest.into_iter().chain([(STALLS.to_owned(), counts)]).collect()
    }

    fn restore(&mut self, kept: Kept) {
        for (name, value) in kept {
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
