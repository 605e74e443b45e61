//! Tests of generated graphs against the definitions of the models, and for reproducibility.
//!
//! Statistical tests use fixed seeds, so they always give the same result. A correct generator exceeds their thresholds once
//! in a million samples.

mod classes;
mod distributions;
mod graphs;

use grappa_formats::random::GOLDEN;
use xxhash_rust::xxh3::xxh3_64;

use grappa_formats::permutation::Feistel;
use grappa_io::sort::bits_for;

use super::{generator::WINDOW_DRAWS, *};

/// Uneven in every way, so that no two parameters can be mistaken for each other.
const UNEVEN: Rmat = Rmat { scale: 13, edge_factor: 16.0, a: 0.5, b: 0.24, c: 0.16, d: 0.1, classes: None };

/// Source and destination.
type Edge = (u64, u64);

fn generator(model: Model, seed: u64) -> Generator {
    Generator::new(Recipe::new(model, seed)).expect("valid options")
}

fn edges(generator: &Generator) -> Vec<Edge> {
    let mut buffer = AdjacencyBuffer::default();
    let mut edges = Vec::new();
    for label in 0..generator.nodes() {
        edges.extend(generator.sources(label, &mut buffer).iter().map(|&source| (source, label)));
    }
    edges
}

/// The value that chi-square with `freedom` degrees of freedom exceeds with probability 10^-6 (Wilson and Hilferty).
fn chi_square_limit(freedom: usize) -> f64 {
    let (f, z) = (freedom as f64, 4.753);
    f * (1.0 - 2.0 / (9.0 * f) + z * (2.0 / (9.0 * f)).sqrt()).powi(3)
}

/// The chi-square statistic for two samples having the same distribution over bins, divided by its limit. Above 1, the
/// distributions differ. Bins with few counts are merged with the next.
fn unlikeness(left: &[u64], right: &[u64]) -> f64 {
    let mut bins = vec![(0.0, 0.0)];
    for (&l, &r) in left.iter().zip(right) {
        let last = bins.last_mut().expect("never empty");
        *last = (last.0 + l as f64, last.1 + r as f64);
        if last.0 + last.1 >= 20.0 {
            bins.push((0.0, 0.0));
        }
    }
    let rest = bins.pop().expect("never empty");
    let last = bins.last_mut().expect("a bin with something in it");
    *last = (last.0 + rest.0, last.1 + rest.1);
    let (n, m) = bins.iter().fold((0.0, 0.0), |(n, m), (l, r)| (n + l, m + r));
    let ratio = (m / n).sqrt();
    let statistic: f64 = bins.iter().map(|(l, r)| (l * ratio - r / ratio).powi(2) / (l + r)).sum();
    statistic / chi_square_limit((bins.len() - 1).max(1))
}

/// Graph500's model with classes.
fn with_classes(scale: u32, count: u32, homophily: f64) -> Rmat {
    Rmat { classes: Some(RmatClasses { homophily, ..RmatClasses::new(count) }), ..Rmat::graph500(scale, 16.0) }
}

/// The plain R-MAT generator: draws the quadrants of one edge after the other, with a sequential random generator
/// (xorshift64*).
fn reference_edges(rmat: &Rmat, seed: u64) -> Vec<Edge> {
    let mut state = seed.wrapping_mul(GOLDEN) | 1;
    let mut uniform = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / 2f64.powi(53)
    };
    let edges = (rmat.edge_factor * 2f64.powi(rmat.scale as i32)) as usize;
    (0..edges)
        .map(|_| {
            (0..rmat.scale).fold((0, 0), |(source, destination), _| {
                let at = uniform();
                let (source_bit, destination_bit) = if at < rmat.a {
                    (0, 0)
                } else if at < rmat.a + rmat.b {
                    (0, 1)
                } else if at < rmat.a + rmat.b + rmat.c {
                    (1, 0)
                } else {
                    (1, 1)
                };
                (source << 1 | source_bit, destination << 1 | destination_bit)
            })
        })
        .collect()
}
