//! Our loops equal libtorch's operators; sampled sums have the full sum as expectation; history is taken as it is.

use grappa_formats::random::mix;
use grappa_sampling::sample;
use tch::{Device, Kind, Tensor};

use super::{assert_close, assert_close_or_special, assert_each, devices, random, with_specials};
use crate::nn::{
    Aggregate, Block, HistoricalEmbeddings, Scaling,
    aggregate::{aggregate, own_and_aggregate, own_states},
    backend::Backend,
};

const KINDS: [Aggregate; 5] =
    [Aggregate::Mean, Aggregate::Max, Aggregate::Sum, Aggregate::Gcn, Aggregate::WeightedMean];

/// A block with up to 9 edges a destination, some of them parallel, and degrees that exceed the edges.
pub(super) fn some_block(destinations: usize, sources: usize) -> sample::Block {
    let mut block = sample::Block { destinations, sources, offsets: vec![0], ..sample::Block::default() };
    let mut number = 0;
    let mut below = |bound: usize| {
        number += 1;
        (mix(number) % bound as u64) as usize
    };
    for _ in 0..destinations {
        let edges = below(10);
        block.indices.extend((0..edges).map(|_| below(sources) as u32));
        block.offsets.push(block.indices.len() as u32);
        block.visible.push(edges as u64);
        block.global.push((edges + edges * below(3)) as u64);
        block.halo.push(false);
    }
    block.edge_weights = (0..block.indices.len()).map(|_| below(5) as f32 / 2.0).collect();
    block
}

/// The same. With `has_copies`, most nodes are several destinations, as in a joined minibatch.
pub(super) fn some_block_with(has_copies: bool, destinations: usize, sources: usize) -> sample::Block {
    let places = 0..if has_copies { destinations as u32 } else { 0 };
    sample::Block {
        own: places.map(|place| mix(place.into()) as u32 % place.div_ceil(3).max(1)).collect(),
        ..some_block(destinations, sources)
    }
}

fn some_degrees(block: &sample::Block) -> Vec<u64> {
    let beyond = block.global.len()..block.sources;
    block.global.iter().copied().chain(beyond.map(|i| i as u64 % 7)).collect()
}

#[test]
fn loops_equal_operators_forward_and_backward() {
    for (destinations, sources, width, has_copies) in [
        (1, 1, 1, false),
        (40, 90, 3, false),
        (40, 90, 3, true),
        (300, 2000, 100, false),
        (300, 400, 100, true),
        (0, 5, 8, false),
    ] {
        let block = some_block_with(has_copies, destinations, sources);
        let block = Block::new(&block, Device::Cpu).with_source_degrees(&some_degrees(&block));
        let values = random(1, &[sources as i64, width]);
        let factors = random(2, &[destinations as i64, width]);
        for kind in KINDS {
            for scaling in [Scaling::None, Scaling::HorvitzThompson] {
                let run = |backend| {
                    let messages = values.copy().set_requires_grad(true);
                    let both = || own_and_aggregate(backend, &block, kind, scaling, &messages, None);
                    let own_factors = random(3, &[destinations as i64, width]);
                    let gradient = |sum: Tensor| {
                        sum.backward();
                        let gradient = messages.grad().copy();
                        let _ = messages.grad().zero_();
                        gradient
                    };
                    let (own, result) = both();
                    let gradients = [
                        gradient((&result * &factors + &own * &own_factors).sum(Kind::Float)),
                        // Each without the other.
                        gradient((both().0 * &own_factors).sum(Kind::Float)),
                        gradient(both().1.sum(Kind::Float)),
                        gradient((own_states(backend, &block, &messages) * &own_factors).sum(Kind::Float)),
                    ];
                    let results = [result, own, own_states(backend, &block, &messages)];
                    (results.map(|result| result.detach()), gradients)
                };
                let case = format!("{kind:?} of {destinations} by {width}, {scaling:?}");
                let (expected, expected_gradients) = run(Backend::Operators);
                for instructions in super::instructions() {
                    let case = format!("{case}, {instructions:?}");
                    let (results, gradients) = run(Backend::With(instructions));
                    assert_each(assert_close, &results, &expected, 1e-6, &case);
                    assert_each(assert_close, &gradients, &expected_gradients, 1e-6, &format!("gradients of {case}"));
                }
            }
        }
    }
}

#[test]
fn nan_and_infinities_go_where_operators_take_them() {
    for (destinations, sources, width) in [(40, 90, 3), (300, 2000, 100)] {
        let block = some_block(destinations, sources);
        let block = Block::new(&block, Device::Cpu).with_source_degrees(&some_degrees(&block));
        let values = with_specials(&random(1, &[sources as i64, width]));
        let factors = random(2, &[destinations as i64, width]);
        for kind in KINDS {
            let run = |backend| {
                let messages = values.copy().set_requires_grad(true);
                let (own, result) = own_and_aggregate(backend, &block, kind, Scaling::None, &messages, None);
                (&result * &factors + &own * 0.7).sum(Kind::Float).backward();
                (result, messages.grad())
            };
            let (expected, expected_gradient) = run(Backend::Operators);
            assert!(expected.isnan().any().int64_value(&[]) == 1, "{kind:?}: nothing is at stake");
            for instructions in super::instructions() {
                let case = format!("{kind:?} of {destinations} by {width}, {instructions:?}");
                let (result, gradient) = run(Backend::With(instructions));
                assert_close_or_special(&result, &expected, 1e-6, &case);
                // libtorch divides the gradient of a largest value among those that equal it, and no NaN equals itself.
                if kind != Aggregate::Max {
                    assert_close_or_special(&gradient, &expected_gradient, 1e-6, &format!("gradient of {case}"));
                }
            }
        }
    }
}

#[test]
fn the_gradient_of_a_largest_value_that_is_nan_goes_to_the_first_nan() {
    let block = sample::Block {
        destinations: 1,
        sources: 4,
        offsets: vec![0, 3],
        indices: vec![1, 2, 3],
        visible: vec![3],
        global: vec![3],
        halo: vec![false],
        ..sample::Block::default()
    };
    let block = Block::new(&block, Device::Cpu).with_source_degrees(&[0; 4]);
    let messages = Tensor::from_slice(&[0.0, 9.0, f32::NAN, f32::NAN]).view([4, 1]).set_requires_grad(true);
    let result = aggregate(&block, Aggregate::Max, Scaling::None, &messages, None);
    assert!(result.double_value(&[0, 0]).is_nan());
    (result * 3.0).sum(Kind::Float).backward();
    let expected = Tensor::from_slice(&[0.0f32, 0.0, 3.0, 0.0]).view([4, 1]);
    assert_close(&messages.grad(), &expected, 0.0, "gradient");
}

#[test]
fn aggregates_are_those_by_hand_on_every_device() {
    // 0 <- 1, 2, 2; 1 <- nothing; degrees of sources 4, 0, 3
    let weighted = sample::Block {
        destinations: 2,
        sources: 3,
        offsets: vec![0, 3, 3],
        indices: vec![1, 2, 2],
        edge_weights: vec![0.5, 1.0, 2.5],
        visible: vec![3, 0],
        global: vec![6, 0],
        halo: vec![false, true],
        ..sample::Block::default()
    };
    let plain = sample::Block { edge_weights: vec![], ..weighted.clone() };
    for device in devices() {
        let [plain, weighted] =
            [&plain, &weighted].map(|block| Block::new(block, device).with_source_degrees(&[4, 0, 3]));
        let messages = Tensor::from_slice(&[1.0f32, 2.0, -4.0]).view([3, 1]).to_device(device);
        let gcn = (2.0 / 5f32.sqrt()) + 2.0 * (-4.0 / 20f32.sqrt());
        let weighted_gcn = 0.5 * (2.0 / 5f32.sqrt()) + 3.5 * (-4.0 / 20f32.sqrt());
        for (kind, scaling, expected) in [
            (Aggregate::Mean, Scaling::None, [-2.0, -13.0 / 4.0]),
            (Aggregate::Mean, Scaling::HorvitzThompson, [-2.0, -13.0 / 4.0]),
            (Aggregate::Max, Scaling::HorvitzThompson, [2.0, 2.0]),
            (Aggregate::Sum, Scaling::None, [-6.0, -13.0]),
            (Aggregate::Sum, Scaling::HorvitzThompson, [-12.0, -26.0]),
            (Aggregate::Gcn, Scaling::None, [gcn, weighted_gcn]),
            (Aggregate::Gcn, Scaling::HorvitzThompson, [2.0 * gcn, 2.0 * weighted_gcn]),
            (Aggregate::WeightedMean, Scaling::None, [-2.0, -13.0 / 4.0]),
        ] {
            for (block, expected) in [&plain, &weighted].into_iter().zip(expected) {
                let result = aggregate(block, kind, scaling, &messages, None);
                let expected = Tensor::from_slice(&[expected, 0.0]).view([2, 1]);
                let case = format!("{kind:?}, {scaling:?} on {device:?}, weights: {}", !block.csr.weights.is_empty());
                assert_close(&result, &expected, 1e-6, &case);
            }
        }
    }
}

#[test]
fn sampled_sums_have_the_full_sum_as_expectation() {
    // A destination with 6 in-neighbors; 2 of them are drawn. The test uses each possible pair once.
    let messages = random(3, &[7, 4]);
    let mean_over_draws = |kind: Aggregate| {
        let mut total = Tensor::zeros([1, 4], (Kind::Float, Device::Cpu));
        let mut draws = 0;
        for first in 1..7 {
            for second in first + 1..7 {
                let block = sample::Block {
                    destinations: 1,
                    sources: 7,
                    offsets: vec![0, 2],
                    indices: vec![first, second],
                    global: vec![6],
                    ..sample::Block::default()
                };
                let block = Block::new(&block, Device::Cpu).with_source_degrees(&[6, 1, 2, 3, 4, 5, 0]);
                total += aggregate(&block, kind, Scaling::HorvitzThompson, &messages, None);
                draws += 1;
            }
        }
        total / f64::from(draws)
    };
    let full = sample::Block {
        destinations: 1,
        sources: 7,
        offsets: vec![0, 6],
        indices: vec![1, 2, 3, 4, 5, 6],
        global: vec![6],
        ..sample::Block::default()
    };
    let full = Block::new(&full, Device::Cpu).with_source_degrees(&[6, 1, 2, 3, 4, 5, 0]);
    for kind in [Aggregate::Sum, Aggregate::Gcn] {
        let expected = aggregate(&full, kind, Scaling::None, &messages, None);
        assert_close(&mean_over_draws(kind), &expected, 1e-6, &format!("{kind:?}"));
    }
}

#[test]
fn history_replaces_aggregates_and_takes_their_gradient() {
    let sampled = some_block(30, 80);
    for device in devices() {
        let block = Block::new(&sampled, device).with_source_degrees(&some_degrees(&sampled));
        let values = random(4, &[80, 5]).to_device(device);
        for kind in KINDS {
            let historical = HistoricalEmbeddings {
                destinations: Tensor::from_slice(&[29i64, 2, 17]).to_device(device),
                rows: random(5, &[3, 5]).to_device(device).set_requires_grad(true),
                neighbor: None,
            };
            let messages = values.copy().set_requires_grad(true);
            let plain = aggregate(&block, kind, Scaling::None, &values, None);
            let result = aggregate(&block, kind, Scaling::None, &messages, Some(&historical));
            let expected = plain.index_copy(0, &historical.destinations, &historical.rows.detach());
            assert_close(&result, &expected, 0.0, &format!("{kind:?}"));

            result.sum(Kind::Float).backward();
            assert_close(&historical.rows.grad(), &historical.rows.ones_like(), 0.0, "gradient of history");
            // The same as if those destinations counted for nothing.
            let factors = Tensor::ones([30, 1], (Kind::Float, device)).index_fill(0, &historical.destinations, 0.0);
            let expected = values.copy().set_requires_grad(true);
            let result = aggregate(&block, kind, Scaling::None, &expected, None);
            (result * factors).sum(Kind::Float).backward();
            assert_close(&messages.grad(), &expected.grad(), 1e-6, &format!("gradient of {kind:?}"));
        }
    }
}

#[test]
#[should_panic(expected = "sources of a block")]
fn a_block_with_a_source_beyond_the_last_is_refused() {
    let mut block = some_block(3, 5);
    block.indices[0] = 5;
    let _ = Block::new(&block, Device::Cpu);
}
