//! R-MAT: the drawing of sources given a destination.

use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{
    poisson::{MEAN_MAX, Poisson},
    random::Stream,
};

/// Source bits drawn at once. A group's tables take 2^16 cells of 4 bytes for 8 bits: they fit the second-level cache,
/// and the few that one row needs fit the first.
const GROUP_BITS_MAX: u32 = 8;
/// The most groups there are: 40 bits in fives of eight.
const GROUPS_MAX: usize = 5;
/// Cells of an alias table.
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
    /// Binary logarithm of the number of nodes, 1 to 40.
    pub scale: u32,
    /// Expected edges per node.
    pub edge_factor: f64,
    /// Probability of source bit 0 and destination bit 0.
    pub a: f64,
    /// Probability of source bit 0 and destination bit 1.
    pub b: f64,
    /// Probability of source bit 1 and destination bit 0.
    pub c: f64,
    /// Probability of source bit 1 and destination bit 1.
    pub d: f64,
}

impl Rmat {
    /// The parameters of Graph500: 0.57, 0.19, 0.19, 0.05.
    pub fn graph500(scale: u32, edge_factor: f64) -> Self {
        Self {
            scale,
            edge_factor,
            a: 0.57,
            b: 0.19,
            c: 0.19,
            d: 0.05,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(1..=40).contains(&self.scale) {
            return Err(Error::out_of_range(
                "the scale of R-MAT, which has 2^scale nodes",
                "1 to 40",
                self.scale,
            ));
        }
        let probabilities = [self.a, self.b, self.c, self.d];
        let sum: f64 = probabilities.iter().sum();
        if !probabilities.iter().all(|p| (0.0..=1.0).contains(p)) || (sum - 1.0).abs() > 1e-6 {
            return Err(Error::out_of_range(
                "the probabilities of the four quadrants",
                "numbers from 0 to 1 that add up to 1",
                format!(
                    "a = {}, b = {}, c = {}, d = {}, which add up to {sum}",
                    self.a, self.b, self.c, self.d
                ),
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
        Ok(())
    }

    /// The expected in-degree of a label with as many one bits as the index.
    fn means(&self) -> Vec<f64> {
        let sum = self.a + self.b + self.c + self.d;
        let (zero, one) = ((self.a + self.c) / sum, (self.b + self.d) / sum);
        let edges = self.edge_factor * (1u64 << self.scale) as f64;
        // Multiplied one by one: `powi` may differ between machines in the last bit.
        (0..=self.scale)
            .map(|ones| {
                let with_ones = (0..ones).fold(edges, |mean, _| mean * one);
                (ones..self.scale).fold(with_ones, |mean, _| mean * zero)
            })
            .collect()
    }
}

/// Tables to draw rows of an [`Rmat`] from.
#[derive(Debug, Clone)]
pub(super) struct RmatSampler {
    /// By the number of one bits of the label.
    degrees: Vec<Poisson>,
    /// From the most significant bits of a label to the least.
    groups: Vec<Group>,
    /// The alias tables of all widths that occur.
    tables: Vec<Table>,
}

/// Some neighbouring bits of a label.
#[derive(Debug, Clone)]
struct Group {
    /// How many.
    width: u32,
    /// How many bits of the label are less significant.
    shift: u32,
    /// Where in `tables` the one for destination bits 0 is; the others follow in order.
    tables_start: usize,
}

/// An alias table (Walker, "An Efficient Method for Generating Discrete Random Variables", 1977) of the source bits of a
/// group, given its destination bits. A draw takes 32 uniform bits: 8 choose a cell, the other 24 say which of the
/// cell's two outcomes it is. Cell `i` holds, in its low 8 bits, the second outcome, and in its high 24 bits a
/// threshold: below it the outcome is `i`. So probabilities are multiples of 2^-32.
type Table = [u32; CELLS];

impl RmatSampler {
    pub(super) fn new(rmat: &Rmat) -> Self {
        let groups_len = rmat.scale.div_ceil(GROUP_BITS_MAX);
        let (narrow, wider) = (rmat.scale / groups_len, rmat.scale % groups_len);
        // Probability that a source bit is 1, given the destination bit. If the destination bit cannot be 1 (or 0), then
        // no row asks.
        let given = |zero: f64, one: f64| if zero + one > 0.0 { one / (zero + one) } else { 0.0 };
        let one_given = [given(rmat.a, rmat.c), given(rmat.b, rmat.d)];

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
                Group {
                    width,
                    shift,
                    tables_start,
                }
            })
            .collect();
        Self {
            degrees: rmat.means().into_iter().map(Poisson::new).collect(),
            groups,
            tables,
        }
    }

    pub(super) fn degree(&self, label: u64) -> &Poisson {
        &self.degrees[label.count_ones() as usize]
    }

    pub(super) fn degrees(&self) -> &[Poisson] {
        &self.degrees
    }

    /// How many numbers of the stream a source takes: one for two groups.
    pub(super) fn numbers_per_edge(&self) -> u64 {
        self.groups.len().div_ceil(2) as u64
    }

    /// Appends `degree` sources of the row `label`.
    pub(super) fn draw(&self, label: u64, degree: u64, stream: &mut Stream, out: &mut Vec<u64>) {
        // One loop for each number of groups, so that the compiler unrolls what happens per edge.
        match self.groups.len() {
            1 => self.draw_groups::<1>(label, degree, stream, out),
            2 => self.draw_groups::<2>(label, degree, stream, out),
            3 => self.draw_groups::<3>(label, degree, stream, out),
            4 => self.draw_groups::<4>(label, degree, stream, out),
            GROUPS_MAX => self.draw_groups::<GROUPS_MAX>(label, degree, stream, out),
            n => unreachable!("{n} groups of bits in a label of 40"),
        }
    }

    fn draw_groups<const GROUPS: usize>(&self, label: u64, degree: u64, stream: &mut Stream, out: &mut Vec<u64>) {
        let groups: [(&Table, u32); GROUPS] = std::array::from_fn(|i| {
            let group = &self.groups[i];
            let destination = label >> group.shift & ((1 << group.width) - 1);
            (&self.tables[group.tables_start + destination as usize], group.width)
        });
        out.extend((0..degree).map(|_| {
            let mut source = 0;
            let mut uniform = 0;
            for (i, (table, width)) in groups.iter().enumerate() {
                uniform = if i % 2 == 0 {
                    stream.next_number()
                } else {
                    uniform >> 32
                };
                source = source << width | u64::from(draw_alias(table, uniform as u32));
            }
            source
        }));
    }
}

#[inline(always)]
fn draw_alias(table: &Table, uniform: u32) -> u32 {
    let cell = table[uniform as usize % CELLS];
    if uniform >> 8 < cell >> 8 {
        uniform % CELLS as u32
    } else {
        cell % CELLS as u32
    }
}

/// The table of `width` source bits for the destination bits `destination`.
fn alias_table(destination: u32, width: u32, one_given: [f64; 2]) -> Table {
    /// What one cell holds, in units of 2^-32.
    const CELL: u64 = 1 << 24;
    let mut masses = [0u64; CELLS];
    for (source, mass) in masses.iter_mut().enumerate().take(1 << width) {
        let probability = (0..width).fold(1.0, |p, bit| {
            let one = one_given[(destination >> bit & 1) as usize];
            p * if source >> bit & 1 == 1 { one } else { 1.0 - one }
        });
        *mass = (probability * 2f64.powi(32)).round() as u64;
    }
    // What rounding loses or gains, the likeliest outcome bears.
    let likeliest = (0..CELLS).max_by_key(|&i| masses[i]).expect("256 outcomes");
    let others = masses.iter().sum::<u64>() - masses[likeliest];
    masses[likeliest] = CELL * CELLS as u64 - others;

    // Vose's method in integers, so that nothing is lost: fill a cell that has too little from one that has too much.
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..CELLS).partition(|&i| masses[i] < CELL);
    let mut table = std::array::from_fn(|i| i as u32);
    while let Some(poor) = small.pop() {
        let rich = *large.last().expect("what cells lack, others have in excess");
        table[poor] = (masses[poor] as u32) << 8 | rich as u32;
        masses[rich] -= CELL - masses[poor];
        if masses[rich] < CELL {
            large.pop();
            small.push(rich);
        }
    }
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
                assert!(
                    (found - expected).abs() <= units / 2f64.powi(32),
                    "{source:b} given {destination:b}: {found}"
                );
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
