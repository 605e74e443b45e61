//! The layers of a configuration: defaults, then a preset, then a file, then flags.

use std::path::Path;

use grappa_io::{Error as EngineError, Position, regular};
use toml::{Table, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::{Preset, TrainConfig, TrainOption, check};
use crate::{Error, Result, checksum_line, names};

impl TrainConfig {
    /// The configuration of a new run: the preset overrides the defaults, the file overrides the preset, and the flags
    /// override the file. `flags` are the options that the user gave.
    ///
    /// # Errors
    /// If the file cannot be read, has an unknown key or a wrong value, or if options contradict each other.
    ///
    /// # Panics
    /// If `flags` has an unknown key.
    pub fn layered(preset: Option<&Preset>, file: Option<&Path>, flags: &Table) -> Result<Self> {
        let config = Self::unchecked(preset, file, flags)?;
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
    pub fn unchecked(preset: Option<&Preset>, file: Option<&Path>, flags: &Table) -> Result<Self> {
        Self::default().overlaid(preset, file, flags)
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
        let wanted = self.overlaid(preset, file, flags)?;
        let Some((option, values)) = self.fixed_difference(&wanted) else {
            check(&wanted)?;
            return Ok(wanted);
        };
        let [run, given] = values.map(|value| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string()));
        Err(Error::ChangedOption(format!(
            "the run to resume has {option} {run}, and {option} {given} was given: leave it out, or start a new run without \
             --resume; options that may change are {}",
            changeable().join(", ")
        )))
    }

    /// An option that a resumed run must not change and that differs in `other`, with its values here and there.
    pub fn fixed_difference(&self, other: &Self) -> Option<(&'static str, [Option<Value>; 2])> {
        let mut tables = [self.table(), other.table()];
        let fixed = TrainOption::all().iter().filter(|option| !option.may_change());
        let option =
            fixed.map(|option| &*option.name).find(|option| tables[0].get(*option) != tables[1].get(*option))?;
        Some((option, tables.each_mut().map(|table| table.remove(option))))
    }

    /// The configuration of a file. Options that are not in it have their defaults.
    ///
    /// # Errors
    /// If the file cannot be read, has an unknown key or a wrong value, or if options contradict each other.
    pub fn read(file: &Path) -> Result<Self> {
        checked(file, &read_text(file)?)
    }

    /// As [`TrainConfig::read`], of a file that a run keeps and that ends with a checksum.
    ///
    /// # Errors
    /// As [`TrainConfig::read`], and if the checksum is wrong.
    pub(crate) fn read_checked(file: &Path) -> Result<Self> {
        checked(file, checksum_line::checked(file, &read_text(file)?)?)
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

    fn overlaid(&self, preset: Option<&Preset>, file: Option<&Path>, flags: &Table) -> Result<Self> {
        let mut table = self.table();
        table.extend(preset.map(Preset::options).unwrap_or_default());
        if let Some(file) = file {
            let (_, given) = parse(file, &read_text(file)?)?;
            table.extend(given);
        }
        for option in flags.keys() {
            assert!(TrainOption::named(option).is_some(), "unknown option {option}");
        }
        table.extend(flags.clone());
        table
            .try_into()
            .map_err(|error| Error::Options(format!("an option has an impossible value: {}", one_line(&error))))
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

fn checked(file: &Path, text: &str) -> Result<TrainConfig> {
    let (config, _) = parse(file, text)?;
    check(&config)?;
    Ok(config)
}

/// Parses the text of a file, as a configuration and as the keys that it has.
fn parse(file: &Path, text: &str) -> Result<(TrainConfig, Table)> {
    let given: Table = toml::from_str(text).map_err(|error| wrong(file, text, &error, one_line(&error)))?;
    let config = toml::from_str(text).map_err(|error: toml::de::Error| {
        // serde's error for an unknown key lists all options and suggests none.
        let what = match given.keys().find(|key| TrainOption::named(key).is_none()) {
            Some(key) if error.message().contains(&format!("`{key}`")) => unknown(key),
            _ => {
                let span = error.span();
                let typed = span.and_then(|span| wrong_type(&text[..span.start], &given, &error));
                typed.unwrap_or_else(|| one_line(&error))
            }
        };
        wrong(file, text, &error, what)
    })?;
    Ok((config, given))
}

/// An error about the place of another error in the text of a file.
fn wrong(file: &Path, text: &str, error: &toml::de::Error, what: String) -> Error {
    let lines = error.span().map(|span| text[..span.start].matches('\n').count() as u64);
    let position = lines.map_or(Position::Whole, |lines| Position::Line(lines + 1));
    EngineError::input(file, position, what).into()
}

/// An error about a value of another type than its option, without names of Rust's types. `before` is the text before
/// the value.
fn wrong_type(before: &str, given: &Table, error: &toml::de::Error) -> Option<String> {
    if !error.message().starts_with("invalid type: ") && !error.message().starts_with("invalid value: ") {
        return None;
    }
    let key = before.lines().last()?.trim_end().strip_suffix('=')?;
    let key = key.trim().trim_matches(['"', '\'']);
    let value = given.get(key)?;
    let expected = match TrainConfig::default().table().get(key)? {
        Value::Integer(example) => format!("a whole number, 0 or more, such as {example}"),
        Value::Float(example) => format!("a number, such as {example}"),
        Value::Boolean(_) => "true or false".to_owned(),
        _ => return None,
    };
    Some(format!("{key} is {value}; it must be {expected}"))
}

fn unknown(key: &str) -> String {
    let mut options: Vec<&str> = TrainOption::all().iter().map(|option| option.name.as_str()).collect();
    options.sort_unstable();
    match names::nearest(key, &options) {
        Some(nearest) => format!("there is no option `{key}`; did you mean `{nearest}`?"),
        None => format!("there is no option `{key}`; there are {}", options.join(", ")),
    }
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join("; ")
}
