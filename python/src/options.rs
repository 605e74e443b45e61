//! Options of programs as arguments of Python, in messages.

use std::{collections::HashMap, sync::LazyLock};

use clap::Command;
use grappa_engine::ingest::Replacement;
use grappa_run::config::TrainOption;

/// The values that an option accepts by name. None for a flag.
type Values = Option<Vec<String>>;

/// The options that name the columns of edges.
const ENDS: [&str; 3] = ["src", "dst", "weight"];

/// Flags of `grappa-train` and its commands that are no options of training.
const FLAGS_OF_TRAIN: [&str; 4] = ["probabilities", "logits", "embeddings", "exclude-known"];

/// The values of `--method`, whose crate links libtorch.
pub const METHODS: [&str; 10] =
    ["grappa", "full", "isolated", "varco", "adaqp", "bns", "pipegcn", "cofree", "llcg", "gern"];

/// The options of all programs, by name. `grappa-train` cannot be asked, because it links libtorch.
static OPTIONS: LazyLock<HashMap<String, Values>> = LazyLock::new(|| {
    let mut options = HashMap::new();
    for program in [grappa_gen::command(), grappa_ingest::command(), grappa_store::command()] {
        collect(&program, &mut options);
    }
    for option in TrainOption::all() {
        let known = options.entry(option.name.clone()).or_default();
        if !option.is_switch() {
            let names = option.choices.iter().map(|&(name, _)| name.to_owned());
            known.get_or_insert_default().extend(names);
        }
    }
    if let Some(Some(missing)) = options.get_mut("missing") {
        missing.extend(Replacement::WORDS.map(str::to_owned));
    }
    options.insert("method".to_owned(), Some(METHODS.map(str::to_owned).to_vec()));
    options.insert("at".to_owned(), Some(Vec::new()));
    for flag in FLAGS_OF_TRAIN {
        options.entry(flag.to_owned()).or_default();
    }
    options
});

fn collect(command: &Command, options: &mut HashMap<String, Values>) {
    for option in command.get_arguments() {
        let Some(name) = option.get_long() else { continue };
        // A flag of one program may have values in another one.
        let known = options.entry(name.to_owned()).or_default();
        if option.get_action().takes_values() {
            let values = option.get_possible_values();
            let names = values.iter().map(|value| value.get_name().to_owned());
            known.get_or_insert_default().extend(names);
        }
    }
    command.get_subcommands().for_each(|command| collect(command, options));
}

/// A message with arguments of Python in the place of options: `--edge-split 80/10/10` becomes `edge_split="80/10/10"`, and
/// `--resume` becomes `resume=True`. Commands between backticks stay.
pub fn in_python(message: &str) -> String {
    let parts = message.split('`').enumerate().map(|(at, part)| match at % 2 {
        1 if part.contains(' ') => part.to_owned(),
        _ => renamed(part),
    });
    parts.collect::<Vec<_>>().join("`")
}

fn renamed(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    // Whether the text so far ends with the value of an option.
    let mut follows_value = false;
    while let Some(at) = rest.find("--") {
        let (before, from) = (&rest[..at], &rest[at + 2..]);
        let is_next = follows_value && before == " ";
        follows_value = false;
        out += if is_next { ", " } else { before };
        let length = from.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        let name = from[..length.unwrap_or(from.len())].trim_end_matches('-');
        rest = &from[name.len()..];
        if name.is_empty() || before.ends_with(|c: char| c.is_alphanumeric() || c == '/' || c == '-') {
            out += "--";
            out += name;
            continue;
        }
        out += &name.replace('-', "_");
        // A word that Python keeps for itself.
        out += if name == "as" { "_=" } else { "=" };
        let values = match OPTIONS.get(name) {
            Some(None) => {
                out += "True";
                continue;
            }
            Some(Some(values)) => &values[..],
            // An option of training that is not in its configuration, such as a port.
            None => &[],
        };
        let word = match rest.strip_prefix('=') {
            Some(rest) => word(rest),
            None => rest.strip_prefix(' ').and_then(|rest| match ENDS.contains(&name) {
                true => column(rest, is_next),
                false => value(rest, values),
            }),
        };
        if let Some(word) = word {
            rest = &rest[1 + word.len()..];
            out += &literal(word);
            follows_value = true;
        }
    }
    out + rest
}

/// The word that `text` begins with, if it is a value and not the next word of the sentence.
fn value<'a>(text: &'a str, values: &[String]) -> Option<&'a str> {
    let word = word(text)?;
    let is_value = word.contains(|c: char| c.is_ascii_digit() || c.is_uppercase() || "/=<".contains(c));
    (is_value || values.iter().any(|value| value == word)).then_some(word)
}

/// The column that `text` begins with, if it is one and not the next word of the sentence: messages list the columns of edges one after
/// another, `--src a --dst b`. `is_next`: there is an option with a value before this one.
fn column(text: &str, is_next: bool) -> Option<&str> {
    let word = word(text)?;
    let is_column = is_next || text[word.len()..].starts_with(" --") && !["and", "or"].contains(&word);
    if is_column { Some(word) } else { value(text, &[]) }
}

/// The word that `text` begins with.
fn word(text: &str) -> Option<&str> {
    let word = text.split([' ', ',', ';', ')', '\'', '"', '\n']).next()?.trim_end_matches(':');
    (!word.is_empty()).then_some(word)
}

/// A value as Python writes it. Places for values, such as `FILE` and `<FILE>`, stay.
fn literal(word: &str) -> String {
    let is_place = word.starts_with('<') || word.chars().all(|c| c.is_uppercase());
    if is_place || word.parse::<f64>().is_ok() { word.to_owned() } else { format!("{word:?}") }
}
