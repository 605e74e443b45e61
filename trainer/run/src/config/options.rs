//! The options of a run. This is their only declaration. `grappa-train --help` shows the comments.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use grappa_io::size::ByteSize;
use grappa_sampling::{partition::Schedule, policy::REPARTITION_EVERY, sample::Fanouts};
use serde::Serializer;
use toml::Table;

use super::{
    Auto, ClassWeights, Compress, CompressRate, Correction, DeviceChoice, DistanceNorm, EdgeData, Evaluate,
    ExcludeTargets, FirstHop, HaloMode, LossKind, LrSchedule, Monitor, NegativeSampling, NodeEmbeddings, Optimizer,
    PerLayer, RankAmong, ReadEngine, Sampling, SeedTime, TaskChoice, TimeEqual, TimeHops, TimeSplit, TimeStrategy,
    declare::{
        Bound::{AboveZero, AtLeastOne, AtMost, BelowOne, Fraction, NotNegative, Share},
        OptionScope::{Continuation, Process},
    },
};
use crate::{
    model::{Activation, Decoder, FeatureNorm, JumpingKnowledge, LayerKind, NormKind, Precision, RelationAggregate},
    option_value::{Choice, OptionValue, text_option},
    serde_text, train_options,
};

/// Each layer is a hop of sampling, and a pass over the graph in each evaluation.
const LAYERS_MAX: u32 = 256;
/// Bounds the cost of PinSAGE's walks, which every node of a minibatch makes.
const WALKS_MAX: u32 = 10_000;
const WALK_STEPS_MAX: u32 = 1000;
const THREADS_MAX: u32 = 4096;
/// Periods of a quarter of the one before end below a unit of time.
const TIME_ENCODING_MAX: u32 = 64;

train_options! {
    /// The options of a run. Keys of the TOML file and flags are the names of the fields, with hyphens.
    TrainConfig [
        /// Options that other crates declare, as far as they differ from their defaults: `method` and the options of methods.
        #[serde(flatten)]
        extension: Table
    ];
    "Model" {
        /// Type of the model's layers
        model("LAYER"): LayerKind = LayerKind::default();
        /// Number of layers, at most 256; 0: no layers, but a learned row for each entity of a knowledge graph, for --task link
        layers("L"): usize = 2, bounds: &[AtMost(LAYERS_MAX)];
        /// Hidden dimension: size of a node's embedding between layers; all heads together for models with attention
        hidden("N"): usize = 128, bounds: &[AtLeastOne];
        /// Combination of a node's results over the relations into its type, for rsage and rgat
        relation_aggregate("HOW"): RelationAggregate = RelationAggregate::default();
        /// Base matrices of rgcn, whose weighted sums are the matrices of relations; auto: a matrix for each relation
        #[serde(with = "serde_text")]
        bases("N"): Auto<NonZeroUsize> = Auto::Auto;
        /// Node types whose nodes have learnable embeddings among their inputs, and their numbers of values, for rsage, rgcn, rgat and hgt
        ///
        /// Embeddings follow the features of a node, if there are any. A store without types has the type node. The partition that owns a node
        /// updates its embedding, by the rate of --lr and without --weight-decay; other partitions read the embedding as it was at the last
        /// repartitioning. The first hop is sampled.
        #[serde(with = "serde_text")]
        node_embeddings("TYPE=N,..."): NodeEmbeddings = NodeEmbeddings::default();
        /// Number of attention heads, for gat, gatv2, transformer, rgat and hgt; must divide --hidden
        heads("N"): usize = 4, bounds: &[AtLeastOne];
        /// Number of attention heads in the last layer, which are averaged, for gat, gatv2, transformer and rgat; auto: as --heads
        #[serde(with = "serde_text")]
        last_heads("N"): Auto<NonZeroUsize> = Auto::Auto;
        /// Dropout probability after each layer but the last
        dropout("P"): f64 = 0.5, bounds: &[BelowOne];
        /// Dropout probability of features; above 0, the first hop is sampled. With --layers 0: of the rows of entities and relations
        input_dropout("P"): f64 = 0.0, bounds: &[BelowOne];
        /// Dropout probability of attention weights, for gat, gatv2, transformer, rgat and hgt
        attention_dropout("P"): f64 = 0.0, bounds: &[BelowOne];
        /// Nonlinearity after each layer but the last
        activation("NAME"): Activation = Activation::default();
        /// Edge data used by the model: weights or features; if any is used, the first hop is sampled
        ///
        /// With weights, sage computes a weighted mean, gin a weighted sum, and gcn divides by sums of weights instead of
        /// in-degrees. Features enter the attention of gatv2 and transformer, and the messages of gine and transformer.
        /// The first lines of a run list the edge data in use.
        edge_data("WHICH"): EdgeData = EdgeData::default();
        /// Normalization of features before the first layer; if any, the first hop is sampled
        normalize_features("HOW"): FeatureNorm = FeatureNorm::default();
        /// Normalization after each layer but the last; if any, the perceptrons of gin and gine have layer norms
        #[serde(with = "serde_text")]
        norm("NORM"): Auto<NormKind> = Auto::Auto, choices: auto_or::<NormKind>("batch for gin and gine, none for other models");
        /// Add the input of each layer but the last to its output (residual connection)
        residual("BOOL"): bool = false;
        /// Combination of the states of all layers before the classifier (jumping knowledge)
        jumping_knowledge("HOW"): JumpingKnowledge = JumpingKnowledge::default();
    }
    "Task" {
        /// Task: classification or regression of nodes, or link prediction
        task("TASK"): TaskChoice = TaskChoice::default();
        /// Node type to learn, in a graph with types, or SOURCE:NAME:DESTINATION with --task link; without it, the only one with labels or
        /// with edges that are held out
        #[serde(skip_serializing_if = "Option::is_none")]
        target("TYPE"): Option<String> = None;
        /// Training loss
        loss("LOSS"): LossKind = LossKind::default();
        /// Exponent of --loss focal; 0 is cross-entropy; auto: 2
        #[serde(with = "serde_text")]
        focal_gamma("GAMMA"): Auto<f64> = Auto::Auto, bounds: &[NotNegative];
        /// Error from which --loss huber is linear, in standard deviations of the target; auto: 1
        #[serde(with = "serde_text")]
        huber_delta("DELTA"): Auto<f64> = Auto::Auto, bounds: &[AboveZero];
        /// Weights of the classes in the training loss: none, balanced, or a file with one number per line
        ///
        /// The file lists weights in the order of class numbers. balanced: the inverse of the number of training nodes in
        /// the class. Weights are scaled to a mean of 1 over the training nodes. For multi-label data, the weight of a
        /// class multiplies the loss of nodes in it, and nodes outside have weight 1; balanced is then the number of
        /// training nodes outside the class divided by the number inside.
        #[serde(with = "serde_text")]
        class_weights("HOW"): ClassWeights = ClassWeights::default();
        /// Score of a link from the embeddings of its ends; with --layers 0, score of a triple from the rows of its entities and its relation
        decoder("DECODER"): Decoder = Decoder::default();
        /// Two rows for each relation, for --layers 0: one scores tails of a head, the other one heads of a tail
        reciprocal("BOOL"): bool = true;
        /// Norm of the distance that --decoder rotate and transe score by, for --layers 0
        distance("NORM"): DistanceNorm = DistanceNorm::default();
        /// Number added to all scores in --loss bce, for --layers 0; auto: 9 for distances, 0 for other decoders
        #[serde(with = "serde_text")]
        margin("GAMMA"): Auto<f64> = Auto::Auto, bounds: &[NotNegative];
        /// Weights of negatives in --loss bce, for --layers 0: a softmax of their scores times this number; 0: even weights
        self_adversarial("ALPHA"): f64 = 0.0, bounds: &[NotNegative];
        /// Factor of the sum of the cubed absolute values of the rows of a triple (N3 norm), added to its loss, for --layers 0
        n3("FACTOR"): f64 = 0.0, bounds: &[NotNegative];
        /// Factor of the sum of the squared values of the rows of a triple (L2 norm), added to its loss, for --layers 0
        l2("FACTOR"): f64 = 0.0, bounds: &[NotNegative];
        /// Values of a node's embedding, for --task link; with --layers 0, of the row of an entity; auto: as --hidden
        #[serde(with = "serde_text")]
        embedding("N"): Auto<NonZeroUsize> = Auto::Auto;
        /// Negatives of each edge, for --task link; auto: 1; 100 if --negative-sampling shares them; 1024 with --layers 0
        #[serde(with = "serde_text")]
        negatives("N"): Auto<NonZeroU32> = Auto::Auto;
        /// Distribution of negatives, for --task link; edges of the graph are never negatives
        negative_sampling("HOW"): NegativeSampling = NegativeSampling::default();
        /// File of hard negatives, for --task link: pairs of a source and a destination without an edge
        ///
        /// The file is an edge list of such pairs. The negatives of an edge are drawn from the pairs of its source whose
        /// destination is in the partition. A source without such pairs draws uniform negatives. In an undirected graph,
        /// a pair counts for both nodes.
        #[serde(skip_serializing_if = "Option::is_none")]
        negatives_from("FILE"): Option<PathBuf> = None;
        /// File of node ids, such as all items of a shop, for --task link: the only destinations of negatives and candidates
        ///
        /// One id per line, .npy or Parquet. The model is trained and scored on edges to these nodes. In an undirected
        /// graph, an edge with one end among them points to it. All other edges only pass messages.
        #[serde(skip_serializing_if = "Option::is_none")]
        among("FILE"): Option<PathBuf> = None;
        /// Divisor of the scores in --loss softmax; auto: 1
        #[serde(with = "serde_text")]
        temperature("T"): Auto<f64> = Auto::Auto, bounds: &[AboveZero];
        /// Candidates of each held-out edge, for --task link: a number of random nodes, all nodes, or a file; auto: 100, and all with --layers 0
        ///
        /// The file lists pairs of a source and a candidate, like an edge list. An edge is ranked among the candidates of
        /// its source; in an undirected graph, of the end that the file lists as a source.
        #[serde(with = "serde_text")]
        candidates("N|all|FILE"): RankAmong = RankAmong::default();
        /// Compute Recall@K, MAP@K and NDCG@K in each evaluation, for --task link
        ///
        /// Each source of a held-out edge is scored with all destinations except its known ones, as with --candidates all.
        /// --monitor recall@20, map@20 and ndcg@20 imply it.
        rank_destinations("BOOL"): bool = false, scope: Continuation;
        /// Target edges that a minibatch removes from its messages, for --task link; auto: both directions, and none with
        /// --full-graph, where all edges are targets
        #[serde(with = "serde_text")]
        exclude_targets("WHICH"): Auto<ExcludeTargets> = Auto::Auto, choices: auto_or::<ExcludeTargets>("both; none with --full-graph");
    }
    "Minibatches" {
        /// Neighbors to sample per node and layer, from the seeds outwards, such as 15,10,5; -1 takes all
        ///
        /// auto: 15,10,5,5,... as many as there are layers; 10,10,... for pinsage.
        #[serde(with = "serde_text")]
        fanouts("N,N,..."): Auto<Fanouts> = Auto::Auto;
        /// Sample neighbors with replacement
        replace("BOOL"): bool = false;
        /// Random walks per node, for pinsage: the neighbors are the nodes visited most often
        walks("N"): u32 = 50, bounds: &[AtLeastOne, AtMost(WALKS_MAX)];
        /// Largest number of steps per walk, for pinsage
        ///
        /// Evaluation and prediction use all in-neighbors with equal weights, as walks of one step would.
        walk_steps("N"): u32 = 2, bounds: &[AtLeastOne, AtMost(WALK_STEPS_MAX)];
        /// Probability that a walk ends after each step, for pinsage
        walk_termination("P"): f64 = 0.5, bounds: &[Share];
        /// Seeds per minibatch and partition; edges with --task link
        ///
        /// auto: 1024 divided by the number of partitions per step.
        #[serde(with = "serde_text")]
        batch("N"): Auto<NonZeroUsize> = Auto::Auto;
        /// Train without sampling: each step uses all training nodes and all visible edges of its partitions
        full_graph("BOOL"): bool = false;
    }
    "Time" {
        /// Percentages of the edges to learn, for validation and for test, in the order of time; for --task link on edges with times
        ///
        /// An edge is learned and scored at its own time: its ends see earlier edges alone, also those for validation and test. Edges at one
        /// time are not divided. Edges that grappa-ingest --edge-split holds out are validated and tested instead, if there are any.
        #[serde(with = "serde_text")]
        time_split("A/B/C"): TimeSplit = TimeSplit::default();
        /// Time that limits what a node or edge with a time sees when it is learned or scored
        ///
        /// With none, it sees later edges, too: scores are better than those of predictions can be.
        seed_time("TIME"): SeedTime = SeedTime::default();
        /// Edges that a node draws of those within the limit of the seed
        time_strategy("HOW"): TimeStrategy = TimeStrategy::default();
        /// Edges at the very time of a node or link
        time_equal("HOW"): TimeEqual = TimeEqual::default();
        /// Limit of the hops after the first
        time_hops("LIMIT"): TimeHops = TimeHops::default();
        /// How much earlier than the limit an edge may be, in the unit of the store; auto: any
        #[serde(with = "serde_text")]
        time_window("N"): Auto<u64> = Auto::Auto;
        /// Values of the encoding of an age, for runs with times; 0: none
        ///
        /// gatv2, gine and transformer take the age of each edge, after the features of edges; rsage, rgcn, rgat and hgt that of each node with a
        /// time, after its features. The age is the time until the node or edge that is asked about. The values are cosines and sines of it, with
        /// periods from four times the span of all times down, each a quarter of the one before.
        time_encoding("N"): usize = 16, bounds: &[AtMost(TIME_ENCODING_MAX)];
    }
    "Optimizer" {
        /// Learning rate
        lr("RATE"): f64 = 0.003, bounds: &[AboveZero];
        /// Learning rate schedule
        lr_schedule("SCHEDULE"): LrSchedule = LrSchedule::default();
        /// Epochs of linear warmup from 0 to the learning rate; may be a fraction
        warmup("EPOCHS"): f64 = 0.0, bounds: &[NotNegative];
        /// Epochs between two reductions, for --lr-schedule step
        lr_step("EPOCHS"): u64 = 10, bounds: &[AtLeastOne];
        /// Factor of each reduction, for --lr-schedule step and plateau
        lr_factor("FACTOR"): f64 = 0.5, bounds: &[Fraction];
        /// Evaluations without improvement before a reduction, for --lr-schedule plateau
        lr_patience("N"): u64 = 5;
        /// Smallest learning rate of all schedules
        lr_min("RATE"): f64 = 0.0;
        /// Optimizer
        optimizer("NAME"): Optimizer = Optimizer::default(), help_order: 2;
        /// Weight decay; one number, or one for each layer, such as 0.0005,0
        #[serde(with = "serde_text")]
        weight_decay("DECAY"): PerLayer = PerLayer::default();
        /// Label smoothing: the part of each target that is spread evenly over all classes, from 0 to below 1
        label_smoothing("S"): f64 = 0.0, bounds: &[BelowOne];
        /// Momentum, for --optimizer sgd
        momentum("M"): f64 = 0.0, bounds: &[BelowOne];
        /// Largest norm of a step's gradient; larger ones are scaled down; 0: no clipping
        clip("NORM"): f64 = 0.0, bounds: &[NotNegative];
        /// Number of epochs
        epochs("N"): u64 = 50, bounds: &[AtLeastOne], scope: Continuation, help_order: 0;
        /// Maximum number of steps per epoch; 0: enough for all training nodes
        ///
        /// Each epoch draws the training nodes of its steps anew. Evaluations, checkpoints, repartitioning and learning
        /// rate schedules count these shorter epochs.
        steps_per_epoch("N"): u64 = 0, help_order: 1;
        /// Random training edges per epoch, for --task link; 0: all
        ///
        /// An epoch reads the edges of the graph once and keeps the drawn ones in memory, 16 bytes each.
        edges_per_epoch("N"): u64 = 0, help_order: 1;
    }
    "Partitions" {
        /// How minibatches are sampled: each on its own, or many at once with passes over the whole graph
        sampling("HOW"): Sampling = Sampling::default(), scope: Process;
        /// Number of partitions; 1 trains on the whole graph; auto: 1 if its adjacency lists fit in --memory
        ///
        /// Otherwise auto is the smallest power of two for which the adjacency lists of a step and of the next one fit in
        /// half of --memory (in 7/8 without stored features). Only these lists are then in memory. If no power of two
        /// fits, auto is 1, with lists in mapped files. With several processes, auto is at least their number, so that
        /// each process trains a partition in every step. --memory decides the number, and therefore the result; it is
        /// logged in metrics.jsonl and summary.json, and a resumed run keeps it.
        #[serde(with = "serde_text")]
        partitions("K"): Auto<u32> = Auto::Auto, bounds: &[AtLeastOne];
        /// Partitions per step; auto: all, or as many as fit in --memory if the graph is larger
        #[serde(with = "serde_text")]
        concurrent("Q"): Auto<u32> = Auto::Auto, bounds: &[AtLeastOne];
        /// Repartitioning schedule
        #[serde(with = "serde_text")]
        schedule("NAME"): Schedule = Schedule::Sweep;
        /// Epochs between two repartitionings
        repartition_every("EPOCHS"): u64 = REPARTITION_EVERY, bounds: &[AtLeastOne];
        /// Treatment of halo nodes: in-neighbors that the partition does not own
        halo("MODE"): HaloMode = HaloMode::default();
        /// Maximum number of sampled in-neighbors per halo node, with --halo neighbors; sampled again at each
        /// repartitioning; auto: ten times the fanout, fewer if they would fill the memory, and at least 10
        #[serde(with = "serde_text")]
        halo_neighbors("N"): Auto<NonZeroU32> = Auto::Auto;
        /// Loss weights by coverage, the share of its neighborhood that a seed sees in its partition
        correction("FORM"): Correction = Correction::default();
        /// Strength of --correction, from 0 (none) to 1 (full)
        shrinkage("LAMBDA"): f64 = 1.0, bounds: &[Share];
        /// Source of the first layer's aggregates: sampled neighbors, or pre-aggregated features
        first_hop("FROM"): FirstHop = FirstHop::default();
    }
    "Processes" {
        /// Compression of the gradients that processes send each other (--workers, or a launcher)
        compress("METHOD"): Compress = Compress::default();
        /// Share of the gradient's values that --compress top-k sends, such as 0.01; or a range such as 0.01..0.5
        ///
        /// With a range, the compression ratio falls evenly over the run's epochs: from 100 at the start to 2 at the
        /// end with 0.01..0.5. auto: 0.25.
        #[serde(with = "serde_text")]
        compress_rate("SHARE"): Auto<CompressRate> = Auto::Auto;
    }
    "Machine" {
        /// Memory limit for the graph and its features, such as 512MiB or 4GiB; the model's memory is extra
        #[serde(serialize_with = "exact_size", deserialize_with = "serde_text::deserialize")]
        memory("SIZE"): ByteSize = ByteSize(4 << 30), bounds: &[AtLeastOne], scope: Process;
        /// Number of worker threads; auto: one per processor
        #[serde(with = "serde_text")]
        threads("T"): Auto<NonZeroUsize> = Auto::Auto, bounds: &[AtMost(THREADS_MAX)], scope: Process;
        /// Folder of the scratch files of --sampling sweep, which take at most half of the free disk space there
        /// (default: the folder of the run)
        tmp("DIR"): Option<PathBuf> = None, scope: Process;
        /// Maximum number of minibatches in one plan of feature reads; auto: as many as memory allows
        #[serde(with = "serde_text")]
        lookahead("N"): Auto<NonZeroUsize> = Auto::Auto, scope: Process;
        /// I/O engine
        read_engine("ENGINE"): ReadEngine = ReadEngine::default(), scope: Process;
        /// Random seed of initial parameters, partitions, sampling and dropout
        #[serde(with = "serde_text")]
        seed("N"): u64 = 1;
        /// Number format of the model's computations
        precision("DTYPE"): Precision = Precision::default();
        /// Device of the model: auto, cpu, cuda or cuda:N; auto: CUDA if there is a device, else the processor
        #[serde(with = "serde_text")]
        device("DEVICE"): DeviceChoice = DeviceChoice::default(), scope: Process;
    }
    "Run" {
        /// Inference for evaluations during training
        evaluate("HOW"): Evaluate = Evaluate::default(), scope: Continuation;
        /// Number format of hidden states in an exact evaluation, if they do not fit in memory as f32
        evaluate_states("DTYPE"): Precision = Precision::Bf16, choices: state_choices(), scope: Continuation;
        /// Epochs between two evaluations; the last epoch is always evaluated
        eval_every("EPOCHS"): u64 = 1, bounds: &[AtLeastOne], scope: Continuation;
        /// Metric that selects the best epoch; --early-stopping and --lr-schedule plateau follow it
        monitor("WHAT"): Monitor = Monitor::default();
        /// Evaluations without improvement before training ends; 0: never
        early_stopping("N"): u64 = 0, scope: Continuation;
        /// Epochs between two checkpoints; 0: only by time and at the end
        checkpoint_every("EPOCHS"): u64 = 5, scope: Continuation;
        /// Minutes between two checkpoints, also within an epoch; with several processes, after the next epoch. 0: only
        /// by epochs and at the end
        checkpoint_minutes("MINUTES"): f64 = 10.0, bounds: &[NotNegative], scope: Continuation;
        /// Number of checkpoints to keep, besides the best
        keep("N"): usize = 3, bounds: &[AtLeastOne], scope: Continuation;
        /// Initial parameters: the best model of this run, which must have the same layers [default: random]
        #[serde(skip_serializing_if = "Option::is_none")]
        init_from("RUN"): Option<PathBuf> = None;
        /// File with the names of the classes, one per line, in the order of their numbers [default: the names in the
        /// store]
        #[serde(skip_serializing_if = "Option::is_none")]
        class_names("FILE"): Option<PathBuf> = None, scope: Process;
        /// Folder of the run; it must not exist [default: STORE.run in the current folder, numbered if it exists]
        #[serde(skip_serializing_if = "Option::is_none")]
        out("RUN"): Option<PathBuf> = None, scope: Process, help_order: 0;
    }
}

text_option!(ClassWeights, CompressRate, DeviceChoice, NodeEmbeddings, PerLayer, RankAmong, TimeSplit);

/// `auto` and its explanation, then the names of a type.
fn auto_or<T: OptionValue>(auto: &'static str) -> Vec<Choice> {
    [("auto", auto)].into_iter().chain(T::choices()).collect()
}

fn state_choices() -> Vec<Choice> {
    vec![
        ("f32", "32-bit float: scores have the bits of an evaluation in memory"),
        ("bf16", "bfloat16: half of the disk"),
    ]
}

fn exact_size<S: Serializer>(size: &ByteSize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&size.exact())
}
