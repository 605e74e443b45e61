//! The merge of sorted runs of integers, on all threads.
//!
//! ```text
//! plan: cut the next piece from all runs: the ids below the least of those that are `step` ids ahead in a run
//! make: read the piece, sort it, drop duplicates
//! take: pass the ids of the pieces on, in order
//! ```
//!
//! A heap would take a branch that nobody can predict for each comparison. A radix sort of a piece takes none, and pieces are sorted by
//! several threads. No run has more than `step` ids in a piece, and the run with the least one has exactly `step`.

use std::{fs::File, ops::Range, os::unix::fs::FileExt, path::PathBuf};

use grappa_io::{
    Error, Result, heap, regular,
    sort::{bits_for, sort_keys},
};

use super::files::{Advance, EachId, Runs, SortedRun};
use crate::in_order::{PlannedPiece, in_order};

const ID_BYTES: u64 = size_of::<u64>() as u64;
/// Bytes of memory per id of a piece: the id, and its copy while pieces are sorted.
const PIECE_COST: u64 = 2 * ID_BYTES;
/// The most ids of a piece. With four times as many, a merge takes half as long again: their buffers are so large that each is memory from
/// the system.
const PIECE_IDS_MAX: u64 = 1 << 16;

struct OpenRun {
    path: PathBuf,
    file: File,
    ids: u64,
}

impl OpenRun {
    fn open(runs: &Runs, run: &SortedRun) -> Result<Self> {
        let path = runs.path(run.number);
        Ok(Self { file: regular::open(&path)?, path, ids: run.bytes / ID_BYTES })
    }

    fn id(&self, index: u64) -> Result<u64> {
        let mut bytes = [0; ID_BYTES as usize];
        self.file.read_exact_at(&mut bytes, index * ID_BYTES).map_err(Error::io("read", &self.path))?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// The index of the first id among `ids` that is `id` or more; their end if there is none.
    fn index_of(&self, id: u64, ids: Range<u64>) -> Result<u64> {
        let Range { mut start, mut end } = ids;
        while start < end {
            let middle = start + (end - start) / 2;
            match self.id(middle)? < id {
                true => start = middle + 1,
                false => end = middle,
            }
        }
        Ok(start)
    }

    /// Fills `into` with the ids from `first` on.
    fn read(&self, first: u64, into: &mut [u64]) -> Result<()> {
        self.file
            .read_exact_at(bytemuck::cast_slice_mut(into), first * ID_BYTES)
            .map_err(Error::io("read", &self.path))?;
        for id in into {
            *id = u64::from_be(*id);
        }
        Ok(())
    }
}

struct Piece {
    /// Their indices in each run.
    ranges: Vec<Range<u64>>,
    ids: u64,
}

/// Cuts the next piece of at most `ids_max` ids, or of one per run. `next` has the first id of each run that is in no piece yet. None if
/// nothing is left.
fn cut(runs: &[OpenRun], next: &mut [u64], ids_max: u64) -> Result<Option<Piece>> {
    let left = runs.iter().zip(&*next).filter(|&(run, &next)| next < run.ids).count() as u64;
    if left == 0 {
        return Ok(None);
    }
    let step = (ids_max / left).max(1);
    let mut end = u64::MAX;
    for (run, next) in runs.iter().zip(&*next) {
        if next + step < run.ids {
            end = end.min(run.id(next + step)?);
        }
    }
    let mut piece = Piece { ranges: Vec::with_capacity(runs.len()), ids: 0 };
    for (run, next) in runs.iter().zip(next) {
        let stop = run.index_of(end, *next..run.ids.min(*next + step))?;
        piece.ranges.push(*next..stop);
        piece.ids += stop - *next;
        *next = stop;
    }
    Ok(Some(piece))
}

impl Piece {
    /// Reads the ids of the piece, sorts them and drops duplicates. Returns how many were read, and the ids.
    fn make(self, runs: &[OpenRun]) -> Result<(u64, Vec<u64>)> {
        let mut ids = heap::zeroed(self.ids as usize, "merging node ids")?;
        let mut rest = &mut ids[..];
        for (run, range) in runs.iter().zip(self.ranges) {
            let (part, after) = rest.split_at_mut((range.end - range.start) as usize);
            run.read(range.start, part)?;
            rest = after;
        }
        // The bits that all ids share need no sort.
        let least = ids.iter().copied().min().unwrap_or(0);
        ids.iter_mut().for_each(|id| *id -= least);
        let bits = bits_for(ids.iter().copied().max().unwrap_or(0) + 1);
        sort_keys(&mut ids, &mut Vec::new(), bits);
        ids.dedup();
        ids.iter_mut().for_each(|id| *id += least);
        Ok((self.ids, ids))
    }
}

/// Merges runs of integers, and passes each id to `each` once. Uses about `memory` bytes.
pub fn merge_integers(
    runs: &Runs,
    some: &[SortedRun],
    memory: u64,
    threads: usize,
    advance: &mut Advance<'_>,
    each: &mut EachId<'_>,
) -> Result<()> {
    let files = some.iter().map(|run| OpenRun::open(runs, run));
    let files: Vec<_> = files.collect::<Result<_>>()?;
    let mut next = vec![0; files.len()];
    // One piece for each thread, and one that is passed on.
    let ids_max = (memory / (PIECE_COST * (threads as u64 + 1))).min(PIECE_IDS_MAX);
    in_order(
        threads,
        memory,
        || {
            let piece = cut(&files, &mut next, ids_max)?;
            Ok(piece.map(|piece| PlannedPiece { cost: piece.ids * PIECE_COST, piece }))
        },
        |piece| piece.make(&files),
        |(count, ids): (u64, Vec<u64>)| {
            advance(count * ID_BYTES);
            ids.iter().try_for_each(|id| each(&id.to_be_bytes()))
        },
    )
}
