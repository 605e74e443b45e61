//! The generator of one graph.

use std::ops::Range;

use grappa_formats::{permutation::Feistel, random::scale};
use grappa_io::{
    Error, Result,
    sort::{bits_for, sort_keys},
};

use crate::{
    AdjacencyBuffer, AdjacencyLists, Features, Model, Recipe, Split,
    block::BlockSampler,
    poisson::Poisson,
    random::{Purpose, Source, Stream},
    relation::RelationSampler,
    rmat::RmatSampler,
};

/// Number of sources drawn at once where only some are kept. They take 512 KiB.
pub(crate) const WINDOW_DRAWS: u64 = 1 << 16;

/// Generates the adjacency lists and node data of one graph. Threads share it, each with its own [`AdjacencyBuffer`].
///
/// All functions that take a label panic if it is not below the number of nodes.

#[derive(Debug, Clone)]
pub struct Generator {
    recipe: Recipe,
    sampler: Sampler,
    /// Random numbers of adjacency lists.
    lists: Source,
    splits: Source,
}

#[derive(Debug, Clone)]
enum Sampler {
    Rmat(RmatSampler),
    Er { nodes: u64, degrees: Poisson },
    Sbm(BlockSampler),
    Relation(RelationSampler),
}

/// The in-degree of a node.
enum InDegree<'a> {
    /// The first number of the node's stream gives it.
    Drawn(&'a Poisson),
    Exact(u64),
}

impl InDegree<'_> {
    #[inline]
    fn draw(&self, stream: &mut Stream) -> u64 {
        match self {
            Self::Drawn(degrees) => degrees.draw(stream.next_number()),
            Self::Exact(degree) => *degree,
        }
    }
}

impl Generator {
    /// Checks the recipe and makes its tables. Takes milliseconds, and some MB for in-degrees of 10^9.
    pub fn new(recipe: Recipe) -> Result<Self> {
        if recipe.version != Recipe::VERSION {
            return Err(Error::Recipe {
                problem: format!(
                    "is for algorithm version {}, and this program has version {}",
                    recipe.version,
                    Recipe::VERSION
                ),
                remedy: "use the Grappa that generated it",
            });
        }
        recipe.check()?;
        let seed = recipe.seed;
        let sampler = match &recipe.model {
            Model::Rmat(rmat) => Sampler::Rmat(RmatSampler::new(rmat, seed)),
            Model::Er(er) => Sampler::Er { nodes: er.nodes, degrees: Poisson::new(er.edge_factor) },
            Model::Sbm(block) => Sampler::Sbm(BlockSampler::new(block, seed)),
            Model::Relation(relation) => Sampler::Relation(RelationSampler::new(relation, seed)),
        };
        Ok(Self { recipe, sampler, lists: Source::new(seed, Purpose::Row), splits: Source::new(seed, Purpose::Split) })
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Number of nodes. Labels are `0..nodes`.
    pub fn nodes(&self) -> u64 {
        self.recipe.model.nodes()
    }

    /// Number of nodes that are sources. Of a relation, those of another type.
    pub fn sources_max(&self) -> u64 {
        match &self.recipe.model {
            Model::Relation(relation) => relation.sources,
            _ => self.nodes(),
        }
    }

    /// Expected number of edges. The actual number is Poisson-distributed with this mean. Of a relation, it is exact.
    pub fn expected_edges(&self) -> f64 {
        self.nodes() as f64 * self.recipe.model.edge_factor()
    }

    /// An in-degree that all nodes stay below, except in one graph of millions. An adjacency list takes 8 bytes per edge,
    /// and as much again while it is sorted.
    pub fn largest_degree_estimate(&self) -> u64 {
        let degrees = match &self.sampler {
            Sampler::Rmat(rmat) => &rmat.degrees[..],
            Sampler::Er { degrees, .. } => std::slice::from_ref(degrees),
            Sampler::Sbm(block) => &block.degrees,
            Sampler::Relation(relation) => return relation.largest_degree(),
        };
        degrees.iter().map(Poisson::largest).max().unwrap_or(0)
    }

    /// An upper bound of the in-degree of `label`, cheaper than [`Generator::degree`]. It is close to the expected in-degree
    /// if that is large.
    #[inline]
    pub fn degree_bound(&self, label: u64) -> u64 {
        match self.degrees(label) {
            InDegree::Drawn(degrees) => degrees.largest(),
            InDegree::Exact(degree) => degree,
        }
    }

    /// The in-degree of `label`, without drawing its sources.
    ///
    /// # Panics
    /// If there is no such label.
    #[inline]
    pub fn degree(&self, label: u64) -> u64 {
        assert!(label < self.nodes(), "label {label} of {} nodes", self.nodes());
        self.degrees(label).draw(&mut self.lists.stream(label))
    }

    /// The labels of the sources of `label`'s in-edges as drawn: unsorted, with parallel edges and self-loops.
    pub fn sources<'a>(&self, label: u64, buffer: &'a mut AdjacencyBuffer) -> &'a [u64] {
        buffer.sources.clear();
        self.draw_list(label, &mut buffer.sources);
        &buffer.sources
    }

    /// The adjacency list of `label`: the nodes of [`Generator::sources`], ascending. Without a permutation, a label is its
    /// own node.
    ///
    /// # Panics
    /// If the permutation has another number of nodes.
    pub fn adjacency_list<'a>(
        &self,
        label: u64,
        permutation: Option<&Feistel>,
        buffer: &'a mut AdjacencyBuffer,
    ) -> &'a [u64] {
        self.adjacency_lists(&[label], permutation, buffer).sources
    }

    /// The adjacency lists of some labels, each as [`Generator::adjacency_list`] gives it. Most lists are short, so some
    /// hundred at once cost less than one by one.
    pub fn adjacency_lists<'a>(
        &self,
        labels: &[u64],
        permutation: Option<&Feistel>,
        buffer: &'a mut AdjacencyBuffer,
    ) -> AdjacencyLists<'a> {
        let AdjacencyBuffer { sources, scratch, ends } = buffer;
        sources.clear();
        ends.clear();
        for &label in labels {
            self.draw_list(label, sources);
            ends.push(sources.len());
        }
        self.map(permutation, sources);
        let bits = bits_for(self.sources_max());
        let mut start = 0;
        for &end in &*ends {
            sort_keys(&mut sources[start..end], scratch, bits);
            start = end;
        }
        AdjacencyLists { sources, ends }
    }

    /// The part of [`Generator::adjacency_list`] whose sources are in `window`. It takes memory for that part only, so an
    /// adjacency list that does not fit in memory can be generated window by window. Each window costs as much time as
    /// drawing the whole list.
    pub fn adjacency_window<'a>(
        &self,
        label: u64,
        permutation: Option<&Feistel>,
        window: Range<u64>,
        buffer: &'a mut AdjacencyBuffer,
    ) -> &'a [u64] {
        let AdjacencyBuffer { sources, scratch, .. } = buffer;
        sources.clear();
        let mut stream = self.lists.stream(label);
        let degree = self.degrees(label).draw(&mut stream);
        let mut drawn = 0;
        while drawn < degree {
            let draws = (degree - drawn).min(WINDOW_DRAWS);
            scratch.clear();
            self.draw(label, drawn, draws, &mut stream, scratch);
            self.map(permutation, scratch);
            sources.extend(scratch.iter().filter(|source| window.contains(source)));
            drawn += draws;
        }
        sort_keys(sources, scratch, bits_for(self.sources_max()));
        sources
    }

    /// `count` sources of [`Generator::sources`], without the first `skipped`. Costs as much as `count` sources: skipping is
    /// free.
    pub fn sources_part<'a>(&self, label: u64, skipped: u64, count: u64, buffer: &'a mut AdjacencyBuffer) -> &'a [u64] {
        let mut stream = self.lists.stream(label);
        // The first number of the stream gave the in-degree.
        stream.skip(1 + skipped * self.numbers_per_edge());
        buffer.sources.clear();
        self.draw(label, skipped, count, &mut stream, &mut buffer.sources);
        &buffer.sources
    }

    /// The class of `label`, if the model has classes.
    #[inline]
    pub fn class(&self, label: u64) -> Option<u32> {
        match &self.sampler {
            Sampler::Sbm(block) => Some(block.class(label)),
            Sampler::Rmat(rmat) => rmat.class(label),
            Sampler::Er { .. } | Sampler::Relation(_) => None,
        }
    }

    /// Number of classes; 0 if the model has none.
    pub fn classes(&self) -> u32 {
        match &self.recipe.model {
            Model::Sbm(block) => block.classes,
            Model::Rmat(rmat) => rmat.classes.as_ref().map_or(0, |classes| classes.count),
            Model::Er(_) | Model::Relation(_) => 0,
        }
    }

    /// The split of `label`, by its hash; none if it is in none.
    #[inline]
    pub fn split(&self, label: u64) -> Option<Split> {
        let hash = self.splits.at(label);
        match self.recipe.splits {
            Some(shares) => shares.split(hash),
            // Three fifths, one fifth and one fifth: in integers, as in recipes without shares.
            None => Some(match scale(hash, 5) {
                0..3 => Split::Train,
                3 => Split::Val,
                _ => Split::Test,
            }),
        }
    }

    /// Generates feature rows of `dim` values.
    ///
    /// # Panics
    /// If `dim` is 0.
    pub fn features(&self, dim: usize) -> Features {
        assert!(dim > 0, "feature rows have at least one value");
        Features::new(&self.recipe.model, self.recipe.seed, dim)
    }

    /// Bytes of memory of [`Generator::features`]: the mean of each class.
    pub fn features_memory(&self, dim: usize) -> u64 {
        u64::from(self.classes().max(1)) * dim as u64 * size_of::<f32>() as u64
    }

    #[inline]
    fn degrees(&self, label: u64) -> InDegree<'_> {
        InDegree::Drawn(match &self.sampler {
            Sampler::Rmat(rmat) => rmat.degree(label),
            Sampler::Er { degrees, .. } => degrees,
            Sampler::Sbm(block) => block.degree(label),
            Sampler::Relation(relation) => return InDegree::Exact(relation.degree(label)),
        })
    }

    #[inline]
    fn draw_list(&self, label: u64, out: &mut Vec<u64>) {
        assert!(label < self.nodes(), "label {label} of {} nodes", self.nodes());
        let mut stream = self.lists.stream(label);
        let degree = self.degrees(label).draw(&mut stream);
        self.draw(label, 0, degree, &mut stream, out);
    }

    /// Draws the labels of the next `count` sources after the first `drawn` and appends them to `out`.
    #[inline]
    fn draw(&self, label: u64, drawn: u64, count: u64, stream: &mut Stream, out: &mut Vec<u64>) {
        match &self.sampler {
            Sampler::Rmat(rmat) => rmat.draw(label, count, stream, out),
            Sampler::Er { nodes, .. } => out.extend((0..count).map(|_| scale(stream.next_number(), *nodes))),
            Sampler::Sbm(block) => block.draw(label, count, stream, out),
            Sampler::Relation(relation) => relation.draw(label, drawn, count, out),
        }
    }

    /// Number of random numbers that [`Generator::draw`] takes per source. [`Generator::sources_part`] skips by it.
    fn numbers_per_edge(&self) -> u64 {
        match &self.sampler {
            Sampler::Rmat(rmat) => rmat.numbers_per_edge(),
            Sampler::Er { .. } => 1,
            Sampler::Sbm(_) => BlockSampler::NUMBERS_PER_EDGE,
            // Its edges are numbered.
            Sampler::Relation(_) => 0,
        }
    }

    /// Replaces labels by nodes.
    fn map(&self, permutation: Option<&Feistel>, labels: &mut [u64]) {
        if let Some(permutation) = permutation {
            assert_eq!(permutation.size(), self.sources_max(), "a permutation of the sources");
            permutation.forward_all(labels);
        }
    }
}
