//! Features: one row of numbers per node.
//!
//! Formats: `.npy` arrays, an array in a `.npz` archive, a sparse matrix as `scipy.sparse.save_npz` writes it, Parquet, and
//! text such as OGB's `node-feat.csv.gz`. Feature rows are returned as f32. The columns of a table may have other values, which
//! [`MatrixSource::fit`] makes numbers of.
//!
//! **Cost**: any number of threads read a plain array in place. Deflated arrays, text and Parquet are unpacked front to back;
//! read them with one thread, in order ([`MatrixSource::is_sequential`]). Memory: the requested rows. A deflated sparse matrix
//! unpacks three streams side by side.

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use grappa_formats::{
    features::{DIM_MAX, ElementType},
    schema::Column,
};
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
};

use super::{
    forms::{Forms, InputPlace, TableForm},
    node_file::{Content, NodeFile},
    split::SplitSource,
};
use crate::{
    columns::Purpose,
    edges::{IdKind, IdLimit, Keys},
    input::Input,
    messages::shown,
    reading::{ColumnReading, Reading},
    spread::Spread,
    table::{ColumnFit, Encoder, EncodingOptions, Fitted, ProblemKind, Problems, RowNames, described},
};

/// Rows between two looks at whether the caller wants to stop.
const FIT_ROWS: usize = 1 << 14;

/// Numbers of a dense matrix in rows that are read and converted at a time.
const DENSE_PIECE: usize = 1 << 16;

/// The most columns without names that are measured: a spread takes as much memory as eight numbers of each row.
const MEASURED_MAX: usize = 1 << 16;

const FORMS: Forms = Forms {
    name: "features",
    arrays: &["node_feat", "features", "feat", "x"],
    shapes: "shape [N, D], a row per node",
    columns_max: DIM_MAX as u64,
    sparse: true,
    blank_lines: false,
    purpose: Purpose::Features,
};

/// A matrix with one row per node.
pub struct MatrixSource {
    file: NodeFile,
    form: TableForm,
    /// The encoding of the columns, if they have names.
    encoder: Option<Encoder>,
    fitted: Vec<Fitted>,
    /// Whether NaN and infinity are values like others.
    allow_nan: bool,
    /// The values so far that do not fit the encoding.
    problems: Mutex<Problems>,
    /// The spread of each column, if they have no names and are not too many.
    spreads: Vec<Spread>,
    non_finite: Mutex<Option<NonFinite>>,
}

/// Numbers among those read that are NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonFinite {
    /// How many there are.
    pub count: u64,
    /// The row of the first one, from 0.
    pub row: u64,
    /// Its column, from 0.
    pub column: usize,
}

impl Deref for MatrixSource {
    type Target = NodeFile;

    fn deref(&self) -> &NodeFile {
        &self.file
    }
}

impl DerefMut for MatrixSource {
    fn deref_mut(&mut self) -> &mut NodeFile {
        &mut self.file
    }
}

impl MatrixSource {
    /// Opens the matrix in `path` and checks its shape and type.
    ///
    /// From a `.npz` archive it takes the sparse matrix if there is one, else the array `node_feat`, `features`, `feat` or
    /// `x`, else the only array. From a table it takes all columns but ids, labels and splits. If they have other values than numbers,
    /// call [`Self::fit`].
    pub fn open(input: impl Into<Input>) -> Result<Self> {
        Self::open_with(input, &TableForm::default())
    }

    /// The same, with columns of a table that the user names.
    pub fn open_with(input: impl Into<Input>, form: &TableForm) -> Result<Self> {
        let file = NodeFile::open(&input.into(), &FORMS, form)?;
        let names = &file.layout.names;
        let is_measured = names.is_empty() && file.layout.columns <= MEASURED_MAX;
        let spreads = Spread::columns(if is_measured { file.layout.columns } else { 0 });
        Ok(Self {
            encoder: (!names.is_empty()).then(|| Encoder::of_numbers(names.to_vec())),
            file,
            form: form.clone(),
            fitted: Vec::new(),
            allow_nan: false,
            problems: Mutex::default(),
            spreads,
            non_finite: Mutex::default(),
        })
    }

    /// Numbers per row.
    pub fn dim(&self) -> usize {
        self.encoder.as_ref().map_or(self.layout.columns, Encoder::dim)
    }

    /// The columns of a table, and what each becomes. Empty if they have no names.
    pub fn columns(&self) -> &[Column] {
        self.encoder.as_ref().map_or(&[], |encoder| &encoder.columns)
    }

    /// Chooses what each column of a table becomes, from all of its values. Reads the table if its types or its first rows have other
    /// values than numbers, or if `options` ask for anything. `allow_nan`: missing values without a replacement are NaN. `ids`: the kind
    /// of the ids of its rows, for errors.
    ///
    /// # Errors
    /// All problems of all columns: missing values without a replacement, text among numbers, and the like.
    pub fn fit(
        &mut self,
        options: &EncodingOptions,
        allow_nan: bool,
        ids: IdKind,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.allow_nan = allow_nan;
        if self.encoder.is_none() {
            if !options.is_given() || options.examine {
                return Ok(());
            }
            let problem = "options for the columns of a table of features were given, but these have no names; give a table with a header";
            return Err(Error::input(self.path(), Position::Whole, problem));
        }
        if let Some(schema) = &options.schema {
            self.encoder = Some(Encoder::new(schema.features.clone()));
            return Ok(());
        }
        let names = self.layout.names.clone();
        if let Some(unknown) = options.missing.columns().find(|name| !names.iter().any(|own| own == name)) {
            return Err(Error::conflict(
                format!("--missing names the column {unknown}, which is none of the features"),
                format!("name one of {}", names.join(", ")),
            ));
        }
        if self.layout.are_numbers && !options.is_given() {
            return Ok(());
        }
        progress.stage("examining the columns of features", None);
        let mut columns: Vec<ColumnFit> = names.iter().map(|_| ColumnFit::new()).collect();
        let (mut problems, values_max, mut row) = (Problems::default(), options.values_max(), 0);
        loop {
            let read = self.file.read_cells(row, FIT_ROWS, &mut |row, cells| {
                match cells {
                    Ok(cells) => {
                        let columns = columns.iter_mut().zip(cells);
                        columns.for_each(|(column, &cell)| column.add(row, cell, values_max));
                    }
                    Err(problem) => problems.add(ProblemKind::Line, 0, row, &problem),
                }
                Ok(())
            })?;
            if read == 0 {
                break;
            }
            row += read as u64;
            check_stopped(progress)?;
        }
        let columns = columns.into_iter().zip(&names).enumerate();
        let fitted: Vec<Fitted> = columns
            .filter_map(|(at, (column, name))| column.finish(name, at, options, allow_nan, &mut problems))
            .collect();
        if !problems.is_empty() {
            // Lines tell the rows if the ids have a mistake of their own.
            let ids = match self.has_ids().then(|| self.ids_of(&problems, ids)) {
                Some(Ok(ids)) => ids,
                Some(Err(Error::Input { .. })) | None => BTreeMap::new(),
                Some(Err(error)) => return Err(error),
            };
            return Err(self.refused(&problems, &|row| Ok(ids.get(&row).cloned()), false)?);
        }
        let encoder = Encoder::new(fitted.iter().map(|fitted| fitted.column.clone()).collect());
        if encoder.dim() > DIM_MAX as usize {
            let problem = format!(
                "the columns have {} dimensions, and features have {DIM_MAX} at most; give --categories index, or leave columns out with \
                 --features-from",
                encoder.dim()
            );
            return Err(Error::input(self.path(), Position::Whole, problem));
        }
        self.encoder = Some(encoder);
        self.fitted = fitted;
        Ok(())
    }

    /// The ids of the rows that a message has.
    fn ids_of(&self, problems: &Problems, kind: IdKind) -> Result<BTreeMap<u64, String>> {
        let rows = problems.rows_shown();
        let mut source = SplitSource::open_table(self.path(), kind, IdLimit::Sparse, &self.form)?;
        let (mut integers, mut keys, mut ids, mut first) = (Vec::new(), Keys::default(), BTreeMap::new(), 0);
        while rows.range(first..).next().is_some() {
            let read = match kind {
                IdKind::Integer if source.next_ids(&mut integers)? => integers.len(),
                IdKind::String if source.next_keys(&mut keys)? => keys.len(),
                _ => break,
            };
            for &row in rows.range(first..first + read as u64) {
                let at = (row - first) as usize;
                let id = match kind {
                    IdKind::Integer => integers[at].to_string(),
                    IdKind::String => String::from_utf8_lossy(keys.get(at)).into_owned(),
                };
                ids.insert(row, id);
            }
            first += read as u64;
        }
        Ok(ids)
    }

    /// The error about problems. `id_of_row` gives the id of a row, if rows have some.
    fn refused(
        &self,
        problems: &Problems,
        id_of_row: &dyn Fn(u64) -> Result<Option<String>>,
        is_assumed: bool,
    ) -> Result<Error> {
        let message = problems.message(&RowNames {
            columns: &self.layout.names,
            id: id_of_row,
            place: &|row| {
                let InputPlace { path, position } = self.place(row);
                let suffix = match path == self.path() {
                    true => String::new(),
                    false => format!(" of {}", path.display()),
                };
                match position {
                    Position::Line(line) => format!("line {line}{suffix}"),
                    Position::Row(row) => format!("row {row}{suffix}"),
                    Position::Whole | Position::Offset(_) => format!("row {row}{suffix}"),
                }
            },
            is_assumed,
            are_edges: false,
        })?;
        Ok(match problems.first_row() {
            Some(row) => self.place(row).error(message),
            None => Error::input(self.path(), Position::Whole, message),
        })
    }

    fn problems(&self) -> MutexGuard<'_, Problems> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Type of the numbers in the file. Text counts as f32.
    pub fn dtype(&self) -> ElementType {
        self.layout.element
    }

    /// How the file is read.
    pub fn reading(&self) -> Reading {
        let columns = self.columns().iter().enumerate();
        let encodings = columns.map(|(at, column)| ColumnReading {
            column: column.clone(),
            missing: self.fitted.get(at).map(|fitted| fitted.missing),
        });
        Reading { encodings: encodings.collect(), ..self.file.reading() }
    }

    /// The columns of categories with values, among those read so far, that the schema does not have, and the number of these values.
    pub fn unseen(&self) -> impl Iterator<Item = (&str, u64)> {
        let columns = self.encoder.iter().flat_map(|encoder| {
            let columns = encoder.columns.iter().enumerate();
            columns.map(|(at, column)| (column.name.as_str(), encoder.unseen(at)))
        });
        columns.filter(|&(_, count)| count > 0)
    }

    fn spreads(&self) -> &[Spread] {
        self.encoder.as_ref().map_or(&self.spreads, Encoder::spreads)
    }

    /// Warnings about columns of numbers, among the rows read so far, that lose their differences as 32-bit floats. In a sparse matrix
    /// zeros are beside the numbers, so its columns do not.
    pub fn loss_warnings(&self) -> Vec<String> {
        Spread::warnings(self.spreads(), |column| match self.columns().get(column) {
            Some(column) => format!("column {}", described(column)),
            None => format!("column {column}"),
        })
    }

    /// The columns that were found to have one value only.
    pub fn constant_columns(&self) -> impl Iterator<Item = &str> {
        let constant = self.fitted.iter().filter(|fitted| fitted.is_constant);
        constant.map(|fitted| fitted.column.name.as_str())
    }

    /// Bytes of memory per row that [`Self::read_rows`] takes, with its result.
    pub fn read_cost(&self) -> usize {
        let of_number = match &self.file.content {
            // The decoded value, its levels, and its place in a column.
            Content::Columns(_) => 2 * size_of::<f64>() + 2 * size_of::<i16>(),
            Content::Dense(_) | Content::Sparse(_) | Content::Text(_) => self.layout.element.bytes(),
        };
        self.dim() * (of_number + size_of::<f32>())
    }

    /// Whether each row is a single number that may be a class: an integer, or any number in text.
    pub fn may_be_labels(&self) -> bool {
        let is_float = self.layout.element.is_float();
        self.dim() == 1 && (matches!(self.file.content, Content::Text(_)) || !is_float)
    }

    /// Replaces the contents of `out` with rows `first..first + count`, one after another. Returns the number of rows read,
    /// which is below `count` only at the end of the matrix.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut Vec<f32>) -> Result<usize> {
        let count = match self.rows() {
            Some(rows) => (count as u64).min(rows.saturating_sub(first)) as usize,
            None => count,
        };
        out.clear();
        let read = match &self.file.content {
            Content::Dense(reader) => {
                let array = &reader.array;
                out.resize(count * self.dim(), 0.0);
                // Piece by piece, so that the bytes are still in the cache when they are converted. Columns are read for all
                // rows at once, because each takes a read.
                let piece_rows = match array.has_columns {
                    true => count.max(1),
                    false => (DENSE_PIECE / self.dim()).max(1),
                };
                let mut bytes = Vec::new();
                let mut row = first;
                for numbers in out.chunks_mut(piece_rows * self.dim()) {
                    bytes.resize(numbers.len() * array.element.bytes(), 0);
                    reader.read_rows(row, &mut bytes)?;
                    array.element.to_f32(&bytes, numbers);
                    Spread::add_rows(&self.spreads, array.element, &bytes);
                    row += piece_rows as u64;
                }
                count
            }
            Content::Sparse(sparse) => {
                out.resize(count * self.dim(), 0.0);
                sparse.read_rows(first, count, out)?;
                count
            }
            Content::Text(text) if self.encoder.is_none() => text.read(first, count, &mut |_, fields| {
                for (column, field) in fields?.iter().enumerate() {
                    let number = match self.spreads.get(column) {
                        Some(spread) => spread.parse(field),
                        None => field.parse().ok(),
                    };
                    out.push(number.ok_or_else(|| not_a_number(column, field))?);
                }
                Ok(())
            })?,
            // An encoder of numbers would do the same.
            Content::Columns(table)
                if self.layout.are_numbers && self.encoder.as_ref().is_none_or(|encoder| encoder.assumed) =>
            {
                out.reserve(count * self.dim());
                let spreads = self.spreads();
                table.read(first, count, &mut |row| {
                    out.extend(row.iter().map(|&number| number as f32));
                    spreads.iter().zip(row).for_each(|(spread, &number)| spread.add(number));
                    Ok(())
                })?
            }
            Content::Text(_) | Content::Columns(_) => {
                let encoder = self.encoder.as_ref().expect("a table has names");
                let mut problems = Problems::default();
                let read = match &self.file.content {
                    Content::Text(text) if encoder.assumed => text.read(first, count, &mut |row, fields| {
                        match fields {
                            Ok(fields) => encoder.row_of_numbers(row, fields, out, &mut problems),
                            Err(problem) => encoder.no_row(row, &problem, out, &mut problems),
                        }
                        Ok(())
                    }),
                    _ => self.file.read_cells(first, count, &mut |row, cells| {
                        match cells {
                            Ok(cells) => encoder.row(row, cells, out, &mut problems),
                            Err(problem) => encoder.no_row(row, &problem, out, &mut problems),
                        }
                        Ok(())
                    }),
                };
                self.problems().append(problems);
                read?
            }
        };
        self.note_non_finite(first, out);
        Ok(read)
    }

    fn note_non_finite(&self, first: u64, rows: &[f32]) {
        // Cheap as long as all numbers are finite: one branch per piece.
        for (piece, numbers) in rows.chunks(4096).enumerate() {
            let bad = numbers.iter().map(|number| u32::from(!number.is_finite())).sum::<u32>();
            if bad == 0 {
                continue;
            }
            if let Some(encoder) = &self.encoder
                && !self.allow_nan
            {
                self.note_by_column(encoder, first, piece * 4096, numbers);
            }
            let at = numbers.iter().position(|number| !number.is_finite()).unwrap_or(0) + piece * 4096;
            let (row, column) = (first + (at / self.dim()) as u64, at % self.dim());
            let mut found = self.non_finite.lock().unwrap_or_else(PoisonError::into_inner);
            let found = found.get_or_insert(NonFinite { count: 0, row, column });
            found.count += u64::from(bad);
            (found.row, found.column) = (found.row, found.column).min((row, column));
        }
    }

    /// The numbers that are NaN, infinite or beyond the range of f32 among all rows read so far.
    pub fn non_finite(&self) -> Option<NonFinite> {
        *self.non_finite.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the numbers of a piece, which begins `at` numbers after the row `first`, that are missing or infinite.
    fn note_by_column(&self, encoder: &Encoder, first: u64, at: usize, numbers: &[f32]) {
        let mut problems = self.problems();
        for (at, number) in (at..).zip(numbers).filter(|(_, number)| !number.is_finite()) {
            let (row, column) = (first + (at / self.dim()) as u64, encoder.column_of(at % self.dim()));
            match number.is_nan() {
                false => problems.add(ProblemKind::NotFinite, column, row, &number.to_string()),
                true if encoder.is_later(column) => problems.add(ProblemKind::MissingLater, column, row, ""),
                true => problems.add(ProblemKind::Missing, column, row, ""),
            }
        }
    }

    /// Whether all values read so far are sound. `allow_nan`: NaN and infinity are.
    pub fn is_sound(&self, allow_nan: bool) -> bool {
        self.unsound(allow_nan).is_empty() && (allow_nan || self.non_finite().is_none())
    }

    fn unsound(&self, allow_nan: bool) -> Problems {
        match allow_nan {
            true => self.problems().without_non_finite(),
            false => self.problems().clone(),
        }
    }

    /// Fails unless all values read so far are sound, with all problems of a table. `allow_nan`: NaN and infinity are sound.
    /// `id_of_row` gives the id of a row.
    pub fn check_values(&self, allow_nan: bool, id_of_row: &dyn Fn(u64) -> Result<String>) -> Result<()> {
        let problems = self.unsound(allow_nan);
        if !problems.is_empty() {
            let is_assumed = self.encoder.as_ref().is_some_and(|encoder| encoder.assumed);
            return Err(self.refused(&problems, &|row| id_of_row(row).map(Some), is_assumed)?);
        }
        match self.non_finite() {
            Some(NonFinite { count, row, column }) if !allow_nan => Err(self.place(row).error(format!(
                "column {column} is NaN, infinite or beyond 32-bit floats, and so are {} more numbers; fix the features, or accept them \
                 with --allow-nan",
                count - 1
            ))),
            _ => Ok(()),
        }
    }
}

/// The message about a field of text that is not a number.
fn not_a_number(column: usize, field: &str) -> String {
    let remedy = match column {
        0 => "; if the first column has the ids of the nodes, give --id 1",
        _ => "",
    };
    format!("expected a number, found {}{remedy}", shown(field.as_bytes()))
}
