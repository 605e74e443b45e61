//! Options whose values are names.

use std::{fmt, str::FromStr};

use grappa_io::read;

use crate::{Error, names::named_enum};

named_enum! {
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

named_enum! {
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

named_enum! {
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

named_enum! {
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

named_enum! {
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

named_enum! {
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

/// The device that the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The first CUDA device if there is one, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The CUDA device with this index.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownDevice(text.to_owned());
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            other => {
                let index = other.strip_prefix("cuda:").ok_or_else(unknown)?;
                // `parse` alone would take "+1".
                if !index.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(unknown());
                }
                index.parse().map(Self::Cuda).map_err(|_| unknown())
            }
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
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
