//! Edges in a table of Arrow columns: two columns of ids, and optionally columns of weights and features.
//!
//! A block is a range of rows within one row group. The blocks of a row group are independent: in Parquet, each finds its first row by
//! skipping pages by their headers. A worker reads its block while it parses it. It also stores the decoded columns before they become
//! edges: about 16 bytes per edge more than in other formats.

use std::{ops::Range, sync::Arc};

use arrow_array::{Array, ArrayRef, UInt64Array};
use grappa_formats::{dictionary::KEY_BYTES_MAX, time_axis::TimeUnit};
use grappa_io::Result;

use super::{
    BadEdge, EdgeBatch, EdgeSourceOptions, IdKind, IdLimit, TextBatch,
    bad_edge::Checked,
    batch::EdgeOrder,
    edge_array::EdgeArray,
    options::KeyForm,
    order::EdgePlace,
    picked_columns::PickedColumns,
    row_check::{Fault, OnBadRow, RowCheck, faults_of, ids_of_floats, not_finite, weight_of},
    table::share,
    time::times_of,
};
use crate::{
    columnar::{
        ColumnTable, Cursor,
        types::ValueType,
        values::{Ids, Values, numbers, text},
    },
    spread::Spread,
    table::Cell,
};

pub(super) struct ColumnFile {
    table: ColumnTable,
    pub columns: PickedColumns,
    /// Number of blocks before each row group.
    first_blocks: Vec<u64>,
    block_rows: u64,
    pub blocks: u64,
    first_row: u64,
    arrays: Vec<EdgeArray>,
    /// The spread of each feature so far. None if there is an encoder, which has its own.
    spreads: Vec<Spread>,
}

/// The value of a row of a column.
fn cell_of(column: &Values, row: usize) -> Checked<Cell<'_>> {
    column.cell(row).map_err(|_| BadEdge::BinaryValue)
}

/// The arrays of a block, one for each column that is read.
struct BlockArrays {
    /// The rows, numbered in the file.
    rows: Range<u64>,
    ids: [ArrayRef; 2],
    values: Vec<ArrayRef>,
    /// The array with the order of the edges, and its type.
    order: Option<(ArrayRef, ValueType)>,
    /// The array with their times, and the unit of the store.
    times: Option<(ArrayRef, Option<TimeUnit>)>,
}

impl BlockArrays {
    fn len(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }
}

impl ColumnFile {
    pub fn new(table: ColumnTable, options: &EdgeSourceOptions) -> Result<Self> {
        let columns = PickedColumns::new(&table, options).map_err(|problem| table.file.error(problem))?;
        let time = columns.time.map(|time| time.column);
        table.check_columns(columns.ids.iter().chain(&columns.values).copied().chain(columns.order).chain(time))?;
        let features = if columns.encoder.is_none() { columns.features().len() } else { 0 };
        Ok(Self {
            spreads: Spread::columns(features),
            first_blocks: vec![0; table.groups.len()],
            table,
            columns,
            block_rows: 1,
            blocks: 0,
            first_row: 0,
            arrays: Vec::new(),
        })
    }

    /// Sets the number of rows in the files before this one, the separate values of the rows of all files, and the block size.
    pub fn attach(&mut self, first_row: u64, arrays: &[EdgeArray], block_bytes: usize) {
        self.first_row = first_row;
        self.arrays = arrays.to_vec();
        // A weight is decoded beside the ids and their memory. Features take theirs from the block.
        let features = self.width() - usize::from(self.columns.weighted);
        self.block_rows = (block_bytes / (16 + 8 * features)).max(1) as u64;
        self.blocks = 0;
        for (group, first) in self.table.groups.iter().zip(&mut self.first_blocks) {
            *first = self.blocks;
            self.blocks += group.rows.div_ceil(self.block_rows);
        }
    }

    /// The rows of a block, numbered in the file.
    fn rows_of(&self, block: u64) -> Range<u64> {
        let number = self.first_blocks.partition_point(|&first| first <= block) - 1;
        let group = &self.table.groups[number];
        let first = (block - self.first_blocks[number]) * self.block_rows;
        let end = (first + self.block_rows).min(group.rows);
        group.first_row + first..group.first_row + end
    }

    /// The first row of a block.
    pub fn first_row_of(&self, block: u64) -> u64 {
        self.rows_of(block).start
    }

    /// Reads these columns of a block.
    fn read(&self, rows: &Range<u64>, columns: &[usize]) -> Result<Vec<ArrayRef>> {
        let count = (rows.end - rows.start) as usize;
        let arrays = Cursor::at(rows.start).next(&self.table, columns, count)?.unwrap_or_default();
        match arrays.iter().all(|array| array.len() == count) && arrays.len() == columns.len() {
            true => Ok(arrays),
            false => Err(self.table.damaged(rows.start, "a column has too few values")),
        }
    }

    fn block(&self, block: u64) -> Result<BlockArrays> {
        let rows = self.rows_of(block);
        let PickedColumns { ids, values, order, time, .. } = &self.columns;
        let columns = ids.iter().chain(values).copied().chain(*order).chain(time.map(|time| time.column));
        let columns: Vec<usize> = columns.collect();
        let mut arrays = self.read(&rows, &columns)?.into_iter();
        let mut ids = [(); 2].map(|()| arrays.next().expect("columns of ids are read"));
        if let Some(end) = self.columns.row_end {
            let first = self.first_row + rows.start;
            ids[end as usize] = Arc::new(UInt64Array::from_iter_values(first..first + (rows.end - rows.start)));
        }
        let values = arrays.by_ref().take(values.len()).collect();
        let order = order.and_then(|column| Some((arrays.next()?, ValueType::from_field(self.table.column(column)))));
        let times = time.and_then(|time| Some((arrays.next()?, time.unit)));
        Ok(BlockArrays { rows, ids, values, order, times })
    }

    pub fn rows(&self) -> u64 {
        self.table.rows
    }

    /// Values of an edge, in columns and in separate arrays.
    fn width(&self) -> usize {
        self.columns.width() + self.arrays.iter().map(|array| array.width).sum::<usize>()
    }

    /// Whether the first value of an edge is its weight.
    fn weight_is_first(&self) -> bool {
        self.columns.weighted || self.arrays.iter().any(EdgeArray::is_weights)
    }

    /// The spread of each column of features.
    pub fn spreads(&self) -> &[Spread] {
        self.columns.encoder.as_ref().map_or(&self.spreads, |encoder| encoder.spreads())
    }

    /// The format, for people.
    pub fn format(&self) -> &'static str {
        self.table.format()
    }

    /// Bytes of the file or of the data in memory.
    pub fn bytes(&self) -> u64 {
        self.table.file.bytes()
    }

    pub fn input_bytes(&self, block: u64) -> u64 {
        let Range { start, end } = self.rows_of(block);
        let [before, with] = [start, end].map(|rows| share(self.bytes(), rows, self.rows()));
        with - before
    }

    /// Whether the ids at each end are signed.
    fn signed(&self) -> [bool; 2] {
        let mut signed = self.columns.signed;
        // Numbers of rows are not.
        self.columns.row_end.into_iter().for_each(|end| signed[end as usize] = false);
        signed
    }

    /// Reads and parses a block of integers.
    pub fn parse(
        &self,
        block: u64,
        limits: [IdLimit; 2],
        into: &mut EdgeBatch,
        on_bad: &mut OnBadRow<'_>,
    ) -> Result<()> {
        let block = &self.block(block)?;
        let mut faults = Vec::new();
        into.sources = integers(block, 0, &mut faults);
        into.targets = integers(block, 1, &mut faults);
        self.read_values(block, &mut faults, &mut into.values)?;
        read_order(block, &mut faults, |_, place| into.order.push(place));
        read_times(block, &mut faults, &mut into.order);
        let check = RowCheck {
            weighted: self.weight_is_first(),
            first_row: block.rows.start,
            limits,
            signed: self.signed(),
            faults: &faults,
        };
        check.sift(into, on_bad)
    }

    /// Reads and parses a block of strings, or of strings at one end and integers at the other.
    pub fn parse_text(&self, block: u64, ids: KeyForm, into: &mut TextBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let block = &self.block(block)?;
        let mut faults = Vec::new();
        let mut integer_edges = EdgeBatch::default();
        for (end, kind) in ids.kinds.into_iter().enumerate() {
            match kind {
                IdKind::String => note_missing_ids(&block.ids[end], &mut faults),
                IdKind::Integer => *integer_edges.end_mut(end) = integers(block, end, &mut faults),
            }
        }
        // Ends with strings are 0, which is in every range.
        (0..2).for_each(|end| integer_edges.end_mut(end).resize(block.len(), 0));
        let (mut values, width) = (Vec::new(), self.width());
        self.read_values(block, &mut faults, &mut values)?;
        let mut places = Vec::new();
        read_order(block, &mut faults, |_, place| places.push(place));
        let mut times = EdgeOrder::default();
        read_times(block, &mut faults, &mut times);
        into.order.units |= times.units;
        let check = RowCheck {
            weighted: false,
            first_row: block.rows.start,
            limits: ids.limits,
            signed: self.signed(),
            faults: &faults,
        };
        for row in 0..block.len() {
            let fault = faults.get(row).copied().unwrap_or_default();
            let numbers = [integer_edges.sources[row], integer_edges.targets[row]];
            let packed = numbers.map(u64::to_be_bytes);
            let [source, target] = [0, 1].map(|end| match ids.kinds[end] {
                IdKind::String => text(&block.ids[end], row).unwrap_or_default(),
                IdKind::Integer => &packed[end],
            });
            let values = &values[row * width..][..width];
            let bad = if let Some(missing) = fault.missing_value() {
                missing
            } else if let Some(bad) = fault.other {
                bad
            } else if let Some(bad) = check.bad(row, numbers, &[]) {
                bad
            } else if source.is_empty() || target.is_empty() {
                BadEdge::EmptyId.of_end(usize::from(!source.is_empty()))
            } else if source.len().max(target.len()) > KEY_BYTES_MAX {
                BadEdge::LongId
            } else if (0..2)
                .any(|end| ids.kinds[end] == IdKind::String && std::str::from_utf8([source, target][end]).is_err())
            {
                BadEdge::BinaryKey
            } else if let Some(bad) = not_finite(values, self.weight_is_first()) {
                bad
            } else {
                into.sources.push(source);
                into.targets.push(target);
                into.values.extend_from_slice(values);
                places.get(row).into_iter().for_each(|&place| into.order.push(place));
                into.order.times.extend(times.times.get(row));
                continue;
            };
            let line = match fault.missing {
                true => b"null".to_vec(),
                false => {
                    let shown = [(0, source), (1, target)].map(|(end, key)| match ids.kinds[end] {
                        IdKind::String => key.to_vec(),
                        IdKind::Integer => check.id(row, end, numbers[end]).into_bytes(),
                    });
                    shown.join(&b'\t')
                }
            };
            on_bad(block.rows.start + row as u64, &line, bad)?;
        }
        Ok(())
    }

    /// Reads the values of a block's edges from their columns and files.
    fn read_values(&self, block: &BlockArrays, faults: &mut Vec<Fault>, into: &mut Vec<f32>) -> Result<()> {
        let (rows, width) = (block.len(), self.width());
        into.resize(rows * width, 0.0);
        for array in &self.arrays {
            let mut bytes = vec![0; rows * array.row_bytes()];
            array.reader.read_rows(self.first_row + block.rows.start, &mut bytes)?;
            array.convert(&bytes, width, into);
        }
        // Separate weights come before the columns, and separate features after the weight in its column.
        let shift = usize::from(self.arrays.iter().any(EdgeArray::is_weights));
        let weights = usize::from(self.columns.weighted);
        if let Some(encoder) = &self.columns.encoder {
            let features = self.features_of(&block.values[weights..]);
            let mut numbers = Vec::with_capacity(encoder.dim());
            for (row, values) in into.chunks_exact_mut(width).enumerate() {
                numbers.clear();
                for (at, column) in features.iter().enumerate() {
                    if let Err(bad) = cell_of(column, row).and_then(|cell| encoder.value(at, cell, &mut numbers)) {
                        faults_of(faults, rows)[row].other.get_or_insert(bad);
                    }
                }
                if numbers.len() == encoder.dim() {
                    values[shift + weights..][..numbers.len()].copy_from_slice(&numbers);
                }
            }
        }
        for (at, array) in block.values[..self.columns.numbers().len()].iter().enumerate() {
            note_missing(array, faults);
            let is_weight = at < weights;
            let places = into.iter_mut().skip(shift + at).step_by(width);
            for (row, (place, value)) in places.zip(numbers(array)).enumerate() {
                *place = match is_weight {
                    // The row is refused already.
                    _ if array.is_null(row) => 0.0,
                    true => weight_of(value),
                    false => {
                        self.spreads[at - weights].add(value);
                        value as f32
                    }
                };
            }
        }
        Ok(())
    }

    /// The values of arrays of features.
    fn features_of(&self, arrays: &[ArrayRef]) -> Vec<Values> {
        let columns = self.columns.features().iter().zip(arrays);
        columns.map(|(&column, array)| Values::new(array, ValueType::from_field(self.table.column(column)))).collect()
    }

    /// Calls `each` with the number of each row and its values in the columns of features, front to back.
    pub fn each_row(&self, each: &mut dyn FnMut(u64, &[Cell<'_>]) -> Result<()>) -> Result<()> {
        for block in 0..self.blocks {
            let rows = self.rows_of(block);
            let columns = self.features_of(&self.read(&rows, self.columns.features())?);
            for (index, row) in rows.enumerate() {
                let cells: std::result::Result<Vec<_>, _> = columns.iter().map(|column| column.cell(index)).collect();
                let cells = cells.map_err(|_| {
                    let problem = "expected text in UTF-8 in the columns of edge features, found other bytes";
                    self.table.refused(row, problem)
                })?;
                each(row, &cells)?;
            }
        }
        Ok(())
    }
}

/// The integers of a column of ids. What is wrong with a row becomes a fault.
fn integers(block: &BlockArrays, end: usize, faults: &mut Vec<Fault>) -> Vec<u64> {
    let array = &block.ids[end];
    let Ids { mut words, float_digits } = Ids::new(array);
    note_missing_ids(array, faults);
    if array.null_count() > 0 {
        words.iter_mut().enumerate().filter(|&(row, _)| array.is_null(row)).for_each(|(_, word)| *word = 0);
    }
    // pandas writes integers as floats if one of them is missing.
    if let Some(digits) = float_digits {
        ids_of_floats(&mut words, digits, end, faults);
    }
    words
}

/// Makes faults of missing values.
fn note_missing(array: &dyn Array, faults: &mut Vec<Fault>) {
    if array.null_count() > 0 {
        let faults = faults_of(faults, array.len());
        faults.iter_mut().enumerate().for_each(|(row, fault)| fault.missing |= array.is_null(row));
    }
}

/// The same for missing ids.
fn note_missing_ids(array: &dyn Array, faults: &mut Vec<Fault>) {
    note_missing(array, faults);
    if array.null_count() > 0 {
        faults.iter_mut().enumerate().for_each(|(row, fault)| fault.no_id |= array.is_null(row));
    }
}

/// Appends the time of each row, if edges have times. A row without a time is a fault.
fn read_times(block: &BlockArrays, faults: &mut Vec<Fault>, order: &mut EdgeOrder) {
    let Some((array, unit)) = &block.times else {
        return;
    };
    times_of(array, *unit, |row, time| match time {
        Ok(time) => order.push_time(time),
        Err(bad) => {
            faults_of(faults, block.len())[row].other.get_or_insert(bad);
            order.times.push(0);
        }
    });
}

/// Calls `each` with the number and the place of each row, if edges have an order. A row without a place is a fault.
fn read_order(block: &BlockArrays, faults: &mut Vec<Fault>, mut each: impl FnMut(usize, EdgePlace)) {
    let Some((array, value_type)) = &block.order else {
        return;
    };
    let values = Values::new(array, *value_type);
    for row in 0..block.len() {
        match cell_of(&values, row).and_then(EdgePlace::from_cell) {
            Ok(place) => each(row, place),
            Err(bad) => {
                faults_of(faults, block.len())[row].other.get_or_insert(bad);
                each(row, EdgePlace::of_number(0.0));
            }
        }
    }
}
