//! The distinct times of edges or nodes, from which the axis follows.

use grappa_formats::time_axis::{TimeAxis, TimeUnit, is_table_smaller, span_of};
use grappa_io::{Result, ledger::MemoryShare};

use crate::ingest::plan::IngestBudget;

/// Memory of the table.
pub const TABLE: MemoryShare = MemoryShare::one(
    "table of times",
    4,
    "the table of distinct times has at most 1/4, because its file is encoded in as much; chosen, not measured",
);

/// Distinct times, which come in ascending order.
pub struct DistinctTimes {
    /// All of them, unless they are more than `table_max`.
    table: Vec<i64>,
    table_max: u64,
    count: u64,
    /// The first and the last one.
    ends: Option<(i64, i64)>,
}

impl DistinctTimes {
    /// No times. The table gets its share of the budget.
    pub fn new(budget: &IngestBudget) -> Self {
        Self { table: Vec::new(), table_max: TABLE.bytes(budget.memory) / 8, count: 0, ends: None }
    }

    /// Adds a time that is later than all others.
    pub fn push(&mut self, time: i64) {
        self.count += 1;
        self.ends = Some((self.ends.map_or(time, |(first, _)| first), time));
        match self.count <= self.table_max {
            true => self.table.push(time),
            false => self.table = Vec::new(),
        }
    }

    /// The axis of the times of this number of edges or nodes.
    ///
    /// # Errors
    /// If it needs a table that exceeds the memory.
    pub fn axis(self, budget: &IngestBudget, unit: TimeUnit, (number, noun): (u64, &str)) -> Result<TimeAxis> {
        let Some((first, last)) = self.ends else { return Ok(TimeAxis::of_span(unit, 0, 0)) };
        if self.count <= self.table_max {
            return Ok(TimeAxis::of_times(unit, number, &self.table));
        }
        let span = span_of(first, last);
        if is_table_smaller(number, span, self.count) {
            let operation = format!("a table of the {} distinct times of the {noun}", self.count);
            let least = TABLE.budget_of(8 * self.count);
            return Err(budget.too_small(operation, least, "raise --memory, or round the times to a larger unit"));
        }
        Ok(TimeAxis::of_span(unit, first, span as u64))
    }
}
