//! `--gconstruct`: the configuration of GraphStorm's graph construction, in JSON.
//!
//! Each entry of `nodes` is a node type with a table, and each entry of `edges` a relation. Files are relative to the folder of the
//! configuration, or to the working directory. Features without a transform and with `to_categorical` have the encodings of other tables.
//! Other transforms compute with values; they are refused with a command that does the same. All problems of a configuration are one error.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use arrow_array::{ArrayRef, StringArray, UInt64Array};
use grappa_engine::ingest::{
    ColumnValues, Conversion, EdgeColumnOptions, EdgeForm, EdgeIngest, EdgeSplit, ExternalIds, HeaderLine, Input,
    LabelType, NodeIngest, RandomSplit, RelationIngest, Separator, Shares, SplitFile, TableForm, TableSchema,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    layout::{GraphLayout, ids_in, one_input, refuse, table_in_memory},
    line::{GraphLine, NO_COLUMN, RelationKey},
};

/// The shares of labels without `split_pct`, in GraphStorm.
const SPLIT_DEFAULT: [f64; 3] = [0.8, 0.1, 0.1];

/// A configuration. Other fields are for GraphStorm's own files.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    nodes: Vec<NodeEntry>,
    #[serde(default)]
    edges: Vec<EdgeEntry>,
    #[serde(default)]
    add_reverse_edges: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    node_type: String,
    node_id_col: Option<String>,
    files: OneOrMore,
    format: Format,
    #[serde(default)]
    features: Vec<Feature>,
    #[serde(default)]
    labels: Vec<Label>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeEntry {
    source_id_col: String,
    dest_id_col: String,
    relation: RelationKey,
    files: OneOrMore,
    format: Format,
    #[serde(default)]
    features: Vec<Feature>,
    #[serde(default)]
    labels: Vec<Label>,
}

#[derive(Deserialize)]
struct Format {
    name: String,
    separator: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Feature {
    feature_col: OneOrMore,
    #[serde(rename = "feature_name")]
    _name: Option<String>,
    #[serde(rename = "out_dtype")]
    _out_dtype: Option<String>,
    transform: Option<Transform>,
}

#[derive(Deserialize)]
struct Transform {
    name: Option<String>,
    #[serde(flatten)]
    arguments: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    label_col: Option<OneOrMore>,
    task_type: String,
    split_pct: Option<[f64; 3]>,
    custom_split_filenames: Option<SplitFiles>,
    #[serde(rename = "label_name")]
    _name: Option<String>,
    #[serde(rename = "label_stats_type")]
    _stats: Option<String>,
    #[serde(rename = "mask_field_names")]
    _masks: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitFiles {
    train: Option<OneOrMore>,
    valid: Option<OneOrMore>,
    test: Option<OneOrMore>,
    /// The column with the ids, in Parquet.
    column: Option<OneOrMore>,
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

/// Reads the configuration.
///
/// # Errors
/// If it is not one, or has something that Grappa does not do. The error has all problems.
pub fn read(line: &GraphLine, path: &Path) -> Result<GraphLayout> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config: Config = serde_json::from_str(&text)
        .with_context(|| format!("{}: this is no configuration of GraphStorm's gconstruct", path.display()))?;
    let mut reader = Reader { line, path, problems: Vec::new(), layout: GraphLayout::default() };
    if config.edges.is_empty() {
        reader.problems.push("there are no \"edges\"; name a file of edges for each relation".to_owned());
    }
    for entry in &config.nodes {
        reader.add_nodes(entry)?;
    }
    for entry in &config.edges {
        reader.add_edges(entry, config.add_reverse_edges)?;
    }
    refuse(path, &reader.problems)?;
    Ok(reader.layout)
}

/// The graph of a configuration, as far as it is read.
struct Reader<'a> {
    line: &'a GraphLine,
    path: &'a Path,
    problems: Vec<String>,
    layout: GraphLayout,
}

impl Reader<'_> {
    fn add_nodes(&mut self, entry: &NodeEntry) -> Result<()> {
        let name = format!("node type {}", entry.node_type);
        if self.layout.has_type(&entry.node_type) {
            let problem = "two entries of \"nodes\" have this type; join their tables by id, and leave one entry";
            self.problems.push(format!("{name}: {problem}"));
            return Ok(());
        }
        let Some(Table { files, schema, separator }) = self.table(&name, &entry.files, &entry.format)? else {
            self.layout.nodes_mut(&entry.node_type);
            return Ok(());
        };
        let input = match one_input(&files) {
            Ok(input) => input,
            Err(problem) => {
                self.problems.push(format!("{name}: {problem}"));
                Input::from(&files[0])
            }
        };
        let id = entry.node_id_col.as_ref();
        self.check_columns(&name, &schema, id.into_iter());
        let features = self.features(&name, &entry.features, &files[0], &schema);
        let mut nodes = NodeIngest::default();
        nodes.data.tables.separator = separator;
        let columns = &mut nodes.data.tables.columns;
        columns.id = vec![id.cloned().unwrap_or_else(|| NO_COLUMN.to_owned())];
        columns.features = features;
        match (&columns.features[..], id) {
            ([], Some(_)) => nodes.data.table = Some(input.clone()),
            ([], None) => nodes.number = schema.rows,
            _ => nodes.data.features = Some(input.clone()),
        }
        if let Some(column) = id.and_then(|id| schema.column(id)) {
            nodes.ids = ids_in(column.values);
        }
        if let Some(label) = self.label(&name, entry, &schema) {
            nodes.data.labels = Some(input);
            nodes.data.tables.columns.label = label.label_col.as_ref().map_or(&[][..], OneOrMore::all).to_vec();
            match label.task_type.as_str() {
                "regression" => nodes.data.label_type = LabelType::Float,
                _ => nodes.data.label_type = LabelType::Classes,
            }
            match &label.custom_split_filenames {
                Some(files) => self.add_split_files(&name, files, &mut nodes),
                None => match shares_of(label.split_pct) {
                    Ok(shares) => nodes.splits.random = Some(RandomSplit { shares, seed: 0, stratify: false }),
                    Err(problem) => self.problems.push(format!("{name}: split_pct: {problem}")),
                },
            }
        }
        *self.layout.nodes_mut(&entry.node_type) = nodes;
        Ok(())
    }

    fn add_edges(&mut self, entry: &EdgeEntry, add_reverse: bool) -> Result<()> {
        let [source, relation, destination] = entry.relation.each_ref().map(String::as_str);
        let name = format!("relation {source}:{relation}:{destination}");
        let Some(Table { files, schema, separator }) = self.table(&name, &entry.files, &entry.format)? else {
            return Ok(());
        };
        let ends = [&entry.source_id_col, &entry.dest_id_col];
        self.check_columns(&name, &schema, ends.into_iter());
        for (end, column) in [source, destination].into_iter().zip(ends) {
            if !self.layout.has_type(end) {
                let column = schema.column(column);
                self.layout.nodes_mut(end).ids = column.map_or(ExternalIds::Dense, |column| ids_in(column.values));
            }
        }
        let features = self.features(&name, &entry.features, &files[0], &schema);
        let mut split = None;
        for label in &entry.labels {
            let holds_edges_out = label.split_pct.is_none_or(|[_, val, test]| val + test > 0.0);
            match label.task_type.as_str() {
                "link_prediction" if label.custom_split_filenames.is_none() && !holds_edges_out => {}
                "link_prediction" if label.custom_split_filenames.is_none() => {
                    match shares_of(label.split_pct)
                        .and_then(|shares| EdgeSplit::random(shares, 0).map_err(|error| error.to_string()))
                    {
                        Ok(shares) => split = Some(shares),
                        Err(problem) => self.problems.push(format!("{name}: split_pct: {problem}")),
                    }
                }
                "link_prediction" => self.problems.push(format!(
                    "{name}: custom_split_filenames is for labels of nodes; omit it, and give --val-edges \
                     {relation}=FILE --test-edges {relation}=FILE"
                )),
                task => self
                    .problems
                    .push(format!("{name}: labels of edges ({task}) are not stored; omit \"labels\" of this relation")),
            }
        }
        let columns = EdgeColumnOptions {
            source: Some(entry.source_id_col.clone()),
            target: Some(entry.dest_id_col.clone()),
            weight: Some(NO_COLUMN.to_owned()),
            features,
            ..EdgeColumnOptions::default()
        };
        let form = EdgeForm { header: HeaderLine::Yes, separator, columns, ..EdgeForm::default() };
        let edges = EdgeIngest { files: files.iter().map(Input::from).collect(), form, split, ..EdgeIngest::default() };
        self.layout.relations.push(RelationIngest {
            edges,
            // The name that GraphStorm gives it.
            reverse: add_reverse.then(|| format!("{relation}-rev")),
            ..RelationIngest::new([source, relation, destination], Vec::<Input>::new())
        });
        Ok(())
    }

    /// The files of an entry, with the columns of the first. None after a problem.
    fn table(&mut self, name: &str, files: &OneOrMore, format: &Format) -> Result<Option<Table>> {
        let mut problem = |problem: String| self.problems.push(format!("{name}: {problem}"));
        let separator = match (format.name.to_ascii_lowercase().as_str(), format.separator.as_deref()) {
            ("parquet", _) => None,
            ("csv", None | Some(",")) => Some(Separator::Comma),
            ("csv", Some("\t")) => Some(Separator::Tab),
            ("csv", Some(";")) => Some(Separator::Semicolon),
            ("csv", Some("|")) => Some(Separator::Bar),
            ("csv", Some(separator)) => {
                problem(format!("the separator {separator:?} is not read; write the table as Parquet"));
                return Ok(None);
            }
            ("json", _) => {
                let file = files.all().first().map_or("FILE", String::as_str);
                problem(format!(
                    "the format JSON is not read; write the table as text, as in {}, and change \"files\" and \"format\"",
                    Conversion::JsonLinesToText.command(Path::new(file))
                ));
                return Ok(None);
            }
            (format, _) => {
                problem(format!(
                    "the format {format} is not read; write the table as Parquet, and change \"files\" and \"format\""
                ));
                return Ok(None);
            }
        };
        let files = match self.find(files.all()) {
            Ok(files) => files,
            Err(problem) => {
                self.problems.push(format!("{name}: {problem}"));
                return Ok(None);
            }
        };
        let form = TableForm { separator, ..TableForm::default() };
        let Some(schema) = TableSchema::read(&files[0], &form)?.filter(|schema| schema.has_names) else {
            self.problems.push(format!(
                "{name}: {}: the columns have no names; add a header, or write the table as Parquet",
                files[0].display()
            ));
            return Ok(None);
        };
        Ok(Some(Table { files, schema, separator }))
    }

    /// The files that match the patterns.
    fn find(&self, patterns: &[String]) -> std::result::Result<Vec<PathBuf>, String> {
        let mut files = Vec::new();
        for pattern in patterns {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            let escaped = PathBuf::from(glob::Pattern::escape(&folder.to_string_lossy()));
            let places = [(folder, escaped), (Path::new(""), PathBuf::new())];
            let matches = places.iter().map(|(folder, escaped)| match folder.join(pattern) {
                file if file.exists() => vec![file],
                _ => {
                    let paths = glob::glob(&escaped.join(pattern).to_string_lossy());
                    paths.into_iter().flatten().filter_map(std::result::Result::ok).collect()
                }
            });
            let found = matches.into_iter().find(|found: &Vec<PathBuf>| !found.is_empty()).ok_or_else(|| {
                format!(
                    "there is no file {pattern}, neither in {} nor in the working directory; correct \"files\"",
                    match folder.as_os_str().is_empty() {
                        true => Path::new(".").display(),
                        false => folder.display(),
                    }
                )
            })?;
            files.extend(found);
        }
        if files.is_empty() {
            return Err("\"files\" is empty; name a file".to_owned());
        }
        Ok(files)
    }

    fn check_columns<'b>(&mut self, name: &str, schema: &TableSchema, columns: impl Iterator<Item = &'b String>) {
        for column in columns.filter(|column| schema.column(column).is_none()) {
            let names: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
            self.problems.push(format!("{name}: there is no column {column}; there are {}", names.join(", ")));
        }
    }

    /// The columns of features.
    fn features(&mut self, name: &str, features: &[Feature], file: &Path, schema: &TableSchema) -> Vec<String> {
        let mut columns: Vec<String> = Vec::new();
        for feature in features {
            self.check_columns(name, schema, feature.feature_col.all().iter());
            for column in feature.feature_col.all() {
                let Some(found) = schema.column(column) else { continue };
                if columns.contains(column) {
                    self.problems.push(format!("{name}: the column {column} is two features; leave one"));
                    continue;
                }
                match feature.transform.as_ref().map(|transform| transform.problem(column, found.values, file)) {
                    Some(Some(problem)) => self.problems.push(format!("{name}: feature {column}: {problem}")),
                    Some(None) | None => columns.push(column.clone()),
                }
            }
        }
        columns
    }

    /// The label of a node type. The command line chooses among several.
    fn label<'b>(&mut self, name: &str, entry: &'b NodeEntry, schema: &TableSchema) -> Option<&'b Label> {
        let mut labels = Vec::new();
        for label in &entry.labels {
            match (label.task_type.as_str(), &label.label_col) {
                ("classification" | "regression", Some(columns)) => {
                    self.check_columns(name, schema, columns.all().iter());
                    labels.push(label);
                }
                (task, _) => self.problems.push(format!(
                    "{name}: the task {task:?} of a label is not for nodes; expected \"classification\" or \"regression\", with a \
                     label_col"
                )),
            }
        }
        let node_type = [entry.node_type.as_str()];
        let chosen: Vec<&str> = self.line.values_for("label", &node_type).collect();
        if labels.len() > 1 && chosen.is_empty() {
            let columns = labels.iter().filter_map(|label| label.label_col.as_ref()).flat_map(OneOrMore::all);
            let columns: Vec<String> = columns.map(|column| format!("--label {}={column}", entry.node_type)).collect();
            self.problems.push(format!("{name}: there are several labels; give {}", columns.join(", or ")));
        }
        let is_chosen = |label: &&&Label| {
            let mut columns = label.label_col.iter().flat_map(OneOrMore::all);
            columns.any(|column| chosen.contains(&column.as_str()))
        };
        labels.iter().find(is_chosen).or(labels.first()).copied()
    }

    fn add_split_files(&mut self, name: &str, files: &SplitFiles, nodes: &mut NodeIngest) {
        for (split, patterns) in [("train", &files.train), ("val", &files.valid), ("test", &files.test)] {
            let Some(patterns) = patterns.as_ref().filter(|patterns| !patterns.all().is_empty()) else { continue };
            match self.find(patterns.all()).and_then(|files| ids_of_split(&files, nodes.ids)) {
                Ok(input) => nodes.splits.files.push(SplitFile::new(split, input)),
                Err(problem) => self.problems.push(format!("{name}: custom_split_filenames: {problem}")),
            }
        }
        // Each table has the first of these names that it has.
        let columns = files.column.iter().flat_map(OneOrMore::all);
        nodes.data.tables.columns.id.extend(columns.cloned());
    }
}

/// The ids of a split. Files in JSON have one in each line.
fn ids_of_split(files: &[PathBuf], kind: ExternalIds) -> std::result::Result<Input, String> {
    let are_json = files.iter().all(|file| file.extension().is_some_and(|extension| extension == "json"));
    if !are_json {
        return one_input(files);
    }
    let mut ids = Vec::new();
    for file in files {
        let problem = |problem: &dyn std::fmt::Display| format!("{}: {problem}", file.display());
        let text = fs::read_to_string(file).map_err(|error| problem(&error))?;
        for id in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            ids.push(id.map_err(|error| problem(&error))?);
        }
    }
    let column: ArrayRef = match kind {
        ExternalIds::String => {
            let text = |id: &Value| id.as_str().map_or_else(|| id.to_string(), str::to_owned);
            Arc::new(StringArray::from_iter_values(ids.iter().map(text)))
        }
        ExternalIds::Dense | ExternalIds::Sparse => {
            let numbers = ids.iter().map(|id| {
                id.as_u64().ok_or_else(|| format!("{}: expected integer ids, found {id}", files[0].display()))
            });
            Arc::new(UInt64Array::from(numbers.collect::<std::result::Result<Vec<_>, _>>()?))
        }
    };
    table_in_memory(&files[0], vec![("id", column)]).map_err(|error| error.to_string())
}

/// The table of an entry.
struct Table {
    files: Vec<PathBuf>,
    schema: TableSchema,
    separator: Option<Separator>,
}

impl Transform {
    /// Why a column cannot be transformed in this way. None if it can.
    fn problem(&self, column: &str, values: ColumnValues, file: &Path) -> Option<String> {
        let name = self.name.as_deref().unwrap_or_default();
        let has = |name: &str| self.arguments.contains_key(name);
        let command = |conversion: Conversion, transform: &str| {
            format!(
                "{}; then name the new file, with the format parquet, and {transform} the transform",
                conversion.command_for(file, column)
            )
        };
        let has_bounds = ["min_bound", "max_bound", "min_val", "max_val"].into_iter().any(has);
        let remedy = match name {
            "" if !has("truncate_dim") => return None,
            "to_categorical" if has("separator") => "one value would be several categories; write a column of zeros and ones for each \
                                                     category, and name these columns"
                .to_owned(),
            "to_categorical" if values == ColumnValues::Text => return None,
            "to_categorical" => format!(
                "only text becomes categories, and these values are not text; write them as text, as in {}",
                command(Conversion::ColumnToText, "leave")
            ),
            "bert_hf" | "tokenize_hf" => "no language model is run; compute the embeddings first, write them as a column of lists of numbers \
                                          in Parquet, and name that column without a transform"
                .to_owned(),
            "max_min_norm" if !has_bounds => {
                format!("compute it, as in {}", command(Conversion::ColumnToUnitRange, "omit"))
            }
            "standard" => format!("compute it, as in {}", command(Conversion::ColumnToZScores, "omit")),
            "rank_gauss" => format!("compute it, as in {}", command(Conversion::ColumnToNormalRanks, "omit")),
            "bucket_numerical" => {
                "write the bucket of each value as text, such as b3, and name that column with the transform to_categorical".to_owned()
            }
            _ => "compute the feature first, write it as a column of numbers, and name that column without a transform"
                .to_owned(),
        };
        let name = if name.is_empty() { "truncate_dim" } else { name };
        Some(format!("the transform {name} is not done by ingest: {remedy}"))
    }
}

/// The shares of a split, in percent.
fn shares_of(split: Option<[f64; 3]>) -> std::result::Result<Shares, String> {
    // Fractions such as 0.8 have errors that the decimals of a percent round away.
    let percents = split.unwrap_or(SPLIT_DEFAULT).map(|share| ((share * 1e6).round() / 1e4).to_string());
    percents.join("/").parse().map_err(|error: grappa_engine::Error| error.to_string())
}
