//! Files with one row of numbers per node: opening them, and the checks that features and labels share.

use std::{
    iter,
    path::{Path, PathBuf},
};

use grappa_io::{Error, Position, Result};

use super::{
    column_parts::{ColumnParts, Gaps, open_part},
    forms::{Forms, InputPlace, Layout, TableForm},
    sparse::Sparse,
    text_rows::TextRows,
};
use crate::{
    columnar::ColumnTable,
    conversions::Conversion,
    file::{InputFile, read_past_cache_if_large},
    folder::files_of,
    input::{Input, MemoryData, MemoryInput},
    kinds::{self, refuse_other_kinds},
    messages::{Checked, wrong_rows},
    npy::{self, ArrayReader, NpyArray},
    reading::Reading,
    sparse::SparseArrays,
    table::Cell,
    zip::Npz,
};

/// An open file, or folder of files, with one row of numbers per node.
pub struct NodeFile {
    input: Input,
    pub(super) content: Content,
    pub(super) layout: Layout,
    bytes: u64,
    rows: Option<u64>,
}

pub(super) enum Content {
    Dense(ArrayReader),
    Sparse(Box<Sparse>),
    Text(TextRows),
    Columns(Box<ColumnParts>),
}

/// Gets the number and the values of a row, or what is wrong with its line. An error says what is wrong with them.
pub(super) type EachRow<'a> = dyn FnMut(u64, Checked<&[Cell<'_>]>) -> Checked<()> + 'a;

impl NodeFile {
    /// Opens `input` and checks its shape.
    pub(super) fn open(input: &Input, forms: &'static Forms, form: &TableForm) -> Result<Self> {
        let path = match input {
            Input::Path(path) if path.is_dir() => {
                return Self::of_parts(input, &files_of(path)?, Gaps::Refused, forms, form);
            }
            Input::Path(path) => path,
            Input::Parts(parts) => return Self::of_parts(input, &parts.files, Gaps::Allowed, forms, form),
            Input::Memory(memory) => return Self::in_memory(input, memory, forms, form),
        };
        let file = InputFile::open(path)?;
        let head = file.head(8)?;
        if head.is_empty() {
            return Err(Error::input(path, Position::Whole, "this file is empty"));
        }
        refuse_other_kinds(&file)?;
        let (rows, layout, content) = if head.starts_with(kinds::ZIP) {
            let archive = Npz::open(&file)?;
            let matrix = match forms.sparse {
                true => SparseArrays::find(&archive, "attr_")?,
                false => None,
            };
            match matrix {
                Some(matrix) => sparse(matrix, forms)?,
                None => dense(archive.first_of(forms.arrays, forms.name)?, forms)?,
            }
        } else if head.starts_with(kinds::NPY) || npy::has_extension(path) {
            dense(NpyArray::open(&file)?, forms)?
        } else if head.starts_with(kinds::PARQUET) {
            let (table, layout) = ColumnParts::open(iter::once(ColumnTable::open(&file)), Gaps::Refused, forms, form)?;
            (Some(table.rows()), layout, Content::Columns(Box::new(table)))
        } else {
            let (text, layout) = TextRows::open(&file, forms, form)?;
            (None, layout, Content::Text(text))
        };
        read_past_cache_if_large([&*file].into_iter());
        Self::new(input, file.bytes(), rows, layout, content, forms)
    }

    /// Opens a table whose parts are Parquet files.
    fn of_parts(input: &Input, files: &[PathBuf], gaps: Gaps, forms: &'static Forms, form: &TableForm) -> Result<Self> {
        let tables = files.iter().map(|path| open_part(path));
        let (table, layout) = ColumnParts::open(tables, gaps, forms, form)?;
        Self::new(input, table.bytes, Some(table.rows()), layout, Content::Columns(Box::new(table)), forms)
    }

    fn in_memory(input: &Input, memory: &MemoryInput, forms: &'static Forms, form: &TableForm) -> Result<Self> {
        let MemoryInput { name, data } = memory;
        if let Some(table) = ColumnTable::of_memory(memory)? {
            let (table, layout) = ColumnParts::open(iter::once(Ok(table)), Gaps::Refused, forms, form)?;
            let rows = Some(table.rows());
            let content = Content::Columns(Box::new(table));
            return Self::new(input, data.total_bytes(), rows, layout, content, forms);
        }
        let (rows, layout, content) = match data {
            MemoryData::Array(array) => dense(NpyArray::in_memory(name, array)?, forms)?,
            MemoryData::Matrix(matrix) if forms.sparse => sparse(SparseArrays::in_memory(name, matrix)?, forms)?,
            MemoryData::Matrix(_) | MemoryData::Table(..) | MemoryData::Parquet(_) => {
                let problem = format!("expected {}, found a sparse matrix", forms.shapes);
                return Err(Error::input(name, Position::Whole, problem));
            }
        };
        Self::new(input, data.total_bytes(), rows, layout, content, forms)
    }

    fn new(
        input: &Input,
        bytes: u64,
        rows: Option<u64>,
        mut layout: Layout,
        content: Content,
        forms: &Forms,
    ) -> Result<Self> {
        if rows == Some(0) || !(1..=forms.columns_max).contains(&(layout.columns as u64)) {
            let problem = format!(
                "expected {} of at least one row and 1 to {} columns, found {} by {}",
                forms.name,
                forms.columns_max,
                rows.map_or_else(|| "some".to_owned(), |rows| rows.to_string()),
                layout.columns
            );
            return Err(Error::input(input.name(), Position::Whole, problem));
        }
        input.name().clone_into(&mut layout.reading.file);
        Ok(Self { input: input.clone(), content, layout, bytes, rows })
    }

    /// The file, the folder of its parts, or the data in memory.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// The file, the folder of its parts, or the name of the data.
    pub fn path(&self) -> &Path {
        &self.layout.reading.file
    }

    /// The place of a row.
    pub fn place(&self, row: u64) -> InputPlace<'_> {
        match &self.content {
            Content::Columns(table) => table.place(row),
            Content::Text(text) => InputPlace { path: self.path(), position: text.position(row) },
            Content::Dense(_) | Content::Sparse(_) => InputPlace { path: self.path(), position: Position::Row(row) },
        }
    }

    /// Number of rows. It is not known beforehand for text.
    pub fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// Whether it is a table with the ids of the rows, which [`SplitSource`](super::SplitSource) reads.
    pub fn has_ids(&self) -> bool {
        self.layout.reading.by_position == Some(false)
    }

    /// Calls `each` with the number and the values of up to `count` rows of a table from row `first` on, or with what is wrong with a
    /// line. Returns the number of rows.
    pub(super) fn read_cells(&self, first: u64, count: usize, each: &mut EachRow<'_>) -> Result<usize> {
        match &self.content {
            Content::Text(text) => text.read(first, count, &mut |row, fields| match fields {
                Ok(fields) => each(row, Ok(&fields.iter().map(|field| Cell::Raw(field)).collect::<Vec<_>>())),
                Err(problem) => each(row, Err(problem)),
            }),
            Content::Columns(table) => {
                let mut row = first;
                table.read_cells(first, count, &mut |cells| {
                    row += 1;
                    each(row - 1, Ok(cells))
                })
            }
            Content::Dense(_) | Content::Sparse(_) => unreachable!("arrays have no names of columns"),
        }
    }

    /// How the file is read.
    pub fn reading(&self) -> Reading {
        self.layout.reading.clone()
    }

    /// Bytes of memory that stay in use between reads: a page of each column of Parquet, or the entries of a sparse matrix.
    pub fn held_bytes(&self) -> u64 {
        match &self.content {
            Content::Columns(table) => table.held_bytes,
            Content::Sparse(sparse) => sparse.held_bytes(),
            Content::Text(_) | Content::Dense(_) => 0,
        }
    }

    /// Size in bytes, of all files of a folder.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether reading is cheap only front to back, by one thread.
    pub fn is_sequential(&self) -> bool {
        match &self.content {
            Content::Dense(reader) => reader.is_sequential(),
            Content::Sparse(sparse) => sparse.is_sequential(),
            Content::Text(_) | Content::Columns(_) => true,
        }
    }

    /// Refuses a file that does not have one row for each of `nodes` nodes. The rows of text are counted only as they are
    /// read, so for text the error comes from the read that meets the wrong end. `if_more` is advice for more rows.
    pub fn expect_rows(&mut self, nodes: u64, if_more: &'static str) -> Result<()> {
        if let Content::Text(text) = &mut self.content {
            text.expect_rows(nodes, if_more);
        }
        match self.rows {
            Some(rows) if rows != nodes => {
                let problem = wrong_rows(nodes, rows, if_more);
                Err(Error::input(self.path(), Position::Whole, problem))
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the members of an archive have their CRC-32. It reads the bytes that were not read yet. Call it before you rely on
    /// any row.
    pub fn check(&self) -> Result<()> {
        match &self.content {
            Content::Dense(reader) => reader.check(),
            Content::Sparse(sparse) => sparse.check(),
            // The pages of Parquet have checksums of their own.
            Content::Text(_) | Content::Columns(_) => Ok(()),
        }
    }
}

fn sparse(matrix: SparseArrays, forms: &Forms) -> Result<(Option<u64>, Layout, Content)> {
    let sparse = Sparse::open(matrix)?;
    let layout = Layout::matrix(forms, "sparse matrix", sparse.columns as usize, sparse.element);
    Ok((Some(sparse.rows), layout, Content::Sparse(Box::new(sparse))))
}

fn dense(array: NpyArray, forms: &Forms) -> Result<(Option<u64>, Layout, Content)> {
    let (rows, columns) = match *array.shape {
        [rows] => (rows, 1),
        [rows, columns] => (rows, columns),
        _ => {
            return Err(array.error(format!(
                "{} must have {}, found {}{}",
                forms.name,
                forms.shapes,
                array.shape_shown(),
                match array.shape.len() {
                    0 => String::new(),
                    _ => format!("; convert it: {}", array.extent.file.remedy(Conversion::FlattenRows)),
                }
            )));
        }
    };
    let reader = array.reader();
    if array.has_columns && reader.is_sequential() {
        return Err(array.error(format!(
            "the array is packed column by column (Fortran order), so no row can be read without all of it; convert it: {}",
            array.extent.file.remedy(Conversion::ColumnsToRows)
        )));
    }
    let layout = Layout::matrix(forms, "array", columns as usize, array.element);
    Ok((Some(rows), layout, Content::Dense(reader)))
}
