//! What partitioning reads of a graph: the chunks of its node types, and the edges into them.

use grappa_formats::{ChunkId, manifest::Manifest};
use grappa_storage::Graph;

use super::schedule::chunk_sizes;

/// The manifests of the node types and relations of a graph. Chunks are numbered over all types. A store is one type and one relation, in
/// one manifest.
#[derive(Debug, Clone)]
pub struct ChunkTables<'a> {
    node_types: Vec<&'a Manifest>,
    relations: Vec<RelationTable<'a>>,
}

/// A relation and the numbers of its types.
#[derive(Debug, Clone, Copy)]
pub struct RelationTable<'a> {
    /// Its edge buckets.
    pub manifest: &'a Manifest,
    /// The first chunk of the type of sources.
    pub first_source: u32,
    /// The first chunk of the type of destinations.
    pub first_destination: u32,
}

impl<'a> From<&'a Manifest> for ChunkTables<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        let relation = RelationTable { manifest, first_source: 0, first_destination: 0 };
        Self { node_types: vec![manifest], relations: vec![relation] }
    }
}

impl<'a> From<&'a Graph> for ChunkTables<'a> {
    fn from(graph: &'a Graph) -> Self {
        let types = graph.node_types().iter().map(|store| store.manifest()).collect();
        let relations = graph.relations().iter().map(|store| store.manifest()).collect();
        let ends = graph.manifest().relations.iter().map(|entry| [entry.source, entry.destination]);
        Self::new(types, relations, ends)
    }
}

impl<'a> ChunkTables<'a> {
    /// The node types, the relations, and the numbers of the types that each relation joins: sources, destinations.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn new(
        node_types: Vec<&'a Manifest>,
        relations: Vec<&'a Manifest>,
        ends: impl IntoIterator<Item = [u32; 2]>,
    ) -> Self {
        let first = |node_type: u32| -> u32 {
            node_types[..node_type as usize].iter().map(|manifest| manifest.chunks.len() as u32).sum()
        };
        let relations = relations.into_iter().zip(ends).map(|(manifest, [source, destination])| RelationTable {
            manifest,
            first_source: first(source),
            first_destination: first(destination),
        });
        Self { relations: relations.collect(), node_types }
    }

    /// The number of chunks of all types.
    pub fn chunks(&self) -> u32 {
        self.node_types.iter().map(|manifest| manifest.chunks.len() as u32).sum()
    }

    /// The manifests of node types.
    pub(super) fn node_types(&self) -> &[&'a Manifest] {
        &self.node_types
    }

    /// The relations.
    pub fn relations(&self) -> &[RelationTable<'a>] {
        &self.relations
    }

    /// The number of nodes of each chunk. None if a slice lacks it.
    pub fn nodes(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.node_types.iter().flat_map(|manifest| {
            let ends = manifest.chunk_starts.windows(2).zip(&manifest.chunks);
            ends.map(|(ends, chunk)| chunk.present.then(|| ends[1] - ends[0]))
        })
    }

    /// The work of each chunk of each type: its nodes and the edges into them. None for chunks that a slice lacks.
    pub fn sizes(&self) -> Vec<Vec<Option<u64>>> {
        let mut first = 0;
        let types = self.node_types.iter().map(|manifest| {
            let mut sizes = chunk_sizes(manifest);
            let into_type = self.relations.iter().filter(|relation| relation.first_destination == first);
            // A store has its edges in the manifest of its nodes.
            for relation in into_type.filter(|relation| !std::ptr::eq(relation.manifest, *manifest)) {
                for (size, chunk) in sizes.iter_mut().zip(&relation.manifest.chunks) {
                    *size = size.map(|size| size.saturating_add(chunk.edges));
                }
            }
            first += sizes.len() as u32;
            sizes
        });
        types.collect()
    }
}

impl RelationTable<'_> {
    /// The edges into a chunk, if it is of the type of destinations, and a function of their number from a chunk.
    pub fn into_chunk(&self, chunk: ChunkId) -> Option<(u64, impl Fn(ChunkId) -> u64)> {
        let at = chunk.0.checked_sub(self.first_destination)? as usize;
        let entry = self.manifest.chunks.get(at)?;
        let first = self.first_source;
        let from = move |source: ChunkId| {
            let at = source.0.checked_sub(first).map(|at| at as usize);
            at.and_then(|at| entry.bucket_edges.get(at)).copied().unwrap_or(0)
        };
        Some((entry.edges, from))
    }
}
