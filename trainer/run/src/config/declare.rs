//! The macro that declares options, and their description as data.

use std::fmt;

use toml::Value;

use super::TrainConfig;
use crate::option_value::{Choice, OptionValue, ValueKind};

/// An option of training: a field of [`TrainConfig`], a key of the configuration file and a flag.
#[derive(Debug)]
pub struct TrainOption {
    /// The key, which is also the name of the flag.
    pub name: String,
    /// The section of the help that shows the option.
    pub section: &'static str,
    /// The placeholder of its value in the help.
    pub value_name: &'static str,
    /// Lines of its description. An empty line ends a paragraph.
    pub help: &'static [&'static str],
    /// The names that it accepts. None if its values are not names.
    pub choices: Vec<Choice>,
    /// The values that it accepts besides names.
    pub kind: ValueKind,
    /// Whether it accepts `auto`, too.
    pub accepts_auto: bool,
    /// Options of a section with smaller numbers come first in its help.
    pub help_order: u8,
    /// When its value is fixed.
    pub scope: OptionScope,
    /// The range of its value.
    pub bounds: &'static [Bound],
    /// Reads the text of the flag.
    pub read: fn(&str) -> Result<Value, String>,
}

/// When the value of an option is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionScope {
    /// For the whole run. Its results depend on the value, or the meaning of its parameters does.
    Run,
    /// A resumed run may change the value. Results up to the checkpoint do not depend on it. With other values of
    /// `epochs` (the end of a cosine), `evaluate`, `eval-every` and `early-stopping`, the rest of the run differs.
    Continuation,
    /// Each process has a value of its own: its machine, and paths of files that only rank 0 reads and writes. A
    /// resumed run may change it. With another `device`, results may differ in their last bits.
    Process,
}

/// A bound of the value of an option.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// 1 or more.
    AtLeastOne,
    /// This or less.
    AtMost(u32),
    /// From 0 to below 1.
    BelowOne,
    /// From 0 to 1.
    Share,
    /// Above 0, and finite.
    AboveZero,
    /// Above 0 and below 1.
    Fraction,
    /// 0 or more, and finite.
    NotNegative,
}

impl Bound {
    /// NaN is within no bound.
    pub(super) fn contains(self, value: f64) -> bool {
        match self {
            Self::AtLeastOne => value >= 1.0,
            Self::AtMost(most) => value <= f64::from(most),
            Self::BelowOne => (0.0..1.0).contains(&value),
            Self::Share => (0.0..=1.0).contains(&value),
            Self::AboveZero => value > 0.0 && value.is_finite(),
            Self::Fraction => value > 0.0 && value < 1.0,
            Self::NotNegative => value >= 0.0 && value.is_finite(),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeastOne => f.write_str("at least 1"),
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::BelowOne => f.write_str("from 0 to below 1"),
            Self::Share => f.write_str("from 0 to 1"),
            Self::AboveZero => f.write_str("above 0"),
            Self::Fraction => f.write_str("above 0 and below 1"),
            Self::NotNegative => f.write_str("0 or more"),
        }
    }
}

impl TrainOption {
    /// An option for the whole run, without bounds.
    pub fn new<T: OptionValue>(
        field: &str,
        section: &'static str,
        value_name: &'static str,
        help: &'static [&'static str],
    ) -> Self {
        Self {
            name: field.replace('_', "-"),
            section,
            value_name,
            help,
            choices: T::choices(),
            kind: T::KIND,
            accepts_auto: T::ACCEPTS_AUTO,
            help_order: u8::MAX,
            scope: OptionScope::Run,
            bounds: &[],
            read: T::read,
        }
    }

    /// The options of [`TrainConfig`], in the order of the configuration file.
    pub fn all() -> &'static [Self] {
        TrainConfig::options()
    }

    /// The option of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|option| option.name == name)
    }

    /// Whether the flag alone means `true`.
    pub fn is_switch(&self) -> bool {
        self.kind == ValueKind::Switch
    }

    /// Whether a resumed run may change it.
    pub fn may_change(&self) -> bool {
        self.scope != OptionScope::Run
    }
}

/// Declares a struct of options and their [`TrainOption`]s. An option has its description, its serde attribute, its name and the placeholder
/// of its value, its type, its default value, and fields of [`TrainOption`] that differ from [`TrainOption::new`]. A field in brackets is no
/// option.
#[macro_export]
macro_rules! train_options {
    ($(#[$attribute:meta])* $config:ident $([$(#[$note:meta])* $rest:ident: $rest_type:ty])?; $($section:literal { $(
        $(#[doc = $help:literal])+
        $(#[serde($($serde:tt)+)])?
        $field:ident($value_name:literal): $type:ty = $default:expr $(, $setting:ident: $value:expr)*;
    )+ })+) => {
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, rename_all = "kebab-case")]
        $(#[$attribute])*
        pub struct $config {
            $($(
                $(#[doc = $help])+
                $(#[serde($($serde)+)])?
                pub $field: $type,
            )+)+
            $($(#[$note])* pub $rest: $rest_type,)?
        }

        impl Default for $config {
            fn default() -> Self {
                Self { $($($field: $default,)+)+ $($rest: <$rest_type>::default(),)? }
            }
        }

        impl $config {
            /// The options, in the order of the configuration file.
            pub fn options() -> &'static [$crate::config::TrainOption] {
                static ALL: std::sync::LazyLock<Vec<$crate::config::TrainOption>> = std::sync::LazyLock::new(|| vec![$($(
                    $crate::config::TrainOption {
                        $($setting: $value,)*
                        ..$crate::config::TrainOption::new::<$type>(stringify!($field), $section, $value_name, &[$($help),+])
                    },
                )+)+]);
                &ALL
            }

            /// The values of the options as numbers, in the order of the options. None for an option that is no number.
            fn numbers(&self) -> Vec<Option<f64>> {
                vec![$($($crate::option_value::OptionValue::number(&self.$field),)+)+]
            }

            /// Checks the range of each option.
            ///
            /// # Errors
            /// The message names the option, its value, and the values that it may have.
            pub fn check_ranges(&self) -> $crate::Result<()> {
                $crate::config::check_ranges(Self::options(), &self.numbers())
            }
        }
    };
}
