//! Edges with times as events: their division by time, and whether an event repeats an earlier one.

use grappa_formats::{ChunkId, EdgePart, NodeId, time_axis::TimeAxis};
use grappa_io::{
    Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::{MappedChunks, Store};

use super::{
    end_times::EndTimes,
    positives::{TimeRange, for_each_edge},
};

/// Parts of a range of positions that are counted in one pass.
const COUNTED: u64 = 1 << 16;
/// Adjacency lists whose pages stay in memory while times are read.
const RELEASE_ROWS: u64 = 1 << 18;

/// Divides the edges of a store by time: the first edges, then those that follow, then the last ones. `shares` are the shares of all edges in
/// the first two parts, to the nearest edge. Edges at the same time are in the same part. Edges without times have those of their later `ends`.
/// Reads all times two to eight times, and takes 512 KiB of memory.
///
/// # Errors
/// If a file is damaged, or `progress` asks to stop.
///
/// # Panics
/// If neither edges nor ends have times.
pub fn split_by_time(
    store: &Store,
    ends: &EndTimes,
    shares: [f64; 2],
    progress: &dyn Progress,
) -> Result<[TimeRange; 3]> {
    let axis = match store.time_axis()? {
        Some(axis) => LinkAxis::Edges(axis),
        None => LinkAxis::Ends(ends, ends.span().expect("edges or ends have times")),
    };
    let edges = store.manifest().edges;
    let end_of = |share: f64| -> Result<i64> {
        let rank = (edges as f64 * share).round() as u64;
        match rank {
            0 => Ok(i64::MIN),
            rank => Ok(axis.time(position_of_rank(store, &axis, rank.min(edges), progress)?)),
        }
    };
    let [learned, val] = [end_of(shares[0])?, end_of(shares[0] + shares[1])?];
    let after = |time: i64| time.saturating_add(1);
    Ok([
        TimeRange { first: i64::MIN, last: learned },
        TimeRange { first: after(learned), last: val },
        TimeRange { first: after(val), last: i64::MAX },
    ])
}

/// Positions of edges that ascend with their times.
enum LinkAxis<'a> {
    /// The points in time of edges with times.
    Edges(&'a TimeAxis),
    /// All times from the first one to the last one of the ends of edges.
    Ends(&'a EndTimes, [i64; 2]),
}

impl LinkAxis<'_> {
    fn positions(&self) -> u64 {
        match self {
            Self::Edges(axis) => axis.positions(),
            Self::Ends(_, [first, last]) => last.abs_diff(*first).saturating_add(1),
        }
    }

    fn time(&self, position: u64) -> i64 {
        match self {
            Self::Edges(axis) => axis.time(position),
            Self::Ends(_, [first, _]) => first.wrapping_add_unsigned(position),
        }
    }

    /// Reads the positions of all edges.
    fn for_each_position(&self, store: &Store, progress: &dyn Progress, mut each: impl FnMut(u64)) -> Result<()> {
        let Self::Ends(ends, [first, _]) = self else { return for_each_position(store, progress, each) };
        let chunks: Vec<ChunkId> = store.present_chunks().collect();
        for_each_edge(store, EdgePart::Graph, &chunks, progress, |source, target| {
            each(ends.of_link(source, target).expect("an end with times").abs_diff(*first));
        })
    }
}

/// The position on the axis of the edge of a rank, from 1, in the order of time.
fn position_of_rank(store: &Store, axis: &LinkAxis<'_>, rank: u64, progress: &dyn Progress) -> Result<u64> {
    let (mut start, mut end, mut rank) = (0, axis.positions(), rank);
    while end - start > 1 {
        let width = (end - start).div_ceil(COUNTED);
        let mut counts = vec![0_u64; (end - start).div_ceil(width) as usize];
        axis.for_each_position(store, progress, |position| {
            if (start..end).contains(&position) {
                counts[((position - start) / width) as usize] += 1;
            }
        })?;
        let part = counts.iter().position(|&count| {
            let is_in_part = rank <= count;
            rank -= if is_in_part { 0 } else { count };
            is_in_part
        });
        let part = part.expect("there are as many edges as the rank") as u64;
        (start, end) = (start + part * width, end.min(start + (part + 1) * width));
    }
    Ok(start)
}

/// Reads the positions of all edges with times on their axis.
fn for_each_position(store: &Store, progress: &dyn Progress, mut each: impl FnMut(u64)) -> Result<()> {
    for chunk in store.present_chunks() {
        let chunk = store.chunk_in_order(chunk)?;
        let times = chunk.times().expect("edges have times");
        for start in (0..times.rows()).step_by(RELEASE_ROWS as usize) {
            check_stopped(progress)?;
            let range = start..times.rows().min(start + RELEASE_ROWS);
            for row in times.range(range.clone()) {
                row?.iter().for_each(&mut each);
            }
            chunk.release_rows(range);
        }
    }
    Ok(())
}

/// EdgeBank (Poursafaei et al., "Towards Better Evaluation for Dynamic Link Prediction", 2022): an edge is predicted if there was an earlier one.
#[derive(Debug)]
pub struct EdgeBank<'a> {
    axis: &'a TimeAxis,
    chunks: MappedChunks,
}

impl<'a> EdgeBank<'a> {
    /// The edges of a store with times. None without times.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(store: &'a Store) -> Result<Option<Self>> {
        let Some(axis) = store.time_axis()? else { return Ok(None) };
        Ok(Some(Self { axis, chunks: MappedChunks::open(store)? }))
    }

    /// Whether there was an edge before a time. Reads the earlier edges of the destination.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn contains(&self, (source, target): (NodeId, NodeId), time: i64) -> Result<bool> {
        let (chunk, row) = self.chunks.locate(target);
        let sources = chunk.rows().row(row)?;
        let times = chunk.times_of(row, sources.degree())?.expect("edges have times");
        let earlier = times.lower_bound(self.axis.earlier(time));
        Ok(sources.iter().take(earlier as usize).any(|other| other == source.0))
    }
}
