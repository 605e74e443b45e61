//! Size and speed of the codecs of adjacency lists, next to plain CSR, bit-packed CSR and BVGraph (the crate
//! `webgraph`).
//!
//! ```text
//! cargo bench -p grappa-benches --bench row_codec -- [--only SUBSTRING] [rmat:SCALE | EDGES.npy]...
//! ```
//!
//! Graphs are R-MAT graphs (edge factor 16, Graph500's probabilities, ids permuted) and edge lists (int64 [E,2] in C order:
//! source, target), by default R-MAT of scale 22 and `../shared/data/cnr-2000/edges.npy`. A row is an adjacency list:
//! the sorted sources of a target, with parallel edges merged (BVGraph has none). `--only` selects codecs by name.
//!
//! Times are of one thread, best of three. Rates are millions of edges per second:
//! - bits: bits per edge, including the index of rows;
//! - encode: from sorted rows in memory (BVGraph: into files);
//! - decode: all rows in order, into a reused buffer;
//! - rows: whole rows, drawn uniformly among all rows;
//! - k of d: up to 10 sources at random positions, ascending, in rows drawn uniformly among nonempty rows.
//!
//! The last two draw rows in groups of 32. As the sampler does, they touch the memory of a group before they read it,
//! if the codec knows the addresses (BVGraph does not).
mod bv_graph;
mod compressed;
mod graph;
mod plain;

use std::{
    env, fs,
    hint::black_box,
    ops::Range,
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

use grappa_formats::{
    random::{SplitMix64, scale},
    rows::{RowCodec, SizeEstimator},
};
use webgraph::prelude::CompFlags;

use self::{
    bv_graph::bv_rows,
    compressed::Compressed,
    graph::{Csr, read_npy, rmat},
    plain::{Packed, Plain},
};

/// Rows are drawn and touched in groups of this size.
const GROUP: usize = 32;

/// Sources drawn per row.
const FANOUT: usize = 10;

/// Sources that one measurement of random access reads.
const RANDOM_EDGES: u64 = 10_000_000;

fn main() {
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let (mut graphs, mut only) = (Vec::new(), String::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => only = args.next().expect("--only needs a part of a name"),
            _ => graphs.push(arg),
        }
    }
    if graphs.is_empty() {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/cnr-2000/edges.npy");
        graphs = vec!["rmat:22".into(), shared.display().to_string()];
    }
    for name in graphs {
        let graph = match name.strip_prefix("rmat:") {
            Some(scale) => Some(rmat(scale.parse().expect("a scale"), 16)),
            None => read_npy(Path::new(&name)),
        };
        match graph {
            Some(graph) => measure_all(&name, &graph, &only),
            None => println!("{name}: SKIPPED, the file does not exist"),
        }
    }
}

fn measure_all(name: &str, graph: &Csr, only: &str) {
    println!(
        "\n{name}: {} nodes, {} edges; information bound {:.2} bits per edge",
        graph.nodes(),
        graph.sources.len(),
        graph.bound() / graph.sources.len() as f64
    );
    println!("| codec | bits | encode | decode | rows | k of d |\n|---|---|---|---|---|---|");
    let wanted = |name: &str| name.contains(only);
    let mut estimator = SizeEstimator::new(graph.nodes());
    graph.for_rows(|node, row| estimator.add(node, row));
    println!("chosen: {:?}", estimator.choose());
    for codec in [RowCodec::EliasFano, RowCodec::Gap(estimator.gap_code())] {
        let name = match codec {
            RowCodec::EliasFano => "Elias-Fano".to_owned(),
            RowCodec::Gap(code) => format!("gap {code:?}"),
        };
        if wanted(&name) {
            measure(&name, graph, || Compressed::new(graph, codec));
        }
    }
    if wanted("Elias-Fano over own range") {
        own_range(graph);
    }
    if wanted("u32 CSR") {
        measure("u32 CSR", graph, || Plain::new(graph, |source| source as u32));
    }
    if wanted("u64 CSR") {
        measure("u64 CSR", graph, || Plain::new(graph, |source| source));
    }
    if wanted("bit-packed CSR") {
        measure("bit-packed CSR", graph, || Packed::new(graph));
    }
    for (name, flags) in [
        ("BVGraph", CompFlags::default()),
        (
            "BVGraph, no references",
            CompFlags {
                compression_window: 0,
                ..Default::default()
            },
        ),
    ] {
        if wanted(name) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let encode = || bv_rows(graph, folder.path(), flags);
            measure(name, graph, encode);
        }
    }
}

/// The result of encoding.
trait Encoded {
    type View<'a>: Codec
    where
        Self: 'a;

    fn view(&self) -> Self::View<'_>;
}

/// A codec that is measured.
trait Codec {
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

fn measure<E: Encoded>(name: &str, graph: &Csr, encode: impl Fn() -> E) {
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
fn positions(degree: u64, fractions: &[u32; FANOUT]) -> Positions {
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

struct Positions([u64; FANOUT], usize);

impl std::ops::Deref for Positions {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0[..self.1]
    }
}
/// Reads a byte of each cache line, at most eight.
#[inline(always)]
fn touch(bytes: &[u8], Range { start, end }: Range<u64>) -> u64 {
    let lines = (start..end.min(start + 512)).step_by(64);
    lines.map(|at| u64::from(bytes[at as usize])).sum()
}

/// Prints the size of Elias-Fano over the range of each row. This code stores the range: the first source and the
/// distance to the last one, each with the bits of the largest node. The size of a row then does not follow from its
/// degree, so the directory needs sizes, and the row its degree (in gamma code).
fn own_range(graph: &Csr) {
    let width = u64::from(64 - (graph.nodes() - 1).leading_zeros());
    let elias_fano = |degree: u64, max: u64| {
        (0..=width)
            .map(|low| degree * low + if low == width { 0 } else { degree + (max >> low) })
            .min()
            .expect("there are widths")
    };
    let mut bits = graph.nodes() * 512 / 54;
    graph.for_rows(|_, row| {
        let degree = row.len() as u64;
        bits += match row {
            [] => 0,
            [_] => width + 1,
            [first, .., last] => {
                let gamma = 2 * u64::from(degree.ilog2()) + 1;
                let sources = if degree > 2 {
                    elias_fano(degree - 2, last - first)
                } else {
                    0
                };
                let size = gamma + 2 * width + sources;
                size + if size >= 255 { 48 } else { 0 }
            }
        };
    });
    println!(
        "| Elias-Fano over own range | {:.2} | | | | |",
        bits as f64 / graph.sources.len() as f64
    );
}
