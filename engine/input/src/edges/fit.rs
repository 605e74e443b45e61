//! Pass 1 over the columns of edge features, if a table has other values than numbers there: the forms of all values decide what each
//! column becomes, as in tables of nodes.
//!
//! One thread reads the files in their order, so that means do not depend on the number of threads.

use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
};

use super::{
    EDGE_FEATURES_MAX, EdgeSource, OnBadLine, block::EdgeFile, content::Content, fields::cell_of, layout::TextLayout,
};
use crate::{
    columns::{listed, shell_list},
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{LINE_BYTES_MAX, Lines},
    reading::ColumnReading,
    table::{Cell, ColumnFit, EncodingOptions, Fitted, Problems, RowNames},
};

/// Rows between two looks at whether the caller wants to stop.
const ROWS: u64 = 1 << 14;

/// Bits of the number of a line or a row among the place of a row. The number of its file has the others.
const NUMBER_BITS: u32 = 48;

impl EdgeSource {
    /// Chooses what each column of features becomes, from all of its values. None if they are numbers: the first lines of text and the
    /// types of Parquet say so, and `options` have no replacement of missing values for any of them. The source cannot be read before it
    /// is opened again with these columns.
    ///
    /// # Errors
    /// All problems of all columns: missing values without a replacement, text among numbers, and the like.
    pub fn fit(&self, options: &EncodingOptions, progress: &dyn Progress) -> Result<Option<Vec<ColumnReading>>> {
        let option_names = &self.options().columns.features;
        let names = self.feature_names();
        let names = if names.is_empty() { option_names } else { &names };
        if let Some(schema) =
            options.schema.as_ref().filter(|schema| !schema.edge_features.is_empty() && !names.is_empty())
        {
            let columns = schema.edge_features.clone();
            if !columns.iter().map(|column| &column.name).eq(names) {
                let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                return Err(Error::conflict(
                    format!("the store of --schema-of has other edge features than {}", listed(names, ", ")),
                    format!("give --edge-features-from {}", shell_list(&known)),
                ));
            }
            return Ok(Some(columns.into_iter().map(|column| ColumnReading { column, missing: None }).collect()));
        }
        let have_options = names.iter().any(|name| options.missing.replacement(name).is_some());
        if names.is_empty() || !have_options && self.files.iter().all(|file| file.content.has_numeric_features()) {
            return Ok(None);
        }
        progress.stage("examining the columns of edge features", None);
        let mut columns: Vec<ColumnFit> = names.iter().map(|_| ColumnFit::new()).collect();
        let (values_max, mut rows) = (options.values_max(), 0_u64);
        for (number, file) in (0..).zip(&self.files) {
            file.each_row(&mut |row, cells| {
                let columns = columns.iter_mut().zip(cells);
                columns.for_each(|(column, &cell)| column.add(number << NUMBER_BITS | row, cell, values_max));
                rows += 1;
                if rows.is_multiple_of(ROWS) { check_stopped(progress) } else { Ok(()) }
            })?;
        }
        if rows == 0 {
            return Ok(None);
        }
        // Rows without a value of the column's kind are left out.
        let skips = self.options().on_bad_line == OnBadLine::Skip;
        let mut problems = Problems::default();
        let mut fitted = Vec::new();
        for (at, (column, name)) in columns.into_iter().zip(names).enumerate() {
            let mut own = Problems::default();
            match column.finish(name, at, options, skips, &mut own) {
                None if skips && own.are_texts_among_numbers() => fitted.push(Fitted::numbers(name)),
                found => {
                    fitted.extend(found);
                    problems.append(own);
                }
            }
        }
        if !problems.is_empty() {
            return Err(self.refused(names, &problems)?);
        }
        let dim: u64 = fitted.iter().map(|fitted| fitted.column.encoding.dim()).sum();
        if dim > EDGE_FEATURES_MAX {
            return Err(self.files[0].file.error(format!(
                "the columns of edge features have {dim} dimensions, and edges have {EDGE_FEATURES_MAX} at most; give --categories index, \
                 or leave columns out of --edge-features-from"
            )));
        }
        let readings =
            fitted.into_iter().map(|fitted| ColumnReading { column: fitted.column, missing: Some(fitted.missing) });
        Ok(Some(readings.collect()))
    }

    fn refused(&self, names: &[String], problems: &Problems) -> Result<Error> {
        let place = |row: u64| {
            let file = &self.files[(row >> NUMBER_BITS) as usize];
            (file, file.content.position(row & ((1 << NUMBER_BITS) - 1)))
        };
        let message = problems.message(&RowNames {
            columns: names,
            id: &|_| Ok(None),
            place: &|row| {
                let (file, position) = place(row);
                let suffix = match self.files.len() {
                    1 => String::new(),
                    _ => format!(" of {}", file.file.path().display()),
                };
                match position {
                    Position::Line(line) => format!("line {line}{suffix}"),
                    _ => format!("row {}{suffix}", row & ((1 << NUMBER_BITS) - 1)),
                }
            },
            is_assumed: false,
            are_edges: true,
        })?;
        let (file, position) = place(problems.first_row().unwrap_or(0));
        Ok(Error::input(file.file.path(), position, message))
    }
}

/// Gets the number of a line or a row, and its values in the columns of features.
pub(super) type EachRow<'a> = dyn FnMut(u64, &[Cell<'_>]) -> Result<()> + 'a;

impl EdgeFile {
    /// Calls `each` with each row that has all columns.
    fn each_row(&self, each: &mut EachRow<'_>) -> Result<()> {
        match &self.content {
            Content::Nothing | Content::Table(_) => Ok(()),
            Content::Columns(file) => file.each_row(each),
            Content::Text(text) => each_line(&self.file, Compression::None, &text.layout, each),
            Content::PackedText { layout, compression, .. } => each_line(&self.file, *compression, layout, each),
        }
    }
}

fn each_line(
    file: &std::sync::Arc<InputFile>,
    compression: Compression,
    layout: &TextLayout,
    each: &mut EachRow<'_>,
) -> Result<()> {
    let mut lines = Lines::new(Extent::whole(file, compression).stream()?, LINE_BYTES_MAX);
    while let Some(line) = lines.next_line()? {
        if line.offset + (line.bytes.len() as u64) < layout.data_start {
            continue;
        }
        // Lines that are no edges are told when edges are read.
        let Ok(fields) = layout.form.separator.fields(line.text()) else { continue };
        if fields.len() != layout.form.width {
            continue;
        }
        let cells = layout.form.columns.features.iter().map(|&column| cell_of(&fields[column]));
        let Ok(cells) = cells.collect::<std::result::Result<Vec<_>, _>>() else { continue };
        each(line.number, &cells)?;
    }
    Ok(())
}
