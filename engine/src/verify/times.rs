//! Checks the times of edges: lists of positions beside the adjacency lists.

use grappa_formats::{
    ChunkSpan, FormatError,
    rows::{RowCodec, RowSizes, Rows, RowsMeta, RowsPart},
    time_axis::TimeAxis,
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
};
use grappa_storage::expect_adjacency;

use super::in_payload::in_payload;

/// The files of the times of a chunk's edges, whose checksums are right, and what their positions mean.
#[derive(Clone, Copy)]
pub(super) struct TimesFiles<'a> {
    pub times: &'a ContainerFile,
    pub degrees: &'a ContainerFile,
    pub axis: &'a TimeAxis,
}

/// Times that were checked, to be compared with the adjacency lists.
pub(super) struct CheckedTimes<'a> {
    file: &'a ContainerFile,
    meta: RowsMeta,
    sizes: RowSizes,
    times: MappedPayload,
    degrees: MappedPayload,
}

impl<'a> TimesFiles<'a> {
    /// Checks the lists of positions on their own.
    pub fn check(self, span: ChunkSpan) -> Result<CheckedTimes<'a>> {
        let Self { times: file, degrees, axis } = self;
        let meta = RowsMeta::decode(&file.header().meta).map_err(Error::format(file.path()))?;
        expect_adjacency(&meta, span, axis.positions()).map_err(Error::format(file.path()))?;
        if degrees.header().meta != file.header().meta {
            let problem = "the file describes other lists than the chunk's `times`";
            return Err(Error::format(degrees.path())(FormatError::invalid(64, problem)));
        }
        if meta.codec != RowCodec::EliasFano {
            let problem = "times are in another code than Elias-Fano";
            return Err(Error::format(file.path())(FormatError::invalid(64, problem)));
        }
        let checked = CheckedTimes {
            file,
            meta,
            sizes: RowSizes::from_meta(&meta),
            times: MappedPayload::new(file, Access::Sequential)?,
            degrees: MappedPayload::new(degrees, Access::Sequential)?,
        };
        let problem = checked.rows()?.check(|_, _| {});
        problem.map_err(|problem| {
            let file = if problem.part == RowsPart::Edges { file } else { degrees };
            in_payload(file, &problem.error)
        })?;
        Ok(checked)
    }
}

impl CheckedTimes<'_> {
    /// The lists of positions.
    pub fn rows(&self) -> Result<Rows<'_>> {
        let rows = Rows::new(&self.meta, &self.sizes, self.times.unchecked(), self.degrees.unchecked());
        rows.map_err(Error::format(self.file.path()))
    }

    /// The problem of a list of positions beside an adjacency list, if there is one. `positions` is a buffer.
    pub fn problem(&self, times: &Rows<'_>, row: u64, sources: &[u64], positions: &mut Vec<u64>) -> Option<Error> {
        positions.clear();
        times.row(row).decode_into(positions);
        let problem = if positions.len() != sources.len() {
            format!("list {row} has {} times, and {} edges", positions.len(), sources.len())
        } else if !positions.iter().zip(sources).is_sorted() {
            format!("the sources of row {row} with one time do not ascend")
        } else {
            return None;
        };
        let offset = self.file.header().payload_offset + times.locate(row).extent().start;
        Some(Error::format(self.file.path())(FormatError::invalid(offset, problem)))
    }
}
