//! Samples in-neighbors of the halo nodes that minibatches can reach.
//!
//! A partition has the features of halo nodes but not their in-edges. With sampled in-neighbors it can expand them:
//! each has up to a few in-neighbors, drawn uniformly, and the partition has the features of these. They are drawn
//! again at each repartition. In expectation, minibatches have the neighbors of the whole graph; within a super-epoch,
//! a halo node has the same few in-neighbors.

#[cfg(test)]
mod tests;

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::MappedChunks;

use crate::{
    InNeighbors, ListScratch, NeighborSample, NodeSet, Pieces,
    in_neighbors::List,
    node_set::GrowingSet,
    partition::{Owned, SeedNodes},
    policy::{CHOSEN_HALO_LISTS, HALO_DRAWS, HALO_NEIGHBORS_MIN},
    view::{EdgeData, HaloEdges, HaloLists, HaloPiece},
};

/// What the number of in-neighbors of a halo node depends on.
#[derive(Debug, Clone, Copy)]
pub struct HaloDraws {
    /// The most in-neighbors that a minibatch draws of a halo node at once. None is all.
    pub per_draw: Option<u32>,
    /// Nodes of the graph.
    pub nodes: u64,
    /// Its edges.
    pub edges: u64,
    /// What lists have of their edges.
    pub edge_data: EdgeData,
}

impl HaloDraws {
    /// The chosen number of in-neighbors of a halo node: [`HALO_DRAWS`] times as many as are drawn, or as many as fit in their share of
    /// `memory` if all nodes are halo nodes, and at least [`HALO_NEIGHBORS_MIN`].
    pub fn per_node(&self, memory: u64) -> u32 {
        let wanted = self.per_draw.map_or(u32::MAX, |draws| draws.saturating_mul(HALO_DRAWS)).max(HALO_NEIGHBORS_MIN);
        let fits = |per_node| {
            let bytes = HaloLists::drawing_bytes_max(self.nodes, self.edges, self.nodes, per_node, self.edge_data);
            bytes <= CHOSEN_HALO_LISTS.bytes(memory)
        };
        if fits(wanted) {
            return wanted;
        }
        let (mut fitting, mut too_many) = (HALO_NEIGHBORS_MIN, wanted);
        while too_many - fitting > 1 {
            let middle = fitting + (too_many - fitting) / 2;
            if fits(middle) {
                fitting = middle;
            } else {
                too_many = middle;
            }
        }
        fitting
    }
}

/// Which in-neighbors are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HaloNeighbors<'a> {
    pub chunks: &'a MappedChunks,
    /// What lists have of their edges.
    pub edge_data: EdgeData,
    /// The place of the first edge of each chunk in the store.
    pub first_edges: &'a [u64],
    /// The maximum number of in-neighbors of a node.
    pub per_node: u32,
    /// How many edges away from seeds nodes are expanded.
    pub hops: usize,
    pub seed: u64,
    /// The maximum number of bytes of the lists, and of the sets of nodes that are needed to find them.
    pub memory: u64,
    pub threads: usize,
}

impl HaloNeighbors<'_> {
    /// Draws in-neighbors of all halo nodes that minibatches of `partitions` may expand.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or progress says to stop.
    pub(crate) fn draw(&self, partitions: &[(&Owned, &SeedNodes)], progress: &dyn Progress) -> Result<HaloLists> {
        let nodes = self.chunks.map().nodes();
        self.check_memory(NodeSet::bytes_of(nodes).saturating_mul(partitions.len() as u64))?;
        let mut lists = self.lists_of(NodeSet::from_members(nodes, []), progress)?;
        let seeds = partitions.iter().map(|(_, seeds)| NodeSet::from_members(nodes, seeds.iter()));
        let mut reached: Vec<NodeSet> = seeds.collect();
        for _ in 1..self.hops {
            let mut halo = lists.nodes().clone();
            for (reached, (owned, _)) in reached.iter_mut().zip(partitions) {
                let (expanded, outside) = reached.split(owned.runs());
                let (with_neighbors, _) =
                    InNeighbors::all(self.chunks).with_sources(&expanded, self.threads, progress)?;
                let (sampled, _) = self.sources_of(&lists, &outside, progress)?;
                *reached = reached.union(&with_neighbors).union(&sampled);
                halo = halo.union(&reached.split(owned.runs()).1);
            }
            lists = self.lists_of(halo, progress)?;
        }
        for (reached, (owned, _)) in reached.iter().zip(partitions) {
            let (_, outside) = reached.split(owned.runs());
            let (sources, listed) = self.sources_of(&lists, &outside, progress)?;
            lists.given.listed += outside.len() + listed;
            lists.given.rows += sources.split(owned.runs()).1.len();
        }
        Ok(lists)
    }

    /// The nodes in the lists of some nodes, and the length of all these lists.
    fn sources_of(&self, lists: &HaloLists, nodes: &NodeSet, progress: &dyn Progress) -> Result<(NodeSet, u64)> {
        let found = GrowingSet::new(nodes.universe());
        let listed = AtomicU64::new(0);
        // Not `Pieces`, which reads the adjacency lists of the store ahead.
        let pieces: Vec<u64> = (0..nodes.len()).step_by(Pieces::NODES as usize).collect();
        workers::for_each(self.threads, &pieces, |first| {
            check_stopped(progress)?;
            let mut members = Vec::new();
            nodes.nodes_at(first..(first + Pieces::NODES).min(nodes.len()), &mut members);
            let sources = members.iter().flat_map(|&node| lists.sources(node));
            let count = sources.inspect(|source| found.add(source.0)).count();
            listed.fetch_add(count as u64, Ordering::Relaxed);
            Ok(())
        })?;
        Ok((found.finish(), listed.into_inner()))
    }

    fn check_memory(&self, bytes: u64) -> Result<()> {
        if bytes <= self.memory {
            return Ok(());
        }
        Err(Error::Budget {
            operation: "the sampled in-neighbors of halo nodes".into(),
            given: self.memory,
            least: bytes,
            remedy: "raise --memory, sample fewer in-neighbors, or choose another halo mode",
        })
    }

    /// In-neighbors of each node of a set. Those of a node depend on the node and the seed only.
    fn lists_of(&self, nodes: NodeSet, progress: &dyn Progress) -> Result<HaloLists> {
        self.check_memory(HaloLists::drawing_bytes_max(
            nodes.universe(),
            self.chunks.edges(),
            nodes.len(),
            self.per_node,
            self.edge_data,
        ))?;
        let drawn: Vec<_> = (0..nodes.len().div_ceil(Pieces::NODES)).map(|_| Mutex::new(None)).collect();
        let pieces = Pieces::new(&nodes, 0..nodes.len(), self.chunks);
        workers::run(self.threads, |worker| {
            let (mut scratch, mut members) = (ListScratch::default(), Vec::new());
            while worker.goes_on()
                && let Some(positions) = pieces.next(&mut members)
            {
                check_stopped(progress)?;
                let piece = self.piece(&nodes, &members, &mut scratch)?;
                let number = positions.start / Pieces::NODES;
                *drawn[number as usize].lock().expect("no thread panics") = Some(piece);
                self.chunks.release(&members);
            }
            Ok(())
        })?;
        let drawn = drawn.into_iter().map(|piece| piece.into_inner().expect("no thread panics"));
        let drawn: Vec<HaloPiece> = drawn.map(|piece| piece.expect("all pieces are drawn")).collect();
        Ok(HaloLists::from_pieces(nodes, drawn))
    }

    fn piece(&self, nodes: &NodeSet, members: &[NodeId], scratch: &mut ListScratch) -> Result<HaloPiece> {
        let (mut piece, mut sources) = (HaloPiece::new(nodes), Vec::new());
        let sample = NeighborSample { per_node: self.per_node, replace: false, seed: self.seed };
        InNeighbors::sampled(self.chunks, Some(sample)).each(members, scratch, |index, list| {
            sources.clear();
            list.decode_into(&mut sources);
            piece.push(list.degree(), &sources);
            match self.edge_data == EdgeData::default() {
                true => Ok(()),
                false => self.add_edges(members[index], &list, &mut piece.edges),
            }
        })?;
        Ok(piece)
    }

    /// Appends what is wanted of the edges in the list of a node.
    fn add_edges(&self, node: NodeId, list: &List<'_>, edges: &mut HaloEdges) -> Result<()> {
        let chunk = self.chunks.map().chunk_of(node);
        // The list is empty where a slice lacks the chunk.
        let Some((files, row)) = self.chunks.get(node) else {
            return Ok(());
        };
        let weights = files.weights().filter(|_| self.edge_data.weights);
        let Some(located_by) = files.edge_features().or(files.weights()) else {
            return Ok(());
        };
        let of_node = located_by.range(row, &files.rows())?;
        for position in list.positions() {
            let edge = of_node.start + position;
            if self.edge_data.ids {
                edges.ids.push(self.first_edges[chunk.0 as usize] + edge);
            }
            if let Some(weights) = &weights {
                let at = edges.weights.len();
                edges.weights.push(0.0);
                weights.copy(edge..edge + 1, &mut edges.weights[at..])?;
            }
        }
        Ok(())
    }
}
