//! The best destinations of any number of sources, without known edges, in the memory that there is.

use grappa_formats::{EdgePart, NodeId};
use grappa_io::{Error as EngineError, progress::Progress};
use grappa_run::scores::{RANKED_MAX, SourceScores};
use grappa_sampling::links::known_edges_of;
use grappa_storage::Store;

use super::{
    LinkEmbeddings, destinations_of, distinct,
    memory::{KNOWN, RESULTS, SEARCH},
};
use crate::Result;

/// Bytes of a found destination: in the list of its source and in the rows to write.
const FOUND_BYTES: u64 = 40;
/// Bytes of a source besides its destinations.
const SOURCE_BYTES: u64 = 64;

/// The best destinations to find.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// The store, or the member of the relation.
    pub store: &'a Store,
    /// The sources.
    pub sources: &'a [NodeId],
    /// Destinations of each source, at least 1.
    pub k: usize,
    /// Known edges are no results: the edges of these parts.
    pub known: &'a [EdgePart],
    /// Known edges that may be results, ascending.
    pub held_out: &'a [(NodeId, NodeId)],
}

/// Destinations of sources, the best one first, with their scores.
type Found = Vec<Vec<(NodeId, f32)>>;

impl LinkEmbeddings<'_> {
    /// Finds the best destinations of sources and calls `each` with some sources at a time and with their destinations, in the order of the
    /// sources. Destinations are those of [`LinkEmbeddings::top_k`]. As many sources are compared at once as memory allows.
    ///
    /// # Errors
    /// If files cannot be read, memory is too small for the known edges of a source, `progress` asks to stop, or `each` fails.
    ///
    /// # Panics
    /// If `k` is 0, or a source is not in the set.
    pub fn search(
        &self,
        search: &Search<'_>,
        progress: &dyn Progress,
        mut each: impl FnMut(&[NodeId], Found) -> Result<()>,
    ) -> Result<()> {
        let finding = Self { memory: SEARCH.bytes(self.memory), ..*self };
        let found_bytes = (search.k as u64).min(self.destinations.len()).saturating_mul(FOUND_BYTES) + SOURCE_BYTES;
        let mut at_once = (RESULTS.bytes(self.memory) / found_bytes).max(1) as usize;
        let mut left = search.sources;
        while !left.is_empty() {
            let block = &left[..at_once.min(left.len())];
            let known = match search.known_edges(block, KNOWN.bytes(self.memory), progress) {
                // Fewer sources have fewer known edges.
                Err(EngineError::Budget { .. }) if block.len() > 1 => {
                    at_once = block.len() / 2;
                    continue;
                }
                known => known?,
            };
            progress.stage("comparing destinations", None);
            each(block, finding.top_k(block, search.k, &known, progress)?)?;
            left = &left[block.len()..];
        }
        Ok(())
    }

    /// The largest number of destinations of a source that memory has room for.
    pub fn search_max(&self) -> u64 {
        RESULTS.bytes(self.memory).saturating_sub(SOURCE_BYTES) / FOUND_BYTES
    }

    /// Ranks all destinations of the sources of edges, which ascend, without their other known edges. A node is no destination of itself.
    ///
    /// # Errors
    /// As [`LinkEmbeddings::search`].
    ///
    /// # Panics
    /// If a source is not in the set.
    pub fn rank_destinations(
        &self,
        store: &Store,
        known: &[EdgePart],
        held_out: &[(NodeId, NodeId)],
        progress: &dyn Progress,
    ) -> Result<SourceScores> {
        let sources = distinct(held_out.iter().map(|edge| edge.0));
        let search = Search { store, sources: &sources, k: RANKED_MAX as usize, known, held_out };
        let mut scores = SourceScores::default();
        self.search(&search, progress, |sources, found| {
            for (&source, found) in sources.iter().zip(found) {
                let held_out = destinations_of(held_out, source);
                let are_held_out: Vec<bool> =
                    found.iter().map(|&(node, _)| held_out.binary_search(&(source, node)).is_ok()).collect();
                let others = held_out.iter().filter(|edge| !self.joins_one_type() || edge.1 != source).count();
                scores.add(&are_held_out, others as u64);
            }
            Ok(())
        })?;
        Ok(scores)
    }
}

impl Search<'_> {
    /// The edges of sources that are no results.
    fn known_edges(
        &self,
        sources: &[NodeId],
        memory: u64,
        progress: &dyn Progress,
    ) -> grappa_io::Result<Vec<(NodeId, NodeId)>> {
        if self.known.is_empty() {
            return Ok(Vec::new());
        }
        progress.stage("reading known edges", None);
        let sources = distinct(sources.iter().copied());
        let mut edges = known_edges_of(self.store, self.known, &sources, memory, progress)?;
        edges.retain(|edge| self.held_out.binary_search(edge).is_err());
        Ok(edges)
    }
}
