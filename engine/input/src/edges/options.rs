//! How to read edges.

use std::{fmt, path::PathBuf};

use crate::{columns::EdgeColumnOptions, input::Input, reading::ColumnReading, separator::Separator};

/// The format of edge files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeFormat {
    /// Detected from each file's first bytes and name.
    #[default]
    Auto,
    /// Text, with columns separated as its first lines show, or a matrix of Matrix Market.
    Tsv,
    /// Text with columns separated by commas. A file that is called so may have another separator. More first lines are a
    /// [`HeaderLine`].
    Csv,
    /// NumPy array of integers, or of floats that are integers, with shape [E, 2] or [2, E]. Shape [2, 2] is read as [E, 2]. In a
    /// `.npz` archive: the array `edge_index`, `edges` or `edge_list`, the only array, or else a sparse matrix.
    Npy,
    /// Pairs of little-endian 32-bit integers.
    U32,
    /// Pairs of little-endian 64-bit integers.
    U64,
    /// Apache Parquet: the columns with names such as `src` and `dst`, or those that the user names.
    Parquet,
}

/// The kind of node ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdKind {
    /// Integers, 0 or more.
    #[default]
    Integer,
    /// Any UTF-8 text.
    String,
}

/// The upper bound of integer ids, and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdLimit {
    /// Dense ids: below 2^40.
    Dense,
    /// `--nodes`: dense ids below this.
    Nodes(u64),
    /// Dense ids of a node type, below its number of nodes.
    OfType(u64),
    /// Sparse ids: any 64-bit number but the largest.
    Sparse,
}

impl IdLimit {
    /// The smallest id that is too large.
    pub fn exclusive(self) -> u64 {
        match self {
            Self::Dense => grappa_formats::NODES_MAX,
            Self::Nodes(nodes) | Self::OfType(nodes) => nodes.min(grappa_formats::NODES_MAX),
            Self::Sparse => u64::MAX,
        }
    }
}

/// The reaction to lines and rows that are not edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadLine {
    /// The first bad line is an error.
    #[default]
    Fail,
    /// Bad lines are left out, and each is handed to the caller as a [`Reject`](super::Reject).
    Skip,
}

/// Whether the first line of a text file, after comments, is a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderLine {
    /// It is one if it has known names for the columns of sources and targets, or a name that an option has or, in CSV, none of its
    /// fields is a number. With string ids, only known names are a header, unless spaces separate them: such words may be an edge.
    #[default]
    Auto,
    /// In all files.
    Yes,
    /// In no file.
    No,
}

/// Whether first lines that begin with `#` or `%` are comments. After the first line of data, no line is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Comments {
    /// They are, but with string ids, one that may be an edge is an error.
    #[default]
    Auto,
    /// They are.
    Yes,
    /// They are not.
    No,
}

/// A file that limits node ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitSource {
    /// Node data, which has a row for each node.
    Rows(PathBuf),
    /// A file that says the number of nodes.
    Count(PathBuf),
}

/// The ids at one end of edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndIds {
    /// Their kind.
    pub kind: IdKind,
    /// The upper bound of integers.
    pub limit: IdLimit,
    /// Where `limit` is from, if no option gave it. A larger id is then an error about that file.
    pub limited_by: Option<LimitSource>,
    /// The node type, if the graph has several. A row without an id at this end is then no edge, and never an error.
    pub node_type: Option<NodeTypeOfEnd>,
}

/// The node type at one end of edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTypeOfEnd {
    /// Its name.
    pub name: String,
    /// What lists its nodes, for messages.
    pub listed_in: String,
}

impl EndIds {
    /// The same ids at both ends.
    pub fn both(kind: IdKind, limit: IdLimit) -> [Self; 2] {
        [(); 2].map(|()| Self { kind, limit, limited_by: None, node_type: None })
    }
}

/// How to read edges.
#[derive(Debug, Clone)]
pub struct EdgeSourceOptions {
    /// The format of the files.
    pub format: EdgeFormat,
    /// Whether text files have a header.
    pub header: HeaderLine,
    /// Whether text files have comments.
    pub comments: Comments,
    /// The separator of text files. None finds it from the first lines.
    pub separator: Option<Separator>,
    /// The columns that the user names.
    pub columns: EdgeColumnOptions,
    /// The ids of sources, and of targets.
    pub ends: [EndIds; 2],
    /// A `.npy` file with one weight per edge, in the order of the edges of all files. The edge files must be binary.
    pub weights: Option<Input>,
    /// A `.npy` file with a row of features per edge, in the same order. Not together with columns of features.
    pub features: Option<Input>,
    /// What each column of features becomes, as [`EdgeSource::fit`](super::EdgeSource::fit) chose. None: they are numbers.
    pub encoded: Option<Vec<ColumnReading>>,
    /// Whether the files may have no edges at all.
    pub allow_empty: bool,
    /// The reaction to lines and rows that are not edges.
    pub on_bad_line: OnBadLine,
    /// Input bytes per block; compressed text is cut after unpacking. A worker holds one block and its parsed edges:
    /// `block_bytes`, plus 16 bytes per edge (20 with a weight).
    pub block_bytes: usize,
}

impl Default for EdgeSourceOptions {
    fn default() -> Self {
        Self {
            format: EdgeFormat::Auto,
            header: HeaderLine::Auto,
            comments: Comments::Auto,
            separator: None,
            columns: EdgeColumnOptions::default(),
            ends: EndIds::both(IdKind::Integer, IdLimit::Dense),
            weights: None,
            features: None,
            encoded: None,
            allow_empty: false,
            on_bad_line: OnBadLine::Fail,
            block_bytes: 8 << 20,
        }
    }
}

impl EdgeSourceOptions {
    /// The kinds of the ids of sources, and of targets.
    pub fn kinds(&self) -> [IdKind; 2] {
        self.ends.each_ref().map(|end| end.kind)
    }

    /// Whether edges are parsed as text: an end has strings.
    pub fn are_strings(&self) -> bool {
        self.kinds().contains(&IdKind::String)
    }

    pub(super) fn limits(&self) -> [IdLimit; 2] {
        self.ends.each_ref().map(|end| end.limit)
    }

    pub(super) fn key_form(&self) -> KeyForm {
        KeyForm { kinds: self.kinds(), limits: self.limits() }
    }
}

/// How the ids of both ends become keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyForm {
    pub kinds: [IdKind; 2],
    pub limits: [IdLimit; 2],
}

/// The place of a block in the input. The same files and options always give the same blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Index of the file.
    pub file: u32,
    /// Index of the block in that file.
    pub block: u64,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.block)
    }
}
