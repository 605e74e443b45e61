//! Generated graphs as edge lists, for other programs and for benchmarks.
//!
//! Edges are sorted by the label of the destination. The edges of one destination are in the order in which they are drawn.
//! So a file does not depend on the number of threads. A block is a number of edges of any destinations. So all threads
//! share even an adjacency list of 10^9 edges, and memory is limited to some MB per thread.

use std::io::Write;

use grappa_io::{
    Error, Result,
    blocks::{NewFile, Planned, round_len, write_in_order},
    durable::Destination,
    npy,
    progress::{Progress, check_stopped},
};
use grappa_synthetic::{AdjacencyBuffer, Generator};

/// Number of edges per block: 1 MiB in binary.
const BLOCK_EDGES: u64 = 1 << 16;

/// Format of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeListFormat {
    /// One line per edge: source, tab, destination.
    Tsv,
    /// A NumPy array of int64 with shape (edges, 2): source, destination.
    Npy,
}

/// Result of [`write_edge_list`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeListSummary {
    /// Number of edges.
    pub edges: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// Writes all edges to a new file, in external ids, on the threads of the current rayon pool.
///
/// The file appears under its name when it is complete and on disk.
///
/// # Errors
/// If the file exists and is not to be replaced, or can't be written. No file is left then.
pub fn write_edge_list<'a>(
    generator: &Generator,
    out: impl Into<Destination<'a>>,
    format: EdgeListFormat,
    progress: &dyn Progress,
) -> Result<EdgeListSummary> {
    let expected = (format == EdgeListFormat::Npy).then(|| generator.expected_edges() as u64 * 16);
    progress.stage("writing edges", expected);
    let mut spans = Spans::new(generator);
    let mut edges = 0;
    let header = |edges| match format {
        EdgeListFormat::Tsv => Vec::new(),
        EdgeListFormat::Npy => npy::header("<i8", &[edges, 2]).to_vec(),
    };
    let header_bytes = header(0).len();
    let payload = NewFile { destination: out.into(), header_bytes, progress }.write(
        || {
            Ok(spans.next().map(|span| {
                edges += span.edges;
                Planned { edges: span.edges, block: span }
            }))
        },
        |span, buffer: &mut AdjacencyBuffer, out| {
            match format {
                EdgeListFormat::Tsv => span.append_tsv(generator, buffer, out),
                EdgeListFormat::Npy => span.append_pairs(generator, buffer, out),
            }
            Ok(())
        },
        |bytes| header(bytes / 16),
    )?;
    Ok(EdgeListSummary { edges, bytes: header_bytes as u64 + payload })
}

/// Writes all edges as text to `out`, such as standard output. Returns their number.
///
/// # Errors
/// If writing fails, or progress says to stop.
pub fn print_edge_list(generator: &Generator, out: &mut (impl Write + Send), progress: &dyn Progress) -> Result<u64> {
    progress.stage("writing edges", None);
    let mut spans = Spans::new(generator);
    let mut edges = 0;
    write_in_order(
        round_len(),
        || Ok(spans.next().map(|span| Planned { edges: span.edges, block: span })),
        |span, buffer: &mut AdjacencyBuffer, out: &mut Vec<u8>| {
            out.clear();
            span.append_tsv(generator, buffer, out);
            Ok(())
        },
        |block, lines| {
            out.write_all(block).map_err(Error::io("write to", "standard output"))?;
            edges += lines;
            progress.advance(block.len() as u64, lines);
            check_stopped(progress)
        },
    )?;
    Ok(edges)
}

/// Consecutive edges.
struct Span {
    /// Destination of the first edge.
    label: u64,
    /// Number of edges of that destination before the span.
    skipped: u64,
    /// Number of edges, of that destination and those after it.
    edges: u64,
}

/// Divides all edges into spans.
struct Spans<'a> {
    generator: &'a Generator,
    /// Destination of the first edge of the next span.
    label: u64,
    /// Number of edges of that destination before it.
    skipped: u64,
    /// In-degree of `label`.
    degree: u64,
}

impl<'a> Spans<'a> {
    fn new(generator: &'a Generator) -> Self {
        Self { generator, label: 0, skipped: 0, degree: generator.degree(0) }
    }

    fn next(&mut self) -> Option<Span> {
        let mut span = Span { label: self.label, skipped: self.skipped, edges: 0 };
        while span.edges < BLOCK_EDGES && self.label < self.generator.nodes() {
            let taken = (self.degree - self.skipped).min(BLOCK_EDGES - span.edges);
            span.edges += taken;
            self.skipped += taken;
            if self.skipped == self.degree {
                self.label += 1;
                self.skipped = 0;
                if self.label < self.generator.nodes() {
                    self.degree = self.generator.degree(self.label);
                }
            }
        }
        (span.edges > 0).then_some(span)
    }
}

impl Span {
    /// Calls `visit` with each destination and its sources in the span.
    fn for_each_list(&self, generator: &Generator, buffer: &mut AdjacencyBuffer, mut visit: impl FnMut(u64, &[u64])) {
        let (mut label, mut skipped, mut left) = (self.label, self.skipped, self.edges);
        while left > 0 {
            let count = (generator.degree(label) - skipped).min(left);
            visit(label, generator.sources_part(label, skipped, count, buffer));
            left -= count;
            label += 1;
            skipped = 0;
        }
    }

    fn append_tsv(&self, generator: &Generator, buffer: &mut AdjacencyBuffer, out: &mut Vec<u8>) {
        let (mut digits, mut rest_of_line) = (itoa::Buffer::new(), Vec::new());
        self.for_each_list(generator, buffer, |label, sources| {
            rest_of_line.clear();
            rest_of_line.push(b'\t');
            rest_of_line.extend_from_slice(digits.format(label).as_bytes());
            rest_of_line.push(b'\n');
            for &source in sources {
                out.extend_from_slice(digits.format(source).as_bytes());
                out.extend_from_slice(&rest_of_line);
            }
        });
    }

    fn append_pairs(&self, generator: &Generator, buffer: &mut AdjacencyBuffer, out: &mut Vec<u8>) {
        out.reserve(16 * self.edges as usize);
        self.for_each_list(generator, buffer, |label, sources| {
            for &source in sources {
                let pair = u128::from(label) << 64 | u128::from(source);
                out.extend_from_slice(&pair.to_le_bytes());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use grappa_io::progress::Silent;

    use grappa_synthetic::{BlockModel, ErdosRenyi, Model, Recipe, Rmat};

    use super::*;

    fn generator(model: Model) -> Generator {
        Generator::new(Recipe::new(model, 5)).expect("valid options")
    }

    fn edges_of(generator: &Generator) -> Vec<(u64, u64)> {
        let mut buffer = AdjacencyBuffer::default();
        let mut edges = Vec::new();
        for label in 0..generator.nodes() {
            edges.extend(generator.sources(label, &mut buffer).iter().map(|&source| (source, label)));
        }
        edges
    }

    #[test]
    fn files_have_all_edges_in_order_for_any_number_of_threads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("edges");
        for model in [
            // Has adjacency lists of more than a block, and blocks of many lists.
            Model::Rmat(Rmat::graph500(14, 64.0)),
            Model::Er(ErdosRenyi::new(1, 200_000.0)),
            Model::Er(ErdosRenyi::new(10_001, 7.5)),
            Model::Er(ErdosRenyi::new(100, 0.0)),
            Model::Sbm(BlockModel::new(999, 300.0)),
        ] {
            let generator = generator(model);
            let edges = edges_of(&generator);
            let text: String = edges.iter().map(|(source, target)| format!("{source}\t{target}\n")).collect();
            let pairs: Vec<u8> = edges.iter().flat_map(|(s, t)| [s.to_le_bytes(), t.to_le_bytes()].concat()).collect();
            let header = npy::header("<i8", &[edges.len() as u64, 2]);
            for (threads, format, header, expected) in [
                (1, EdgeListFormat::Tsv, &[][..], text.as_bytes()),
                (3, EdgeListFormat::Tsv, &[], text.as_bytes()),
                (1, EdgeListFormat::Npy, &header, &pairs),
                (3, EdgeListFormat::Npy, &header, &pairs),
            ] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                let summary = pool.install(|| write_edge_list(&generator, &path, format, &Silent)).expect("written");
                let file = fs::read(&path).expect("the file");
                assert!(file == [header, expected].concat(), "{format:?}, {:?}", generator.recipe());
                assert_eq!(summary, EdgeListSummary { edges: edges.len() as u64, bytes: file.len() as u64 });
                fs::remove_file(&path).expect("removed");
            }
        }
    }

    #[test]
    fn an_existing_file_is_left_alone_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("edges.tsv");
        let generator = generator(Model::Er(ErdosRenyi::new(10, 2.0)));
        fs::write(&path, "precious").expect("written");
        let error = write_edge_list(&generator, &path, EdgeListFormat::Tsv, &Silent).expect_err("it exists");
        assert!(error.to_string().contains("exists"), "{error}");
        assert_eq!(fs::read(&path).expect("the file"), b"precious");

        let missing = folder.path().join("missing/edges.tsv");
        let error = write_edge_list(&generator, &missing, EdgeListFormat::Tsv, &Silent).expect_err("no such folder");
        assert!(error.to_string().contains("missing/edges.tsv"), "{error}");
        // A folder that has the name of the finished file appears while it is written: the rename fails.
        struct Obstruct<'a>(&'a Path);
        impl Progress for Obstruct<'_> {
            fn stage(&self, _: &str, _: Option<u64>) {}
            fn advance(&self, _: u64, _: u64) {
                fs::create_dir(self.0).expect("a folder");
            }
        }
        let obstructed = folder.path().join("obstructed");
        write_edge_list(&generator, &obstructed, EdgeListFormat::Npy, &Obstruct(&obstructed)).expect_err("a folder");
        let left: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").map(|e| e.expect("a name").file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
