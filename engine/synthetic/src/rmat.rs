//! R-MAT: draws sources, given a destination.
//!
//! The model draws each bit of source and destination jointly and independently of the other bits. So, given the destination,
//! the bits of the source are independent, and each depends only on the same bit of the destination. A group of bits is drawn
//! at once, with an alias table for each value of the destination's bits.

use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{
    alias::fill_cells,
    patterns::{PatternSampler, RmatClasses},
    poisson::{MEAN_MAX, Poisson},
    random::Stream,
};

/// The maximum number of source bits drawn at once. The tables of a group of 8 bits have 2^16 cells of 4 bytes together, which
/// fits in the second-level cache. One destination needs one table per group, which fits in the first-level cache.
const GROUP_BITS_MAX: u32 = 8;
/// The maximum number of groups: 40 bits in groups of 8.
const GROUPS_MAX: usize = 5;
/// Number of cells of an alias table.
const CELLS: usize = 1 << GROUP_BITS_MAX;

/// The recursive matrix model (Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for Graph Mining", 2004) over
/// 2^scale nodes: each bit of source and destination, the most significant first, is drawn jointly and independently of
/// the other bits.
///
/// | | destination bit 0 | destination bit 1 |
/// |---|---|---|
/// | **source bit 0** | a | b |
/// | **source bit 1** | c | d |
///
/// as in Graph500, where rows of the matrix are start vertices and columns are end vertices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rmat {
    /// Base-2 logarithm of the number of nodes, 1 to 40.
    pub scale: u32,
    /// Expected number of edges per node.
    pub edge_factor: f64,
    /// Probability of source bit 0 and destination bit 0.
    pub a: f64,
    /// Probability of source bit 0 and destination bit 1.
    pub b: f64,
    /// Probability of source bit 1 and destination bit 0.
    pub c: f64,
    /// Probability of source bit 1 and destination bit 1.
    pub d: f64,
    /// Classes, if nodes have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<RmatClasses>,
}

impl Rmat {
    /// The parameters of Graph500: 0.57, 0.19, 0.19, 0.05. No classes.
    pub fn graph500(scale: u32, edge_factor: f64) -> Self {
        Self { scale, edge_factor, a: 0.57, b: 0.19, c: 0.19, d: 0.05, classes: None }
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(1..=40).contains(&self.scale) {
            return Err(Error::out_of_range("the scale of R-MAT, which has 2^scale nodes", "1 to 40", self.scale));
        }
        let probabilities = [self.a, self.b, self.c, self.d];
        let sum: f64 = probabilities.iter().sum();
        if !probabilities.iter().all(|p| (0.0..=1.0).contains(p)) || (sum - 1.0).abs() > 1e-6 {
            return Err(Error::out_of_range(
                "the probabilities of the four quadrants",
                "numbers from 0 to 1 that add up to 1",
                format!("a = {}, b = {}, c = {}, d = {}, which add up to {sum}", self.a, self.b, self.c, self.d),
            ));
        }
        let largest = self.means().into_iter().fold(0.0, f64::max);
        if largest > MEAN_MAX {
            return Err(Error::limit(
                format!("the largest adjacency list would have {largest:.3e} edges"),
                format!("{MEAN_MAX:.3e}"),
                "choose a smaller edge factor or scale, or more even probabilities",
            ));
        }
        match &self.classes {
            Some(classes) => classes.check(self.scale),
            None => Ok(()),
        }
    }

    /// The probability that a source bit is 1.
    fn source_one(&self) -> f64 {
        (self.c + self.d) / (self.a + self.b + self.c + self.d)
    }

    /// The expected in-degree of labels by their number of one bits.
    fn means(&self) -> Vec<f64> {
        let sum = self.a + self.b + self.c + self.d;
        let (zero, one) = ((self.a + self.c) / sum, (self.b + self.d) / sum);
        let edges = self.edge_factor * (1u64 << self.scale) as f64;
        // Multiplied one by one, because the last bit of `powi` may differ between machines.
        (0..=self.scale)
            .map(|ones| {
                let with_ones = (0..ones).fold(edges, |mean, _| mean * one);
                (ones..self.scale).fold(with_ones, |mean, _| mean * zero)
            })
            .collect()
    }
}

/// The tables for drawing an [`Rmat`] graph.
#[derive(Debug, Clone)]
pub(super) struct RmatSampler {
    /// In-degrees by the number of one bits of the label.
    pub(super) degrees: Vec<Poisson>,
    /// The groups of bits of a label, most significant first.
    groups: Vec<Group>,
    /// The alias tables of all group widths.
    tables: Vec<Table>,
    /// Draws sources of the destination's class, if there are classes.
    patterns: Option<PatternSampler>,
}

/// A group of neighboring bits of a label.
#[derive(Debug, Clone)]
struct Group {
    /// Number of bits.
    width: u32,
    /// Number of less significant bits of the label.
    shift: u32,
    /// Index of the table for destination bits 0. The tables of the other values follow in order.
    tables_start: usize,
}

/// An alias table of the source bits of a group, given the destination bits.
///
/// A draw takes 32 uniform bits. 8 bits choose a cell, and the other 24 bits choose one of the two outcomes of the cell. The
/// high 24 bits of cell `i` are a threshold. Below it, the outcome is `i`; otherwise, it is the low 8 bits of the cell. So
/// probabilities are multiples of 2^-32.
type Table = [u32; CELLS];

impl RmatSampler {
    pub(super) fn new(rmat: &Rmat, seed: u64) -> Self {
        let groups_len = rmat.scale.div_ceil(GROUP_BITS_MAX);
        let (narrow, wider) = (rmat.scale / groups_len, rmat.scale % groups_len);
        // Probability that a source bit is 1, given the destination bit. If a value of the destination bit has probability 0,
        // nodes with it have no in-edges, and the result is not used.
        let one_given = [(rmat.a, rmat.c), (rmat.b, rmat.d)]
            .map(|(zero, one)| if zero + one > 0.0 { one / (zero + one) } else { 0.0 });

        let mut tables = Vec::new();
        let mut starts = [None; GROUP_BITS_MAX as usize + 1];
        let mut shift = rmat.scale;
        let groups = (0..groups_len)
            .map(|i| {
                let width = narrow + u32::from(i < wider);
                shift -= width;
                let tables_start = *starts[width as usize].get_or_insert_with(|| {
                    let start = tables.len();
                    tables.extend((0..1u32 << width).map(|destination| alias_table(destination, width, one_given)));
                    start
                });
                Group { width, shift, tables_start }
            })
            .collect();
        Self {
            degrees: rmat.means().into_iter().map(Poisson::new).collect(),
            groups,
            tables,
            patterns: rmat
                .classes
                .as_ref()
                .map(|classes| PatternSampler::new(classes, rmat.scale, rmat.source_one(), seed)),
        }
    }

    pub(super) fn degree(&self, label: u64) -> &Poisson {
        &self.degrees[label.count_ones() as usize]
    }

    /// The class of a label, if there are classes.
    pub(super) fn class(&self, label: u64) -> Option<u32> {
        self.patterns.as_ref().map(|patterns| patterns.classes.class(label))
    }

    /// Random numbers per source. One number serves two groups.
    pub(super) fn numbers_per_edge(&self) -> u64 {
        let of_patterns = self.patterns.as_ref().map_or(0, |_| PatternSampler::NUMBERS_PER_EDGE);
        self.groups.len().div_ceil(2) as u64 + of_patterns
    }

    /// Draws `degree` sources of `label` and appends them to `out`.
    pub(super) fn draw(&self, label: u64, degree: u64, stream: &mut Stream, out: &mut Vec<u64>) {
        match &self.patterns {
            None => self.draw_with(label, degree, stream, out, |source, _| source),
            Some(patterns) => {
                let patterns = patterns.of_destination(label);
                self.draw_with(label, degree, stream, out, |source, stream| patterns.redraw(source, stream));
            }
        }
    }

    /// Draws sources and gives each to `change`, with the numbers that follow its own.
    #[inline(always)]
    fn draw_with(
        &self,
        label: u64,
        degree: u64,
        stream: &mut Stream,
        out: &mut Vec<u64>,
        change: impl Fn(u64, &mut Stream) -> u64,
    ) {
        // One function per number of groups, so that the compiler unrolls the loop over groups.
        match self.groups.len() {
            1 => self.draw_groups::<1>(label, degree, stream, out, change),
            2 => self.draw_groups::<2>(label, degree, stream, out, change),
            3 => self.draw_groups::<3>(label, degree, stream, out, change),
            4 => self.draw_groups::<4>(label, degree, stream, out, change),
            GROUPS_MAX => self.draw_groups::<GROUPS_MAX>(label, degree, stream, out, change),
            n => unreachable!("{n} groups of bits in a label of 40"),
        }
    }

    fn draw_groups<const GROUPS: usize>(
        &self,
        label: u64,
        degree: u64,
        stream: &mut Stream,
        out: &mut Vec<u64>,
        change: impl Fn(u64, &mut Stream) -> u64,
    ) {
        let groups: [(&Table, u32); GROUPS] = std::array::from_fn(|i| {
            let group = &self.groups[i];
            let destination = label >> group.shift & ((1 << group.width) - 1);
            (&self.tables[group.tables_start + destination as usize], group.width)
        });
        out.extend((0..degree).map(|_| {
            let mut source = 0;
            let mut uniform = 0;
            for (i, (table, width)) in groups.iter().enumerate() {
                uniform = if i % 2 == 0 { stream.next_number() } else { uniform >> 32 };
                source = source << width | u64::from(draw_alias(table, uniform as u32));
            }
            change(source, stream)
        }));
    }
}

#[inline(always)]
fn draw_alias(table: &Table, uniform: u32) -> u32 {
    let cell = table[uniform as usize % CELLS];
    if uniform >> 8 < cell >> 8 { uniform % CELLS as u32 } else { cell % CELLS as u32 }
}

/// Makes the table of `width` source bits for the destination bits `destination`.
fn alias_table(destination: u32, width: u32, one_given: [f64; 2]) -> Table {
    /// The probability of a cell, in units of 2^-32.
    const CELL: u64 = 1 << 24;
    let mut masses = [0u64; CELLS];
    for (source, mass) in masses.iter_mut().enumerate().take(1 << width) {
        let probability = (0..width).fold(1.0, |p, bit| {
            let one = one_given[(destination >> bit & 1) as usize];
            p * if source >> bit & 1 == 1 { one } else { 1.0 - one }
        });
        *mass = (probability * 2f64.powi(32)).round() as u64;
    }
    let mut table = std::array::from_fn(|i| i as u32);
    fill_cells(&mut masses, CELL, |poor, mass, rich| table[poor] = (mass as u32) << 8 | rich as u32);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_tables_have_the_probabilities_of_the_formula() {
        let one_given = [0.25, 0.05 / 0.24];
        for (width, destination) in [(1, 0), (1, 1), (3, 5), (7, 127), (8, 0), (8, 0b1010_0110), (8, 255)] {
            let table = alias_table(destination, width, one_given);
            let mut masses = [0u64; CELLS];
            for (i, cell) in table.iter().enumerate() {
                masses[i] += u64::from(cell >> 8);
                masses[*cell as usize % CELLS] += (1 << 24) - u64::from(cell >> 8);
            }
            for (source, &mass) in masses.iter().enumerate() {
                let mut expected = if source >> width == 0 { 1.0 } else { 0.0 };
                for bit in 0..width {
                    let one = one_given[(destination >> bit & 1) as usize];
                    expected *= if source >> bit & 1 == 1 { one } else { 1.0 - one };
                }
                let found = mass as f64 / 2f64.powi(32);
                // All are rounded by half a unit; the likeliest may bear all of that.
                let units = if expected > 0.05 { 128.0 } else { 0.5 };
                assert!((found - expected).abs() <= units / 2f64.powi(32), "{source:b} given {destination:b}: {found}");
            }
        }
    }

    #[test]
    fn a_probability_of_one_leaves_no_choice() {
        let table = alias_table(0, 8, [1.0, 1.0]);
        for uniform in [0, 1, 255, 256, u32::MAX, 0x1234_5678] {
            assert_eq!(draw_alias(&table, uniform), 255);
        }
    }
}
