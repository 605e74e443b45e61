//! In-degrees and out-degrees as features.
//!
//! ```text
//! for each range of nodes whose counters fit the memory:
//!     if edges have a direction: read all adjacency lists on all threads, and count the edges of each source in the range
//!     write the feature rows of the range, in order
//! ```

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::{ChunkId, manifest::Manifest};
use grappa_io::{Error, Result, ledger::Lease, progress::Progress, workers};
use grappa_storage::{
    Store,
    feature_rows::{ENCODE_ROWS, FeatureRowsWriter},
    files,
};

use crate::aggregate::{Budget, pieces};

/// Values of the one-hot code of a degree.
const SIZES: usize = 16;
/// Values for each degree.
const WIDTH: usize = 2 + SIZES;
const COUNTER_BYTES: u64 = 8;
/// The least memory for counters, in bytes.
const MEMORY_MIN: u64 = 1 << 20;
/// Adjacency lists that are read before their pages are released.
const RELEASE_ROWS: u64 = 1 << 16;

/// Values of a node.
pub fn dim(manifest: &Manifest) -> u32 {
    WIDTH as u32 * if has_direction(manifest) { 2 } else { 1 }
}

/// Whether out-degrees may differ from in-degrees.
fn has_direction(manifest: &Manifest) -> bool {
    !manifest.edge_options.undirected
}

/// Writes the feature rows of the nodes from `first` on. Returns who took how much of the memory.
///
/// # Errors
/// If the memory is below 1 MiB, or files cannot be read or written.
pub fn make(
    store: &Store,
    out: &mut FeatureRowsWriter<'_>,
    first: u64,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<Vec<Lease>> {
    let memory = budget.memory.saturating_sub(out.memory());
    if memory < MEMORY_MIN {
        return Err(Error::Budget {
            operation: "counting edges".into(),
            given: budget.memory,
            least: out.memory() + MEMORY_MIN,
            remedy: "raise --memory",
        });
    }
    make_by(store, out, first, memory / COUNTER_BYTES, budget.threads, progress)?;
    let counters = if has_direction(store.manifest()) { store.manifest().nodes - first } else { 0 };
    let counter_bytes = counters.saturating_mul(COUNTER_BYTES).min(memory);
    Ok(vec![
        out.lease(),
        Lease::new(
            "counters of out-edges",
            counter_bytes,
            "all that is left: all edges are read for each range of nodes with counters",
        ),
    ])
}

/// The same with a given number of counters.
pub(super) fn make_by(
    store: &Store,
    out: &mut FeatureRowsWriter<'_>,
    first: u64,
    counters: u64,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let nodes = store.manifest().nodes;
    let has_direction = has_direction(store.manifest());
    if !has_direction {
        return write(store, out, first..nodes, None);
    }
    let ranges: Vec<Range<u64>> = (first..nodes)
        .step_by(usize::try_from(counters).unwrap_or(usize::MAX))
        .map(|start| start..nodes.min(start.saturating_add(counters)))
        .collect();
    let chunks: Vec<ChunkId> = store.present_chunks().collect();
    let rows_of = |&chunk: &ChunkId| files::entry(store.manifest(), &files::of_chunk(chunk, "edges")).bytes;
    let pass_bytes: u64 = chunks.iter().map(rows_of).sum();
    progress.stage("counting edges", Some(pass_bytes * ranges.len() as u64));
    for range in ranges {
        let found: Vec<AtomicU64> = range.clone().map(|_| AtomicU64::new(0)).collect();
        workers::for_each(threads, &chunks, |chunk| {
            let edges = count(store, chunk, range.start, &found)?;
            progress.advance(rows_of(&chunk), edges);
            Ok(())
        })?;
        write(store, out, range, Some(&found))?;
    }
    Ok(())
}

/// Counts the edges of a chunk by source, for the sources from `first` on that have a counter. Returns the number of all
/// edges.
fn count(store: &Store, chunk: ChunkId, first: u64, counters: &[AtomicU64]) -> Result<u64> {
    let chunk = store.chunk_in_order(chunk)?;
    let rows = chunk.rows();
    let mut edges = 0;
    for start in (0..rows.rows()).step_by(RELEASE_ROWS as usize) {
        let part = start..rows.rows().min(start + RELEASE_ROWS);
        for row in rows.range(part.clone()) {
            for source in row?.iter() {
                // Sources before the first wrap around to indices that have no counter.
                if let Some(counter) = counters.get(source.wrapping_sub(first) as usize) {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                edges += 1;
            }
        }
        chunk.release_rows(part);
    }
    Ok(edges)
}

/// Writes the feature rows of some nodes. `out_degrees` has their out-degrees, if these are wanted.
fn write(
    store: &Store,
    out: &mut FeatureRowsWriter<'_>,
    nodes: Range<u64>,
    out_degrees: Option<&[AtomicU64]>,
) -> Result<()> {
    let width = if out_degrees.is_some() { 2 * WIDTH } else { WIDTH };
    let mut values = vec![0.0; ENCODE_ROWS * width];
    let mut node = nodes.start;
    for (chunk, rows) in pieces(store.chunks(), nodes.clone()) {
        let chunk = store.chunk_in_order(chunk)?;
        let chunk_rows = chunk.rows();
        for start in rows.clone().step_by(ENCODE_ROWS) {
            let part = start..rows.end.min(start + ENCODE_ROWS as u64);
            let count = part.end - part.start;
            let degrees = (node..).zip(chunk_rows.degrees(part.clone()));
            for (values, (node, degree)) in values.chunks_exact_mut(width).zip(degrees) {
                put(degree?, &mut values[..WIDTH]);
                if let Some(found) = out_degrees {
                    let out_degree = found[(node - nodes.start) as usize].load(Ordering::Relaxed);
                    put(out_degree, &mut values[WIDTH..]);
                }
            }
            out.write(node..node + count, &values[..count as usize * width])?;
            node += count;
            chunk.release_rows(part);
        }
    }
    Ok(())
}

/// The values of a degree.
fn put(degree: u64, values: &mut [f32]) {
    let one_more = degree as f64 + 1.0;
    // From the crate libm, because the system's logarithm differs between machines.
    values[0] = libm::log(one_more) as f32;
    values[1] = (1.0 / one_more.sqrt()) as f32;
    values[2..].fill(0.0);
    let size = (u64::BITS - degree.leading_zeros()) as usize;
    values[2 + size.min(SIZES - 1)] = 1.0;
}
