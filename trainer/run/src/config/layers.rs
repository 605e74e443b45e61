//! Defaults, files and flags, one over the other.

use std::{ops::Range, path::Path};

use grappa_io::{Error as EngineError, Position, regular};
use serde::Serialize;
use toml::{Table, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::TrainConfig;
use crate::{Error, Result, names};

/// The options that a resumed run may change: those that change neither what was computed until the checkpoint, nor what
/// its parameters and state mean.
///
/// Bits may differ with `threads` and `device`, and what follows with `epochs` (a cosine ends elsewhere), `eval-every`,
/// and `early-stopping`.
pub const MAY_CHANGE: [&str; 13] = [
    "epochs",
    "memory",
    "threads",
    "lookahead",
    "read-engine",
    "device",
    "eval-every",
    "early-stopping",
    "checkpoint-every",
    "checkpoint-minutes",
    "keep",
    "class-names",
    "out",
];

impl TrainConfig {
    /// The configuration of a new run: defaults, over them the file, over it the flags. `flags` serialises to a map from
    /// options to values that has only what the user gave.
    ///
    /// # Errors
    /// If the file can't be read, a key or value in it is none, or options contradict each other.
    ///
    /// # Panics
    /// If `flags` has a key that is no option.
    pub fn layered(file: Option<&Path>, flags: &impl Serialize) -> Result<Self> {
        Self::default().overlaid(file, flags)
    }

    /// The configuration of a run that goes on: `self`, which is what it was started with, over it the file, over it the
    /// flags.
    ///
    /// # Errors
    /// As [`TrainConfig::layered`], and if an option would change that must not: it is named, with both values.
    ///
    /// # Panics
    /// If `flags` has a key that is no option.
    pub fn resumed(&self, file: Option<&Path>, flags: &impl Serialize) -> Result<Self> {
        let wanted = self.overlaid(file, flags)?;
        let changed = differences(&self.table(), &wanted.table());
        match changed
            .iter()
            .find(|change| !MAY_CHANGE.contains(&change.option.as_str()))
        {
            None => Ok(wanted),
            Some(Difference { option, left, right }) => Err(Error::Options(format!(
                "the run that is to be resumed has {option} {left}, and {option} {right} was asked for: leave it out, or \
                 start a new run without --resume; what may change is {}",
                MAY_CHANGE.join(", ")
            ))),
        }
    }

    /// The configuration in a file; what is not in it has its default.
    ///
    /// # Errors
    /// If the file can't be read, a key or value in it is none, or options contradict each other.
    pub fn read(file: &Path) -> Result<Self> {
        let (config, _) = read(file)?;
        config.check()?;
        Ok(config)
    }

    /// As a TOML file that reads back to the same; without the run's folder and
    /// the names of classes, which would be wrong as soon as a file moves.
    pub fn to_toml(&self) -> String {
        let inside = Self {
            class_names: None,
            out: None,
            ..self.clone()
        };
        let options = toml::to_string(&inside).expect("a configuration is representable");
        format!(
            "# What this run was started with. `grappa-train STORE --config THIS_FILE` starts another one like it.\n{options}"
        )
    }

    /// Stands for all options that must not change while a run goes on.
    pub fn digest(&self) -> u64 {
        let mut table = self.table();
        table.retain(|option, _| !MAY_CHANGE.contains(&option));
        // A table is sorted by keys.
        xxh3_64(table.to_string().as_bytes())
    }

    /// All options, as they are in a file.
    pub fn table(&self) -> Table {
        Table::try_from(self).expect("a configuration is a table")
    }

    fn overlaid(&self, file: Option<&Path>, flags: &impl Serialize) -> Result<Self> {
        let mut table = self.table();
        if let Some(file) = file {
            let (_, given) = read(file)?;
            table.extend(given);
        }
        let given = Table::try_from(flags).map_err(|error| Error::Options(format!("an option can't be: {error}")))?;
        let options = Self::options();
        for option in given.keys() {
            assert!(options.contains(option), "flag {option} is no option");
        }
        table.extend(given);
        let config: Self = table.try_into().map_err(|error| Error::Options(one_line(&error)))?;
        config.check()?;
        Ok(config)
    }

    /// The names of all options, sorted.
    pub fn options() -> Vec<String> {
        let complete = Self {
            class_names: Some("classes.txt".into()),
            out: Some("run".into()),
            ..Self::default()
        };
        complete.table().keys().cloned().collect()
    }
}

/// A configuration is a few lines.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file says, as a configuration and as the keys that are in it.
fn read(file: &Path) -> Result<(TrainConfig, Table)> {
    let text = regular::read_text(file, FILE_BYTES_MAX)?;
    let wrong = |span: Option<Range<usize>>, what: String| {
        let line = |span: Range<usize>| text[..span.start].matches('\n').count() as u64 + 1;
        Error::from(EngineError::input(
            file,
            span.map_or(Position::Whole, |span| Position::Line(line(span))),
            what,
        ))
    };
    let given: Table = toml::from_str(&text).map_err(|error| wrong(error.span(), one_line(&error)))?;
    let config = toml::from_str(&text).map_err(|error: toml::de::Error| {
        let options = TrainConfig::options();
        // The error of an unknown key lists all there are, which is more than anyone reads.
        match given.keys().find(|key| !options.contains(key)) {
            Some(key) if error.message().contains(&format!("`{key}`")) => wrong(error.span(), unknown(key, &options)),
            _ => wrong(error.span(), one_line(&error)),
        }
    })?;
    Ok((config, given))
}

fn unknown(key: &str, options: &[String]) -> String {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    match names::nearest(key, &options) {
        Some(nearest) => format!("there is no option `{key}`; did you mean `{nearest}`?"),
        None => format!("there is no option `{key}`; there are {}", options.join(", ")),
    }
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join("; ")
}

/// An option that is not the same in two tables.
struct Difference {
    option: String,
    left: String,
    right: String,
}

fn differences(left: &Table, right: &Table) -> Vec<Difference> {
    let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let mut options: Vec<&String> = left.keys().chain(right.keys()).collect();
    options.sort();
    options.dedup();
    options
        .into_iter()
        .filter(|&option| left.get(option) != right.get(option))
        .map(|option| Difference {
            option: option.clone(),
            left: shown(left.get(option)),
            right: shown(right.get(option)),
        })
        .collect()
}
