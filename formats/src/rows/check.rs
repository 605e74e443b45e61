//! The full check of rows. It finds every error and its place.

use std::fmt;

use super::{LINE_BYTES, LINE_ROWS, RowCodec, Rows, encode::RowsEncoder};
use crate::FormatError;

/// The file with the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsPart {
    /// `edges`.
    Edges,
    /// `degrees`.
    Degrees,
}

/// An error in rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsProblem {
    /// The file.
    pub part: RowsPart,
    /// The error. Its offset counts from the start of the payload.
    pub error: FormatError,
}

impl fmt::Display for RowsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.part {
            RowsPart::Edges => "edges",
            RowsPart::Degrees => "degrees",
        };
        write!(f, "{name}: {}", self.error)
    }
}

impl std::error::Error for RowsProblem {}

impl Rows<'_> {
    /// Checks every bit of both payloads, and calls `on_row` with the number and the sources of each row.
    ///
    /// Rows have exactly one encoding. So decoded rows with ascending sources below the universe are encoded again, and
    /// must give the same bytes. Takes as long as decoding and encoding. The order of sources by time is not checked: it needs the times.
    pub fn check(&self, mut on_row: impl FnMut(u64, &[u64])) -> Result<(), RowsProblem> {
        let meta = &self.meta;
        let mut encoder = RowsEncoder::new(meta.codec, meta.universe, meta.first_node);
        let mut sources = Vec::new();
        let mut compared = 0;
        for (index, row) in (0..meta.rows).zip(self.range(0..meta.rows)) {
            if index.is_multiple_of(LINE_ROWS) {
                let (line, expected) = (self.directory_line(index).start, encoder.directory_head());
                if let Some(at) = first_difference(&expected, &self.directory.payload[line..]) {
                    let message = format!("row {index} does not start where the directory's line says");
                    return Err(problem(RowsPart::Degrees, line + at, message));
                }
            }
            sources.clear();
            row.decode_into(&mut sources);
            if meta.codec != RowCodec::ByTime && !sources.is_sorted() {
                let message = format!("the sources of row {index} do not ascend");
                return Err(problem(RowsPart::Edges, self.locate(index).extent().start as usize, message));
            }
            encoder.push(&sources);
            on_row(index, &sources);
            if encoder.finished_bytes() >= COMPARE_BYTES {
                self.compare_edges(&mut compared, index, &encoder.take_bytes())?;
            }
        }
        let tail = encoder.finish();
        self.compare_edges(&mut compared, meta.rows.saturating_sub(1), &tail.edges_payload_rest)?;
        if compared != self.payload.len() {
            let message = format!("the rows end here, {} bytes are left", self.payload.len() - compared);
            return Err(problem(RowsPart::Edges, compared, message));
        }
        let directory = self.directory.payload;
        if let Some(at) = first_difference(&tail.degrees_payload, directory) {
            let message = match (at / LINE_BYTES) as u64 {
                line if line * LINE_ROWS < meta.rows => {
                    format!("the directory's line of rows {}.. does not match the rows", line * LINE_ROWS)
                }
                _ => "the directory's exceptions do not match the rows".into(),
            };
            return Err(problem(RowsPart::Degrees, at, message));
        }
        if tail.meta != *meta {
            let message = format!(
                "the rows have {} edges and {} exceptions, not {} and {}",
                tail.meta.edges, tail.meta.exceptions, meta.edges, meta.exceptions
            );
            return Err(problem(RowsPart::Edges, 0, message));
        }
        Ok(())
    }

    /// Compares the encoding of the rows up to `row` with the payload, after the bytes already compared.
    fn compare_edges(&self, compared: &mut usize, row: u64, encoded: &[u8]) -> Result<(), RowsProblem> {
        if let Some(at) = first_difference(encoded, &self.payload[*compared..]) {
            let message = format!(
                "these bits, of row {row} or one not long before it, are not the encoding of any row of the degree that \
                 the directory gives"
            );
            return Err(problem(RowsPart::Edges, *compared + at, message));
        }
        *compared += encoded.len();
        Ok(())
    }
}

/// How many encoded bytes are compared at once.
const COMPARE_BYTES: usize = 1 << 16;

fn problem(part: RowsPart, offset: usize, message: String) -> RowsProblem {
    RowsProblem { part, error: FormatError::invalid(offset as u64, message) }
}

/// The first byte at which `found` differs from `expected`. `found` may be longer.
pub(super) fn first_difference(expected: &[u8], found: &[u8]) -> Option<usize> {
    if found.starts_with(expected) {
        return None;
    }
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    Some(same)
}
