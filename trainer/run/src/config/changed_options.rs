//! The options that a user gave, as far as their values tell.

use toml::{Table, Value};

use super::{TrainConfig, TrainOption};

/// The options of a configuration that differ from their defaults.
pub struct ChangedOptions(Table);

impl ChangedOptions {
    /// The options that `config` gives.
    pub fn from_config(config: &TrainConfig) -> Self {
        let (mut changed, default) = (config.table(), TrainConfig::default().table());
        changed.retain(|option, value| default.get(option) != Some(value));
        Self(changed)
    }

    /// The option and its value as the flag has it. None if the value is the default.
    pub fn flag(&self, option: &str) -> Option<String> {
        self.value(option).map(|value| match value {
            Value::Boolean(true) => option.to_owned(),
            value => format!("{option} {}", text(value)),
        })
    }

    /// The first of these options that was given, and its value.
    pub fn first_of<'a>(&self, options: &[&'a str]) -> Option<(&'a str, String)> {
        let mut options = options.iter();
        options.find_map(|&option| self.value(option).map(|value| (option, text(value))))
    }

    fn value(&self, option: &str) -> Option<&Value> {
        assert!(TrainOption::named(option).is_some(), "unknown option {option}");
        self.0.get(option)
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Float(number) => number.to_string(),
        value => shown(value),
    }
}

/// The value of an option, as a flag has it.
pub fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
