"""The options of the programs as keyword arguments. Generated from their declarations: `grappa._grappa.typed_options()`."""

from __future__ import annotations

import os
from typing import Any, Literal, Mapping, Sequence, TypedDict

Path = str | os.PathLike[str]


class IngestOptions(TypedDict, total=False):
    """Options of `grappa.ingest`."""

    #: Accept features that are NaN or infinite.
    allow_nan: bool
    #: Assignment of nodes to chunks: random, range or file:PATH.
    assign: str | float
    #: Form of categories, which are columns of text with few different values, in a table of features.
    categories: Literal["one-hot", "index"]
    #: Most values of a category.
    categories_max: int
    #: Number of chunks; partitions are groups of chunks.
    chunks: str | float
    #: Whether first lines of text that begin with # or % are comments.
    comments: Literal["auto", "yes", "no"]
    #: Merge parallel edges and add their weights, unless merge= selects another rule.
    dedup: bool
    #: Print the encoding of each column of edges and tables, and write nothing.
    dry_run: bool
    #: Column of destinations, as for src=.
    dst: str | int
    #: Type of a stored edge feature.
    edge_feature_dtype: Literal["f32", "f16", "bf16", "int8"]
    #: Edge features: a .npy of shape (E, d) or (E,), with a row per edge, for edges that are not text.
    edge_features: Any
    #: Columns of edge features in text or Parquet, separated by commas: numbers, booleans, dates, and categories.
    edge_features_from: str | Sequence[str]
    #: Hold edges out of the graph at random, for link prediction: percent for the graph, val and test, such as 80/10/10.
    edge_split: str | float
    #: Column of times: the last edges are for test, those before them for val, instead of a random edge_split=.
    edge_split_by: str
    #: Seed of edge_split=.
    edge_split_seed: int
    #: Type of a stored feature value.
    feature_dtype: Literal["f32", "f16", "bf16", "int8"]
    #: Node features: .npy, .npz (dense or sparse), Parquet or text, with one row of numbers per node.
    features: Any
    #: Columns with features, in the table of features=.
    features_from: str | Sequence[str]
    #: Replace the store of out=, including all additions to it, when the new one is complete.
    force: bool
    #: Column of a table of tables= with the ids of rows of another table.
    foreign_key: str | Sequence[str]
    #: Format of the edge files.
    format: Literal["auto", "tsv", "csv", "npy", "u32", "u64", "parquet"]
    #: Configuration of GraphStorm's gconstruct, in JSON: its nodes and edges, features, labels and splits.
    gconstruct: Path
    #: Metadata of an OnDiskDataset of DGL's GraphBolt, in YAML, or the folder with metadata.yaml.
    graphbolt: Path
    #: Whether the first line of text files with edges is a header.
    header: Literal["auto", "yes", "no"]
    #: Column with the ids of the rows in tables of features=, labels= and lists: its name or number, or none.
    id: str | Sequence[str]
    #: Kind of node ids in all input files.
    ids: Literal["dense", "sparse", "string"]
    #: Folder of a heterogeneous dataset of IGB, with the folder processed in it.
    igb: Path
    #: Column with the ids of the rows of a table of tables=.
    key: str | Sequence[str]
    #: Column with the label of each node, in the table of labels=; the table of features= leaves it out.
    label: str | Sequence[str]
    #: What the values of labels= are: classes, numbers to predict, or zeros and ones with missing entries.
    label_type: Literal["classes", "partial", "float"]
    #: Node labels: .npy, .npz, Parquet or text, with one row per node.
    labels: Any
    #: Table of tables= whose rows are edges between the tables of its two foreign keys.
    link_table: str | Sequence[str]
    #: Memory limit, such as 512MiB or 2GiB.
    memory: int | str
    #: How dedup=True merges the values of parallel edges: sum, mean, first, last, min or max, perhaps after COLUMN=.
    merge: str | float | Sequence[str | float]
    #: Replacement of missing values in a table of features, or of edges: mean, indicator, other or a number, perhaps after COLUMN=.
    missing: str | float | Sequence[str | float]
    #: Files with headers of neo4j-admin database import, such as :ID(Movie) and :START_ID(Movie), or a folder of them.
    neo4j: Path | Sequence[Path]
    #: Id of each row of features= and labels=: .npy, Parquet, or text with one id per line.
    node_ids: Any
    #: Column of times of nodes in the table of features= or labels=: integers, dates or timestamps, as for time=.
    node_time: str
    #: Unit of the times of nodes in the store, and of integers in the column.
    node_time_unit: Literal["integer", "days", "s", "ms", "us", "ns"]
    #: Number of nodes, for ids="dense": ids are 0 to N - 1; with several node types TYPE=N or TYPE=FILE.
    nodes: int
    #: Dataset folder in the layout of the Open Graph Benchmark (OGB).
    ogb: Path
    #: Action for lines and rows that are not an edge.
    on_bad_line: Literal["fail", "skip"]
    #: Continue a run that was stopped or killed, with the same options.
    resume: bool
    #: Add a relation with the ends swapped to each relation, or to those that are named: RELATION=NAME.
    reverse: str | Sequence[str]
    #: Store whose schema encodes the tables: its columns by name, its means, categories and classes.
    schema_of: Path
    #: Seed of assign="random".
    seed: int
    #: Treatment of edges from a node to itself.
    self_loops: Literal["keep", "drop", "add"]
    #: Separator of text files with edges: tab, comma, semicolon, bar or spaces.
    separator: str | float
    #: Split the nodes at random: percent for train, val and test, such as 60/20/20.
    split: str | float
    #: Column of the table of features= or labels= with the split of each node: train, val, valid, validation, test or nothing.
    split_column: str | Sequence[str]
    #: Seed of split=.
    split_seed: int
    #: Column of sources in text or Parquet: its name, or its number, from 1.
    src: str | int
    #: Split the nodes of each class in the shares of split=.
    stratify: bool
    #: Separator of tables in text, as for separator=.
    table_separator: str | float
    #: Task of tables=, by the name of its folder or file in DIR/tasks; none for no task.
    task: str | Sequence[str]
    #: Ids or mask of the test nodes, as for train=.
    test: Any
    #: Files with the test edges, as for val_edges=.
    test_edges: Any
    #: Number of worker threads.
    threads: int
    #: Column of times of edges in text or Parquet: integers, dates such as 2024-02-29, or timestamps such as 2024-02-29T12:30:05+01:00.
    time: Any
    #: Unit of the times in the store, and of integers in the column.
    time_unit: Literal["integer", "days", "s", "ms", "us", "ns"]
    #: Folder for scratch files.
    tmp: Path
    #: Ids of the training nodes: .npy, Parquet, or text with one id per line.
    train: Any
    #: Files with triples of head, relation and tail, separated by tabs.
    triples: Path | Sequence[Path]
    #: Add the reverse of each edge.
    undirected: bool
    #: Ids or mask of the validation nodes, as for train=.
    val: Any
    #: Files with the validation edges, which the graph excludes; in the formats of edges=.
    val_edges: Any
    #: Write a log to stderr; -vv and -vvv log more.
    verbose: int
    #: Column of edge weights in text or Parquet: its name or number, or none.
    weight: str | int
    #: Edge weights: a .npy with one number per edge, for edges that are not text.
    weights: Any


class GenerateOptions(TypedDict, total=False):
    """Options of `grappa.generate`, of all models of one node type."""

    #: Probability that a bit of the source id is 0 and the same bit of the destination id is 0.
    a: float
    #: Kind of output.
    as_: Literal["store", "tsv", "npy"]
    #: Assignment of nodes to chunks.
    assign: Literal["random", "range"]
    #: Probability of 0 in the source and 1 in the destination.
    b: float
    #: Probability of 1 in the source and 0 in the destination.
    c: float
    #: Number of chunks of the store; partitions are groups of chunks.
    chunks: str | float
    #: Number of classes.
    classes: int
    #: Probability of 1 in both.
    d: float
    #: Merge parallel edges.
    dedup: bool
    #: Skew of in-degrees, from 1 to below 2: 1 makes them similar, 1.41 gives a power law with exponent 3.
    degree_growth: float
    #: Expected number of edges per node.
    edge_factor: float
    #: Features per node.
    feature_dim: int
    #: Type of a stored feature value; procedural features are f32.
    feature_dtype: Literal["f32", "f16", "bf16", "int8"]
    #: Whether the store contains the features.
    features: Literal["stored", "procedural"]
    #: Replace the store of out=, with all that was added to it, or the files, when the new ones are complete.
    force: bool
    #: Probability that an edge connects nodes of the same class.
    homophily: float
    #: Memory limit, such as 512MiB or 2GiB.
    memory: int | str
    #: Number of nodes; a power of two for rmat.
    nodes: int
    #: Standard deviation of features within a class, relative to the one between the means of classes.
    noise: float
    #: Generate only these chunks, such as 0,5-7.
    only_chunks: str | float | Sequence[str | float]
    #: Continue a run that was stopped or killed, with the same options.
    resume: bool
    #: Number of nodes, as a power of two: 2^S nodes.
    scale: int
    #: Seed of the graph and of the random node permutation.
    seed: int
    #: Treatment of edges from a node to itself.
    self_loops: Literal["keep", "drop", "add"]
    #: Share of the nodes for the test; a node of none of the three shares is in no split.
    test_fraction: float
    #: Number of worker threads.
    threads: int
    #: Share of the nodes to train on.
    train_fraction: float
    #: Share of the nodes for validation.
    val_fraction: float


class GenerateGraphOptions(TypedDict, total=False):
    """Options of `grappa.generate` of a graph with several node types."""

    #: Assignment of the nodes of a type to chunks.
    assign: Literal["random", "range"]
    #: Classes of a node type, such as paper=349; its nodes then have labels and splits, and features with a mean for each class.
    classes: Mapping[str, int]
    #: Degrees at both ends of relations: for all, or for one, as in writes=even.
    degrees: str | Mapping[str, str]
    #: A relation between two types and its number of edges.
    edges: Mapping[tuple[str, str, str], int]
    #: Features of a node type, such as paper=128.
    feature_dim: Mapping[str, int]
    #: Type of a stored feature value; procedural features are f32.
    feature_dtype: Literal["f32", "f16", "bf16", "int8"]
    #: Whether the store contains the features.
    features: Literal["stored", "procedural"]
    #: Replace the graph of out= when the new one is complete.
    force: bool
    #: Memory limit, such as 512MiB or 2GiB.
    memory: int | str
    #: A node type and its number of nodes, such as paper=700000.
    nodes: Mapping[str, int]
    #: Generate only these chunks, such as 0,5-7.
    only_chunks: str | float | Sequence[str | float]
    #: Node types and relations like those of a known kind of graph; total_edges= is their size.
    preset: Literal["mag", "shop"]
    #: Continue a run that was stopped or killed, with the same options.
    resume: bool
    #: Give each relation R a reverse relation rev_R with the same edges in the other direction.
    reverse: bool
    #: Seed of the graph and of the random node permutations.
    seed: int
    #: Share of the nodes for the test; a node of none of the three shares is in no split.
    test_fraction: float
    #: Number of worker threads.
    threads: int
    #: Edges of all relations of the preset, without reverse relations.
    total_edges: int
    #: Share of the nodes to train on.
    train_fraction: float
    #: Share of the nodes for validation.
    val_fraction: float


class InfoOptions(TypedDict, total=False):
    """Options of `Store.info`."""

    #: Also count each partition's halo nodes and the share of in-edges that its nodes see; reads all edges.
    coverage: bool
    #: Memory limit of coverage=True, such as 512MiB or 2GiB; with less, edges are read several times.
    memory: int | str
    #: Number of worker threads.
    threads: int


class VerifyOptions(TypedDict, total=False):
    """Options of `Store.verify`."""

    #: Number of worker threads.
    threads: int


class RepartitionOptions(TypedDict, total=False):
    """Options of `Store.repartition`."""

    #: Repartitioning schedule.
    schedule: Literal["sweep", "shuffle", "fixed", "local"]
    #: Seed of the random groups.
    seed: int
    #: Super-epoch to group for.
    super_epoch: int


class PreaggregateOptions(TypedDict, total=False):
    """Options of `Store.preaggregate`."""

    #: Type of a stored value.
    dtype: Literal["f32", "f16", "bf16", "int8"]
    #: Memory limit, such as 512MiB or 2GiB; with less, features are read more often.
    memory: int | str
    #: In a graph with several node types: the relation whose sources are aggregated, such as author:writes:paper.
    relation: str
    #: Replace existing aggregates of this kind.
    replace: bool
    #: Number of worker threads.
    threads: int
    #: Store the features of each node beside its aggregates. Training on a graph that exceeds the memory then reads half as many pages. The aggregates take twice the space.
    with_features: bool


class AddFeaturesOptions(TypedDict, total=False):
    """Options of `Store.add_features`."""

    #: Features per node, for fastrp.
    dim: int
    #: Type of a stored value.
    dtype: Literal["f32", "f16", "bf16", "int8"]
    #: Weight of each hop from the first on, such as 0,1,1, for fastrp.
    hop_weights: float | Sequence[float]
    #: Number of hops, all with weight 1, for fastrp.
    hops: int
    #: Memory limit, such as 512MiB or 2GiB; with less, rows are read more often.
    memory: int | str
    #: Relations into the type, whose sources have features, for mean.
    relations: str | Sequence[str]
    #: Seed of the random projection, for fastrp.
    seed: int
    #: Number of worker threads.
    threads: int
    #: Node type that gets features, for mean.
    type: str


class TrainOptions(TypedDict, total=False):
    """Options of `grappa.train`."""

    #: Nonlinearity after each layer but the last.
    activation: Literal["relu", "elu", "gelu", "leaky-relu", "prelu"]
    #: File of node ids, such as all items of a shop, for task="link": the only destinations of negatives and candidates.
    among: Path
    #: Dropout probability of attention weights, for gat, gatv2, transformer, rgat and hgt.
    attention_dropout: float
    #: Base matrices of rgcn, whose weighted sums are the matrices of relations; auto: a matrix for each relation.
    bases: int | Literal["auto"]
    #: Seeds per minibatch and partition; edges with task="link".
    batch: int | Literal["auto"]
    #: Candidates of each held-out edge, for task="link": a number of random nodes, all nodes, or a file; auto: 100, and all with layers=0.
    candidates: str | float | Sequence[str | float]
    #: Epochs between two checkpoints; 0: only by time and at the end.
    checkpoint_every: int
    #: Minutes between two checkpoints, also within an epoch; with several processes, after the next epoch. 0: only by epochs and at the end.
    checkpoint_minutes: float
    #: File with the names of the classes, one per line, in the order of their numbers.
    class_names: Path
    #: Weights of the classes in the training loss: none, balanced, or a file with one number per line.
    class_weights: str | float | Sequence[str | float]
    #: Largest norm of a step's gradient; larger ones are scaled down; 0: no clipping.
    clip: float
    #: Compression of the gradients that processes send each other (workers=, or a launcher).
    compress: Literal["none", "bf16", "int8", "top-k", "lossless"]
    #: Share of the gradient's values that compress="top-k" sends, such as 0.01; or a range such as 0.01..0.5.
    compress_rate: str | float | Sequence[str | float]
    #: Partitions per step; auto: all, or as many as fit in memory= if the graph is larger.
    concurrent: int | Literal["auto"]
    #: TOML file with options; arguments override it.
    config: Path
    #: Loss weights by coverage, the share of its neighborhood that a seed sees in its partition.
    correction: Literal["none", "batch", "node"]
    #: Score of a link from the embeddings of its ends; with layers=0, score of a triple from the rows of its entities and its relation.
    decoder: Literal["dot", "cosine", "distmult", "mlp", "complex", "rotate", "transe"]
    #: Device of the model: auto, cpu, cuda or cuda:N; auto: CUDA if there is a device, else the processor.
    device: str | float | Sequence[str | float]
    #: Norm of the distance that decoder="rotate" and transe score by, for layers=0.
    distance: Literal["l2", "l1"]
    #: Dropout probability after each layer but the last.
    dropout: float
    #: Evaluations without improvement before training ends; 0: never.
    early_stopping: int
    #: Edge data used by the model: weights or features; if any is used, the first hop is sampled.
    edge_data: Literal["auto", "use", "ignore"]
    #: Random training edges per epoch, for task="link"; 0: all.
    edges_per_epoch: int
    #: Values of a node's embedding, for task="link"; with layers=0, of the row of an entity; auto: as hidden=.
    embedding: int | Literal["auto"]
    #: Number of epochs.
    epochs: int
    #: Epochs between two evaluations; the last epoch is always evaluated.
    eval_every: int
    #: Inference for evaluations during training.
    evaluate: Literal["auto", "exact", "sampled"]
    #: Number format of hidden states in an exact evaluation, if they do not fit in memory as f32.
    evaluate_states: Literal["f32", "bf16"]
    #: Target edges that a minibatch removes from its messages, for task="link"; auto: both directions, and none with full_graph=True, where all edges are targets.
    exclude_targets: Literal["auto", "both", "forward", "none"]
    #: Neighbors to sample per node and layer, from the seeds outwards, such as 15,10,5; -1 takes all.
    fanouts: int | str | Sequence[int]
    #: Source of the first layer's aggregates: sampled neighbors, or pre-aggregated features.
    first_hop: Literal["auto", "sampled", "preaggregated"]
    #: Exponent of loss="focal"; 0 is cross-entropy; auto: 2.
    focal_gamma: float | Literal["auto"]
    #: Train anew where there is a run, and remove that run when the new one has finished.
    force: bool
    #: Train without sampling: each step uses all training nodes and all visible edges of its partitions.
    full_graph: bool
    #: Treatment of halo nodes: in-neighbors that the partition does not own.
    halo: Literal["auto", "stop", "neighbors", "none", "history"]
    #: Maximum number of sampled in-neighbors per halo node, with halo="neighbors"; sampled again at each repartitioning; auto: ten times the fanout, fewer if they would fill the memory, and at least 10.
    halo_neighbors: int | Literal["auto"]
    #: Number of attention heads, for gat, gatv2, transformer, rgat and hgt; must divide hidden=.
    heads: int
    #: Hidden dimension: size of a node's embedding between layers; all heads together for models with attention.
    hidden: int
    #: Error from which loss="huber" is linear, in standard deviations of the target; auto: 1.
    huber_delta: float | Literal["auto"]
    #: Initial parameters: the best model of this run, which must have the same layers.
    init_from: Path
    #: Dropout probability of features; above 0, the first hop is sampled. With layers=0: of the rows of entities and relations.
    input_dropout: float
    #: Seconds to wait for all processes at the start.
    join_timeout: int
    #: Combination of the states of all layers before the classifier (jumping knowledge).
    jumping_knowledge: Literal["none", "max", "cat"]
    #: Number of checkpoints to keep, besides the best.
    keep: int
    #: Factor of the sum of the squared values of the rows of a triple (L2 norm), added to its loss, for layers=0.
    l2: float
    #: Label smoothing: the part of each target that is spread evenly over all classes, from 0 to below 1.
    label_smoothing: float
    #: Number of attention heads in the last layer, which are averaged, for gat, gatv2, transformer and rgat; auto: as heads=.
    last_heads: int | Literal["auto"]
    #: Number of layers, at most 256; 0: no layers, but a learned row for each entity of a knowledge graph, for task="link".
    layers: int
    #: Maximum number of minibatches in one plan of feature reads; auto: as many as memory allows.
    lookahead: int | Literal["auto"]
    #: Training loss.
    loss: Literal["auto", "cross-entropy", "focal", "mse", "mae", "huber", "bce", "bpr", "softmax"]
    #: Learning rate.
    lr: float
    #: Factor of each reduction, for lr_schedule="step" and plateau.
    lr_factor: float
    #: Smallest learning rate of all schedules.
    lr_min: float
    #: Evaluations without improvement before a reduction, for lr_schedule="plateau".
    lr_patience: int
    #: Learning rate schedule.
    lr_schedule: Literal["constant", "cosine", "step", "plateau"]
    #: Epochs between two reductions, for lr_schedule="step".
    lr_step: int
    #: Number added to all scores in loss="bce", for layers=0; auto: 9 for distances, 0 for other decoders.
    margin: float | Literal["auto"]
    #: Memory limit for the graph and its features, such as 512MiB or 4GiB; the model's memory is extra.
    memory: int | str
    #: How partitions train together.
    method: Literal["grappa", "full", "isolated", "varco", "adaqp", "bns", "pipegcn", "cofree", "llcg", "gern"]
    #: Type of the model's layers.
    model: Literal["sage", "sage-max", "gcn", "gat", "gatv2", "gin", "gine", "transformer", "pinsage", "rsage", "rgcn", "rgat", "hgt"]
    #: Momentum, for optimizer="sgd".
    momentum: float
    #: Metric that selects the best epoch; early_stopping= and lr_schedule="plateau" follow it.
    monitor: Literal["score", "loss", "accuracy", "macro-f1", "micro-f1", "auc", "average-precision", "rmse", "mae", "r2", "mrr", "hits@10", "recall@20", "map@20", "ndcg@20"]
    #: Factor of the sum of the cubed absolute values of the rows of a triple (N3 norm), added to its loss, for layers=0.
    n3: float
    #: Distribution of negatives, for task="link"; edges of the graph are never negatives.
    negative_sampling: Literal["auto", "uniform", "degree", "shared", "in-batch", "pairs", "all"]
    #: Negatives of each edge, for task="link"; auto: 1; 100 if negative_sampling= shares them; 1024 with layers=0.
    negatives: int | Literal["auto"]
    #: File of hard negatives, for task="link": pairs of a source and a destination without an edge.
    negatives_from: Path
    #: Node types whose nodes have learnable embeddings among their inputs, and their numbers of values, for rsage, rgcn, rgat and hgt.
    node_embeddings: str | float | Sequence[str | float]
    #: Normalization after each layer but the last; if any, the perceptrons of gin and gine have layer norms.
    norm: Literal["auto", "none", "batch", "layer"]
    #: Normalization of features before the first layer; if any, the first hop is sampled.
    normalize_features: Literal["none", "row", "standard"]
    #: Optimizer.
    optimizer: Literal["adam", "adamw", "adagrad", "sgd"]
    #: Number of partitions; 1 trains on the whole graph; auto: 1 if its adjacency lists fit in memory=.
    partitions: int | Literal["auto"]
    #: Number format of the model's computations.
    precision: Literal["f32", "bf16"]
    #: Options of a published setting; arguments override them.
    preset: str
    #: Compute Recall@K, MAP@K and NDCG@K in each evaluation, for task="link".
    rank_destinations: bool
    #: I/O engine.
    read_engine: Literal["auto", "uring", "pread"]
    #: Two rows for each relation, for layers=0: one scores tails of a head, the other one heads of a tail.
    reciprocal: bool
    #: Combination of a node's results over the relations into its type, for rsage and rgat.
    relation_aggregate: Literal["sum", "mean"]
    #: Epochs between two repartitionings.
    repartition_every: int
    #: Sample neighbors with replacement.
    replace: bool
    #: Add the input of each layer but the last to its output (residual connection).
    residual: bool
    #: Continue a run from its last checkpoint; auto starts a run if there is none.
    resume: bool | Literal["auto"]
    #: How minibatches are sampled: each on its own, or many at once with passes over the whole graph.
    sampling: Literal["auto", "batch", "sweep"]
    #: Repartitioning schedule.
    schedule: Literal["sweep", "shuffle", "fixed", "local"]
    #: Random seed of initial parameters, partitions, sampling and dropout.
    seed: int
    #: Time that limits what a node or edge with a time sees when it is learned or scored.
    seed_time: Literal["own", "none"]
    #: Weights of negatives in loss="bce", for layers=0: a softmax of their scores times this number; 0: even weights.
    self_adversarial: float
    #: Strength of correction=, from 0 (none) to 1 (full).
    shrinkage: float
    #: Maximum number of steps per epoch; 0: enough for all training nodes.
    steps_per_epoch: int
    #: Node type to learn, in a graph with types, or SOURCE:NAME:DESTINATION with task="link"; without it, the only one with labels or with edges that are held out.
    target: str | float | Sequence[str | float]
    #: Task: classification or regression of nodes, or link prediction.
    task: Literal["auto", "classes", "regression", "link"]
    #: Divisor of the scores in loss="softmax"; auto: 1.
    temperature: float | Literal["auto"]
    #: Number of worker threads; auto: one per processor.
    threads: int | Literal["auto"]
    #: Values of the encoding of an age, for runs with times; 0: none.
    time_encoding: int
    #: Edges at the very time of a node or link.
    time_equal: Literal["auto", "seen", "hidden"]
    #: Limit of the hops after the first.
    time_hops: Literal["seed", "edge"]
    #: Percentages of the edges to learn, for validation and for test, in the order of time; for task="link" on edges with times.
    time_split: str | float | Sequence[str | float]
    #: Edges that a node draws of those within the limit of the seed.
    time_strategy: Literal["uniform", "last"]
    #: How much earlier than the limit an edge may be, in the unit of the store; auto: any.
    time_window: int | Literal["auto"]
    #: Seconds without a sign of life after which a process is missing.
    timeout: int
    #: Folder of the scratch files of sampling="sweep", which take at most half of the free disk space there (default: the folder of the run).
    tmp: Path
    #: Largest number of steps per walk, for pinsage.
    walk_steps: int
    #: Probability that a walk ends after each step, for pinsage.
    walk_termination: float
    #: Random walks per node, for pinsage: the neighbors are the nodes visited most often.
    walks: int
    #: Epochs of linear warmup from 0 to the learning rate; may be a fraction.
    warmup: float
    #: Weight decay; one number, or one for each layer, such as 0.0005,0.
    weight_decay: str | float | Sequence[str | float]
    #: Number of processes to start on this host.
    workers: int


class PredictOptions(TypedDict, total=False):
    """Options of `Run.predict`."""

    #: Predict links as of this time, in the unit of the store, by a model that learned links at their times.
    at: int
    #: Device of the model: auto, cpu, cuda or cuda:N.
    device: str
    #: Leave out destinations of known edges with top_k.
    exclude_known: bool
    #: Memory limit, such as 512MiB or 4GiB.
    memory: int | str
    #: Number of worker threads; auto: one per processor.
    threads: int | str
    #: Node type of the embeddings, of a run that predicts links between two types.
    type: str
