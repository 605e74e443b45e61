//! Options that are one of a few names.

use std::{fmt, str::FromStr};

use grappa_io::read;

use crate::Error;

/// An enum whose variants have names: `Display`, `FromStr`, serde and a list of all come from one table.
macro_rules! choices {
    (
        $(#[$attribute:meta])*
        $what:literal $name:ident { $($(#[$variant_attribute:meta])* $variant:ident = $text:literal),+ $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant),+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What users call it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let names: Vec<&str> = Self::ALL.iter().map(|choice| choice.name()).collect();
                match names.iter().position(|name| *name == text) {
                    Some(index) => Ok(Self::ALL[index]),
                    None => Err(unknown($what, text, &names)),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                super::text::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::text::deserialize(deserializer)
            }
        }
    };
}

/// A text that is none of the names.
fn unknown(what: &str, text: &str, names: &[&str]) -> Error {
    let (last, others) = names.split_last().expect("there are names");
    Error::Options(format!("unknown {what} `{text}`: use {} or {last}", others.join(", ")))
}

choices! {
    /// How parameters follow from gradients.
    "optimizer" Optimizer {
        /// Adam (Kingma, Ba, 2015). Weight decay is added to the gradient.
        #[default]
        Adam = "adam",
        /// Adam with decoupled weight decay (Loshchilov, Hutter, 2019).
        AdamW = "adamw",
        /// Stochastic gradient descent, with or without momentum.
        Sgd = "sgd",
    }
}

choices! {
    /// How the learning rate changes while a run goes on.
    "learning-rate schedule" LrSchedule {
        /// It does not.
        #[default]
        Constant = "constant",
        /// Half a cosine, from the learning rate down to `lr-min` at the last epoch (Loshchilov, Hutter, 2017).
        Cosine = "cosine",
        /// Times `lr-factor` every `lr-step` epochs.
        Step = "step",
        /// Times `lr-factor` after `lr-patience` evaluations that were no better than the best before.
        Plateau = "plateau",
    }
}

choices! {
    /// What becomes of in-neighbours that a partition does not own.
    "halo mode" HaloMode {
        /// The hop furthest from the seeds draws them too, for their features.
        Features = "features",
        /// Every hop draws them; they are not expanded.
        Stop = "stop",
        /// They are not there.
        None = "none",
        /// As `stop`, and what deeper layers need of them comes from the last exact inference, and what has changed since from one of
        /// their in-neighbours, if the model's first hop is pre-aggregated.
        #[default]
        History = "history",
        /// As `history`, without what has changed since.
        Aggregates = "aggregates",
    }
}

choices! {
    /// How gradients are weighted by how much of the graph their partition sees.
    "correction" Correction {
        /// All seeds alike.
        #[default]
        None = "none",
        /// A weight for each minibatch: the mean coverage of its seeds.
        Batch = "batch",
        /// A weight for each seed: its coverage.
        Node = "node",
    }
}

choices! {
    /// Where the first layer's aggregates come from.
    "first hop" FirstHop {
        /// Pre-aggregated where the model allows it and the store has it, or has room for it.
        #[default]
        Auto = "auto",
        /// Of sampled neighbours.
        Sampled = "sampled",
        /// Of all neighbours, computed once, out of core.
        Preaggregated = "preaggregated",
    }
}

choices! {
    /// What reads files.
    "read engine" ReadEngine {
        /// io_uring, or a pool of threads where it is refused.
        #[default]
        Auto = "auto",
        /// io_uring, or an error.
        Uring = "uring",
        /// A pool of threads.
        Pread = "pread",
    }
}

impl From<ReadEngine> for read::Choice {
    fn from(engine: ReadEngine) -> Self {
        match engine {
            ReadEngine::Auto => Self::Auto,
            ReadEngine::Uring => Self::Uring,
            ReadEngine::Pread => Self::Pread,
        }
    }
}

/// A value, or `auto`: what suits the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Auto<T> {
    /// What suits the rest.
    #[default]
    Auto,
    /// This.
    Value(T),
}

impl<T> Auto<T> {
    /// The value, if it is not left open.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Value(value) => Some(value),
        }
    }

    /// By reference.
    pub fn as_ref(&self) -> Auto<&T> {
        match self {
            Self::Auto => Auto::Auto,
            Self::Value(value) => Auto::Value(value),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Auto<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Value(value) => value.fmt(f),
        }
    }
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Auto<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            other => match other.parse() {
                Ok(value) => Ok(Self::Value(value)),
                Err(error) => Err(Error::Options(format!(
                    "`{other}` is neither `auto` nor a value: {error}"
                ))),
            },
        }
    }
}
