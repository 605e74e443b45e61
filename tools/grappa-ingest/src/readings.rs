//! How the input is read, as JSON and as a table.

use grappa_console::{Summary, printable, table::aligned};
use grappa_engine::{
    formats::schema::{CategoryForm, Column, Encoding},
    ingest::{ColumnReading, Reading, Separator},
};
use serde::Serialize;

/// What each column of the input would become.
#[derive(Serialize)]
pub struct DryRun<'a> {
    inputs: Vec<Input<'a>>,
    #[serde(skip)]
    readings: &'a [Reading],
}

impl<'a> DryRun<'a> {
    /// The columns of these files.
    pub fn new(readings: &'a [Reading]) -> Self {
        Self { inputs: readings.iter().map(Input::from_reading).collect(), readings }
    }
}

impl Summary for DryRun<'_> {
    fn text(&self) -> String {
        let titles = ["file", "column", "role", "becomes", "dimensions", "missing"].map(str::to_owned);
        let rows = self.readings.iter().flat_map(rows_of);
        let rows: Vec<_> = [titles.to_vec()].into_iter().chain(rows).collect();
        let mut lines = aligned(&rows, &[]);
        lines.push("nothing was written".to_owned());
        lines.join("\n")
    }
}

/// A row of the table for each column of a file, or one for a file without columns.
fn rows_of(reading: &Reading) -> Vec<Vec<String>> {
    let file = printable(&reading.file.display().to_string()).into_owned();
    let read = reading.columns.iter().map(|(role, name)| {
        let encoded = reading.encodings.iter().find(|encoded| encoded.column.name == *name);
        row_of(&file, name, role, encoded.filter(|_| *role == reading.content || *role == "feature"))
    });
    let left_out = reading.left_out.iter().map(|name| row_of(&file, name, "left out", None));
    let mut rows: Vec<_> = read.chain(left_out).collect();
    if rows.is_empty() {
        rows.push(row_of(&file, "", reading.content, None));
    }
    rows
}

fn row_of(file: &str, column: &str, role: &str, encoded: Option<&ColumnReading>) -> Vec<String> {
    let (becomes, dimensions, missing) = match encoded {
        None => Default::default(),
        Some(reading) => (
            kind_of(&reading.column.encoding),
            reading.column.encoding.dim().to_string(),
            match (reading.missing, reading.replacement()) {
                (None, _) => String::new(),
                (Some(missing @ 1..), Some(replacement)) => format!("{missing}: {replacement}"),
                (Some(missing), _) => missing.to_string(),
            },
        ),
    };
    let column = printable(column).into_owned();
    vec![file.to_owned(), column, role.to_owned(), becomes, dimensions, missing]
}

/// What a column becomes, in a few words.
fn kind_of(encoding: &Encoding) -> String {
    const SHOWN_MAX: usize = 6;
    match encoding {
        Encoding::Number { .. } => "number".to_owned(),
        Encoding::Boolean { .. } => "boolean (0, 1)".to_owned(),
        Encoding::Date { .. } => "date (days since 1970-01-01)".to_owned(),
        Encoding::Category { values, form } => {
            let shown: Vec<_> = values.iter().take(SHOWN_MAX).map(|value| printable(value)).collect();
            let more = match values.len().saturating_sub(SHOWN_MAX) {
                0 => String::new(),
                more => format!(", {more} more"),
            };
            let form = match form {
                CategoryForm::OneHot => "one-hot",
                CategoryForm::Index => "index",
            };
            format!("category ({form}): {}{more}, other", shown.join(", "))
        }
    }
}

/// How a file is read. Field names are the keys of the JSON object.
#[derive(Serialize)]
pub struct Input<'a> {
    file: String,
    more_files: usize,
    #[serde(rename = "what")]
    content: &'a str,
    format: &'a str,
    separator: Option<&'a str>,
    header: bool,
    comments: u64,
    columns: Vec<Role<'a>>,
    /// What the columns of features become.
    encodings: Vec<Encoded<'a>>,
    left_out: &'a [String],
    /// Whether row k belongs to the node with the k-th smallest id; null for edges.
    by_position: Option<bool>,
    /// All of this in a sentence.
    described: String,
}

/// What a column of features becomes.
#[derive(Serialize)]
struct Encoded<'a> {
    #[serde(flatten)]
    column: &'a Column,
    dimensions: u64,
    missing_values: Option<u64>,
}

#[derive(Serialize)]
struct Role<'a> {
    role: &'a str,
    column: &'a str,
}

impl<'a> Input<'a> {
    pub fn from_reading(reading: &'a Reading) -> Self {
        Self {
            file: reading.file.display().to_string(),
            more_files: reading.more_files,
            content: reading.content,
            format: reading.format,
            separator: reading.separator.map(Separator::word),
            header: reading.header,
            comments: reading.comments,
            columns: reading.columns.iter().map(|(role, column)| Role { role, column }).collect(),
            encodings: reading
                .encodings
                .iter()
                .map(|ColumnReading { column, missing }| Encoded {
                    column,
                    dimensions: column.encoding.dim(),
                    missing_values: *missing,
                })
                .collect(),
            left_out: &reading.left_out,
            described: reading.to_string(),
            by_position: reading.by_position,
        }
    }
}
