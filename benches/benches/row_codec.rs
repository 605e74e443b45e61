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

use std::{
    env, fs,
    hint::black_box,
    ops::Range,
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

use dsi_bitstream::traits::BE;
use dsi_progress_logger::no_logging;
use grappa_formats::{
    permutation::Feistel,
    random::{SplitMix64, scale},
    rows::{RowCodec, RowPlace, RowSizes, Rows, RowsEncoder, RowsMeta, SizeEstimator},
};
use lender::Lender;
use webgraph::{
    graphs::arc_list_graph::ArcListGraph,
    prelude::{
        BvComp, BvGraph, BvGraphSeq, CompFlags, LoadMem, RandomAccessGraph, SequentialLabeling, Static,
        store_ef_with_data,
    },
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

/// Grappa's codecs.
struct Compressed {
    meta: RowsMeta,
    sizes: RowSizes,
    edges: Vec<u8>,
    degrees: Vec<u8>,
}

impl Compressed {
    fn new(graph: &Csr, codec: RowCodec) -> Self {
        let mut encoder = RowsEncoder::new(codec, graph.nodes(), 0);
        let mut edges = Vec::new();
        graph.for_rows(|_, row| {
            encoder.push(row);
            if encoder.finished_bytes() > 1 << 20 {
                edges.extend_from_slice(&encoder.take_bytes());
            }
        });
        let tail = encoder.finish();
        edges.extend_from_slice(&tail.edges_payload_rest);
        Self {
            meta: tail.meta,
            sizes: RowSizes::of(&tail.meta),
            edges,
            degrees: tail.degrees_payload,
        }
    }
}

impl Encoded for Compressed {
    type View<'a> = CompressedRows<'a>;

    fn view(&self) -> CompressedRows<'_> {
        let rows = Rows::new(&self.meta, &self.sizes, &self.edges, &self.degrees).expect("just encoded");
        CompressedRows { rows, encoded: self }
    }
}

struct CompressedRows<'a> {
    rows: Rows<'a>,
    encoded: &'a Compressed,
}

impl Codec for CompressedRows<'_> {
    fn bits(&self) -> u64 {
        8 * (self.encoded.edges.len() + self.encoded.degrees.len()) as u64
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        for row in self.rows.range(0..self.rows.rows()) {
            out.clear();
            row.decode_into(out);
            black_box(&out);
        }
    }

    type Place = RowPlace;

    fn touch_places(&self, rows: &[u64; GROUP]) -> u64 {
        let line = |&row| u64::from(self.encoded.degrees[self.rows.directory_line(row).start]);
        rows.iter().map(line).sum()
    }

    #[inline(always)]
    fn locate(&self, row: u64) -> RowPlace {
        self.rows.locate(row)
    }

    fn touch_rows(&self, places: &[RowPlace; GROUP]) -> u64 {
        places
            .iter()
            .map(|place| touch(&self.encoded.edges, place.extent()))
            .sum()
    }

    #[inline(always)]
    fn decode_row(&self, place: RowPlace, out: &mut Vec<u64>) {
        self.rows.row_at(&place).decode_into(out);
    }

    #[inline(always)]
    fn sample(&self, place: RowPlace, fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        let row = self.rows.row_at(&place);
        row.get_many(&positions(row.degree(), fractions), out);
    }
}

/// Reads a byte of each cache line, at most eight.
#[inline(always)]
fn touch(bytes: &[u8], Range { start, end }: Range<u64>) -> u64 {
    let lines = (start..end.min(start + 512)).step_by(64);
    lines.map(|at| u64::from(bytes[at as usize])).sum()
}

/// Offsets of 64 bits and sources of a fixed number of bytes.
struct Plain<T> {
    offsets: Vec<u64>,
    sources: Vec<T>,
}

impl<T> Plain<T> {
    fn new(graph: &Csr, narrow: impl Fn(u64) -> T) -> Self {
        Self {
            offsets: graph.offsets.clone(),
            sources: graph.sources.iter().map(|&source| narrow(source)).collect(),
        }
    }

    #[inline(always)]
    fn row(&self, (start, end): (u64, u64)) -> &[T] {
        &self.sources[start as usize..end as usize]
    }
}

impl<T: Copy + Into<u64>> Encoded for Plain<T> {
    type View<'a>
        = &'a Self
    where
        Self: 'a;

    fn view(&self) -> &Self {
        self
    }
}

impl<T: Copy + Into<u64>> Codec for &Plain<T> {
    fn bits(&self) -> u64 {
        8 * (size_of_val(&self.offsets[..]) + size_of_val(&self.sources[..])) as u64
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        for row in 0..self.offsets.len() as u64 - 1 {
            out.clear();
            self.decode_row(self.locate(row), out);
            black_box(&out);
        }
    }

    type Place = (u64, u64);

    #[inline(always)]
    fn locate(&self, row: u64) -> (u64, u64) {
        (self.offsets[row as usize], self.offsets[row as usize + 1])
    }

    fn touch_rows(&self, places: &[(u64, u64); GROUP]) -> u64 {
        let row = |&place| self.row(place).iter().step_by(64 / size_of::<T>()).take(8);
        places.iter().flat_map(row).map(|&source| source.into()).sum()
    }

    #[inline(always)]
    fn decode_row(&self, place: (u64, u64), out: &mut Vec<u64>) {
        out.extend(self.row(place).iter().map(|&source| source.into()));
    }

    #[inline(always)]
    fn sample(&self, place: (u64, u64), fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        let row = self.row(place);
        let positions = positions(row.len() as u64, fractions);
        out.extend(positions.iter().map(|&k| row[k as usize].into()));
    }
}

/// Offsets and sources with the smallest sufficient number of bits.
struct Packed {
    offsets: FixedWidth,
    sources: FixedWidth,
    rows: u64,
}

impl Packed {
    fn new(graph: &Csr) -> Self {
        Self {
            offsets: FixedWidth::new(graph.sources.len() as u64, graph.offsets.iter().copied()),
            sources: FixedWidth::new(graph.nodes() - 1, graph.sources.iter().copied()),
            rows: graph.nodes(),
        }
    }
}

impl Encoded for Packed {
    type View<'a> = &'a Self;

    fn view(&self) -> &Self {
        self
    }
}

impl Codec for &Packed {
    fn bits(&self) -> u64 {
        8 * (self.offsets.bytes.len() + self.sources.bytes.len()) as u64
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        for row in 0..self.rows {
            out.clear();
            self.decode_row(self.locate(row), out);
            black_box(&out);
        }
    }

    type Place = (u64, u64);

    #[inline(always)]
    fn locate(&self, row: u64) -> (u64, u64) {
        (self.offsets.get(row), self.offsets.get(row + 1))
    }

    fn touch_rows(&self, places: &[(u64, u64); GROUP]) -> u64 {
        let byte = |index| index * self.sources.width / 8;
        let extent = |&(start, end): &(u64, u64)| byte(start)..byte(end);
        places
            .iter()
            .map(|place| touch(&self.sources.bytes, extent(place)))
            .sum()
    }

    #[inline(always)]
    fn decode_row(&self, (start, end): (u64, u64), out: &mut Vec<u64>) {
        out.extend((start..end).map(|i| self.sources.get(i)));
    }

    #[inline(always)]
    fn sample(&self, (start, end): (u64, u64), fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        let positions = positions(end - start, fractions);
        out.extend(positions.iter().map(|&k| self.sources.get(start + k)));
    }
}

/// Numbers of at most 56 bits, packed.
struct FixedWidth {
    width: u64,
    mask: u64,
    bytes: Vec<u8>,
}

impl FixedWidth {
    fn new(max: u64, numbers: impl Iterator<Item = u64>) -> Self {
        let width = u64::from(64 - max.leading_zeros());
        let (mut bytes, mut pending, mut pending_bits) = (Vec::new(), 0u128, 0);
        for number in numbers {
            pending |= u128::from(number) << pending_bits;
            pending_bits += width;
            if pending_bits >= 64 {
                bytes.extend_from_slice(&(pending as u64).to_le_bytes());
                pending >>= 64;
                pending_bits -= 64;
            }
        }
        bytes.extend_from_slice(&pending.to_le_bytes());
        Self {
            width,
            mask: (1 << width) - 1,
            bytes,
        }
    }

    #[inline(always)]
    fn get(&self, index: u64) -> u64 {
        let at = index * self.width;
        let word = self.bytes[(at / 8) as usize..].first_chunk().expect("there is padding");
        u64::from_le_bytes(*word) >> (at % 8) & self.mask
    }
}

/// A BVGraph loaded into memory, with static dispatch to its default codes.
struct BvRows<G, S> {
    random: G,
    sequential: S,
    bits: u64,
}

fn bv_rows(
    graph: &Csr,
    folder: &Path,
    flags: CompFlags,
) -> BvRows<impl RandomAccessGraph, impl SequentialLabeling<Label = usize>> {
    let base = folder.join("graph");
    let arcs = (0..graph.nodes()).flat_map(|row| {
        graph
            .row(row)
            .iter()
            .map(move |&source| (row as usize, source as usize))
    });
    let arcs = ArcListGraph::new(graph.nodes() as usize, arcs);
    let data = base.with_extension("graph");
    let offsets = base.with_extension("ef");
    BvComp::with_basename(&base)
        .comp_flags(flags)
        .comp_lender::<BE, _>(&arcs, Some(graph.nodes() as usize))
        .expect("compresses");
    store_ef_with_data(
        graph.nodes() as usize,
        &data,
        base.with_extension("offsets"),
        &offsets,
        no_logging![],
    )
    .expect("offsets");
    let bytes = |path: &Path| fs::metadata(path).expect("just written").len();
    BvRows {
        random: BvGraph::with_basename(&base)
            .endianness::<BE>()
            .dispatch::<Static>()
            .mode::<LoadMem>()
            .load()
            .expect("loads"),
        sequential: BvGraphSeq::with_basename(&base)
            .endianness::<BE>()
            .dispatch::<Static>()
            .mode::<LoadMem>()
            .load()
            .expect("loads"),
        bits: 8 * (bytes(&data) + bytes(&offsets)),
    }
}

impl<G: RandomAccessGraph, S: SequentialLabeling<Label = usize>> Encoded for BvRows<G, S> {
    type View<'a>
        = &'a Self
    where
        Self: 'a;

    fn view(&self) -> &Self {
        self
    }
}

impl<G: RandomAccessGraph, S: SequentialLabeling<Label = usize>> Codec for &BvRows<G, S> {
    type Place = u64;

    fn locate(&self, row: u64) -> u64 {
        row
    }

    fn bits(&self) -> u64 {
        self.bits
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        let mut rows = self.sequential.iter();
        while let Some((_, sources)) = rows.next() {
            out.clear();
            out.extend(sources.into_iter().map(|source| source as u64));
            black_box(&out);
        }
    }

    fn decode_row(&self, row: u64, out: &mut Vec<u64>) {
        out.extend(
            self.random
                .successors(row as usize)
                .into_iter()
                .map(|source| source as u64),
        );
    }

    fn sample(&self, row: u64, fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        // There is no random access inside a row, so it is decoded up to the last position.
        let positions = positions(self.random.outdegree(row as usize) as u64, fractions);
        let mut sources = (0..).zip(self.random.successors(row as usize));
        let mut last = (u64::MAX, 0);
        out.extend(positions.iter().map(|&k| {
            if last.0 != k {
                last = sources.find(|&(i, _)| i == k).expect("inside the row");
            }
            last.1 as u64
        }));
    }
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

/// A graph to encode: rows of sources.
struct Csr {
    offsets: Vec<u64>,
    sources: Vec<u64>,
}

impl Csr {
    /// Sorts edges into rows and merges parallel ones.
    fn new(nodes: usize, edges: &[(u32, u32)]) -> Self {
        let mut offsets = vec![0; nodes + 1];
        for &(_, target) in edges {
            offsets[target as usize + 1] += 1;
        }
        for i in 0..nodes {
            offsets[i + 1] += offsets[i];
        }
        let mut sources = vec![0; edges.len()];
        let mut next = offsets.clone();
        for &(source, target) in edges {
            let source = u64::from(source);
            let place = &mut next[target as usize];
            sources[*place as usize] = source;
            *place += 1;
        }
        let mut end = 0;
        for row in 0..nodes {
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            sources[range.clone()].sort_unstable();
            offsets[row] = end as u64;
            let start = end;
            for i in range {
                if end == start || sources[end - 1] != sources[i] {
                    sources[end] = sources[i];
                    end += 1;
                }
            }
        }
        offsets[nodes] = end as u64;
        sources.truncate(end);
        Self { offsets, sources }
    }

    fn nodes(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    fn row(&self, row: u64) -> &[u64] {
        &self.sources[self.offsets[row as usize] as usize..self.offsets[row as usize + 1] as usize]
    }

    fn for_rows(&self, mut on_row: impl FnMut(u64, &[u64])) {
        for row in 0..self.nodes() {
            on_row(row, self.row(row));
        }
    }

    /// Bits that distinguish a graph from all others with the same degrees: the sum of log2 C(N, d).
    fn bound(&self) -> f64 {
        let mut log_factorials = vec![0.0f64; self.offsets.len()];
        for n in 1..log_factorials.len() {
            log_factorials[n] = log_factorials[n - 1] + (n as f64).log2();
        }
        let nodes = self.nodes() as usize;
        let log_choose = |d: usize| log_factorials[nodes] - log_factorials[d] - log_factorials[nodes - d];
        (0..self.nodes()).map(|row| log_choose(self.row(row).len())).sum()
    }
}

/// An R-MAT graph with Graph500's probabilities and permuted ids.
fn rmat(scale: u32, edge_factor: usize) -> Csr {
    let nodes = 1usize << scale;
    let order = Feistel::new(nodes as u64, 1);
    let mut random = SplitMix64::new(7);
    let edges: Vec<(u32, u32)> = (0..nodes * edge_factor)
        .map(|_| {
            let (mut source, mut target) = (0u64, 0u64);
            for _ in 0..scale {
                let draw = random.draw() >> 32;
                // 0.57, 0.19, 0.19, 0.05 of 2^32.
                let (down, right) = match draw {
                    0..2448131358 => (0, 0),
                    2448131358..3264175144 => (0, 1),
                    3264175144..4080218930 => (1, 0),
                    _ => (1, 1),
                };
                source = source << 1 | down;
                target = target << 1 | right;
            }
            (order.forward(source) as u32, order.forward(target) as u32)
        })
        .collect();
    Csr::new(nodes, &edges)
}

/// An int64 [E,2] array of sources and targets; `None` if there is no such file.
fn read_npy(path: &Path) -> Option<Csr> {
    let bytes = fs::read(path).ok()?;
    let header_bytes = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let header = String::from_utf8_lossy(&bytes[10..10 + header_bytes]);
    assert!(
        header.contains("'<i8'") && header.contains("False") && header.contains(", 2)"),
        "{header}"
    );
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as u32;
    let pair = |pair: &[u8]| (number(&pair[..8]), number(&pair[8..]));
    let edges: Vec<(u32, u32)> = bytes[10 + header_bytes..].chunks_exact(16).map(pair).collect();
    let nodes = edges.iter().map(|&(source, target)| source.max(target)).max()? as usize + 1;
    Some(Csr::new(nodes, &edges))
}
