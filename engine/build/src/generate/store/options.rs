//! What to generate and how to store it, and what came of it.

use std::{collections::BTreeSet, ops::RangeInclusive, path::PathBuf};

use grappa_formats::{
    chunks::ChunkMap,
    manifest::{EdgeOptions, FeatureDtype, FeatureSource, Manifest},
};
use grappa_io::{Error, Result};
use grappa_synthetic::{Generator, Recipe};

use crate::ingest::plan;

/// The graph to make, and how to store it.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The graph. Its seed selects the order of nodes, too.
    pub recipe: Recipe,
    /// The store to make.
    pub out: PathBuf,
    /// Whether nodes are in random order, so that every chunk is a random sample; else they are in that of their labels.
    pub random_order: bool,
    /// The number of chunks, if the user chose one.
    pub chunks: Option<u32>,
    /// The chunks to make, if not all.
    pub only_chunks: Option<Vec<RangeInclusive<u32>>>,
    /// What to do to edges: they are never made undirected.
    pub edge_options: EdgeOptions,
    /// Feature vectors, if nodes are to have any.
    pub features: Option<FeatureOptions>,
    /// Bytes of memory to use.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Go on with a run that was killed.
    pub resume: bool,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

impl StoreOptions {
    /// Fails if the options contradict each other. [`generate_store`](super::generate_store) does this first; so does who wants to tell a wrong
    /// command from what went wrong.
    pub fn check(&self) -> Result<()> {
        let generator = Generator::new(self.recipe.clone())?;
        self.wanted(&self.chunk_map(&generator)?).map(drop)
    }

    pub(super) fn chunk_map(&self, generator: &Generator) -> Result<ChunkMap> {
        plan::chunk_map(generator.nodes(), self.chunks)
    }

    /// The chunks to make.
    pub(super) fn wanted(&self, chunks: &ChunkMap) -> Result<BTreeSet<u32>> {
        let Some(only) = &self.only_chunks else {
            plan::check_buckets(chunks, u64::from(chunks.chunks()))?;
            return Ok((0..chunks.chunks()).collect());
        };
        let last = chunks.chunks() - 1;
        if let Some(range) = only.iter().find(|range| *range.end() > last || range.is_empty()) {
            let (start, end) = (range.start(), range.end());
            let named = if start == end {
                start.to_string()
            } else {
                format!("{start}-{end}")
            };
            return Err(Error::out_of_range(
                "--only-chunks",
                format!("some of the chunks 0 to {last} of the graph (--chunks makes more)"),
                named,
            ));
        }
        let wanted: BTreeSet<_> = only.iter().cloned().flatten().collect();
        if wanted.is_empty() {
            return Err(Error::out_of_range("--only-chunks", "at least one chunk", "none"));
        }
        plan::check_buckets(chunks, wanted.len() as u64)?;
        Ok(wanted)
    }
}

/// Feature vectors to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureOptions {
    /// Values a node.
    pub dim: u32,
    /// How a value is stored.
    pub dtype: FeatureDtype,
    /// Whether rows are stored, or left to be computed by whoever reads them.
    pub source: FeatureSource,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSummary {
    /// Number of nodes of the graph.
    pub nodes: u64,
    /// Number of edges in the store.
    pub edges: u64,
    /// Number of edges that were drawn.
    pub edges_drawn: u64,
    /// Number of chunks of the graph.
    pub chunks: u32,
    /// Number of chunks that are in the store.
    pub chunks_present: u32,
    /// Length of all files of the store in bytes.
    pub bytes_on_disk: u64,
}

impl StoreSummary {
    pub(super) fn of(manifest: &Manifest, bytes_on_disk: u64) -> Self {
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
