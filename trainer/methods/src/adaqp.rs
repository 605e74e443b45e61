//! AdaQP (Wan, Zhao, Wu: "Adaptive Message Quantization and Parallelization for Distributed Full-graph GNN Training", MLSys 2023), without
//! its overlap of communication and computation.
//!
//! A row of D values x travels as integers of b bits: q = (x - min) / s, with s = (max - min) / (2^b - 1), rounded up or down at random so
//! that its expectation is exact. The receiver takes q s + min. The minimum and s travel as bf16. The variance of a row is at most
//! D / 6 s^2, and its share in the result of a layer is that times (the sum of the aggregation weights of its edges)^2.
//!
//! Features do not change, so they travel once, in 8 bits unless `--message-bits` says otherwise.
//!
//! With `--message-bits auto`, rows of a pair of partitions are sorted by this share, and divided into groups. [`widths`] chooses the bits
//! of each group: it minimises half the variance plus half the time of the slowest pair, each relative to its largest value. Bits are
//! chosen anew every 50 epochs, from the ranges of the epochs before.

mod widths;

use grappa_formats::random::draw_at;
use tch::{Kind, Tensor};

use self::widths::{BITS, Group, widths};
use super::{
    boundary::Boundary,
    config::MessageBits,
    exchange::{
        BoundaryExchange, BoundaryRows, ExchangeState, HAS_FEATURES, RowsError, TransferBytes, flag, is_set,
        kept_layers, restored_layers,
    },
};
use grappa_trainer::{Result, train::key};

/// Epochs between two choices of bits.
const CHOICE_EPOCHS: u64 = 50;
/// Groups of the rows of a pair of partitions, at most.
const GROUPS: usize = 32;
/// Bytes of the minimum and the scale of a row.
const ROW_BYTES: u64 = 4;

/// AdaQP's exchange.
pub(super) struct AdaQp {
    fixed: Option<u8>,
    seed: u64,
    epoch: u64,
    states: Vec<Message>,
    gradients: Vec<Message>,
    /// The features that arrived. A run that continues makes them again.
    features: Option<Tensor>,
    has_features: bool,
    error: RowsError,
}

/// The rows that travel at one layer, in one direction.
#[derive(Default)]
struct Message {
    /// Bits of the values of each copy; 8 before the first choice.
    bits: Vec<u8>,
    /// Sum over epochs of the variance of each copy at 1 bit, f32 of `[copies]`.
    variances: Option<Tensor>,
    width: u64,
}

impl AdaQp {
    pub(super) fn new(bits: MessageBits, layers: usize, seed: u64) -> Self {
        let messages = || (0..layers).map(|_| Message::default()).collect();
        Self {
            fixed: match bits {
                MessageBits::Auto => None,
                MessageBits::Two => Some(2),
                MessageBits::Four => Some(4),
                MessageBits::Eight => Some(8),
            },
            seed,
            epoch: 0,
            states: messages(),
            gradients: messages(),
            features: None,
            has_features: false,
            error: RowsError::default(),
        }
    }
}

impl AdaQp {
    /// What arrives of features, the same in all epochs.
    fn features(&mut self, sent: &Tensor, bytes: &mut TransferBytes) -> Tensor {
        if let Some(features) = &self.features {
            return features.shallow_clone();
        }
        let (arrived, sent_bytes) = Message::default().arrived(sent, self.fixed, key([self.seed, 0, 0, 0]));
        if !self.has_features {
            bytes.add(0, sent_bytes);
        }
        self.has_features = true;
        self.features = Some(arrived.shallow_clone());
        arrived
    }
}

impl Message {
    /// What arrives of `rows`.
    fn arrived(&mut self, rows: &Tensor, fixed: Option<u8>, key: u64) -> (Tensor, u64) {
        let (copies, width) = rows.size2().expect("rows are a matrix");
        self.width = width as u64;
        self.bits.resize(copies as usize, fixed.unwrap_or(8));
        let levels: Vec<f32> = self.bits.iter().map(|&bits| f32::from((1u16 << bits) - 1)).collect();
        let levels = Tensor::from_slice(&levels).to_device(rows.device()).unsqueeze(1);
        let (min, max) = (rows.amin([1i64].as_slice(), true), rows.amax([1i64].as_slice(), true));
        let range = &max - &min;
        let variances = range.squeeze_dim(1).square() * (width as f64 / 6.0);
        self.variances = Some(match self.variances.take() {
            Some(sum) => sum + variances,
            None => variances,
        });
        let bytes = self.bits.iter().map(|&bits| row_bytes(self.width, bits)).sum();
        (quantized(rows, &min, &range, &levels, key), bytes)
    }

    /// The bits of each copy as f32. None before the first step.
    fn bits_tensor(&self) -> Option<Tensor> {
        let bits: Vec<f32> = self.bits.iter().map(|&bits| bits.into()).collect();
        (!bits.is_empty()).then(|| Tensor::from_slice(&bits))
    }

    fn variances_tensor(&self) -> Option<Tensor> {
        self.variances.as_ref().map(Tensor::shallow_clone)
    }

    fn restore(&mut self, bits: Option<Tensor>, variances: Option<Tensor>) {
        if let Some(bits) = bits {
            let bits = Vec::<f32>::try_from(bits).expect("it is a vector");
            self.bits = bits.into_iter().map(|bits| bits as u8).collect();
        }
        self.variances = variances;
    }

    /// Chooses the bits of each copy. `weights` are the sums of the aggregation weights of copies.
    fn choose(&mut self, boundary: &Boundary, weights: Option<&[f32]>) {
        let Some(variances) = self.variances.take() else { return };
        let variances = Vec::<f32>::try_from(variances.to_kind(Kind::Float).contiguous()).expect("it is a vector");
        let score =
            |copy: usize| f64::from(variances[copy]) * weights.map_or(1.0, |weights| f64::from(weights[copy]).powi(2));
        let mut members = Vec::new();
        let mut channels = Vec::new();
        for channel in &boundary.channels {
            let mut copies: Vec<usize> = channel.copies.clone().collect();
            copies.sort_by(|&a, &b| score(a).total_cmp(&score(b)));
            let group_copies = copies.len().div_ceil(GROUPS);
            let groups = copies.chunks(group_copies).map(|copies| Group {
                score: copies.iter().map(|&copy| score(copy)).sum(),
                bytes: BITS.map(|bits| copies.len() as u64 * row_bytes(self.width, bits)),
            });
            channels.push(groups.collect::<Vec<_>>());
            members.extend(copies.chunks(group_copies).map(<[usize]>::to_vec));
        }
        for (copies, bits) in members.iter().zip(widths(&channels).concat()) {
            copies.iter().for_each(|&copy| self.bits[copy] = bits);
        }
    }
}

/// Bytes of a row of `width` values.
fn row_bytes(width: u64, bits: u8) -> u64 {
    (width * u64::from(bits)).div_ceil(8) + ROW_BYTES
}

/// Rows after they travelled: see the [module](self). `levels` is the largest integer of each row, `[rows, 1]`.
fn quantized(rows: &Tensor, min: &Tensor, range: &Tensor, levels: &Tensor, key: u64) -> Tensor {
    // Rounding to bf16 must not make the interval smaller, or values at its ends would be biased.
    let slack = (min.abs() + range) / 128.0;
    let min = (min - &slack).to_kind(Kind::BFloat16).to_kind(Kind::Float);
    let scale = ((range + &slack * 2.0) * (1.0 + 1.0 / 128.0) / levels).to_kind(Kind::BFloat16).to_kind(Kind::Float);
    // A row of zeros.
    let safe = scale.where_self(&scale.gt(0.0), &scale.ones_like());
    let draws: Vec<f32> =
        (0..rows.numel() as u64).map(|at| (draw_at(key, at) >> 40) as f32 / (1u32 << 24) as f32).collect();
    let draws = Tensor::from_slice(&draws).view_as(rows).to_device(rows.device());
    let integers = ((rows.to_kind(Kind::Float) - &min) / safe + draws).floor();
    (integers.minimum(levels) * scale + min).to_kind(rows.kind())
}

impl BoundaryExchange for AdaQp {
    fn begin(&mut self, epoch: u64, boundary: &Boundary) {
        self.epoch = epoch;
        self.error = RowsError::default();
        if self.fixed.is_none() && epoch % CHOICE_EPOCHS == 1 {
            self.states.iter_mut().for_each(|message| message.choose(boundary, Some(&boundary.weights)));
            self.gradients.iter_mut().for_each(|message| message.choose(boundary, None));
        }
    }

    fn states(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        if sent.layer == 0 {
            return Ok(self.features(&sent.rows, sent.bytes));
        }
        let key = key([self.seed, self.epoch, sent.layer as u64, 0]);
        let (arrived, sent_bytes) = self.states[sent.layer].arrived(&sent.rows, self.fixed, key);
        sent.bytes.add(sent.layer, sent_bytes);
        self.error.add(&sent.rows, &arrived);
        Ok(arrived)
    }

    fn gradients(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        let key = key([self.seed, self.epoch, sent.layer as u64, 1]);
        let (arrived, sent_bytes) = self.gradients[sent.layer].arrived(&sent.rows, self.fixed, key);
        sent.bytes.add(sent.layer, sent_bytes);
        Ok(arrived)
    }

    fn state(&self) -> ExchangeState {
        let messages = [("states", &self.states), ("gradients", &self.gradients)];
        let messages = messages.into_iter().flat_map(|(kind, messages)| {
            let bits: Vec<_> = messages.iter().map(Message::bits_tensor).collect();
            let variances: Vec<_> = messages.iter().map(Message::variances_tensor).collect();
            let bits: ExchangeState = kept_layers(&format!("{kind}.bits"), &bits).collect();
            bits.into_iter().chain(kept_layers(&format!("{kind}.variances"), &variances)).collect::<ExchangeState>()
        });
        messages.chain([flag(HAS_FEATURES, self.has_features)]).collect()
    }

    fn restore(&mut self, state: ExchangeState) {
        self.has_features = is_set(HAS_FEATURES, &state);
        for (kind, messages) in [("states", &mut self.states), ("gradients", &mut self.gradients)] {
            let bits = restored_layers(&format!("{kind}.bits"), messages.len(), &state);
            let variances = restored_layers(&format!("{kind}.variances"), messages.len(), &state);
            for ((message, bits), variances) in messages.iter_mut().zip(bits).zip(variances) {
                message.restore(bits, variances);
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
    fn quantized_rows_are_right_in_expectation_and_have_the_variance_of_the_formula() {
        let rows = Tensor::from_slice(&(0..64).map(|at| ((at * 37) % 64) as f32 / 10.0 - 3.0).collect::<Vec<_>>())
            .view([1, 64]);
        let (min, max) = (rows.amin([1i64].as_slice(), true), rows.amax([1i64].as_slice(), true));
        let range = max - &min;
        for levels in [3.0, 15.0, 255.0] {
            let tensor = Tensor::from_slice(&[levels as f32]).unsqueeze(1);
            let draws: Vec<Tensor> = (0..4000).map(|key| quantized(&rows, &min, &range, &tensor, key)).collect();
            let errors = Tensor::stack(&draws, 0) - &rows;
            let step = range.double_value(&[0, 0]) / levels;
            let bias = errors.mean_dim([0i64].as_slice(), false, Kind::Double).abs().max().double_value(&[]);
            // The mean of 4000 values whose deviation is at most half a step.
            assert!(bias < step * 0.5 * 5.0 / 4000f64.sqrt(), "{levels}: {bias} of {step}");
            let variance = errors.square().sum(Kind::Double).double_value(&[]) / 4000.0;
            let formula = 64.0 / 6.0 * step * step;
            assert!((0.8..1.2).contains(&(variance / formula)), "{levels}: {variance} and {formula}");
        }
    }

    #[test]
    fn a_constant_row_arrives_as_it_is() {
        let rows = Tensor::zeros([2, 8], (Kind::Float, tch::Device::Cpu));
        let (min, range) = (rows.narrow(1, 0, 1), rows.narrow(1, 0, 1));
        let levels = Tensor::from_slice(&[3.0f32, 255.0]).unsqueeze(1);
        assert!(quantized(&rows, &min, &range, &levels, 1).equal(&rows));
    }
}
