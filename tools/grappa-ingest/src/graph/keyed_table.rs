//! A table with keys.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use grappa_console::printable;
use grappa_engine::ingest::{ColumnSchema, EdgeColumnOptions, EdgeEnd, Input, RelationIngest, TableForm, TableSchema};

use super::{layout::why_no_feature, line::NO_COLUMN};

/// The column in which pandas writes an index.
const INDEX: &str = "__index_level_0__";

/// A table and its keys.
pub struct Table {
    pub name: String,
    /// Its file, or the first of its files.
    pub path: PathBuf,
    /// All of its rows.
    pub input: Input,
    /// The schema of its first file.
    pub schema: TableSchema,
    /// The number of rows, if it is known before they are read: in Parquet.
    pub rows: Option<u64>,
    pub keys: TableKeys,
    pub role: Role,
}

/// The columns that join the rows of a table to the rows of other tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableKeys {
    /// The column with the ids of its rows. Without one, the ids are the numbers of the rows.
    pub primary: Option<String>,
    /// The table that each column with foreign keys points to.
    pub foreign: BTreeMap<String, String>,
    /// The column with the times of its rows, of RelBench.
    pub time: Option<String>,
}

/// What the rows of a table are.
pub enum Role {
    /// Nodes, with a relation and its reverse for each foreign key.
    Nodes,
    /// Edges between the tables of two foreign keys.
    Links,
    /// Nodes with targets, which their entities lead to, and nothing leads away from.
    Task(Vec<TaskPart>),
}

/// A file of a task, whose rows are a split.
pub struct TaskPart {
    /// `train`, `val` or `test`.
    pub split: &'static str,
    pub path: PathBuf,
    /// The names of its columns. Those with targets may be missing.
    pub columns: Vec<String>,
    pub rows: u64,
}

impl Table {
    /// Reads the schema and the keys of a file. None if the file is no table.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let Some(schema) = TableSchema::read(path, &TableForm::default())? else {
            return Ok(None);
        };
        ensure!(schema.has_names, "{}: the columns have no names; give the table a header", path.display());
        Ok(Some(Self {
            name: path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned(),
            path: path.to_owned(),
            input: path.into(),
            rows: schema.rows,
            keys: TableKeys::read(path, &schema)?,
            schema,
            role: Role::Nodes,
        }))
    }

    pub fn is_link(&self) -> bool {
        matches!(self.role, Role::Links)
    }

    pub fn is_task(&self) -> bool {
        matches!(self.role, Role::Task(_))
    }

    /// The columns that are neither keys nor named by an option.
    pub fn data(&self, named: &[String]) -> impl Iterator<Item = &ColumnSchema> {
        let TableKeys { primary, foreign, .. } = &self.keys;
        let is_key = |name: &String| primary.as_ref() == Some(name) || foreign.contains_key(name);
        let is_data = move |name: &String| name != INDEX && !is_key(name) && !named.contains(name);
        self.schema.columns.iter().filter(move |column| is_data(&column.name))
    }

    /// The columns that become numbers. Adds a note for each of the others.
    pub fn features(&self, named: &[String], notes: &mut Vec<String>) -> Result<Vec<String>> {
        let mut features = Vec::new();
        for column in self.data(named) {
            match why_no_feature(&self.schema, column)? {
                None => features.push(column.name.clone()),
                Some(why) => {
                    notes.push(format!("{}.{}: left out, {why}", printable(&self.name), printable(&column.name)))
                }
            }
        }
        Ok(features)
    }

    /// The relations of a table: one for each foreign key, or one of a link table.
    pub fn relations(&self) -> Vec<[String; 3]> {
        let foreign = &self.keys.foreign;
        match (&self.role, foreign.values().collect::<Vec<_>>().as_slice()) {
            (Role::Links, [source, destination]) => {
                vec![[(*source).clone(), self.name.clone(), (*destination).clone()]]
            }
            (Role::Task(_), _) => {
                foreign.iter().map(|(column, entity)| [entity, column, &self.name].map(String::clone)).collect()
            }
            _ => foreign.iter().map(|(column, target)| [&self.name, column, target].map(String::clone)).collect(),
        }
    }

    /// The columns of the relation of a foreign key. Rows are its sources, or its targets if the table is a task.
    pub fn edge_columns(&self, foreign_key: &str) -> EdgeColumnOptions {
        let row = self.keys.primary.as_deref();
        let (ends, row_end) = match self.is_task() {
            true => ([Some(foreign_key), row], EdgeEnd::Target),
            false => ([row, Some(foreign_key)], EdgeEnd::Source),
        };
        EdgeColumnOptions { row_end: row.is_none().then_some(row_end), ..edge_columns(ends) }
    }

    /// The columns of the relation of a link table.
    pub fn link_columns(&self) -> EdgeColumnOptions {
        let mut columns = self.keys.foreign.keys().map(String::as_str);
        edge_columns([columns.next(), columns.next()])
    }

    /// The note about times of a link table, which are features of its edges unless the user says otherwise.
    pub fn link_time_note(&self, link: &RelationIngest) -> Option<String> {
        let column = self.keys.time.as_ref().filter(|_| link.edges.form.columns.time.is_none())?;
        let (name, column) = (printable(&self.name), printable(column));
        Some(format!(
            "{name}.{column}: the time of each row is a feature of edges; --time {name}={column} makes it their time"
        ))
    }
}

impl TableKeys {
    /// The keys in the metadata of a Parquet file, as RelBench writes them: JSON.
    fn read(path: &Path, schema: &TableSchema) -> Result<Self> {
        let value = |key: &str| {
            let value = schema.metadata.get(key).map(|value| serde_json::from_str::<serde_json::Value>(value));
            value.transpose().with_context(|| format!("{}: its metadata {key} is no JSON", path.display()))
        };
        let column = |value: Option<serde_json::Value>| value.and_then(|value| Some(value.as_str()?.to_owned()));
        let foreign = value("fkey_col_to_pkey_table")?;
        let foreign = foreign.as_ref().and_then(serde_json::Value::as_object).into_iter().flatten();
        let foreign = foreign.filter_map(|(column, table)| Some((column.clone(), table.as_str()?.to_owned())));
        Ok(Self { primary: column(value("pkey_col")?), foreign: foreign.collect(), time: column(value("time_col")?) })
    }

    /// The columns of ids, each with its role for messages.
    pub fn columns(&self) -> impl Iterator<Item = (&String, &'static str)> {
        let primary = self.primary.iter().map(|column| (column, "the primary key"));
        primary.chain(self.foreign.keys().map(|column| (column, "a foreign key")))
    }
}

/// Edges without weights from these columns of sources and targets.
fn edge_columns([source, target]: [Option<&str>; 2]) -> EdgeColumnOptions {
    EdgeColumnOptions {
        source: source.map(str::to_owned),
        target: target.map(str::to_owned),
        weight: Some(NO_COLUMN.to_owned()),
        ..EdgeColumnOptions::default()
    }
}
