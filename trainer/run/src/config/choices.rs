//! Options whose values are names.

use std::{fmt, path::PathBuf, str::FromStr};

use grappa_io::read;
use toml::Value;

use crate::{
    Error,
    names::named_enums,
    option_value::{OptionValue, ValueKind, checked_text},
};

named_enums! {
    /// The optimizer: Adam (Kingma, Ba, 2015), AdamW (Loshchilov, Hutter, 2019), Adagrad (Duchi et al., 2011) or SGD.
    "optimizer" Optimizer {
        /// Adam; weight decay is added to the gradient
        Adam = "adam",
        /// Adam with decoupled weight decay
        AdamW = "adamw",
        /// Adagrad, for --layers 0
        Adagrad = "adagrad",
        /// stochastic gradient descent, with --momentum
        Sgd = "sgd",
    }

    /// The learning rate schedule. Cosine annealing: Loshchilov, Hutter, 2017.
    "learning-rate schedule" LrSchedule {
        /// no change
        Constant = "constant",
        /// cosine annealing to --lr-min at the last epoch
        Cosine = "cosine",
        /// multiply by --lr-factor every --lr-step epochs
        Step = "step",
        /// multiply by --lr-factor after --lr-patience evaluations without improvement
        Plateau = "plateau",
    }

    /// The treatment of halo nodes: in-neighbors that a partition does not own.
    "halo mode" HaloMode {
        /// for sage and gcn, history if its refreshes take at most a quarter of the work of training; else neighbors
        Auto = "auto",
        /// every hop samples them, for their features, but never their neighbors
        Stop = "stop",
        /// every hop samples them, and they have sampled neighbors of their own (--halo-neighbors)
        Neighbors = "neighbors",
        /// never sampled, as if their edges were missing
        None = "none",
        /// as stop; deeper layers take their aggregates from the last refresh (historical embeddings), corrected by
        /// one freshly computed neighbor. For sage, gcn and gin with pre-aggregated features; else the same as stop
        /// with 2 layers, and without the correction with more
        History = "history",
    }
    removed { "features" => "stop", "aggregates" => "history" }

    /// Loss weights by coverage, the share of its neighborhood that a seed sees in its partition.
    "correction" Correction {
        /// equal weights
        None = "none",
        /// one weight per minibatch: the mean coverage of its seeds
        Batch = "batch",
        /// one weight per seed: its coverage
        Node = "node",
    }

    /// How minibatches are sampled. They are the same either way.
    "way to sample" Sampling {
        /// sweep if the adjacency lists do not fit in --memory, and partitions would lack in-neighbors of each other's nodes
        /// (--halo-neighbors), and minibatches of the whole graph fit; else batch
        Auto = "auto",
        /// each minibatch on its own, from the lists of its nodes
        Batch = "batch",
        /// all minibatches of an epoch together, or as many as the disk has room for: each hop reads the lists once from
        /// front to back; for graphs on disk, in one partition
        Sweep = "sweep",
    }

    /// The source of the first layer's aggregates.
    "first hop" FirstHop {
        /// preaggregated for sage, gcn and gin if the store has the aggregates, or they fit in half of the free disk
        /// space; else sampled
        Auto = "auto",
        /// the sampled neighbors, in each minibatch
        Sampled = "sampled",
        /// all neighbors, aggregated once and stored with the graph; for sage, gcn and gin
        Preaggregated = "preaggregated",
    }

    /// What the model takes of the edges of the store.
    "use of edge data" EdgeData {
        /// weights for sage, gcn and gin, and features for gatv2, gine and transformer, if edges have any
        Auto = "auto",
        /// as auto, and an error if the model takes nothing
        Use = "use",
        /// nothing
        Ignore = "ignore",
    }

    /// How the model is evaluated while it is trained.
    "way to evaluate" Evaluate {
        /// exact if that takes at most about a quarter of an epoch, or some 20 ms; else sampled, and the best model is
        /// evaluated exactly at the end
        Auto = "auto",
        /// from all in-neighbors of the scored nodes
        Exact = "exact",
        /// from sampled in-neighbors, with twice the fanouts of training
        Sampled = "sampled",
    }

    /// The number that decides which epoch is the best: higher scores, or lower losses and errors. Early stopping and the
    /// schedule `plateau` follow it. All are of the validation nodes.
    "thing to monitor" Monitor {
        /// accuracy; micro F1 if nodes have sets of classes, rmse if labels are numbers, mrr for links
        Score = "score",
        /// loss, without class weights
        Loss = "loss",
        /// share of the nodes whose prediction is right, of sets the whole set
        Accuracy = "accuracy",
        /// mean F1 of the classes
        MacroF1 = "macro-f1",
        /// F1 of all decisions together
        MicroF1 = "micro-f1",
        /// area under the ROC curve, for two classes, sets of classes and links
        Auc = "auc",
        /// area under the precision-recall curve, for two classes, sets of classes and links
        AveragePrecision = "average-precision",
        /// root of the mean squared error, for numbers
        Rmse = "rmse",
        /// mean absolute error, for numbers
        Mae = "mae",
        /// coefficient of determination, for numbers
        R2 = "r2",
        /// mean reciprocal rank of edges among candidates, for links
        Mrr = "mrr",
        /// share of edges that are among the best 10 of their candidates, for links
        HitsAt10 = "hits@10",
        /// mean share of the held-out destinations of a source among its best 20 of all destinations, for links
        RecallAt20 = "recall@20",
        /// mean average precision of the best 20 destinations of a source, for links
        MapAt20 = "map@20",
        /// mean normalized discounted cumulative gain of the best 20 destinations of a source, for links
        NdcgAt20 = "ndcg@20",
    }

    /// The task that the labels must serve.
    "task" TaskChoice {
        /// the task of the labels
        Auto = "auto",
        /// a class per node, or a set of classes
        Classes = "classes",
        /// numbers per node, ingested with --label-type float
        Regression = "regression",
        /// whether there is an edge between two nodes; needs edges that are held out, by grappa-ingest --edge-split
        Link = "link",
    }

    /// The nodes that negatives of links are drawn from, and for whom.
    "way to draw negatives" NegativeSampling {
        /// uniform; with --layers 0, all if there are few entities, else shared
        Auto = "auto",
        /// other destinations for each source, all nodes alike
        Uniform = "uniform",
        /// other destinations for each source, in proportion to in-degree^0.75
        Degree = "degree",
        /// destinations that all sources of a minibatch share, all nodes alike
        Shared = "shared",
        /// destinations that all sources of a minibatch share, drawn from the ends of its edges
        InBatch = "in-batch",
        /// pairs of nodes, both drawn from all nodes; for --loss bce
        Pairs = "pairs",
        /// all entities but the right one (1-vs-all), for --layers 0
        All = "all",
    }

    /// The length of a difference of two rows: of triples, whose decoder is a distance.
    "norm of distances" DistanceNorm {
        /// root of the sum of squares; scores are products of matrices
        L2 = "l2",
        /// sum of absolute values, of complex numbers for rotate
        L1 = "l1",
    }

    /// The edges that messages do not use in the minibatch that asks about them.
    "kind of edges to leave out" ExcludeTargets {
        /// the edges that the minibatch asks about, and their reverses
        Both = "both",
        /// the edges that the minibatch asks about
        Forward = "forward",
        /// none
        None = "none",
    }

    /// The loss of a node or a link. Focal loss: Lin et al., 2017. BPR: Rendle et al., 2009. Numbers are standardized first.
    "loss" LossKind {
        /// cross-entropy for classes, mse for numbers, bce for links, softmax for triples
        Auto = "auto",
        /// cross-entropy, for classes; of sets, the mean binary cross-entropy of the classes
        CrossEntropy = "cross-entropy",
        /// cross-entropy times (1 - p)^gamma for the probability p of the truth, for classes; see --focal-gamma
        Focal = "focal",
        /// squared error, for numbers
        Mse = "mse",
        /// absolute error, for numbers
        Mae = "mae",
        /// squared error up to --huber-delta and linear beyond, for numbers
        Huber = "huber",
        /// binary cross-entropy of edges and negatives, for links
        Bce = "bce",
        /// -log sigmoid(score of the edge - score of a negative), for links
        Bpr = "bpr",
        /// cross-entropy of the edge among its negatives, for links; see --temperature
        Softmax = "softmax",
    }

    /// The time that limits the edges that a node or link sees.
    "time of seeds" SeedTime {
        /// that of each node or edge that is learned, if it has one
        Own = "own",
        /// no limit: later edges are seen, too
        None = "none",
    }

    /// Whether edges at the very time of a seed are seen.
    "treatment of equal times" TimeEqual {
        /// seen by nodes, and hidden from links, of which they may be the answer
        Auto = "auto",
        /// seen
        Seen = "seen",
        /// hidden
        Hidden = "hidden",
    }

    /// The limit of the hops after the first.
    "limit of hops" TimeHops {
        /// the time of the seed, for all hops
        Seed = "seed",
        /// the time of the edge that reached a node, or of the node
        Edge = "edge",
    }

    /// The edges that a node draws of those within its limit.
    "way to draw by time" TimeStrategy {
        /// any of them
        Uniform = "uniform",
        /// the last ones
        Last = "last",
    }

    /// How files are read.
    "read engine" ReadEngine {
        /// io_uring, or a pool of threads where io_uring is not permitted
        Auto = "auto",
        /// io_uring, or an error
        Uring = "uring",
        /// a pool of threads with pread
        Pread = "pread",
    }

    /// How gradients are compressed between processes. [`crate::codecs`] has the encodings.
    "compression" Compress {
        /// 32-bit float, by an all-reduce
        None = "none",
        /// bfloat16: half of the bytes; sums are computed in 32-bit float
        Bf16 = "bf16",
        /// 8 bits per value: a quarter of the bytes; rounding errors are added to the next gradient
        Int8 = "int8",
        /// only the share --compress-rate of the values, with the largest magnitudes; the others are added to the
        /// next gradient
        TopK = "top-k",
        /// 32-bit float, entropy-coded without loss
        Lossless = "lossless",
    }
}

impl From<TimeStrategy> for grappa_sampling::sample::TimeStrategy {
    fn from(strategy: TimeStrategy) -> Self {
        match strategy {
            TimeStrategy::Uniform => Self::Uniform,
            TimeStrategy::Last => Self::Last,
        }
    }
}

impl From<TimeHops> for grappa_sampling::sample::TimeHops {
    fn from(hops: TimeHops) -> Self {
        match hops {
            TimeHops::Seed => Self::Seed,
            TimeHops::Edge => Self::Edge,
        }
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

/// Weights of the classes in the training loss.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClassWeights {
    /// All are 1.
    #[default]
    None,
    /// From the numbers of training nodes.
    Balanced,
    /// Of a file, one per line.
    File(PathBuf),
}

impl FromStr for ClassWeights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "none" => Self::None,
            "balanced" => Self::Balanced,
            "" => return Err(Error::Options("give none, balanced, or a file".to_owned())),
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Balanced => f.write_str("balanced"),
            Self::File(path) => path.display().fmt(f),
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
    /// A CUDA device: the one with this index, or the device of the process, which is the first one unless processes divide
    /// the GPUs of a host.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // `parse` alone would take "+1".
        let digits = |index: &&str| index.bytes().all(|byte| byte.is_ascii_digit());
        let index = match text {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "cuda" => return Ok(Self::Cuda(None)),
            other => other.strip_prefix("cuda:").filter(digits).and_then(|index| index.parse().ok()),
        };
        index.map(|index| Self::Cuda(Some(index))).ok_or_else(|| Error::UnknownDevice(text.to_owned()))
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

impl<T: OptionValue + FromStr<Err: fmt::Display> + fmt::Display> OptionValue for Auto<T> {
    const KIND: ValueKind = T::KIND;
    const ACCEPTS_AUTO: bool = true;

    fn read(text: &str) -> Result<Value, String> {
        checked_text::<Self>(text)
    }

    fn number(&self) -> Option<f64> {
        self.to_string().parse().ok()
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
            other => other.parse().map(Self::Value).map_err(|error: T::Err| {
                let why = if other == "0" { "it must be at least 1".to_owned() } else { error.to_string() };
                Error::Options(format!("`{other}` is neither `auto` nor a value: {why}"))
            }),
        }
    }
}
