//! Enums whose variants have names that users type.

/// Defines enums, each with a table of names, from which follow `Display`, `FromStr`, serde, a list of all variants and the
/// help of an option. The first variant is the default. The comment of a variant is its explanation in the help.
#[macro_export]
macro_rules! named_enums {
    ($(
        $(#[$attribute:meta])*
        $kind:literal $name:ident { $($(#[doc = $help:literal])+ $variant:ident = $text:literal),+ $(,)? }
        $(removed { $($removed:literal => $replacement:literal),+ })?
    )+) => {$(
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $help])+ $variant),+
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl $crate::option_value::OptionValue for $name {
            fn choices() -> Vec<$crate::option_value::Choice> {
                vec![$(($text, concat!($($help),+).trim_start())),+]
            }

            fn read(text: &str) -> std::result::Result<toml::Value, String> {
                $crate::option_value::checked_text::<Self>(text)
            }
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name that users type.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;

            fn from_str(text: &str) -> std::result::Result<Self, $crate::Error> {
                $($(if text == $removed {
                    return Err($crate::names::removed($kind, text, $replacement));
                })+)?
                let names = [$($text),+];
                let index = names.iter().position(|name| *name == text);
                index.map(|index| Self::ALL[index]).ok_or_else(|| $crate::names::unknown($kind, text, &names))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                $crate::serde_text::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                $crate::serde_text::deserialize(deserializer)
            }
        }
    )+};
}
pub(crate) use named_enums;

use crate::Error;

/// The error for a text that is none of the names. It suggests the name that the user probably meant.
pub fn unknown(kind: &str, text: &str, names: &[&str]) -> Error {
    let (last, others) = names.split_last().expect("an enum has variants");
    let suggestion = nearest(text, names).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
    Error::UnknownName(format!("unknown {kind} `{text}`{suggestion}: use {} or {last}", others.join(", ")))
}

/// The error for a name that an earlier version had.
pub fn removed(kind: &str, text: &str, replacement: &str) -> Error {
    Error::Options(format!("the {kind} `{text}` was removed: use `{replacement}`"))
}

/// The name that the user probably meant: the longest one that `text` contains (`graphsage`, `GATv2Conv`), or else the
/// one with the fewest typing errors, if they are at most 2 and at most half of the text. Case, hyphens and underscores
/// don't count.
pub(crate) fn nearest<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let text = plain(text);
    let contained = names.iter().filter(|name| text.contains(&plain(name)));
    if let Some(name) = contained.max_by_key(|name| name.len()) {
        return Some(*name);
    }
    let errors = names.iter().map(|name| (strsim::levenshtein(&text, &plain(name)), *name));
    let (errors, name) = errors.min_by_key(|(errors, _)| *errors)?;
    (errors <= 2.min(text.len() / 2)).then_some(name)
}

/// A text without case, hyphens and underscores.
fn plain(text: &str) -> String {
    text.to_lowercase().replace(['-', '_'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_of_a_name_suggest_it() {
        let models = ["sage", "sage-max", "gcn", "gat", "gatv2", "gin", "pinsage"];
        for (text, expected) in [
            ("graphsage", "sage"),
            ("graph-sage", "sage"),
            ("GraphSAGE", "sage"),
            ("SAGEConv", "sage"),
            ("sgae", "sage"),
            ("sage_max", "sage-max"),
            ("graphsage-max", "sage-max"),
            ("gat-v2", "gatv2"),
            ("GATv2Conv", "gatv2"),
            ("gats", "gat"),
            ("GCN", "gcn"),
            ("pin-sage", "pinsage"),
        ] {
            assert_eq!(nearest(text, &models), Some(expected), "{text}");
        }
        for text in ["", "x", "transformer", "mlp"] {
            assert_eq!(nearest(text, &models), None, "{text}");
        }
        let error = unknown("model", "graphsage", &models).to_string();
        assert_eq!(
            error,
            "unknown model `graphsage` (did you mean `sage`?): use sage, sage-max, gcn, gat, gatv2, gin or pinsage"
        );
        let error = unknown("model", "mlp", &models[..3]).to_string();
        assert_eq!(error, "unknown model `mlp`: use sage, sage-max or gcn");
    }
}
