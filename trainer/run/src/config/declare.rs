//! The macro that declares options, and their description as data.

use std::fmt;

use toml::Value;

use crate::option_value::{Choice, OptionValue, ValueKind};

/// An option of training: a field of [`TrainConfig`](super::TrainConfig), a key of the configuration file and a flag.
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
    /// Options of a section with smaller numbers come first in its help.
    pub help_order: u8,
    /// When its value is fixed.
    pub scope: OptionScope,
    /// The range of its value.
    pub(super) bounds: &'static [Bound],
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
pub(super) enum Bound {
    AtLeastOne,
    AtMost(u32),
    BelowOne,
    Share,
    AboveZero,
    Fraction,
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
    pub(super) fn new<T: OptionValue>(
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
            help_order: u8::MAX,
            scope: OptionScope::Run,
            bounds: &[],
            read: T::read,
        }
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

/// Declares [`TrainConfig`](super::TrainConfig) and its [`TrainOption`]s. An option has its description, its serde
/// attribute, its name and the placeholder of its value, its type, its default value, and fields of [`TrainOption`]
/// that differ from [`TrainOption::new`].
macro_rules! train_options {
    ($($section:literal { $(
        $(#[doc = $help:literal])+
        $(#[serde($($serde:tt)+)])?
        $field:ident($value_name:literal): $type:ty = $default:expr $(, $setting:ident: $value:expr)*;
    )+ })+) => {
        /// The options of a run. Keys of the TOML file and flags are the names of the fields, with hyphens.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct TrainConfig {
            $($(
                $(#[doc = $help])+
                $(#[serde($($serde)+)])?
                pub $field: $type,
            )+)+
        }

        impl Default for TrainConfig {
            fn default() -> Self {
                Self { $($($field: $default,)+)+ }
            }
        }

        impl TrainConfig {
            /// The values of the options as numbers, in the order of [`TrainOption::all`]. None for an option that is
            /// no number.
            pub(super) fn numbers(&self) -> Vec<Option<f64>> {
                vec![$($(OptionValue::number(&self.$field),)+)+]
            }
        }

        impl TrainOption {
            /// All options, in the order of the configuration file.
            pub fn all() -> &'static [Self] {
                static ALL: LazyLock<Vec<TrainOption>> = LazyLock::new(|| vec![$($(
                    TrainOption {
                        $($setting: $value,)*
                        ..TrainOption::new::<$type>(stringify!($field), $section, $value_name, &[$($help),+])
                    },
                )+)+]);
                &ALL
            }
        }
    };
}
pub(super) use train_options;
