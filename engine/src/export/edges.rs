//! Exports edges as text or arrays.
//!
//! Edges are exported chunk by chunk, in blocks of equal numbers of edges. An adjacency list of 10^9 edges is thus written
//! by all threads. Memory: eight blocks for each thread, which are smaller if the budget is, and the pages of the external ids. Integer
//! ids in random order cost arithmetic; a dictionary costs a lookup for every source.

use std::{io::Write, sync::Arc};

use grappa_formats::{ChunkId, DenseId, EdgePart, NodeId, manifest::ExternalIds};
use grappa_io::{
    Error, Position, Result,
    blocks::{Planned, blocks_at_once, write_in_order},
    durable::Destination,
    npy,
    progress::{Progress, check_stopped},
};
use grappa_storage::{Chunk, Store};

use crate::export::{
    Budget, Exported,
    edge_table::{self, EdgeColumns},
    edge_text::{header, needs_quotes},
    node_table::id_descr,
    pool,
    table::{TableFormat, TableOut, push_quoted, write_table},
};

/// The most edges in a block; 1 MiB in binary.
const BLOCK_EDGES_MAX: u64 = 1 << 16;
/// The fewest. Smaller blocks would take more time for the threads' turns than for edges.
const BLOCK_EDGES_MIN: u64 = 1 << 10;
/// Bytes of memory for an edge beside its bytes in the file: its source, its position in the list, and its weight.
const EDGE_BYTES: u64 = 20;
/// Bytes of memory for each of its features: decoded, and beside the others.
const VALUE_BYTES: u64 = 8;
/// Bytes of a weight or a feature as text, and of separators.
const TEXT_BYTES: u64 = 18;
/// Strings whose lengths stand for all lengths.
const MEASURED_IDS: u64 = 1000;

/// The format of exported edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeFormat {
    /// A line for each edge: source, tab, destination, then its weight and its features, if it has them, each after a tab.
    Tsv,
    /// The same with commas, after a header line. Strings are quoted where needed.
    Csv,
    /// A NumPy array of integers, one row for each edge: source, destination.
    Npy,
    /// A NumPy array of f32: the weight of each edge.
    NpyWeights,
    /// A NumPy array of f32, one row for each edge: its features.
    NpyFeatures,
    /// A Parquet table with the columns `source` and `target`, then `weight` and the features, if edges have them.
    Parquet,
}

/// Writes all edges of a part to a new file.
///
/// # Errors
/// If the store lacks the part, the file exists and is not to be replaced, an id does not fit the format, the memory is too small, or files cannot be read or
/// written.
pub fn export_edges<'a>(
    store: &Store,
    part: EdgePart,
    out: impl Into<Destination<'a>>,
    format: EdgeFormat,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let destination = out.into();
    let writer = EdgeWriter::new(store, part, format)?;
    let bytes = pool(budget.threads)?.install(|| {
        let block_edges = writer.block_edges(budget)?;
        if format == EdgeFormat::Parquet {
            return writer.write_table(destination, block_edges, progress);
        }
        let temporary = destination.begin()?;
        let bytes = writer.write(block_edges, progress, |bytes| temporary.write_all(bytes))?;
        temporary.finish()?;
        Ok(bytes)
    })?;
    Ok(Exported { rows: writer.edges, bytes })
}

/// Writes all edges of a part as text to `out`, such as standard output.
pub fn print_edges(
    store: &Store,
    part: EdgePart,
    out: &mut (impl Write + Send),
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let writer = EdgeWriter::new(store, part, EdgeFormat::Tsv)?;
    let bytes = pool(budget.threads)?.install(|| {
        writer.write(writer.block_edges(budget)?, progress, |bytes| {
            out.write_all(bytes).map_err(Error::io("write to", "standard output"))
        })
    })?;
    Ok(Exported { rows: writer.edges, bytes })
}

/// Consecutive edges of a chunk.
struct Span {
    chunk: Arc<Chunk>,
    /// The node of the first edge, as an index in the chunk.
    row: u64,
    /// Edges of that node that come before the span.
    skipped: u64,
    /// Number of edges, of that node and the nodes after it.
    edges: u64,
    /// The node after the last.
    row_end: u64,
}

/// Divides all edges into spans.
struct Spans<'a> {
    store: &'a Store,
    part: EdgePart,
    /// Edges of the part.
    expected: u64,
    chunks: Vec<ChunkId>,
    span_edges: u64,
    /// The chunk that is being divided, and the start of its next span.
    current: Option<(Arc<Chunk>, u64, u64)>,
    /// Edges of all spans so far.
    edges: u64,
}

impl Spans<'_> {
    fn next(&mut self) -> Result<Option<Planned<Span>>> {
        loop {
            let Some((chunk, row, skipped)) = self.current.take() else {
                let Some(next) = self.chunks.pop() else {
                    return self.expect_all().map(|()| None);
                };
                self.current = Some((Arc::new(self.store.part_in_order(self.part, next)?), 0, 0));
                continue;
            };
            if let Some(span) = self.span(chunk, row, skipped)? {
                self.edges += span.edges;
                return Ok(Some(Planned { edges: span.edges, block: span }));
            }
        }
    }

    /// Fails unless the spans had all edges. Damage that keeps their number is not noticed here.
    fn expect_all(&self) -> Result<()> {
        match self.edges == self.expected {
            true => Ok(()),
            false => Err(damaged(self.store, format!("{} of {} edges are there", self.edges, self.expected))),
        }
    }

    /// The span that starts here, unless no edges follow.
    fn span(&mut self, chunk: Arc<Chunk>, row: u64, skipped: u64) -> Result<Option<Span>> {
        let rows = chunk.rows();
        let (mut at, mut before, mut edges) = (row, skipped, 0);
        // The adjacency list's own degree: a damaged list counts as empty, whatever the directory says.
        for sources in rows.range(row..rows.rows()) {
            let degree = sources?.degree();
            let taken = (degree - before).min(self.span_edges - edges);
            edges += taken;
            before += taken;
            if before < degree {
                break;
            }
            at += 1;
            before = 0;
            if edges == self.span_edges {
                break;
            }
        }
        if edges == 0 {
            return Ok(None);
        }
        self.current = Some((Arc::clone(&chunk), at, before));
        Ok(Some(Span { chunk, row, skipped, edges, row_end: if before > 0 { at + 1 } else { at } }))
    }
}

/// Buffers that a thread reuses.
#[derive(Default)]
struct Buffers {
    sources: Vec<u64>,
    /// The values of each edge, one edge after another.
    values: Vec<f32>,
    /// Those of one file.
    of_file: Vec<f32>,
    positions: Vec<u64>,
    target: Vec<u8>,
    id: Vec<u8>,
}

struct EdgeWriter<'a> {
    store: &'a Store,
    part: EdgePart,
    /// Edges of the part.
    edges: u64,
    format: EdgeFormat,
    strings: bool,
    /// Whether the format has the weights of edges, and whether it has their features.
    has_values: [bool; 2],
    /// The first line of text, or the header of an array.
    header: Vec<u8>,
}

impl<'a> EdgeWriter<'a> {
    fn new(store: &'a Store, part: EdgePart, format: EdgeFormat) -> Result<Self> {
        let manifest = store.manifest();
        let strings = manifest.ids.external == ExternalIds::String;
        let missing = match format {
            EdgeFormat::NpyWeights if !manifest.weighted => Some("weights"),
            EdgeFormat::NpyFeatures if store.edge_features().is_none() => Some("features"),
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(Error::input(store.path(), Position::Whole, format!("the edges have no {missing}")));
        }
        let has_values = match format {
            EdgeFormat::Npy => [false, false],
            EdgeFormat::NpyWeights => [true, false],
            EdgeFormat::NpyFeatures => [false, true],
            EdgeFormat::Tsv | EdgeFormat::Csv | EdgeFormat::Parquet => {
                [manifest.weighted, store.edge_features().is_some()]
            }
        };
        let edges = store.part_edges(part)?;
        let writer = Self { store, part, edges, format, strings, has_values, header: Vec::new() };
        let header = match format {
            EdgeFormat::Csv => header(store, b',')?,
            // Without a header, an edge between nodes called `source` and `target` would look like one.
            EdgeFormat::Tsv if strings => header(store, b'\t')?,
            EdgeFormat::Tsv | EdgeFormat::Parquet => Vec::new(),
            EdgeFormat::Npy => npy::header(id_descr(store)?, &[edges, 2]).to_vec(),
            EdgeFormat::NpyWeights => npy::header("<f4", &[edges]).to_vec(),
            EdgeFormat::NpyFeatures => npy::header("<f4", &[edges, writer.width() as u64]).to_vec(),
        };
        Ok(Self { header, ..writer })
    }

    fn spans(&self, span_edges: u64) -> Spans<'a> {
        let mut chunks: Vec<_> = self.store.present_chunks().collect();
        chunks.reverse();
        Spans { store: self.store, part: self.part, expected: self.edges, chunks, span_edges, current: None, edges: 0 }
    }

    /// Values of an edge in the file.
    fn width(&self) -> usize {
        let [weights, features] = self.has_values;
        let features = self.store.edge_features().filter(|_| features);
        usize::from(weights) + features.map_or(0, |layout| layout.dim as usize)
    }

    /// Bytes of an edge, if the format is an array.
    fn array_bytes(&self) -> Option<u64> {
        match self.format {
            EdgeFormat::Npy => Some(16),
            EdgeFormat::NpyWeights | EdgeFormat::NpyFeatures => Some(4 * self.width() as u64),
            EdgeFormat::Tsv | EdgeFormat::Csv | EdgeFormat::Parquet => None,
        }
    }

    /// The byte between the columns of text.
    fn separator(&self) -> u8 {
        if self.format == EdgeFormat::Csv { b',' } else { b'\t' }
    }

    /// Edges of a block, so that all blocks that the pool of threads has at once fit the budget.
    ///
    /// # Errors
    /// [`Error::Budget`] if not even small blocks fit.
    fn block_edges(&self, budget: &Budget) -> Result<u64> {
        let width = self.width() as u64;
        let in_file = match self.array_bytes() {
            Some(bytes) => bytes,
            None => 2 * self.id_bytes()? + TEXT_BYTES * width.max(1),
        };
        let of_group = match self.format {
            EdgeFormat::Parquet => edge_table::group_of(self.store, self.id_bytes()?).1,
            _ => 0,
        };
        let bytes_of_edge = blocks_at_once() as u64 * (in_file + EDGE_BYTES + VALUE_BYTES * width);
        match budget.memory.saturating_sub(of_group) / bytes_of_edge {
            edges if edges < BLOCK_EDGES_MIN => Err(Error::Budget {
                what: format!("blocks of edges for {} threads", budget.threads),
                given: budget.memory,
                least: of_group + BLOCK_EDGES_MIN * bytes_of_edge,
                remedy: "raise --memory, or give fewer --threads",
            }),
            edges => Ok(edges.min(BLOCK_EDGES_MAX)),
        }
    }

    /// The length of an external id as text: of the longest one among many.
    fn id_bytes(&self) -> Result<u64> {
        let nodes = self.store.manifest().nodes;
        let (mut longest, mut text) = (0, Vec::new());
        let step = nodes.div_ceil(MEASURED_IDS).max(1);
        // From the last one on, which is the longest if ids are integers.
        for before in (0..nodes).step_by(step as usize) {
            text.clear();
            self.store.ids().append_text_at(DenseId(nodes - 1 - before), &mut text)?;
            longest = longest.max(text.len() as u64);
        }
        Ok(longest)
    }

    /// Writes the edges as a table, on the threads of the current pool. Returns the number of bytes.
    fn write_table(&self, out: Destination<'_>, block_edges: u64, progress: &dyn Progress) -> Result<u64> {
        let (group_rows, _) = edge_table::group_of(self.store, self.id_bytes()?);
        let mut columns = EdgeColumns::new(self.store, group_rows)?;
        write_table(TableOut::File(out, TableFormat::Parquet), &columns.described(), |sink| {
            self.write(block_edges, progress, |block| columns.add(block, sink))?;
            columns.flush(sink)
        })
    }

    /// Passes the header and blocks of `block_edges` edges to `sink`, on the threads of the current pool. Returns the number of bytes.
    fn write(
        &self,
        block_edges: u64,
        progress: &dyn Progress,
        mut sink: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<u64> {
        let stage = match self.format {
            EdgeFormat::NpyWeights => "writing weights",
            EdgeFormat::NpyFeatures => "writing edge features",
            _ => "writing edges",
        };
        progress.stage(stage, self.array_bytes().map(|bytes| self.edges * bytes));
        sink(&self.header)?;
        let (mut bytes, mut spans) = (self.header.len() as u64, self.spans(block_edges));
        write_in_order(
            || spans.next(),
            |span, buffers, out| self.append(span, buffers, out),
            |block, edges| {
                sink(block)?;
                bytes += block.len() as u64;
                progress.advance(block.len() as u64, edges);
                check_stopped(progress)
            },
        )?;
        Ok(bytes)
    }

    fn append(&self, span: &Span, buffers: &mut Buffers, out: &mut Vec<u8>) -> Result<()> {
        let rows = span.chunk.rows();
        let first_node = span.chunk.span().first_node.0;
        let [weights, features] = self.has_values;
        let weights = span.chunk.weights().filter(|_| weights);
        let features = span.chunk.edge_features().filter(|_| features);
        let of_edges: Vec<_> = weights.into_iter().chain(features).collect();
        let width = self.width();
        let mut edge = match of_edges.first() {
            Some(first) => first.range(span.row, &rows)?.start + span.skipped,
            None => 0,
        };
        let (mut skipped, mut left) = (span.skipped, span.edges);
        for (row, sources) in (span.row..).zip(rows.range(span.row..span.row_end)) {
            let sources = sources?;
            let count = (sources.degree() - skipped).min(left);
            buffers.sources.clear();
            if count == sources.degree() {
                sources.decode_into(&mut buffers.sources);
            } else {
                buffers.positions.clear();
                buffers.positions.extend(skipped..skipped + count);
                sources.get_many(&buffers.positions, &mut buffers.sources);
            }
            buffers.values.clear();
            buffers.values.resize(count as usize * width, 0.0);
            let mut at = 0;
            for file in &of_edges {
                if edge + count > file.meta().edges {
                    return Err(damaged(self.store, "there are more edges than weights or features".into()));
                }
                let dim = file.meta().layout.dim as usize;
                buffers.of_file.clear();
                buffers.of_file.resize(count as usize * dim, 0.0);
                file.copy(edge..edge + count, &mut buffers.of_file)?;
                let all = buffers.values.chunks_exact_mut(width);
                for (all, values) in all.zip(buffers.of_file.chunks_exact(dim)) {
                    all[at..at + dim].copy_from_slice(values);
                }
                at += dim;
            }
            self.append_row(NodeId(first_node + row), buffers, out)?;
            edge += count;
            left -= count;
            skipped = 0;
        }
        // Each adjacency list is read once.
        span.chunk.release_rows(span.row..span.row_end);
        Ok(())
    }

    /// Appends the edges to `target` from the sources in the buffers.
    fn append_row(&self, target: NodeId, buffers: &mut Buffers, out: &mut Vec<u8>) -> Result<()> {
        let Buffers { sources, values, target: text, id, .. } = buffers;
        let width = self.width();
        match self.format {
            EdgeFormat::NpyWeights | EdgeFormat::NpyFeatures => {
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            EdgeFormat::Npy => {
                let ids = self.store.ids();
                let target = ids.integer(target)?.to_le_bytes();
                for &source in sources.iter() {
                    out.extend_from_slice(&ids.integer(NodeId(source))?.to_le_bytes());
                    out.extend_from_slice(&target);
                }
            }
            EdgeFormat::Parquet => {
                for (i, &source) in sources.iter().enumerate() {
                    for node in [NodeId(source), target] {
                        edge_table::append_id(self.store, node, id, out)?;
                    }
                    let values = &values[i * width..][..width];
                    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                }
            }
            EdgeFormat::Tsv | EdgeFormat::Csv => {
                let separator = self.separator();
                text.clear();
                text.push(separator);
                self.append_id(target, id, text)?;
                for (i, &source) in sources.iter().enumerate() {
                    self.append_id(NodeId(source), id, out)?;
                    out.extend_from_slice(text);
                    for value in &values[i * width..][..width] {
                        out.push(separator);
                        write!(out, "{value}").expect("memory takes all bytes");
                    }
                    out.push(b'\n');
                }
            }
        }
        Ok(())
    }

    fn append_id(&self, node: NodeId, id: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
        if !self.strings {
            return self.store.ids().append_text(node, out);
        }
        id.clear();
        self.store.ids().append_text(node, id)?;
        if id.is_empty() || id.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
            return Err(self.unprintable(id, "no text format of edges can hold it"));
        }
        match (needs_quotes(id, self.separator()), self.format) {
            (false, _) => out.extend_from_slice(id),
            (true, EdgeFormat::Csv) => push_quoted(id, out),
            (true, _) => return Err(self.unprintable(id, "export to a file called .csv, which has quotes")),
        }
        Ok(())
    }

    fn unprintable(&self, id: &[u8], remedy: &str) -> Error {
        let id = id.escape_ascii();
        let what = format!("the id \"{id}\" cannot stand in a line of text; {remedy}");
        Error::input(self.store.path(), Position::Whole, what)
    }
}

fn damaged(store: &Store, what: String) -> Error {
    let what = format!("{what}: the store is damaged; `grappa-store verify` tells where");
    Error::input(store.path(), Position::Whole, what)
}
