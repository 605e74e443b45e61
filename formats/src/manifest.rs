//! The manifest: the description of a store and the list of its files.
//!
//! The manifest is the payload of the container file `manifest`. It is archived with rkyv 0.8 (little-endian, aligned,
//! 32-bit relative pointers), and validated with bytecheck before any field is used. It is written last, when every
//! file in it is on disk, and is never modified. It is replaced in one case: when features are added to a store that
//! has none. The assignment of edge buckets to partitions changes later, so it is not in the manifest.

use rkyv::{
    Archive, Deserialize, Portable, Serialize,
    api::high::{HighDeserializer, HighSerializer, HighValidator},
    bytecheck::CheckBytes,
    rancor,
    ser::allocator::ArenaHandle,
    util::AlignedVec,
    with::Skip,
};

use crate::{
    EdgePart, FormatError, Result,
    chunks::ChunkMap,
    container::{self, FileKind},
    error::invalid_if,
    features::FeatureLayout,
    schema, time_axis,
};
pub use crate::{
    dtype::FeatureDtype,
    labels::{LabelKind, LabelSpec},
};

/// The contents of the manifest: everything about a store except the contents of its chunks.
///
/// ```
/// use grappa_formats::manifest::*;
///
/// let manifest = Manifest {
///     writer: "example 1.0".into(),
///     nodes: 5,
///     edges: 7,
///     chunk_starts: vec![0, 2, 5],
///     chunks: vec![ChunkEntry::of_buckets(vec![1, 2]), ChunkEntry::of_buckets(vec![4, 0])],
///     ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
///     features: None,
///     labels: None,
///     splits: Vec::new(),
///     weighted: false,
///     edge_options: EdgeOptions::default(),
///     edges_read: 7,
///     rejected: 0,
///     generator: String::new(),
///     files: Vec::new(),
///     sources: Sources::Nodes,
/// };
/// assert_eq!(Manifest::decode(&manifest.encode())?, manifest);
///
/// // The parts must agree: the sum of the buckets is the number of edges.
/// let wrong = Manifest { edges: 8, ..manifest };
/// assert!(Manifest::decode(&wrong.encode()).is_err());
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Manifest {
    /// The program and version that wrote the store, such as `grappa-ingest 0.1.0`. If it drew the splits, also how. If
    /// features were added later, also the program that added them.
    pub writer: String,
    /// Number of nodes of the graph, N. Includes the nodes of chunks that are not present.
    pub nodes: u64,
    /// Number of edges in the chunks that are present.
    pub edges: u64,
    /// C + 1 node ids: chunk `i` has the nodes `chunk_starts[i]..chunk_starts[i + 1]`.
    pub chunk_starts: Vec<u64>,
    /// One entry per chunk.
    pub chunks: Vec<ChunkEntry>,
    /// The mapping from external ids to nodes.
    pub ids: IdSpec,
    /// The features, if the store has any.
    pub features: Option<FeatureSpec>,
    /// The labels, if the store has any.
    pub labels: Option<LabelSpec>,
    /// Named sets of nodes, in the order `train`, `val`, `test`. Any of them may be missing.
    pub splits: Vec<SplitEntry>,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Changes that ingest made to the edges.
    pub edge_options: EdgeOptions,
    /// Number of edges in the input, before these changes. For a generated graph, the number of edges drawn.
    pub edges_read: u64,
    /// Number of input lines or table rows that were skipped because they were not edges.
    pub rejected: u64,
    /// The recipe of a generated graph, as JSON. Empty for an ingested graph.
    pub generator: String,
    /// All immutable files of the store except the manifest, sorted by path.
    pub files: Vec<FileEntry>,
    /// The nodes from which edges come. [`Sources::Nodes`] but in members of a [graph with types](crate::graph).
    #[rkyv(with = Skip)]
    pub sources: Sources,
}

/// The nodes from which the edges of a store come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum Sources {
    /// The nodes of the store.
    #[default]
    Nodes,
    /// The nodes of another type. They are in these chunks: C + 1 starts, as in [`Manifest::chunk_starts`]. The store is a relation.
    Type(Vec<u64>),
    /// None: the store is a node type, without adjacency lists.
    None,
}

/// The payload of the manifest of a member of a graph.
#[derive(Archive, Serialize, Deserialize)]
struct Member {
    manifest: Manifest,
    sources: Sources,
}

/// The maximum number of edge buckets in a manifest: present chunks times chunks.
///
/// The manifest is read as a whole when a store is opened, and 32-bit relative pointers must reach all of it.
pub const BUCKETS_MAX: u64 = 1 << 26;

/// The name of a chunk's file of edge features.
pub const EDGE_FEATURES: &str = "edge-features";

/// A chunk, as the manifest records it.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ChunkEntry {
    /// Whether the chunk's files are in the store. A slice has only some chunks of its graph.
    pub present: bool,
    /// Whether a slice has the features of a chunk that is not present, for halo nodes. False if the chunk is present. Of a relation: the
    /// pre-aggregated features, if there are some.
    pub halo: bool,
    /// Whether a slice also has the in-degrees of such a chunk.
    pub halo_degrees: bool,
    /// Number of edges whose destination is in this chunk.
    pub edges: u64,
    /// Number of edges of bucket (i, j) for each chunk j, where i is this chunk. Empty if the chunk is not present.
    pub bucket_edges: Vec<u64>,
}

impl ChunkEntry {
    /// A chunk that is present, given the number of its edges from each chunk.
    pub fn of_buckets(bucket_edges: Vec<u64>) -> Self {
        Self { present: true, halo: false, halo_degrees: false, edges: bucket_edges.iter().sum(), bucket_edges }
    }

    /// A chunk that is not present, with or without its features.
    pub fn absent(halo: bool) -> Self {
        Self { present: false, halo, halo_degrees: false, edges: 0, bucket_edges: Vec::new() }
    }

    /// Whether the feature rows of the chunk's nodes are in the store, if features are stored.
    pub fn has_features(&self) -> bool {
        self.present || self.halo
    }
}

/// The mapping from external ids to nodes, in two steps: external id -> dense id -> node.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct IdSpec {
    /// The kind of external ids. It determines their dense ids.
    pub external: ExternalIds,
    /// The permutation from dense ids to nodes.
    pub permutation: PermutationSpec,
}

/// The kind of external ids. It determines how an external id gets its dense id, a number in `0..nodes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum ExternalIds {
    /// Integers in `0..nodes`. The dense id is the external id.
    Dense,
    /// Any integers below 2^64. The dense id is the position in the sorted dictionary `ids/dictionary`.
    Sparse,
    /// Strings of any bytes. The dense id is the position in the dictionary `ids/dictionary`, which is sorted by bytes.
    String,
}

/// The node permutation: which node a dense id has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum PermutationSpec {
    /// The node is the dense id.
    Identity,
    /// The node is [`crate::permutation::Feistel`] of the dense id, with this seed.
    Feistel(u64),
    /// The node is in the table `ids/order`.
    Table,
}

/// The features of a store's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FeatureSpec {
    /// Values per node.
    pub dim: u32,
    /// The type of the stored values.
    pub dtype: FeatureDtype,
    /// Bytes from one feature row to the next.
    pub row_stride: u32,
    /// Whether feature rows are on disk or computed.
    pub source: FeatureSource,
}

/// The origin of feature rows.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum FeatureSource {
    /// They are in the files `chunk-<i>/features`.
    Stored,
    /// They are computed from the recipe in [`Manifest::generator`], its seed and the external id. Nothing is on disk.
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

/// Changes that ingest made to the edges. The default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct EdgeOptions {
    /// Each edge was added in both directions.
    pub undirected: bool,
    /// Parallel edges were merged.
    pub dedup: bool,
    /// Treatment of self-loops.
    pub self_loops: SelfLoops,
}

/// The treatment of self-loops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum SelfLoops {
    /// They are kept.
    #[default]
    Keep,
    /// They are removed.
    Drop,
    /// Every node has exactly one.
    Add,
}

/// An immutable file, as the manifest and journals of unfinished stores record it.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize, serde::Serialize, serde::Deserialize)]
pub struct FileEntry {
    /// Path relative to the store, with `/` between names.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// The digest in its header. It covers the whole file.
    pub digest: u64,
}

impl Manifest {
    /// The features, if their rows are on disk.
    pub fn stored_features(&self) -> Option<&FeatureSpec> {
        let features = self.features.as_ref()?;
        (features.source == FeatureSource::Stored).then_some(features)
    }

    /// How the splits were drawn at random, such as `60/20/20, seed 0, stratified`. None if they were given.
    pub fn random_split(&self) -> Option<&str> {
        self.note("split: ")
    }

    /// Encodes the file `manifest`.
    pub fn encode(&self) -> Vec<u8> {
        self.encoded().0
    }

    /// The file `manifest`, and its digest.
    fn encoded(&self) -> (Vec<u8>, u64) {
        if self.sources == Sources::Nodes {
            return encode_archive(FileKind::MANIFEST, self);
        }
        encode_archive(FileKind::MEMBER, &Member { manifest: self.clone(), sources: self.sources.clone() })
    }

    /// The digest in the header of the file `manifest`. Files that are made for a store name it.
    pub fn digest(&self) -> u64 {
        self.encoded().1
    }

    /// Decodes and fully checks the file `manifest` of a store or of a member of a graph: the container, the archive, and that its parts
    /// agree.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let is_member = container::is_of_kind(file, FileKind::MEMBER);
        let (manifest, at) = match is_member {
            true => {
                let (member, at) = decode_archive::<Member, _>(file, FileKind::MEMBER)?;
                (Self { sources: member.sources, ..member.manifest }, at)
            }
            false => decode_archive::<Self, _>(file, FileKind::MANIFEST)?,
        };
        let checked = manifest.check().and_then(|()| {
            invalid_if!(is_member && manifest.sources == Sources::Nodes, 0, "a member is a node type or a relation");
            Ok(())
        });
        checked.map_err(|error| error.moved_to(at))?;
        Ok(manifest)
    }

    /// The chunks of the nodes from which edges come. None if there are no edges.
    ///
    /// # Panics
    /// As [`Manifest::chunk_map`].
    pub fn source_map(&self) -> Option<ChunkMap> {
        match &self.sources {
            Sources::Nodes => Some(self.chunk_map()),
            Sources::Type(starts) => Some(ChunkMap::from_starts(starts.clone()).expect("checked when decoded")),
            Sources::None => None,
        }
    }

    /// The number of chunks from which edges come.
    fn source_chunks(&self) -> usize {
        match &self.sources {
            Sources::Nodes => self.chunks.len(),
            Sources::Type(starts) => starts.len() - 1,
            Sources::None => 0,
        }
    }

    /// The division of nodes into chunks.
    ///
    /// # Panics
    /// If `chunk_starts` is invalid. Manifests from [`Manifest::decode`] are valid.
    pub fn chunk_map(&self) -> ChunkMap {
        ChunkMap::from_starts(self.chunk_starts.clone()).expect("checked when decoded")
    }

    /// Whether all chunks are present.
    pub fn is_whole(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.present)
    }

    /// Whether edges have features. The files of the chunks say their number and type.
    pub fn has_edge_features(&self) -> bool {
        self.edge_feature_files().next().is_some()
    }

    /// The files of the features of the graph's edges.
    pub fn edge_feature_files(&self) -> impl Iterator<Item = &FileEntry> {
        self.files_of_chunks(EDGE_FEATURES)
    }

    /// The files of chunks with this name.
    fn files_of_chunks(&self, name: &str) -> impl Iterator<Item = &FileEntry> {
        self.files.iter().filter(move |file| file.path.rsplit_once('/').is_some_and(|(_, file)| file == name))
    }

    /// Whether edges have times.
    pub fn is_timed(&self) -> bool {
        self.files.iter().any(|file| file.path == time_axis::FILE)
    }

    /// Whether nodes have times.
    pub fn has_node_times(&self) -> bool {
        self.files.iter().any(|file| file.path == time_axis::NODE_FILE)
    }

    /// Whether the store has the file `schema`, with the names of features, classes and edge features.
    pub fn has_schema(&self) -> bool {
        self.files.iter().any(|file| file.path == schema::FILE)
    }

    /// The parts of the edges that the store has beside the graph.
    pub fn held_out(&self) -> Vec<EdgePart> {
        let is_held_out = |part: &EdgePart| self.files_of_chunks(&part.file("edges")).next().is_some();
        EdgePart::HELD_OUT.into_iter().filter(is_held_out).collect()
    }

    /// How edges were held out: at random, such as `80/10/10, seed 0`, or by a column, such as `80/10/10 by time`. None if files named them, or
    /// none were.
    pub fn edge_split(&self) -> Option<&str> {
        self.note("edge split: ")
    }

    /// What the writer says after `prefix`.
    fn note(&self, prefix: &str) -> Option<&str> {
        self.writer.split("; ").find_map(|part| part.strip_prefix(prefix))
    }

    /// A digest of what all slices of a graph have in common: nodes and their chunks, ids, kinds and names of features
    /// and labels, and the recipe of a generated graph.
    pub fn graph_digest(&self) -> u64 {
        let common = Self {
            writer: String::new(),
            edges: 0,
            chunks: vec![ChunkEntry::absent(false); self.chunks.len()],
            splits: Vec::new(),
            edges_read: 0,
            rejected: 0,
            files: self
                .files
                .iter()
                .filter(|file| {
                    let path = file.path.as_str();
                    path.starts_with("ids/") || path.starts_with("node-time") || path == schema::FILE
                })
                .cloned()
                .collect(),
            ..self.clone()
        };
        common.encoded().1
    }

    /// Checks that the parts of the manifest agree: counts, starts, sums and names.
    pub fn check(&self) -> Result<()> {
        let map = ChunkMap::from_starts(self.chunk_starts.clone())?;
        let (nodes, chunks) = (self.nodes, self.chunks.len());
        invalid_if!(
            map.nodes() != nodes || map.chunks() as usize != chunks,
            0,
            "{nodes} nodes in {chunks} chunks, but the chunk starts say {} in {}",
            map.nodes(),
            map.chunks()
        );
        if let Sources::Type(starts) = &self.sources {
            ChunkMap::from_starts(starts.clone())?;
            let has_node_data = self.features.is_some() || self.labels.is_some() || !self.splits.is_empty();
            invalid_if!(has_node_data, 0, "a relation has features, labels or splits of nodes");
            invalid_if!(self.has_node_times(), 0, "a relation has times of nodes");
        }
        invalid_if!(self.is_timed() && self.has_node_times(), 0, "both edges and nodes have times");
        let (present, source_chunks) = (self.chunks.iter().filter(|chunk| chunk.present).count(), self.source_chunks());
        invalid_if!(
            present as u64 * source_chunks as u64 > BUCKETS_MAX,
            0,
            "{present} chunks present with edges from {source_chunks} make more than {BUCKETS_MAX} edge buckets"
        );
        // Those of a relation have pre-aggregated features.
        let may_be_halo = self.stored_features().is_some() || matches!(self.sources, Sources::Type(_));
        let mut edges = 0u64;
        for (i, chunk) in self.chunks.iter().enumerate() {
            let buckets = if chunk.present { source_chunks } else { 0 };
            let sum = chunk.bucket_edges.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
            invalid_if!(
                chunk.bucket_edges.len() != buckets || sum != Some(chunk.edges),
                0,
                "the edge buckets of chunk {i} do not add up to its {} edges",
                chunk.edges
            );
            edges = edges
                .checked_add(chunk.edges)
                .ok_or_else(|| FormatError::invalid(0, "the edges of the chunks overflow 64 bits"))?;
            invalid_if!(
                chunk.halo && (chunk.present || !may_be_halo),
                0,
                "chunk {i} has features for halo nodes, but it is present, or no features are stored"
            );
            invalid_if!(
                chunk.halo_degrees && !chunk.halo,
                0,
                "chunk {i} has in-degrees for halo nodes, but no features for them"
            );
        }
        invalid_if!(edges != self.edges, 0, "{} edges, but the chunks have {edges}", self.edges);
        if let Some(features) = &self.features {
            let layout = FeatureLayout { dtype: features.dtype, dim: features.dim, stride: features.row_stride };
            layout.check(false, 0)?;
        }
        invalid_if!(self.labels.is_some_and(|labels| labels.classes == 0), 0, "labels of 0 classes");
        for SplitEntry { name, .. } in &self.splits {
            let is_known = ["train", "val", "test"].contains(&name.as_str());
            invalid_if!(!is_known, 0, "a split is named {name:?}; only train, val and test are known");
        }
        let is_sorted = self.files.windows(2).all(|pair| pair[0].path < pair[1].path);
        invalid_if!(!is_sorted, 0, "the files are not sorted by path");
        for FileEntry { path, .. } in &self.files {
            invalid_if!(!is_plain_path(path), 0, "the file name {path:?} leads out of the store");
        }
        Ok(())
    }
}

/// Encodes a container file whose payload is the archive of a value. Returns it with its digest.
pub(crate) fn encode_archive<T>(kind: FileKind, value: &T) -> (Vec<u8>, u64)
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    let payload = rkyv::to_bytes::<rancor::Error>(value).expect("plain data always archives");
    container::encode_file(kind, Vec::new(), &payload)
}

/// Decodes such a file. Returns the value, and where its archive begins in the file.
pub(crate) fn decode_archive<T, A>(file: &[u8], kind: FileKind) -> Result<(T, u64)>
where
    T: Archive<Archived = A>,
    A: Portable
        + for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
        + Deserialize<T, HighDeserializer<rancor::Error>>,
{
    let (header, payload) = container::decode_file(file, kind)?;
    let mut aligned = AlignedVec::<16>::with_capacity(payload.len());
    aligned.extend_from_slice(payload);
    let value = rkyv::from_bytes::<T, rancor::Error>(&aligned)
        .map_err(|e| FormatError::invalid(header.payload_offset, format!("the manifest's archive is invalid: {e}")))?;
    Ok((value, header.payload_offset))
}

fn is_plain_path(path: &str) -> bool {
    path.split('/').all(|name| !name.is_empty() && name != "." && name != "..")
}
