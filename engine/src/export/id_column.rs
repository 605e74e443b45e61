//! Columns of external ids.

use std::{borrow::Cow, path::Path, sync::Arc};

use arrow_array::{ArrayRef, Int64Array, UInt64Array, builder::BinaryBuilder};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field};
use grappa_formats::{DenseId, NodeId, manifest::ExternalIds};
use grappa_io::{Error, Position, Result};
use grappa_storage::StoreIds;

use crate::export::table::TableFormat;

/// How strings fit the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StringIds {
    /// As they are.
    Verbatim,
    /// With escapes, where they are not UTF-8.
    Escaped,
    /// As they are, or refused if the readers of edges would not read them back.
    OfEdges(TableFormat),
    /// As they are, or refused if they cannot stand in a line without quotes.
    Lines,
}

/// A column of external ids: strings, or integers, signed ones if these are large enough, as most programs expect.
pub(super) struct IdColumn<'a> {
    ids: &'a StoreIds,
    /// The folder of the store, for errors.
    path: &'a Path,
    data_type: DataType,
    strings: StringIds,
}

impl<'a> IdColumn<'a> {
    /// # Errors
    /// If ids are strings, and the table is an array.
    pub fn new(ids: &'a StoreIds, path: &'a Path, format: TableFormat, strings: StringIds) -> Result<Self> {
        let nodes = ids.nodes();
        let data_type = match ids.kind() {
            ExternalIds::String if format == TableFormat::Npy => {
                let problem =
                    "ids are strings, which a .npy of integers cannot hold; export to a file called .tsv, .csv or .txt";
                return Err(Error::input(path, Position::Whole, problem));
            }
            ExternalIds::String => DataType::Binary,
            ExternalIds::Sparse if nodes > 0 && i64::try_from(ids.integer_at(DenseId(nodes - 1))?).is_err() => {
                DataType::UInt64
            }
            ExternalIds::Dense | ExternalIds::Sparse => DataType::Int64,
        };
        Ok(Self { ids, path, data_type, strings })
    }

    /// The external ids of nodes.
    pub fn node_ids(&self, nodes: &[NodeId]) -> Result<ArrayRef> {
        self.array(self.ids.dense_ids(nodes)?.into_iter().map(DenseId))
    }

    pub fn field(&self, name: &str) -> Field {
        Field::new(name, self.data_type.clone(), false)
    }

    /// The external ids of some rows.
    pub fn array(&self, ids: impl Iterator<Item = DenseId>) -> Result<ArrayRef> {
        self.repeated(ids.map(|id| (id, 1)))
    }

    /// The external ids of some rows, and for each the number of its rows.
    pub fn repeated(&self, ids: impl Iterator<Item = (DenseId, usize)>) -> Result<ArrayRef> {
        if self.data_type != DataType::Binary {
            let mut integers = Vec::with_capacity(ids.size_hint().0);
            for (id, rows) in ids {
                let integer = self.ids.integer_at(id)?;
                match rows {
                    1 => integers.push(integer),
                    _ => integers.extend(std::iter::repeat_n(integer, rows)),
                }
            }
            let integers = Buffer::from_vec(integers);
            return Ok(match self.data_type {
                DataType::UInt64 => Arc::new(UInt64Array::new(integers.into(), None)),
                _ => Arc::new(Int64Array::new(integers.into(), None)),
            });
        }
        let (mut strings, mut text) = (BinaryBuilder::new(), Vec::new());
        for (id, rows) in ids {
            text.clear();
            self.ids.append_text_at(id, &mut text)?;
            let fitting = self.fitting(&text)?;
            (0..rows).for_each(|_| strings.append_value(&fitting));
        }
        Ok(Arc::new(strings.finish()))
    }

    /// A string as the table has it.
    fn fitting<'t>(&self, id: &'t [u8]) -> Result<Cow<'t, [u8]>> {
        let ends = [id.first(), id.last()];
        let has_end = |ends_of: &[u8]| ends.iter().any(|end| end.is_none_or(|end| ends_of.contains(end)));
        let has = |bytes: &[u8]| id.iter().any(|byte| bytes.contains(byte));
        let remedy = match self.strings {
            StringIds::Escaped if str::from_utf8(id).is_err() => {
                return Ok(id.escape_ascii().to_string().into_bytes().into());
            }
            StringIds::OfEdges(TableFormat::Csv | TableFormat::Tsv) if id.is_empty() || has(b"\n\r\0") => {
                " of text; no text format of edges can hold it"
            }
            StringIds::OfEdges(TableFormat::Tsv) if has_end(b" ") || has(b"\t") => {
                " of text; export to a file called .csv, which has quotes"
            }
            StringIds::Lines if has_end(b" \t") || has(b"\n\r") => " of its own",
            _ => return Ok(id.into()),
        };
        let problem = format!("the id \"{}\" cannot stand in a line{remedy}", id.escape_ascii());
        Err(Error::input(self.path, Position::Whole, problem))
    }
}
