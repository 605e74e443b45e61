//! Tests of `draw`.

use std::collections::HashMap;

use grappa_formats::PartitionId;

use super::*;
use crate::sample::{BatchKey, random::HopKey, tests::statistics::assert_uniform};

fn key() -> HopKey {
    BatchKey { seed: 1, epoch: 0, partition: PartitionId(0), batch: 0 }.hop(0)
}

/// The frequency of each outcome, over `draws` destinations.
fn outcomes(draws: usize, mut draw: impl FnMut(&mut Draws, &mut Vec<u64>)) -> HashMap<Vec<u64>, u64> {
    let mut counts = HashMap::new();
    for destination in 0..draws {
        let mut positions = Vec::new();
        draw(&mut key().draws(destination as u64), &mut positions);
        *counts.entry(positions).or_insert(0) += 1;
    }
    counts
}

#[test]
fn each_way_of_drawing_gives_every_set_with_equal_frequency() {
    type Way = fn(&mut Draws, u64, u32, &mut DrawScratch, &mut Vec<u64>);
    let ways: [(&str, Way); 4] = [
        ("register", without_replacement),
        ("bitmap", |draws, d, k, scratch, positions| {
            by_bitmap(draws, d, k, &mut scratch.bits, positions);
        }),
        ("counting", |draws, d, k, _, positions| by_counting(draws, d, k as usize, positions)),
        ("sorting", |draws, d, k, _, positions| by_sorting(draws, d, k as usize, positions)),
    ];
    let mut scratch = DrawScratch::default();
    for (name, way) in ways {
        for (d, k, sets) in [(9, 4, 126), (8, 7, 8), (6, 1, 6), (40, 2, 780)] {
            let counts = outcomes(60_000, |draws, positions| {
                positions.push(99);
                way(draws, d, k, &mut scratch, positions);
                assert_eq!(positions.remove(0), 99, "{name} appends");
            });
            assert!(counts.keys().all(|set| set.is_sorted_by(|a, b| a < b) && set[set.len() - 1] < d));
            assert_eq!(counts.len(), sets, "{name}: {k} of {d}");
            assert_uniform(&counts.into_values().collect::<Vec<_>>(), name);
        }
    }
}

#[test]
fn any_k_of_any_d_is_a_set_of_k_positions() {
    let mut scratch = DrawScratch::default();
    let mut destination = 0;
    for d in [2, 63, 64, 65, 128, 129, 960, 961, 1024, 1 << 20, 1 << 40] {
        for k in [1, 2, 15, 16, 17, 63, 64, 500, 100_000] {
            if u64::from(k) >= d {
                continue;
            }
            destination += 1;
            let mut positions = Vec::new();
            without_replacement(&mut key().draws(destination as u64), d, k, &mut scratch, &mut positions);
            assert_eq!(positions.len(), k as usize, "{k} of {d}");
            assert!(positions.is_sorted_by(|a, b| a < b) && positions[positions.len() - 1] < d);
            assert!(scratch.bits.iter().all(|&word| word == 0), "the bitmap is left empty");
        }
    }
}

#[test]
fn large_draws_spread_evenly() {
    // Counts the positions in each of a hundred equal ranges. Every way of drawing is used.
    let mut scratch = DrawScratch::default();
    for (d, k) in [(64, 20), (900, 15), (6400, 100), (1_000_000, 15), (1_000_000, 500)] {
        let parts = d.min(100);
        let mut counts = vec![0; parts as usize];
        for destination in 0..2000 {
            let mut positions = Vec::new();
            without_replacement(&mut key().draws(destination as u64), d, k, &mut scratch, &mut positions);
            positions.iter().for_each(|p| counts[(p * parts / d) as usize] += 1);
        }
        assert_uniform(&counts, &format!("{k} of {d}"));
    }
}

#[test]
fn draws_with_replacement_may_repeat() {
    let counts = outcomes(40_000, |draws, positions| with_replacement(draws, 5, 2, positions));
    let expected = |set: &Vec<u64>| 40_000.0 * if set[0] == set[1] { 1.0 } else { 2.0 } / 25.0;
    assert_eq!(counts.len(), 15);
    let (counts, expected): (Vec<_>, Vec<_>) = counts.iter().map(|(set, &n)| (n, expected(set))).unzip();
    crate::sample::tests::statistics::assert_fits(&counts, &expected, "two of five");
}
