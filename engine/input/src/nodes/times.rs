//! The time of each node in a column of a table: integers, dates or timestamps, as the times of edges.

use std::ops::{Deref, DerefMut};

use grappa_formats::time_axis::TimeUnit;
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
};

use super::{
    forms::{Forms, TableForm},
    node_file::{Content, NodeFile},
};
use crate::{
    columns::{Purpose, TimeColumn},
    edges::{BadEdge, TimeValue, bit_of, unit_of},
    input::Input,
    messages::Checked,
};

/// Rows that are read at a time to find the unit.
const ROWS: usize = 1 << 14;

const FORMS: Forms = Forms {
    name: "times",
    arrays: &[],
    shapes: "a row per node",
    columns_max: 1,
    sparse: false,
    blank_lines: false,
    purpose: Purpose::Times,
};

/// The column of a table that has the time of each node.
pub struct NodeTimeSource {
    file: NodeFile,
    unit: Option<TimeUnit>,
}

impl Deref for NodeTimeSource {
    type Target = NodeFile;

    fn deref(&self) -> &NodeFile {
        &self.file
    }
}

impl DerefMut for NodeTimeSource {
    fn deref_mut(&mut self) -> &mut NodeFile {
        &mut self.file
    }
}

impl NodeTimeSource {
    /// Opens the table `input`, text or Parquet, which has a column of times. None if `form` names no column of times.
    ///
    /// # Errors
    /// If the file is no table, or has no such column.
    pub fn open(input: impl Into<Input>, form: &TableForm) -> Result<Option<Self>> {
        let Some(TimeColumn { unit, .. }) = form.columns.time else { return Ok(None) };
        let file = NodeFile::open(&input.into(), &FORMS, form)?;
        if let Content::Dense(_) | Content::Sparse(_) = file.content {
            let problem = "--node-time names a column of a table, and this is none; write the nodes as text or Parquet";
            return Err(Error::input(file.path(), Position::Whole, problem));
        }
        Ok(Some(Self { file, unit }))
    }

    /// The unit of the store. Unless the user has given it, it is the finest unit of all values, which are read.
    ///
    /// # Errors
    /// If a node has no time, or the times are integers and dates.
    pub fn find_unit(&mut self, progress: &dyn Progress) -> Result<TimeUnit> {
        if let Some(unit) = self.unit {
            return Ok(unit);
        }
        progress.stage("examining the times of nodes", None);
        let (mut units, mut row) = (0, 0);
        loop {
            let read = self.read(row, ROWS, None, &mut |time| units |= bit_of(time.unit))?;
            if read == 0 {
                break;
            }
            row += read as u64;
            check_stopped(progress)?;
        }
        let unit = unit_of(units)
            .map_err(|problem| Error::input(self.path(), Position::Whole, problem.replace("--time", "--node-time")))?;
        Ok(*self.unit.insert(unit.unwrap_or(TimeUnit::Integer)))
    }

    /// Replaces the contents of `out` with the times of up to `count` rows from row `first` on, in the unit that was found. Returns the
    /// number of rows, which is 0 at the end.
    ///
    /// # Errors
    /// If a node has no time, or its time is not whole in the unit.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut Vec<i64>) -> Result<usize> {
        out.clear();
        self.read(first, count, self.unit, &mut |time| out.push(time.value))
    }

    fn read(&self, first: u64, count: usize, unit: Option<TimeUnit>, each: &mut dyn FnMut(TimeValue)) -> Result<usize> {
        let mut each = |time: std::result::Result<TimeValue, BadEdge>| -> Checked<()> {
            each(time.map_err(refusal)?);
            Ok(())
        };
        match &self.file.content {
            Content::Text(text) => {
                text.read(first, count, &mut |_, fields| each(TimeValue::from_text(fields?[0], unit)))
            }
            Content::Columns(table) => table.read_times(first, count, unit, &mut each),
            Content::Dense(_) | Content::Sparse(_) => unreachable!("refused when opened"),
        }
    }
}

/// What is wrong with the time of a node, and what to do about it.
fn refusal(problem: BadEdge) -> String {
    let remedy = match problem {
        BadEdge::NoTime => {
            "each node of a type with times has one: fill in the value, or give --node-time none for nodes without times"
        }
        BadEdge::TimeFraction => {
            "write it as an integer of a smaller unit, such as milliseconds with --node-time-unit ms, or round it"
        }
        BadEdge::TimeTooLarge => "choose a larger unit with --node-time-unit",
        BadEdge::TimeIsDate => "give --node-time-unit s if integers count seconds since 1970, for example",
        BadEdge::TimeNotWhole(_) => "choose a smaller unit, such as --node-time-unit s or ms",
        _ => "correct the value",
    };
    format!("{}; {remedy}", problem.reason().replace("the value of --time", "the time"))
}
