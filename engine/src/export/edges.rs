//! Exports edges as text, arrays or tables.
//!
//! Edges are exported chunk by chunk, in blocks of equal numbers of edges. Threads make the record batch of a block and encode it; one
//! thread writes. Memory: eight blocks for each thread, which are smaller if the budget is, and the pages of the external ids. Integer
//! ids in random order cost arithmetic; a dictionary costs a lookup for every source.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, types::Float32Type};
use arrow_schema::{DataType, Field, Schema};
use grappa_formats::{DenseId, EdgePart, NodeId, manifest::ExternalIds, time_axis::TimeAxis};
use grappa_io::{
    Error, Position, Result,
    blocks::{blocks_at_once, round_len, write_in_order},
    ledger::Lease,
    progress::{Progress, check_stopped},
};
use grappa_storage::{Store, StoreIds};

use crate::export::{
    Budget, Exported,
    arrays::ValueColumns,
    edge_spans::{Span, Spans, damaged},
    id_column::{IdColumn, StringIds},
    pool,
    table::{EncodedBlock, TableFormat, TableOut, TableShape, repeating, write_table},
};

/// The most edges in a block; 256 KiB in binary. The columns of a larger one would leave the processor's cache before they are encoded.
const BLOCK_EDGES_MAX: u64 = 1 << 14;
/// The fewest. Smaller blocks would take more time for the threads' turns than for edges.
const BLOCK_EDGES_MIN: u64 = 1 << 10;
/// Bytes of memory for an edge beside its bytes in the file: its source, as a node and as a dense id, and its ids in the record batch.
const EDGE_BYTES: u64 = 32;
/// Bytes of memory for each of its features: decoded, and in a column.
const VALUE_BYTES: u64 = 8;
/// Bytes of a weight or a feature as text, and of separators.
const TEXT_BYTES: u64 = 18;
/// Bytes of memory for each byte of a group's rows: batches, columns, and their pages.
const GROUP_COPIES: u64 = 4;
/// Strings whose lengths stand for all lengths.
const MEASURED_IDS: u64 = 1000;

/// The columns of exported edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeColumns {
    /// `source` and `target`, then `time`, `weight` and the features, if edges have them. An array has the ids only.
    All,
    /// The weight of each edge, f32.
    Weights,
    /// The features of each edge, f32.
    Features,
}

/// Writes all edges of a part, in the format that the ending of a file says: `.npy`, `.csv` or `.parquet`. Else there is a line for each
/// edge, with tabs between its columns; or an array of its weights or its features alone.
///
/// # Errors
/// If the store lacks the part, the file exists and is not to be replaced, an id does not fit the format, the memory is too small, or files
/// cannot be read or written.
pub fn export_edges<'a>(
    store: &Store,
    part: EdgePart,
    columns: EdgeColumns,
    out: impl Into<TableOut<'a>>,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    let default = if columns == EdgeColumns::All { TableFormat::Tsv } else { TableFormat::Npy };
    EdgeTable::new(store, part, columns, out.format(default))?.write(out, budget, progress)
}

/// Edges as a table. Its columns are their ids, their weights and their features, or some of these.
struct EdgeTable<'a> {
    store: &'a Store,
    part: EdgePart,
    /// Edges of the part.
    edges: u64,
    columns: EdgeColumns,
    format: TableFormat,
    /// The ids of sources, and of targets.
    ids: Option<[IdColumn<'a>; 2]>,
    times: Option<Arc<TimeAxis>>,
    weights: Option<ValueColumns>,
    features: Option<ValueColumns>,
    /// Weights and features of an edge, and two for its time.
    width: u64,
    schema: Arc<Schema>,
}

impl<'a> EdgeTable<'a> {
    fn new(store: &'a Store, part: EdgePart, columns: EdgeColumns, format: TableFormat) -> Result<Self> {
        let (is_weighted, layout) = (store.manifest().weighted, store.edge_features());
        let (has_ids, has_weights, has_features) = match columns {
            EdgeColumns::All if format == TableFormat::Npy => (true, false, false),
            EdgeColumns::All => (true, is_weighted, layout.is_some()),
            EdgeColumns::Weights => (false, true, false),
            EdgeColumns::Features => (false, false, true),
        };
        let refused = |missing| Error::input(store.path(), Position::Whole, format!("the edges have no {missing}"));
        if has_weights && !is_weighted {
            return Err(refused("weights"));
        }
        let dim = match layout {
            None if has_features => return Err(refused("features")),
            Some(layout) if has_features => layout.dim,
            _ => 0,
        };
        let edges = store.part_edges(part)?;
        let column = |ids: &'a StoreIds| IdColumn::new(ids, store.path(), format, StringIds::OfEdges(format));
        let ids = match has_ids {
            true => Some([column(store.source_ids())?, column(store.ids())?]),
            false => None,
        };
        let times = match has_ids && format != TableFormat::Npy {
            true => store.time_axis()?.cloned(),
            false => None,
        };
        let weights = has_weights.then(|| ValueColumns::Named(vec!["weight".to_owned()]));
        let names = store.schema()?.edge_feature_names();
        let features = has_features.then(|| match format {
            TableFormat::Npy => ValueColumns::Lists("features".to_owned(), dim as usize),
            _ if names.is_empty() => ValueColumns::Named((1..=dim).map(|number| format!("feature{number}")).collect()),
            _ => ValueColumns::Named(names),
        });
        // Edges come by target, so targets repeat.
        let ends =
            ids.iter().flat_map(|[sources, targets]| [sources.field("source"), repeating(targets.field("target"))]);
        let values = weights.iter().chain(&features).flat_map(|columns| columns.fields(&DataType::Float32));
        let time = times.iter().map(|_| Field::new("time", DataType::Int64, false));
        let schema = Arc::new(Schema::new(ends.chain(time).chain(values).collect::<Vec<_>>()));
        let width = u64::from(has_weights) + u64::from(dim) + 2 * u64::from(times.is_some());
        Ok(Self { store, part, edges, columns, format, ids, times, weights, features, width, schema })
    }

    /// Bytes of an edge, if the table is an array.
    fn array_bytes(&self) -> Option<u64> {
        let bytes = if self.ids.is_some() { 16 } else { 4 * self.width };
        (self.format == TableFormat::Npy).then_some(bytes)
    }

    /// Edges of a block, so that all blocks that the pool of threads has at once fit the budget, and the leases of memory. `id_bytes` is
    /// the length of an id as text.
    ///
    /// # Errors
    /// [`Error::Budget`] if not even small blocks fit.
    fn block_edges(&self, id_bytes: u64, shape: &TableShape, budget: &Budget) -> Result<(u64, [Lease; 2])> {
        let width = self.width;
        let in_file = self.array_bytes().unwrap_or(2 * id_bytes + TEXT_BYTES * width.max(1));
        let are_strings =
            [self.store.source_ids(), self.store.ids()].iter().any(|ids| ids.kind() == ExternalIds::String);
        let in_batch = if are_strings && self.ids.is_some() { 2 * id_bytes } else { 0 };
        let group_bytes = match self.format {
            TableFormat::Parquet => shape.group_rows().saturating_mul(shape.row_bytes).saturating_mul(GROUP_COPIES),
            _ => 0,
        };
        let edge_bytes = blocks_at_once() as u64 * (in_file + in_batch + EDGE_BYTES + VALUE_BYTES * width);
        match budget.memory.saturating_sub(group_bytes) / edge_bytes {
            edges if edges < BLOCK_EDGES_MIN => Err(Error::Budget {
                operation: format!("blocks of edges for {} threads", budget.threads),
                given: budget.memory,
                least: group_bytes + BLOCK_EDGES_MIN * edge_bytes,
                remedy: "raise --memory, or give fewer --threads",
            }),
            edges => {
                let edges = edges.min(BLOCK_EDGES_MAX);
                let blocks =
                    "blocks of edges, which are made, encoded and written at the same time; 16 Ki edges each, or fewer";
                let group = "Parquet files have groups of rows, which are encoded column by column";
                Ok((
                    edges,
                    [
                        Lease::new("blocks of edges", edges * edge_bytes, blocks),
                        Lease::new("group of rows", group_bytes, group),
                    ],
                ))
            }
        }
    }

    /// The length of an external id as text: of the longest one among many.
    fn id_bytes(&self) -> Result<u64> {
        let (mut longest, mut text) = (0, Vec::new());
        for ids in [self.store.source_ids(), self.store.ids()] {
            let step = ids.nodes().div_ceil(MEASURED_IDS).max(1);
            // From the last one on, which is the longest if ids are integers.
            for before in (0..ids.nodes()).step_by(step as usize) {
                text.clear();
                ids.append_text_at(DenseId(ids.nodes() - 1 - before), &mut text)?;
                longest = longest.max(text.len() as u64);
            }
        }
        Ok(longest)
    }

    fn write(&self, out: TableOut<'_>, budget: &Budget, progress: &dyn Progress) -> Result<Exported> {
        let id_bytes = if self.ids.is_some() { self.id_bytes()? } else { 0 };
        let row_bytes = 2 * (id_bytes.max(4) + 4) + 4 * self.width.max(1);
        let shape = TableShape { format: self.format, schema: self.schema.clone(), rows: self.edges, row_bytes };
        let stage = match self.columns {
            EdgeColumns::All => "writing edges",
            EdgeColumns::Weights => "writing weights",
            EdgeColumns::Features => "writing edge features",
        };
        let (bytes, leases) = pool(budget.threads)?.install(|| {
            let (block_edges, leases) = self.block_edges(id_bytes, &shape, budget)?;
            let mut spans = Spans::new(self.store, self.part, self.edges, block_edges);
            progress.stage(stage, self.array_bytes().map(|bytes| self.edges * bytes));
            let bytes = write_table(out, &shape, |writer| {
                write_in_order(
                    round_len(),
                    || spans.next(),
                    |span, (): &mut (), block: &mut EncodedBlock| {
                        block.encode(self.format, self.batch(span)?);
                        Ok(())
                    },
                    |block, edges| {
                        progress.advance(writer.write_block(block)?, edges);
                        check_stopped(progress)
                    },
                )
            })?;
            Ok::<_, Error>((bytes, leases))
        })?;
        Ok(Exported { rows: self.edges, bytes, leases: leases.to_vec() })
    }

    /// The edges of a span.
    fn batch(&self, span: &Span) -> Result<RecordBatch> {
        let mut columns = self.values(span)?;
        if let Some(axis) = &self.times {
            columns.insert(0, self.times_of(axis, span)?);
        }
        if let Some(ids) = &self.ids {
            columns.splice(..0, self.ends(ids, span)?);
        }
        // Each adjacency list is read once.
        span.chunk.release_rows(span.row..span.row_end);
        Ok(RecordBatch::try_new(self.schema.clone(), columns).expect("columns have their types"))
    }

    /// The sources and the targets of the edges of a span.
    fn ends(&self, [source_ids, target_ids]: &[IdColumn<'_>; 2], span: &Span) -> Result<[ArrayRef; 2]> {
        let first_node = span.chunk.span().first_node.0;
        // A target has a number of edges.
        let (mut sources, mut targets, mut edges) = (Vec::with_capacity(span.edges as usize), Vec::new(), Vec::new());
        let (mut skipped, mut left) = (span.skipped, span.edges);
        for (row, list) in (span.row..).zip(span.chunk.rows().range(span.row..span.row_end)) {
            let list = list?;
            let count = (list.degree() - skipped).min(left);
            if count == list.degree() {
                list.decode_into(&mut sources);
            } else {
                let positions: Vec<u64> = (skipped..skipped + count).collect();
                list.get_many(&positions, &mut sources);
            }
            targets.push(NodeId(first_node + row));
            edges.push(count as usize);
            left -= count;
            skipped = 0;
        }
        let sources: Vec<NodeId> = sources.into_iter().map(NodeId).collect();
        let targets = self.store.ids().dense_ids(&targets)?.into_iter().map(DenseId);
        Ok([source_ids.node_ids(&sources)?, target_ids.repeated(targets.zip(edges))?])
    }

    /// The times of the edges of a span.
    fn times_of(&self, axis: &TimeAxis, span: &Span) -> Result<ArrayRef> {
        let lists = span.chunk.times().ok_or_else(|| damaged(self.store, "edges have no times".into()))?;
        let mut positions = Vec::with_capacity(span.edges as usize);
        let (mut skipped, mut left) = (span.skipped, span.edges);
        for list in lists.range(span.row..span.row_end) {
            let list = list?;
            let count = list.degree().saturating_sub(skipped).min(left);
            let wanted: Vec<u64> = (skipped..skipped + count).collect();
            list.get_many(&wanted, &mut positions);
            left -= count;
            skipped = 0;
        }
        if left > 0 {
            return Err(damaged(self.store, "there are more edges than times".into()));
        }
        Ok(Arc::new(positions.into_iter().map(|position| axis.time(position)).collect::<Int64Array>()))
    }

    /// The weights and the features of the edges of a span.
    fn values(&self, span: &Span) -> Result<Vec<ArrayRef>> {
        let weights = self.weights.iter().zip(span.chunk.weights());
        let features = self.features.iter().zip(span.chunk.edge_features());
        let mut arrays = Vec::new();
        for (columns, file) in weights.chain(features) {
            let first = file.range(span.row, &span.chunk.rows())?.start + span.skipped;
            if first + span.edges > file.meta().edges {
                return Err(damaged(self.store, "there are more edges than weights or features".into()));
            }
            let mut values = vec![0.0; span.edges as usize * file.meta().layout.dim as usize];
            file.copy(first..first + span.edges, &mut values)?;
            arrays.extend(columns.arrays::<Float32Type>(values.into()));
        }
        Ok(arrays)
    }
}
