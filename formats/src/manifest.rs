//! The manifest: what the store is, and which files make it up.
//!
//! It is the payload of the container file `manifest`, archived with rkyv 0.8 (little-endian, aligned, 32-bit relative
//! pointers) and validated with bytecheck before anything is believed. It is written last, when every file it names is
//! on disk, and never modified; it is replaced when a store without features gets some. What changes afterwards (the
//! assignment of edge buckets to partitions) lies beside it.

use rkyv::{Archive, Deserialize, Serialize, rancor, util::AlignedVec};

use crate::{
    FormatError, Result,
    chunks::ChunkMap,
    container::{self, FileKind},
    features::FeatureLayout,
};
pub use crate::{
    dtype::FeatureDtype,
    labels::{LabelKind, LabelSpec},
};

/// Everything there is to know about a store before its chunks are opened.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Manifest {
    /// The program and version that wrote the store, such as `grappa-ingest 0.1.0`, and what added features to it.
    pub writer: String,
    /// Number of nodes N of the graph, also those of chunks that are not present.
    pub nodes: u64,
    /// Number of edges in the chunks that are present.
    pub edges: u64,
    /// C + 1 node ids: chunk `i` is `chunk_starts[i]..chunk_starts[i + 1]`.
    pub chunk_starts: Vec<u64>,
    /// One entry per chunk.
    pub chunks: Vec<ChunkEntry>,
    /// How external ids become nodes.
    pub ids: IdSpec,
    /// Feature vectors, if there are any.
    pub features: Option<FeatureSpec>,
    /// Labels, if there are any.
    pub labels: Option<LabelSpec>,
    /// Named sets of nodes, in the order `train`, `val`, `test` as far as present.
    pub splits: Vec<SplitEntry>,
    /// Whether each edge has an f32 weight.
    pub weighted: bool,
    /// What was done to the edges on the way in.
    pub edge_options: EdgeOptions,
    /// Number of edges in the input, before that; of a generated graph, those that were drawn.
    pub edges_read: u64,
    /// Number of lines or rows of the input that were no edges and were skipped.
    pub rejected: u64,
    /// The model the graph was generated from, as JSON; empty for ingested graphs.
    pub generator: String,
    /// Every immutable file of the store but this one, sorted by path.
    pub files: Vec<FileEntry>,
}

/// The most edge buckets whose counts a manifest holds: present chunks times chunks.
///
/// It is read as a whole when a store is opened, and what is in it must be reachable with 32-bit relative pointers.
pub const BUCKETS_MAX: u64 = 1 << 26;

/// One chunk.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ChunkEntry {
    /// Whether the chunk's files are there. A slice of a generated graph (`--only-chunks`) lacks the others.
    pub present: bool,
    /// Edges whose destination is in this chunk.
    pub edges: u64,
    /// Row i of the C x C matrix of edge counts: edges of bucket (i, j) at `j`. Empty if the chunk is not present.
    pub bucket_edges: Vec<u64>,
}

/// External id -> rank in `0..nodes` -> node.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct IdSpec {
    /// What external ids are.
    pub external: ExternalIds,
    /// How ranks are put in the store's order.
    pub order: OrderSpec,
}

/// What external ids are, and so how they get their rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum ExternalIds {
    /// Integers `0..nodes`, which are the ranks.
    Dense,
    /// Any integers below 2^64: the rank is the position in the sorted dictionary `ids/dictionary`.
    Sparse,
    /// Strings, which are any bytes: the rank is the position in the dictionary `ids/dictionary`, sorted by bytes.
    String,
}

/// How ranks are put in the store's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum OrderSpec {
    /// Node = rank.
    Identity,
    /// Node = [`crate::order::Feistel`] of the rank, with this seed.
    Feistel(u64),
    /// The table `ids/order`.
    Table,
}

/// Feature vectors of all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FeatureSpec {
    /// Values per node.
    pub dim: u32,
    /// How a value is stored.
    pub dtype: FeatureDtype,
    /// Bytes from one node's row to the next one's.
    pub row_stride: u32,
    /// Whether rows are on disk or computed.
    pub source: FeatureSource,
}

/// Where feature rows come from.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum FeatureSource {
    /// The files `chunk-<i>/features`.
    Stored,
    /// The generator of `Manifest::generator`, from seed and external id; nothing is on disk.
    Procedural,
}

/// A named set of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct SplitEntry {
    /// `train`, `val` or `test`; its file is `splits/<name>.roaring`.
    pub name: String,
    /// Number of nodes in it.
    pub nodes: u64,
}

/// What was done to the edges on the way in; by default, nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct EdgeOptions {
    /// Each edge was entered in both directions.
    pub undirected: bool,
    /// Parallel edges were merged.
    pub dedup: bool,
    /// What was done to self-loops.
    pub self_loops: SelfLoops,
}

/// What is done to self-loops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum SelfLoops {
    /// They stay as they are.
    #[default]
    Keep,
    /// They are removed.
    Drop,
    /// Every node gets exactly one.
    Add,
}

/// One immutable file.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the store, with `/` between names.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// The checksum in its header, which covers the whole file.
    pub digest: u64,
}

impl Manifest {
    /// The bytes of the file `manifest`.
    pub fn encode(&self) -> Vec<u8> {
        let payload = rkyv::to_bytes::<rancor::Error>(self).expect("a manifest is plain data, which always archives");
        container::encode_file(FileKind::MANIFEST, Vec::new(), &payload).0
    }

    /// Decodes and checks the bytes of the file `manifest`: container, archive, and agreement of the parts.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let (header, payload) = container::decode_file(file, FileKind::MANIFEST)?;
        let mut aligned = AlignedVec::<16>::with_capacity(payload.len());
        aligned.extend_from_slice(payload);
        let manifest: Self = rkyv::from_bytes::<Self, rancor::Error>(&aligned).map_err(|e| {
            FormatError::invalid(header.payload_offset, format!("the manifest's archive is invalid: {e}"))
        })?;
        manifest.check().map_err(|e| match e {
            FormatError::Invalid { what, .. } => FormatError::invalid(header.payload_offset, what),
            other => other,
        })?;
        Ok(manifest)
    }

    /// The division of nodes into chunks.
    ///
    /// # Panics
    /// If the manifest was neither decoded nor checked.
    pub fn chunk_map(&self) -> ChunkMap {
        ChunkMap::from_starts(self.chunk_starts.clone()).expect("checked when decoded")
    }

    /// Whether every chunk is present.
    pub fn is_whole(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.present)
    }

    /// Checks that the parts agree: counts, starts, sums, names.
    pub fn check(&self) -> Result<()> {
        let map = ChunkMap::from_starts(self.chunk_starts.clone())?;
        let wrong = |what: String| Err(FormatError::invalid(0, what));
        if map.nodes() != self.nodes || self.chunks.len() != map.chunks() as usize {
            return wrong(format!(
                "{} nodes in {} chunks, but the chunk starts say {} in {}",
                self.nodes,
                self.chunks.len(),
                map.nodes(),
                map.chunks()
            ));
        }
        let present = self.chunks.iter().filter(|chunk| chunk.present).count() as u64;
        if present * self.chunks.len() as u64 > BUCKETS_MAX {
            return wrong(format!(
                "{present} chunks present of {} make more than {BUCKETS_MAX} edge buckets",
                self.chunks.len()
            ));
        }
        let mut edges = 0u64;
        for (i, chunk) in self.chunks.iter().enumerate() {
            let buckets = if chunk.present { self.chunks.len() } else { 0 };
            let sum = chunk.bucket_edges.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
            if chunk.bucket_edges.len() != buckets || sum != Some(chunk.edges) {
                return wrong(format!(
                    "the edge buckets of chunk {i} do not add up to its {} edges",
                    chunk.edges
                ));
            }
            match edges.checked_add(chunk.edges) {
                Some(sum) => edges = sum,
                None => return wrong("the edges of the chunks overflow 64 bits".into()),
            }
        }
        if edges != self.edges {
            return wrong(format!("{} edges, but the chunks have {edges}", self.edges));
        }
        if let Some(features) = &self.features {
            let layout = FeatureLayout {
                dtype: features.dtype,
                dim: features.dim,
                stride: features.row_stride,
            };
            layout.check().or_else(wrong)?;
        }
        if self.labels.is_some_and(|labels| labels.classes == 0) {
            return wrong("labels of 0 classes".into());
        }
        if let Some(split) = self
            .splits
            .iter()
            .find(|s| !["train", "val", "test"].contains(&s.name.as_str()))
        {
            return wrong(format!(
                "a split is named {:?}; only train, val and test are known",
                split.name
            ));
        }
        if !self.files.windows(2).all(|pair| pair[0].path < pair[1].path) {
            return wrong("the files are not sorted by path".into());
        }
        if let Some(file) = self.files.iter().find(|f| !is_plain_path(&f.path)) {
            return wrong(format!("the file name {:?} leads out of the store", file.path));
        }
        Ok(())
    }
}

fn is_plain_path(path: &str) -> bool {
    path.split('/')
        .all(|name| !name.is_empty() && name != "." && name != "..")
}
