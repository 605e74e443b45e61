//! Generated graphs as edge lists, for programs that read those, and for measuring how they do.
//!
//! Edges are written in the order of their destinations' labels, those of a row as drawn, so that a file is the same for
//! any number of threads. A block of a file is a number of edges, whatever rows they are of: even a row of 10^9 edges is
//! made by all threads, and memory is bounded by some MB a thread.

use std::path::Path;

use grappa_io::{
    Result,
    blocks::{NewFile, Planned},
    npy,
    progress::Progress,
};
use grappa_synthetic::{Generator, RowBuffer};

/// Edges in a block: 1 MiB of them in binary.
const BLOCK_EDGES: u64 = 1 << 16;

/// How edges are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeListFormat {
    /// A line for each edge: source, tab, destination.
    Tsv,
    /// A NumPy array of int64, one row for each edge: source, destination.
    Npy,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeListSummary {
    /// Number of edges.
    pub edges: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// Writes all edges to the new file `path`, in external ids, on the threads of the rayon pool this is called from.
///
/// The file appears when it is complete and on disk. An existing file is an error, and after an error no file is left.
pub fn write_edge_list(
    generator: &Generator,
    path: &Path,
    format: EdgeListFormat,
    progress: &dyn Progress,
) -> Result<EdgeListSummary> {
    let expected = (format == EdgeListFormat::Npy).then(|| generator.expected_edges() as u64 * 16);
    progress.stage("writing edges", expected);
    let mut spans = Spans::new(generator);
    let mut edges = 0;
    let plan = || {
        Ok(spans.next().map(|span| {
            edges += span.edges;
            Planned {
                edges: span.edges,
                block: span,
            }
        }))
    };
    let header_bytes = match format {
        EdgeListFormat::Tsv => 0,
        EdgeListFormat::Npy => npy::HEADER_BYTES,
    };
    let payload = NewFile {
        path,
        header_bytes,
        progress,
    }
    .write(
        plan,
        |span, buffer: &mut RowBuffer, out| {
            match format {
                EdgeListFormat::Tsv => span.append_tsv(generator, buffer, out),
                EdgeListFormat::Npy => span.append_pairs(generator, buffer, out),
            }
            Ok(())
        },
        |bytes| match format {
            EdgeListFormat::Tsv => Vec::new(),
            EdgeListFormat::Npy => npy::header("<i8", &[bytes / 16, 2]).to_vec(),
        },
    )?;
    Ok(EdgeListSummary {
        edges,
        bytes: header_bytes as u64 + payload,
    })
}

/// Consecutive edges.
struct Span {
    /// The first edge's destination,
    label: u64,
    /// and how many edges of that row come before it.
    skipped: u64,
    /// How many edges, of that row and of those that follow.
    edges: u64,
}

/// Divides all edges into spans.
struct Spans<'a> {
    generator: &'a Generator,
    /// Where the next span starts.
    label: u64,
    skipped: u64,
    /// In-degree of `label`.
    degree: u64,
}

impl<'a> Spans<'a> {
    fn new(generator: &'a Generator) -> Self {
        Self {
            generator,
            label: 0,
            skipped: 0,
            degree: generator.degree(0),
        }
    }

    fn next(&mut self) -> Option<Span> {
        let mut span = Span {
            label: self.label,
            skipped: self.skipped,
            edges: 0,
        };
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
    /// Calls `visit` with each destination and those of its sources that are in the span.
    fn for_each_row(&self, generator: &Generator, buffer: &mut RowBuffer, mut visit: impl FnMut(u64, &[u64])) {
        let (mut label, mut skipped, mut left) = (self.label, self.skipped, self.edges);
        while left > 0 {
            let count = (generator.degree(label) - skipped).min(left);
            visit(label, generator.row_part(label, skipped, count, buffer));
            left -= count;
            label += 1;
            skipped = 0;
        }
    }

    fn append_tsv(&self, generator: &Generator, buffer: &mut RowBuffer, out: &mut Vec<u8>) {
        let (mut digits, mut rest_of_line) = (itoa::Buffer::new(), Vec::new());
        self.for_each_row(generator, buffer, |label, sources| {
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

    fn append_pairs(&self, generator: &Generator, buffer: &mut RowBuffer, out: &mut Vec<u8>) {
        out.reserve(16 * self.edges as usize);
        self.for_each_row(generator, buffer, |label, sources| {
            for &source in sources {
                let pair = u128::from(label) << 64 | u128::from(source);
                out.extend_from_slice(&pair.to_le_bytes());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use grappa_io::progress::Silent;

    use grappa_synthetic::{BlockModel, ErdosRenyi, Model, Recipe, Rmat};

    use super::*;

    fn generator(model: Model) -> Generator {
        Generator::new(Recipe::new(model, 5)).expect("valid options")
    }

    fn edges_of(generator: &Generator) -> Vec<(u64, u64)> {
        let mut buffer = RowBuffer::default();
        let mut edges = Vec::new();
        for label in 0..generator.nodes() {
            edges.extend(generator.row(label, &mut buffer).iter().map(|&source| (source, label)));
        }
        edges
    }

    fn with_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a pool")
            .install(run)
    }

    #[test]
    fn files_hold_all_rows_in_order_for_any_number_of_threads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("edges");
        for model in [
            // Has rows of more than a block, and blocks of many rows.
            Model::Rmat(Rmat::graph500(14, 64.0)),
            Model::Er(ErdosRenyi {
                nodes: 1,
                edge_factor: 200_000.0,
            }),
            Model::Er(ErdosRenyi {
                nodes: 10_001,
                edge_factor: 7.5,
            }),
            Model::Er(ErdosRenyi {
                nodes: 100,
                edge_factor: 0.0,
            }),
            Model::Sbm(BlockModel::new(999, 300.0)),
        ] {
            let generator = generator(model);
            let edges = edges_of(&generator);
            let text: String = edges
                .iter()
                .map(|(source, target)| format!("{source}\t{target}\n"))
                .collect();
            let pairs: Vec<u8> = edges
                .iter()
                .flat_map(|(s, t)| [s.to_le_bytes(), t.to_le_bytes()].concat())
                .collect();
            for threads in [1, 3] {
                let summary = with_threads(threads, || {
                    write_edge_list(&generator, &path, EdgeListFormat::Tsv, &Silent)
                })
                .expect("written");
                let file = fs::read(&path).expect("the file");
                assert!(file == text.as_bytes(), "{:?}", generator.recipe());
                assert_eq!(
                    summary,
                    EdgeListSummary {
                        edges: edges.len() as u64,
                        bytes: file.len() as u64
                    }
                );
                fs::remove_file(&path).expect("removed");

                let summary = with_threads(threads, || {
                    write_edge_list(&generator, &path, EdgeListFormat::Npy, &Silent)
                })
                .expect("written");
                let file = fs::read(&path).expect("the file");
                assert_eq!(file[..128], npy::header("<i8", &[edges.len() as u64, 2]));
                assert!(file[128..] == pairs, "{:?}", generator.recipe());
                assert_eq!(
                    summary,
                    EdgeListSummary {
                        edges: edges.len() as u64,
                        bytes: file.len() as u64
                    }
                );
                fs::remove_file(&path).expect("removed");
            }
        }
    }

    #[test]
    fn an_existing_file_is_left_alone_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("edges.tsv");
        let generator = generator(Model::Er(ErdosRenyi {
            nodes: 10,
            edge_factor: 2.0,
        }));
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
        let left: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|e| e.expect("a name").file_name())
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
