//! Options whose values are names.

use std::{fmt, str::FromStr};

use grappa_io::read;

use crate::{Error, names::named_enum};

named_enum! {
    /// The optimizer.
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
    /// The learning rate schedule.
    "learning-rate schedule" LrSchedule {
        /// The learning rate stays the same.
        #[default]
        Constant = "constant",
        /// Half a cosine, from the learning rate down to `lr-min` at the last epoch (Loshchilov, Hutter, 2017).
        Cosine = "cosine",
        /// Multiplied by `lr-factor` every `lr-step` epochs.
        Step = "step",
        /// Multiplied by `lr-factor` after more than `lr-patience` evaluations without a better score.
        Plateau = "plateau",
    }
}

named_enum! {
    /// The treatment of halo nodes: in-neighbors that a partition does not own.
    "halo mode" HaloMode {
        /// As `history`, if the first hop is pre-aggregated and the refreshes take at most a quarter of the work of training; else as
        /// `neighbors`.
        #[default]
        Auto = "auto",
        /// Every hop samples them, for their features. They are not expanded.
        Stop = "stop",
        /// Every hop samples them, and each has sampled in-neighbors of its own, drawn again when the graph is repartitioned.
        Neighbors = "neighbors",
        /// They are never sampled.
        None = "none",
        /// As `stop`, and deeper layers use their historical embeddings from the last refresh. If the first hop is
        /// pre-aggregated, one in-neighbor of each corrects them for the change of the parameters since.
        History = "history",
    }
    removed { "features" => "stop", "aggregates" => "history" }
}

named_enum! {
    /// Loss weights by coverage, the share of its neighborhood that a seed sees in its partition.
    "correction" Correction {
        /// The same weight for all seeds.
        #[default]
        None = "none",
        /// One weight per minibatch: the mean coverage of its seeds.
        Batch = "batch",
        /// One weight per seed: its coverage.
        Node = "node",
    }
}

named_enum! {
    /// The source of the first layer's aggregates.
    "first hop" FirstHop {
        /// Pre-aggregated features, if the model can use them and the store has them or has room for them; else sampled.
        #[default]
        Auto = "auto",
        /// Sampled neighbors.
        Sampled = "sampled",
        /// Pre-aggregated features: over all in-neighbors, computed once, out of core.
        Preaggregated = "preaggregated",
    }
}

named_enum! {
    /// How the model is evaluated while it is trained.
    "way to evaluate" Evaluate {
        /// Exactly, if that takes a few milliseconds, at most about a quarter of an epoch, or no longer than with sampled
        /// neighbors. Else with sampled neighbors, and at the end of the run the best model is evaluated exactly.
        #[default]
        Auto = "auto",
        /// From all neighbors.
        Exact = "exact",
        /// From sampled neighbors, with twice the fanouts of training.
        Sampled = "sampled",
    }
}

named_enum! {
    /// The number that decides which epoch is the best. Early stopping and the schedule `plateau` follow it.
    "thing to monitor" Monitor {
        /// The validation score: accuracy, or micro F1 for sets of labels. Higher is better.
        #[default]
        Score = "score",
        /// The validation loss. Lower is better.
        Loss = "loss",
    }
}

named_enum! {
    /// How files are read.
    "read engine" ReadEngine {
        /// io_uring, or a pool of threads where the kernel refuses it.
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

named_enum! {
    /// How gradients are compressed between processes. [`crate::compression`] has the encodings.
    "compression" Compress {
        /// f32, summed by an all-reduce.
        #[default]
        None = "none",
        /// bf16. Sums are computed in f32.
        Bf16 = "bf16",
        /// 8 bits per value and a scale per block, with error feedback.
        Int8 = "int8",
        /// The values of the largest magnitude, as bf16, with error feedback.
        TopK = "top-k",
        /// f32 without loss, entropy-coded.
        Lossless = "lossless",
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
    /// A CUDA device: the one with this index, or that of the process, which is the first one unless processes divide the GPUs of a host.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownDevice(text.to_owned());
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(None)),
            other => {
                let index = other.strip_prefix("cuda:").ok_or_else(unknown)?;
                // `parse` alone would take "+1".
                if !index.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(unknown());
                }
                index
                    .parse()
                    .map(|index| Self::Cuda(Some(index)))
                    .map_err(|_| unknown())
            }
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

/// A value, or `auto`: derived from the other options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Auto<T> {
    /// Derived from the other options.
    #[default]
    Auto,
    /// Given by the user.
    Value(T),
}

impl<T> Auto<T> {
    /// The value, if it is not `auto`.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Value(value) => Some(value),
        }
    }

    /// The same, by reference.
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
                Err(error) => {
                    let why = match other {
                        "0" => "it must be at least 1".to_owned(),
                        _ => error.to_string(),
                    };
                    Err(Error::Options(format!(
                        "`{other}` is neither `auto` nor a value: {why}"
                    )))
                }
            },
        }
    }
}
