//! Adjacency lists in mapped files: located, prefetched and checked.

use std::{cell::RefCell, hint::select_unpredictable, ops::Range};

use grappa_formats::{
    ChunkId, NodeId,
    chunks::ChunkMap,
    rows::{Row, RowPlace},
};
use grappa_io::{Error, Result, map::FaultMeter, prefetch::prefetch};
use grappa_storage::{CheckedAdjacency, CheckedEdgeRows, Chunk};

use super::{chunks::Mapped, disk_reads::GroupsSeen};
use crate::partition::Owned;

/// Lists of at most this many bytes are prefetched completely as soon as they are located.
const PREFETCH_WHOLE_BYTES: u64 = 192;
/// The decoder reads blocks of up to this many bytes, even if a list is shorter.
const DECODER_BLOCK_BYTES: u64 = 32;
/// How far the decoder reads beyond the last byte of a list.
const DECODER_OVERREAD_BYTES: u64 = 7;
const CACHE_LINE_BYTES: u64 = 64;

/// The adjacency lists of all owned chunks, or the lists that searches for times read, ready to be read by one thread.
pub(crate) struct MappedFiles<'a> {
    mapped: &'a Mapped,
    map: &'a ChunkMap,
    /// None for searches: the page faults of a thread count once, for the adjacency lists.
    counted: Option<Counted>,
    /// The first damage that was found since the last call of [`MappedFiles::take_damage`].
    damage: RefCell<Option<Error>>,
    chunks: Vec<Option<ChunkFiles<'a>>>,
}

/// What a thread counts while it reads lists.
struct Counted {
    faults: FaultMeter,
    seen: GroupsSeen,
}

impl Drop for MappedFiles<'_> {
    fn drop(&mut self) {
        self.keep_memory();
    }
}

struct ChunkFiles<'a> {
    first_node: NodeId,
    lists: CheckedAdjacency<'a>,
    edge_weights: Option<CheckedEdgeRows<'a>>,
    /// A file that locates the edges of a list, and the id of its first edge.
    located_by: Option<CheckedEdgeRows<'a>>,
    first_edge: u64,
}

/// Where the place of a list is stored: the chunk, and the index of the node in it; none if the node is not owned.
pub(crate) type FileHead = Option<(ChunkId, u64)>;

/// The place of a list in the files of its chunk; none if the node is not owned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePlace(Option<(ChunkId, RowPlace)>);

impl<'a> MappedFiles<'a> {
    pub(in crate::view) fn new(mapped: &'a Mapped, owned: &'a Owned) -> Self {
        let chunks = mapped.chunks.iter().zip(&mapped.first_edges).map(|(chunk, &first_edge)| {
            chunk.as_ref().map(|chunk| ChunkFiles {
                first_node: chunk.span().first_node,
                lists: chunk.rows(),
                edge_weights: chunk.weights(),
                located_by: chunk.edge_features().or(chunk.weights()),
                first_edge,
            })
        });
        let counted = Some(Counted { faults: FaultMeter::start(), seen: GroupsSeen::start() });
        Self { mapped, map: owned.chunk_map(), counted, damage: RefCell::new(None), chunks: chunks.collect() }
    }

    /// The lists of each chunk that searches for times read: `lists_of` chooses them.
    pub(in crate::view) fn searched(
        mapped: &'a Mapped,
        owned: &'a Owned,
        lists_of: impl Fn(&'a Chunk) -> CheckedAdjacency<'a>,
    ) -> Self {
        let chunks = mapped.chunks.iter().map(|chunk| {
            chunk.as_ref().map(|chunk| ChunkFiles {
                first_node: chunk.span().first_node,
                lists: lists_of(chunk),
                edge_weights: None,
                located_by: None,
                first_edge: 0,
            })
        });
        Self { mapped, map: owned.chunk_map(), counted: None, damage: RefCell::new(None), chunks: chunks.collect() }
    }

    pub(crate) fn keep_memory(&self) {
        if let Some(Counted { faults, .. }) = &self.counted {
            self.mapped.memory.keep(faults);
        }
    }

    #[inline(always)]
    pub(crate) fn are_on_disk(&self) -> bool {
        self.counted.as_ref().is_some_and(|Counted { seen, .. }| self.mapped.memory.disk.are_next(seen))
    }

    /// The chunk of a list, for errors.
    ///
    /// # Panics
    /// If the node is not owned.
    pub(in crate::view) fn chunk_of(&self, place: &FilePlace) -> &'a Chunk {
        let (chunk, _) = place.0.as_ref().expect("an owned node");
        self.mapped.chunks[chunk.0 as usize].as_ref().expect("the chunk of a list that was located")
    }

    pub(crate) fn read_ahead_head(&self, node: NodeId) {
        let chunk = self.map.chunk_of(node);
        if let Some(files) = &self.chunks[chunk.0 as usize] {
            files.lists.read_ahead_directory(node.0 - files.first_node.0);
        }
    }

    pub(in crate::view) fn read_ahead_list(&self, place: &FilePlace) {
        let Some((chunk, found)) = &place.0 else { return };
        let files = self.files_of(*chunk);
        files.lists.read_ahead_row(found);
        // Damage is an error when the weights are read.
        if let Some(weights) = &files.edge_weights
            && let Ok(edges) = weights.range(found.row(), &files.lists)
        {
            weights.read_ahead(edges);
        }
    }

    #[inline(always)]
    pub(in crate::view) fn head(&self, node: NodeId) -> FileHead {
        let chunk = self.map.chunk_of(node);
        let files = self.chunks[chunk.0 as usize].as_ref()?;
        let index = node.0 - files.first_node.0;
        let lists = files.lists.unchecked();
        prefetch(lists.degrees_payload(), lists.directory_line(index).start);
        self.note(files.lists.check_line(index));
        Some((chunk, index))
    }

    #[inline(always)]
    pub(in crate::view) fn prefetch_head(&self, head: FileHead) {
        if let Some((chunk, index)) = head {
            let checked = &self.files_of(chunk).lists;
            let lists = checked.unchecked();
            prefetch(lists.degrees_payload(), lists.directory_touches(index));
            self.note(checked.check_exceptions(index));
        }
    }

    /// Remembers damage. Damaged lists are safe to decode, so the stages of a group continue. The caller asks
    /// [`MappedFiles::take_damage`] before it uses a list.
    #[inline(always)]
    fn note(&self, checked: Result<()>) {
        if let Err(error) = checked {
            self.remember(error);
        }
    }

    #[cold]
    fn remember(&self, error: Error) {
        self.damage.borrow_mut().get_or_insert(error);
    }

    /// Fails if damage was found in a list that was located since the last call.
    #[inline(always)]
    pub(crate) fn take_damage(&self) -> Result<()> {
        match self.damage.take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    #[inline(always)]
    fn files_of(&self, chunk: ChunkId) -> &ChunkFiles<'a> {
        self.chunks[chunk.0 as usize].as_ref().expect("the chunk of a list that was located")
    }

    #[inline(always)]
    pub(in crate::view) fn locate(&self, head: FileHead) -> FilePlace {
        FilePlace(head.map(|(chunk, index)| (chunk, self.files_of(chunk).lists.unchecked().locate(index))))
    }

    #[inline(always)]
    pub(in crate::view) fn prefetch_list(&self, place: &FilePlace) {
        let Some((chunk, found)) = &place.0 else { return };
        let lists = &self.files_of(*chunk).lists;
        self.note(lists.check_row(found));
        let payload = lists.unchecked().edges_payload();
        let extent = found.extent();
        // The number of prefetches is the same for all lists, because a branch on the length could not be predicted.
        // Short lists prefetch their last line more than once. Of long lists only the head is needed now.
        let length = extent.end - extent.start;
        let last =
            select_unpredictable(length <= PREFETCH_WHOLE_BYTES, length.max(DECODER_BLOCK_BYTES), found.head_bytes());
        let last = last + DECODER_OVERREAD_BYTES;
        for line in 0..=PREFETCH_WHOLE_BYTES / CACHE_LINE_BYTES {
            let byte = extent.start + last.min(line * CACHE_LINE_BYTES);
            prefetch(payload, byte as usize);
        }
    }

    /// The list at a place; none if the node is not owned.
    #[inline(always)]
    pub(in crate::view) fn open(&self, place: &FilePlace) -> Option<Row<'a>> {
        let (chunk, found) = &place.0?;
        Some(self.files_of(*chunk).lists.unchecked().row_at(found))
    }

    #[inline(always)]
    pub(in crate::view) fn prefetch_sources(&self, place: &FilePlace, positions: &[u64]) {
        let Some((chunk, found)) = &place.0 else { return };
        let extent = found.extent();
        if extent.end - extent.start <= PREFETCH_WHOLE_BYTES {
            return; // `prefetch_list` prefetched it completely.
        }
        let lists = self.files_of(*chunk).lists.unchecked();
        let (list, payload) = (lists.row_at(found), lists.edges_payload());
        for &position in positions {
            for byte in list.touches(position) {
                prefetch(payload, byte as usize);
            }
        }
    }

    /// The ids of the edges of a list; none if the node is not owned.
    pub(in crate::view) fn edge_ids(&self, place: &FilePlace) -> Result<Option<Range<u64>>> {
        let Some((chunk, found)) = place.0 else {
            return Ok(None);
        };
        let files = self.files_of(chunk);
        let edges = files.located_by.as_ref().expect("the view has ids of edges");
        let edges = edges.range(found.row(), &files.lists)?;
        Ok(Some(files.first_edge + edges.start..files.first_edge + edges.end))
    }

    /// Appends the weights of edges of a list. `edges` are positions in the file.
    pub(in crate::view) fn edge_weights(
        &self,
        place: &FilePlace,
        edges: impl Iterator<Item = Range<u64>>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let Some((chunk, found)) = place.0 else {
            return Ok(());
        };
        let files = self.files_of(chunk);
        let weights = files.edge_weights.as_ref().expect("the view has edge weights");
        let all = weights.range(found.row(), &files.lists)?;
        for edges in edges {
            let start = out.len();
            out.resize(start + (edges.end - edges.start) as usize, 0.0);
            weights.copy(all.start + edges.start..all.start + edges.end, &mut out[start..])?;
        }
        Ok(())
    }
}
