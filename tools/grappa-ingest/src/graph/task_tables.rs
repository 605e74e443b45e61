//! Task tables: rows of an entity, a time and a target, as RelBench writes them to the folder `tasks` beside its tables.
//!
//! A task is a node type, whose rows are nodes with times and labels. It is a folder with a file for each split, or one file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use grappa_console::{count, printable};
use grappa_engine::ingest::{ColumnValues, Input, LabelType, NodeIngest, SplitFile, TableParts};

use super::{
    keyed_table::{Role, Table, TableKeys, TaskPart},
    layout::{quoted, row_numbers},
    line::{GraphLine, NO_COLUMN},
};

/// The files of a task, in the order of its rows.
const PARTS: [(&str, &str); 3] = [("train", "train.parquet"), ("val", "val.parquet"), ("test", "test.parquet")];

/// A task of the folder.
struct TaskEntry {
    name: String,
    path: PathBuf,
}

/// The tasks in a folder that `--task` chooses: all of them without it.
///
/// # Errors
/// If a chosen task does not exist, or its files are not those of a task.
pub fn read(line: &GraphLine, folder: &Path) -> Result<Vec<Table>> {
    let entries = if folder.is_dir() { entries_of(folder)? } else { Vec::new() };
    let chosen: Vec<&str> = line.values("task").collect();
    let has_none = chosen.contains(&NO_COLUMN);
    ensure!(!has_none || chosen.len() == 1, "--task {NO_COLUMN} chooses no task; give it without other tasks");
    for name in chosen.iter().filter(|name| !has_none && entries.iter().all(|entry| entry.name != **name)) {
        let names: Vec<_> = entries.iter().map(|entry| printable(&entry.name)).collect();
        let known = match names.is_empty() {
            true => format!("there are no tasks; omit --task, or write them to {}", folder.display()),
            false => format!("there are {}", names.join(", ")),
        };
        bail!("--task {}: there is no such task in {}; {known}", printable(name), folder.display());
    }
    let is_chosen = |entry: &&TaskEntry| chosen.is_empty() || chosen.contains(&entry.name.as_str());
    entries.iter().filter(is_chosen).map(TaskEntry::read).collect()
}

/// The tasks of a folder, by name.
fn entries_of(folder: &Path) -> Result<Vec<TaskEntry>> {
    let mut entries: Vec<TaskEntry> = Vec::new();
    for path in paths_in(folder)? {
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        let name = name.and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name.starts_with(['.', '_']) || !path.is_dir() && !is_table(&path) {
            continue;
        }
        if let Some(other) = entries.iter().find(|other| other.name == name) {
            bail!("{} and {} are tasks of one name; rename one", other.path.display(), path.display());
        }
        entries.push(TaskEntry { name, path });
    }
    Ok(entries)
}

/// The paths in a folder, in the order of their names.
pub fn paths_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Whether a path is a file of a table, as its name says.
pub fn is_table(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("parquet" | "csv" | "tsv")) && path.is_file()
}

impl TaskEntry {
    fn read(&self) -> Result<Table> {
        if !self.path.is_dir() {
            let table = Table::read(&self.path)?
                .with_context(|| format!("{}: expected a table of a task, found an array", self.path.display()))?;
            return Ok(Table { role: Role::Task(Vec::new()), ..table });
        }
        let known: Vec<PathBuf> = PARTS.map(|(_, file)| self.path.join(file)).to_vec();
        if let Some(other) = paths_in(&self.path)?.iter().find(|path| is_table(path) && !known.contains(path)) {
            bail!(
                "{}: a task has the files train.parquet, val.parquet and test.parquet; rename this one, or move it elsewhere",
                other.display()
            );
        }
        let mut parts = Vec::new();
        let mut first: Option<TableKeys> = None;
        for (split, path) in PARTS.map(|(split, _)| split).into_iter().zip(known).filter(|(_, path)| path.exists()) {
            let table = Table::read(&path)?.filter(|table| table.rows.is_some());
            let Table { schema, rows: Some(rows), keys, .. } = table
                .with_context(|| format!("{}: the files of a task are Parquet, and this is none", path.display()))?
            else {
                unreachable!("the rows are known")
            };
            let keys_of_first = first.get_or_insert_with(|| keys.clone());
            ensure!(
                keys == *keys_of_first || keys == TableKeys::default(),
                "{}: its metadata has other keys than {}: {} instead of {}; write both with the same keys",
                path.display(),
                PARTS[0].1,
                shown(&keys),
                shown(keys_of_first)
            );
            parts.push(TaskPart { split, path, schema, rows });
        }
        ensure!(
            parts.first().is_some_and(|part| part.split == PARTS[0].0),
            "{}: there is no {}, and a task is learned from its rows; write it, or leave the task out with --task",
            self.path.display(),
            PARTS[0].1
        );
        let files: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
        let train = Table::read(&files[0])?.expect("it is a table");
        Ok(Table {
            name: self.name.clone(),
            input: TableParts { name: self.path.clone(), files }.into(),
            rows: Some(parts.iter().map(|part| part.rows).sum()),
            role: Role::Task(parts),
            ..train
        })
    }
}

/// Keys, for messages.
fn shown(keys: &TableKeys) -> String {
    let foreign = keys.foreign.iter().map(|(column, table)| format!("{column} of {table}"));
    let others = keys.columns().filter(|(column, _)| !keys.foreign.contains_key(*column));
    let all: Vec<String> = foreign.chain(others.map(|(column, role)| format!("{column} for {role}"))).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Checks the columns of tasks, after options have named their keys.
pub fn check(tables: &[Table], problems: &mut Vec<String>) {
    for task in tables.iter().filter(|table| table.is_task()) {
        let (name, file) = (printable(&task.name), task.path.display());
        if tables.iter().any(|table| !table.is_task() && table.name == task.name) {
            problems.push(format!("{file}: the task {name} has the name of a table; rename one of both"));
        }
        if task.keys.foreign.is_empty() {
            problems.push(format!(
                "{file}: the task {name} has no foreign key to its entities; give --foreign-key {}.COLUMN=TABLE, or {}",
                task.name,
                without(tables, task)
            ));
        }
        let Role::Task(parts) = &task.role else { continue };
        for part in parts {
            for (column, role) in task.keys.columns().filter(|(column, _)| part.schema.column(column).is_none()) {
                problems.push(format!("{}: there is no column {column}, {role}", part.path.display()));
            }
        }
        let has_lists =
            |column: &&String| task.schema.column(column).is_some_and(|column| column.values == ColumnValues::Lists);
        if let Some(column) = task.keys.foreign.keys().find(has_lists) {
            problems.push(format!(
                "{file}: the task {name} is to predict links: {column} has a list of them in each row, and here a row has one \
                 target; {}",
                without(tables, task)
            ));
        }
    }
}

/// The options that leave a task out.
fn without(tables: &[Table], task: &Table) -> String {
    let others = tables.iter().filter(|table| table.is_task() && table.name != task.name);
    let mut options: Vec<String> = others.map(|other| format!("--task {}", quoted(&other.name))).collect();
    if options.is_empty() {
        options.push(format!("--task {NO_COLUMN}"));
    }
    format!("leave it out with {}", options.join(" "))
}

/// Gives the rows of a task their targets and splits, unless the command line names others.
pub fn add_targets(line: &GraphLine, task: &Table, tables: &[Table], nodes: &mut NodeIngest) -> Result<()> {
    let Role::Task(parts) = &task.role else { return Ok(()) };
    let columns = &mut nodes.data.tables.columns;
    if columns.label.is_empty() && nodes.data.labels.is_none() {
        let time = columns.time.as_ref().map(|time| time.column.clone());
        let named = [&columns.split[..], &columns.features, &Vec::from_iter(time)].concat();
        columns.label = vec![target_of(task, tables, &named)?];
    }
    let column = match columns.label.as_slice() {
        [column] => task.schema.column(column),
        _ => None,
    };
    if column.is_some_and(|column| column.values == ColumnValues::Floats)
        && !line.has_for_type("label-type", &task.name)
    {
        nodes.data.label_type = LabelType::Float;
    }
    let has_splits = !nodes.splits.files.is_empty() || nodes.splits.random.is_some() || !columns.split.is_empty();
    if !has_splits {
        nodes.splits.files = splits_of(task, parts);
    }
    Ok(())
}

/// The column with the targets: the only one that has no other role.
fn target_of(task: &Table, tables: &[Table], named: &[String]) -> Result<String> {
    let (name, file) = (printable(&task.name), task.path.display());
    let columns: Vec<_> = task.data(named).collect();
    let column = match columns.as_slice() {
        [column] => column,
        [] => bail!(
            "{file}: the task {name} has no column with targets beside its keys and times; {}",
            without(tables, task)
        ),
        [first, ..] => {
            let names: Vec<_> = columns.iter().map(|column| printable(&column.name)).collect();
            bail!(
                "{file}: which column has the targets of the task {name} is not known: {}; give --label {}={}, for example. The others \
                 are features then",
                names.join(", "),
                quoted(&task.name),
                quoted(&first.name)
            )
        }
    };
    match column.values {
        ColumnValues::Integers | ColumnValues::Booleans | ColumnValues::Text | ColumnValues::Floats => {
            Ok(column.name.clone())
        }
        ColumnValues::Lists | ColumnValues::Times | ColumnValues::Others => bail!(
            "{file}: the targets of the task {name} in {} are {}, and here a row has one class or number; {}",
            printable(&column.name),
            match column.values {
                ColumnValues::Lists => "lists",
                ColumnValues::Times => "dates",
                _ => "of a type that is not read",
            },
            without(tables, task)
        ),
    }
}

/// The rows of each split.
fn splits_of(task: &Table, parts: &[TaskPart]) -> Vec<SplitFile> {
    let mut first_row = 0;
    let splits = parts.iter().map(|part| {
        let rows = first_row..first_row + part.rows;
        first_row = rows.end;
        let ids = match task.keys.primary {
            Some(_) => Input::from(&part.path),
            None => row_numbers(&part.path, rows),
        };
        (part.rows, SplitFile::new(part.split, ids))
    });
    splits.filter(|(rows, _)| *rows > 0).map(|(_, split)| split).collect()
}

/// The note about a task: its rows, relations, times and targets.
pub fn note(task: &Table, nodes: &NodeIngest) -> String {
    let columns = &nodes.data.tables.columns;
    let rows = task.rows.map_or_else(|| "rows".to_owned(), |rows| format!("{} rows", count(rows)));
    let parts = match &task.role {
        Role::Task(parts) if nodes.splits.files.len() > 0 && !parts.is_empty() => {
            let parts: Vec<_> = parts.iter().map(|part| format!("{} {}", part.split, count(part.rows))).collect();
            format!(" ({})", parts.join(", "))
        }
        _ if nodes.splits.random.is_some() || !columns.split.is_empty() || !nodes.splits.files.is_empty() => {
            String::new()
        }
        _ => format!(" without splits (--split {}=80/10/10 draws them)", quoted(&task.name)),
    };
    let relations: Vec<_> = task.relations().iter().map(|key| printable(&key.join(":")).into_owned()).collect();
    let time = match &columns.time {
        Some(time) => format!(", each at the time in {}", printable(&time.column)),
        None => ", without times".to_owned(),
    };
    let kind = match nodes.data.label_type {
        LabelType::Classes => "classes".to_owned(),
        LabelType::Partial => "classes, some unknown,".to_owned(),
        LabelType::Float => "numbers".to_owned(),
    };
    let remedy = match nodes.data.label_type {
        LabelType::Float => format!(" (--label-type {}=classes for classes)", quoted(&task.name)),
        LabelType::Classes | LabelType::Partial => String::new(),
    };
    format!(
        "task {}: {rows}{parts} of {}{time}; targets are the {kind} in {}{remedy}",
        printable(&task.name),
        relations.join(", "),
        printable(&columns.label.join(", "))
    )
}
