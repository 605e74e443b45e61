//! Size and speed of the codecs of adjacency lists, next to plain CSR, bit-packed CSR and BVGraph (the crate
//! `webgraph`).
//!
//! ```text
//! cargo bench -p grappa-benches --bench row_codec -- [--bvgraph] [--only SUBSTRING] [rmat:SCALE | EDGES.npy]...
//! ```
//!
//! Graphs are R-MAT graphs (edge factor 16, Graph500's probabilities, ids permuted) and edge lists (int64 [E,2] in C order:
//! source, target), by default R-MAT of scale 22 and `../shared/data/cnr-2000/edges.npy`. A row is an adjacency list:
//! the sorted sources of a target, with parallel edges merged (BVGraph has none). `--only` selects Grappa's codecs and CSR by
//! name. `--bvgraph` adds BVGraph. Cargo then builds its program, in `benches/bvgraph`: it is not in the workspace, because
//! webgraph brings 60 crates.
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
mod compressed;
mod graph;
mod measure;
mod plain;

use std::{env, ops::Range, path::Path, process::Command};

use grappa_formats::rows::{RowCodec, SizeEstimator};

use self::{
    compressed::Compressed,
    graph::Csr,
    measure::measure,
    plain::{Packed, Plain},
};

fn main() {
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let (mut graphs, mut only, mut with_bvgraph) = (Vec::new(), String::new(), false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => only = args.next().expect("--only needs a part of a name"),
            "--bvgraph" => with_bvgraph = true,
            _ => graphs.push(arg),
        }
    }
    if graphs.is_empty() {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/cnr-2000/edges.npy");
        graphs = vec!["rmat:22".into(), shared.display().to_string()];
    }
    for name in graphs {
        let Some(graph) = graph::load(&name) else {
            println!("{name}: SKIPPED, the file does not exist");
            continue;
        };
        measure_all(&name, &graph, &only);
        drop(graph);
        if with_bvgraph {
            bvgraph(&name);
        }
    }
}

fn measure_all(name: &str, graph: &Csr, only: &str) {
    println!(
        "\n{name}: {} nodes, {} edges; information bound {:.2} bits per edge",
        graph.nodes(),
        graph.sources.len(),
        bound(graph) / graph.sources.len() as f64
    );
    let mut estimator = SizeEstimator::new(graph.nodes());
    graph.rows().for_each(|(node, row)| estimator.add(node, row));
    println!("chosen: {:?}", estimator.choose());
    println!("| codec | bits | encode | decode | rows | k of d |\n|---|---|---|---|---|---|");
    let wanted = |name: &str| name.contains(only);
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
}

/// Builds and runs the program that prints the lines of BVGraph.
fn bvgraph(name: &str) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("bvgraph/Cargo.toml");
    let status = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        .args(["--", name])
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => println!("BVGraph: SKIPPED, {status}"),
        Err(error) => println!("BVGraph: SKIPPED, cannot start Cargo: {error}"),
    }
}

/// Bits that distinguish a graph from all others with the same degrees: the sum of log2 C(N, d).
fn bound(graph: &Csr) -> f64 {
    let mut log_factorials = vec![0.0f64; graph.offsets.len()];
    for n in 1..log_factorials.len() {
        log_factorials[n] = log_factorials[n - 1] + (n as f64).log2();
    }
    let nodes = graph.nodes() as usize;
    let log_choose = |d: usize| log_factorials[nodes] - log_factorials[d] - log_factorials[nodes - d];
    (0..graph.nodes()).map(|row| log_choose(graph.row(row).len())).sum()
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
    for (_, row) in graph.rows() {
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
    }
    println!(
        "| Elias-Fano over own range | {:.2} | | | | |",
        bits as f64 / graph.sources.len() as f64
    );
}
