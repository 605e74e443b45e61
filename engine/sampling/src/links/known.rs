//! True edges beside the graph's, which no negative may be.

use grappa_formats::{EdgePart, NodeId};
use grappa_io::Result;
use grappa_storage::{Chunk, Store};

/// Edges of parts of the store that are held out of the graph, and of a list.
#[derive(Debug, Default)]
pub struct KnownEdges {
    /// The chunks of each part, by number; none if the store is a slice without it.
    parts: Vec<Vec<Option<Chunk>>>,
    /// A list, sorted.
    list: Vec<(NodeId, NodeId)>,
    /// Whether the reverse of an edge counts as the edge.
    undirected: bool,
}

impl KnownEdges {
    /// The edges of these parts and of `list`. In an undirected graph, their reverses, too.
    ///
    /// # Errors
    /// If the store lacks a part, or a file cannot be opened.
    pub fn new(store: &Store, parts: &[EdgePart], mut list: Vec<(NodeId, NodeId)>) -> Result<Self> {
        list.sort_unstable();
        list.dedup();
        Ok(Self {
            parts: parts
                .iter()
                .map(|&part| {
                    let mut chunks: Vec<_> = (0..store.chunks().chunks()).map(|_| None).collect();
                    for chunk in store.present_chunks() {
                        chunks[chunk.0 as usize] = Some(store.part(part, chunk)?);
                    }
                    Ok(chunks)
                })
                .collect::<Result<_>>()?,
            list,
            undirected: store.manifest().edge_options.undirected,
        })
    }

    /// Whether this is one of the edges.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn contains(&self, store: &Store, source: NodeId, target: NodeId) -> Result<bool> {
        Ok(self.has(store, source, target)? || self.undirected && self.has(store, target, source)?)
    }

    fn has(&self, store: &Store, source: NodeId, target: NodeId) -> Result<bool> {
        if self.list.binary_search(&(source, target)).is_ok() {
            return Ok(true);
        }
        let chunk = store.chunks().chunk_of(target);
        for lists in self.parts.iter().filter_map(|chunks| chunks[chunk.0 as usize].as_ref()) {
            let row = lists.rows().row(target.0 - lists.span().first_node.0)?;
            let place = row.lower_bound(source.0);
            if place < row.degree() && row.get(place) == source.0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.list.capacity() * size_of::<(NodeId, NodeId)>()) as u64
    }
}
