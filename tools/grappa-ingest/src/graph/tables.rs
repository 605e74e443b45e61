//! `--tables`: a folder of tables with keys as a graph. Every row is a node, and every foreign key is a relation.
//!
//! Parquet files of RelBench have their keys in their metadata: `pkey_col` and `fkey_col_to_pkey_table`, as JSON. Other tables get them
//! from `--key` and `--foreign-key`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use grappa_console::printable;
use grappa_engine::ingest::{
    ColumnSchema, ColumnValues, EdgeColumnOptions, EdgeEnd, HeaderLine, Input, NodeIngest, NodeTypeIngest,
    RelationIngest, TableForm, TableSchema, TimeColumn,
};

use super::{
    layout::{GraphLayout, missing_by_mean, why_no_feature},
    line::{GraphLine, NO_COLUMN},
};
use crate::data::Data;

/// A table and its keys.
struct Table {
    name: String,
    path: PathBuf,
    schema: TableSchema,
    /// The column with the ids of its rows. Without one, the ids are the numbers of the rows.
    key: Option<String>,
    /// The table that each column with foreign keys points to.
    foreign_keys: BTreeMap<String, String>,
    /// The column with the times of its rows, of RelBench.
    time: Option<String>,
    /// Whether its rows are edges instead of nodes.
    is_link: bool,
}

impl Table {
    fn read(path: &Path) -> Result<Option<Self>> {
        let Some(schema) = TableSchema::read(path, &TableForm::default())? else {
            return Ok(None);
        };
        ensure!(schema.has_names, "{}: the columns have no names; give the table a header", path.display());
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let text = |key: &str| {
            let value = schema.metadata.get(key).map(|value| serde_json::from_str::<serde_json::Value>(value));
            value.transpose().with_context(|| format!("{}: its metadata {key} is no JSON", path.display()))
        };
        let column = |value: Option<serde_json::Value>| value.and_then(|value| Some(value.as_str()?.to_owned()));
        let (key, time) = (column(text("pkey_col")?), column(text("time_col")?));
        let foreign_keys = text("fkey_col_to_pkey_table")?;
        let foreign_keys = foreign_keys.as_ref().and_then(serde_json::Value::as_object).into_iter().flatten();
        let foreign_keys =
            foreign_keys.filter_map(|(column, table)| Some((column.clone(), table.as_str()?.to_owned())));
        let foreign_keys = foreign_keys.collect();
        Ok(Some(Self { name, path: path.to_owned(), schema, key, foreign_keys, time, is_link: false }))
    }

    /// The columns that are neither keys nor named by an option.
    fn data(&self, named: &[String]) -> impl Iterator<Item = &ColumnSchema> {
        let is_key = |name: &String| self.key.as_ref() == Some(name) || self.foreign_keys.contains_key(name);
        self.schema.columns.iter().filter(move |column| !is_key(&column.name) && !named.contains(&column.name))
    }

    /// The columns that become numbers. Adds a note for each of the others.
    fn features(&self, named: &[String], notes: &mut Vec<String>) -> Result<Vec<String>> {
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

    /// The note about times of a link table, which are not those of its edges unless the user says so.
    fn link_time_note(&self, link: &RelationIngest) -> Option<String> {
        let column = self.time.as_ref().filter(|_| link.edges.form.columns.time.is_none())?;
        let (name, column) = (printable(&self.name), printable(column));
        Some(format!(
            "{name}.{column}: the time of each row is a feature of edges; --time {name}={column} makes it their time"
        ))
    }

    /// The columns of a relation from `source` to `target`. None: from the rows of the table.
    fn edge_columns(&self, source: Option<&str>, target: &str) -> EdgeColumnOptions {
        EdgeColumnOptions {
            source: source.map(str::to_owned),
            row_end: source.is_none().then_some(EdgeEnd::Source),
            target: Some(target.to_owned()),
            weight: Some(NO_COLUMN.to_owned()),
            ..EdgeColumnOptions::default()
        }
    }
}

/// Reads the tables of a folder, with the keys of the command line.
pub fn read(line: &mut GraphLine, folder: &Path) -> Result<GraphLayout> {
    let mut tables = tables_of(folder)?;
    let mut problems = Vec::new();
    add_keys(line, &mut tables, &mut problems);
    check(&tables, &mut problems);
    if !problems.is_empty() {
        bail!("{}: {}", folder.display(), problems.join("; "));
    }
    let types: Vec<String> = tables.iter().filter(|table| !table.is_link).map(|table| table.name.clone()).collect();
    let relations: Vec<[String; 3]> = tables.iter().flat_map(keys_of).collect();
    line.add_names(&types, &relations);
    line.check(&types, &relations)?;
    let mut graph = GraphLayout::default();
    for table in &tables {
        if table.is_link {
            graph.relations.push(link(line, table, &mut graph.notes)?);
            continue;
        }
        let nodes = nodes_of(line, table, &mut graph.notes)?;
        graph.node_types.push(NodeTypeIngest { name: table.name.clone(), nodes });
        for key in keys_of(table) {
            let columns = table.edge_columns(table.key.as_deref(), &key[1]);
            graph.relations.push(relation(line, table, &key, columns)?);
        }
    }
    let is_timed = |node_type: &NodeTypeIngest| node_type.nodes.data.tables.columns.time.is_some();
    ensure!(
        graph.node_types.iter().any(is_timed) || line.has("time") || !line.has("time-unit"),
        "--time-unit is for times, and no table has some; name their columns, as in --node-time {}=COLUMN",
        printable(&tables[0].name)
    );
    Ok(graph)
}

/// The tables of a folder, by name.
fn tables_of(folder: &Path) -> Result<Vec<Table>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let is_table = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("parquet" | "csv" | "tsv")) && path.is_file()
    };
    let mut tables: Vec<Table> = Vec::new();
    for path in paths.into_iter().filter(is_table) {
        let Some(table) = Table::read(&path)? else { continue };
        if let Some(other) = tables.iter().find(|other| other.name == table.name) {
            bail!("{} and {} are tables of one name; rename one", other.path.display(), path.display());
        }
        tables.push(table);
    }
    ensure!(!tables.is_empty(), "{}: there are no tables in this folder (.parquet, .csv, .tsv)", folder.display());
    Ok(tables)
}

/// Adds the keys of the command line.
fn add_keys(line: &GraphLine, tables: &mut [Table], problems: &mut Vec<String>) {
    for value in line.values("key") {
        match column_of(tables, value) {
            Some((table, column)) => tables[table].key = Some(column),
            None => problems.push(format!("--key {value}: name a table and its column, as in --key orders.id")),
        }
    }
    for value in line.values("foreign-key") {
        let parts = value.split_once('=').and_then(|(column, target)| Some((column_of(tables, column)?, target)));
        match parts {
            Some(((table, column), target)) => {
                tables[table].foreign_keys.insert(column, target.to_owned());
            }
            None => problems.push(format!(
                "--foreign-key {value}: name a table, its column and the table that it points to, as in --foreign-key orders.user=users"
            )),
        }
    }
    for value in line.values("link-table") {
        match tables.iter_mut().find(|table| table.name == value) {
            Some(table) => table.is_link = true,
            None => problems.push(format!("--link-table {value}: there is no such table")),
        }
    }
}

/// The table and the column of `TABLE.COLUMN`. Names of tables may have dots.
fn column_of(tables: &[Table], value: &str) -> Option<(usize, String)> {
    let of_table = |(at, table): (usize, &Table)| {
        let column = value.strip_prefix(&table.name)?.strip_prefix('.')?;
        Some((at, column.to_owned()))
    };
    tables.iter().enumerate().filter_map(of_table).max_by_key(|&(at, _)| tables[at].name.len())
}

/// Checks the keys of all tables.
fn check(tables: &[Table], problems: &mut Vec<String>) {
    for table in tables {
        let file = table.path.display();
        let named = |name: &str| tables.iter().find(|table| table.name == name);
        let has = |column: &String| table.schema.column(column);
        if let Some(key) = &table.key {
            match has(key).map(|column| column.values) {
                Some(ColumnValues::Integers | ColumnValues::Text) => {}
                Some(_) => problems.push(format!("{file}: the primary key {key} has neither integers nor text")),
                None => problems.push(format!("{file}: there is no column {key}, the primary key")),
            }
        } else if table.schema.rows.is_none() && !table.is_link {
            let example = table.schema.columns.first().map_or("id", |column| &column.name);
            problems.push(format!(
                "{file}: a table in text needs a primary key; give --key {}.{example}, for example, or write it as Parquet",
                table.name
            ));
        }
        for (column, target) in &table.foreign_keys {
            if has(column).is_none() {
                problems.push(format!("{file}: there is no column {column}, a foreign key"));
            }
            match named(target) {
                None => problems
                    .push(format!("{file}: the foreign key {column} points to {target}, and there is no such table")),
                Some(other) if other.is_link => {
                    problems.push(format!(
                        "{file}: the foreign key {column} points to {target}, whose rows are edges (--link-table)"
                    ));
                }
                Some(_) => {}
            }
        }
        if table.is_link && table.foreign_keys.len() != 2 {
            problems.push(format!(
                "{file}: a link table has two foreign keys, and this one has {}",
                table.foreign_keys.len()
            ));
        }
    }
    if tables.iter().all(|table| table.foreign_keys.is_empty()) {
        problems.push(
            "no table has a foreign key, so there are no edges; give --foreign-key TABLE.COLUMN=TABLE".to_owned(),
        );
    }
}

/// The relations of a table: one for each foreign key, or one of a link table.
fn keys_of(table: &Table) -> Vec<[String; 3]> {
    match (table.is_link, table.foreign_keys.values().collect::<Vec<_>>().as_slice()) {
        (true, [source, destination]) => vec![[(*source).clone(), table.name.clone(), (*destination).clone()]],
        _ => {
            let keys = table.foreign_keys.iter();
            keys.map(|(column, target)| [table.name.clone(), column.clone(), target.clone()]).collect()
        }
    }
}

/// The nodes that the rows of a table are.
fn nodes_of(line: &GraphLine, table: &Table, notes: &mut Vec<String>) -> Result<NodeIngest> {
    let kind = match table.key.as_ref().and_then(|key| table.schema.column(key)).map(|column| column.values) {
        None => "dense",
        Some(ColumnValues::Text) => "string",
        Some(_) => "sparse",
    };
    let mut nodes = line.node_type(&table.name, &[("ids", kind.to_owned())])?.options(Data::default())?.nodes;
    let columns = &mut nodes.data.tables.columns;
    if columns.id.is_empty() {
        columns.id = vec![table.key.clone().unwrap_or_else(|| NO_COLUMN.to_owned())];
    }
    if columns.time.is_none()
        && !line.has_no_times(&table.name)
        && let Some(column) = &table.time
    {
        columns.time = Some(TimeColumn { column: column.clone(), unit: line.time_unit(&table.name)? });
        notes.push(format!(
            "{}.{}: the time of each row; batches at a time have no later rows (--node-time {}=none for rows without times)",
            printable(&table.name),
            printable(column),
            printable(&table.name)
        ));
    }
    let time = columns.time.as_ref().map(|time| time.column.clone());
    let named = [&columns.label[..], &columns.split, &Vec::from_iter(time)].concat();
    if columns.features.is_empty() && !line.has_no_features(&table.name) {
        columns.features = table.features(&named, notes)?;
    }
    let has_features = !columns.features.is_empty();
    if !columns.label.is_empty() {
        nodes.data.labels.get_or_insert_with(|| table.path.clone().into());
    }
    if nodes.data.features.is_none() {
        match (has_features, table.key.is_some()) {
            (true, _) => nodes.data.features = Some(table.path.clone().into()),
            (false, true) => nodes.data.table = Some(table.path.clone().into()),
            (false, false) => {}
        }
    }
    if nodes.data.tables.columns.time.is_some() {
        nodes.data.times = Some(table.path.clone().into());
    }
    if table.key.is_none() {
        nodes.number = table.schema.rows;
    }
    if has_features && nodes.data.encoding.missing.0.is_empty() {
        nodes.data.encoding.missing = missing_by_mean();
    }
    Ok(nodes)
}

/// A relation of a table, with its reverse.
fn relation(line: &GraphLine, table: &Table, key: &[String; 3], columns: EdgeColumnOptions) -> Result<RelationIngest> {
    let files = [table.path.display().to_string()];
    let mut edges = line.relation(key, &files)?.options(Data::default())?.edges;
    let EdgeColumnOptions { features, time, .. } = edges.form.columns;
    edges.form.columns = EdgeColumnOptions { features, time, ..columns };
    edges.form.header = HeaderLine::Yes;
    edges.files = vec![Input::from(table.path.clone())];
    let [source, name, destination] = key.each_ref().map(String::as_str);
    Ok(RelationIngest {
        edges,
        reverse: Some(line.reverse_of(key).unwrap_or_else(|| format!("rev_{name}"))),
        ..RelationIngest::new([source, name, destination], Vec::<Input>::new())
    })
}

/// The relation that the rows of a link table are. Its other columns are edge features.
fn link(line: &GraphLine, table: &Table, notes: &mut Vec<String>) -> Result<RelationIngest> {
    let columns: Vec<&String> = table.foreign_keys.keys().collect();
    let key = &keys_of(table)[0];
    let mut link = relation(line, table, key, table.edge_columns(Some(columns[0]), columns[1]))?;
    if link.edges.form.columns.features.is_empty() {
        link.edges.form.columns.features = table.features(&[], notes)?;
    }
    link.encoding.missing = missing_by_mean();
    notes.extend(table.link_time_note(&link));
    Ok(link)
}
