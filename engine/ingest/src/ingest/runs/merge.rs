//! The merge of sorted runs. Runs of strings are merged here, runs of integers in [`super::integers`].

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
    loop {
        let some: Vec<SortedRun> = {
            let mut finished = runs.finished();
            let count = finished.runs.len().min(width);
            finished.runs.drain(..count).collect()
        };
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
            readers.push(reader);
        }
    }
    let mut heap = Heap::new(readers);
    // Equal ids follow each other. No id is empty, so the empty one differs from the first.
    let mut last = Vec::new();
    while let Some(first) = heap.first() {
        let id = first.id();
        if id != last {
            each(id)?;
            last.clear();
            last.extend_from_slice(id);
        }
        heap.advance(advance)?;
    }
    Ok(())
}
/// A binary heap of runs by their current id, the smallest first.
///
/// The standard library's heap does not serve here, because comparing ids with equal prefixes needs the readers.
struct Heap {
    readers: Vec<RunReader>,
    /// The prefix of the current id, and the index of the reader. The prefix is here so that most comparisons stay in the
    /// heap's own memory.
    heap: Vec<(u64, usize)>,
}

impl Heap {
    fn new(readers: Vec<RunReader>) -> Self {
        let heap = readers.iter().enumerate().map(|(i, reader)| (reader.prefix(), i)).collect();
        let mut heap = Self { readers, heap };
        for at in (0..heap.heap.len() / 2).rev() {
            heap.sink(at);
        }
        heap
    }

    fn first(&self) -> Option<&RunReader> {
        self.heap.first().map(|&(_, reader)| &self.readers[reader])
    }

    /// Moves the first run to its next id.
    fn advance(&mut self, advance: &mut dyn FnMut(u64)) -> Result<()> {
        let reader = self.heap[0].1;
        if self.readers[reader].next(advance)? {
            self.heap[0].0 = self.readers[reader].prefix();
        } else {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(())
    }

    /// Moves the entry at `at` down until both its children are larger.
    fn sink(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.less(child + 1, child) {
                child += 1;
            }
            if !self.less(child, at) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }

    #[inline]
    fn less(&self, a: usize, b: usize) -> bool {
        let ((a_prefix, a), (b_prefix, b)) = (self.heap[a], self.heap[b]);
        a_prefix < b_prefix || a_prefix == b_prefix && self.readers[a].id() < self.readers[b].id()
    }
}
