//! Nodes as the user gives them: their ids, data, splits and order.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use grappa_formats::manifest::{ExternalIds, FeatureDtype};
use grappa_input::{
    EncodingOptions, IdKind, IdLimit, Input, LabelType, LimitSource, NodeTimeSource, SplitSource, TableForm,
};
use grappa_io::{Error, Result, progress::Progress};

use crate::ingest::{plan::IngestBudget, resources::Resources, shares::RandomSplit};

/// The nodes of a graph, or of one of its types.
#[derive(Debug, Clone)]
pub struct NodeIngest {
    /// Kind of external ids.
    pub ids: ExternalIds,
    /// The number of nodes, if known. Dense ids need no scan of the input then.
    pub number: Option<u64>,
    /// The file that says the number of nodes, if no option does.
    pub number_file: Option<PathBuf>,
    /// Features and labels.
    pub data: NodeData,
    /// Splits.
    pub splits: NodeSplits,
    /// The order of the nodes in the store.
    pub layout: StoreLayout,
}

impl Default for NodeIngest {
    /// Nodes with dense ids, and no data.
    fn default() -> Self {
        Self {
            ids: ExternalIds::Dense,
            number: None,
            number_file: None,
            data: NodeData::default(),
            splits: NodeSplits::default(),
            layout: StoreLayout::default(),
        }
    }
}

impl NodeIngest {
    /// Fills in the columns of a schema.
    pub(super) fn resolve(&mut self) {
        if let Some(schema) = &self.data.encoding.schema {
            let names = schema.features.iter().map(|column| column.name.clone());
            self.data.tables.columns.schema = names.collect();
        }
    }

    /// Whether nodes have times.
    pub(super) fn is_timed(&self) -> bool {
        self.data.tables.columns.time.is_some()
    }

    /// Opens the table with the times of nodes: the one that the user names, or the first of the tables of features, ids and labels that
    /// has the column. None if nodes have no times.
    pub(super) fn open_times(&self) -> Result<Option<NodeTimeSource>> {
        let NodeData { features, labels, table, times, tables, .. } = &self.data;
        if !self.is_timed() {
            return Ok(None);
        }
        if self.layout.assign != Assign::Random {
            return Err(Error::conflict(
                "nodes with times are in the order of time, which contradicts --assign",
                "omit --assign, or give --node-time none for nodes without times",
            ));
        }
        let mut inputs = times.iter().chain(features).chain(table).chain(labels);
        let Some(first) = inputs.next() else {
            return Err(Error::conflict(
                "--node-time names a column of a table of nodes, and there is none",
                "give the table with its ids: --features or, with types, --nodes TYPE=FILE",
            ));
        };
        NodeTimeSource::open(first, tables).or_else(|error| {
            let others = inputs.filter_map(|input| NodeTimeSource::open(input, tables).ok());
            others.flatten().next().map(Some).ok_or(error)
        })
    }

    /// Finds the unit of times, unless it is given. Reads the column.
    pub(super) fn resolve_times(&mut self, progress: &dyn Progress) -> Result<()> {
        if let Some(mut source) = self.open_times()? {
            let unit = source.find_unit(progress)?;
            if let Some(time) = &mut self.data.tables.columns.time {
                time.unit = Some(unit);
            }
        }
        Ok(())
    }

    /// What limits ids, beside options.
    pub(super) fn limited_by(&self, number: Option<u64>) -> Option<LimitSource> {
        match self.number {
            Some(_) => self.number_file.clone().map(LimitSource::Count),
            // The number of nodes is the number of rows of a file, or not known yet.
            None if number.is_some() => {
                let rows = self.data.features.as_ref().or(self.data.labels.as_ref());
                rows.map(|input| LimitSource::Rows(input.name().to_owned()))
            }
            None => None,
        }
    }

    /// Whether the node permutation is a table, which takes memory.
    pub(super) fn has_table_of_nodes(&self) -> bool {
        match self.layout.assign {
            Assign::Random | Assign::Range => self.is_timed(),
            Assign::File(_) | Assign::Streamed { .. } => true,
        }
    }

    /// The memory and threads of the steps. A permutation that takes memory gets half of the user's budget.
    pub(super) fn budget(&self, resources: &Resources) -> IngestBudget {
        let share = if self.has_table_of_nodes() { 2 } else { 1 };
        IngestBudget::new(resources.memory / share, share, resources.threads)
    }
}

/// Features and labels of nodes.
#[derive(Debug, Clone, Default)]
pub struct NodeData {
    /// A matrix with one feature row per node, in ascending order of their ids or in the order of `ids`, or a table with ids, which are
    /// nodes even if no edge has them. Each of these files may be a folder of Parquet files.
    pub features: Option<Input>,
    /// The stored type of features. By default f16 if the file has f16, otherwise f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// Whether features may be NaN or infinite.
    pub allow_nan: bool,
    /// A file with one label, or one set of labels, per node, in the same order, or a table with the ids of the nodes that have labels.
    pub labels: Option<Input>,
    /// What the values of this file are.
    pub label_type: LabelType,
    /// A file with the external id of each row of features and labels, unless they are tables with ids. Ids that are not dense are
    /// nodes even if no edge has them.
    pub ids: Option<Input>,
    /// A table with the ids of all nodes, and no features.
    pub table: Option<Input>,
    /// The table with the column of times, if that is none of the others.
    pub times: Option<Input>,
    /// The form of tables of features and labels.
    pub tables: TableForm,
    /// How the columns of a table of features become numbers.
    pub encoding: EncodingOptions,
}

/// Splits of nodes.
#[derive(Debug, Clone, Default)]
pub struct NodeSplits {
    /// Files with the ids of each split.
    pub files: Vec<SplitFile>,
    /// How to draw the splits, instead of files.
    pub random: Option<RandomSplit>,
}

/// The order of the nodes in the store.
#[derive(Debug, Clone)]
pub struct StoreLayout {
    /// The number of chunks. None chooses by the number of nodes.
    pub chunks: Option<u32>,
    /// The node permutation. Nodes with times are in the order of time instead, and this has its default.
    pub assign: Assign,
    /// Seed of the random permutation.
    pub seed: u64,
}

impl Default for StoreLayout {
    /// A random permutation with seed 0.
    fn default() -> Self {
        Self { chunks: None, assign: Assign::Random, seed: 0 }
    }
}

/// A split, as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// `train`, `val` or `test`.
    pub name: &'static str,
    /// The file with its ids, or a folder of Parquet files.
    pub ids: Input,
}

impl SplitFile {
    /// The file of the split `train`, `val` or `test`.
    pub fn new(name: &'static str, ids: impl Into<Input>) -> Self {
        Self { name, ids: ids.into() }
    }
}

/// The node permutation, which decides the chunk of each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assign {
    /// Random, so that every chunk is a random sample of the nodes.
    Random,
    /// By external id, so that neighboring ids stay together.
    Range,
    /// By the parts in a file, which has a line or an array element per dense id. Each part with nodes becomes a chunk. If
    /// there are to be more chunks than parts, every part is divided evenly into the same number of chunks.
    File(PathBuf),
    /// By parts of neighboring nodes, which a streaming partitioner finds in the edges. They become chunks as the parts of a file do.
    /// Edges that a random split or a column holds out count as well.
    Streamed {
        /// The rule that chooses the part of a node.
        partitioner: Partitioner,
        /// The number of parts, from 2 to [`PARTS_MAX`].
        parts: u32,
    },
}

/// The largest number of parts of a streaming partitioner.
pub const PARTS_MAX: u32 = 4096;

/// The rule by which a streaming partitioner chooses the part of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioner {
    /// Linear deterministic greedy (Stanton and Kliot, KDD 2012): neighbors in the part, times the share of the part that is free.
    Ldg,
    /// Fennel (Tsourakakis et al., WSDM 2014): neighbors in the part, less a cost that grows with the part.
    Fennel,
}

impl Partitioner {
    /// All partitioners.
    pub const ALL: [Self; 2] = [Self::Ldg, Self::Fennel];

    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ldg => "ldg",
            Self::Fennel => "fennel",
        }
    }
}

/// An input with the ids of rows.
#[derive(Debug, Clone, Copy)]
pub enum RowIds<'a> {
    /// One id per line or element, for the rows of other files.
    List(&'a Input),
    /// A table of features or labels with the ids of its rows.
    Table(&'a Input),
}

impl RowIds<'_> {
    /// The file, or the name of the data.
    pub fn name(&self) -> &Path {
        match self {
            Self::List(input) | Self::Table(input) => input.name(),
        }
    }

    /// Opens the file.
    pub fn open(&self, nodes: &NodeIngest) -> Result<SplitSource> {
        let (kind, limit) = (id_kind(nodes.ids), id_limit(nodes.ids, None));
        match self {
            Self::List(input) => SplitSource::open_ordered(*input, kind, limit, &nodes.data.tables),
            Self::Table(input) => SplitSource::open_table(*input, kind, limit, &nodes.data.tables),
        }
    }
}

/// The error about edges with times from nodes with times.
pub fn two_orders(problem: impl Display, remedy: impl Into<String>) -> Error {
    Error::conflict(format!("{problem}, and adjacency lists are in the order of one of them"), remedy)
}

/// The kind of ids, for the parsers.
pub fn id_kind(ids: ExternalIds) -> IdKind {
    match ids {
        ExternalIds::Dense | ExternalIds::Sparse => IdKind::Integer,
        ExternalIds::String => IdKind::String,
    }
}

/// The range of valid ids, for the parsers.
pub fn id_limit(ids: ExternalIds, number: Option<u64>) -> IdLimit {
    match (ids, number) {
        (ExternalIds::Dense, Some(number)) => IdLimit::Nodes(number),
        (ExternalIds::Dense, None) => IdLimit::Dense,
        _ => IdLimit::Sparse,
    }
}

/// Advice for a file that has more rows than there are nodes.
pub fn surplus_rows_remedy(nodes: &NodeIngest) -> &'static str {
    match nodes.ids {
        _ if nodes.data.ids.is_some() => "give one row for each id of --node-ids, in the same order",
        ExternalIds::Dense => "give --nodes if there are more nodes than the edges show",
        ExternalIds::Sparse | ExternalIds::String => {
            "with --ids sparse or string, the nodes are the different ids in the edges: give one row for each, in \
             ascending order of the ids, or the id of each row with --node-ids"
        }
    }
}
