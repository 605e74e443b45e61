//! Tests of `random`.

use super::*;
use crate::sample::tests::statistics::assert_uniform;

fn key(batch: u64) -> BatchKey {
    BatchKey { seed: 42, epoch: 1, partition: PartitionId(3), batch }
}

#[test]
fn numbers_never_change() {
    // Computed with an independent implementation of the description above. Other numbers would change every run.
    let mut draws = key(2).hop(1).draws(5);
    assert_eq!([draws.next(), draws.next()], [0xf3ae_102a_4304_7576, 0x3e22_766a_fd72_6d3f]);
    assert_eq!(draws.below(1000), 949);
}

#[test]
fn small_and_large_ranges_are_uniform() {
    let mut draws = key(0).hop(0).draws(0);
    let mut counts = vec![0; 37];
    (0..37_000).for_each(|_| counts[draws.below(37) as usize] += 1);
    assert_uniform(&counts, "below 37");
    // 2^64 is 4/3 of this range. Without rejection, a third of the range would occur twice as often.
    let end = 3 << 62;
    let mut counts = vec![0; 3];
    (0..30_000).for_each(|_| counts[(draws.below(end) >> 62) as usize] += 1);
    assert_uniform(&counts, "below 3 * 2^62");
    let mut counts = vec![0; 4];
    (0..40_000).for_each(|_| counts[(draws.below(end) & 3) as usize] += 1);
    assert_uniform(&counts, "low bits below 3 * 2^62");
}

#[test]
fn bits_of_neighboring_draws_are_fair_and_independent() {
    // Each bit of a draw is 1 half of the time. So is its exclusive or with the same bit of the next draw, and of
    // the first draws of the next destination, hop and batch. 5 sigma of a fair coin over n throws are 2.5 sqrt(n).
    let n = 1 << 16;
    let mut ones = [[0u64; 64]; 5];
    for i in 0..n {
        let first = |batch, hop, destination| key(batch).hop(hop).draws(destination).next();
        let mut draws = key(7).hop(0).draws(i);
        let this = draws.next();
        let words =
            [this, this ^ draws.next(), this ^ first(7, 0, i + 1), this ^ first(7, 1, i), this ^ first(8, 0, i)];
        for (ones, word) in ones.iter_mut().zip(words) {
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += word >> bit & 1;
            }
        }
    }
    for (bit, &ones) in ones.iter().flatten().enumerate() {
        assert!((ones as f64 - n as f64 / 2.0).abs() < 2.5 * (n as f64).sqrt(), "bit {bit}: {ones} of {n}");
    }
}
