//! Adjacency lists of halo nodes, each a sample of the node's in-neighbors.
//!
//! ```text
//! heads     one per node: where its list starts, and the node's in-degree; then where the last list ends
//! low       the lower 32 bits of each source
//! high      the upper 8 bits, in graphs of more than 2^32 nodes
//! ids       the id of the edge from each source, if the view has ids of edges
//! weights   the weight of that edge, if the view has edge weights
//! ```

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::{Result, prefetch::prefetch};

use super::{
    adjacency::{AdjacencyLists, Degrees, Positions},
    edge_filter::EdgeData,
    files::MappedFiles,
    sources::NARROW_NODES_MAX,
};
use crate::{NodeSet, partition::Owned};

/// Sampled in-neighbors of halo nodes. Partitions that a process trains together share them.
#[derive(Debug)]
pub struct HaloLists {
    nodes: NodeSet,
    heads: Vec<Head>,
    low: Vec<u32>,
    high: Vec<u8>,
    edges: HaloEdges,
}

/// The lists of the halo nodes of a graph, by relation. A store has one relation.
#[derive(Debug, Clone, Default)]
pub struct GraphHaloLists {
    /// Those of each relation.
    pub relations: Vec<Arc<HaloLists>>,
    /// Counts of the nodes that the partitions get with these lists.
    pub given: Given,
}

impl GraphHaloLists {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.relations.iter().map(|lists| lists.bytes()).sum()
    }
}

/// The size of a relation, on which the memory of its lists depends.
#[derive(Debug, Clone, Copy)]
pub struct HaloSizes {
    /// Nodes of the type of destinations, which have lists.
    pub nodes: u64,
    /// Nodes of the type of sources, which are in lists.
    pub sources: u64,
    /// Edges.
    pub edges: u64,
    /// What lists have of their edges.
    pub edge_data: EdgeData,
}

impl HaloSizes {
    /// Bytes of memory of the lists of `nodes` nodes, with `sources` in-neighbors in all.
    pub fn bytes(&self, nodes: u64, sources: u64) -> u64 {
        let mut source_bytes = if self.sources > NARROW_NODES_MAX { 5 } else { 4 };
        source_bytes += if self.edge_data.ids { 8 } else { 0 };
        source_bytes += if self.edge_data.weights { 4 } else { 0 };
        let heads = (nodes + 1).saturating_mul(size_of::<Head>() as u64);
        heads
            .saturating_add(sources.saturating_mul(source_bytes))
            .saturating_add(NodeSet::bytes_of_members(self.nodes, nodes))
    }

    /// Bytes of memory that it takes to draw lists of `nodes` nodes with at most `per_node` in-neighbors each. They are collected in pieces
    /// first, so there are two copies.
    pub fn drawing_bytes_max(&self, nodes: u64, per_node: u32) -> u64 {
        // Each edge is in one adjacency list, and is drawn once at most.
        let sources = nodes.saturating_mul(per_node.into()).min(self.edges);
        self.bytes(nodes, sources).saturating_mul(2)
    }
}

/// What lists have of their edges, besides their sources.
#[derive(Debug, Default)]
pub(crate) struct HaloEdges {
    /// The ids of edges: their places in the store. Empty if the view has none.
    pub ids: Vec<u64>,
    /// Empty if the view has no edge weights.
    pub weights: Vec<f32>,
}

/// Counts of the nodes that partitions get with lists, summed over partitions.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Nodes in lists, and nodes that have lists.
    pub listed: u64,
    /// Different in-neighbors of each type that a partition does not own. It needs their features.
    pub rows: Vec<u64>,
}

/// Where a list starts, and the in-degree of its node.
#[derive(Debug, Clone, Copy)]
struct Head {
    start: u64,
    degree: u64,
}

impl HaloLists {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let lists = self.heads.len() * size_of::<Head>() + 4 * self.low.len() + self.high.len();
        let edges = 8 * self.edges.ids.len() + 4 * self.edges.weights.len();
        (lists + edges) as u64 + self.nodes.bytes()
    }

    /// The nodes that have lists.
    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// The sampled in-neighbors of a node, ascending; none if it has no list.
    pub fn sources(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let range = match self.nodes.contains(node) {
            true => {
                let at = self.nodes.position(node) as usize;
                self.heads[at].start as usize..self.heads[at + 1].start as usize
            }
            false => 0..0,
        };
        range.map(|at| self.source(at))
    }

    #[inline(always)]
    fn source(&self, at: usize) -> NodeId {
        let high = self.high.get(at).copied().unwrap_or(0);
        NodeId(u64::from(high) << 32 | u64::from(self.low[at]))
    }

    /// The position in [`HaloLists::heads`] of a node that has a list.
    #[inline(always)]
    fn position(&self, node: NodeId) -> Option<usize> {
        self.nodes.contains(node).then(|| self.nodes.position(node) as usize)
    }
}

impl HaloLists {
    /// The lists of all nodes of a set, in pieces, in the order of their nodes.
    pub(crate) fn from_pieces(nodes: NodeSet, pieces: Vec<HaloPiece>) -> Self {
        let total = pieces.iter().map(|piece| piece.low.len()).sum();
        let mut lists = Self {
            heads: Vec::with_capacity(nodes.len() as usize + 1),
            low: Vec::with_capacity(total),
            high: Vec::new(),
            edges: HaloEdges::default(),
            nodes,
        };
        for piece in pieces {
            let before = lists.low.len() as u64;
            let heads = piece.heads.iter().map(|head| Head { start: before + head.start, ..*head });
            lists.heads.extend(heads);
            lists.low.extend_from_slice(&piece.low);
            lists.high.extend_from_slice(&piece.high);
            lists.edges.ids.extend_from_slice(&piece.edges.ids);
            lists.edges.weights.extend_from_slice(&piece.edges.weights);
        }
        assert_eq!(lists.heads.len() as u64, lists.nodes.len(), "one list for each node");
        lists.heads.push(Head { start: lists.low.len() as u64, degree: 0 });
        lists
    }
}

/// The lists of some nodes, one after another.
#[derive(Debug)]
pub(crate) struct HaloPiece {
    is_wide: bool,
    heads: Vec<Head>,
    low: Vec<u32>,
    high: Vec<u8>,
    /// Of the edges in the lists.
    pub edges: HaloEdges,
}

impl HaloPiece {
    /// No lists yet. There are `sources` nodes that may be in lists.
    pub(crate) fn new(sources: u64) -> Self {
        Self {
            is_wide: sources > NARROW_NODES_MAX,
            heads: Vec::new(),
            low: Vec::new(),
            high: Vec::new(),
            edges: HaloEdges::default(),
        }
    }

    /// Appends the list of a node with some in-degree.
    pub(crate) fn push(&mut self, degree: u64, sources: &[u64]) {
        self.heads.push(Head { start: self.low.len() as u64, degree });
        self.low.extend(sources.iter().map(|&source| source as u32));
        if self.is_wide {
            self.high.extend(sources.iter().map(|source| (source >> 32) as u8));
        }
    }
}

/// The adjacency lists of owned nodes, and the sampled ones of halo nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WithHalo<'a, A> {
    pub owned: &'a Owned,
    pub lists: A,
    pub halo: &'a HaloLists,
}

/// Where the place of a list is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeadOf<H> {
    Owned(H),
    Halo(NodeId),
}

/// Where a list is stored.
#[derive(Debug)]
pub(crate) enum PlaceOf<P> {
    Owned(P),
    Halo { start: usize, degrees: Degrees },
}

impl<'a, A> WithHalo<'a, A> {
    pub(super) fn new(owned: &'a Owned, lists: A, halo: &'a HaloLists) -> Self {
        Self { owned, lists, halo }
    }
}

impl<A: AdjacencyLists> AdjacencyLists for WithHalo<'_, A> {
    type Head = HeadOf<A::Head>;
    type Place = PlaceOf<A::Place>;
    type GroupState = A::GroupState;

    #[inline(always)]
    fn files(&self) -> Option<&MappedFiles<'_>> {
        self.lists.files()
    }

    fn read_ahead_list(&self, place: &Self::Place) {
        if let PlaceOf::Owned(place) = place {
            self.lists.read_ahead_list(place);
        }
    }

    #[inline(always)]
    fn clear(state: &mut A::GroupState) {
        A::clear(state);
    }

    #[inline(always)]
    fn head(&self, node: NodeId) -> Self::Head {
        if self.owned.contains(node) {
            return HeadOf::Owned(self.lists.head(node));
        }
        self.halo.nodes.prefetch(node);
        HeadOf::Halo(node)
    }

    #[inline(always)]
    fn prefetch_head(&self, head: Self::Head) {
        match head {
            HeadOf::Owned(head) => self.lists.prefetch_head(head),
            HeadOf::Halo(node) => {
                if let Some(position) = self.halo.position(node) {
                    prefetch(&self.halo.heads, position);
                    prefetch(&self.halo.heads, position + 1);
                }
            }
        }
    }

    #[inline(always)]
    fn locate(&self, head: Self::Head) -> Self::Place {
        let node = match head {
            HeadOf::Owned(head) => return PlaceOf::Owned(self.lists.locate(head)),
            HeadOf::Halo(node) => node,
        };
        let Some(position) = self.halo.position(node) else {
            return PlaceOf::Halo { start: 0, degrees: Degrees::HALO };
        };
        let (head, next) = (self.halo.heads[position], self.halo.heads[position + 1]);
        PlaceOf::Halo {
            start: head.start as usize,
            degrees: Degrees {
                // A sample stands for all in-neighbors.
                visible: head.degree,
                global: head.degree,
                listed: next.start - head.start,
                halo: false,
            },
        }
    }

    #[inline(always)]
    fn prefetch_list(&self, place: &Self::Place) {
        if let PlaceOf::Owned(place) = place {
            self.lists.prefetch_list(place);
        }
    }

    #[inline(always)]
    fn degrees(&self, place: &mut Self::Place, state: &mut A::GroupState) -> Degrees {
        match place {
            PlaceOf::Owned(place) => self.lists.degrees(place, state),
            PlaceOf::Halo { degrees, .. } => *degrees,
        }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &Self::Place, positions: Positions<'_>) {
        match place {
            PlaceOf::Owned(place) => self.lists.prefetch_sources(place, positions),
            PlaceOf::Halo { start, .. } => {
                positions.for_each(|position| prefetch(&self.halo.low, start + position as usize));
            }
        }
    }

    #[inline(always)]
    fn sources_at(
        &self,
        place: &Self::Place,
        state: &mut A::GroupState,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    ) {
        match place {
            PlaceOf::Owned(place) => self.lists.sources_at(place, state, positions, sources),
            PlaceOf::Halo { start, .. } => {
                positions.for_each(|position| sources.push(self.halo.source(start + position as usize)));
            }
        }
    }

    fn edge_weights(
        &self,
        place: &Self::Place,
        state: &A::GroupState,
        count: u64,
        edge_weights: &mut Vec<f32>,
    ) -> Result<()> {
        match place {
            PlaceOf::Owned(place) => self.lists.edge_weights(place, state, count, edge_weights),
            PlaceOf::Halo { start, .. } => {
                edge_weights.extend_from_slice(&self.halo.edges.weights[*start..][..count as usize]);
                Ok(())
            }
        }
    }

    fn edge_ids(
        &self,
        place: &Self::Place,
        state: &A::GroupState,
        positions: Positions<'_>,
        ids: &mut Vec<u64>,
    ) -> Result<()> {
        match place {
            PlaceOf::Owned(place) => self.lists.edge_ids(place, state, positions, ids),
            PlaceOf::Halo { start, .. } => {
                positions.for_each(|position| ids.push(self.halo.edges.ids[start + position as usize]));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_40_bits_come_back_from_any_pieces() {
        let nodes = NodeSet::from_members(1000, [3, 500, 501, 999].map(NodeId));
        let mut pieces = [HaloPiece::new(1000), HaloPiece::new(1000)];
        // As in a graph whose set of nodes would take a gigabyte.
        pieces.iter_mut().for_each(|piece| piece.is_wide = true);
        let far = (1 << 40) - 1;
        pieces[0].push(7, &[1, 1 << 32, far]);
        pieces[0].push(0, &[]);
        pieces[1].push(1, &[far - 1]);
        pieces[1].push(2, &[5, 5]);
        let lists = HaloLists::from_pieces(nodes, pieces.into());
        let sources = |node| lists.sources(NodeId(node)).map(|source| source.0).collect::<Vec<_>>();
        assert_eq!(sources(3), [1, 1 << 32, far]);
        assert_eq!((sources(500), sources(501), sources(999)), (vec![], vec![far - 1], vec![5, 5]));
        assert!(sources(4).is_empty(), "it has no list");
        let sizes = |nodes| HaloSizes { nodes, sources: nodes, edges: 50, edge_data: EdgeData::default() };
        assert_eq!(lists.bytes(), sizes(1000).bytes(4, lists.low.len() as u64) + lists.high.len() as u64);
        assert_eq!(sizes(1 << 33).bytes(4, 6) - sizes(1 << 33).bytes(4, 0), 6 * 5);
        assert!(2 * lists.bytes() <= sizes(1000).drawing_bytes_max(4, 5));
    }
}
