//! Attention in our loops equals libtorch's operators, forward and backward.

use tch::{Device, Kind, Tensor};

use super::{
    aggregation::{some_block, some_block_with},
    assert_close, assert_close_or_special, assert_each, random, with_specials,
};
use crate::nn::{
    Block,
    aggregate::own_states,
    attention::{attend, pair_logits, sum_logits},
    backend::Backend,
    linear::Dropout,
};

/// Sizes of a block: destinations, sources, heads and values per head.
type Sizes = (usize, usize, i64, i64);

/// Logits, results and the gradients of all inputs of GATv2's attention, from sources' rows that `change` makes of random ones. The last
/// gradient is of rows of edges.
fn attention_of(
    backend: Backend,
    block: &Block,
    sizes: Sizes,
    has_edge_rows: bool,
    change: fn(&Tensor) -> Tensor,
) -> Vec<Tensor> {
    let (destinations, sources, heads, head_width) = sizes;
    let width = heads * head_width;
    let looped = block.with_own(0);
    let leaf = |seed, shape: &[i64]| random(seed, shape).set_requires_grad(true);
    let rows = change(&random(1, &[sources as i64, width])).set_requires_grad(true);
    let own = leaf(2, &[destinations as i64, width]);
    let attention = leaf(3, &[width]);
    let of_edges = has_edge_rows.then(|| leaf(5, &[looped.edges() as i64, width]));
    let logits = pair_logits(backend, looped, [&rows, &own], of_edges.as_ref(), &attention, heads);
    let result = attend(backend, looped, &rows, None, &logits, None);
    (&result * random(4, &[destinations as i64, width])).sum(Kind::Float).backward();
    let gradients = [&rows, &own, &attention].into_iter().chain(&of_edges).map(Tensor::grad);
    [logits.detach(), result.detach()].into_iter().chain(gradients).collect()
}

#[test]
fn loops_equal_operators_forward_and_backward() {
    for sizes in [(1, 1, 1, 1), (40, 90, 3, 5), (300, 2000, 4, 32), (5, 9, 2, 100)] {
        let block = Block::new(&some_block(sizes.0, sizes.1), Device::Cpu);
        for has_edge_rows in [false, true] {
            let run = |backend| attention_of(backend, &block, sizes, has_edge_rows, Tensor::copy);
            let [actual, expected] = [Backend::Fastest, Backend::Operators].map(run);
            assert_eq!(actual.len(), 5 + usize::from(has_edge_rows));
            assert_each(assert_close, &actual, &expected, 1e-5, &format!("{sizes:?}, {has_edge_rows}"));
        }
    }
}

#[test]
fn logits_of_sums_equal_operators_forward_and_backward() {
    for (destinations, sources, heads, has_copies) in
        [(1, 1, 1, false), (40, 90, 3, false), (300, 2000, 4, false), (300, 200, 4, true), (5, 9, 20, false)]
    {
        let block = some_block_with(has_copies, destinations, sources);
        let block = Block::new(&block, Device::Cpu);
        let looped = block.with_own(0);
        let run = |backend| {
            let scores = random(1, &[sources as i64, 2 * heads]).set_requires_grad(true);
            let [of_sources, of_nodes] = [0, heads].map(|first| scores.narrow(1, first, heads));
            let logits = sum_logits(backend, looped, &of_sources, &own_states(backend, &block, &of_nodes));
            let factors = random(2, &[looped.edges() as i64, heads]);
            (&logits * factors).sum(Kind::Float).backward();
            [logits.detach(), scores.grad()]
        };
        let [actual, expected] = [Backend::Fastest, Backend::Operators].map(run);
        assert_each(assert_close, &actual, &expected, 1e-5, &format!("{destinations} destinations and {heads} heads"));
    }
}

#[test]
fn dropout_of_attention_weights_drops_sources_by_head_and_keeps_the_expectation() {
    let (destinations, sources, heads, head_width) = (300, 2000, 4, 8);
    let block = Block::new(&some_block(destinations, sources), Device::Cpu);
    let looped = block.with_own(0);
    let ones = Tensor::ones([sources as i64, heads * head_width], (Kind::Float, Device::Cpu));
    let logits = Tensor::zeros([looped.edges() as i64, heads], (Kind::Float, Device::Cpu));
    let run = |backend, key| {
        let dropout = Dropout { probability: 0.6, key, names: None };
        attend(backend, looped, &ones, None, &logits, Some(dropout))
    };
    let dropped = run(Backend::Fastest, 1);
    assert_close(&dropped, &run(Backend::Operators, 1), 1e-6, "operators");
    assert_ne!(dropped, run(Backend::Fastest, 2));
    // Without dropout the weights of a destination and head add up to 1.
    assert!((dropped.mean(Kind::Float).double_value(&[]) - 1.0).abs() < 0.05);
    let by_head = dropped.view([destinations as i64, heads, head_width]);
    let within = (&by_head - by_head.narrow(2, 0, 1)).abs().max().double_value(&[]);
    let across = (&by_head - by_head.narrow(1, 0, 1)).abs().max().double_value(&[]);
    assert!(within == 0.0 && across > 0.1, "{within} {across}");
}

#[test]
fn nan_and_infinities_go_where_operators_take_them() {
    for sizes in [(40, 90, 3, 5), (300, 2000, 4, 32)] {
        let block = Block::new(&some_block(sizes.0, sizes.1), Device::Cpu);
        let run = |backend| attention_of(backend, &block, sizes, false, with_specials);
        let expected = run(Backend::Operators);
        assert!(expected[1].isnan().any().int64_value(&[]) == 1, "nothing is at stake");
        assert_each(assert_close_or_special, &run(Backend::Fastest), &expected, 1e-5, &format!("{sizes:?}"));
    }
}

#[test]
fn large_logits_do_not_overflow() {
    let block = Block::new(&some_block(20, 50), Device::Cpu);
    let looped = block.with_own(0);
    let logits = random(1, &[looped.edges() as i64, 2]) * 1e4;
    for backend in [Backend::Fastest, Backend::Operators] {
        let result = attend(backend, looped, &Tensor::ones([50, 4], (Kind::Float, Device::Cpu)), None, &logits, None);
        // Weights add up to 1.
        assert_close(&result, &Tensor::ones([20, 4], (Kind::Float, Device::Cpu)), 1e-5, &format!("{backend:?}"));
    }
}
