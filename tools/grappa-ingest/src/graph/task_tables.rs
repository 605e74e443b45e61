//! Task tables: rows of an entity, a time and a target, as RelBench writes them to the folder `tasks` beside its tables.
//!
//! A task is a node type, whose rows are nodes with times and labels. It is a folder with a file for each split, or one file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use grappa_console::{count, printable};
use grappa_engine::ingest::{
    ColumnSchema, ColumnValues, Input, LabelType, NodeData, NodeIngest, NodeSplits, SplitFile, TableOptions, TableParts,
};

use super::{
    keyed_table::{Role, Table, TableKeys, TaskPart},
    layout::{quoted, row_numbers},
    line::GraphLine,
};
use crate::data::Data;

/// The splits of a task, in the order of its rows. The file of each has its name.
const SPLITS: [&str; 3] = ["train", "val", "test"];

/// The word for no task.
const NO_TASK: &str = "none";

/// A task of the folder.
struct TaskEntry {
    name: String,
    path: PathBuf,
}

/// The tasks in a folder that `--task` chooses: all of them without it.
///
/// # Errors
/// If a chosen task does not exist, or a task has other files than its splits.
pub fn read(line: &GraphLine, folder: &Path) -> Result<Vec<Table>> {
    let entries = if folder.is_dir() { entries_of(folder)? } else { Vec::new() };
    let chosen: Vec<&str> = line.values("task").collect();
    let has_none = chosen.contains(&NO_TASK);
    ensure!(!has_none || chosen.len() == 1, "--task {NO_TASK} chooses no task; give it without other tasks");
    let is_known = |name: &&str| entries.iter().any(|entry| entry.name == *name);
    if let Some(name) = chosen.iter().copied().find(|name| !has_none && !is_known(name)) {
        let names: Vec<_> = entries.iter().map(|entry| printable(&entry.name)).collect();
        let known = match names.is_empty() {
            true => "there are no tasks; omit --task".to_owned(),
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
        if self.path.is_dir() {
            return self.read_parts();
        }
        let table = Table::read(&self.path)?;
        let table =
            table.with_context(|| format!("{}: expected the table of a task, found an array", self.path.display()))?;
        Ok(Table { role: Role::Task(Vec::new()), ..table })
    }

    /// Reads a task that has a file for each split.
    fn read_parts(&self) -> Result<Table> {
        let files: Vec<PathBuf> = SPLITS.iter().map(|split| self.path.join(format!("{split}.parquet"))).collect();
        if let Some(other) = paths_in(&self.path)?.iter().find(|path| is_table(path) && !files.contains(path)) {
            bail!(
                "{}: a task has the files train.parquet, val.parquet and test.parquet; rename this one, or move it elsewhere",
                other.display()
            );
        }
        ensure!(
            files[0].exists(),
            "{}: there is no train.parquet, and a task is learned from its rows; write it, or leave the task out with --task",
            self.path.display()
        );
        let (mut parts, mut first) = (Vec::new(), None::<Table>);
        for (split, path) in SPLITS.into_iter().zip(files).filter(|(_, path)| path.exists()) {
            let table = Table::read(&path)?.filter(|table| table.rows.is_some());
            let table = table
                .with_context(|| format!("{}: the files of a task are Parquet, and this is none", path.display()))?;
            let columns = table.schema.columns.iter().map(|column| column.name.clone()).collect();
            parts.push(TaskPart { split, path, columns, rows: table.rows.unwrap_or(0) });
            match &first {
                None => first = Some(table),
                Some(first) => check_keys(&table, first)?,
            }
        }
        let files: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
        let first = first.expect("there is a file for training");
        Ok(Table {
            name: self.name.clone(),
            input: TableParts { name: self.path.clone(), files }.into(),
            rows: Some(parts.iter().map(|part| part.rows).sum()),
            role: Role::Task(parts),
            ..first
        })
    }
}

/// Fails if the metadata of two files of a task contradict one another.
fn check_keys(table: &Table, first: &Table) -> Result<()> {
    ensure!(
        table.keys == first.keys || table.keys == TableKeys::default(),
        "{}: the keys in its metadata are {}, and in {} they are {}; write both with the same keys",
        table.path.display(),
        shown(&table.keys),
        first.path.display(),
        shown(&first.keys)
    );
    Ok(())
}

/// Keys, for messages.
fn shown(keys: &TableKeys) -> String {
    let TableKeys { primary, foreign, time } = keys;
    let primary = primary.iter().map(|column| format!("{} for ids", printable(column)));
    let foreign = foreign.iter().map(|(column, table)| format!("{} for {}", printable(column), printable(table)));
    let time = time.iter().map(|column| format!("{} for times", printable(column)));
    let all: Vec<String> = primary.chain(foreign).chain(time).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Checks the names and columns of tasks, after options have named their keys.
pub fn check(tables: &[Table], problems: &mut Vec<String>) {
    for task in tables.iter().filter(|table| table.is_task()) {
        if tables.iter().any(|table| !table.is_task() && table.name == task.name) {
            let (name, file) = (printable(&task.name), task.path.display());
            problems.push(format!("{file}: the task {name} has the name of a table; rename one of both"));
        }
        let Role::Task(parts) = &task.role else { continue };
        // Those of the first file are checked as those of any table.
        for part in parts.iter().skip(1) {
            for (column, role) in task.keys.columns().filter(|(column, _)| !part.columns.contains(column)) {
                problems.push(format!("{}: there is no column {}, {role}", part.path.display(), printable(column)));
            }
        }
    }
}

/// Fails if a task has no entities, or other targets than a class or a number per row.
pub fn check_targets(line: &GraphLine, tables: &[Table]) -> Result<()> {
    let (mut problems, mut good) = (Vec::new(), Vec::new());
    for task in tables.iter().filter(|table| table.is_task()) {
        let nodes = line.node_type(&task.name, &[])?.options(Data::default())?.nodes;
        match refusal(task, &nodes.data) {
            Some(problem) => {
                problems.push(format!("{}: the task {} {problem}", task.path.display(), printable(&task.name)));
            }
            None => good.push(format!("--task {}", quoted(&task.name))),
        }
    }
    if good.is_empty() {
        good.push(format!("--task {NO_TASK}"));
    }
    ensure!(
        problems.is_empty(),
        "{}; to leave {} out, give {}",
        problems.join("; "),
        if problems.len() == 1 { "this task" } else { "these tasks" },
        good.join(" ")
    );
    Ok(())
}

/// Why a task can't be stored. None if it can.
fn refusal(task: &Table, data: &NodeData) -> Option<String> {
    if task.keys.foreign.is_empty() {
        let name = quoted(&task.name);
        return Some(format!("has no foreign key to its entities (--foreign-key {name}.COLUMN=TABLE names one)"));
    }
    let lists = task.schema.columns.iter().filter(|column| column.values == ColumnValues::Lists);
    if let Some(column) = lists.clone().find(|column| task.keys.foreign.contains_key(&column.name)) {
        let column = printable(&column.name);
        return Some(format!(
            "predicts links: {column} has a list of ids in each row, and here a row has one class or number"
        ));
    }
    let columns = &data.tables.columns;
    if !columns.label.is_empty() || data.labels.is_some() {
        return None;
    }
    let targets = targets_of(task, columns);
    match targets.as_slice() {
        [] => Some("has no column with targets beside its keys and times".to_owned()),
        [target] => {
            let found = match target.values {
                ColumnValues::Integers | ColumnValues::Booleans | ColumnValues::Text | ColumnValues::Floats => {
                    return None;
                }
                ColumnValues::Lists => "lists",
                ColumnValues::Times => "dates",
                ColumnValues::Others => "values of a type that is not read",
            };
            Some(format!("has {found} in {}, and here a row has one class or number", printable(&target.name)))
        }
        [first, ..] => {
            let names: Vec<_> = targets.iter().map(|column| printable(&column.name)).collect();
            let (name, first) = (quoted(&task.name), quoted(&first.name));
            Some(format!(
                "has several columns that may have its targets, {} (--label {name}={first} names one, for example, and the others are \
                 features)",
                names.join(", ")
            ))
        }
    }
}

/// The columns that may have the targets: those without another role.
fn targets_of<'a>(task: &'a Table, columns: &TableOptions) -> Vec<&'a ColumnSchema> {
    let time = columns.time.as_ref().map(|time| &time.column).or(task.keys.time.as_ref());
    let named = [&columns.split[..], &columns.features, &Vec::from_iter(time.cloned())].concat();
    task.data(&named).collect()
}

/// Gives the rows of a task their targets and splits, unless the command line names others. Returns a note about the task.
pub fn complete(line: &GraphLine, task: &Table, parts: &[TaskPart], nodes: &mut NodeIngest) -> String {
    let columns = &mut nodes.data.tables.columns;
    if columns.label.is_empty() && nodes.data.labels.is_none() {
        let targets = targets_of(task, columns);
        columns.label = targets.into_iter().map(|column| column.name.clone()).collect();
    }
    let labels: Vec<_> = columns.label.iter().filter_map(|column| task.schema.column(column)).collect();
    let are_numbers = matches!(labels.as_slice(), [column] if column.values == ColumnValues::Floats);
    if are_numbers && !line.has_for_type("label-type", &task.name) {
        nodes.data.label_type = LabelType::Float;
    }
    let splits = match &nodes.splits {
        NodeSplits { files, random: None } if files.is_empty() && columns.split.is_empty() => {
            nodes.splits.files = splits_of(task, parts);
            let counts: Vec<_> = parts.iter().map(|part| format!("{} {}", part.split, count(part.rows))).collect();
            match counts.is_empty() {
                true => format!(" without splits (--split {}=80/10/10 draws them)", quoted(&task.name)),
                false => format!(" ({})", counts.join(", ")),
            }
        }
        _ => String::new(),
    };
    let columns = &nodes.data.tables.columns;
    let name = printable(&task.name);
    let rows = task.rows.map_or_else(|| "rows".to_owned(), |rows| format!("{} rows", count(rows)));
    let relations: Vec<_> = task.relations().iter().map(|key| printable(&key.join(":")).into_owned()).collect();
    let time = match &columns.time {
        Some(time) => format!("each at the time in {}", printable(&time.column)),
        None => "without times".to_owned(),
    };
    let targets = match nodes.data.label_type {
        LabelType::Classes => "classes".to_owned(),
        LabelType::Partial => "classes, some of them unknown".to_owned(),
        LabelType::Float => format!("numbers (--label-type {}=classes for classes)", quoted(&task.name)),
    };
    let labels = match columns.label.as_slice() {
        [] => String::new(),
        labels => format!(" in {}", printable(&labels.join(", "))),
    };
    format!("task {name}: {rows}{splits} of {}, {time}; the targets{labels} are {targets}", relations.join(", "))
}

/// The rows of each split.
fn splits_of(task: &Table, parts: &[TaskPart]) -> Vec<SplitFile> {
    let (mut splits, mut first_row) = (Vec::new(), 0);
    for TaskPart { split, path, rows, .. } in parts.iter().filter(|part| part.rows > 0) {
        let ids = match task.keys.primary {
            Some(_) => Input::from(path),
            None => row_numbers(path, first_row..first_row + rows),
        };
        splits.push(SplitFile::new(split, ids));
        first_row += rows;
    }
    splits
}
