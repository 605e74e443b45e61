//! VARCO (Cerviño, Turja, Mostafa, Himayat, Ribeiro: "Distributed Training of Large Graph Neural Networks with Variable Communication
//! Rates", arXiv 2406.17611): full exchange at a compression rate that falls while the model is trained.
//!
//! At rate c, one value of c travels. Sender and receiver draw the same ones, from a key of the run, the epoch, the layer and the pair of
//! partitions, so no indices travel. The receiver takes zero for the others and scales nothing. The gradients of the values that travelled
//! go back; the others have none.

use grappa_formats::permutation::Feistel;
use grappa_run::config::{RateSchedule, RateUnit, TrainConfig};
use tch::Tensor;

use super::{
    boundary::Boundary,
    exchange::{BoundaryExchange, Kept, RowsError, TransferBytes},
};
use crate::train::random_key::key;

/// Names of kept values: the lowest loss, and how often it stalled.
const LOWEST: &str = "lowest_loss";
const STALLS: &str = "stalls";

/// VARCO's exchange.
#[derive(Debug)]
pub(super) struct Varco {
    schedule: RateSchedule,
    unit: RateUnit,
    seed: u64,
    epochs: u64,
    epoch: u64,
    rate: f64,
    stalls: Stalls,
    /// The indices of what travelled at each layer.
    sent: Vec<Option<Tensor>>,
    error: RowsError,
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
    pub(super) fn new(config: &TrainConfig) -> Self {
        Self {
            schedule: config.rate_schedule,
            unit: config.rate_unit,
            seed: config.seed,
            epochs: config.epochs,
            epoch: 0,
            rate: 1.0,
            stalls: Stalls::default(),
            sent: (0..config.layers).map(|_| None).collect(),
            error: RowsError::default(),
        }
    }

    /// The units of `rows` that travel at a layer, int64. None if all do.
    fn draw(&self, layer: usize, rows: &Tensor, boundary: &Boundary) -> Option<Tensor> {
        if self.rate <= 1.0 {
            return None;
        }
        let per_row = match self.unit {
            RateUnit::Value => rows.size()[1] as u64,
            RateUnit::Row => 1,
        };
        let mut indices = Vec::new();
        for channel in &boundary.channels {
            let (first, units) = (
                channel.copies.start as u64 * per_row,
                channel.copies.len() as u64 * per_row,
            );
            let pair = (u64::from(channel.from) << 32) | u64::from(channel.to);
            let order = Feistel::new(units, key([self.seed, self.epoch, layer as u64, pair]));
            let mut drawn: Vec<u64> = (0..kept(units, self.rate)).collect();
            order.forward_all(&mut drawn);
            indices.extend(drawn.into_iter().map(|unit| (first + unit) as i64));
        }
        Some(Tensor::from_slice(&indices).to_device(rows.device()))
    }

    /// The rows with zeros where `units` do not travel.
    fn masked(&self, rows: &Tensor, units: &Tensor) -> Tensor {
        let flat = match self.unit {
            RateUnit::Value => rows.reshape([-1]),
            RateUnit::Row => rows.shallow_clone(),
        };
        let sent = flat.index_select(0, units);
        flat.zeros_like().index_copy(0, units, &sent).view_as(rows)
    }

    fn bytes(&self, rows: &Tensor, units: Option<&Tensor>) -> u64 {
        let width = rows.size()[1] as u64;
        let values = match (units, self.unit) {
            (None, _) => rows.numel() as u64,
            (Some(units), RateUnit::Value) => units.numel() as u64,
            (Some(units), RateUnit::Row) => units.numel() as u64 * width,
        };
        values * rows.kind().elt_size_in_bytes() as u64
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
        self.rate = self.schedule.at(epoch, self.epochs, self.stalls.halvings);
        self.error = RowsError::default();
    }

    fn states(&mut self, layer: usize, sent: Tensor, boundary: &Boundary, bytes: &mut TransferBytes) -> Tensor {
        let units = self.draw(layer, &sent, boundary);
        bytes.add(layer, self.bytes(&sent, units.as_ref()));
        let arrived = units.as_ref().map(|units| self.masked(&sent, units));
        self.sent[layer] = units;
        match arrived {
            None => sent,
            Some(arrived) => {
                self.error.add(&sent, &arrived);
                arrived
            }
        }
    }

    fn gradients(&mut self, layer: usize, sent: Tensor, _boundary: &Boundary, bytes: &mut TransferBytes) -> Tensor {
        let units = self.sent[layer].take();
        bytes.add(layer, self.bytes(&sent, units.as_ref()));
        match units {
            None => sent,
            Some(units) => self.masked(&sent, &units),
        }
    }

    fn observe(&mut self, val_loss: f64) {
        if let Some(patience) = self.schedule.patience() {
            self.stalls.observe(val_loss, patience);
        }
    }

    fn kept(&self) -> Kept {
        let Stalls {
            lowest,
            waited,
            halvings,
        } = self.stalls;
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

    fn error(&self) -> Option<f64> {
        Some(self.error.relative())
    }
}
