//! The in-neighbors of many nodes: all of them, or a few that are drawn.
//!
//! Nodes are visited in ascending order, piece by piece, and the adjacency lists of the next pieces are read ahead. So
//! a pass over the lists of most nodes reads files front to back, and one over the lists of few nodes has many reads in
//! flight.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::{NodeId, random, rows::Row};
use grappa_io::{
    Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::{CheckedEdgeRows, Chunk, MappedChunks};

use crate::{NodeSet, node_set::GrowingSet, sample::Draw};

/// Sources that are looked up together. They fit the first-level cache.
const SOURCES_TOGETHER: usize = 1024;
/// Longer lists are decoded in pieces. That takes longer, but a whole list could exceed the memory.
const WHOLE_MAX: u64 = 1 << 14;
/// Pieces whose adjacency lists are read ahead: enough reads in flight for a disk, and so few bytes that the system
/// keeps them until they are used, even if others fill its cache meanwhile.
const PIECES_AHEAD: u64 = 4;

/// The adjacency lists of a graph, or samples of them.
#[derive(Debug, Clone, Copy)]
pub struct InNeighbors<'a> {
    chunks: &'a MappedChunks,
    sample: Option<NeighborSample>,
    values: EdgeValues,
}

/// The values of an edge that come with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeValues {
    /// None.
    #[default]
    Nothing,
    /// Its weight.
    Weight,
    /// Its features.
    Features,
}

/// Which in-neighbors of each node are drawn, uniformly. Those of a node depend on the node and the seed only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborSample {
    /// The maximum number of draws for a node.
    pub per_node: u32,
    /// Whether an in-neighbor may be drawn several times. Without, a node with at most `per_node` in-neighbors has all
    /// of them.
    pub replace: bool,
    /// The seed of the draws.
    pub seed: u64,
}

/// The in-neighbors of a node, ascending.
#[derive(Debug)]
pub struct List<'a> {
    row: Row<'a>,
    /// The positions of the drawn ones; none if the list has all.
    drawn: Option<&'a [u64]>,
    /// The file with the values of edges, and the place of the first edge of the adjacency list in it.
    values: Option<(CheckedEdgeRows<'a>, u64)>,
}

/// In-neighbors of one or several lists, and the values of their edges, row by row.
#[derive(Debug, Default)]
pub struct DecodedEdges {
    /// The in-neighbors.
    pub sources: Vec<u64>,
    /// The values of the edges. Empty if lists have none.
    pub values: Vec<f32>,
}

impl DecodedEdges {
    /// Empties the lists and keeps their memory.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.values.clear();
    }
}

/// Memory for draws.
#[derive(Debug, Default)]
pub struct ListScratch(Draw);

impl<'a> InNeighbors<'a> {
    /// All in-neighbors of each node.
    pub fn all(chunks: &'a MappedChunks) -> Self {
        Self::sampled(chunks, None)
    }

    /// A sample of the in-neighbors of each node; all of them if it is none.
    pub fn sampled(chunks: &'a MappedChunks, sample: Option<NeighborSample>) -> Self {
        Self { chunks, sample, values: EdgeValues::Nothing }
    }

    /// The same lists, with values of their edges.
    ///
    /// # Panics
    /// If the store has no such values.
    #[must_use]
    pub fn with_values(self, values: EdgeValues) -> Self {
        let mut chunks = self.chunks.iter();
        assert!(
            values == EdgeValues::Nothing || chunks.all(|chunk| values_of(chunk, values).is_some()),
            "edges without values"
        );
        Self { values, ..self }
    }

    /// The adjacency lists.
    pub fn chunks(&self) -> &'a MappedChunks {
        self.chunks
    }

    /// Whether each list has all in-neighbors of its node.
    pub fn are_all(&self) -> bool {
        self.sample.is_none()
    }

    /// The length of the list of a node with some in-degree.
    pub fn length(&self, degree: u64) -> u64 {
        self.sample.map_or(degree, |sample| sample.draws(degree))
    }

    /// Passes the list of each of some ascending nodes to `visit`, with the index of the node. The list of a node is
    /// empty if a slice lacks its chunk: its in-neighbors are unknown.
    ///
    /// # Errors
    /// If an adjacency list is damaged. Also the errors of `visit`.
    pub fn each(
        &self,
        nodes: &[NodeId],
        scratch: &mut ListScratch,
        mut visit: impl FnMut(usize, List<'_>) -> Result<()>,
    ) -> Result<()> {
        let map = self.chunks.map();
        let mut start = 0;
        while let Some(first) = nodes.get(start) {
            let chunk = map.chunk_of(*first);
            let range = map.range(chunk);
            // Successive nodes of a chunk are decoded in one go.
            let mut end = start + 1;
            while end < nodes.len() && nodes[end].0 == nodes[end - 1].0 + 1 && nodes[end].0 < range.end {
                end += 1;
            }
            let rows = first.0 - range.start..nodes[end - 1].0 - range.start + 1;
            match self.chunks.chunk(chunk) {
                Some(chunk) => {
                    let lists = chunk.rows();
                    let mut values = match values_of(chunk, self.values) {
                        Some(file) => {
                            let edges = file.range(rows.start, &lists)?.start..file.range(rows.end - 1, &lists)?.end;
                            file.read_ahead(edges.clone());
                            Some((file, edges.start))
                        }
                        None => None,
                    };
                    for (index, row) in (start..end).zip(lists.range(rows)) {
                        let row = row?;
                        let degree = row.degree();
                        visit(index, self.list(nodes[index], row, values, scratch))?;
                        if let Some((_, first)) = &mut values {
                            *first += degree;
                        }
                    }
                }
                None => {
                    let empty = || List { row: Row::empty(), drawn: None, values: None };
                    (start..end).try_for_each(|index| visit(index, empty()))?;
                }
            }
            start = end;
        }
        Ok(())
    }

    #[inline]
    fn list<'l>(
        &self,
        node: NodeId,
        row: Row<'l>,
        values: Option<(CheckedEdgeRows<'l>, u64)>,
        scratch: &'l mut ListScratch,
    ) -> List<'l> {
        let drawn = self.sample.and_then(|sample| sample.positions(node, row.degree(), &mut scratch.0));
        List { row, drawn, values }
    }

    /// Number of edges in the lists of the nodes of a set.
    ///
    /// # Errors
    /// If the in-degrees are damaged, or a thread cannot be started.
    pub fn edges_to(&self, set: &NodeSet, threads: usize) -> Result<u64> {
        if set.is_all() && self.are_all() {
            return Ok(self.chunks.edges());
        }
        let edges = AtomicU64::new(0);
        self.each_degree(set, threads, |_, degrees| {
            let lengths = degrees.iter().map(|&degree| self.length(degree));
            edges.fetch_add(lengths.sum(), Ordering::Relaxed);
        })?;
        Ok(edges.into_inner())
    }

    /// The nodes of a set with those in their lists, and the number of edges in these lists.
    ///
    /// # Errors
    /// If an adjacency list is damaged, a thread cannot be started, or progress says to stop.
    pub fn with_sources(&self, set: &NodeSet, threads: usize, progress: &dyn Progress) -> Result<(NodeSet, u64)> {
        if set.is_all() {
            return Ok((set.clone(), self.edges_to(set, threads)?));
        }
        let grown = GrowingSet::from(set);
        let edges = self.add_sources(&grown, set, threads, progress)?;
        Ok((grown.finish(), edges))
    }

    /// The nodes in the lists of a set of nodes.
    ///
    /// # Errors
    /// As [`InNeighbors::with_sources`].
    pub fn sources_of(&self, set: &NodeSet, threads: usize, progress: &dyn Progress) -> Result<NodeSet> {
        let grown = GrowingSet::new(self.chunks.source_nodes());
        self.add_sources(&grown, set, threads, progress)?;
        Ok(grown.finish())
    }

    /// The nodes with in-edges.
    ///
    /// # Errors
    /// If the in-degrees are damaged, or a thread cannot be started.
    pub fn destinations(&self, threads: usize) -> Result<NodeSet> {
        let nodes = self.chunks.map().nodes();
        let found = GrowingSet::new(nodes);
        self.each_degree(&NodeSet::all(nodes), threads, |nodes, degrees| {
            let with_edges = nodes.iter().zip(degrees).filter(|(_, degree)| **degree > 0);
            with_edges.for_each(|(node, _)| found.add(node.0));
        })?;
        Ok(found.finish())
    }

    /// Passes the nodes of a set and their in-degrees to `each`, piece by piece, on several threads.
    fn each_degree(&self, set: &NodeSet, threads: usize, each: impl Fn(&[NodeId], &[u64]) + Sync) -> Result<()> {
        let pieces = Pieces::of_degrees(set, 0..set.len(), self.chunks);
        workers::run(threads, |worker| {
            let (mut nodes, mut degrees) = (Vec::new(), Vec::new());
            while worker.goes_on() && pieces.next(&mut nodes).is_some() {
                self.chunks.degrees(&nodes, &mut degrees)?;
                each(&nodes, &degrees);
                self.chunks.release(&nodes);
            }
            Ok(())
        })
    }

    /// Adds the nodes in the lists of `set`, and returns the number of edges in these lists.
    pub(crate) fn add_sources(
        &self,
        grown: &GrowingSet,
        set: &NodeSet,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let edges = AtomicU64::new(0);
        let pieces = Pieces::new(set, 0..set.len(), self.chunks);
        workers::run(threads, |worker| {
            let (mut nodes, mut decoded, mut scratch) = (Vec::new(), DecodedEdges::default(), ListScratch::default());
            while worker.goes_on() && pieces.next(&mut nodes).is_some() {
                check_stopped(progress)?;
                let add = |decoded: &mut DecodedEdges| {
                    grown.add_all(&decoded.sources);
                    edges.fetch_add(decoded.sources.len() as u64, Ordering::Relaxed);
                    decoded.clear();
                };
                self.each(&nodes, &mut scratch, |_, list| list.decode_in_pieces(&mut decoded, add))?;
                add(&mut decoded);
                self.chunks.release(&nodes);
            }
            Ok(())
        })?;
        Ok(edges.into_inner())
    }
}

impl NeighborSample {
    /// The number of draws for a node with some in-degree.
    fn draws(&self, degree: u64) -> u64 {
        match self.replace {
            true if degree > 0 => u64::from(self.per_node),
            _ => degree.min(u64::from(self.per_node)),
        }
    }

    /// The positions of the drawn in-neighbors; none if all are taken.
    fn positions<'d>(&self, node: NodeId, degree: u64, draw: &'d mut Draw) -> Option<&'d [u64]> {
        let key = random::combine(random::hash(self.seed), node.0);
        match self.replace {
            _ if degree == 0 => None,
            true => Some(draw.with_replacement(key, degree, self.per_node)),
            false if degree <= u64::from(self.per_node) => None,
            false => Some(draw.positions(key, degree, self.per_node)),
        }
    }
}

impl<'a> List<'a> {
    /// The in-degree of the node.
    pub fn degree(&self) -> u64 {
        self.row.degree()
    }

    /// Number of in-neighbors in the list.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.drawn.map_or(self.row.degree(), |drawn| drawn.len() as u64)
    }

    /// The positions of the in-neighbors in the adjacency list, ascending.
    pub fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        let all = 0..self.drawn.map_or(self.row.degree(), |_| 0);
        all.chain(self.drawn.into_iter().flatten().copied())
    }

    /// The adjacency list, if all in-neighbors are in the list.
    pub fn whole(&self) -> Option<&Row<'a>> {
        self.drawn.is_none().then_some(&self.row)
    }

    /// Appends the in-neighbors.
    #[inline]
    pub fn decode_into(&self, out: &mut Vec<u64>) {
        match self.drawn {
            None => self.row.decode_into(out),
            Some(positions) => self.row.get_many(positions, out),
        }
    }

    /// Appends the values of some edges, given by their index in the list. Nothing if lists have none.
    ///
    /// # Errors
    /// If the file with the values is damaged.
    #[inline]
    pub fn append_values(&self, edges: Range<u64>, out: &mut Vec<f32>) -> Result<()> {
        let Some((file, first)) = &self.values else {
            return Ok(());
        };
        let (start, width) = (out.len(), file.meta().layout.dim as usize);
        out.resize(start + (edges.end - edges.start) as usize * width, 0.0);
        let Some(positions) = self.drawn else {
            return file.copy(first + edges.start..first + edges.end, &mut out[start..]);
        };
        let positions = &positions[edges.start as usize..edges.end as usize];
        for (values, position) in out[start..].chunks_exact_mut(width).zip(positions) {
            file.copy(first + position..first + position + 1, values)?;
        }
        Ok(())
    }

    /// Appends the in-neighbors and the values of their edges to `out`. Calls `take`, which clears it, when there are
    /// enough to look them up together. Many lists are short, so several may come together. The list of a hub comes in
    /// pieces.
    ///
    /// # Errors
    /// If the file with the values is damaged.
    #[inline]
    pub fn decode_in_pieces(&self, out: &mut DecodedEdges, mut take: impl FnMut(&mut DecodedEdges)) -> Result<()> {
        let Some(hub) = self.whole().filter(|row| row.degree() > WHOLE_MAX) else {
            self.decode_into(&mut out.sources);
            self.append_values(0..self.len(), &mut out.values)?;
            if out.sources.len() >= SOURCES_TOGETHER {
                take(out);
            }
            return Ok(());
        };
        // The first edge whose values are not in `out`.
        let mut first = 0;
        for (end, source) in (1..).zip(hub.iter()) {
            out.sources.push(source);
            if out.sources.len() >= SOURCES_TOGETHER {
                self.append_values(first..end, &mut out.values)?;
                first = end;
                take(out);
            }
        }
        self.append_values(first..hub.degree(), &mut out.values)
    }
}

/// The file of a chunk with these values of its edges. None if it has none, or nothing is wanted.
fn values_of(chunk: &Chunk, values: EdgeValues) -> Option<CheckedEdgeRows<'_>> {
    match values {
        EdgeValues::Nothing => None,
        EdgeValues::Weight => chunk.weights(),
        EdgeValues::Features => chunk.edge_features(),
    }
}

/// Hands out the nodes at some positions of a set to threads, piece by piece, and has the adjacency lists of later
/// pieces read ahead.
#[derive(Debug)]
pub struct Pieces<'a> {
    set: &'a NodeSet,
    chunks: &'a MappedChunks,
    read_ahead: fn(&MappedChunks, &[NodeId]),
    end: u64,
    next: AtomicU64,
    /// Lists before this position are read ahead.
    ahead: AtomicU64,
}

impl<'a> Pieces<'a> {
    /// Nodes of a piece. The last one may have fewer.
    pub const NODES: u64 = 4096;

    /// All pieces are still to come.
    ///
    /// # Panics
    /// If the positions are out of range.
    pub fn new(set: &'a NodeSet, positions: Range<u64>, chunks: &'a MappedChunks) -> Self {
        assert!(positions.end <= set.len(), "positions {positions:?} of {}", set.len());
        Self {
            set,
            chunks,
            read_ahead: MappedChunks::read_ahead,
            end: positions.end,
            next: AtomicU64::new(positions.start),
            ahead: AtomicU64::new(positions.start),
        }
    }

    /// As [`Pieces::new`], if only in-degrees are used: they are read ahead, and lists are not.
    ///
    /// # Panics
    /// As [`Pieces::new`].
    pub fn of_degrees(set: &'a NodeSet, positions: Range<u64>, chunks: &'a MappedChunks) -> Self {
        Self { read_ahead: MappedChunks::read_ahead_degrees, ..Self::new(set, positions, chunks) }
    }

    /// Replaces `nodes` by the nodes of the next piece, and returns their positions. None after the last piece.
    pub fn next(&self, nodes: &mut Vec<NodeId>) -> Option<Range<u64>> {
        let first = self.next.fetch_add(Self::NODES, Ordering::Relaxed);
        if first >= self.end {
            return None;
        }
        let wanted = (first + PIECES_AHEAD * Self::NODES).min(self.end);
        let begun = self.ahead.fetch_max(wanted, Ordering::Relaxed);
        for start in (begun..wanted).step_by(Self::NODES as usize) {
            nodes.clear();
            self.set.nodes_at(start..(start + Self::NODES).min(wanted), nodes);
            (self.read_ahead)(self.chunks, nodes);
        }
        let positions = first..(first + Self::NODES).min(self.end);
        nodes.clear();
        self.set.nodes_at(positions.clone(), nodes);
        Some(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::graph::Graph;

    #[test]
    fn the_list_of_a_hub_comes_in_pieces() {
        let nodes = 4 * WHOLE_MAX;
        // A list that is decoded whole, two hubs, and short lists before, between and after them.
        let graph = Graph::new(nodes, |node| match node {
            0 => (0..WHOLE_MAX).collect(),
            2 => (0..nodes).collect(),
            4 => (0..nodes).step_by(3).collect(),
            node => (0..node % 3).collect(),
        });
        let kept = graph.store(2);
        let chunks = MappedChunks::open(&kept.store).unwrap();
        let members: Vec<NodeId> = (0..1000).map(NodeId).collect();
        let (mut found, mut decoded) = (Vec::new(), DecodedEdges::default());
        let mut take = |decoded: &mut DecodedEdges| found.append(&mut decoded.sources);
        InNeighbors::all(&chunks)
            .each(&members, &mut ListScratch::default(), |_, list| list.decode_in_pieces(&mut decoded, &mut take))
            .unwrap();
        take(&mut decoded);
        assert!(found.into_iter().eq((0..1000).flat_map(|node| graph.sources(node))));
        let capacity = decoded.sources.capacity() as u64;
        assert!(capacity <= 2 * WHOLE_MAX, "{capacity}");
    }
}
