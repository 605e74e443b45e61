//! The layers of a configuration: defaults, then a preset, then a file, then flags.

use std::path::Path;

use grappa_io::{Error as EngineError, Position, regular};
use toml::{Table, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::{Preset, TrainConfig, TrainOption, check};
use crate::{Error, Result, checksum_line, names};

impl TrainConfig {
    /// The configuration of a new run: the preset overrides `self`, the defaults, the file overrides the preset, and the flags
    /// override the file. `flags` are the options that the user gave.
    ///
    /// # Errors
    /// If the file cannot be read, has an unknown key or a wrong value, or if options contradict each other.
    ///
    /// # Panics
    /// If `flags` has an unknown key.
    pub fn layered(&self, preset: Option<&Preset>, file: Option<&Path>, flags: &Table) -> Result<Self> {
        let config = self.unchecked(preset, file, flags)?;
        check(&config)?;
        Ok(config)
    }

    /// As [`TrainConfig::layered`], but options are not checked against each other. Options that are given to resume a
    /// run override the options of the run, not the defaults.
    ///
    /// # Errors
    /// If the file cannot be read, or has an unknown key or a wrong value.
    ///
    /// # Panics
    /// If `flags` has an unknown key.
    pub fn unchecked(&self, preset: Option<&Preset>, file: Option<&Path>, flags: &Table) -> Result<Self> {
        let mut table = self.table();
        table.extend(preset.map(Preset::options).unwrap_or_default());
        if let Some(file) = file {
            let (_, requested) = parse(file, &read_text(file)?, Some(&self.extension))?;
            table.extend(requested);
        }
        for option in flags.keys() {
            assert!(is_known(option, &self.extension), "unknown option {option}");
        }
        table.extend(flags.clone());
        table
            .try_into()
            .map_err(|error| Error::Options(format!("an option has an impossible value: {}", one_line(&error))))
    }

    /// The configuration of a resumed run: `self` is what the run was started with; the preset, the file and the flags
    /// override it in this order.
    ///
    /// # Errors
    /// As [`TrainConfig::layered`]. Also if an option differs that must not; the message names it with both values.
    ///
    /// # Panics
    /// If `flags` has an unknown key.
    pub fn resumed(&self, preset: Option<&Preset>, file: Option<&Path>, flags: &Table) -> Result<Self> {
        let merged = self.unchecked(preset, file, flags)?;
        let Some((option, values)) = self.fixed_difference(&merged) else {
            check(&merged)?;
            return Ok(merged);
        };
        let [run, requested] =
            values.map(|value| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string()));
        Err(Error::ChangedOption(format!(
            "the run to resume has {option} {run}, and {option} {requested} was given: leave it out, or start a new run without \
             --resume; options that may change are {}",
            changeable().join(", ")
        )))
    }

    /// An option that a resumed run must not change and that differs in `other`, with its values here and there.
    pub fn fixed_difference(&self, other: &Self) -> Option<(String, [Option<Value>; 2])> {
        let mut tables = [self.table(), other.table()];
        let mut fixed = tables[0].keys().chain(tables[1].keys()).filter(|option| !may_change(option));
        let option = fixed.find(|option| tables[0].get(*option) != tables[1].get(*option))?.clone();
        let values = tables.each_mut().map(|table| table.remove(&option));
        Some((option, values))
    }

    /// The configuration of a file. Options that are not in it have their defaults.
    ///
    /// # Errors
    /// If the file cannot be read, has an unknown key or a wrong value, or if options contradict each other.
    pub fn read(file: &Path) -> Result<Self> {
        checked(file, &read_text(file)?, Some(&Table::new()))
    }

    /// As [`TrainConfig::read`], of a file that a run keeps and that ends with a checksum. Other keys are the
    /// [extension](TrainConfig::extension).
    ///
    /// # Errors
    /// As [`TrainConfig::read`], and if the checksum is wrong.
    pub(crate) fn read_checked(file: &Path) -> Result<Self> {
        checked(file, checksum_line::checked(file, &read_text(file)?)?, None)
    }

    /// The text of a TOML file that reads back to the same configuration.
    pub fn to_toml(&self) -> String {
        let options = toml::to_string(self).expect("a configuration is representable");
        format!(
            "# The options of this run; `grappa-train --help` describes them.\n\
             # `grappa-train STORE --config THIS_FILE` starts another run with the same options.\n{options}"
        )
    }

    /// A digest of all options that a resumed run must not change.
    pub fn digest(&self) -> u64 {
        let mut table = self.table();
        table.retain(|option, _| !may_change(option));
        // A table is sorted by keys.
        xxh3_64(table.to_string().as_bytes())
    }

    /// All options, as keys and values of a file.
    pub fn table(&self) -> Table {
        Table::try_from(self).expect("a configuration is a table")
    }
}

/// Whether a resumed run may change the option of this name.
pub(super) fn may_change(option: &str) -> bool {
    TrainOption::named(option).is_some_and(TrainOption::may_change)
}

/// The names of the options that a resumed run may change.
pub(super) fn changeable() -> Vec<&'static str> {
    let changeable = TrainOption::all().iter().filter(|option| option.may_change());
    changeable.map(|option| option.name.as_str()).collect()
}

/// A larger file is certainly not a configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read_text(file: &Path) -> Result<String> {
    Ok(regular::read_text(file, FILE_BYTES_MAX)?)
}

fn checked(file: &Path, text: &str, extension: Option<&Table>) -> Result<TrainConfig> {
    let (config, _) = parse(file, text, extension)?;
    check(&config)?;
    Ok(config)
}

/// Parses the text of a file, as a configuration and as the keys that it has. Keys may be options or in `extension`, if it is given.
fn parse(file: &Path, text: &str, extension: Option<&Table>) -> Result<(TrainConfig, Table)> {
    let requested: Table = toml::from_str(text).map_err(|error| wrong(file, text, &error, one_line(&error)))?;
    if let Some(extension) = extension
        && let Some(key) = requested.keys().find(|key| !is_known(key, extension))
    {
        let has_key = |line: &str| line.trim_start_matches([' ', '\t', '"', '\'']).starts_with(key.as_str());
        let line = text.lines().position(has_key).map_or(Position::Whole, |line| Position::Line(line as u64 + 1));
        return Err(EngineError::input(file, line, unknown(key, extension)).into());
    }
    let config = toml::from_str(text).map_err(|error: toml::de::Error| {
        let span = error.span();
        let typed = span.and_then(|span| wrong_type(&text[..span.start], &requested, &error));
        wrong(file, text, &error, typed.unwrap_or_else(|| one_line(&error)))
    })?;
    Ok((config, requested))
}

fn is_known(option: &str, extension: &Table) -> bool {
    TrainOption::named(option).is_some() || extension.contains_key(option)
}

/// An error about the place of another error in the text of a file.
fn wrong(file: &Path, text: &str, error: &toml::de::Error, problem: String) -> Error {
    let lines = error.span().map(|span| text[..span.start].matches('\n').count() as u64);
    let position = lines.map_or(Position::Whole, |lines| Position::Line(lines + 1));
    EngineError::input(file, position, problem).into()
}

/// An error about a value of another type than its option, without names of Rust's types. `before` is the text before
/// the value.
fn wrong_type(before: &str, requested: &Table, error: &toml::de::Error) -> Option<String> {
    if !error.message().starts_with("invalid type: ") && !error.message().starts_with("invalid value: ") {
        return None;
    }
    let key = before.lines().last()?.trim_end().strip_suffix('=')?;
    let key = key.trim().trim_matches(['"', '\'']);
    let value = requested.get(key)?;
    let expected = match TrainConfig::default().table().get(key)? {
        Value::Integer(example) => format!("a whole number, 0 or more, such as {example}"),
        Value::Float(example) => format!("a number, such as {example}"),
        Value::Boolean(_) => "true or false".to_owned(),
        _ => return None,
    };
    Some(format!("{key} is {value}; it must be {expected}"))
}

fn unknown(key: &str, extension: &Table) -> String {
    let own = TrainOption::all().iter().map(|option| &option.name);
    let mut options: Vec<&str> = own.chain(extension.keys()).map(String::as_str).collect();
    options.sort_unstable();
    match names::nearest(key, &options) {
        Some(nearest) => format!("there is no option `{key}`; did you mean `{nearest}`?"),
        None => format!("there is no option `{key}`; there are {}", options.join(", ")),
    }
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join("; ")
}
