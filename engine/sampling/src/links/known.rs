//! True edges beside the graph's, which no negative may be.

use std::iter;

use grappa_formats::{EdgePart, NodeId, rows::Row};
use grappa_io::Result;
use grappa_storage::{Chunk, Store};

/// Edges of parts of the store that are held out of the graph, and of a list.
#[derive(Debug, Default)]
pub struct KnownEdges {
    /// The chunks of each part, by number; none if the store is a slice without it.
    parts: Vec<(EdgePart, Vec<Option<Chunk>>)>,
    /// A list, sorted.
    list: Vec<(NodeId, NodeId)>,
    /// Whether the reverse of an edge counts as the edge.
    undirected: bool,
}

/// Whether an adjacency list has a source. A list in the order of time is read from front to back.
fn has_source(row: &Row<'_>, source: u64) -> bool {
    if row.is_by_time() {
        return row.iter().any(|other| other == source);
    }
    let place = row.lower_bound(source);
    place < row.degree() && row.get(place) == source
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
                    Ok((part, chunks))
                })
                .collect::<Result<_>>()?,
            list,
            undirected: store.manifest().edge_options.undirected,
        })
    }

    /// Whether this is one of the edges. Calls with the same source one after another are fastest: in an undirected graph, they read the list
    /// of the source.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn contains(&self, store: &Store, source: NodeId, target: NodeId) -> Result<bool> {
        let (edge, reverse) = ((source, target), (target, source));
        if self.is_listed(edge) || self.undirected && self.is_listed(reverse) {
            return Ok(true);
        }
        for (part, chunks) in &self.parts {
            let (edge, other) = match (self.undirected, part) {
                (false, _) => (edge, None),
                // The lists of both ends have the edge.
                (true, EdgePart::Graph) => (reverse, Some(edge)),
                // The list of the end with the larger number has it.
                (true, _) => (edge.min(reverse), None),
            };
            for (source, target) in iter::once(edge).chain(other) {
                let Some(lists) = &chunks[store.chunks().chunk_of(target).0 as usize] else {
                    continue;
                };
                let row = lists.rows().row(target.0 - lists.span().first_node.0)?;
                if has_source(&row, source.0) {
                    return Ok(true);
                }
                break;
            }
        }
        Ok(false)
    }

    fn is_listed(&self, edge: (NodeId, NodeId)) -> bool {
        self.list.binary_search(&edge).is_ok()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.list.capacity() * size_of::<(NodeId, NodeId)>()) as u64
    }
}
