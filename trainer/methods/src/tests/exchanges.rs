//! What arrives of what partitions send.

use grappa_formats::NodeId;
use grappa_run::config::TrainConfig;
use tch::{Device, Kind, Tensor};

use crate::{
    boundary::{Boundary, Channel},
    choice::{self, RunShape},
    config::{Method, MethodConfig},
    exchange::{BoundaryExchange, BoundaryRows, TransferBytes},
};

const WIDTH: i64 = 6;
const COPIES: usize = 20;

/// Two partitions, which send each other 12 and 8 rows.
fn boundary() -> Boundary {
    let channel = |from, copies| Channel { from, to: 1 - from, copies };
    let channels = vec![channel(0, 0..12), channel(1, 12..20)];
    Boundary {
        rows: (0..COPIES as u32).collect(),
        weights: vec![1.0; COPIES],
        arriving: (0..COPIES as u64).map(NodeId).collect(),
        arriving_channels: channels.clone(),
        channels,
    }
}

/// The exchange of a method in one process.
fn exchange_of(method: Method, change: impl FnOnce(&mut MethodConfig)) -> Box<dyn BoundaryExchange> {
    let mut options = MethodConfig { method, ..MethodConfig::default() };
    change(&mut options);
    let run = RunShape { epochs: 10, layers: 2, seed: TrainConfig::default().seed };
    choice::exchange_of(&options, run, None).unwrap()
}

fn rows(seed: i64) -> Tensor {
    let values = Tensor::arange(COPIES as i64 * WIDTH, (Kind::Float, Device::Cpu));
    ((values + seed as f64) * 0.7).sin().view([COPIES as i64, WIDTH]) + 2.0
}

/// The rows of `sent` at a layer.
fn rows_at<'a>(layer: usize, sent: &Tensor, boundary: &'a Boundary, bytes: &'a mut TransferBytes) -> BoundaryRows<'a> {
    BoundaryRows { layer, rows: sent.copy(), boundary, bytes }
}

/// What arrives of `sent` states and gradients at layer 1 in an epoch, and the bytes.
fn exchanged(exchange: &mut dyn BoundaryExchange, epoch: u64, sent: &Tensor) -> ([Tensor; 2], TransferBytes) {
    let (boundary, mut bytes) = (boundary(), TransferBytes::default());
    exchange.begin(epoch, &boundary);
    let states = exchange.states(rows_at(1, sent, &boundary, &mut bytes)).unwrap();
    let gradients = exchange.gradients(rows_at(1, sent, &boundary, &mut bytes)).unwrap();
    ([states, gradients], bytes)
}

/// The mean squared error of what arrived, relative to the mean square.
fn relative(exchange: &dyn BoundaryExchange) -> f64 {
    let error = exchange.error().unwrap();
    error.errors / error.squares
}

fn largest(difference: &Tensor) -> f64 {
    difference.abs().max().double_value(&[])
}

#[test]
fn full_exchange_is_exact_and_sends_features_once() {
    let mut full = exchange_of(Method::Full, |_| {});
    let sent = rows(0);
    let mut bytes = TransferBytes::default();
    for _ in 0..3 {
        let arrived = full.states(rows_at(0, &sent, &boundary(), &mut bytes));
        assert_eq!(arrived.unwrap(), sent);
    }
    assert_eq!((bytes.features, bytes.activations), (COPIES as u64 * WIDTH as u64 * 4, 0));
    let (arrived, bytes) = exchanged(&mut *full, 0, &sent);
    assert!(arrived.iter().all(|arrived| *arrived == sent));
    assert_eq!(bytes.activations, 2 * COPIES as u64 * WIDTH as u64 * 4);
}

#[test]
fn varco_sends_one_value_in_c_and_gradients_of_the_same() {
    for (unit, kept) in [("value", 18 + 12), ("row", (3 + 2) * WIDTH as u64)] {
        let mut varco = exchange_of(Method::Varco, |options| {
            options.rate_schedule = "fixed:4".parse().unwrap();
            options.rate_unit = unit.parse().unwrap();
        });
        let sent = rows(1);
        let ([states, gradients], bytes) = exchanged(&mut *varco, 3, &sent);
        assert_eq!(states, gradients, "{unit}");
        let is_sent = states.ne(0.0);
        assert_eq!(is_sent.sum(Kind::Int64).int64_value(&[]) as u64, kept, "{unit}");
        assert!((&sent * &is_sent - &states).abs().max().double_value(&[]) == 0.0, "nothing is scaled");
        assert_eq!(bytes.activations, 2 * kept * 4, "{unit}");
        let error = relative(&*varco);
        assert!((0.6..0.85).contains(&error), "{unit}: {error}");
        // Another epoch draws others.
        assert_ne!(exchanged(&mut *varco, 4, &sent).0[0], states);
    }
}

#[test]
fn varco_at_rate_1_is_full_exchange() {
    let mut varco = exchange_of(Method::Varco, |options| options.rate_schedule = "linear:128:1:5".parse().unwrap());
    let sent = rows(2);
    assert_ne!(exchanged(&mut *varco, 0, &sent).0[0], sent);
    let (arrived, bytes) = exchanged(&mut *varco, 2, &sent);
    assert!(arrived.iter().all(|arrived| *arrived == sent));
    assert_eq!(bytes.activations, 2 * COPIES as u64 * WIDTH as u64 * 4);
}

#[test]
fn an_adaptive_rate_falls_when_the_loss_stalls() {
    let mut varco = exchange_of(Method::Varco, |options| options.rate_schedule = "adaptive:8:1:2".parse().unwrap());
    let sent = rows(2);
    let bytes: Vec<u64> = [3.0, 2.0, 2.0, 2.0, 2.5, 1.0]
        .into_iter()
        .zip(0..)
        .map(|(loss, epoch)| {
            let (boundary, mut bytes) = (boundary(), TransferBytes::default());
            varco.begin(epoch, &boundary);
            let arrived = varco.states(rows_at(1, &sent, &boundary, &mut bytes)).unwrap();
            assert_eq!(arrived.size(), sent.size());
            varco.observe(loss);
            bytes.activations
        })
        .collect();
    // 72 / 8 + 48 / 8 values, then 72 / 4 + 48 / 4.
    assert_eq!(bytes, [60, 60, 60, 60, 120, 120]);
}

#[test]
fn bns_is_right_in_expectation() {
    let mut bns = exchange_of(Method::Bns, |options| options.boundary_share = 0.25);
    let sent = rows(3);
    let mut sums = [sent.zeros_like(), sent.zeros_like()];
    const DRAWS: u64 = 10_000;
    for epoch in 0..DRAWS {
        let (arrived, bytes) = exchanged(&mut *bns, epoch, &sent);
        assert_eq!(bytes.activations, 2 * (3 + 2) * WIDTH as u64 * 4);
        for (sum, arrived) in sums.iter_mut().zip(arrived) {
            *sum += arrived;
        }
    }
    // A row arrives in a quarter of the draws, multiplied by 4: the deviation of the mean is at most 3^0.5 / 100 of it.
    for sum in sums {
        let relative = largest(&((sum / DRAWS as f64 - &sent) / &sent));
        assert!(relative < 5.0 * 3f64.sqrt() / 100.0, "{relative}");
    }
}

#[test]
fn pipegcn_uses_what_the_last_epoch_sent() {
    let mut pipegcn = exchange_of(Method::PipeGcn, |options| options.smoothing = 0.5);
    let [a, b, c] = [0, 1, 2].map(rows);
    let arrived: Vec<Tensor> = [&a, &b, &c, &c]
        .into_iter()
        .zip(0..)
        .map(|(sent, epoch)| exchanged(&mut *pipegcn, epoch, sent).0[0].copy())
        .collect();
    let mean = (&a + &b) * 0.5;
    for (arrived, expected) in arrived.iter().zip([&a.zeros_like(), &a, &mean, &((&mean + &c) * 0.5)]) {
        assert!(largest(&(arrived - expected)) < 1e-6);
    }
}

#[test]
fn adaqp_sends_few_bits_of_rows_with_little_effect() {
    let fixed = |bits: &str| exchange_of(Method::AdaQp, |options| options.message_bits = bits.parse().unwrap());
    let sent = rows(4);
    let mut errors = Vec::new();
    for (bits, row_bytes) in [("2", 2 + 4), ("4", 3 + 4), ("8", 6 + 4)] {
        let mut adaqp = fixed(bits);
        let (_, bytes) = exchanged(&mut *adaqp, 0, &sent);
        assert_eq!(bytes.activations, 2 * COPIES as u64 * row_bytes, "{bits} bits");
        errors.push(relative(&*adaqp));
    }
    assert!(errors.is_sorted_by(|more, less| *more > 10.0 * less), "{errors:?}");
    // Half of the rows have a wide range.
    let mut adaqp = exchange_of(Method::AdaQp, |_| {});
    let scale = Tensor::arange(COPIES as i64, (Kind::Float, Device::Cpu)).fmod(2.0).unsqueeze(1) * 100.0 + 0.01;
    let sent = (&sent - 2.0) * scale;
    let (_, at_first) = exchanged(&mut *adaqp, 0, &sent);
    let (_, chosen) = exchanged(&mut *adaqp, 1, &sent);
    assert!(chosen.activations < at_first.activations, "{chosen:?} {at_first:?}");
    assert!(relative(&*adaqp) < errors[0], "wide rows keep their bits");
}
