//! A method as the user names it.

use std::str::FromStr;

use grappa_run::{Error, Result};
use toml::{Table, Value};

use crate::config::{Method, option_named};

/// Options that differ from run to run.
pub const NOT_SHARED: [&str; 3] = ["method", "partitions", "out"];

/// A method, and options that only its runs have: `varco+rate-schedule=fixed:4`.
#[derive(Debug, Clone)]
pub struct MethodSpec {
    /// As the user gave it.
    pub name: String,
    /// The method.
    pub method: Method,
    /// The options.
    pub options: Table,
}

impl FromStr for MethodSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('+');
        let method: Method = parts.next().unwrap_or_default().parse()?;
        let options = parts.map(|part| own_option(text, part)).collect::<Result<Table>>()?;
        Ok(Self { name: text.to_owned(), method, options })
    }
}

/// An option of a method: `NAME=VALUE`, or the name of a switch.
fn own_option(spec: &str, part: &str) -> Result<(String, Value)> {
    let (name, value) = part.split_once('=').unwrap_or((part, "true"));
    let Some(option) = option_named(name).filter(|option| !NOT_SHARED.contains(&&*option.name)) else {
        return Err(Error::Options(format!(
            "`{spec}` has the option `{name}`, which is none of training: `grappa-train --help` lists them; write \
             varco+rate-schedule=fixed:4"
        )));
    };
    let read = (option.read)(value).map_err(|error| Error::Options(format!("`{spec}`: {name}: {error}")))?;
    Ok((name.to_owned(), read))
}

impl MethodSpec {
    /// The name without what a file system or a shell could take amiss.
    pub(super) fn folder(&self) -> String {
        self.name.replace(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '.'), "-")
    }
}
