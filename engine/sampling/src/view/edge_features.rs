//! The features of edges, in mapped files.
//!
//! A minibatch has other edges each time, so rows of edges are not kept as rows of nodes are. They come from the page cache, or the disk:
//! then reads are started for a group of edges before the first of them is touched. Pages count as memory of the process and
//! are released like pages of mapped adjacency lists.

use std::sync::Arc;

use grappa_formats::{ChunkId, features::FeatureLayout};
use grappa_io::{Error, Position, Result, map::FaultMeter};
use grappa_storage::{CheckedEdgeRows, Store};

use super::files::{GroupsSeen, Mapped, MappedMemory};

/// Edges whose rows are prefetched together.
const GROUP: usize = 64;

/// The features of all edges of a store. Shared by threads.
#[derive(Debug)]
pub struct EdgeFeatures {
    layout: FeatureLayout,
    mapped: Mapped,
}

impl EdgeFeatures {
    /// Maps the features of the edges of `store`. Their resident pages, and the pages of others that share `memory`, may take the sum of
    /// their limits, here `bytes`.
    ///
    /// # Errors
    /// If edges have no features, or a file cannot be opened.
    pub(crate) fn open(store: &Store, bytes: u64, memory: &Arc<MappedMemory>) -> Result<Self> {
        let layout = store.edge_features().ok_or_else(|| {
            Error::missing("edge features", store.path(), "ingest edges with --edge-features or --edge-features-from")
        })?;
        let mapped = Mapped::edge_features(store, bytes, memory)?;
        for (chunk, entry) in (0..).map(ChunkId).zip(&store.manifest().chunks) {
            let Some(rows) = mapped.edge_rows(chunk) else { continue };
            let found = rows.meta().edges;
            if found != entry.edges {
                let problem = format!("the file has rows of {found} edges, but the chunk has {}", entry.edges);
                return Err(Error::input(rows.path(), Position::Whole, problem));
            }
        }
        Ok(Self { layout, mapped })
    }

    /// The number of features of an edge.
    pub fn dim(&self) -> usize {
        self.layout.dim as usize
    }

    /// The most bytes that their resident pages take.
    pub fn bytes(&self) -> u64 {
        self.mapped.bytes
    }

    /// Puts the features of the edges with these ids into `values`, row by row.
    ///
    /// # Errors
    /// If a file is damaged, or the store has no such edge.
    pub(crate) fn gather(&self, ids: &[u64], values: &mut [f32]) -> Result<()> {
        let chunks = self.mapped.chunk_ids().map(|chunk| self.mapped.edge_rows(chunk));
        let reader =
            Reader { features: self, chunks: chunks.collect(), faults: FaultMeter::start(), seen: GroupsSeen::start() };
        let mut groups = ids.chunks(GROUP).zip(values.chunks_mut(self.dim() * GROUP));
        groups.try_for_each(|(ids, values)| reader.gather(ids, values))
    }
}

/// The files of all chunks, ready to be read by one thread.
struct Reader<'a> {
    features: &'a EdgeFeatures,
    chunks: Vec<Option<CheckedEdgeRows<'a>>>,
    faults: FaultMeter,
    seen: GroupsSeen,
}

impl<'a> Reader<'a> {
    fn gather(&self, ids: &[u64], values: &mut [f32]) -> Result<()> {
        let EdgeFeatures { layout, mapped } = self.features;
        let from_disk = mapped.begin_group(&self.faults, &self.seen);
        let mut places = [None; GROUP];
        let (mut chunk, mut first, mut end) = (0, 0, 0);
        for (place, &id) in places.iter_mut().zip(ids) {
            // The edges of a destination are in one chunk.
            if !(first..end).contains(&id) {
                (chunk, first, end) = mapped.chunk_of_edge(id);
            }
            let rows = self.chunks.get(chunk).and_then(Option::as_ref);
            *place = rows.map(|rows| (rows, id - first));
        }
        let found = places.iter().zip(ids).map(|(place, &id)| place.ok_or_else(|| absent(id)));
        if from_disk {
            for place in found.clone() {
                let (rows, edge) = place?;
                rows.read_ahead(edge..edge + 1);
            }
        }
        for place in found.clone() {
            let (rows, edge) = place?;
            rows.prefetch(edge);
        }
        for (place, values) in found.zip(values.chunks_exact_mut(self.features.dim())) {
            let (rows, edge) = place?;
            layout.decode_row(rows.encoded(edge..edge + 1)?, values);
        }
        Ok(())
    }
}

#[cold]
fn absent(id: u64) -> Error {
    Error::conflict(
        format!("the store has no features of edge {id}, which its adjacency lists have"),
        "find the damage with `grappa-store verify`",
    )
}
