//! Tables with a row for each node: its id, and columns that a program made.

use std::ops::Range;

use grappa_formats::{DenseId, manifest::ExternalIds};
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::export::{
    made::MadeRows,
    table::{Cells, Column, Scalar, Shape, TableOut, Values, group_rows, write_table},
};

pub(super) const ID: &str = "id";

/// The dense ids of rows.
#[derive(Debug)]
pub enum DenseIds {
    /// The ids of all nodes: their number.
    All(u64),
    /// These, in this order.
    Some(Vec<DenseId>),
    /// A set, ascending.
    Set(RoaringTreemap),
}

impl DenseIds {
    /// The number of rows.
    pub fn len(&self) -> u64 {
        match self {
            Self::All(nodes) => *nodes,
            Self::Some(ids) => ids.len() as u64,
            Self::Set(ids) => ids.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids of some rows.
    pub(super) fn of(&self, rows: Range<u64>) -> Box<dyn Iterator<Item = DenseId> + '_> {
        match self {
            Self::All(_) => Box::new(rows.map(DenseId)),
            Self::Some(ids) => Box::new(ids[rows.start as usize..rows.end as usize].iter().copied()),
            Self::Set(ids) => {
                let mut members = ids.iter();
                if let Some(first) = ids.select(rows.start) {
                    members.advance_to(first);
                }
                Box::new(members.take((rows.end - rows.start) as usize).map(DenseId))
            }
        }
    }

    /// All rows in groups of at most `rows`.
    pub(super) fn groups(&self, rows: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let end = self.len();
        (0..end).step_by(rows as usize).map(move |first| first..end.min(first + rows))
    }
}

/// A table of nodes. Its first column is called `id` and has integers or strings, as the store.
#[derive(Debug)]
pub struct NodeTable<'a> {
    /// The store of the nodes.
    pub store: &'a Store,
    /// The id of each row.
    pub ids: &'a DenseIds,
    /// The columns beside the id.
    pub columns: Vec<Column>,
    /// Whether to escape bytes of ids that are not UTF-8 in Parquet, instead of refusing them.
    pub escapes_ids: bool,
}

impl NodeTable<'_> {
    /// Writes a table of ids alone. Returns the number of bytes.
    ///
    /// # Errors
    /// If the store cannot be read or the table cannot be written, or progress says to stop.
    pub fn write_ids(&self, out: TableOut<'_>, progress: &dyn Progress) -> Result<u64> {
        self.write_groups(out, size_of::<u64>(), progress, |_| Ok(Vec::new()))
    }

    /// Writes the table. `cells` makes the columns of some rows from their bytes in `rows`, which are in the order of the ids. Returns the
    /// number of bytes.
    ///
    /// # Errors
    /// As [`NodeTable::write_ids`].
    pub fn write(
        &self,
        out: TableOut<'_>,
        rows: &MadeRows,
        progress: &dyn Progress,
        cells: impl Fn(&[u8]) -> Vec<Cells>,
    ) -> Result<u64> {
        let mut bytes = Vec::new();
        progress.stage("writing the table", Some(self.ids.len() * rows.row_bytes() as u64));
        self.write_groups(out, rows.row_bytes(), progress, |group| {
            bytes.resize((group.end - group.start) as usize * rows.row_bytes(), 0);
            rows.read(group.start, &mut bytes)?;
            progress.advance(bytes.len() as u64, 0);
            Ok(cells(&bytes))
        })
    }

    fn write_groups(
        &self,
        out: TableOut<'_>,
        row_bytes: usize,
        progress: &dyn Progress,
        mut cells: impl FnMut(Range<u64>) -> Result<Vec<Cells>>,
    ) -> Result<u64> {
        let escapes = self.escapes_ids && matches!(out, TableOut::File(_, super::table::TableFormat::Parquet));
        let mut columns = vec![Column::new(ID, id_scalar(self.store)?, Shape::One)];
        columns.extend_from_slice(&self.columns);
        write_table(out, &columns, |sink| {
            for group in self.ids.groups(group_rows(row_bytes, self.ids.len())) {
                let mut all = vec![id_values(self.store, self.ids.of(group.clone()), escapes)?.into()];
                all.extend(cells(group)?);
                sink.write(&all)?;
                check_stopped(progress)?;
            }
            Ok(())
        })
    }
}

/// The type of external ids in a table: signed integers if these are large enough, as most programs expect.
pub(super) fn id_scalar(store: &Store) -> Result<Scalar> {
    let nodes = store.manifest().nodes;
    Ok(match store.manifest().ids.external {
        ExternalIds::String => Scalar::Text,
        ExternalIds::Sparse if nodes > 0 && store.ids().integer_at(DenseId(nodes - 1))? > i64::MAX as u64 => {
            Scalar::Unsigned
        }
        ExternalIds::Dense | ExternalIds::Sparse => Scalar::Integer,
    })
}

/// NumPy's name for the type of integer ids.
pub(super) fn id_descr(store: &Store) -> Result<&'static str> {
    match id_scalar(store)? {
        Scalar::Unsigned => Ok("<u8"),
        Scalar::Text => {
            let what =
                "ids are strings, which a .npy of integers cannot hold; export to a file called .tsv, .csv or .txt";
            Err(Error::input(store.path(), Position::Whole, what))
        }
        _ => Ok("<i8"),
    }
}

pub(super) fn id_values(store: &Store, ids: impl Iterator<Item = DenseId>, escapes: bool) -> Result<Values> {
    if store.manifest().ids.external != ExternalIds::String {
        let integers = ids.map(|id| Ok(store.ids().integer_at(id)?.cast_signed()));
        return Ok(Values::Integers(integers.collect::<Result<_>>()?));
    }
    let texts = ids.map(|id| {
        let mut text = Vec::new();
        store.ids().append_text_at(id, &mut text)?;
        Ok(match escapes && std::str::from_utf8(&text).is_err() {
            true => text.escape_ascii().to_string().into_bytes(),
            false => text,
        })
    });
    Ok(Values::Texts(texts.collect::<Result<_>>()?))
}
