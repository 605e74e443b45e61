//! Gathers the feature rows of a minibatch into a buffer. All rows are in memory or can be computed.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::{Result, slots::Slots};
use grappa_storage::Store;
use grappa_synthetic::Features;

use super::{
    buffer::FeatureBuffer,
    files::RowFiles,
    in_flight::InFlightBatch,
    pool::PoolRows,
    resident::{RESIDENT, Resident},
    rows::{Column, RowFormat, RowScratch},
    stats::Counters,
};

/// Rows are prefetched this many rows before they are copied.
const AHEAD: usize = 12;
/// At most this many cache lines of a row are prefetched. The processor prefetches the others by itself.
const LINES_MAX: usize = 16;

/// The source of feature rows.
#[derive(Debug)]
pub(super) enum RowAccess {
    /// There are no features: batches are minibatches alone.
    None,
    /// Rows are computed.
    Generated(GeneratedRows),
    /// Rows are stored.
    Stored(Arc<StoredRows>),
}

/// Rows that are computed when a batch needs them.
#[derive(Debug)]
pub(super) struct GeneratedRows {
    pub features: Features,
    /// Maps nodes to the labels that the generator knows them by.
    pub store: Arc<Store>,
}

/// Stored rows, and which of them are in memory.
#[derive(Debug)]
pub(super) struct StoredRows {
    pub files: RowFiles,
    pub resident: Option<Resident>,
    /// None if all chunks are resident.
    pub pool: Option<PoolRows>,
}

/// The rows of one column to be gathered.
#[derive(Clone, Copy)]
struct GatherRequest<'a> {
    /// The index of the column.
    number: usize,
    column: &'a Column,
    /// Nodes of the column's type.
    nodes: &'a [NodeId],
    /// The slot of each row, or [`RESIDENT`]. Empty without a pool.
    slots: &'a [u32],
}

impl RowAccess {
    /// Copies the rows of the nodes of a batch into `out`, which has that many rows.
    pub fn gather(
        &self,
        format: &RowFormat,
        batch: &InFlightBatch,
        scratch: &mut RowScratch,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        let (mut current, mut rows_before, mut next) = (None, 0, 0);
        for (number, column) in format.columns.iter().enumerate() {
            let nodes = &batch.minibatches[column.row_type.node_type].nodes[..];
            if current.replace(column.row_type) != Some(column.row_type) {
                (rows_before, next) = (next, next + nodes.len());
            }
            let slots = if batch.slots.is_empty() { &[][..] } else { &batch.slots[rows_before..next] };
            let rows = out.column_mut(number).chunks_exact_mut(column.output_bytes());
            let request = GatherRequest { number, column, nodes, slots };
            match self {
                Self::None => {}
                Self::Generated(generated) => {
                    for (&node, out) in nodes.iter().zip(rows) {
                        let label = generated.store.ids().integer(node)?;
                        column.write(&mut scratch.values, out, |values| generated.features.row(label, values));
                    }
                }
                Self::Stored(stored) => match (&stored.resident, &stored.pool) {
                    (resident, Some(PoolRows { slots, .. })) => {
                        stored.gather_planned(resident.as_ref(), slots, request, scratch, rows);
                    }
                    (Some(resident), None) => stored.gather_resident(resident, request, scratch, rows)?,
                    (None, None) => unreachable!("stored rows are resident or in the pool"),
                },
            }
        }
        Ok(())
    }

    /// Counts the rows of a batch, as far as the planner has not.
    pub fn count(&self, format: &RowFormat, batch: &InFlightBatch, counters: &Counters) {
        let nodes = |node_type| batch.nodes(node_type);
        let rows = format.rows(nodes) as u64;
        let (generated, resident) = match self {
            Self::Generated(_) => (rows, 0),
            Self::Stored(stored) if stored.pool.is_none() => (0, rows),
            Self::None | Self::Stored(_) => (0, 0),
        };
        counters.add(|stats| {
            stats.bytes_wanted += format.stored_bytes(nodes);
            stats.rows_wanted += generated + resident;
            stats.rows_generated += generated;
            stats.rows_resident += resident;
        });
    }
}

impl StoredRows {
    /// Gathers rows if all chunks are resident. There are no slots.
    fn gather_resident<'a>(
        &self,
        resident: &Resident,
        GatherRequest { number, column, nodes, .. }: GatherRequest<'_>,
        scratch: &mut RowScratch,
        rows: impl Iterator<Item = &'a mut [u8]>,
    ) -> Result<()> {
        let offset = |node: NodeId| {
            let position = NodeId(column.row_type.start + node.0);
            resident.offset(number, self.files.chunks.chunk_of(position), position)
        };
        let lines = lines(column);
        // A ring with the offsets of the next rows. Each is computed once, when the row is prefetched.
        let mut ahead = [None; AHEAD];
        let prefetch = |node: NodeId| {
            let offset = offset(node)?;
            resident.prefetch(offset, lines);
            Some(offset)
        };
        for (entry, &node) in ahead.iter_mut().zip(nodes) {
            *entry = prefetch(node);
        }
        for (i, (&node, out)) in nodes.iter().zip(rows).enumerate() {
            let offset = ahead[i % AHEAD].ok_or_else(|| self.files.absent(NodeId(column.row_type.start + node.0)))?;
            if let Some(&later) = nodes.get(i + AHEAD) {
                ahead[i % AHEAD] = prefetch(later);
            }
            column.convert(resident.row(number, offset), &mut scratch.values, out);
        }
        Ok(())
    }

    /// Gathers rows that are resident or in the pool.
    fn gather_planned<'a>(
        &self,
        resident: Option<&Resident>,
        pool: &Slots,
        GatherRequest { number, column, nodes, slots }: GatherRequest<'_>,
        scratch: &mut RowScratch,
        rows: impl Iterator<Item = &'a mut [u8]>,
    ) {
        assert_eq!(slots.len(), nodes.len(), "each row needs a slot");
        let lines = lines(column);
        let row_bytes = column.stored.row_bytes();
        let locate = |node: NodeId| {
            let resident = resident.expect("a row is marked as resident");
            let position = NodeId(column.row_type.start + node.0);
            let offset = resident.offset(number, self.files.chunks.chunk_of(position), position);
            (resident, offset.expect("the chunk of the row is resident"))
        };
        let prefetch = |i: usize| match slots.get(i) {
            None => {}
            Some(&RESIDENT) => {
                let (resident, offset) = locate(nodes[i]);
                resident.prefetch(offset, lines);
            }
            Some(&slot) => pool.prefetch(slot as usize, column.offset, lines),
        };
        (0..AHEAD).for_each(prefetch);
        for (i, (&slot, out)) in slots.iter().zip(rows).enumerate() {
            prefetch(i + AHEAD);
            if slot == RESIDENT {
                let (resident, offset) = locate(nodes[i]);
                column.convert(resident.row(number, offset), &mut scratch.values, out);
            } else if column.is_verbatim() {
                pool.read(slot as usize, column.offset, out);
            } else {
                let row = &mut scratch.row[..row_bytes];
                pool.read(slot as usize, column.offset, row);
                column.convert(row, &mut scratch.values, out);
            }
        }
    }
}

/// The number of cache lines of a row to prefetch.
fn lines(column: &Column) -> usize {
    column.stored.row_bytes().div_ceil(64).min(LINES_MAX)
}
