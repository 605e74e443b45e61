//! The command line of a graph with types, taken apart: one command line for each node type, for each relation, and for the run.
//!
//! An option may have the name of a node type or relation before its value, as in `--label paper=year`, and is for this one alone. So
//! `grappa-ingest` parses the options of each with the parser of a graph without types, and no option exists twice.

use std::{ffi::OsString, path::Path};

use anyhow::{Context, Result, bail};
use clap::{ArgAction, CommandFactory, Parser};
use grappa_engine::ingest::{TimeUnit, ogb};

use crate::args::IngestArgs;

/// Options of nodes. The name before a value is the name of a node type.
const NODE_OPTIONS: [&str; 27] = [
    "ids",
    "features",
    "feature-dtype",
    "allow-nan",
    "missing",
    "categories",
    "categories-max",
    "schema-of",
    "labels",
    "label-type",
    "id",
    "label",
    "features-from",
    "table-separator",
    "node-ids",
    "train",
    "val",
    "test",
    "split-column",
    "node-time",
    "node-time-unit",
    "split",
    "split-seed",
    "stratify",
    "chunks",
    "assign",
    "seed",
];

/// Options of edges. The name before a value is the name of a relation, alone or between its types.
const EDGE_OPTIONS: [&str; 23] = [
    "format",
    "header",
    "separator",
    "comments",
    "src",
    "dst",
    "weight",
    "weights",
    "time",
    "time-unit",
    "edge-features-from",
    "edge-features",
    "edge-feature-dtype",
    "on-bad-line",
    "undirected",
    "dedup",
    "merge",
    "self-loops",
    "edge-split",
    "edge-split-seed",
    "edge-split-by",
    "val-edges",
    "test-edges",
];

/// Options for one node type or relation only, so the name is needed.
const OF_ONE: [&str; 20] = [
    "features",
    "labels",
    "label",
    "features-from",
    "node-ids",
    "train",
    "val",
    "test",
    "split-column",
    "node-time",
    "split",
    "weights",
    "edge-features",
    "edge-features-from",
    "schema-of",
    "edge-split",
    "edge-split-seed",
    "edge-split-by",
    "val-edges",
    "test-edges",
];

/// Options of relations that are for a node type, under another name, if they have its name.
const TIMES: [(&str, &str); 2] = [("time", "node-time"), ("time-unit", "node-time-unit")];

/// Options of all relations of triples: edges of each are held out in the same way.
pub const TRIPLES: [&str; 5] = ["edge-split", "edge-split-seed", "edge-split-by", "val-edges", "test-edges"];

/// Options that this module reads itself.
const OF_GRAPHS: [&str; 7] = ["nodes", "edges", "reverse", "key", "foreign-key", "link-table", "task"];

/// Options of `--tables`.
const OF_TABLES: [&str; 4] = ["key", "foreign-key", "link-table", "task"];

/// Options that are a whole graph.
pub const WHOLE_GRAPHS: [&str; 7] = ["tables", "triples", "gconstruct", "neo4j", "graphbolt", "igb", "ogb"];

/// The column of ids, weights or times that a table does not have.
pub const NO_COLUMN: &str = "none";

/// An option with its values.
#[derive(Debug, Clone)]
struct GivenOption {
    name: String,
    /// Empty for a flag.
    values: Vec<String>,
}

/// A relation: the type of sources, its name, and the type of destinations.
pub type RelationKey = [String; 3];

/// The command line of a graph with types.
#[derive(Debug)]
pub struct GraphLine {
    options: Vec<GivenOption>,
    /// The names that options may have before values, beside those in `--nodes` and `--edges`.
    names: Vec<String>,
    /// The relations of `--triples`, after they were read.
    triple_relations: Vec<String>,
    /// The name of the program, and words that are no options.
    program: OsString,
    flags: Vec<String>,
}

impl GraphLine {
    /// Takes a command line apart. None if it is not of a graph with types.
    pub fn from_line(line: &[OsString]) -> Result<Option<Self>> {
        let mut command = IngestArgs::command();
        command.build();
        let Some((program, words)) = line.split_first() else { return Ok(None) };
        let Some(words) = words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let (mut options, mut flags) = (Vec::new(), Vec::new());
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(long) = word.strip_prefix("--") else {
                flags.push(word);
                continue;
            };
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let Some(option) = command.get_arguments().find(|option| option.get_long() == Some(name)) else {
                flags.push(word);
                continue;
            };
            let has_values = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
            // Without types, there is one number of nodes.
            let most = match name {
                "nodes" => usize::MAX,
                _ => option.get_num_args().map_or(1, |range| range.max_values()),
            };
            let mut values: Vec<String> = value.into_iter().collect();
            while has_values
                && values.len() < most
                && let Some(value) = words.next_if(|word| !word.starts_with("--"))
            {
                values.push(value);
            }
            options.push(GivenOption { name: name.to_owned(), values });
        }
        let graph = Self { options, names: Vec::new(), triple_relations: Vec::new(), program: program.clone(), flags };
        // The parser does not check this beside options that --tables conflicts with.
        if let Some(option) = OF_TABLES.into_iter().find(|option| graph.has(option) && !graph.has("tables")) {
            bail!("--{option} is for the tables of --tables, and there are none; give --tables FOLDER, or omit it");
        }
        let is_typed = graph.values("edges").any(|value| relation_of(value).is_some())
            || graph.values("nodes").any(|value| value.contains('='))
            || WHOLE_GRAPHS.iter().any(|name| *name != "ogb" && graph.has(name))
            || graph.values("ogb").any(|folder| ogb::has_types(Path::new(folder)));
        Ok(is_typed.then_some(graph))
    }

    /// Adds names of node types and relations that options may have before their values.
    pub fn add_names(&mut self, types: &[String], relations: &[RelationKey]) {
        self.names.extend(types.iter().cloned());
        for [source, name, destination] in relations {
            self.names.extend([name.clone(), format!("{source}:{name}:{destination}")]);
        }
    }

    /// Keeps the relations of `--triples`, which are read once.
    pub fn set_triple_relations(&mut self, relations: Vec<String>) {
        self.triple_relations = relations;
    }

    /// The relations of `--triples`.
    pub fn triple_relations(&self) -> &[String] {
        &self.triple_relations
    }

    /// The command line with another name of an option, and with more options.
    pub fn renamed(&self, from: &str, to: &str, more: Vec<(String, String)>) -> Vec<OsString> {
        let mut words = self.flags.clone();
        for option in &self.options {
            let name = if option.name == from { to } else { &option.name };
            words.push(format!("--{name}"));
            words.extend(option.values.iter().cloned());
        }
        words.extend(more.into_iter().flat_map(|(name, value)| [name, value]));
        [self.program.clone()].into_iter().chain(words.into_iter().map(OsString::from)).collect()
    }

    /// The values of an option.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options
            .iter()
            .filter(move |option| option.name == name)
            .flat_map(|option| &option.values)
            .map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.name == name)
    }

    /// The files or numbers of `--nodes`, by node type.
    pub fn nodes(&self) -> Result<Vec<(String, String)>> {
        let named = self.values("nodes").map(|value| {
            let (name, value) =
                value.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()).with_context(
                    || format!("--nodes {value}: with several node types, name the type, as in --nodes paper={value}"),
                )?;
            Ok((name.to_owned(), value.to_owned()))
        });
        named.collect()
    }

    /// The files of `--edges`, by relation.
    pub fn edges(&self) -> Result<Vec<(RelationKey, Vec<String>)>> {
        let mut relations: Vec<(RelationKey, Vec<String>)> = Vec::new();
        for option in self.options.iter().filter(|option| option.name == "edges") {
            for (at, value) in option.values.iter().enumerate() {
                match (relation_of(value), relations.last_mut()) {
                    (Some((key, file)), _) => relations.push((key, vec![file.to_owned()])),
                    // More files of the relation before.
                    (None, Some((_, files))) if at > 0 => files.push(value.clone()),
                    (None, _) => bail!(
                        "--edges {value}: with several node types, name the relation, as in --edges author:writes:paper={value}"
                    ),
                }
            }
        }
        Ok(relations)
    }

    /// The name of the reverse of each relation, if `--reverse` asks for one.
    pub fn reverse_of(&self, relation: &RelationKey) -> Option<String> {
        let named = self.values("reverse").filter_map(|value| value.split_once('='));
        let own = named.filter(|(name, _)| is_named(relation, name)).map(|(_, reverse)| reverse.to_owned()).next();
        let for_all = self.options.iter().any(|option| option.name == "reverse" && option.values.is_empty());
        own.or_else(|| for_all.then(|| format!("rev_{}", relation[1])))
    }

    /// Fails if an option is not for graphs with types, or names a type or relation that there is not.
    pub fn check(&self, types: &[String], relations: &[RelationKey]) -> Result<()> {
        for option in &self.options {
            let name = option.name.as_str();
            let (known, of) = match name {
                _ if NODE_OPTIONS.contains(&name) => (types.to_vec(), "node type"),
                _ if EDGE_OPTIONS.contains(&name) || name == "reverse" => {
                    (relations.iter().map(|[_, name, _]| name.clone()).collect(), "relation")
                }
                _ => continue,
            };
            let is_known = |scope: &str| {
                types.iter().any(|node_type| node_type == scope)
                    || relations.iter().any(|relation| is_named(relation, scope))
            };
            for value in &option.values {
                let scope = value.split_once('=').map(|(scope, _)| scope);
                if TIMES.iter().any(|(time, _)| *time == name) {
                    check_one_meaning(name, value, types, relations)?;
                }
                // Files of triples have the edges of all relations.
                let is_of_one = OF_ONE.contains(&name) && !(self.has("triples") && TRIPLES.contains(&name));
                if (is_of_one || name == "reverse") && !scope.is_some_and(is_known) {
                    bail!(
                        "--{name} {value}: say which {of} it is for, as in --{name} {}={}; there are {}",
                        known.first().map_or("NAME", String::as_str),
                        value.split_once('=').map_or(value.as_str(), |(_, value)| value),
                        known.join(", ")
                    );
                }
            }
        }
        Ok(())
    }

    /// The arguments of the run: its output, memory and messages.
    pub fn run(&self) -> Result<IngestArgs> {
        // Words that are no options come first, so that they are not taken for values.
        let mut words = self.flags.clone();
        words.extend(["--edges", "-"].map(str::to_owned));
        let others = self.options.iter().filter(|option| {
            let name = option.name.as_str();
            !NODE_OPTIONS.contains(&name)
                && !EDGE_OPTIONS.contains(&name)
                && !OF_GRAPHS.contains(&name)
                && !WHOLE_GRAPHS.contains(&name)
        });
        words.extend(others.flat_map(words_of));
        self.parse(words)
    }

    /// The arguments of a node type. `defaults` are options that it has unless the command line gives them.
    pub fn node_type(&self, name: &str, defaults: &[(&str, String)]) -> Result<IngestArgs> {
        let mut words = vec!["--edges".to_owned(), "-".to_owned(), "--dry-run".to_owned()];
        let mut scoped = self.scoped(&NODE_OPTIONS, |scope| scope == name);
        scoped.extend(self.times_of_type(name, &scoped));
        let missing = defaults.iter().filter(|(option, _)| !scoped.iter().any(|given| given.name == *option));
        words.extend(missing.flat_map(|(option, value)| [format!("--{option}"), value.clone()]));
        words.extend(scoped.iter().flat_map(words_of));
        self.parse(words)
    }

    /// The arguments of a relation with these files.
    pub fn relation(&self, relation: &RelationKey, files: &[String]) -> Result<IngestArgs> {
        let mut words = vec!["--dry-run".to_owned(), "--edges".to_owned()];
        words.extend(files.iter().cloned());
        let mut scoped = self.scoped(&EDGE_OPTIONS, |scope| is_named(relation, scope));
        let others = ["time", "node-time", "tables"];
        if !scoped.iter().any(|option| option.name == "time") && others.iter().any(|other| self.has(other)) {
            // It is the unit of others.
            scoped.retain(|option| option.name != "time-unit");
        }
        words.extend(scoped.iter().flat_map(words_of));
        self.parse(words)
    }

    /// The options of times that `--time` gives a node type by its name, beside options of its own. A unit may be for all.
    fn times_of_type(&self, node_type: &str, own: &[GivenOption]) -> Vec<GivenOption> {
        let has = |name: &str| own.iter().any(|option| option.name == name);
        let named = |option| self.values_for(option, &[node_type]).last().map(str::to_owned);
        let for_all = self.values("time-unit").filter(|value| !value.contains('=')).last().map(str::to_owned);
        let is_timed = named("time").is_some() || has("node-time");
        let mut found = Vec::new();
        for (option, name) in TIMES {
            let unit = if option == "time-unit" && is_timed { for_all.clone() } else { None };
            if let Some(value) = named(option).or(unit).filter(|_| !has(name)) {
                found.push(GivenOption { name: name.to_owned(), values: vec![value] });
            }
        }
        found
    }

    /// The values of an option that name one of these types or relations, without the name.
    pub fn values_for<'a>(&'a self, option: &'a str, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let named = self.values(option).filter_map(|value| value.split_once('='));
        named.filter(move |(name, _)| names.contains(name)).map(|(_, value)| value)
    }

    /// Whether no column of the table of a node type is a feature: `--features-from paper=`.
    pub fn has_no_features(&self, node_type: &str) -> bool {
        self.values_for("features-from", &[node_type]).any(str::is_empty)
    }

    /// Whether a node type has no times: `--node-time users=none`.
    pub fn has_no_times(&self, node_type: &str) -> bool {
        ["time", "node-time"]
            .iter()
            .any(|option| self.values_for(option, &[node_type]).any(|column| column == NO_COLUMN))
    }

    /// The unit of times of a node type, by name or for all.
    pub fn time_unit(&self, node_type: &str) -> Result<Option<TimeUnit>> {
        let own = ["node-time-unit", "time-unit"].into_iter().find_map(|option| {
            let for_all = self.values(option).filter(|value| !value.contains('=')).last();
            self.values_for(option, &[node_type]).last().or(for_all).map(str::to_owned)
        });
        let Some(name) = own else { return Ok(None) };
        let unit = TimeUnit::ALL.into_iter().find(|unit| unit.name() == name);
        let known = TimeUnit::ALL.map(TimeUnit::name).join(", ");
        Ok(Some(unit.with_context(|| format!("--time-unit {name}: there is no such unit; there are {known}"))?))
    }

    /// Whether an option is given for this node type, by name or for all.
    pub fn has_for_type(&self, option: &str, node_type: &str) -> bool {
        self.scoped(&[option], |scope| scope == node_type).iter().any(|given| given.name == option)
    }

    /// Whether an option is given for this relation, by name or for all.
    pub fn has_for_relation(&self, option: &str, relation: &RelationKey) -> bool {
        self.scoped(&[option], |scope| is_named(relation, scope)).iter().any(|given| given.name == option)
    }

    /// The options of this list, with the values that are for all, or for the names that `is_it` accepts.
    fn scoped(&self, list: &[&str], is_it: impl Fn(&str) -> bool) -> Vec<GivenOption> {
        let names = self.names();
        let all = self.options.iter().filter(|option| list.contains(&option.name.as_str()));
        let scoped = all.filter_map(|option| {
            let mut values = Vec::new();
            for value in &option.values {
                match value.split_once('=') {
                    // No columns.
                    Some((scope, "")) if is_it(scope) && option.name == "features-from" => {}
                    Some((scope, value)) if is_it(scope) => values.push(value.to_owned()),
                    Some((scope, _)) if names.iter().any(|name| name == scope) => {}
                    _ => values.push(value.clone()),
                }
            }
            (option.values.is_empty() || !values.is_empty()).then(|| GivenOption { name: option.name.clone(), values })
        });
        // The value for one type comes after the value for all, which it replaces.
        let mut options: Vec<GivenOption> = scoped.collect();
        let is_scoped = |option: &GivenOption| {
            let given = self.options.iter().filter(|given| given.name == option.name);
            given.flat_map(|given| &given.values).any(|value| {
                value
                    .split_once('=')
                    .is_some_and(|(scope, value)| is_it(scope) && option.values.iter().any(|own| own == value))
            })
        };
        let own: Vec<String> =
            options.iter().filter(|option| is_scoped(option)).map(|option| option.name.clone()).collect();
        options.retain(|option| !own.contains(&option.name) || is_scoped(option));
        options
    }

    /// The names of all node types and relations, as options may have them before values.
    fn names(&self) -> Vec<String> {
        let relations = self.values("edges").filter_map(relation_of).flat_map(|([source, name, destination], _)| {
            let full = format!("{source}:{name}:{destination}");
            [source, name, destination, full]
        });
        let types = self.values("nodes").filter_map(|value| Some(value.split_once('=')?.0.to_owned()));
        relations.chain(types).chain(self.names.iter().cloned()).collect()
    }

    fn parse(&self, words: Vec<String>) -> Result<IngestArgs> {
        let line = [self.program.clone()].into_iter().chain(words.into_iter().map(OsString::from));
        Ok(IngestArgs::try_parse_from(line)?)
    }
}

/// Fails if a time is for a name that both a node type and a relation have.
fn check_one_meaning(option: &str, value: &str, types: &[String], relations: &[RelationKey]) -> Result<()> {
    let Some((scope, column)) = value.split_once('=') else { return Ok(()) };
    let relation = relations.iter().find(|[_, name, _]| name == scope);
    if let (true, Some([source, name, destination])) = (types.iter().any(|of| of == scope), relation) {
        bail!(
            "--{option} {value}: {scope} is a node type and a relation; give --node-{option} {scope}={column} for the type, or --{option} \
             {source}:{name}:{destination}={column} for the relation"
        );
    }
    Ok(())
}

/// Whether an option may have the name of this node type or relation before its value.
pub fn is_for(option: &str, member: &str) -> bool {
    match member.contains(':') {
        true => EDGE_OPTIONS.contains(&option),
        false => NODE_OPTIONS.contains(&option),
    }
}

/// Whether an option that is for `scope` is for a relation.
fn is_named([source, name, destination]: &RelationKey, scope: &str) -> bool {
    scope == name || scope == format!("{source}:{name}:{destination}")
}

/// The relation and the file of a value such as `author:writes:paper=writes.parquet`.
fn relation_of(value: &str) -> Option<(RelationKey, &str)> {
    let (relation, file) = value.split_once('=')?;
    let parts: Vec<&str> = relation.split(':').collect();
    let &[source, name, destination] = parts.as_slice() else { return None };
    let is_name = |part: &str| !part.is_empty() && !part.contains('/');
    let key = [source, name, destination].map(str::to_owned);
    (key.iter().all(|part| is_name(part)) && !file.is_empty()).then_some((key, file))
}

fn words_of(option: &GivenOption) -> Vec<String> {
    let name = format!("--{}", option.name);
    match option.values.as_slice() {
        [] => vec![name],
        values => values.iter().flat_map(|value| [name.clone(), value.clone()]).collect(),
    }
}
