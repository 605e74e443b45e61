//! The generation of a store: the check of the memory, the chunks that are missing, splits and manifest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::{
    ChunkId,
    chunks::ChunkMap,
    features::FeatureLayout,
    manifest::{
        ChunkEntry, ExternalIds, FeatureSource, FeatureSpec, FileEntry, IdSpec, LabelKind, LabelSpec, Manifest,
        PermutationSpec, Sources, SplitEntry,
    },
    permutation::Feistel,
};
use grappa_io::{
    Error, Result, durable::Destination, journal::Journal, memory::MemoryGate, progress::Progress, workers,
};
use grappa_storage::writer::{AdjacencyWriter, EndChunks, JOURNAL, StoreFolder, finished};
use grappa_synthetic::{Generator, Model, Split};
use roaring::RoaringTreemap;

use super::{
    journal::{self, ChunkDone, Record},
    options::{StoreOptions, StoreSummary},
    pieces::{LabelBlocks, PIECE_EDGES},
    team_plan::{COLUMN_WINDOW_BYTES, EDGE_COST, TeamPlan},
};
use crate::ingest::plan;

/// Bytes of memory per byte of a split's bitmap: the set, its encoding, and the encoding in a file buffer.
const SPLIT_COST: u64 = 3;
/// The splits, in the order of the manifest.
const SPLITS: [Split; 3] = [Split::Train, Split::Val, Split::Test];

/// Generates the store of a recipe.
///
/// # Errors
/// If the options contradict each other, the budget does not hold the largest adjacency list, or a file can't be read or
/// written. After an I/O error the unfinished store stays, and a run with `options.resume` continues it.
pub fn generate_store(options: &StoreOptions, progress: &dyn Progress) -> Result<StoreSummary> {
    if matches!(options.recipe.model, Model::Relation(_)) {
        return Err(Error::conflict("a relation is a part of a graph with types", "generate the graph"));
    }
    let chunks = options.all_chosen_chunks()?;
    let generation = Generation::new(options, Member::Store, chunks, progress)?;
    let out = Destination { path: &options.out, replaces: options.replace };
    let (folder, begun) = StoreFolder::begin(out, None, options.resume)?;
    generation.finish(&folder).map_err(|error| folder.failed(begun, error))
}

/// The part of a graph that a store is.
#[derive(Clone)]
pub enum Member {
    /// All of it: nodes and the edges between them.
    Store,
    /// The nodes of a type.
    NodeType,
    /// The edges from the nodes of one type to those of another.
    Relation {
        /// The nodes at the sources.
        sources: NodeLayout,
        /// The nodes at the destinations.
        destinations: NodeLayout,
    },
}

/// The order of the nodes of a store or type, and their chunks.
#[derive(Clone)]
pub struct NodeLayout {
    /// The node permutation. Without one, a node is its own label.
    pub(super) permutation: Option<Feistel>,
    pub(super) chunks: ChunkMap,
}

impl NodeLayout {
    /// The layout of the nodes that the options describe.
    pub fn new(options: &StoreOptions) -> Result<Self> {
        let generator = Generator::new(options.recipe.clone())?;
        let permutation = options.random_permutation.then(|| Feistel::new(generator.nodes(), options.recipe.seed));
        Ok(Self { permutation, chunks: options.chunk_map(&generator)? })
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.chunks.chunks()
    }
}

/// A store that is generated.
pub struct Generation<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) generator: Generator,
    /// The nodes; of a relation, the destinations.
    pub(super) nodes: NodeLayout,
    /// The sources of a relation. Those of a store are its nodes.
    sources: Option<NodeLayout>,
    pub(super) has_edges: bool,
    /// The chunks to generate.
    chosen_chunks: BTreeSet<u32>,
    pub(super) features: Option<FeatureLayout>,
    pub(super) labels: Option<LabelSpec>,
    reserved: ReservedMemory,
    pub(super) teams: TeamPlan,
    /// The memory for adjacency lists that exceed a window.
    pub(super) gate: MemoryGate,
    pub(super) progress: &'a dyn Progress,
}

impl<'a> Generation<'a> {
    /// Checks the options and the memory. `chosen_chunks` are the chunks to generate.
    pub fn new(
        options: &'a StoreOptions,
        member: Member,
        chosen_chunks: BTreeSet<u32>,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        assert!(!options.edge_options.undirected, "generated graphs have no reverse edges");
        workers::check_threads(options.threads)?;
        let generator = Generator::new(options.recipe.clone())?;
        let has_edges = !matches!(member, Member::NodeType);
        let (nodes, sources) = match member {
            Member::Store | Member::NodeType => (NodeLayout::new(options)?, None),
            Member::Relation { sources, destinations } => (destinations, Some(sources)),
        };
        let source_chunks = has_edges.then(|| &sources.as_ref().unwrap_or(&nodes).chunks);
        let labels = (generator.classes() > 0).then(|| LabelSpec::new(LabelKind::Single, generator.classes()));
        let features = options.features.as_ref().map(|f| FeatureLayout::new(f.dtype, f.dim));
        let reserved = ReservedMemory::new(options, &generator, &nodes.chunks, source_chunks, &chosen_chunks);
        let memory = options.memory.saturating_sub(reserved.total());
        let teams = TeamPlan::new(memory, options.threads, chosen_chunks.len());
        let run = Self {
            options,
            features,
            generator,
            nodes,
            sources,
            has_edges,
            chosen_chunks,
            labels,
            reserved,
            teams,
            gate: MemoryGate::new(teams.spare),
            progress,
        };
        run.check_memory()?;
        Ok(run)
    }

    /// Fails if the smallest windows, the largest adjacency list or a split do not fit in the budget.
    fn check_memory(&self) -> Result<()> {
        let mut least = if self.has_edges { PIECE_EDGES * EDGE_COST * self.teams.teams as u64 } else { 0 };
        if self.features.is_some() || self.labels.is_some() {
            least = least.max(COLUMN_WINDOW_BYTES * (self.teams.team_threads * self.teams.teams) as u64);
        }
        let buckets = self.reserved.buckets * plan::BUCKET_COPIES;
        let least = (least + self.reserved.total()).max(buckets);
        if self.options.memory < least {
            let (operation, remedy) = if self.reserved.class_means > least / 2 {
                let remedy = "raise --memory, or give fewer --classes or a smaller --feature-dim";
                ("the features' mean of each class".to_owned(), remedy)
            } else if buckets > least / 2 {
                let operation = plan::edge_buckets(self.ends(), self.chosen_chunks.len() as u64);
                (operation, "raise --memory, or give fewer --chunks, or make fewer of them with --only-chunks")
            } else {
                let remedy = "raise --memory, give more --chunks, or use fewer --threads";
                ("generating chunks".to_owned(), remedy)
            };
            return Err(Error::Budget { operation, given: self.options.memory, least, remedy });
        }
        let largest = match self.generator.largest_degree_estimate() {
            estimate if self.teams.holds_list(estimate) => 0,
            // The estimate is about the whole graph. A slice need not have the largest adjacency list.
            estimate if self.chosen_chunks.len() == self.nodes.chunks.chunks() as usize => estimate,
            _ => self.largest_degree()?,
        };
        if !self.teams.holds_list(largest) {
            let (threads, chunks) = (self.options.threads, self.chosen_chunks.len());
            let memory = TeamPlan::memory_for_list(largest, threads, chunks, self.reserved.total());
            return Err(Error::Budget {
                operation: format!("the adjacency list of a node with up to {largest} in-edges"),
                given: self.options.memory,
                least: memory << 20,
                remedy: "raise --memory",
            });
        }
        if self.labels.is_some() {
            let nodes: u64 = self.chosen_chunks.iter().map(|&chunk| self.nodes.chunks.len(ChunkId(chunk))).sum();
            let bytes = nodes.div_ceil(8) * SPLIT_COST;
            if bytes > self.options.memory {
                return Err(Error::Budget {
                    operation: format!("the splits of {nodes} nodes"),
                    given: self.options.memory,
                    least: bytes,
                    remedy: "raise --memory, or make fewer chunks with --only-chunks",
                });
            }
        }
        Ok(())
    }

    /// The chunks of both ends of edges.
    pub(super) fn ends(&self) -> EndChunks<'_> {
        EndChunks { destinations: &self.nodes.chunks, sources: &self.source_nodes().chunks }
    }

    /// The nodes that are sources of edges.
    pub(super) fn source_nodes(&self) -> &NodeLayout {
        self.sources.as_ref().unwrap_or(&self.nodes)
    }

    /// The largest in-degree of the chunks to generate, or 0 if none exceeds the window.
    fn largest_degree(&self) -> Result<u64> {
        self.progress.stage("looking for large adjacency lists", None);
        let chosen_chunks: Vec<_> = self.chosen_chunks.iter().copied().map(ChunkId).collect();
        let largest = AtomicU64::new(0);
        workers::for_each(self.options.threads, &chosen_chunks, |chunk| {
            let labels = LabelBlocks::new(self.nodes.permutation.as_ref(), self.nodes.chunks.range(chunk));
            let mut found = 0;
            for label in labels {
                if self.generator.degree_bound(label) > found.max(self.teams.window) {
                    found = found.max(self.generator.degree(label));
                }
            }
            largest.fetch_max(found, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(largest.into_inner())
    }

    /// Writes the store, or what is missing of it.
    pub fn finish(&self, folder: &StoreFolder) -> Result<StoreSummary> {
        let path = folder.path().join(JOURNAL);
        let earlier = match path.exists() {
            true => Some(journal::resume(folder.path(), &self.fingerprint())?),
            false => None,
        };
        if let Some(manifest) = folder.committing(self.options.threads, self.progress)? {
            let bytes_on_disk = folder.commit(&manifest)?;
            return Ok(StoreSummary::from_manifest(&manifest, bytes_on_disk));
        }
        let (journal, done) = match earlier {
            Some((journal, done)) => (journal, self.sound(folder, done)?),
            None => {
                let journal = Journal::create(&path)?;
                journal.append(&Record::Started(self.fingerprint()))?;
                (journal, BTreeMap::new())
            }
        };
        let done = self.make_chunks(folder, &journal, done)?;
        let mut files: Vec<_> = done.values().flat_map(|chunk| &chunk.files).cloned().collect();
        let splits = self.make_splits(folder, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = self.manifest(done, splits, files);
        let bytes_on_disk = folder.commit(&manifest)?;
        Ok(StoreSummary::from_manifest(&manifest, bytes_on_disk))
    }

    /// The chunks in `done` whose files have the right checksums. The others are generated again.
    fn sound(&self, folder: &StoreFolder, mut done: BTreeMap<u32, ChunkDone>) -> Result<BTreeMap<u32, ChunkDone>> {
        let files = done.values().flat_map(|chunk| &chunk.files).cloned().collect();
        let files = finished::with_kinds(folder.path(), files)?;
        let damaged = finished::to_rewrite(folder.path(), &files, self.options.threads, self.progress)?;
        done.retain(|_, chunk| !chunk.files.iter().any(|file| damaged.contains(&file.path)));
        Ok(done)
    }

    /// Everything that the store depends on. A run can be resumed only with an equal fingerprint.
    fn fingerprint(&self) -> BTreeMap<String, String> {
        let chunks: Vec<_> = self.chosen_chunks.iter().collect();
        let chunks = match chunks.len() == self.nodes.chunks.chunks() as usize {
            true => "all".to_owned(),
            false => chunks.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        };
        let edge_options = self.options.edge_options;
        let flags = edge_options.dedup.then(|| ("--dedup", String::new()));
        let features = self.options.features.iter().flat_map(|features| {
            let source = match features.source {
                FeatureSource::Stored => "stored",
                FeatureSource::Procedural => "procedural",
            };
            [
                ("--feature-dim", features.dim.to_string()),
                ("--feature-dtype", features.dtype.name().to_owned()),
                ("--features", source.to_owned()),
            ]
        });
        let assign = if self.options.random_permutation { "random" } else { "range" };
        let values = [
            ("graph", self.options.recipe.to_json()),
            ("--assign", assign.to_owned()),
            ("--chunks", self.nodes.chunks.chunks().to_string()),
            ("--only-chunks", chunks),
            ("--self-loops", format!("{:?}", edge_options.self_loops).to_lowercase()),
            ("version", self.options.writer.clone()),
        ];
        let all = values.into_iter().chain(flags).chain(features);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn manifest(&self, mut done: BTreeMap<u32, ChunkDone>, splits: Vec<SplitEntry>, files: Vec<FileEntry>) -> Manifest {
        let edges = done.values().map(|chunk| chunk.edges).sum();
        let edges_read = done.values().map(|chunk| chunk.drawn).sum();
        // The edge buckets may take most of the memory, so they are moved, not copied.
        let chunks = (0..self.nodes.chunks.chunks()).map(|chunk| match done.remove(&chunk) {
            Some(done) => ChunkEntry::of_buckets(done.bucket_edges),
            None => ChunkEntry::absent(false),
        });
        let features = self.options.features.as_ref().zip(self.features);
        Manifest {
            sources: match (&self.sources, self.has_edges) {
                (Some(sources), _) => Sources::Type(sources.chunks.starts().to_vec()),
                (None, true) => Sources::Nodes,
                (None, false) => Sources::None,
            },
            writer: self.options.writer.clone(),
            nodes: self.nodes.chunks.nodes(),
            edges,
            chunk_starts: self.nodes.chunks.starts().to_vec(),
            chunks: chunks.collect(),
            ids: IdSpec {
                external: ExternalIds::Dense,
                permutation: match self.options.random_permutation && self.sources.is_none() {
                    true => PermutationSpec::Feistel(self.options.recipe.seed),
                    false => PermutationSpec::Identity,
                },
            },
            features: features.map(|(options, layout)| FeatureSpec {
                dim: layout.dim,
                dtype: layout.dtype,
                row_stride: layout.stride,
                source: options.source.clone(),
            }),
            labels: self.labels,
            splits,
            weighted: false,
            edge_options: self.options.edge_options,
            edges_read,
            rejected: 0,
            generator: self.options.recipe.to_json(),
            files,
        }
    }

    /// Generates the chunks that are not in `done`. Returns all finished chunks.
    fn make_chunks(
        &self,
        folder: &StoreFolder,
        journal: &Journal,
        done: BTreeMap<u32, ChunkDone>,
    ) -> Result<BTreeMap<u32, ChunkDone>> {
        let missing: Vec<_> =
            self.chosen_chunks.iter().copied().filter(|chunk| !done.contains_key(chunk)).map(ChunkId).collect();
        // Without a permutation, the first chunks may have much longer adjacency lists, so the size of a slice is unknown.
        let known = self.options.random_permutation || self.chosen_chunks.len() == self.nodes.chunks.chunks() as usize;
        let nodes: u64 = missing.iter().map(|&chunk| self.nodes.chunks.len(chunk)).sum();
        let edge_bytes = self.generator.expected_edges() * 8.0 / self.nodes.chunks.nodes() as f64;
        let bytes = known.then(|| (nodes as f64 * edge_bytes) as u64 + nodes * self.column_bytes());
        self.progress.stage("generating chunks", bytes);
        let features = self.stored_features().map(|layout| self.generator.features(layout.dim as usize));
        let features = self.stored_features().zip(features.as_ref());
        let done = Mutex::new(done);
        folder.write_chunks(
            self.teams.teams,
            &missing,
            |chunk| self.write_chunk(folder, features, chunk),
            |chunk, mut chunk_done: ChunkDone, files| {
                chunk_done.files = files;
                journal.append(&Record::Chunk(chunk.0, chunk_done.clone()))?;
                done.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk.0, chunk_done);
                Ok(())
            },
        )?;
        Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The layout of feature rows, if they are stored.
    fn stored_features(&self) -> Option<FeatureLayout> {
        self.features.filter(|_| self.options.stored_features().is_some())
    }

    /// Bytes per node of stored features and labels.
    fn column_bytes(&self) -> u64 {
        let features = self.stored_features().map_or(0, |layout| layout.stride);
        let labels = self.labels.map_or(0, |spec| spec.row_bytes());
        u64::from(features) + u64::from(labels)
    }

    /// Writes the splits, one after the other, because each is in memory as a whole. The splits of a slice have only nodes of
    /// its chunks.
    fn make_splits(&self, folder: &StoreFolder, files: &mut Vec<FileEntry>) -> Result<Vec<SplitEntry>> {
        if self.labels.is_none() {
            return Ok(Vec::new());
        }
        self.progress.stage("writing splits", None);
        let chosen_chunks: Vec<_> = self.chosen_chunks.iter().copied().map(ChunkId).collect();
        let mut entries = Vec::new();
        for split in SPLITS {
            let set = Mutex::new(RoaringTreemap::new());
            workers::for_each(self.options.threads, &chosen_chunks, |chunk| {
                let range = self.nodes.chunks.range(chunk);
                let mut labels = LabelBlocks::new(self.nodes.permutation.as_ref(), range.clone());
                let nodes =
                    range.filter(|_| labels.next().is_some_and(|label| self.generator.split(label) == Some(split)));
                let part = RoaringTreemap::from_sorted_iter(nodes).expect("a range ascends");
                *set.lock().unwrap_or_else(PoisonError::into_inner) |= part;
                Ok(())
            })?;
            let set = set.into_inner().unwrap_or_else(PoisonError::into_inner);
            let (entry, file) = folder.write_split(split.name(), self.nodes.chunks.nodes(), &set)?;
            entries.push(entry);
            files.push(file);
        }
        Ok(entries)
    }
}

/// Bytes of memory that are held while chunks are generated, beside adjacency lists and rows.
#[derive(Debug, Clone, Copy)]
struct ReservedMemory {
    /// The directories of the chunks that all teams encode at the same time.
    directories: u64,
    /// The features' mean of each class.
    class_means: u64,
    /// The edge buckets of finished chunks.
    buckets: u64,
}

impl ReservedMemory {
    /// `sources` are the chunks of the sources of edges, if there are edges.
    fn new(
        options: &StoreOptions,
        generator: &Generator,
        chunks: &ChunkMap,
        sources: Option<&ChunkMap>,
        chosen_chunks: &BTreeSet<u32>,
    ) -> Self {
        let largest = chosen_chunks.iter().map(|&chunk| chunks.len(ChunkId(chunk))).max().unwrap_or(0);
        let teams = TeamPlan::teams(options.threads, chosen_chunks.len()) as u64;
        let features = options.stored_features();
        Self {
            directories: sources.map_or(0, |_| teams * AdjacencyWriter::directory_bytes(largest)),
            class_means: features.map_or(0, |features| generator.features_memory(features.dim as usize)),
            buckets: sources.map_or(0, |sources| {
                plan::buckets_memory(EndChunks { destinations: chunks, sources }, chosen_chunks.len() as u64)
            }),
        }
    }

    fn total(self) -> u64 {
        self.directories + self.class_means + self.buckets
    }
}
