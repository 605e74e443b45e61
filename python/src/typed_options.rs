//! The options of all entry points as types of Python: the text of `grappa/_options.py`.
//!
//! The declarations of the programs say everything: name, values, description. `test_options.py` compares the file with this text.

use std::{
    any::TypeId,
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    path::PathBuf,
};

use clap::{Arg, ArgAction, Command};
use grappa_console::ByteSize;
use grappa_run::config::{TrainOption, ValueKind};
use pyo3::prelude::*;

use crate::options::{METHODS, in_python};

/// The options of ingest that take data.
const DATA: [&str; 11] = [
    "val-edges",
    "test-edges",
    "features",
    "labels",
    "node-ids",
    "weights",
    "edge-features",
    "time",
    "train",
    "val",
    "test",
];

/// The options of ingest that name a column, whose name is a number in some tables of pandas.
const COLUMNS: [&str; 3] = ["src", "dst", "weight"];

/// Options of programs that are arguments of their own in Python, or have no meaning there.
const LEFT_OUT: [&str; 9] = ["edges", "help", "json", "kind", "out", "partitions", "quiet", "tables", "version"];

/// Options of `grappa-train` that are not in the configuration of a run: name, type and description. The program cannot be asked,
/// because it links libtorch.
const OF_TRAIN: [(&str, &str, &str); 7] = [
    ("config", "Path", "TOML file with options; arguments override it"),
    ("force", "bool", "Train anew where there is a run, and remove that run when the new one has finished"),
    ("join-timeout", "int", "Seconds to wait for all processes at the start"),
    ("preset", "str", "Options of a published setting; arguments override them"),
    (
        "resume",
        "bool | Literal[\"auto\"]",
        "Continue a run from its last checkpoint; auto starts a run if there is none",
    ),
    ("timeout", "int", "Seconds without a sign of life after which a process is missing"),
    ("workers", "int", "Number of processes to start on this host"),
];

/// The model of graphs with several node types, and its options that are mappings.
const TYPED: &str = "typed";
const OF_TYPES: [(&str, &str); 5] = [
    ("classes", "Mapping[str, int]"),
    ("degrees", "str | Mapping[str, str]"),
    ("edges", "Mapping[tuple[str, str, str], int]"),
    ("feature_dim", "Mapping[str, int]"),
    ("nodes", "Mapping[str, int]"),
];

/// A type by the name of its option, with a description.
type Declared = BTreeMap<String, (String, String)>;

/// Options of `grappa-train predict` that are no arguments of their own.
const OF_PREDICT: [(&str, &str, &str); 6] = [
    (
        "at",
        "int",
        "Predict links as of this time, in the unit of the store, by a model that learned links at their times",
    ),
    ("device", "str", "Device of the model: auto, cpu, cuda or cuda:N"),
    ("exclude-known", "bool", "Leave out destinations of known edges with top_k"),
    ("memory", "int | str", "Memory limit, such as 512MiB or 4GiB"),
    ("threads", "int | str", "Number of worker threads; auto: one per processor"),
    ("type", "str", "Node type of the embeddings, of a run that predicts links between two types"),
];

/// The text of `grappa/_options.py`.
#[pyfunction]
pub fn typed_options() -> String {
    let (ingest, generate, store) = (grappa_ingest::command(), grappa_gen::command(), grappa_store::command());
    let mut text = "\"\"\"The options of the programs as keyword arguments. Generated from their declarations: `grappa._grappa.typed_options()`.\
                    \"\"\"\n\nfrom __future__ import annotations\n\nimport os\nfrom typing import Any, Literal, Mapping, Sequence, TypedDict\n\nPath = \
                    str | os.PathLike[str]\n"
        .to_owned();
    let mut of_ingest = declared(&ingest);
    for (names, wider) in [(&DATA[..], "Any"), (&COLUMNS, "str | int")] {
        for name in names {
            let (kind, _) = of_ingest.get_mut(&python_name(name)).expect("ingest has this option");
            wider.clone_into(kind);
        }
    }
    text += &class("IngestOptions", "`grappa.ingest`", of_ingest);
    let (typed, models): (Vec<_>, Vec<_>) = generate.get_subcommands().partition(|model| model.get_name() == TYPED);
    let models = models.into_iter().flat_map(declared);
    text += &class("GenerateOptions", "`grappa.generate`, of all models of one node type", models.collect());
    let mut of_types: Declared = typed.into_iter().flat_map(declared).collect();
    let edges = "A relation between two types and its number of edges";
    of_types.insert("edges".to_owned(), (String::new(), edges.to_owned()));
    for (name, kind) in OF_TYPES {
        let (declared, _) = of_types.get_mut(name).expect("the model has this option");
        kind.clone_into(declared);
    }
    text += &class("GenerateGraphOptions", "`grappa.generate` of a graph with several node types", of_types);
    for command in ["info", "verify", "repartition", "preaggregate", "add-features"] {
        let found = store.find_subcommand(command).expect("the program has this command");
        let name: String = command.split('-').map(capitalized).collect();
        text += &class(&format!("{name}Options"), &format!("`Store.{}`", command.replace('-', "_")), declared(found));
    }
    text += &class("TrainOptions", "`grappa.train`", of_train());
    text += &class("PredictOptions", "`Run.predict`", listed(&OF_PREDICT).collect());
    text
}

/// A class with these options.
fn class(name: &str, purpose: &str, options: Declared) -> String {
    let fields = options.into_iter().map(|(name, (kind, help))| format!("    #: {help}.\n    {name}: {kind}\n"));
    format!(
        "\n\nclass {name}(TypedDict, total=False):\n    \"\"\"Options of {purpose}.\"\"\"\n\n{}",
        fields.collect::<String>()
    )
}

/// The options of a command.
fn declared(command: &Command) -> Declared {
    let command = command.clone().disable_help_flag(true);
    let options = command.get_arguments().filter_map(|option| Some((option.get_long()?, option)));
    let options = options.filter(|(name, option)| !option.is_hide_set() && !LEFT_OUT.contains(name));
    options.map(|(name, option)| (python_name(name), (kind_of(option), help_of(option)))).collect()
}

fn of_train() -> Declared {
    let options = TrainOption::all().iter().filter(|option| option.name != "out");
    let mut declared: Declared = options
        .map(|option| {
            let names = option.choices.iter().map(|&(name, _)| name);
            let kind = match option.kind {
                ValueKind::Switch => "bool".to_owned(),
                ValueKind::Integer => "int".to_owned(),
                ValueKind::Number => "float".to_owned(),
                ValueKind::Bytes => "int | str".to_owned(),
                ValueKind::Path => "Path".to_owned(),
                ValueKind::Integers => "int | str | Sequence[int]".to_owned(),
                ValueKind::Text if option.choices.is_empty() => "str | float | Sequence[str | float]".to_owned(),
                ValueKind::Text => literal(names),
            };
            let is_number = matches!(option.kind, ValueKind::Integer | ValueKind::Number);
            let auto = if option.accepts_auto && is_number { " | Literal[\"auto\"]" } else { "" };
            (python_name(&option.name), (kind + auto, sentence(&first_paragraph(option.help))))
        })
        .collect();
    declared.extend(listed(&OF_TRAIN));
    let help = "How partitions train together".to_owned();
    declared.insert("method".to_owned(), (literal(METHODS.into_iter()), help));
    declared
}

fn listed(options: &'static [(&str, &str, &str)]) -> impl Iterator<Item = (String, (String, String))> {
    options.iter().map(|&(name, kind, help)| (python_name(name), (kind.to_owned(), help.to_owned())))
}

/// The type of an option's value.
fn kind_of(option: &Arg) -> String {
    if matches!(option.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
        return "bool".to_owned();
    }
    if matches!(option.get_action(), ArgAction::Count) {
        return "int".to_owned();
    }
    let names: Vec<_> = option.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    let parsed = option.get_value_parser().type_id();
    let is = |types: &[TypeId]| types.iter().any(|kind| parsed == *kind);
    let integers = [TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    let positive = [TypeId::of::<NonZeroU32>(), TypeId::of::<NonZeroU64>(), TypeId::of::<NonZeroUsize>()];
    let one = match () {
        () if !names.is_empty() => literal(names.iter().map(|value| value.get_name())),
        () if is(&integers) || is(&positive) => "int".to_owned(),
        () if is(&[TypeId::of::<f32>(), TypeId::of::<f64>()]) => "float".to_owned(),
        () if is(&[TypeId::of::<PathBuf>()]) => "Path".to_owned(),
        () if is(&[TypeId::of::<ByteSize>()]) => "int | str".to_owned(),
        () if is(&[TypeId::of::<String>()]) => "str".to_owned(),
        () => "str | float".to_owned(),
    };
    let is_list = matches!(option.get_action(), ArgAction::Append)
        || option.get_value_delimiter().is_some()
        || option.get_num_args().is_some_and(|count| count.max_values() > 1);
    if is_list { format!("{one} | Sequence[{one}]") } else { one }
}

fn help_of(option: &Arg) -> String {
    sentence(&option.get_help().map(ToString::to_string).unwrap_or_default())
}

/// The lines of a description up to the first empty one, as one line.
fn first_paragraph(lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| line.trim()).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// The first sentence of a description, in words of Python, on one line.
fn sentence(help: &str) -> String {
    let line = help.split(" [default:").next().unwrap_or(help).trim().trim_end_matches('.');
    in_python(line).replace('\n', " ")
}

fn literal<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("{name:?}")).collect();
    format!("Literal[{}]", names.join(", "))
}

/// The name of an option as an argument.
fn python_name(name: &str) -> String {
    let name = name.replace('-', "_");
    // A word that Python keeps for itself.
    if name == "as" { "as_".to_owned() } else { name }
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
