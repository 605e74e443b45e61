//! The merge of sorted runs. Runs of strings are merged here, runs of integers in [`super::integers`].

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use grappa_formats::dictionary::{KEY_BYTES_MAX, KeyKind};
use grappa_io::{Result, durable};

use super::{
    files::{Advance, EachId, Runs, SortedRun},
    integers::merge_integers,
    reader::RunReader,
};

/// The most runs that are merged at once. More would make the heap slow, and each takes a file descriptor.
const MERGE_WIDTH_MAX: u64 = 512;

/// The least memory for each run. Smaller reads would be slow, so fewer runs are merged at once instead.
const RUN_BYTES_MIN: usize = 64 << 10;
/// The largest buffer of a run of strings.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// The least one: the longest string must fit.
const BUFFER_BYTES_MIN: usize = 2 * (2 + KEY_BYTES_MAX);

/// Passes each id to `each`, once and ascending, and removes the runs.
///
/// Uses about `memory` bytes, which must hold two buffers for the longest id. `advance` gets the number of bytes
/// that the last merge reads. Integers are merged on `threads` threads.
pub fn merge(runs: Runs, memory: u64, threads: usize, advance: &mut Advance<'_>, each: &mut EachId<'_>) -> Result<()> {
    let run_bytes = match runs.kind {
        KeyKind::Integers => RUN_BYTES_MIN,
        KeyKind::Strings => BUFFER_BYTES_MIN.max(RUN_BYTES_MIN),
    };
    let width = (memory / run_bytes as u64).clamp(2, MERGE_WIDTH_MAX) as usize;
    let take_some = |finished: &mut Vec<SortedRun>| finished.drain(..width.min(finished.len())).collect::<Vec<_>>();
    loop {
        let some = take_some(&mut runs.finished().runs);
        if runs.finished().runs.is_empty() {
            return merge_some(&runs, &some, memory, threads, advance, each);
        }
        // The merged run goes to the end of the list, so that runs of similar size are merged with each other.
        let mut merged = runs.writer()?;
        merge_some(&runs, &some, memory, threads, &mut |_| {}, &mut |id| merged.push(id))?;
        merged.finish()?;
    }
}

/// Merges some of the runs, passes each id to `each` once, and removes their files.
fn merge_some(
    runs: &Runs,
    some: &[SortedRun],
    memory: u64,
    threads: usize,
    advance: &mut Advance<'_>,
    each: &mut EachId<'_>,
) -> Result<()> {
    match runs.kind {
        KeyKind::Integers => merge_integers(runs, some, memory, threads, advance, each)?,
        KeyKind::Strings => merge_strings(runs, some, memory, advance, each)?,
    }
    some.iter().try_for_each(|run| durable::remove_file(&runs.path(run.number)))
}

/// Merges runs of strings through a heap.
fn merge_strings(
    runs: &Runs,
    some: &[SortedRun],
    memory: u64,
    advance: &mut Advance<'_>,
    each: &mut EachId<'_>,
) -> Result<()> {
    let buffer_bytes = (memory as usize / some.len().max(1)).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
    let (mut readers, common) = (Vec::with_capacity(some.len()), SortedRun::common(some));
    for run in some {
        let mut reader = RunReader::open(runs.path(run.number), run.bytes, common, buffer_bytes)?;
        if reader.next(advance)? {
            readers.push(HeapRun { prefix: reader.prefix(), reader: Box::new(reader) });
        }
    }
    let mut heap = BinaryHeap::from(readers);
    // Equal ids follow each other. No id is empty, so the empty one differs from the first.
    let mut last = Vec::new();
    while let Some(mut first) = heap.peek_mut() {
        let id = first.reader.id();
        if id != last {
            each(id)?;
            last.clear();
            last.extend_from_slice(id);
        }
        match first.reader.next(advance)? {
            true => first.prefix = first.reader.prefix(),
            false => drop(PeekMut::pop(first)),
        }
    }
    Ok(())
}

/// A run in a heap. The heap has the largest entry first, and the entry with the smallest current id is the largest.
struct HeapRun {
    /// The prefix of the current id. It is here so that most comparisons stay in the heap's own memory.
    prefix: u64,
    reader: Box<RunReader>,
}

impl Ord for HeapRun {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.prefix.cmp(&self.prefix).then_with(|| other.reader.id().cmp(self.reader.id()))
    }
}

impl PartialOrd for HeapRun {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeapRun {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for HeapRun {}
