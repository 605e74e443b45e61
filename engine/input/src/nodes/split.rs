//! Lists of node ids: of nodes for training, validation or test, and of the rows of node data.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use super::{
    column_ids::ColumnIds,
    column_parts::open_part,
    forms::{InputPlace, TableForm},
    text_table::{IdColumn, TextTable},
};
use crate::{
    columnar::{ColumnTable, values::text},
    columns::is_id_name,
    conversions::Conversion,
    edges::{BadEdge, IdKind, IdLimit, Keys, id_of_float, integer, is_comment},
    file::InputFile,
    folder::files_of,
    input::{Input, MemoryData, MemoryInput},
    kinds::{self, refuse_other_kinds},
    line_reader::{Line, Lines},
    messages::{shown, wrong_rows},
    npy::{self, ArrayReader, NpyArray},
    separator::Field,
    zip::Npz,
};

const BATCH: usize = 1 << 16;
/// Strings that are read at a time from Parquet.
const STRINGS: usize = 1 << 12;
/// Bytes of strings after which a batch ends, though it has fewer ids.
const BATCH_BYTES: usize = 4 << 20;

/// A list of node ids: a `.npy` array of integers of shape `[M]` or `[M, 1]`; a `.npy` array of bool of shape `[N]` (a mask);
/// Parquet with a column of ids, or a folder of such files; or text, compressed or not, with one id per line. Lists of integers have
/// comments before the first id, as edge lists do. A list of strings has none: an id may begin as a comment does.
pub struct SplitSource {
    path: PathBuf,
    /// The file that is read: the only one, or the next of a folder.
    file: Arc<InputFile>,
    ids: IdKind,
    limit: IdLimit,
    form: TableForm,
    content: IdContent,
    /// Whether a line of data was read. No line after it is a comment.
    in_data: bool,
    /// Positions of the last batch of ids in the file.
    positions: Vec<Position>,
}

enum IdContent {
    Array {
        reader: ArrayReader,
        next: u64,
    },
    /// Text with an id in each line, or a table with a column of ids.
    Text(Lines, Option<IdColumn>),
    Columns(Box<ColumnIdFiles>),
}

/// The ids in tables, one after another.
struct ColumnIdFiles {
    ids: ColumnIds,
    rest: vec::IntoIter<PathBuf>,
    rows: u64,
}

/// The ids in a column of a table.
fn table_of_ids(table: ColumnTable, ids: IdKind, form: &TableForm) -> Result<IdContent> {
    let ids = ColumnIds::open(table, ids, form, None)?;
    Ok(IdContent::Columns(Box::new(ColumnIdFiles { rows: ids.rows(), ids, rest: Vec::new().into_iter() })))
}

/// The ids in an array, or a mask unless the order of the ids counts.
fn array_of_ids(array: NpyArray, ids: IdKind, ordered: bool) -> Result<IdContent> {
    if ids == IdKind::String {
        return Err(array.error(
            "the nodes have string ids (--ids string), so a list of them must be a text file with one id per line",
        ));
    }
    let is_masks = array.element == ElementType::Bool && array.shape.len() == 2 && array.shape[1] > 1;
    if is_masks && !ordered {
        return Err(array.error(format!(
            "expected a mask, bool of shape [N]; found several of them, shape {}: choose one, such as the first: {}",
            array.shape_shown(),
            array.extent.file.remedy(Conversion::FirstMask)
        )));
    }
    let is_read = !array.element.is_float() || matches!(array.element, ElementType::F32 | ElementType::F64);
    if !matches!(*array.shape, [_] | [_, 1]) || !is_read || ordered && array.element == ElementType::Bool {
        let expected = match ordered {
            true => "integers of shape [N]",
            false => "integers of shape [M], or a mask, bool of shape [N]",
        };
        return Err(array.error(format!(
            "expected node ids, {expected}; found {} of shape {}; if its numbers are the ids, convert it: {}",
            array.element.name(),
            array.shape_shown(),
            array.extent.file.remedy(Conversion::RavelIntegers)
        )));
    }
    Ok(IdContent::Array { reader: array.reader(), next: 0 })
}

impl SplitSource {
    /// Opens `path`. Integer ids must be below `limit`.
    pub fn open(input: impl Into<Input>, ids: IdKind, limit: IdLimit) -> Result<Self> {
        Self::open_with(input, ids, limit, &TableForm::default())
    }

    /// The same, with the column of Parquet that the user names.
    pub fn open_with(input: impl Into<Input>, ids: IdKind, limit: IdLimit, form: &TableForm) -> Result<Self> {
        Self::open_list(&input.into(), ids, limit, form, false)
    }

    /// The same for a list whose order counts, so it may not be a mask.
    pub fn open_ordered(input: impl Into<Input>, ids: IdKind, limit: IdLimit, form: &TableForm) -> Result<Self> {
        Self::open_list(&input.into(), ids, limit, form, true)
    }

    /// The ids of the rows of a table, in the column that [`MatrixSource`](super::MatrixSource) finds as well.
    pub fn open_table(input: impl Into<Input>, ids: IdKind, limit: IdLimit, form: &TableForm) -> Result<Self> {
        let input = input.into();
        let path = match &input {
            Input::Path(path) if !path.is_dir() => path,
            Input::Path(_) | Input::Parts(_) | Input::Memory(_) => {
                return Self::open_list(&input, ids, limit, form, false);
            }
        };
        let file = InputFile::open(path)?;
        if file.head(8)?.starts_with(kinds::PARQUET) {
            return Self::open_list(&input, ids, limit, form, false);
        }
        let table = TextTable::read(&file, form)?;
        let column = table.as_ref().map(|table| table.ids(path, form)).transpose()?.flatten();
        let (Some(table), Some(column)) = (table, column) else {
            let problem = "expected a column of ids, with a name such as id, and other columns";
            return Err(Error::input(path, Position::Line(1), problem));
        };
        let mut lines = Lines::of_file(&file)?;
        if table.header {
            lines.next_line()?;
        }
        Ok(Self::new(path, file, ids, limit, form, IdContent::Text(lines, Some(column))))
    }

    /// Opens the Parquet files of a table that is called `path`.
    fn open_parts(path: &Path, files: Vec<PathBuf>, ids: IdKind, limit: IdLimit, form: &TableForm) -> Result<Self> {
        let (mut rows, mut name) = (0, None::<String>);
        // All are opened before any is read, so that a mistake is found soon.
        for path in &files {
            let part = ColumnIds::open(open_part(path)?, ids, form, name.as_deref())?;
            rows += part.rows();
            let expected = name.get_or_insert_with(|| part.name().to_owned());
            if part.name() != expected {
                let problem = format!(
                    "the column of ids is {}, and {expected} in other files of the table; write it again with the same columns",
                    part.name()
                );
                return Err(Error::input(path, Position::Whole, problem));
            }
        }
        let mut rest = files.into_iter();
        let first = open_part(&rest.next().expect("a table has files"))?;
        let file = first.file.clone();
        let content = IdContent::Columns(Box::new(ColumnIdFiles {
            ids: ColumnIds::open(first, ids, form, name.as_deref())?,
            rest,
            rows,
        }));
        Ok(Self::new(path, file, ids, limit, form, content))
    }

    /// Opens `input`. `ordered`: it may not be a mask.
    fn open_list(input: &Input, ids: IdKind, limit: IdLimit, form: &TableForm, ordered: bool) -> Result<Self> {
        let path = match input {
            Input::Path(path) => path,
            Input::Parts(parts) => return Self::open_parts(&parts.name, parts.files.clone(), ids, limit, form),
            Input::Memory(input) => return Self::in_memory(input, ids, limit, form, ordered),
        };
        if path.is_dir() {
            return Self::open_parts(path, files_of(path)?, ids, limit, form);
        }
        let file = InputFile::open(path)?;
        refuse_other_kinds(&file)?;
        let head = file.head(8)?;
        if head.starts_with(kinds::ZIP) {
            let archive = Npz::open(&file)?;
            let problem = format!(
                "a list of ids is not read from a .npz archive, which has {}; save the right array as .npy: {}",
                archive.names.join(", "),
                Conversion::NamedArray.command_for(path, archive.names.first().map_or("NAME", String::as_str))
            );
            return Err(Error::input(path, Position::Whole, problem));
        }
        let content = if head.starts_with(kinds::PARQUET) {
            table_of_ids(ColumnTable::open(&file)?, ids, form)?
        } else if head.starts_with(kinds::NPY) || npy::has_extension(path) {
            array_of_ids(NpyArray::open(&file)?, ids, ordered)?
        } else {
            IdContent::Text(Lines::of_file(&file)?, None)
        };
        Ok(Self::new(path, file, ids, limit, form, content))
    }

    fn in_memory(input: &MemoryInput, ids: IdKind, limit: IdLimit, form: &TableForm, ordered: bool) -> Result<Self> {
        let (file, content) = match (ColumnTable::of_memory(input)?, &input.data) {
            (Some(table), _) => (table.file.clone(), table_of_ids(table, ids, form)?),
            (None, MemoryData::Array(array)) => {
                let array = NpyArray::in_memory(&input.name, array)?;
                (array.extent.file.clone(), array_of_ids(array, ids, ordered)?)
            }
            (None, _) => {
                let problem = "expected node ids, or a mask, found a sparse matrix";
                return Err(Error::input(&input.name, Position::Whole, problem));
            }
        };
        Ok(Self::new(&input.name, file, ids, limit, form, content))
    }

    fn new(
        path: &Path,
        file: Arc<InputFile>,
        ids: IdKind,
        limit: IdLimit,
        form: &TableForm,
        content: IdContent,
    ) -> Self {
        Self {
            path: path.to_owned(),
            file,
            ids,
            limit,
            form: form.clone(),
            content,
            in_data: false,
            positions: Vec::new(),
        }
    }

    /// The file, or the folder of its parts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A warning about the first line of a list of strings that has the name of a column of ids.
    pub fn warning(&self) -> Result<Option<String>> {
        if self.ids != IdKind::String || !matches!(self.content, IdContent::Text(_, None)) {
            return Ok(None);
        }
        let Some(line) = Lines::of_file(&self.file)?.next_line()? else {
            return Ok(None);
        };
        let text = line.text();
        let is_name = std::str::from_utf8(text).is_ok_and(is_id_name);
        Ok(is_name.then(|| {
            format!(
                "{}:1: the first line, {}, is read as an id; if it is a header, remove it: {}",
                self.path().display(),
                shown(text),
                Conversion::RemoveHeader.command(self.path())
            )
        }))
    }

    /// Number of ids, if it is known before they are read: in arrays other than masks, and in Parquet.
    pub fn ids(&self) -> Option<u64> {
        match &self.content {
            IdContent::Array { reader, .. } if !self.is_mask() => Some(reader.array.shape[0]),
            IdContent::Columns(parts) => Some(parts.rows),
            _ => None,
        }
    }

    /// Bytes of the file or of the data: of a folder, of the file that is read.
    pub fn total_bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Whether it is a mask, whose rows are dense ids.
    pub fn is_mask(&self) -> bool {
        matches!(&self.content, IdContent::Array { reader, .. } if reader.array.element == ElementType::Bool)
    }

    /// Refuses a mask that does not have one row for each of `nodes` nodes. `if_more` is advice for more rows.
    pub fn expect_rows(&self, nodes: u64, if_more: &str) -> Result<()> {
        match &self.content {
            IdContent::Array { reader, .. } if self.is_mask() && reader.array.shape[0] != nodes => {
                let array = &reader.array;
                Err(array.error(wrong_rows(nodes, array.shape[0], if_more)))
            }
            _ => Ok(()),
        }
    }

    /// The place of the id at `index` of the last batch.
    pub fn place(&self, index: usize) -> InputPlace<'_> {
        InputPlace { path: self.file.path(), position: self.positions[index] }
    }

    /// Goes to the next file of a folder if the ids of one have ended.
    fn next_part(&mut self) -> Result<()> {
        if let IdContent::Columns(parts) = &mut self.content {
            while parts.ids.is_at_end()
                && let Some(path) = parts.rest.next()
            {
                let part = open_part(&path)?;
                self.file = part.file.clone();
                let name = parts.ids.name().to_owned();
                parts.ids = ColumnIds::open(part, self.ids, &self.form, Some(&name))?;
            }
        }
        Ok(())
    }

    /// Replaces the contents of `out` with the next ids. Returns false at the end.
    ///
    /// # Panics
    /// If the source was opened with [`IdKind::String`].
    pub fn next_ids(&mut self, out: &mut Vec<u64>) -> Result<bool> {
        assert_eq!(self.ids, IdKind::Integer, "string ids are read by next_keys");
        out.clear();
        self.positions.clear();
        self.next_part()?;
        match &mut self.content {
            IdContent::Array { reader, next } => {
                let array = &reader.array;
                let mut bytes = Vec::new();
                // A piece of a mask may hold no id. That is not the end.
                while out.is_empty() && *next < array.shape[0] {
                    let count = (array.shape[0] - *next).min(BATCH as u64) as usize;
                    let width = array.element.bytes();
                    bytes.resize(count * width, 0);
                    reader.read(*next, &mut bytes)?;
                    for (row, bytes) in (*next..).zip(bytes.chunks_exact(width)) {
                        let position = Position::Row(row);
                        let id = match array_id(array.element, bytes, row) {
                            Ok(None) => continue,
                            Ok(Some(id)) if id < self.limit.exclusive() => id,
                            Ok(Some(id)) => {
                                return Err(bad(&self.file, position, &id.to_string(), BadEdge::TooLarge(self.limit)));
                            }
                            Err((found, reason)) => return Err(bad(&self.file, position, &found, reason)),
                        };
                        out.push(id);
                        self.positions.push(position);
                    }
                    *next += count as u64;
                }
            }
            IdContent::Text(lines, column) => {
                while out.len() < BATCH
                    && let Some(line) = lines.next_line()?
                {
                    let (text, remedy) = match column {
                        Some(column) => (
                            id_of_row(&self.file, &line, *column)?,
                            "; names need --ids string; if another column has the ids, give --id",
                        ),
                        None => (line.text().into(), ""),
                    };
                    if column.is_none() && (text.is_empty() || is_comment(&text) && !self.in_data) {
                        continue;
                    }
                    self.in_data = true;
                    let position = Position::Line(line.number);
                    out.push(integer(&text, self.limit).map_err(|reason| {
                        let problem =
                            format!("expected one node id, found {}: {}{remedy}", shown(&text), reason.reason());
                        Error::input(self.file.path(), position, problem)
                    })?);
                    self.positions.push(position);
                }
            }
            IdContent::Columns(parts) => {
                let first = parts.ids.next_row();
                for (row, id) in (first..).zip(parts.ids.next_integers(BATCH)?) {
                    let position = Position::Row(row);
                    match u64::try_from(id) {
                        Ok(id) if id < self.limit.exclusive() => out.push(id),
                        Err(_) if id < 0 => return Err(bad(&self.file, position, &id.to_string(), BadEdge::Negative)),
                        _ => return Err(bad(&self.file, position, &id.to_string(), BadEdge::TooLarge(self.limit))),
                    }
                    self.positions.push(position);
                }
            }
        }
        Ok(!out.is_empty())
    }

    /// Replaces the contents of `out` with the next keys. Returns false at the end.
    ///
    /// # Panics
    /// If the source was opened with [`IdKind::Integer`].
    pub fn next_keys(&mut self, out: &mut Keys) -> Result<bool> {
        assert_eq!(self.ids, IdKind::String, "integer ids are read by next_ids");
        out.clear();
        self.positions.clear();
        self.next_part()?;
        let (lines, column) = match &mut self.content {
            IdContent::Array { .. } => unreachable!("arrays are refused when opened for strings"),
            IdContent::Columns(parts) => {
                let first = parts.ids.next_row();
                let Some(ids) = parts.ids.next_strings(STRINGS)? else {
                    return Ok(false);
                };
                for index in 0..ids.len() {
                    let position = Position::Row(first + index as u64);
                    let id = text(&ids, index).unwrap_or_default();
                    if id.is_empty() || str::from_utf8(id).is_err() {
                        let problem = format!("expected a node id in UTF-8, found {}", shown(id));
                        return Err(Error::input(self.file.path(), position, problem));
                    }
                    out.push(id);
                    self.positions.push(position);
                }
                return Ok(!out.is_empty());
            }
            IdContent::Text(lines, column) => (lines, *column),
        };
        while out.len() < BATCH
            && out.bytes.len() < BATCH_BYTES
            && let Some(line) = lines.next_line()?
        {
            let text = match column {
                Some(column) => id_of_row(&self.file, &line, column)?,
                None => line.text().into(),
            };
            if text.is_empty() {
                continue;
            }
            let position = Position::Line(line.number);
            if std::str::from_utf8(&text).is_err() {
                return Err(Error::input(
                    self.file.path(),
                    position,
                    format!("expected one node id in UTF-8, found {}", shown(&text)),
                ));
            }
            out.push(&text);
            self.positions.push(position);
        }
        Ok(!out.is_empty())
    }
}

fn id_of_row<'a>(file: &InputFile, line: &'a Line, column: IdColumn) -> Result<Field<'a>> {
    column.id(&line.bytes).map_err(|problem| Error::input(file.path(), Position::Line(line.number), problem))
}

fn bad(file: &InputFile, position: Position, found: &str, reason: BadEdge) -> Error {
    Error::input(file.path(), position, format!("expected a node id, found {found}: {}", reason.reason()))
}

/// The id in a float with `digits` binary digits.
fn float_id(value: f64, digits: u32) -> std::result::Result<Option<u64>, (String, BadEdge)> {
    id_of_float(value, digits).map(Some).map_err(|bad| (value.to_string(), bad))
}

/// The id in an element: none if a mask leaves the node out. The error is a number that is no id.
pub(super) fn array_id(
    element: ElementType,
    bytes: &[u8],
    row: u64,
) -> std::result::Result<Option<u64>, (String, BadEdge)> {
    match (element, bytes) {
        (ElementType::Bool, _) => return Ok((bytes[0] != 0).then_some(row)),
        (ElementType::F32, &[a, b, c, d]) => {
            return float_id(f32::from_le_bytes([a, b, c, d]).into(), f32::MANTISSA_DIGITS);
        }
        (ElementType::F64, &[a, b, c, d, e, f, g, h]) => {
            return float_id(f64::from_le_bytes([a, b, c, d, e, f, g, h]), f64::MANTISSA_DIGITS);
        }
        _ => {}
    }
    let (id, is_signed) = widened(element, bytes);
    match is_signed && id.cast_signed() < 0 {
        true => Err((id.cast_signed().to_string(), BadEdge::Negative)),
        false => Ok(Some(id)),
    }
}

/// An integer extended to 64 bits, with its sign, and whether its type has one.
fn widened(element: ElementType, bytes: &[u8]) -> (u64, bool) {
    let is_signed = matches!(element, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64);
    let is_negative = is_signed && bytes[bytes.len() - 1] & 0x80 != 0;
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    (u64::from_le_bytes(wide), is_signed)
}

/// Reads all integer ids of a split.
pub fn read_split_ids(path: &Path, limit: IdLimit) -> Result<Vec<u64>> {
    let mut source = SplitSource::open(path, IdKind::Integer, limit)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while source.next_ids(&mut batch)? {
        all.extend_from_slice(&batch);
    }
    Ok(all)
}
