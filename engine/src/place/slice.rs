//! The chunks of a slice, by node type.

use std::collections::BTreeSet;

use grappa_formats::ChunkId;
use grappa_io::{Error, Position, Result};
use grappa_storage::{Graph, Relation, Store};

use super::{edges::SliceEdges, options::PlaceOptions};

/// The chunks of a slice.
pub(super) struct SliceChunks {
    types: Vec<TypeChunks>,
}

/// The chunks of a node type.
#[derive(Default)]
struct TypeChunks {
    /// Those of the slice.
    chosen: BTreeSet<u32>,
    /// Others whose features it has.
    halo: BTreeSet<u32>,
}

/// The part of a member of a graph, or of a store, that a slice has.
pub(super) struct MemberSlice<'a> {
    pub store: &'a Store,
    pub chunks: BTreeSet<u32>,
    /// Other chunks of its nodes whose features the slice has.
    pub halo: BTreeSet<u32>,
    /// The chunks of the slice among those that edges come from.
    pub sources: BTreeSet<u32>,
}

impl SliceChunks {
    /// The chunks that the options name.
    ///
    /// # Errors
    /// If the graph lacks one of them, there is none, or the features of others are to be had and are not stored or not there.
    pub fn new(graph: &Graph, options: &PlaceOptions) -> Result<Self> {
        let positions = graph.positions();
        let mut types: Vec<TypeChunks> = graph.node_types().iter().map(|_| TypeChunks::default()).collect();
        // A range may be longer than memory.
        let chunks = positions.chunks().chunks();
        if let Some(range) = options.chunks.iter().find(|range| *range.end() >= chunks) {
            let problem = format!("there is no chunk {}; the store has {chunks}", range.end());
            return Err(Error::input(graph.path(), Position::Whole, problem));
        }
        for chunk in options.chunks.iter().cloned().flatten() {
            let of_chunk = (0..types.len()).find(|&node_type| positions.chunks_of(node_type).contains(&chunk));
            let node_type = of_chunk.expect("the types have all chunks");
            let local = chunk - positions.chunks_of(node_type).start;
            graph.node_types()[node_type].span(ChunkId(local))?;
            types[node_type].chosen.insert(local);
        }
        if types.iter().all(|of_type| of_type.chosen.is_empty()) {
            return Err(Error::out_of_range("--chunks", "at least one chunk", "none"));
        }
        let mut slice = Self { types };
        if options.halo_features {
            slice.add_halo(graph, options)?;
        }
        Ok(slice)
    }

    /// Adds the chunks that edges of the slice come from, of the types whose features are stored.
    fn add_halo(&mut self, graph: &Graph, options: &PlaceOptions) -> Result<()> {
        if options.edges == SliceEdges::Inside {
            return Err(Error::conflict(
                "--halo-features is for edges from other chunks, and --edges inside leaves these out",
                "leave out one of them",
            ));
        }
        let is_stored = |store: &Store| store.manifest().stored_features().is_some();
        if !graph.node_types().iter().any(|store| is_stored(store)) {
            return Err(Error::conflict(
                format!("{}: --halo-features, but no features are stored", graph.path().display()),
                "leave it out: a slice computes features of all nodes, if the graph has computed features",
            ));
        }
        for (number, entry) in graph.manifest().relations.iter().enumerate() {
            let Relation { sources, edges, .. } = graph.relation(number);
            if !is_stored(sources) {
                continue;
            }
            let of_sources = &self.types[entry.source as usize].chosen;
            let mut halo = BTreeSet::new();
            for &chunk in &self.types[entry.destination as usize].chosen {
                let buckets = (0..).zip(&edges.manifest().chunks[chunk as usize].bucket_edges);
                halo.extend(buckets.filter(|(_, edges)| **edges > 0).map(|(source, _)| source));
            }
            halo.retain(|chunk| !of_sources.contains(chunk));
            halo.iter().try_for_each(|&chunk| sources.feature_span(ChunkId(chunk)).map(drop))?;
            self.types[entry.source as usize].halo.extend(halo);
        }
        Ok(())
    }

    /// The slices of the node types, then those of the relations. A store without types is one member.
    pub fn members<'a>(&self, graph: &'a Graph) -> Vec<MemberSlice<'a>> {
        let of_types = |store: &'a Store, nodes: usize, sources: usize| MemberSlice {
            store,
            chunks: self.types[nodes].chosen.clone(),
            halo: self.types[nodes].halo.clone(),
            sources: self.types[sources].chosen.clone(),
        };
        let types = graph.node_types().iter().enumerate().map(|(number, store)| of_types(store, number, number));
        let relations = graph.relations().iter().zip(&graph.manifest().relations);
        let relations = relations
            .map(|(store, entry)| of_types(store, entry.destination as usize, entry.source as usize))
            .filter(|_| graph.has_types());
        types.chain(relations).collect()
    }
}
