//! An open store.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread,
};

use grappa_formats::{
    ChunkId, ChunkSpan, FormatError, NodeId,
    assignment::Assignment,
    chunks::ChunkMap,
    container::{self, FileKind},
    edge_rows::EdgeRowsMeta,
    features::FeatureLayout,
    graph::GraphManifest,
    manifest::{FileEntry, Manifest, Sources},
    rows::{RowCodec, RowSizes},
    schema::Schema,
    splits,
    time_axis::TimeAxis,
};
use grappa_io::{Error, Position, Result, container::ContainerFile, regular, text, workers};
use roaring::RoaringTreemap;

use crate::{
    assignments, files,
    ids::{ExternalId, StoreIds},
    node_times::{NodeTimeFiles, NodeTimes},
    writer::with_suffix,
};

/// Number of files per thread for checking headers. Checking fewer takes less time than starting a thread.
const FILES_PER_THREAD: usize = 64;
/// The maximum number of threads that check headers. They wait for the disk.
const THREADS_MAX: usize = 8;

/// A store that is open for reading.
///
/// Opening reads the manifest, the current assignment and the header of every file, but no payload. A file that is missing,
/// truncated, damaged in its header, or not the one that the manifest lists, is an error when the store is opened, and not a
/// fault later when its mapping is read. Opening takes about 10 us per file, so some ms for a graph of 10^9 edges.
///
/// Chunks are mapped one by one, on request.
///
/// An open store does not change if another process repartitions it: [`Store::assignment`] and all other files stay as they
/// were. If another process adds features, this value does not have them. [`Store::newest_assignment`] reads the assignment
/// anew.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    manifest: Manifest,
    edge_features: Option<FeatureLayout>,
    chunks: ChunkMap,
    sources: ChunkMap,
    assignment: Assignment,
    ids: Arc<StoreIds>,
    source_ids: Arc<StoreIds>,
    sizes: SharedSizes,
    time_axis: OnceLock<Arc<TimeAxis>>,
    node_times: OnceLock<Arc<NodeTimes>>,
}

/// The sizes of adjacency lists in each code, once they are needed.
#[derive(Debug, Default)]
struct SharedSizes {
    elias_fano: OnceLock<Arc<RowSizes>>,
    gap: OnceLock<Arc<RowSizes>>,
    by_time: OnceLock<Arc<RowSizes>>,
}

impl Store {
    /// Opens the store at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let manifest = read_manifest(path)?;
        if manifest.sources != Sources::Nodes {
            let problem = "this folder is a part of a graph with types; name the folder above it";
            return Err(unlike(path, problem));
        }
        check_files(path, &manifest)?;
        let ids = Arc::new(StoreIds::open(path, &manifest)?);
        let assignment = assignments::read_newest(path, manifest.chunks.len() as u32)?;
        Self::with_manifest(path, manifest, ids.clone(), ids, assignment)
    }

    /// Opens a member of a graph: a node type, or a relation between types whose nodes have these ids.
    pub(crate) fn open_member(path: &Path, manifest: Manifest, ids: Option<[Arc<StoreIds>; 2]>) -> Result<Self> {
        check_files(path, &manifest)?;
        let [source_ids, ids] = match ids {
            Some(ids) => ids,
            None => {
                let ids = Arc::new(StoreIds::open(path, &manifest)?);
                [ids.clone(), ids]
            }
        };
        let assignment = Assignment::whole(manifest.chunks.len() as u32);
        Self::with_manifest(path, manifest, ids, source_ids, assignment)
    }

    fn with_manifest(
        path: &Path,
        manifest: Manifest,
        ids: Arc<StoreIds>,
        source_ids: Arc<StoreIds>,
        assignment: Assignment,
    ) -> Result<Self> {
        let sources = manifest.source_map().unwrap_or_else(|| ChunkMap::uniform(0, 1));
        Ok(Self {
            path: path.to_owned(),
            edge_features: edge_features(path, &manifest)?,
            assignment,
            chunks: manifest.chunk_map(),
            ids,
            source_ids,
            sizes: SharedSizes::default(),
            time_axis: OnceLock::new(),
            node_times: OnceLock::new(),
            sources,
            manifest,
        })
    }
    /// The store's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The layout of the features of an edge. None if edges have no features.
    pub fn edge_features(&self) -> Option<FeatureLayout> {
        self.edge_features
    }

    /// Whether edges have weights or features, so that files locate the edges of a list.
    pub fn has_edge_data(&self) -> bool {
        self.manifest.weighted || self.edge_features.is_some()
    }

    /// The place of the first edge of each chunk among all edges, in the order of nodes and their adjacency lists; then the number of edges.
    pub fn first_edges(&self) -> Vec<u64> {
        let mut edges = 0;
        let before = self.manifest.chunks.iter().map(|chunk| {
            edges += chunk.edges;
            edges
        });
        std::iter::once(0).chain(before).collect()
    }

    /// Bytes of the files of edge features; 0 without.
    pub fn edge_feature_bytes(&self) -> u64 {
        self.manifest.edge_feature_files().map(|file| file.bytes).sum()
    }

    /// The chunks of the nodes from which edges come: those of the store, unless it is a relation between types.
    pub fn source_chunks(&self) -> &ChunkMap {
        &self.sources
    }

    /// The number of nodes from which edges may come.
    pub fn source_nodes(&self) -> u64 {
        self.sources.nodes()
    }

    /// The lookups of external ids of these nodes.
    pub fn source_ids(&self) -> &Arc<StoreIds> {
        &self.source_ids
    }

    /// The nodes of each chunk.
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// The generation of [`Store::assignment`].
    pub fn generation(&self) -> u64 {
        self.assignment.generation()
    }

    /// The chunks that the store has: all, unless it is a slice.
    pub fn present_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        (0..).map(ChunkId).zip(&self.manifest.chunks).filter_map(|(chunk, entry)| entry.present.then_some(chunk))
    }

    /// Whether the store has a chunk.
    ///
    /// # Panics
    /// If the graph has no such chunk.
    #[inline]
    pub fn is_present(&self, chunk: ChunkId) -> bool {
        self.manifest.chunks[chunk.0 as usize].present
    }

    /// Number of nodes of the chunks that the store has.
    pub fn present_nodes(&self) -> u64 {
        self.present_chunks().map(|chunk| self.chunks.len(chunk)).sum()
    }

    /// The chunks whose feature rows the store has, if features are stored. A slice may have the feature rows of chunks that it lacks.
    pub fn feature_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        (0..).map(ChunkId).zip(&self.manifest.chunks).filter_map(|(chunk, entry)| entry.has_features().then_some(chunk))
    }

    /// Number of nodes of [`Store::feature_chunks`].
    pub fn feature_nodes(&self) -> u64 {
        self.feature_chunks().map(|chunk| self.chunks.len(chunk)).sum()
    }

    /// Chunks whose stored features are missing: the store is a slice without them, and has edges from their nodes.
    pub fn missing_features(&self) -> Vec<ChunkId> {
        if self.manifest.stored_features().is_none() {
            return Vec::new();
        }
        let mut missing = self.missing_sources();
        missing.retain(|chunk| !self.manifest.chunks[chunk.0 as usize].halo);
        missing
    }

    /// Chunks that the store lacks, though it has edges from their nodes. The in-edges of these nodes are unknown.
    pub fn missing_sources(&self) -> Vec<ChunkId> {
        let absent = (0..self.chunks.chunks()).map(ChunkId).filter(|&chunk| !self.is_present(chunk));
        absent
            .filter(|chunk| {
                let mut present = self.manifest.chunks.iter().filter(|entry| entry.present);
                present.any(|entry| entry.bucket_edges[chunk.0 as usize] > 0)
            })
            .collect()
    }

    /// Chunks whose in-degrees are missing: [`Store::missing_sources`] without the chunks whose in-degrees the slice has.
    pub fn missing_degrees(&self) -> Vec<ChunkId> {
        let mut missing = self.missing_sources();
        missing.retain(|chunk| !self.manifest.chunks[chunk.0 as usize].halo_degrees);
        missing
    }

    /// The nodes of a chunk.
    ///
    /// # Errors
    /// If the store has no such chunk, or is a slice without it.
    pub fn span(&self, chunk: ChunkId) -> Result<ChunkSpan> {
        match self.manifest.chunks.get(chunk.0 as usize) {
            Some(entry) if entry.present => Ok(ChunkSpan::for_chunk(&self.chunks, chunk)),
            Some(_) => Err(self.lacks(
                chunk,
                self.present_chunks(),
                "the chunks",
                "generate it with --only-chunks that include this one, or place that chunk, too",
            )),
            None => {
                let problem = format!("there is no chunk {chunk}; the store has {}", self.chunks.chunks());
                Err(Error::input(&self.path, Position::Whole, problem))
            }
        }
    }

    /// The nodes of a chunk whose feature rows the store has.
    ///
    /// # Errors
    /// If the store is a slice without them.
    ///
    /// # Panics
    /// If the graph has no such chunk.
    pub fn feature_span(&self, chunk: ChunkId) -> Result<ChunkSpan> {
        if self.manifest.chunks[chunk.0 as usize].has_features() {
            return Ok(ChunkSpan::for_chunk(&self.chunks, chunk));
        }
        Err(self.lacks(
            chunk,
            self.feature_chunks(),
            "the features of the chunks",
            "place the slice with --halo-features, or place that chunk, too",
        ))
    }

    fn lacks(&self, chunk: ChunkId, has: impl Iterator<Item = ChunkId>, of_chunks: &str, remedy: &str) -> Error {
        let has: Vec<_> = has.map(|chunk| chunk.0).collect();
        let problem = format!(
            "the store is a slice of its graph and has only {of_chunks} {}, not chunk {chunk}; {remedy}",
            text::ranges(&has)
        );
        Error::input(&self.path, Position::Whole, problem)
    }

    /// The sizes of adjacency lists by degree with this codec. All chunks share them.
    pub(super) fn row_sizes(&self, codec: RowCodec) -> Arc<RowSizes> {
        let shared = match codec {
            RowCodec::EliasFano => &self.sizes.elias_fano,
            RowCodec::Gap(_) => &self.sizes.gap,
            RowCodec::ByTime => &self.sizes.by_time,
        };
        shared.get_or_init(|| Arc::new(RowSizes::new(codec, self.sources.nodes()))).clone()
    }

    /// Whether edges have times. Adjacency lists are then in the order of time.
    pub fn is_timed(&self) -> bool {
        self.manifest.is_timed()
    }

    /// The points in time of edges, if they have times. The first call reads and checks the file, whose table may have 8 bytes per edge.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn time_axis(&self) -> Result<Option<&Arc<TimeAxis>>> {
        if !self.is_timed() {
            return Ok(None);
        }
        if let Some(axis) = self.time_axis.get() {
            return Ok(Some(axis));
        }
        let axis = self.read_axis(files::TIME_AXIS)?;
        Ok(Some(self.time_axis.get_or_init(|| Arc::new(axis))))
    }

    /// Whether nodes have times. They are then in the order of time.
    pub fn has_node_times(&self) -> bool {
        self.manifest.has_node_times()
    }

    /// The times of nodes, if they have times. The first call reads the files and compares them with their checksums.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn node_times(&self) -> Result<Option<&Arc<NodeTimes>>> {
        if !self.has_node_times() {
            return Ok(None);
        }
        if let Some(times) = self.node_times.get() {
            return Ok(Some(times));
        }
        let axis = self.read_axis(files::NODE_TIME_AXIS)?;
        let (times, degrees) = (self.file(files::NODE_TIMES)?, self.file(files::NODE_TIME_DEGREES)?);
        let times = NodeTimeFiles::new(times, degrees, self.manifest.nodes, axis.positions())?.map(axis)?;
        Ok(Some(self.node_times.get_or_init(|| Arc::new(times))))
    }

    fn read_axis(&self, path: &str) -> Result<TimeAxis> {
        let file = self.file(path)?;
        let payload = file.read_payload()?;
        TimeAxis::from_payload(file.header(), &payload).map_err(Error::format(file.path()))
    }

    /// Opens a file that the manifest lists, and checks its header again.
    pub fn file(&self, path: &str) -> Result<ContainerFile> {
        files::open(&self.path, self.file_entry(path))
    }

    /// The manifest's entry of a file that it requires.
    pub fn file_entry(&self, path: &str) -> &FileEntry {
        files::entry(&self.manifest, path)
    }

    /// The lookups of external ids.
    pub fn ids(&self) -> &Arc<StoreIds> {
        &self.ids
    }

    /// The external id of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn external_id(&self, node: NodeId) -> Result<ExternalId> {
        self.ids().external(node)
    }

    /// The node with an external id, if there is one.
    pub fn node(&self, id: &ExternalId) -> Result<Option<NodeId>> {
        self.ids().node(id)
    }

    /// The nodes of a split, if the store has it. Reads and fully checks its file.
    pub fn split(&self, name: &str) -> Result<Option<RoaringTreemap>> {
        if !self.manifest.splits.iter().any(|entry| entry.name == name) {
            return Ok(None);
        }
        let path = self.path.join(files::split(name));
        let bytes = regular::read(&path)?;
        splits::decode(&bytes, name, self.manifest.nodes).map(Some).map_err(Error::format(path))
    }

    /// The types of edges: the place of its number among the features of an edge, and the names. None if edges have no types, or the
    /// numbers of so many are not stored exactly.
    ///
    /// # Errors
    /// As [`Store::schema`].
    pub fn edge_types(&self) -> Result<Option<(usize, Vec<String>)>> {
        let exact = self.edge_features.map_or(0, |layout| layout.dtype.whole_numbers_max());
        let schema = self.schema()?;
        // The number after the last name is a value that the schema lacks.
        let types = schema.edge_types().filter(|(_, names)| names.len() as u64 <= exact);
        Ok(types.map(|(place, names)| (place, names.to_vec())))
    }

    /// The names of features, classes and edge features. Empty if the store has none. Reads and fully checks the file.
    pub fn schema(&self) -> Result<Schema> {
        if !self.manifest.has_schema() {
            return Ok(Schema::default());
        }
        let schema = read_schema(&self.path, &self.manifest)?;
        let (names, dim) =
            (schema.edge_feature_names().len(), self.edge_features.map_or(0, |layout| layout.dim as usize));
        if names > 0 && names != dim {
            let problem =
                format!("the schema has names of {names} dimensions of edge features, but the store has {dim}");
            return Err(Error::input(self.path.join(files::SCHEMA), Position::Whole, problem));
        }
        Ok(schema)
    }

    /// The assignment that was current when the store was opened: which partitions see each edge bucket. It is in memory, with
    /// 8 bytes per bucket of each group of chunks with the same owners, so later repartitionings do not change it.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// The assignment that is current now. Reads and fully checks its file.
    pub fn newest_assignment(&self) -> Result<Assignment> {
        assignments::read_newest(&self.path, self.chunks.chunks())
    }
}

/// The error about a path that is no store.
fn unlike(path: &Path, problem: impl Into<String>) -> Error {
    Error::input(path, Position::Whole, problem)
}

/// Fails if the manifest lists other files than it requires, or a file is not the one that it lists.
fn check_files(path: &Path, manifest: &Manifest) -> Result<()> {
    if let Some(problem) = files::disagreements(manifest).into_iter().next() {
        return Err(Error::format(path.join(files::MANIFEST))(FormatError::invalid(64, problem)));
    }
    check_headers(path, &manifest.files)
}

/// Reads and checks the manifest of the store at `path`. Cheaper than opening the store. If `path` is not a store, the error
/// says what it is.
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    let (file, bytes) = manifest_bytes(path)?;
    if container::is_of_kind(&bytes, FileKind::GRAPH) {
        let graph = GraphManifest::decode(&bytes).map_err(Error::format(file))?;
        let problem = format!(
            "this graph has {} node types and {} relations; this command reads graphs with one of each",
            graph.node_types.len(),
            graph.relations.len()
        );
        return Err(unlike(path, problem));
    }
    Manifest::decode(&bytes).map_err(Error::format(file))
}

/// Whether there is a graph with node types and relations at `path`, and not a store without types.
///
/// # Errors
/// If there is neither.
pub fn is_graph(path: &Path) -> Result<bool> {
    manifest_bytes(path).map(|(_, bytes)| container::is_of_kind(&bytes, FileKind::GRAPH))
}

/// The file `manifest` of the store or graph at `path`, and its bytes.
pub(crate) fn manifest_bytes(path: &Path) -> Result<(PathBuf, Vec<u8>)> {
    let resume = "continue that run with --resume, or remove it and start again";
    let partial = with_suffix(path, ".partial");
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound && partial.exists() => {
            let problem = format!("this store is not finished: a run left {}; {resume}", partial.display());
            return Err(unlike(path, problem));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(unlike(
                path,
                "there is no such store; a store is a folder that grappa-ingest or grappa-gen wrote",
            ));
        }
        Err(e) => return Err(Error::io("open", path)(e)),
    };
    if !metadata.is_dir() {
        return Err(unlike(path, "this is a file, and a store is a folder that grappa-ingest or grappa-gen wrote"));
    }
    if path.extension().is_some_and(|extension| extension == "partial") {
        return Err(unlike(path, format!("this store is not finished; {resume}")));
    }
    let file = path.join(files::MANIFEST);
    let Some(bytes) = regular::read_if_there(&file)? else {
        return Err(unlike(path, "this folder is not a store: it has no file `manifest`"));
    };
    Ok((file, bytes))
}

/// Reads and fully checks the schema of the store at `path`, whose manifest lists one.
pub fn read_schema(path: &Path, manifest: &Manifest) -> Result<Schema> {
    let file = path.join(files::SCHEMA);
    let dim = manifest.features.as_ref().map_or(0, |features| features.dim);
    let classes = manifest.labels.map_or(0, |labels| labels.classes);
    Schema::decode(&regular::read(&file)?, dim, classes).map_err(Error::format(file))
}

/// The layout of edge features, which all chunks have in common.
fn edge_features(path: &Path, manifest: &Manifest) -> Result<Option<FeatureLayout>> {
    let mut layout: Option<FeatureLayout> = None;
    for entry in manifest.files.iter().filter(|entry| files::kind_of(&entry.path) == Some(FileKind::EDGE_FEATURES)) {
        let file = files::open(path, entry)?;
        let found = EdgeRowsMeta::decode(file.header()).map_err(Error::format(file.path()))?.layout;
        let expected = *layout.get_or_insert(found);
        if found != expected {
            let problem = format!("the file has rows of {found:?}, but other chunks have {expected:?}");
            return Err(Error::input(file.path(), Position::Whole, problem));
        }
    }
    Ok(layout)
}

/// Compares every file's header and length with the manifest.
fn check_headers(path: &Path, entries: &[FileEntry]) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let batches: Vec<&[FileEntry]> = entries.chunks(FILES_PER_THREAD).collect();
    workers::for_each(threads, &batches, |batch| batch.iter().try_for_each(|entry| files::open(path, entry).map(drop)))
}

/// The error about a store without features. It says how to add some.
pub fn no_features(store: &Path) -> Error {
    let problem = format!(
        "the nodes have no features; compute some from the graph with `grappa-store add-features {} --kind fastrp` (or degrees), \
         or ingest the graph with --features",
        store.display()
    );
    Error::input(store, Position::Whole, problem)
}
