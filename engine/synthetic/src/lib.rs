//! Synthetic graphs of any size, any part of which can be made alone.
//!
//! A [`Recipe`] (a model and a seed) determines a graph: every row, class, split and feature is a function of the recipe
//! and a node's *label*, its external id in `0..nodes`, and of nothing else. So results are the same for any number of
//! threads and chunks, on any machine, and a slice of a graph of 10^12 edges costs what the slice holds. There is no
//! communication, and no sort over edges: the in-degree of a label is a Poisson number whose mean the model gives, the
//! sources of its in-edges are drawn independently of each other given the label, and all that is ever put in order is
//! one row, in cache, after its sources have been mapped to the store's node order. (For R-MAT this is exact: a Poisson
//! number of independent edges, divided by destination, is independent Poisson numbers; and a source's bit depends on
//! the same bit of the destination only.)
//!
//! The number of edges is itself random: a Poisson number with mean [`Generator::expected_edges`]. Parallel edges and
//! self-loops occur as they do in the models; whoever writes the rows drops them if asked to.
//!
//! Cost per edge and thread, R-MAT with the parameters of Graph500 and edge factor 16: 5 ns drawn, 11 ns drawn, mapped
//! and sorted at scale 24; 7 and 14 ns at scale 36 (AMD EPYC, 5th generation, rows of 2^20 consecutive nodes).
//! A row must fit in memory, twice: see [`Generator::largest_row_estimate`], and [`Generator::row_window`] for rows
//! that do not.
//!
//! Everything here is computation: `grappa_build::generate` writes stores and files.
//!
//! The graphs of a recipe never change: tests hold checksums of some. A change to the algorithm raises
//! [`Recipe::VERSION`].

#![forbid(unsafe_code)]

mod block;
mod features;
mod poisson;
pub mod random;
mod rmat;

use std::ops::Range;

use grappa_formats::{
    NODES_MAX,
    manifest::{EdgeOptions, SelfLoops},
    permutation::Feistel,
    random::scale,
};
use grappa_io::{
    Error, Result,
    sort::{bits_for, sort_keys},
};
use serde::{Deserialize, Serialize};

pub use self::{block::BlockModel, features::Features, rmat::Rmat};
use self::{
    block::BlockSampler,
    poisson::{MEAN_MAX, Poisson},
    random::{Purpose, Source},
    rmat::RmatSampler,
};

/// Sources drawn at a time where not all are kept: 512 KiB of them.
const WINDOW_DRAWS: u64 = 1 << 16;

/// What a graph is made from: all there is to know to make it again. Its JSON is what manifests record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// [`Recipe::VERSION`] of the program that made the graph.
    pub version: u32,
    /// The distribution of graphs.
    pub model: Model,
    /// Selects a graph of that distribution.
    pub seed: u64,
}

/// A distribution of graphs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Recursive matrix: skewed degrees, communities within communities, no labels.
    Rmat(Rmat),
    /// Erdős–Rényi: every edge as likely as every other.
    Er(ErdosRenyi),
    /// Stochastic block model: classes, and features to learn them from.
    Sbm(BlockModel),
}

/// In-degrees are Poisson numbers with mean `edge_factor`; all sources are as likely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErdosRenyi {
    /// Number of nodes.
    pub nodes: u64,
    /// Expected edges per node.
    pub edge_factor: f64,
}

/// A named set of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Three fifths.
    Train,
    /// One fifth.
    Val,
    /// One fifth.
    Test,
}

/// Makes the rows and node data of one graph. Shared by threads, each with a [`RowBuffer`] of its own.
#[derive(Debug, Clone)]
pub struct Generator {
    recipe: Recipe,
    sampler: Sampler,
    rows: Source,
    splits: Source,
}

#[derive(Debug, Clone)]
enum Sampler {
    Rmat(RmatSampler),
    Er { nodes: u64, degrees: Poisson },
    Sbm(BlockSampler),
}

/// Room for rows, reused from call to call.
#[derive(Debug, Default)]
pub struct RowBuffer {
    sources: Vec<u64>,
    scratch: Vec<u64>,
    ends: Vec<usize>,
}

/// Some rows, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    sources: &'a [u64],
    ends: &'a [usize],
}

impl Recipe {
    /// Of the algorithm that makes graphs from recipes.
    pub const VERSION: u32 = 1;

    /// The graph of `model` that `seed` selects.
    pub fn new(model: Model, seed: u64) -> Self {
        Self {
            version: Self::VERSION,
            model,
            seed,
        }
    }

    /// What a manifest records.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a recipe is plain data, which always serialises")
    }

    /// Reads what [`Recipe::to_json`] wrote. [`Generator::new`] checks the values.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|e| Error::Recipe {
            what: format!("cannot be read: {e}, in {json:?}"),
            remedy: "restore the store, or generate it again",
        })
    }
}

impl Model {
    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        match self {
            // A scale that is too large is found by the check.
            Self::Rmat(rmat) => 1u64.checked_shl(rmat.scale).unwrap_or(u64::MAX),
            Self::Er(er) => er.nodes,
            Self::Sbm(block) => block.nodes,
        }
    }

    /// Expected edges per node.
    pub fn edge_factor(&self) -> f64 {
        match self {
            Self::Rmat(rmat) => rmat.edge_factor,
            Self::Er(er) => er.edge_factor,
            Self::Sbm(block) => block.edge_factor,
        }
    }

    fn check(&self) -> Result<()> {
        let (nodes, edge_factor) = (self.nodes(), self.edge_factor());
        if !(0.0..=MEAN_MAX).contains(&edge_factor) {
            return Err(Error::out_of_range(
                "the edge factor",
                format!("0 to {MEAN_MAX}"),
                edge_factor,
            ));
        }
        if let Self::Rmat(rmat) = self {
            rmat.check()?;
        }
        if nodes == 0 || nodes > NODES_MAX {
            return Err(Error::out_of_range(
                "the graph",
                format!("1 to {NODES_MAX} nodes (2^40)"),
                nodes,
            ));
        }
        if let Self::Sbm(block) = self {
            block.check()?;
        }
        Ok(())
    }
}

impl Generator {
    /// Checks the recipe's values and makes its tables: milliseconds, and some megabytes for means of 10^9.
    pub fn new(recipe: Recipe) -> Result<Self> {
        if recipe.version != Recipe::VERSION {
            return Err(Error::Recipe {
                what: format!(
                    "is for algorithm version {}, and this program has version {}",
                    recipe.version,
                    Recipe::VERSION
                ),
                remedy: "use the Grappa that generated it",
            });
        }
        recipe.model.check()?;
        let seed = recipe.seed;
        let sampler = match &recipe.model {
            Model::Rmat(rmat) => Sampler::Rmat(RmatSampler::new(rmat)),
            Model::Er(er) => Sampler::Er {
                nodes: er.nodes,
                degrees: Poisson::new(er.edge_factor),
            },
            Model::Sbm(block) => Sampler::Sbm(BlockSampler::new(block, seed)),
        };
        Ok(Self {
            recipe,
            sampler,
            rows: Source::new(seed, Purpose::Row),
            splits: Source::new(seed, Purpose::Split),
        })
    }

    /// What the graph is made from.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Number of nodes. Labels are below it.
    pub fn nodes(&self) -> u64 {
        self.recipe.model.nodes()
    }

    /// The mean of the Poisson number that the number of edges is.
    pub fn expected_edges(&self) -> f64 {
        self.nodes() as f64 * self.recipe.model.edge_factor()
    }

    /// An in-degree that no row of one graph in millions exceeds. A row takes 8 bytes an edge, and as much again while
    /// it is put in order.
    pub fn largest_row_estimate(&self) -> u64 {
        let degrees = match &self.sampler {
            Sampler::Rmat(rmat) => rmat.degrees(),
            Sampler::Er { degrees, .. } => std::slice::from_ref(degrees),
            Sampler::Sbm(block) => block.degrees(),
        };
        degrees.iter().map(Poisson::largest).max().unwrap_or(0)
    }

    /// A number the in-degree of `label` does not exceed: not by much above the expected one if that is large.
    #[inline]
    pub fn degree_bound(&self, label: u64) -> u64 {
        self.degrees(label).largest()
    }

    /// The in-degree of `label`: what the row of that label has, at a fraction of the cost.
    ///
    /// # Panics
    /// If the label is not below the number of nodes, as all functions that take one.
    #[inline]
    pub fn degree(&self, label: u64) -> u64 {
        assert!(label < self.nodes(), "label {label} of {} nodes", self.nodes());
        self.degrees(label).draw(self.rows.stream(label).next_number())
    }

    /// The labels of the sources of `label`'s in-edges, as drawn: in no order, parallel edges and self-loops included.
    pub fn row<'a>(&self, label: u64, buffer: &'a mut RowBuffer) -> &'a [u64] {
        buffer.sources.clear();
        self.draw_row(label, &mut buffer.sources);
        &buffer.sources
    }

    /// The same as node ids, ascending. Without an order, a label is its node id.
    ///
    /// # Panics
    /// If the order is one of another number of nodes.
    pub fn row_in_order<'a>(&self, label: u64, order: Option<&Feistel>, buffer: &'a mut RowBuffer) -> &'a [u64] {
        self.rows_in_order(&[label], order, buffer).sources
    }

    /// The rows of some labels, each as [`Generator::row_in_order`] gives it. Some hundred rows at a time cost less than
    /// as many alone, since most are short.
    pub fn rows_in_order<'a>(&self, labels: &[u64], order: Option<&Feistel>, buffer: &'a mut RowBuffer) -> Rows<'a> {
        let RowBuffer { sources, scratch, ends } = buffer;
        sources.clear();
        ends.clear();
        for &label in labels {
            self.draw_row(label, sources);
            ends.push(sources.len());
        }
        self.map(order, sources);
        let bits = bits_for(self.nodes());
        let mut start = 0;
        for &end in &*ends {
            sort_keys(&mut sources[start..end], scratch, bits);
            start = end;
        }
        Rows { sources, ends }
    }

    /// The part of [`Generator::row_in_order`] whose sources are in `window`, in as much memory as that part needs: the
    /// way to make a row that does not fit in memory, window by window, each at the cost of drawing the whole row.
    pub fn row_window<'a>(
        &self,
        label: u64,
        order: Option<&Feistel>,
        window: Range<u64>,
        buffer: &'a mut RowBuffer,
    ) -> &'a [u64] {
        let RowBuffer { sources, scratch, .. } = buffer;
        sources.clear();
        let mut stream = self.rows.stream(label);
        let mut left = self.degrees(label).draw(stream.next_number());
        while left > 0 {
            let draws = left.min(WINDOW_DRAWS);
            scratch.clear();
            self.draw(label, draws, &mut stream, scratch);
            self.map(order, scratch);
            sources.extend(scratch.iter().filter(|source| window.contains(source)));
            left -= draws;
        }
        sort_keys(sources, scratch, bits_for(self.nodes()));
        sources
    }

    /// `count` sources of [`Generator::row`] after the first `skipped`, at the cost of `count`.
    pub fn row_part<'a>(&self, label: u64, skipped: u64, count: u64, buffer: &'a mut RowBuffer) -> &'a [u64] {
        let mut stream = self.rows.stream(label);
        // The first number made the in-degree.
        stream.skip(1 + skipped * self.numbers_per_edge());
        buffer.sources.clear();
        self.draw(label, count, &mut stream, &mut buffer.sources);
        &buffer.sources
    }

    /// The class of `label`, if the model has classes.
    #[inline]
    pub fn class(&self, label: u64) -> Option<u32> {
        match &self.sampler {
            Sampler::Sbm(block) => Some(block.class(label)),
            _ => None,
        }
    }

    /// Number of classes; 0 if the model has none.
    pub fn classes(&self) -> u32 {
        match &self.recipe.model {
            Model::Sbm(block) => block.classes,
            _ => 0,
        }
    }

    /// The split that `label` falls into, by its hash.
    #[inline]
    pub fn split(&self, label: u64) -> Split {
        match scale(self.splits.at(label), 5) {
            0..3 => Split::Train,
            3 => Split::Val,
            _ => Split::Test,
        }
    }

    /// Makes feature rows of `dim` values.
    ///
    /// # Panics
    /// If `dim` is 0.
    pub fn features(&self, dim: usize) -> Features {
        assert!(dim > 0, "rows of no features");
        Features::new(&self.recipe.model, self.recipe.seed, dim)
    }

    #[inline]
    fn degrees(&self, label: u64) -> &Poisson {
        match &self.sampler {
            Sampler::Rmat(rmat) => rmat.degree(label),
            Sampler::Er { degrees, .. } => degrees,
            Sampler::Sbm(block) => block.degree(label),
        }
    }

    #[inline]
    fn draw_row(&self, label: u64, out: &mut Vec<u64>) {
        assert!(label < self.nodes(), "label {label} of {} nodes", self.nodes());
        let mut stream = self.rows.stream(label);
        let degree = self.degrees(label).draw(stream.next_number());
        self.draw(label, degree, &mut stream, out);
    }

    /// Appends the labels of the next `count` sources of a row.
    #[inline]
    fn draw(&self, label: u64, count: u64, stream: &mut random::Stream, out: &mut Vec<u64>) {
        match &self.sampler {
            Sampler::Rmat(rmat) => rmat.draw(label, count, stream, out),
            Sampler::Er { nodes, .. } => out.extend((0..count).map(|_| scale(stream.next_number(), *nodes))),
            Sampler::Sbm(block) => block.draw(label, count, stream, out),
        }
    }

    /// How many numbers of a row's stream [`Generator::draw`] takes for each source.
    fn numbers_per_edge(&self) -> u64 {
        match &self.sampler {
            Sampler::Rmat(rmat) => rmat.numbers_per_edge(),
            Sampler::Er { .. } => 1,
            Sampler::Sbm(_) => BlockSampler::NUMBERS_PER_EDGE,
        }
    }

    /// Replaces labels by node ids.
    fn map(&self, order: Option<&Feistel>, labels: &mut [u64]) {
        if let Some(order) = order {
            assert_eq!(order.size(), self.nodes(), "an order of the graph's nodes");
            order.forward_all(labels);
        }
    }
}

impl Split {
    /// `train`, `val` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

impl RowBuffer {
    /// Removes parallel edges and removes or adds self-loops as the options say, in the rows of `first_node` and the nodes
    /// after it.
    pub fn apply(&mut self, options: EdgeOptions, first_node: u64) {
        if !options.dedup && options.self_loops == SelfLoops::Keep {
            return;
        }
        let RowBuffer { sources, scratch, ends } = self;
        scratch.clear();
        let mut start = 0;
        for (node, end) in (first_node..).zip(ends) {
            let row = &sources[start..*end];
            start = *end;
            let kept_from = scratch.len();
            let mut previous = None;
            let mut keep = |source: u64, scratch: &mut Vec<u64>| {
                if !(options.dedup && previous == Some(source)) {
                    scratch.push(source);
                }
                previous = Some(source);
            };
            match options.self_loops {
                SelfLoops::Keep => row.iter().for_each(|&source| keep(source, scratch)),
                SelfLoops::Drop | SelfLoops::Add => {
                    let loops =
                        row.partition_point(|&source| source < node)..row.partition_point(|&source| source <= node);
                    row[..loops.start].iter().for_each(|&source| keep(source, scratch));
                    if options.self_loops == SelfLoops::Add {
                        keep(node, scratch);
                    }
                    row[loops.end..].iter().for_each(|&source| keep(source, scratch));
                }
            }
            debug_assert!(scratch[kept_from..].is_sorted());
            *end = scratch.len();
        }
        std::mem::swap(sources, scratch);
    }

    /// Frees the memory that sorting took.
    pub fn free_scratch(&mut self) {
        self.scratch = Vec::new();
    }

    /// The rows that are in it.
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            sources: &self.sources,
            ends: &self.ends,
        }
    }
}

impl<'a> Rows<'a> {
    /// The rows, in the order of the labels that were asked for.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u64]> {
        let mut start = 0;
        self.ends
            .iter()
            .map(move |&end| &self.sources[std::mem::replace(&mut start, end)..end])
    }

    /// Edges in all rows.
    pub fn edges(self) -> usize {
        self.sources.len()
    }
}

#[cfg(test)]
mod tests;
