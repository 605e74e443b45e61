//! `--neo4j`: tables in the form of `neo4j-admin database import`, whose headers name the roles of columns.
//!
//! ```text
//! id:ID(Movie),title,year:int,:LABEL          nodes of the ID space Movie
//! :START_ID(Person),role,:END_ID(Movie),:TYPE relationships between two ID spaces
//! ```
//!
//! A node type is an ID space, which one file has; without a name of the space, the type has the name of the file's only label. A relation is
//! a type of relationships. A file may have several: the reader of edges keeps the rows of one.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail, ensure};
use grappa_console::printable;
use grappa_engine::ingest::{
    ColumnSchema, Conversion, EdgeColumnOptions, EdgeForm, EdgeIngest, HeaderLine, Input, NodeIngest, RELATIONS_MAX,
    RelationIngest, Separator, TableForm, TableSchema, files_of, text_values,
};

use super::{
    layout::{GraphLayout, ids_in, missing_by_mean, quoted, refuse, why_no_feature},
    line::{GraphLine, NO_COLUMN},
};

/// The most labels of a file that an error lists.
const LABELS_MAX: usize = 64;

/// The role of a column, by its header `name:ROLE(SPACE)`.
#[derive(Debug, PartialEq, Eq)]
enum Role<'a> {
    Id(&'a str),
    Start(&'a str),
    End(&'a str),
    Label,
    Type,
    Ignore,
    /// A property of this type.
    Property(&'a str),
}

impl<'a> Role<'a> {
    fn from_header(header: &'a str) -> Self {
        // Options such as {id-type: long} follow the role.
        let header = header.split('{').next().unwrap_or_default().trim_end();
        let Some((_, role)) = header.rsplit_once(':') else { return Self::Property("string") };
        let (role, space) = match role.split_once('(') {
            Some((role, space)) => (role, space.trim_end_matches(')')),
            None => (role, ""),
        };
        match role.to_ascii_uppercase().as_str() {
            "ID" => Self::Id(space),
            "START_ID" => Self::Start(space),
            "END_ID" => Self::End(space),
            "LABEL" => Self::Label,
            "TYPE" => Self::Type,
            "IGNORE" => Self::Ignore,
            _ => Self::Property(role),
        }
    }

    /// Why properties of a type do not become features.
    fn why_no_feature(property: &str) -> Option<&'static str> {
        match property.to_ascii_lowercase().as_str() {
            name if name.ends_with("[]") => Some("it has arrays"),
            "point" | "duration" | "time" | "localtime" => Some("values of its type are not read"),
            _ => None,
        }
    }
}

/// A file with its header.
struct Table {
    path: PathBuf,
    form: TableForm,
    schema: TableSchema,
}

impl Table {
    fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }

    /// The columns with their roles.
    fn roles(&self) -> impl Iterator<Item = (&ColumnSchema, Role<'_>)> {
        self.schema.columns.iter().map(|column| (column, Role::from_header(&column.name)))
    }

    /// The column that a role is found in, and the result.
    fn find<'a, T>(&'a self, find: impl Fn(Role<'a>) -> Option<T>) -> Option<(&'a ColumnSchema, T)> {
        self.roles().find_map(|(column, role)| Some((column, find(role)?)))
    }

    fn id(&self) -> Option<(&ColumnSchema, &str)> {
        self.find(|role| if let Role::Id(space) = role { Some(space) } else { None })
    }

    fn ends(&self) -> Option<[(&ColumnSchema, &str); 2]> {
        let start = self.find(|role| if let Role::Start(space) = role { Some(space) } else { None });
        let end = self.find(|role| if let Role::End(space) = role { Some(space) } else { None });
        Some([start?, end?])
    }

    /// The different values of the column with this role. None without one, or if there are more than `values_max`.
    fn values(&self, role: Role<'_>, values_max: usize) -> Result<Option<(String, Vec<String>)>> {
        let Some((column, ())) = self.find(|other| (other == role).then_some(())) else { return Ok(None) };
        let values = text_values(&self.path, &self.form, &column.name, values_max)?.unwrap_or_default();
        Ok(Some((column.name.clone(), values.into_iter().collect())))
    }

    /// The properties that become features. Adds a note for each of the others.
    fn features(&self, notes: &mut Vec<String>) -> Result<Vec<String>> {
        let mut features = Vec::new();
        for (column, role) in self.roles() {
            let why_not = match role {
                Role::Property(property) => match Role::why_no_feature(property) {
                    Some(why) => Some(why),
                    None => why_no_feature(&self.schema, column)?,
                },
                Role::Label => Some("it has the labels of Neo4j"),
                _ => continue,
            };
            match why_not {
                None => features.push(column.name.clone()),
                Some(why) => {
                    notes.push(format!("{}: {}: left out, {why}", self.path.display(), printable(&column.name)))
                }
            }
        }
        Ok(features)
    }
}

/// Reads the headers of files, or of the tables in a folder.
///
/// # Errors
/// If a file has no such header, or node types or relations are not certain. The error has all problems.
pub fn read(line: &GraphLine, paths: &[PathBuf]) -> Result<GraphLayout> {
    let mut problems = Vec::new();
    let tables = tables_of(line, paths, &mut problems)?;
    let mut layout = GraphLayout::default();
    // The node type of each ID space.
    let mut spaces: Vec<(&str, String)> = Vec::new();
    let node_tables: Vec<_> = tables.iter().filter_map(|table| Some((table, table.id()?))).collect();
    for (table, (id, space)) in &node_tables {
        let same: Vec<&Table> =
            node_tables.iter().filter(|(_, (_, other))| other == space).map(|(table, _)| *table).collect();
        if same.len() > 1 {
            if same[0].path == table.path {
                problems.push(several_files(space, &same));
            }
            spaces.push((*space, (*space).to_owned()));
            continue;
        }
        let name = match type_of(table, space)? {
            Ok(name) => name,
            Err(problem) => {
                problems.push(problem);
                table.name().to_owned()
            }
        };
        if layout.has_type(&name) {
            problems
                .push(format!("{}: two files are of the node type {name}; rename an ID space", table.path.display()));
        }
        *layout.nodes_mut(&name) = nodes_of(table, id, &mut layout.notes)?;
        spaces.push((*space, name));
    }
    for table in &tables {
        add_relations(table, &spaces, &mut layout, &mut problems)?;
    }
    if layout.relations.is_empty() && problems.is_empty() {
        problems.push(
            "no file has :START_ID and :END_ID, so there are no edges; name the files of relationships, too".to_owned(),
        );
    }
    refuse(&paths[0], &problems)?;
    Ok(layout)
}

fn tables_of(line: &GraphLine, paths: &[PathBuf], problems: &mut Vec<String>) -> Result<Vec<Table>> {
    let mut files = Vec::new();
    for path in paths {
        let is_text = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            [".csv", ".tsv", ".txt"].iter().any(|end| name.contains(end))
        };
        match path.is_dir() {
            true => files.extend(files_of(path)?.into_iter().filter(is_text)),
            false => files.push(path.clone()),
        }
    }
    ensure!(!files.is_empty(), "{}: there are no tables in this folder (.csv, .tsv, .txt)", paths[0].display());
    let mut tables = Vec::new();
    for path in files {
        let separator = line.values("table-separator").next().map(str::parse::<Separator>).transpose();
        let Ok(separator) = separator else {
            bail!("--table-separator: expected tab, comma, semicolon, bar or spaces")
        };
        let form = TableForm { separator, ..TableForm::default() };
        let table = TableSchema::read(&path, &form)?.map(|schema| Table { path: path.clone(), form, schema });
        match table.filter(|table| table.id().is_some() || table.ends().is_some()) {
            Some(table) => tables.push(table),
            None => {
                let file = quoted(&path.display().to_string());
                problems.push(format!(
                    "{}: the first line is no header of neo4j-admin, with :ID, or with :START_ID and :END_ID; if another file has \
                     the header, put it in front: cat HEADER.csv {file} > NEW.csv",
                    path.display()
                ));
            }
        }
    }
    Ok(tables)
}

/// The name of the type of a file's nodes, or the problem.
fn type_of(table: &Table, space: &str) -> Result<std::result::Result<String, String>> {
    if !space.is_empty() {
        return Ok(Ok(space.to_owned()));
    }
    Ok(match table.values(Role::Label, LABELS_MAX)?.as_ref().map(|(_, labels)| labels.as_slice()) {
        None => Ok(table.name().to_owned()),
        Some([label]) if !label.is_empty() => Ok(label.replace(';', "_")),
        Some(labels) => {
            let labels: Vec<String> = labels.iter().map(|label| printable(label).into_owned()).collect();
            let labels = if labels.is_empty() { format!("more than {LABELS_MAX}") } else { labels.join(", ") };
            Err(format!(
                "{}: nodes have several labels ({labels}), and one ID space without a name; if they are one node type, name it: sed -i \
                 '1s/:ID/:ID(NAME)/' {}, and :START_ID(NAME) and :END_ID(NAME) in relationships; otherwise write a file with an ID space \
                 for each label",
                table.path.display(),
                quoted(&table.path.display().to_string())
            ))
        }
    })
}

/// The problem of an ID space that several files have.
fn several_files(space: &str, tables: &[&Table]) -> String {
    let names: Vec<String> = tables.iter().map(|table| quoted(&table.path.display().to_string())).collect();
    let headers = tables.iter().map(|table| table.schema.columns.iter().map(|column| &column.name).collect::<Vec<_>>());
    let are_equal = headers.collect::<HashSet<_>>().len() == 1;
    let in_space =
        if space.is_empty() { "one ID space without a name".to_owned() } else { format!("the ID space {space}") };
    let merge = match are_equal {
        true => {
            let paths: Vec<&Path> = tables.iter().map(|table| table.path.as_path()).collect();
            let command = Conversion::MergeText.command_for_all(&paths);
            format!("if they are one node type, merge them, as in {command}; otherwise ")
        }
        false => String::new(),
    };
    format!(
        "{}: these files have {in_space}, so the node type of an end is not known; {merge}name a space for each, as in \
         :ID(Movie), and in relationships, as in :START_ID(Movie)",
        names.join(", ")
    )
}

fn nodes_of(table: &Table, id: &ColumnSchema, notes: &mut Vec<String>) -> Result<NodeIngest> {
    let mut nodes = NodeIngest { ids: ids_in(id.values), ..NodeIngest::default() };
    let features = table.features(notes)?;
    let input = Some(Input::from(&table.path));
    match features.is_empty() {
        true => nodes.data.table = input,
        false => nodes.data.features = input,
    }
    nodes.data.tables = table.form.clone();
    nodes.data.tables.columns.id = vec![id.name.clone()];
    nodes.data.tables.columns.features = features;
    nodes.data.encoding.missing = missing_by_mean();
    Ok(nodes)
}

/// Adds a relation for each type of a file's relationships.
fn add_relations(
    table: &Table,
    spaces: &[(&str, String)],
    layout: &mut GraphLayout,
    problems: &mut Vec<String>,
) -> Result<()> {
    let Some(ends) = table.ends() else { return Ok(()) };
    let file = table.path.display();
    let [source, destination] = ends.map(|(_, space)| spaces.iter().find(|(other, _)| *other == space));
    let (Some((_, source)), Some((_, destination))) = (source, destination) else {
        let missing = ends.iter().filter(|(_, space)| !spaces.iter().any(|(other, _)| other == space));
        let missing: Vec<String> = missing
            .map(|(column, space)| match space.is_empty() {
                true => format!("{} names no ID space, and the files of nodes do", column.name),
                false => format!("no file of nodes has :ID({space})"),
            })
            .collect();
        problems
            .push(format!("{file}: {}; name the file of these nodes, or correct the header", missing.join(", and ")));
        return Ok(());
    };
    let features = table.features(&mut layout.notes)?;
    let types = table.values(Role::Type, RELATIONS_MAX)?;
    let relations: Vec<(String, Option<(String, String)>)> = match types {
        None => vec![(table.name().to_owned(), None)],
        Some((_, types)) if types.is_empty() => {
            problems.push(format!("{file}: there are no relationships, or more than {RELATIONS_MAX} types of them; a graph has at most {RELATIONS_MAX} relations"));
            return Ok(());
        }
        Some((_, types)) if types.iter().any(String::is_empty) => {
            problems.push(format!("{file}: relationships have no :TYPE; fill the column"));
            return Ok(());
        }
        Some((column, types)) => types.into_iter().map(|name| (name.clone(), Some((column.clone(), name)))).collect(),
    };
    for (name, relation) in relations {
        let columns = EdgeColumnOptions {
            source: Some(ends[0].0.name.clone()),
            target: Some(ends[1].0.name.clone()),
            weight: Some(NO_COLUMN.to_owned()),
            features: features.clone(),
            relation,
            ..EdgeColumnOptions::default()
        };
        let key = [source, &name, destination].map(String::as_str);
        let same = layout
            .relations
            .iter_mut()
            .find(|other| [&other.source, &other.name, &other.destination].map(String::as_str) == key);
        match same {
            Some(other) if other.edges.form.columns == columns => other.edges.files.push(Input::from(&table.path)),
            Some(other) => problems.push(format!(
                "{file}: {} has the relation {} too, with other columns; give both files one header",
                other.edges.files[0],
                key.join(":")
            )),
            None => {
                let form = EdgeForm {
                    header: HeaderLine::Yes,
                    separator: table.form.separator,
                    columns,
                    ..EdgeForm::default()
                };
                let edges = EdgeIngest { form, files: vec![Input::from(&table.path)], ..EdgeIngest::default() };
                let mut relation = RelationIngest { edges, ..RelationIngest::new(key, Vec::<Input>::new()) };
                relation.encoding.missing = missing_by_mean();
                layout.relations.push(relation);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_the_roles_of_columns() {
        for (header, role) in [
            ("id:ID(Movie-ID)", Role::Id("Movie-ID")),
            (":ID", Role::Id("")),
            ("id:ID(Movie){id-type: long}", Role::Id("Movie")),
            (":START_ID(Person)", Role::Start("Person")),
            (":end_id", Role::End("")),
            (":LABEL", Role::Label),
            (":TYPE", Role::Type),
            ("x:IGNORE", Role::Ignore),
            ("name", Role::Property("string")),
            ("year:int", Role::Property("int")),
            ("at:datetime{timezone:Europe/Paris}", Role::Property("datetime")),
        ] {
            assert_eq!(Role::from_header(header), role, "{header}");
        }
    }
}
