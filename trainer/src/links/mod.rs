//! Links between nodes whose embeddings are known: scores of pairs, ranks of edges among candidates, the best destinations of sources.
//!
//! ```text
//! embeddings      a row for each node, in memory or in a scratch file; each was computed once
//! score           pairs; by destination if rows are in a file, which is then read front to back
//! rank            scores of edges and of candidates that are drawn for them; or blocks, for all nodes
//! top_k           blocks; each source keeps its best destinations so far
//! search          top_k of some sources at a time, as memory allows, without their known edges; rankings of sources follow from it
//! blocks          for each block of rows: its products with the queries of all sources
//! ```

mod blocks;
mod memory;
mod rank;
mod search;
#[cfg(test)]
mod tests;
mod top_k;

use grappa_engine::aggregate::{NodeRows, RowValues, read_each};
use grappa_formats::NodeId;
use grappa_io::progress::{Progress, check_stopped};
use grappa_kernels::for_each;
use grappa_sampling::NodeSet;
use tch::{Device, Kind, Tensor, no_grad};

use self::memory::{PAIRS, PIECE};
pub use self::{
    rank::{DrawnPart, RankedEdges},
    search::Search,
};
use crate::{
    Result,
    nn::{LinkDecoder, PairScore},
    shim,
};

/// Pairs that are scored at once, at most.
const PIECE_PAIRS: u64 = 1 << 15;
/// Bytes of memory for a pair, besides embeddings: itself, its place and its score.
const PAIR_BYTES: u64 = 40;
/// Pairs between two checks for a stop; chosen, not measured.
const GROUP_PAIRS: usize = 1 << 18;
/// Pairs that a thread scores at once: enough for `for_each`, and few enough to divide small evaluations; chosen, not measured.
const THREAD_PAIRS: usize = 1 << 10;

/// The embeddings of nodes, and how to compute with them.
#[derive(Clone, Copy)]
pub struct LinkEmbeddings<'a> {
    /// The decoder of the model.
    pub decoder: &'a LinkDecoder,
    /// The embeddings of the nodes of both ends.
    pub rows: &'a dyn NodeRows,
    /// The nodes that may be sources.
    pub sources: EndRows<'a>,
    /// The nodes that may be destinations: the same ones, or those of another type.
    pub targets: EndRows<'a>,
    /// The targets that sources are compared with, all or some of them.
    pub destinations: &'a NodeSet,
    /// Bytes of memory for computing, besides the rows if these are in memory.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// The device of the decoder.
    pub device: Device,
}

/// The nodes of one end of links, whose embeddings are rows that follow each other.
#[derive(Debug, Clone, Copy)]
pub struct EndRows<'a> {
    /// The nodes.
    pub nodes: &'a NodeSet,
    /// The row of the first of them.
    pub first: u64,
}

impl<'a> EndRows<'a> {
    /// Both ends of links between nodes of one type. All rows are theirs.
    pub fn one_type(nodes: &'a NodeSet) -> [Self; 2] {
        [Self { nodes, first: 0 }; 2]
    }

    /// Both ends of links between nodes of two types. The rows of destinations follow those of sources.
    pub fn two_types([sources, targets]: [&'a NodeSet; 2]) -> [Self; 2] {
        [Self { nodes: sources, first: 0 }, Self { nodes: targets, first: sources.len() }]
    }

    /// The row of a node.
    ///
    /// # Panics
    /// If the node is not among them.
    fn row(self, node: NodeId) -> u64 {
        self.first + self.nodes.position(node)
    }
}

/// Distinct nodes, ascending, and their embeddings. None if these are at hand, and read when they are wanted.
type Listed = Option<(Vec<NodeId>, Tensor)>;

impl LinkEmbeddings<'_> {
    /// The scores of pairs, source and destination, in their order.
    ///
    /// # Errors
    /// If embeddings cannot be read, or `progress` asks to stop.
    ///
    /// # Panics
    /// If a node is not in the set.
    pub fn score(&self, pairs: &[(NodeId, NodeId)], progress: &dyn Progress) -> Result<Vec<f32>> {
        if let (Some(rows), Some(decoder), Device::Cpu) =
            (self.rows.in_memory(), self.decoder.pair_score(), self.device)
        {
            return self.score_in_memory(rows, &decoder, pairs, progress);
        }
        let part = (PAIRS.bytes(self.memory) / (self.row_bytes() + PAIR_BYTES)).max(1);
        // Two gathered rows, their product, and the rows of destinations.
        let piece = (PIECE.bytes(self.memory) / (4 * self.row_bytes())).clamp(1, PIECE_PAIRS);
        let mut scores = vec![0.0; pairs.len()];
        for (pairs, scores) in pairs.chunks(part as usize).zip(scores.chunks_mut(part as usize)) {
            let sources = self.list(self.sources, pairs.iter().map(|pair| pair.0))?;
            let mut order: Vec<usize> = (0..pairs.len()).collect();
            if !self.are_at_hand() {
                order.sort_unstable_by_key(|&pair| pairs[pair].1);
            }
            for order in order.chunks(piece as usize) {
                check_stopped(progress)?;
                let ordered = order.iter().map(|&pair| pairs[pair]);
                let ends = [
                    self.rows_of(self.sources, &sources, ordered.clone().map(|pair| pair.0))?,
                    self.read_any(self.targets, ordered.map(|pair| pair.1))?,
                ];
                let found = no_grad(|| self.decoder.score(&ends[0], &ends[1]));
                let found = found.to_device(Device::Cpu).contiguous();
                for (&pair, &score) in order.iter().zip(shim::values(&found)) {
                    scores[pair] = score;
                }
            }
        }
        Ok(scores)
    }

    /// Scores pairs from rows in memory, without a copy of the rows.
    fn score_in_memory(
        &self,
        rows: RowValues<'_>,
        decoder: &PairScore,
        pairs: &[(NodeId, NodeId)],
        progress: &dyn Progress,
    ) -> Result<Vec<f32>> {
        let width = self.rows.width();
        let (from, to) = (self.sources, self.targets);
        let row = |end: EndRows<'_>, node| rows.row(end.row(node), width);
        let mut scores = vec![0.0; pairs.len()];
        // A group is checked for a stop and then divided among threads.
        for (pairs, scores) in pairs.chunks(GROUP_PAIRS).zip(scores.chunks_mut(GROUP_PAIRS)) {
            check_stopped(progress)?;
            let parts = pairs.chunks(THREAD_PAIRS).zip(scores.chunks_mut(THREAD_PAIRS));
            for_each(parts.collect(), |(pairs, scores): (&[(NodeId, NodeId)], &mut [f32])| {
                for (&(source, destination), score) in pairs.iter().zip(scores) {
                    *score = decoder.score(row(from, source), row(to, destination));
                }
            });
        }
        Ok(scores)
    }

    fn row_bytes(&self) -> u64 {
        (self.rows.width() * size_of::<f32>()) as u64
    }

    /// Whether both ends have the same type.
    fn joins_one_type(&self) -> bool {
        self.targets.first == self.sources.first
    }

    /// The embeddings of some nodes of an end, which ascend unless they are at hand, f32 of `[nodes, values]` on the device.
    ///
    /// # Panics
    /// If a node is not among those of the end.
    fn read(&self, end: EndRows<'_>, nodes: &[NodeId]) -> Result<Tensor> {
        let positions: Vec<u64> = nodes.iter().map(|&node| end.row(node)).collect();
        let shape = [nodes.len() as i64, self.rows.width() as i64];
        let mut rows = Tensor::empty(shape, (Kind::Float, Device::Cpu));
        read_each(self.rows, &positions, shim::values_mut(&mut rows), self.threads)?;
        Ok(rows.to_device(self.device))
    }

    /// The embeddings of some nodes in any order.
    fn read_any(&self, end: EndRows<'_>, nodes: impl Iterator<Item = NodeId> + Clone) -> Result<Tensor> {
        self.rows_of(end, &self.list(end, nodes.clone())?, nodes)
    }

    /// Reads the embeddings of these nodes, unless they are at hand.
    fn list(&self, end: EndRows<'_>, nodes: impl Iterator<Item = NodeId>) -> Result<Listed> {
        if self.are_at_hand() {
            return Ok(None);
        }
        let nodes = distinct(nodes);
        let rows = self.read(end, &nodes)?;
        Ok(Some((nodes, rows)))
    }

    /// The embeddings of listed nodes, in any order.
    fn rows_of(&self, end: EndRows<'_>, listed: &Listed, nodes: impl Iterator<Item = NodeId>) -> Result<Tensor> {
        match listed {
            None => self.read(end, &nodes.collect::<Vec<_>>()),
            Some((distinct, rows)) => {
                let place = |node| distinct.binary_search(&node).expect("a node among them") as i64;
                let places: Vec<i64> = nodes.map(place).collect();
                Ok(rows.index_select(0, &Tensor::from_slice(&places).to_device(self.device)))
            }
        }
    }

    /// Whether any order of rows costs the same.
    fn are_at_hand(&self) -> bool {
        self.device == Device::Cpu && self.rows.in_memory().is_some()
    }

    /// The positions among the destinations of a source, if it is one of their type, and of its known destinations, ascending.
    fn excluded(&self, source: NodeId, known: &[(NodeId, NodeId)]) -> Vec<u64> {
        let mut excluded: Vec<u64> = destinations_of(known, source)
            .iter()
            .map(|&(_, node)| node)
            .chain(self.joins_one_type().then_some(source))
            .filter(|&node| self.destinations.contains(node))
            .map(|node| self.destinations.position(node))
            .collect();
        excluded.sort_unstable();
        excluded.dedup();
        excluded
    }
}

pub(crate) fn distinct(nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The edges of a source among known edges, which ascend.
fn destinations_of(known: &[(NodeId, NodeId)], source: NodeId) -> &[(NodeId, NodeId)] {
    let start = known.partition_point(|edge| edge.0 < source);
    let end = known.partition_point(|edge| edge.0 <= source);
    &known[start..end]
}
