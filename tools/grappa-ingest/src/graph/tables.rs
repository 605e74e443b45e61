//! `--tables`: a folder of tables with keys as a graph. Every row is a node, and every foreign key is a relation.
//!
//! Parquet files of RelBench have their keys in their metadata: `pkey_col` and `fkey_col_to_pkey_table`, as JSON. Other tables get them
//! from `--key` and `--foreign-key`. Tables are in the folder, or in its folder `db`. Its folder `tasks` has [tables of
//! tasks](super::task_tables).

use std::path::Path;

use anyhow::{Result, bail, ensure};
use grappa_console::printable;
use grappa_engine::ingest::{
    ColumnValues, EdgeColumnOptions, HeaderLine, Input, NodeIngest, NodeTypeIngest, RelationIngest, TimeColumn,
};

use super::{
    keyed_table::{Role, Table},
    layout::{GraphLayout, missing_by_mean},
    line::{GraphLine, NO_COLUMN, RelationKey},
    task_tables,
};
use crate::data::Data;

/// The folder of the tables, and the folder of the tasks, as RelBench calls them.
const DATABASE: &str = "db";
const TASKS: &str = "tasks";

/// Reads the tables of a folder, with the keys of the command line.
pub fn read(line: &mut GraphLine, folder: &Path) -> Result<GraphLayout> {
    let mut tables = tables_of(folder)?;
    tables.extend(task_tables::read(line, &folder.join(TASKS))?);
    let mut problems = Vec::new();
    add_keys(line, &mut tables, &mut problems);
    check(&tables, &mut problems);
    task_tables::check(&tables, &mut problems);
    if !problems.is_empty() {
        bail!("{}: {}", folder.display(), problems.join("; "));
    }
    let types: Vec<String> = tables.iter().filter(|table| !table.is_link()).map(|table| table.name.clone()).collect();
    let relations: Vec<RelationKey> = tables.iter().flat_map(Table::relations).collect();
    line.add_names(&types, &relations);
    line.check(&types, &relations)?;
    task_tables::check_targets(line, &tables)?;
    let mut graph = GraphLayout::default();
    for table in &tables {
        if table.is_link() {
            graph.relations.push(link(line, table, &mut graph.notes)?);
            continue;
        }
        let nodes = nodes_of(line, table, &mut graph.notes)?;
        graph.node_types.push(NodeTypeIngest { name: table.name.clone(), nodes });
        for key in table.relations() {
            graph.relations.push(relation(line, table, &key, table.edge_columns(&key[1]))?);
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

/// The tables of a folder, by name: those in its folder `db`, if there is one.
fn tables_of(folder: &Path) -> Result<Vec<Table>> {
    let database = folder.join(DATABASE);
    let folder = match database.is_dir() {
        true => {
            if let Some(other) = task_tables::paths_in(folder)?.iter().find(|path| task_tables::is_table(path)) {
                bail!(
                    "{}: tables are in {}, and this one is beside that folder; move it there, or elsewhere",
                    other.display(),
                    database.display()
                );
            }
            &database
        }
        false => folder,
    };
    let mut tables: Vec<Table> = Vec::new();
    for path in task_tables::paths_in(folder)?.into_iter().filter(|path| task_tables::is_table(path)) {
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
            Some((table, column)) => tables[table].keys.primary = Some(column),
            None => problems.push(format!("--key {value}: name a table and its column, as in --key orders.id")),
        }
    }
    for value in line.values("foreign-key") {
        let parts = value.split_once('=').and_then(|(column, target)| Some((column_of(tables, column)?, target)));
        match parts {
            Some(((table, column), target)) => {
                tables[table].keys.foreign.insert(column, target.to_owned());
            }
            None => problems.push(format!(
                "--foreign-key {value}: name a table, its column and the table that it points to, as in --foreign-key orders.user=users"
            )),
        }
    }
    for value in line.values("link-table") {
        match tables.iter_mut().find(|table| table.name == value) {
            Some(table) if table.is_task() => {
                problems.push(format!("--link-table {value}: this is a task, whose rows are nodes; omit it"));
            }
            Some(table) => table.role = Role::Links,
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
        if let Some(key) = &table.keys.primary {
            match has(key).map(|column| column.values) {
                Some(ColumnValues::Integers | ColumnValues::Text) => {}
                Some(_) => problems.push(format!("{file}: the primary key {key} has neither integers nor text")),
                None => problems.push(format!("{file}: there is no column {key}, the primary key")),
            }
        } else if table.rows.is_none() && !table.is_link() {
            let example = table.schema.columns.first().map_or("id", |column| &column.name);
            problems.push(format!(
                "{file}: a table in text needs a primary key; give --key {}.{example}, for example, or write it as Parquet",
                table.name
            ));
        }
        for (column, target) in &table.keys.foreign {
            if has(column).is_none() {
                problems.push(format!("{file}: there is no column {column}, a foreign key"));
            }
            match named(target) {
                None => problems
                    .push(format!("{file}: the foreign key {column} points to {target}, and there is no such table")),
                Some(other) if other.is_link() => {
                    problems.push(format!(
                        "{file}: the foreign key {column} points to {target}, whose rows are edges (--link-table)"
                    ));
                }
                Some(other) if other.is_task() => {
                    problems.push(format!(
                        "{file}: the foreign key {column} points to {target}, a task, whose rows no table sees"
                    ));
                }
                Some(_) => {}
            }
        }
        if table.is_link() && table.keys.foreign.len() != 2 {
            problems.push(format!(
                "{file}: a link table has two foreign keys, and this one has {}",
                table.keys.foreign.len()
            ));
        }
    }
    if tables.iter().all(|table| table.keys.foreign.is_empty()) {
        problems.push(
            "no table has a foreign key, so there are no edges; give --foreign-key TABLE.COLUMN=TABLE".to_owned(),
        );
    }
}

/// The nodes that the rows of a table are.
fn nodes_of(line: &GraphLine, table: &Table, notes: &mut Vec<String>) -> Result<NodeIngest> {
    let kind = match table.keys.primary.as_ref().and_then(|key| table.schema.column(key)).map(|column| column.values) {
        None => "dense",
        Some(ColumnValues::Text) => "string",
        Some(_) => "sparse",
    };
    let mut nodes = line.node_type(&table.name, &[("ids", kind.to_owned())])?.options(Data::default())?.nodes;
    let columns = &mut nodes.data.tables.columns;
    if columns.id.is_empty() {
        columns.id = vec![table.keys.primary.clone().unwrap_or_else(|| NO_COLUMN.to_owned())];
    }
    if columns.time.is_none()
        && !line.has_no_times(&table.name)
        && let Some(column) = &table.keys.time
    {
        columns.time = Some(TimeColumn { column: column.clone(), unit: line.time_unit(&table.name)? });
        let note = format!(
            "{}.{}: the time of each row; batches at a time have no later rows (--node-time {}=none for rows without times)",
            printable(&table.name),
            printable(column),
            printable(&table.name)
        );
        notes.extend((!table.is_task()).then_some(note));
    }
    if let Role::Task(parts) = &table.role {
        notes.push(task_tables::complete(line, table, parts, &mut nodes));
    }
    let columns = &mut nodes.data.tables.columns;
    let time = columns.time.as_ref().map(|time| time.column.clone());
    let named = [&columns.label[..], &columns.split, &Vec::from_iter(time)].concat();
    if columns.features.is_empty() && !line.has_no_features(&table.name) {
        columns.features = table.features(&named, notes)?;
    }
    let has_features = !columns.features.is_empty();
    if !columns.label.is_empty() {
        nodes.data.labels.get_or_insert_with(|| table.input.clone());
    }
    if nodes.data.features.is_none() {
        match (has_features, table.keys.primary.is_some()) {
            (true, _) => nodes.data.features = Some(table.input.clone()),
            (false, true) => nodes.data.table = Some(table.input.clone()),
            (false, false) => {}
        }
    }
    if nodes.data.tables.columns.time.is_some() {
        nodes.data.times = Some(table.input.clone());
    }
    if table.keys.primary.is_none() {
        nodes.number = table.rows;
    }
    if has_features && nodes.data.encoding.missing.0.is_empty() {
        nodes.data.encoding.missing = missing_by_mean();
    }
    Ok(nodes)
}

/// A relation of a table, with its reverse. A task has none, so that no node has its rows as in-neighbors.
fn relation(line: &GraphLine, table: &Table, key: &RelationKey, columns: EdgeColumnOptions) -> Result<RelationIngest> {
    let files = [table.path.display().to_string()];
    let mut edges = line.relation(key, &files)?.options(Data::default())?.edges;
    let EdgeColumnOptions { features, time, .. } = edges.form.columns;
    edges.form.columns = EdgeColumnOptions { features, time, ..columns };
    edges.form.header = HeaderLine::Yes;
    edges.files = vec![table.input.clone()];
    let [source, name, destination] = key.each_ref().map(String::as_str);
    let full = key.join(":");
    ensure!(
        !table.is_task() || line.values_for("reverse", &[&full]).next().is_none(),
        "--reverse {full}: no other node sees the rows of the task {destination}, so its relations have no reverse; omit it"
    );
    let reverse = line.reverse_of(key).unwrap_or_else(|| format!("rev_{name}"));
    let reverse = (!table.is_task()).then_some(reverse);
    Ok(RelationIngest { edges, reverse, ..RelationIngest::new([source, name, destination], Vec::<Input>::new()) })
}

/// The relation that the rows of a link table are. Its other columns are edge features.
fn link(line: &GraphLine, table: &Table, notes: &mut Vec<String>) -> Result<RelationIngest> {
    let mut link = relation(line, table, &table.relations()[0], table.link_columns())?;
    if link.edges.form.columns.features.is_empty() {
        link.edges.form.columns.features = table.features(&[], notes)?;
    }
    link.encoding.missing = missing_by_mean();
    notes.extend(table.link_time_note(&link));
    Ok(link)
}
