//! Classes of R-MAT nodes, and edges that prefer sources of the destination's class.
//!
//! The class of a label depends on its low bits alone, its *pattern*:
//!
//! ```text
//! m         = min(scale, max(12, bits of classes - 1, plus 4))
//! pattern p = label mod 2^m
//! class     = F(p) mod classes,  F a keyed permutation of the patterns
//! ```
//!
//! R-MAT draws all bits of an edge independently of each other. So the pattern of a source can be drawn again without changing its
//! other bits: with probability `homophily`, a pattern of the destination's class replaces it, chosen as often as it occurs among all
//! sources of R-MAT. In-degrees stay what they are. So do expected out-degrees if b = c, as in Graph500: then classes are as frequent
//! among the destinations of edges as among their sources. If b and c differ, classes of frequent destinations become more frequent
//! sources. An edge that keeps its source may still be in one class, by chance.
//!
//! Patterns are few (4096 for up to 256 classes), so tables of them stay in cache, and any part of a graph can be generated alone.
//! Cost: two random numbers per edge.

use grappa_formats::{permutation::Feistel, random::scale};
use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::{
    alias::fill_cells,
    random::{Purpose, Source, Stream},
};

/// The maximum number of classes. Its tables take 16 MB.
const CLASSES_MAX: u32 = 1 << 16;
/// Bits of a pattern, if there are few classes.
const PATTERN_BITS: u32 = 12;
/// With many classes, each has at least 2^CLASS_PATTERN_BITS patterns.
const CLASS_PATTERN_BITS: u32 = 4;

/// Classes of the nodes of an R-MAT graph, and how they show in its edges and features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmatClasses {
    /// Number of classes. Each has the same share of the patterns, up to one.
    pub count: u32,
    /// Probability that the source of an edge is chosen from the class of the destination.
    pub homophily: f64,
    /// Standard deviation of a feature value around the mean of its class, in units of the standard deviation of the class
    /// means.
    pub noise: f64,
}

impl RmatClasses {
    /// Homophily 0.7, and features that a network can hardly classify without the edges (see [`super::Features`]).
    pub fn new(count: u32) -> Self {
        Self { count, homophily: 0.7, noise: 5.0 }
    }

    pub(super) fn check(&self, scale: u32) -> Result<()> {
        let most = u64::from(CLASSES_MAX).min(1 << scale);
        if self.count == 0 || u64::from(self.count) > most {
            return Err(Error::out_of_range("the number of classes of R-MAT", format!("1 to {most}"), self.count));
        }
        check_homophily(self.homophily)?;
        check_noise(self.noise)
    }
}

pub(super) fn check_homophily(homophily: f64) -> Result<()> {
    if (0.0..=1.0).contains(&homophily) {
        return Ok(());
    }
    Err(Error::out_of_range("homophily", "a probability from 0 to 1", homophily))
}

pub(super) fn check_noise(noise: f64) -> Result<()> {
    if (0.0..=1e6).contains(&noise) {
        return Ok(());
    }
    Err(Error::out_of_range("feature noise", "0 to 1000000", noise))
}

#[derive(Debug, Clone)]
pub(super) struct PatternClasses {
    /// The pattern of a label is `label & mask`.
    mask: u64,
    class_of: Vec<u32>,
}

impl PatternClasses {
    /// The classes of labels of `scale` bits, in the graph of `seed`.
    pub(super) fn new(classes: u32, scale: u32, seed: u64) -> Self {
        let class_bits = u32::BITS - classes.saturating_sub(1).leading_zeros();
        let patterns = 1 << scale.min(PATTERN_BITS.max(class_bits + CLASS_PATTERN_BITS));
        let permutation = Feistel::new(patterns, Source::new(seed, Purpose::Pattern).at(0));
        Self {
            mask: patterns - 1,
            class_of: (0..patterns).map(|pattern| (permutation.forward(pattern) % u64::from(classes)) as u32).collect(),
        }
    }

    #[inline]
    pub(super) fn class(&self, label: u64) -> u32 {
        self.class_of[(label & self.mask) as usize]
    }

    fn bits(&self) -> u32 {
        self.mask.count_ones()
    }
}

/// Draws the patterns of sources by class.
#[derive(Debug, Clone)]
pub(super) struct PatternSampler {
    pub(super) classes: PatternClasses,
    /// If 32 uniform bits are below this, the source is of the destination's class.
    same_class: u64,
    /// The first cell of each class, then the number of cells.
    starts: Vec<usize>,
    /// The alias tables of all classes, one after the other.
    cells: Vec<Cell>,
}

/// A cell of an alias table: 32 uniform bits below `threshold` give `pattern`, the others `alias`.
#[derive(Debug, Clone, Copy)]
struct Cell {
    pattern: u32,
    alias: u32,
    threshold: u32,
}

impl PatternSampler {
    /// Random numbers per source: one decides, one chooses the pattern.
    pub(super) const NUMBERS_PER_EDGE: u64 = 2;

    /// `one` is the probability that a source bit is 1.
    pub(super) fn new(classes: &RmatClasses, scale: u32, one: f64, seed: u64) -> Self {
        let same_class = (classes.homophily * 2f64.powi(32)).round() as u64;
        let count = classes.count;
        let classes = PatternClasses::new(count, scale, seed);
        let mut members = vec![Vec::new(); count as usize];
        for (pattern, &class) in (0..).zip(&classes.class_of) {
            members[class as usize].push(pattern);
        }
        // Multiplied one by one, because the last bit of `powi` may differ between machines.
        let bits = classes.bits();
        let (mut starts, mut cells) = (vec![0], Vec::new());
        for members in members {
            cells.extend(alias_table(&members, |pattern| {
                (0..bits).fold(1.0, |product, bit| product * if pattern >> bit & 1 == 1 { one } else { 1.0 - one })
            }));
            starts.push(cells.len());
        }
        Self { classes, same_class, starts, cells }
    }

    /// The cells of the class of a destination.
    pub(super) fn of_destination(&self, label: u64) -> DestinationPatterns<'_> {
        let class = self.classes.class(label) as usize;
        DestinationPatterns {
            cells: &self.cells[self.starts[class]..self.starts[class + 1]],
            same_class: self.same_class,
            mask: self.classes.mask,
        }
    }
}

/// Draws the patterns of a destination's sources.
#[derive(Debug, Clone, Copy)]
pub(super) struct DestinationPatterns<'a> {
    cells: &'a [Cell],
    same_class: u64,
    mask: u64,
}

impl DestinationPatterns<'_> {
    /// Replaces the pattern of `source`, or keeps it.
    #[inline(always)]
    pub(super) fn redraw(self, source: u64, stream: &mut Stream) -> u64 {
        let choice = stream.next_number();
        if choice >> 32 >= self.same_class || self.cells.is_empty() {
            stream.skip(1);
            return source;
        }
        let cell = self.cells[scale(stream.next_number(), self.cells.len() as u64) as usize];
        let is_own = (choice as u32) < cell.threshold;
        let pattern = if is_own { cell.pattern } else { cell.alias };
        source & !self.mask | u64::from(pattern)
    }
}

/// Makes the alias table of some patterns. It is empty if no pattern has a mass: then no source is of the class.
fn alias_table(patterns: &[u32], mass: impl Fn(u32) -> f64) -> Vec<Cell> {
    const CELL: u64 = 1 << 32;
    let sum: f64 = patterns.iter().map(|&pattern| mass(pattern)).sum();
    if sum <= 0.0 {
        return Vec::new();
    }
    let all = (CELL * patterns.len() as u64) as f64;
    let mut masses: Vec<u64> = patterns.iter().map(|&pattern| (mass(pattern) / sum * all).round() as u64).collect();
    let mut cells: Vec<Cell> = patterns.iter().map(|&pattern| Cell { pattern, alias: pattern, threshold: 0 }).collect();
    fill_cells(&mut masses, CELL, |poor, mass, rich| {
        cells[poor].threshold = mass as u32;
        cells[poor].alias = patterns[rich];
    });
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_tables_have_the_shares_of_their_patterns() {
        let mass = |pattern: u32| f64::from(pattern);
        let patterns = [3, 90, 0, 7, 1000, 5];
        let cells = alias_table(&patterns, mass);
        let sum: f64 = patterns.iter().map(|&pattern| mass(pattern)).sum();
        for pattern in patterns {
            let of_cell = |cell: &Cell| {
                let own = f64::from(cell.threshold) / 2f64.powi(32);
                f64::from(u8::from(cell.pattern == pattern)) * own
                    + f64::from(u8::from(cell.alias == pattern)) * (1.0 - own)
            };
            let found = cells.iter().map(of_cell).sum::<f64>() / cells.len() as f64;
            assert!((found - mass(pattern) / sum).abs() < 1e-8, "{pattern}: {found}");
        }
        assert!(alias_table(&patterns, |_| 0.0).is_empty());
    }

    #[test]
    fn classes_share_the_patterns_evenly() {
        for (classes, scale, patterns) in [(10, 30, 4096), (172, 30, 4096), (2983, 30, 65_536), (7, 5, 32), (32, 5, 32)]
        {
            let pattern_classes = PatternClasses::new(classes, scale, 3);
            assert_eq!(pattern_classes.class_of.len(), patterns);
            let mut counts = vec![0; classes as usize];
            pattern_classes.class_of.iter().for_each(|&class| counts[class as usize] += 1);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 0 && most - least <= 1, "{classes}: {least} to {most}");
            assert_eq!(pattern_classes.class(5), pattern_classes.class(5 + 3 * patterns as u64));
        }
    }

    /// The examples of `formats/spec/procedural.md`, computed by another implementation of what it says.
    #[test]
    fn classes_are_those_of_the_specification() {
        let classes = |count, scale, seed| {
            let pattern_classes = PatternClasses::new(count, scale, seed);
            [0, 1, 4095, 123_456].map(|label| pattern_classes.class(label))
        };
        assert_eq!(classes(16, 20, 1), [6, 9, 8, 5]);
        assert_eq!(classes(1000, 36, 42), [418, 705, 327, 296]);
    }
}
