//! Options and summary of a generated store.

use std::{collections::BTreeSet, num::NonZeroUsize, ops::RangeInclusive, path::PathBuf};

use grappa_formats::{
    chunks::ChunkMap,
    manifest::{EdgeOptions, FeatureDtype, FeatureSource, Manifest},
};
use grappa_io::{Error, Result};
use grappa_synthetic::{Generator, Recipe};

use crate::ingest::plan;

/// Options of [`generate_store`](super::generate_store).
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The graph. Its seed also selects the node permutation.
    pub recipe: Recipe,
    /// The store to write.
    pub out: PathBuf,
    /// Whether nodes are permuted at random, so that every chunk is a random sample. Otherwise a node is its label.
    pub random_permutation: bool,
    /// The number of chunks. None chooses by the number of nodes.
    pub chunks: Option<u32>,
    /// The chunks to generate. None generates all.
    pub only_chunks: Option<Vec<RangeInclusive<u32>>>,
    /// Whether to merge parallel edges, and drop or add self-loops. Must not ask for reverse edges.
    pub edge_options: EdgeOptions,
    /// Features, if nodes have any.
    pub features: Option<FeatureOptions>,
    /// Memory budget in bytes.
    pub memory: u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Whether to continue an unfinished run.
    pub resume: bool,
    /// Whether an existing store of this name is replaced, when the new one is complete.
    pub replace: bool,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

impl StoreOptions {
    /// Options for the graph of `recipe` and the store `out`: a random permutation, no features, 2 GiB of memory, all processors, and
    /// defaults otherwise.
    pub fn new(recipe: Recipe, out: impl Into<PathBuf>) -> Self {
        Self {
            recipe,
            out: out.into(),
            random_permutation: true,
            chunks: None,
            only_chunks: None,
            edge_options: EdgeOptions::default(),
            features: None,
            memory: 2 << 30,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            resume: false,
            replace: false,
            writer: concat!("grappa-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Fails if the options contradict each other. [`generate_store`](super::generate_store) calls this first. A program calls it
    /// before, to report such mistakes as usage errors.
    pub fn check(&self) -> Result<()> {
        self.all_chosen_chunks().map(drop)
    }

    /// The features, if they are stored.
    pub(super) fn stored_features(&self) -> Option<&FeatureOptions> {
        self.features.as_ref().filter(|features| features.source == FeatureSource::Stored)
    }

    pub(super) fn chunk_map(&self, generator: &Generator) -> Result<ChunkMap> {
        plan::chunk_map(generator.nodes(), self.chunks)
    }

    /// The chunks to generate.
    pub(super) fn all_chosen_chunks(&self) -> Result<BTreeSet<u32>> {
        let chunks = self.chunk_map(&Generator::new(self.recipe.clone())?)?;
        let chosen = chosen_chunks(self.only_chunks.as_deref(), chunks.chunks(), " (--chunks makes more)")?;
        plan::check_buckets(&chunks, chosen.len() as u64)?;
        Ok(chosen)
    }
}

/// The chunks in some ranges, of a graph with `chunks` chunks; all of them without ranges. `remedy` follows their number in the error.
pub fn chosen_chunks(only: Option<&[RangeInclusive<u32>]>, chunks: u32, remedy: &str) -> Result<BTreeSet<u32>> {
    let Some(only) = only else { return Ok((0..chunks).collect()) };
    let last = chunks - 1;
    if let Some(range) = only.iter().find(|range| *range.end() > last || range.is_empty()) {
        let (start, end) = (range.start(), range.end());
        let named = if start == end { start.to_string() } else { format!("{start}-{end}") };
        let expected = format!("some of the chunks 0 to {last} of the graph{remedy}");
        return Err(Error::out_of_range("--only-chunks", expected, named));
    }
    if only.is_empty() {
        return Err(Error::out_of_range("--only-chunks", "at least one chunk", "none"));
    }
    Ok(only.iter().cloned().flatten().collect())
}

/// Features to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureOptions {
    /// Number of values per node.
    pub dim: u32,
    /// Type of the stored values.
    pub dtype: FeatureDtype,
    /// Whether features are stored, or computed when they are read.
    pub source: FeatureSource,
}

impl FeatureOptions {
    /// `dim` values per node.
    pub const fn new(dim: u32, dtype: FeatureDtype, source: FeatureSource) -> Self {
        Self { dim, dtype, source }
    }
}

/// Result of [`generate_store`](super::generate_store).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSummary {
    /// Number of nodes of the graph.
    pub nodes: u64,
    /// Number of edges in the store.
    pub edges: u64,
    /// Number of edges drawn, before the edge options were applied.
    pub edges_drawn: u64,
    /// Number of chunks of the graph.
    pub chunks: u32,
    /// Number of chunks in the store.
    pub chunks_present: u32,
    /// Total length of the store's files in bytes.
    pub bytes_on_disk: u64,
}

impl StoreSummary {
    pub(super) fn from_manifest(manifest: &Manifest, bytes_on_disk: u64) -> Self {
        Self {
            nodes: manifest.nodes,
            edges: manifest.edges,
            edges_drawn: manifest.edges_read,
            chunks: manifest.chunks.len() as u32,
            chunks_present: manifest.chunks.iter().filter(|chunk| chunk.present).count() as u32,
            bytes_on_disk,
        }
    }
}
