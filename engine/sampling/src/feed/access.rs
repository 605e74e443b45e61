//! From nodes to feature rows in a buffer: what is done for a minibatch when all its rows are there.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::{Result, slots::Slots};
use grappa_storage::Store;
use grappa_synthetic::Features;

use super::{
    buffer::FeatureBuffer,
    files::RowFiles,
    planner::RESIDENT,
    pool::Geometry,
    resident::Resident,
    rows::{Column, RowFormat, RowScratch},
    stats::Counters,
};

/// How many rows ahead their memory is asked for.
const AHEAD: usize = 12;
/// No more cache lines of a row than these are asked for: the processor finds the others by itself.
const LINES_MAX: usize = 16;

/// Where rows come from.
#[derive(Debug)]
pub(super) enum RowAccess {
    /// Nowhere: minibatches alone are delivered.
    None,
    /// They are computed.
    Generated(Generated),
    /// They are stored.
    Stored(Arc<Stored>),
}

/// Rows that are computed when they are wanted.
#[derive(Debug)]
pub(super) struct Generated {
    pub features: Features,
    /// What the generator calls nodes.
    pub store: Arc<Store>,
}

/// Rows that are stored, in as far as they are in memory.
#[derive(Debug)]
pub(super) struct Stored {
    pub files: RowFiles,
    pub resident: Option<Resident>,
    /// The row pool; none if all chunks are resident.
    pub pool: Option<PoolRows>,
}

/// The rows of the pool, and where each is.
#[derive(Debug)]
pub(super) struct PoolRows {
    pub geometry: Geometry,
    pub slots: Slots,
    /// Gaps of up to so many bytes between rows are read.
    pub bridge_bytes: u64,
}

/// What is wanted of a column.
#[derive(Clone, Copy)]
struct Wish<'a> {
    number: usize,
    column: &'a Column,
    nodes: &'a [NodeId],
    /// Where they are, if there is a pool.
    places: &'a [u32],
}

impl RowAccess {
    /// Puts the rows of `nodes` into `out`, which has room for as many. `places` says where they are, if there is a pool.
    pub fn gather(
        &self,
        format: &RowFormat,
        nodes: &[NodeId],
        places: &[u32],
        scratch: &mut RowScratch,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        for (number, column) in format.columns().iter().enumerate() {
            let rows = out.column_mut(number).chunks_exact_mut(column.output_bytes());
            let wish = Wish {
                number,
                column,
                nodes,
                places,
            };
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
                        stored.gather_placed(resident.as_ref(), slots, wish, scratch, rows);
                    }
                    (Some(resident), None) => stored.gather_resident(resident, wish, scratch, rows)?,
                    (None, None) => unreachable!("stored rows are resident or pooled"),
                },
            }
        }
        Ok(())
    }
}

impl RowAccess {
    /// Counts the rows of a batch, where planning does not.
    pub fn count_unplanned(&self, rows: usize, counters: &Counters) {
        let kind = match self {
            Self::Generated(_) => &counters.rows_generated,
            Self::Stored(stored) if stored.pool.is_none() => &counters.rows_resident,
            Self::None | Self::Stored(_) => return,
        };
        counters.rows_wanted.add(rows as u64);
        kind.add(rows as u64);
    }
}

impl Stored {
    /// All chunks are resident.
    fn gather_resident<'a>(
        &self,
        resident: &Resident,
        Wish {
            number, column, nodes, ..
        }: Wish<'_>,
        scratch: &mut RowScratch,
        rows: impl Iterator<Item = &'a mut [u8]>,
    ) -> Result<()> {
        let place = |node: NodeId| resident.place(number, self.files.chunks().chunk_of(node), node);
        let lines = lines(column);
        // Places of the next rows, which are found when they are asked for.
        let mut ahead = [None; AHEAD];
        let ask = |node: NodeId| {
            let place = place(node)?;
            resident.prefetch(place, lines);
            Some(place)
        };
        for (slot, &node) in ahead.iter_mut().zip(nodes) {
            *slot = ask(node);
        }
        for (i, (&node, out)) in nodes.iter().zip(rows).enumerate() {
            let place = ahead[i % AHEAD].ok_or_else(|| self.files.absent(node))?;
            if let Some(&later) = nodes.get(i + AHEAD) {
                ahead[i % AHEAD] = ask(later);
            }
            column.convert(resident.row(number, place), &mut scratch.values, out);
        }
        Ok(())
    }

    /// Rows are resident or in the pool.
    fn gather_placed<'a>(
        &self,
        resident: Option<&Resident>,
        slots: &Slots,
        Wish {
            number,
            column,
            nodes,
            places,
        }: Wish<'_>,
        scratch: &mut RowScratch,
        rows: impl Iterator<Item = &'a mut [u8]>,
    ) {
        assert_eq!(places.len(), nodes.len(), "a place for each row");
        let lines = lines(column);
        let row_bytes = column.stored.row_bytes();
        let place = |node: NodeId| {
            let resident = resident.expect("a row has a resident place");
            let place = resident.place(number, self.files.chunks().chunk_of(node), node);
            (resident, place.expect("its chunk is resident"))
        };
        let ask = |i: usize| match places.get(i) {
            None => {}
            Some(&RESIDENT) => {
                let (resident, place) = place(nodes[i]);
                resident.prefetch(place, lines);
            }
            Some(&slot) => slots.prefetch(slot as usize, column.part, lines),
        };
        (0..AHEAD).for_each(ask);
        for (i, (&slot, out)) in places.iter().zip(rows).enumerate() {
            ask(i + AHEAD);
            if slot == RESIDENT {
                let (resident, place) = place(nodes[i]);
                column.convert(resident.row(number, place), &mut scratch.values, out);
            } else if column.is_verbatim() {
                slots.read(slot as usize, column.part, out);
            } else {
                let row = &mut scratch.row[..row_bytes];
                slots.read(slot as usize, column.part, row);
                column.convert(row, &mut scratch.values, out);
            }
        }
    }
}

/// Cache lines of a row that are asked for.
fn lines(column: &Column) -> usize {
    column.stored.row_bytes().div_ceil(64).min(LINES_MAX)
}
