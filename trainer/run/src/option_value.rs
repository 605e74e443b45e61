//! Values of options: how the text of a flag becomes a value of a configuration file.

use std::{
    fmt::Display,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
};

use grappa_io::size::ByteSize;
use grappa_sampling::{partition::Schedule, sample::Fanouts};
use toml::Value;

/// A name that an option accepts, and its explanation in the help.
pub type Choice = (&'static str, &'static str);

/// The values that an option accepts besides names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `true` and `false`.
    Switch,
    /// Integers.
    Integer,
    /// Integers and floats.
    Number,
    /// A number of bytes, with or without a unit.
    Bytes,
    /// A path.
    Path,
    /// Integers with commas between them.
    Integers,
    /// Any other text.
    Text,
}

/// The type of an option.
pub trait OptionValue: Sized {
    /// The values that the option accepts besides names.
    const KIND: ValueKind = ValueKind::Text;
    /// Whether the option accepts `auto`, too.
    const ACCEPTS_AUTO: bool = false;

    /// The names that the option accepts. None if its values are not names.
    fn choices() -> Vec<Choice> {
        Vec::new()
    }

    /// Reads the text of a flag.
    ///
    /// # Errors
    /// The message says which texts are accepted.
    fn read(text: &str) -> Result<Value, String>;

    /// The value as a number, if it is one.
    fn number(&self) -> Option<f64> {
        None
    }
}

/// A text that parses as a `T`, as it is.
///
/// # Errors
/// If it does not parse.
pub fn checked_text<T: FromStr<Err: Display>>(text: &str) -> Result<Value, String> {
    text.parse::<T>().map_err(|error| error.to_string())?;
    Ok(text.into())
}

/// Types whose values are texts that they parse.
#[macro_export]
macro_rules! text_option {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::option_value::OptionValue for $type {
            fn read(text: &str) -> std::result::Result<toml::Value, String> {
                $crate::option_value::checked_text::<Self>(text)
            }
        }
    )+};
}
pub(crate) use text_option;

macro_rules! number_option {
    ($($type:ty: $kind:ident),+) => {$(
        impl OptionValue for $type {
            const KIND: ValueKind = ValueKind::$kind;

            fn read(text: &str) -> Result<Value, String> {
                let number: Self = text.parse().map_err(|error: <Self as FromStr>::Err| error.to_string())?;
                // TOML has no integers above 2^63 - 1.
                Ok(Value::try_from(number).unwrap_or_else(|_| text.into()))
            }

            fn number(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }
    )+};
}
number_option!(u32: Integer, u64: Integer, usize: Integer, f64: Number);

macro_rules! positive_option {
    ($($type:ty),+) => {$(
        impl OptionValue for $type {
            const KIND: ValueKind = ValueKind::Integer;

            fn read(text: &str) -> Result<Value, String> {
                checked_text::<Self>(text)
            }

            fn number(&self) -> Option<f64> {
                Some(self.get() as f64)
            }
        }
    )+};
}
positive_option!(NonZeroU32, NonZeroUsize);

impl OptionValue for Fanouts {
    const KIND: ValueKind = ValueKind::Integers;

    fn read(text: &str) -> Result<Value, String> {
        checked_text::<Self>(text)
    }
}

impl OptionValue for bool {
    const KIND: ValueKind = ValueKind::Switch;

    fn choices() -> Vec<Choice> {
        vec![("true", ""), ("false", "")]
    }

    fn read(text: &str) -> Result<Value, String> {
        text.parse().map(Value::Boolean).map_err(|_| "use true or false".to_owned())
    }
}

impl OptionValue for Option<String> {
    fn read(text: &str) -> Result<Value, String> {
        Ok(text.into())
    }
}

impl OptionValue for Option<PathBuf> {
    const KIND: ValueKind = ValueKind::Path;

    fn read(text: &str) -> Result<Value, String> {
        match text {
            "" => Err("a path is needed".to_owned()),
            path => Ok(path.into()),
        }
    }
}

impl OptionValue for ByteSize {
    const KIND: ValueKind = ValueKind::Bytes;

    fn read(text: &str) -> Result<Value, String> {
        checked_text::<Self>(text)
    }

    fn number(&self) -> Option<f64> {
        Some(self.0 as f64)
    }
}

impl OptionValue for Schedule {
    fn choices() -> Vec<Choice> {
        let explained = Self::ALL.map(|schedule| {
            let help = match schedule {
                Self::Sweep => {
                    "each partition keeps half of its nodes and rotates the rest, until all edges were visible"
                }
                Self::Shuffle => {
                    "all chunks are grouped anew at random; partitions have half as many nodes as with sweep"
                }
                Self::Fixed => "the first partitions of sweep, which never change",
                Self::Local => "as sweep, with partitions of neighboring chunks, for stores of grappa-ingest --assign",
            };
            (schedule.name(), help)
        });
        explained.to_vec()
    }

    fn read(text: &str) -> Result<Value, String> {
        checked_text::<Self>(text)
    }
}
