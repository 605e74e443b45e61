//! How a codec is measured: its size, and the speed of encoding, decoding and random access.

use std::{
    fs,
    hint::black_box,
    ops::Deref,
    sync::LazyLock,
    time::{Duration, Instant},
};

use grappa_formats::random::{SplitMix64, scale};

use crate::graph::Csr;

/// Rows are drawn and touched in groups of this size.
pub const GROUP: usize = 32;

/// Sources drawn per row.
pub const FANOUT: usize = 10;

/// Sources that one measurement of random access reads.
const RANDOM_EDGES: u64 = 10_000_000;

/// The result of encoding.
pub trait Encoded {
    type View<'a>: Codec
    where
        Self: 'a;

    fn view(&self) -> Self::View<'_>;
}

/// A codec that is measured.
pub trait Codec {
    fn bits(&self) -> u64;

    /// Decodes all rows in order, one at a time, into `out`.
    fn decode_all(&self, out: &mut Vec<u64>);

    /// The location of a row.
    type Place: Copy;

    /// Reads a byte of the index entries of rows, if possible.
    fn touch_places(&self, _rows: &[u64; GROUP]) -> u64 {
        0
    }

    fn locate(&self, row: u64) -> Self::Place;

    /// Reads a byte of each cache line of rows, if possible, up to a limit.
    fn touch_rows(&self, _places: &[Self::Place; GROUP]) -> u64 {
        0
    }

    fn decode_row(&self, place: Self::Place, out: &mut Vec<u64>);

    /// Appends `FANOUT` sources, at the positions given by `fractions` of 2^32, which ascend; or all sources, if there
    /// are fewer.
    fn sample(&self, place: Self::Place, fractions: &[u32; FANOUT], out: &mut Vec<u64>);
}

/// Measures a codec and prints its line of the table.
pub fn measure<E: Encoded>(name: &str, graph: &Csr, encode: impl Fn() -> E) {
    let edges = graph.sources.len() as f64;
    let mut best = [Duration::MAX; 4];
    let mut counts = [edges, edges, 0.0, 0.0];
    let mut encoded = None;
    for _ in 0..3 {
        drop(encoded.take());
        let (made, time) = timed(&encode);
        best[0] = best[0].min(time);
        encoded = Some(made);
    }
    let encoded = encoded.expect("three were made");
    let codec = encoded.view();
    let mut out = Vec::new();
    check(graph, &codec);
    let mut random = SplitMix64::new(1);
    let all: Vec<u64> = (0..graph.nodes()).collect();
    let full: Vec<u64> = (0..graph.nodes()).filter(|&row| !graph.row(row).is_empty()).collect();
    let fractions: Vec<[u32; FANOUT]> = (0..1024)
        .map(|_| {
            let mut fractions = std::array::from_fn(|_| random.draw() as u32);
            fractions.sort_unstable();
            fractions
        })
        .collect();
    for _ in 0..3 {
        best[1] = best[1].min(timed(|| codec.decode_all(&mut out)).1);
        for (kind, pool) in [(2, &all), (3, &full)] {
            let mut random = SplitMix64::new(2);
            let mut draw = || std::array::from_fn(|_| pool[scale(random.draw(), pool.len() as u64) as usize]);
            let (edges, time) = timed(|| {
                let mut edges = 0;
                let mut groups = 0;
                while edges < RANDOM_EDGES {
                    let group: [u64; GROUP] = draw();
                    black_box(codec.touch_places(&group));
                    let places = group.map(|row| codec.locate(row));
                    black_box(codec.touch_rows(&places));
                    for (i, place) in places.into_iter().enumerate() {
                        out.clear();
                        match kind {
                            2 => codec.decode_row(place, &mut out),
                            _ => codec.sample(place, &fractions[(groups + i) % 1024], &mut out),
                        }
                        edges += black_box(&out).len() as u64;
                    }
                    groups += GROUP;
                }
                edges
            });
            counts[kind] = edges as f64;
            best[kind] = best[kind].min(time);
        }
    }
    print!("| {name} | {:.2} |", codec.bits() as f64 / edges);
    for (count, time) in counts.into_iter().zip(best) {
        print!(" {:.1} |", count / time.as_secs_f64() / 1e6);
    }
    println!();
}

/// Repeats work for a while. Returns the last result and the mean time.
fn timed<T>(mut work: impl FnMut() -> T) -> (T, Duration) {
    let start = thread_time();
    let mut times = 0;
    loop {
        let done = work();
        times += 1;
        let time = thread_time() - start;
        if time > Duration::from_millis(100) {
            return (done, time / times);
        }
    }
}

/// Processor time of this thread, which other load disturbs less than wall time. If the kernel does not provide it,
/// wall time.
fn thread_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let nanoseconds = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = nanoseconds.and_then(|line| line.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// The speed of a codec counts only if its sources are right.
fn check(graph: &Csr, codec: &impl Codec) {
    let mut out = Vec::new();
    for row in (0..graph.nodes()).step_by(997) {
        out.clear();
        codec.decode_row(codec.locate(row), &mut out);
        assert!(out.iter().copied().eq(graph.row(row).iter().copied()), "row {row}");
        out.clear();
        let fractions = std::array::from_fn(|i| (i as u32) << 28);
        codec.sample(codec.locate(row), &fractions, &mut out);
        let positions = positions(graph.row(row).len() as u64, &fractions);
        let mut expected = positions.iter().map(|&k| graph.row(row)[k as usize]);
        assert!(out.iter().all(|&s| Some(s) == expected.next()), "row {row}");
    }
}

/// Ascending positions among `degree`.
#[inline(always)]
pub fn positions(degree: u64, fractions: &[u32; FANOUT]) -> Positions {
    let mut positions = [0; FANOUT];
    if degree <= FANOUT as u64 {
        for (k, position) in positions.iter_mut().enumerate() {
            *position = k as u64;
        }
        return Positions(positions, degree as usize);
    }
    for (position, &fraction) in positions.iter_mut().zip(fractions) {
        *position = (u64::from(fraction) * degree) >> 32;
    }
    Positions(positions, FANOUT)
}

/// Positions in a row, at most `FANOUT`.
pub struct Positions([u64; FANOUT], usize);

impl Deref for Positions {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0[..self.1]
    }
}
