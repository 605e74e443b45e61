//! How much of their neighbourhoods partitions see: halo nodes, and coverage, counted exactly.
//!
//! ```text
//! for a set of partitions and a range of sources, as many as there is memory for bitmaps:
//!     for each chunk that one of them owns, on all threads:
//!         for each row, for each owner:
//!             mark the sources in the range that it does not own in its bitmap
//!             in the first range: visible sources / all of them is the row's coverage
//!     halo nodes of each += marked bits
//! ```
//!
//! A bitmap takes a bit a node of the graph. With memory for those of all partitions, every row is read once; with less,
//! once for each set of partitions that own it, and, when not even one bitmap fits, for each range. Rows are decoded source
//! by source from the mapping, whose pages are given back, so memory is the bitmaps and some megabytes a thread.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::{ChunkId, NodeId, PartitionId, assignment::Assignment};
use grappa_io::{Error, Result, progress::Progress, workers};
use grappa_storage::{Store, files};
use serde::Serialize;

/// The least memory that bitmaps can be given, in bytes.
const MEMORY_MIN: u64 = 1 << 20;
/// Bytes of rows that are read before their pages are given back.
const RELEASE_BYTES: u64 = 16 << 20;
/// Rows between two looks at how many bytes that are.
const RELEASE_ROWS: u64 = 1 << 10;

/// What a count of coverage may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoverageOptions {
    /// Bytes for bitmaps, at least 1 MiB.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
}

/// How much of the neighbourhoods of its nodes a partition sees. The fields' names are those of the JSON objects that
/// `grappa-store info --coverage` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Coverage {
    /// Nodes that are not owned and have an edge to an owned one.
    pub halo_nodes: u64,
    /// The owned nodes by their coverage.
    pub coverage: Histogram,
}

/// Nodes by their coverage: in-edges from owned nodes / all in-edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Histogram {
    /// Nodes without in-edges, which have no coverage.
    pub no_in_edges: u64,
    /// Nodes none of whose in-edges are seen.
    pub zero: u64,
    /// Nodes with a coverage above 0 and below 1: below 0.1, from 0.1 to below 0.2, and so on.
    pub tenths: [u64; 10],
    /// Nodes all of whose in-edges are seen.
    pub one: u64,
}

impl Histogram {
    fn count(&mut self, visible: u64, degree: u64) {
        let nodes = match visible {
            _ if degree == 0 => &mut self.no_in_edges,
            0 => &mut self.zero,
            _ if visible >= degree => &mut self.one,
            // Below 10: degrees are below 2^48, so nothing overflows.
            _ => &mut self.tenths[(10 * visible / degree) as usize],
        };
        *nodes += 1;
    }

    fn add(&mut self, other: &Self) {
        self.no_in_edges += other.no_in_edges;
        self.zero += other.zero;
        self.one += other.one;
        for (sum, nodes) in self.tenths.iter_mut().zip(other.tenths) {
            *sum += nodes;
        }
    }
}

/// Counts the halo nodes and the coverage of every partition.
///
/// # Errors
/// If there is too little memory, or a chunk can't be read.
///
/// # Panics
/// If the assignment is of another number of chunks.
pub fn coverage(
    store: &Store,
    assignment: &Assignment,
    options: &CoverageOptions,
    progress: &dyn Progress,
) -> Result<Vec<Coverage>> {
    assert_eq!(
        assignment.chunks(),
        store.chunks().chunks(),
        "the assignment is of other chunks"
    );
    if options.memory < MEMORY_MIN {
        return Err(Error::Budget {
            what: "counting halo nodes".into(),
            given: options.memory,
            least: MEMORY_MIN,
            remedy: "raise --memory",
        });
    }
    count(
        store,
        assignment,
        &passes(store.manifest().nodes, assignment.partitions(), options.memory),
        options.threads,
        progress,
    )
}

fn count(
    store: &Store,
    assignment: &Assignment,
    passes: &[Pass],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<Coverage>> {
    let chunks: Vec<Vec<ChunkId>> = passes
        .iter()
        .map(|pass| {
            store
                .present_chunks()
                .filter(|&chunk| pass.reads(assignment, chunk))
                .collect()
        })
        .collect();
    let rows_of = |&chunk: &ChunkId| files::entry(store.manifest(), &files::of_chunk(chunk, "edges")).bytes;
    progress.stage(
        "counting halo nodes and coverage",
        Some(chunks.iter().flatten().map(rows_of).sum()),
    );
    let mut found = vec![Coverage::default(); assignment.partitions() as usize];
    for (pass, chunks) in passes.iter().zip(&chunks) {
        let bitmaps: Vec<Bitmap> = pass.partitions.clone().map(|_| Bitmap::new(&pass.sources)).collect();
        let histograms = Mutex::new(vec![Histogram::default(); bitmaps.len()]);
        workers::for_each(threads, chunks, |chunk| {
            let counted = count_chunk(store, assignment, pass, &bitmaps, chunk, progress)?;
            let mut histograms = histograms.lock().unwrap_or_else(PoisonError::into_inner);
            for (owner, histogram) in counted {
                histograms[owner].add(&histogram);
            }
            Ok(())
        })?;
        let histograms = histograms.into_inner().unwrap_or_else(PoisonError::into_inner);
        for ((found, bitmap), histogram) in found[pass.range()].iter_mut().zip(&bitmaps).zip(&histograms) {
            found.halo_nodes += bitmap.count();
            if pass.sources.start == 0 {
                found.coverage.add(histogram);
            }
        }
    }
    Ok(found)
}

/// What is counted while rows are read once.
struct Pass {
    partitions: Range<u32>,
    /// The sources that are looked for among halo nodes.
    sources: Range<u64>,
}

/// The passes that `memory` bytes of bitmaps allow.
fn passes(nodes: u64, partitions: u32, memory: u64) -> Vec<Pass> {
    let bitmap_bytes = Bitmap::words(&(0..nodes)) as u64 * 8;
    let at_once = (memory / bitmap_bytes.max(1)).min(partitions.into()) as u32;
    if at_once > 0 {
        return (0..partitions)
            .step_by(at_once as usize)
            .map(|first| Pass {
                partitions: first..partitions.min(first.saturating_add(at_once)),
                sources: 0..nodes,
            })
            .collect();
    }
    let step = memory / 8 * 64;
    let ranges = || {
        (0..nodes)
            .step_by(step as usize)
            .map(|start| start..nodes.min(start + step))
    };
    (0..partitions)
        .flat_map(|partition| {
            ranges().map(move |sources| Pass {
                partitions: partition..partition + 1,
                sources,
            })
        })
        .collect()
}

impl Pass {
    fn range(&self) -> Range<usize> {
        self.partitions.start as usize..self.partitions.end as usize
    }

    /// The place of a partition among those of the pass.
    fn place(&self, partition: Option<PartitionId>) -> Option<usize> {
        let partition = partition.filter(|partition| self.partitions.contains(&partition.0))?;
        Some((partition.0 - self.partitions.start) as usize)
    }

    /// The places of a chunk's owners: base, variable.
    fn owners(&self, assignment: &Assignment, chunk: ChunkId) -> [Option<usize>; 2] {
        let owners = assignment.owners(chunk);
        [owners.base, owners.variable].map(|owner| self.place(owner))
    }

    fn reads(&self, assignment: &Assignment, chunk: ChunkId) -> bool {
        self.owners(assignment, chunk).iter().any(Option::is_some)
    }
}

/// Marks the halo nodes that the rows of a chunk lead to, and counts coverage: by place of an owner in the pass.
fn count_chunk(
    store: &Store,
    assignment: &Assignment,
    pass: &Pass,
    bitmaps: &[Bitmap],
    chunk: ChunkId,
    progress: &dyn Progress,
) -> Result<impl Iterator<Item = (usize, Histogram)>> {
    let map = store.chunks();
    let owners = pass.owners(assignment, chunk);
    // Of each chunk of sources, a bit for each owner: that it sees them, or is none that counts.
    let sees: Vec<u8> = (0..map.chunks())
        .map(|j| {
            let seen = assignment.bucket(chunk, ChunkId(j));
            u8::from(seen.base.is_some() || owners[0].is_none())
                | u8::from(seen.variable.is_some() || owners[1].is_none()) << 1
        })
        .collect();
    let mark = |source: u64, sees: u8| {
        for (bit, owner) in owners.iter().enumerate() {
            if let Some(owner) = owner
                && sees >> bit & 1 == 0
                && pass.sources.contains(&source)
            {
                bitmaps[*owner].set(source - pass.sources.start);
            }
        }
    };
    let mut histograms = [Histogram::default(); 2];
    let chunk = store.chunk_in_order(chunk)?;
    let rows = chunk.rows();
    let (mut first, mut released, mut edges) = (0, 0, 0);
    for (row, sources) in (0..).zip(rows.range(0..rows.rows())) {
        let (mut degree, mut visible) = (0, [0u64; 2]);
        for source in sources?.iter() {
            let sees = sees[map.chunk_of(NodeId(source)).0 as usize];
            visible[0] += u64::from(sees & 1);
            visible[1] += u64::from(sees >> 1);
            if sees != 0b11 {
                mark(source, sees);
            }
            degree += 1;
        }
        histograms[0].count(visible[0], degree);
        histograms[1].count(visible[1], degree);
        edges += degree;
        let is_last = row + 1 == rows.rows();
        if row % RELEASE_ROWS != 0 && !is_last {
            continue;
        }
        let at = rows.extent(row)?.end;
        if at.saturating_sub(released) >= RELEASE_BYTES || is_last {
            chunk.release_rows(first..row + 1);
            progress.advance(at.saturating_sub(released), edges);
            (first, released, edges) = (row + 1, at, 0);
        }
    }
    let counted = owners.into_iter().zip(histograms);
    Ok(counted.filter_map(|(owner, histogram)| Some((owner?, histogram))))
}

/// A set of numbers from 0 on that several threads add to.
struct Bitmap {
    words: Vec<AtomicU64>,
}

impl Bitmap {
    fn words(numbers: &Range<u64>) -> usize {
        (numbers.end - numbers.start).div_ceil(64) as usize
    }

    fn new(numbers: &Range<u64>) -> Self {
        let words = (0..Self::words(numbers)).map(|_| AtomicU64::new(0)).collect();
        Self { words }
    }

    fn set(&self, number: u64) {
        let (word, bit) = (&self.words[(number / 64) as usize], 1 << (number % 64));
        // Most are there already, and reading leaves the line to the other threads.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.words.iter().map(ones).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use grappa_io::progress::Silent;

    use super::*;
    use crate::partition::{
        Owned, Schedule, report,
        schedule::{assignment, chunk_sizes},
        tests::{slice_of, store_of},
    };

    fn expected(store: &Store, owned: &Owned) -> (Coverage, u64) {
        let (mut found, mut halo, mut edges_seen) = (Coverage::default(), BTreeSet::<NodeId>::new(), 0);
        for chunk in owned.chunks() {
            let chunk = store.chunk(chunk).unwrap();
            for sources in chunk.rows().range(0..chunk.rows().rows()) {
                let sources: Vec<_> = sources.unwrap().iter().map(NodeId).collect();
                let seen = sources.iter().filter(|&&source| owned.contains(source)).count();
                halo.extend(sources.iter().filter(|&&source| !owned.contains(source)));
                let histogram = &mut found.coverage;
                *match (seen, sources.len()) {
                    (_, 0) => &mut histogram.no_in_edges,
                    (0, _) => &mut histogram.zero,
                    (seen, all) if seen == all => &mut histogram.one,
                    (seen, all) => &mut histogram.tenths[(1..10).rfind(|n| n * all <= 10 * seen).unwrap_or(0)],
                } += 1;
                edges_seen += seen as u64;
            }
        }
        found.halo_nodes = halo.len() as u64;
        (found, edges_seen)
    }

    #[test]
    fn counts_are_those_of_a_naive_count_in_any_memory() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_of(folder.path(), 12);
        let sizes = chunk_sizes(store.manifest());
        for (schedule, partitions) in [
            (Schedule::Sweep, 5),
            (Schedule::Sweep, 2),
            (Schedule::Shuffle, 12),
            (Schedule::Fixed, 1),
        ] {
            let assignment = assignment(schedule, &sizes, partitions, 1, 3, 1).unwrap();
            let reports = report(store.manifest(), &assignment);
            let expected: Vec<_> = (0..partitions)
                .map(|partition| {
                    let owned = Owned::of(&assignment, store.chunks(), PartitionId(partition));
                    let (coverage, visible) = expected(&store, &owned);
                    let report = &reports[partition as usize];
                    let ids = |chunks: &[ChunkId]| chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>();
                    assert_eq!(
                        (ids(owned.base()), ids(owned.variable())),
                        (report.base_chunks.clone(), report.variable_chunks.clone())
                    );
                    let edges: u64 = owned
                        .chunks()
                        .map(|chunk| store.manifest().chunks[chunk.0 as usize].edges)
                        .sum();
                    assert_eq!(
                        (report.nodes, report.visible_edges, report.cut_edges),
                        (owned.nodes(), visible, edges - visible)
                    );
                    coverage
                })
                .collect();
            // Bitmaps of all, of two, and of a part of the sources: of 512 nodes, each is 64 bytes.
            for (memory, count_of_passes) in [
                (1 << 20, 1),
                (128, partitions.div_ceil(2)),
                (64, partitions),
                (24, 3 * partitions),
            ] {
                let passes = passes(store.manifest().nodes, partitions, memory);
                assert_eq!(passes.len(), count_of_passes as usize);
                for threads in [1, 3] {
                    let counted = count(&store, &assignment, &passes, threads, &Silent).unwrap();
                    assert_eq!(counted, expected, "{schedule} of {partitions} in {memory} bytes");
                }
            }
        }
    }

    #[test]
    fn a_slice_is_counted_as_far_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let slice = slice_of(folder.path(), 7, 2..=3);
        let options = CoverageOptions {
            memory: 1 << 20,
            threads: 2,
        };
        let counted = coverage(&slice, slice.assignment(), &options, &Silent).unwrap();
        let Histogram { no_in_edges, one, .. } = counted[0].coverage;
        let nodes: u64 = slice.present_chunks().map(|chunk| slice.chunks().len(chunk)).sum();
        assert_eq!((counted.len(), counted[0].halo_nodes), (1, 0));
        assert!(one > 0 && one + no_in_edges == nodes, "{counted:?}");
    }

    #[test]
    fn too_little_memory_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_of(folder.path(), 4);
        let options = CoverageOptions {
            memory: 100,
            threads: 1,
        };
        let error = coverage(&store, store.assignment(), &options, &Silent).unwrap_err();
        assert!(error.to_string().contains("at least 1 MiB"), "{error}");
    }
}
