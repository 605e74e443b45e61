//! Reads adjacency lists and counts, in as many passes as the memory for bitmaps requires.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::{ChunkId, NodeId, assignment::Assignment};
use grappa_io::{Result, progress::Progress, workers};
use grappa_storage::{Graph, Store, files};

use super::histogram::{Coverage, Histogram};

/// Bytes of adjacency lists that are read before their pages are released.
const RELEASE_BYTES: u64 = 16 << 20;
/// Adjacency lists between two checks of how many bytes were read.
const RELEASE_LISTS: u64 = 1 << 10;

pub(super) struct Pass {
    partitions: Range<u32>,
    /// Only these sources are counted as halo nodes.
    sources: Range<u64>,
}

/// Divides the work into passes whose bitmaps take at most `memory` bytes.
pub(super) fn passes(nodes: u64, partitions: u32, memory: u64) -> Vec<Pass> {
    let bitmap_bytes = Bitmap::bytes(&(0..nodes));
    let at_once = (memory / bitmap_bytes.max(1)).min(partitions.into()) as u32;
    if at_once > 0 {
        return (0..partitions)
            .step_by(at_once as usize)
            .map(|first| Pass { partitions: first..partitions.min(first.saturating_add(at_once)), sources: 0..nodes })
            .collect();
    }
    // Not even one bitmap fits. Each pass has one partition and as many sources as there are bits in whole words.
    let step = memory / 8 * 64;
    (0..partitions)
        .flat_map(|partition| {
            (0..nodes).step_by(step as usize).map(move |start| Pass {
                partitions: partition..partition + 1,
                sources: start..nodes.min(start + step),
            })
        })
        .collect()
}

impl Pass {
    /// The indices of a chunk's owners in the pass, as far as it contains them: base, variable part.
    fn owners(&self, assignment: &Assignment, chunk: ChunkId) -> [Option<usize>; 2] {
        let owners = assignment.owners(chunk);
        [owners.base, owners.variable].map(|owner| {
            let partition = owner.filter(|owner| self.partitions.contains(&owner.0))?;
            Some((partition.0 - self.partitions.start) as usize)
        })
    }
}

/// A relation, with the places of its types among the chunks and nodes of all types.
#[derive(Clone, Copy)]
struct Relation<'a> {
    store: &'a Store,
    source_type: &'a Store,
    number: usize,
    first_destination: u32,
    first_source: u32,
    /// The position of the first node of the type of sources.
    source_start: u64,
}

fn relations(graph: &Graph) -> Vec<Relation<'_>> {
    let positions = graph.positions();
    let entries = graph.relations().iter().zip(&graph.manifest().relations).enumerate();
    let relations = entries.map(|(number, (store, entry))| Relation {
        store,
        source_type: &graph.node_types()[entry.source as usize],
        number,
        first_destination: positions.chunks_of(entry.destination as usize).start,
        first_source: positions.chunks_of(entry.source as usize).start,
        source_start: positions.range(entry.source as usize).start,
    });
    relations.collect()
}

pub(super) fn count(
    graph: &Graph,
    assignment: &Assignment,
    passes: &[Pass],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<Coverage>> {
    let relations = relations(graph);
    let chunks: Vec<Vec<(Relation<'_>, ChunkId)>> = passes
        .iter()
        .map(|pass| {
            let of_relation = relations.iter().flat_map(|&relation| {
                let present = relation.store.present_chunks().map(move |chunk| (relation, chunk));
                present.filter(move |(_, chunk)| {
                    pass.owners(assignment, ChunkId(relation.first_destination + chunk.0)) != [None; 2]
                })
            });
            of_relation.collect()
        })
        .collect();
    let bytes = |&(relation, chunk): &(Relation<'_>, ChunkId)| {
        files::entry(relation.store.manifest(), &files::of_chunk(chunk, "edges")).bytes
    };
    progress.stage("counting halo nodes and coverage", Some(chunks.iter().flatten().map(bytes).sum()));
    let empty = Coverage { halo_nodes: 0, by_relation: vec![Histogram::default(); relations.len()] };
    let mut found = vec![empty; assignment.partitions() as usize];
    for (pass, chunks) in passes.iter().zip(&chunks) {
        let bitmaps: Vec<Bitmap> = pass.partitions.clone().map(|_| Bitmap::new(&pass.sources)).collect();
        let histograms = Mutex::new(vec![vec![Histogram::default(); relations.len()]; bitmaps.len()]);
        workers::for_each(threads, chunks, |(relation, chunk)| {
            let counted = count_chunk(relation, assignment, pass, &bitmaps, chunk, progress)?;
            let mut histograms = histograms.lock().unwrap_or_else(PoisonError::into_inner);
            for (owner, histogram) in counted {
                histograms[owner][relation.number].add(&histogram);
            }
            Ok(())
        })?;
        let histograms = histograms.into_inner().unwrap_or_else(PoisonError::into_inner);
        let found = found.iter_mut().skip(pass.partitions.start as usize);
        for ((found, bitmap), of_partition) in found.zip(&bitmaps).zip(&histograms) {
            found.halo_nodes += bitmap.count();
            // Every range of sources reads the same lists, so only the first one may count them.
            if pass.sources.start == 0 {
                found.by_relation.iter_mut().zip(of_partition).for_each(|(sum, histogram)| sum.add(histogram));
            }
        }
    }
    Ok(found)
}

/// Marks the halo nodes among the sources of a chunk, and returns a histogram for each owner in the pass.
fn count_chunk(
    relation: Relation<'_>,
    assignment: &Assignment,
    pass: &Pass,
    bitmaps: &[Bitmap],
    chunk: ChunkId,
    progress: &dyn Progress,
) -> Result<impl Iterator<Item = (usize, Histogram)>> {
    let Relation { store, source_type, first_destination, first_source, source_start, .. } = relation;
    let map = store.source_chunks();
    let destination = ChunkId(first_destination + chunk.0);
    let owners = pass.owners(assignment, destination);
    // Two bits for each chunk of sources: whether the owners, base and variable part, see its edges. The bit is also
    // set for an owner outside the pass, so that one comparison per source finds those that have to be marked.
    let sees: Vec<u8> = (0..map.chunks())
        .map(|j| {
            let (seen, is_owned) =
                (assignment.bucket(destination, ChunkId(first_source + j)), source_type.is_present(ChunkId(j)));
            u8::from(seen.base.is_some() && is_owned || owners[0].is_none())
                | u8::from(seen.variable.is_some() && is_owned || owners[1].is_none()) << 1
        })
        .collect();
    let mark = |source: NodeId, sees: u8| {
        for (bit, owner) in owners.iter().enumerate() {
            if let Some(owner) = owner
                && sees >> bit & 1 == 0
                && pass.sources.contains(&source.0)
            {
                bitmaps[*owner].set(source);
            }
        }
    };
    let mut histograms = [Histogram::default(); 2];
    let chunk = store.chunk_in_order(chunk)?;
    let lists = chunk.rows();
    let (mut first, mut released, mut edges) = (0, 0, 0);
    for (list, sources) in (0..).zip(lists.range(0..lists.rows())) {
        let (mut degree, mut visible) = (0, [0u64; 2]);
        for source in sources?.iter().map(NodeId) {
            let sees = sees[map.chunk_of(source).0 as usize];
            visible[0] += u64::from(sees & 1);
            visible[1] += u64::from(sees >> 1);
            if sees != 0b11 {
                mark(NodeId(source_start + source.0), sees);
            }
            degree += 1;
        }
        histograms[0].count(visible[0], degree);
        histograms[1].count(visible[1], degree);
        edges += degree;
        let is_last = list + 1 == lists.rows();
        if list % RELEASE_LISTS != 0 && !is_last {
            continue;
        }
        let end = lists.extent(list)?.end;
        if end.saturating_sub(released) >= RELEASE_BYTES || is_last {
            chunk.release_rows(first..list + 1);
            progress.advance(end.saturating_sub(released), edges);
            (first, released, edges) = (list + 1, end, 0);
        }
    }
    let counted = owners.into_iter().zip(histograms);
    Ok(counted.filter_map(|(owner, histogram)| Some((owner?, histogram))))
}

/// A set of nodes out of a range. All threads add to it.
struct Bitmap {
    first: u64,
    words: Vec<AtomicU64>,
}

impl Bitmap {
    /// Bytes of memory for a range of nodes.
    fn bytes(nodes: &Range<u64>) -> u64 {
        Self::words(nodes) as u64 * size_of::<AtomicU64>() as u64
    }

    fn words(nodes: &Range<u64>) -> usize {
        (nodes.end - nodes.start).div_ceil(64) as usize
    }

    /// An empty set.
    fn new(nodes: &Range<u64>) -> Self {
        Self { first: nodes.start, words: (0..Self::words(nodes)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a node of the range.
    fn set(&self, node: NodeId) {
        let offset = node.0 - self.first;
        let (word, bit) = (&self.words[(offset / 64) as usize], 1 << (offset % 64));
        // Most bits are set already. A load keeps the cache line shared; a write would take it from the other threads.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Number of nodes in the set.
    fn count(&self) -> u64 {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.map(|word| u64::from(word.count_ones())).sum()
    }
}
