//! Generated graphs straight into a store: no spill, no sort over edges, any chunk alone.
//!
//! ```text
//! teams of threads, each: loop
//!     take the next chunk nobody has
//!     its nodes in order -> their labels -> pieces of a few thousand rows
//!     make the pieces in parallel; encode them in order          in_order
//!     features, labels: the same, with rows of values
//!     the chunk's files go to disk while the team goes on; then the journal notes them
//! splits, manifest, rename                                       store::writer
//! ```
//!
//! There are as many teams as threads if there are chunks for them; else threads share a chunk. The store depends on
//! the recipe and the options alone: not on the memory budget, the number of threads, or where a run was killed. It is
//! the store that ingest makes of the recipe's edge list with the same options.
//!
//! Cost per edge and thread, R-MAT with the parameters of Graph500 and edge factor 16: 20 ns at scale 24, 24 to 29 ns at
//! scale 36, of which drawing, ordering and encoding take a third each (AMD EPYC, 5th generation).
//!
//! Memory: what a team has made and not yet encoded is bounded, and a row so large that it does not fit that bound is
//! made when no other such row is. A row must fit the budget: [`generate_store`] says beforehand which budget would do.

mod options;
mod pieces;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    ChunkId, ChunkSpan,
    chunks::ChunkMap,
    container::FileKind,
    features::{FeatureLayout, FeaturesMeta},
    labels::LabelsMeta,
    manifest::{
        ChunkEntry, ExternalIds, FeatureSource, FeatureSpec, FileEntry, IdSpec, LabelKind, LabelSpec, Manifest,
        PermutationSpec, SplitEntry,
    },
    permutation::Feistel,
    splits,
};
use grappa_io::{
    Error, Result,
    container::{ContainerWriter, WrittenFile},
    journal::Journal,
    memory::MemoryGate,
    progress::Progress,
    workers,
};
use grappa_storage::writer::{ChunkRowsWriter, JOURNAL, StoreFolder, not_begun, same_options};
use grappa_synthetic::{Generator, Split};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

pub use self::options::{FeatureOptions, StoreOptions, StoreSummary};
use self::pieces::{Labels, PIECE_EDGES, Piece};
use crate::generate::in_order::{Planned, in_order};

/// Bytes of memory an edge takes at worst while its row is made and encoded: the source, its copy while it is put in
/// order or awaits the choice of a codec, and up to five bytes encoded.
const EDGE_COST: u64 = 8 + 8 + 5;
/// The most edges a team holds that are not encoded yet, but for a row that is larger.
const WINDOW_EDGES_MAX: u64 = 1 << 21;
/// Bytes of a piece of feature rows or labels.
const COLUMN_PIECE_BYTES: u64 = 256 << 10;
/// Bytes of feature rows or labels a team holds for each of its threads, but for a row that is larger.
const COLUMN_WINDOW_BYTES: u64 = 1 << 20;
/// Bytes of memory a node takes for each byte of its bit in a split: the set, its bytes, and these in a file.
const SPLIT_COST: u64 = 3;
/// The splits, in the order of the manifest.
const SPLITS: [Split; 3] = [Split::Train, Split::Val, Split::Test];

/// Makes the store of a recipe.
pub fn generate_store(options: &StoreOptions, progress: &dyn Progress) -> Result<StoreSummary> {
    let run = Run::new(options, progress)?;
    let (folder, begun) = StoreFolder::begin(&options.out, None, options.resume)?;
    run.finish(&folder).map_err(|error| folder.failed(begun, error))
}

/// One line of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    /// The run began with these options: name and value of each that the store depends on.
    Started(BTreeMap<String, String>),
    /// The files of a chunk are on disk.
    Chunk(u32, ChunkDone),
}

/// A finished chunk.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ChunkDone {
    edges: u64,
    drawn: u64,
    bucket_edges: Vec<u64>,
    /// Path in the store, bytes, digest.
    files: Vec<(String, u64, u64)>,
}

struct Run<'a> {
    options: &'a StoreOptions,
    generator: Generator,
    order: Option<Feistel>,
    chunks: ChunkMap,
    wanted: BTreeSet<u32>,
    features: Option<FeatureLayout>,
    labels: Option<LabelSpec>,
    share: Share,
    /// What rows that do not fit a window may use.
    gate: MemoryGate,
    progress: &'a dyn Progress,
}

/// How threads and memory are divided.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// How many chunks are made at a time.
    teams: usize,
    /// Threads that make a chunk together.
    team_threads: usize,
    /// Edges a team may hold that are not encoded, but for a row that is larger.
    window: u64,
    /// Bytes for rows that are larger.
    spare: u64,
}

impl Share {
    fn new(memory: u64, threads: usize, chunks: usize) -> Self {
        let teams = threads.min(chunks).max(1);
        let window = (memory / 4 / teams as u64 / EDGE_COST).clamp(PIECE_EDGES, WINDOW_EDGES_MAX);
        Self {
            teams,
            team_threads: threads.div_ceil(teams),
            window,
            spare: memory.saturating_sub(window * EDGE_COST * teams as u64),
        }
    }

    fn holds_row(&self, edges: u64) -> bool {
        edges <= self.window || edges * EDGE_COST <= self.spare
    }

    /// The least memory with which a row of so many edges can be made, in whole MiB.
    fn memory_for_row(edges: u64, threads: usize, chunks: usize) -> u64 {
        // With so much, three quarters of it are spare.
        let enough = (2 * edges + threads as u64 * WINDOW_EDGES_MAX) * EDGE_COST;
        let (mut low, mut high) = (1, enough.div_ceil(1 << 20));
        while low < high {
            let middle = low.midpoint(high);
            if Self::new(middle << 20, threads, chunks).holds_row(edges) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

impl<'a> Run<'a> {
    fn new(options: &'a StoreOptions, progress: &'a dyn Progress) -> Result<Self> {
        assert!(
            !options.edge_options.undirected,
            "generated graphs are as their model says"
        );
        workers::check_threads(options.threads)?;
        let generator = Generator::new(options.recipe.clone())?;
        let nodes = generator.nodes();
        let chunks = options.chunk_map(&generator)?;
        let wanted = options.wanted(&chunks)?;
        let labels = (generator.classes() > 0).then(|| LabelSpec {
            classes: generator.classes(),
            kind: LabelKind::Single,
        });
        let share = Share::new(options.memory, options.threads, wanted.len());
        let run = Self {
            options,
            order: options.random_order.then(|| Feistel::new(nodes, options.recipe.seed)),
            features: options.features.as_ref().map(|f| FeatureLayout::new(f.dtype, f.dim)),
            generator,
            chunks,
            wanted,
            labels,
            share,
            gate: MemoryGate::new(share.spare),
            progress,
        };
        run.check_memory()?;
        Ok(run)
    }

    /// Fails if the smallest windows, a row, or a split do not fit the budget.
    fn check_memory(&self) -> Result<()> {
        let teams = self.share.teams as u64;
        let mut least = PIECE_EDGES * EDGE_COST * teams;
        if self.features.is_some() || self.labels.is_some() {
            least = least.max(COLUMN_WINDOW_BYTES * self.share.team_threads as u64 * teams);
        }
        if self.options.memory < least {
            return Err(Error::Budget {
                what: "generating chunks".into(),
                given: self.options.memory,
                least,
                remedy: "raise --memory, or use fewer --threads",
            });
        }
        let largest = match self.generator.largest_row_estimate() {
            estimate if self.share.holds_row(estimate) => 0,
            // A whole graph has the rows that the model says.
            estimate if self.wanted.len() == self.chunks.chunks() as usize => estimate,
            _ => self.largest_row()?,
        };
        if !self.share.holds_row(largest) {
            let memory = Share::memory_for_row(largest, self.options.threads, self.wanted.len());
            return Err(Error::Budget {
                what: format!("the adjacency list of a node with up to {largest} in-edges"),
                given: self.options.memory,
                least: memory << 20,
                remedy: "raise --memory",
            });
        }
        if self.labels.is_some() {
            let nodes: u64 = self.wanted.iter().map(|&chunk| self.chunks.len(ChunkId(chunk))).sum();
            let bytes = nodes.div_ceil(8) * SPLIT_COST;
            if bytes > self.options.memory {
                return Err(Error::Budget {
                    what: format!("the splits of {nodes} nodes"),
                    given: self.options.memory,
                    least: bytes,
                    remedy: "raise --memory, or make fewer chunks with --only-chunks",
                });
            }
        }
        Ok(())
    }

    /// The largest in-degree in the chunks that are wanted.
    fn largest_row(&self) -> Result<u64> {
        self.progress.stage("looking for large rows", None);
        let wanted: Vec<_> = self.wanted.iter().copied().map(ChunkId).collect();
        let largest = Mutex::new(0);
        workers::for_each(self.options.threads, &wanted, |chunk| {
            let labels = Labels::new(self.order.as_ref(), self.chunks.range(chunk));
            let mut found = 0;
            for label in labels {
                if self.generator.degree_bound(label) > found.max(self.share.window) {
                    found = found.max(self.generator.degree(label));
                }
            }
            let mut largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
            *largest = found.max(*largest);
            Ok(())
        })?;
        Ok(largest.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn finish(&self, folder: &StoreFolder) -> Result<StoreSummary> {
        let path = folder.path().join(JOURNAL);
        let earlier = match path.exists() {
            true => Some(self.resume(folder, &path)?),
            false => None,
        };
        if let Some(manifest) = folder.committing()? {
            let bytes_on_disk = folder.commit(&manifest)?;
            return Ok(StoreSummary::of(&manifest, bytes_on_disk));
        }
        let (journal, done) = match earlier {
            Some(earlier) => earlier,
            None => {
                let journal = Journal::create(&path)?;
                journal.append(&Record::Started(self.fingerprint()))?;
                (journal, BTreeMap::new())
            }
        };
        let done = self.make_chunks(folder, &journal, done)?;
        let mut files: Vec<_> = done.values().flat_map(|chunk| &chunk.files).map(file_entry).collect();
        let splits = self.make_splits(folder, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = self.manifest(done, splits, files);
        let bytes_on_disk = folder.commit(&manifest)?;
        Ok(StoreSummary::of(&manifest, bytes_on_disk))
    }

    /// Reads the journal of an earlier run: which chunks it has finished.
    fn resume(&self, folder: &StoreFolder, path: &Path) -> Result<(Journal, BTreeMap<u32, ChunkDone>)> {
        let (journal, records) = Journal::resume(path)?;
        let mut records = records.into_iter();
        let Some(Record::Started(before)) = records.next() else {
            return Err(not_begun(path));
        };
        same_options(folder.path(), &before, &self.fingerprint())?;
        let chunk_done = |record| match record {
            Record::Chunk(chunk, done) => Some((chunk, done)),
            Record::Started(_) => None,
        };
        Ok((journal, records.filter_map(chunk_done).collect()))
    }

    /// What the store depends on: a run can be resumed only with the same.
    fn fingerprint(&self) -> BTreeMap<String, String> {
        let chunks: Vec<_> = self.wanted.iter().collect();
        let chunks = match chunks.len() == self.chunks.chunks() as usize {
            true => "all".to_owned(),
            false => format!("{chunks:?}"),
        };
        BTreeMap::from(
            [
                ("graph", self.options.recipe.to_json()),
                (
                    "--assign",
                    if self.options.random_order { "random" } else { "range" }.to_owned(),
                ),
                ("--chunks", self.chunks.chunks().to_string()),
                ("--only-chunks", chunks),
                ("edge options", format!("{:?}", self.options.edge_options)),
                ("features", format!("{:?}", self.options.features)),
                ("version", self.options.writer.clone()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        )
    }

    fn manifest(&self, mut done: BTreeMap<u32, ChunkDone>, splits: Vec<SplitEntry>, files: Vec<FileEntry>) -> Manifest {
        let edges = done.values().map(|chunk| chunk.edges).sum();
        let edges_read = done.values().map(|chunk| chunk.drawn).sum();
        // Edge buckets may be most of the memory there is: they are moved.
        let entry = |chunk: u32| match done.remove(&chunk) {
            Some(done) => ChunkEntry {
                present: true,
                edges: done.edges,
                bucket_edges: done.bucket_edges,
            },
            None => ChunkEntry {
                present: false,
                edges: 0,
                bucket_edges: Vec::new(),
            },
        };
        let feature_spec = |(options, layout): (&FeatureOptions, FeatureLayout)| FeatureSpec {
            dim: layout.dim,
            dtype: layout.dtype,
            row_stride: layout.stride,
            source: options.source.clone(),
        };
        Manifest {
            writer: self.options.writer.clone(),
            nodes: self.chunks.nodes(),
            edges,
            chunk_starts: self.chunks.starts().to_vec(),
            chunks: (0..self.chunks.chunks()).map(entry).collect(),
            ids: IdSpec {
                external: ExternalIds::Dense,
                permutation: match self.options.random_order {
                    true => PermutationSpec::Feistel(self.options.recipe.seed),
                    false => PermutationSpec::Identity,
                },
            },
            features: self.options.features.as_ref().zip(self.features).map(feature_spec),
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

    /// Makes the chunks that are wanted and not `done`, and returns all that are done then.
    fn make_chunks(
        &self,
        folder: &StoreFolder,
        journal: &Journal,
        done: BTreeMap<u32, ChunkDone>,
    ) -> Result<BTreeMap<u32, ChunkDone>> {
        let missing: Vec<_> = self
            .wanted
            .iter()
            .copied()
            .filter(|chunk| !done.contains_key(chunk))
            .map(ChunkId)
            .collect();
        // With labels in order, rows of the first chunks may be much longer: no telling how many edges a slice has.
        let known = self.options.random_order || self.wanted.len() == self.chunks.chunks() as usize;
        let nodes: u64 = missing.iter().map(|&chunk| self.chunks.len(chunk)).sum();
        let edge_bytes = self.generator.expected_edges() * 8.0 / self.chunks.nodes() as f64;
        let bytes = known.then(|| (nodes as f64 * edge_bytes) as u64 + nodes * self.column_bytes());
        self.progress.stage("generating chunks", bytes);
        let done = Mutex::new(done);
        folder.write_chunks(
            self.share.teams,
            &missing,
            |chunk| self.chunk(folder, chunk),
            |chunk, mut chunk_done: ChunkDone, files| {
                chunk_done.files = files
                    .into_iter()
                    .map(|file| (file.path, file.bytes, file.digest))
                    .collect();
                journal.append(&Record::Chunk(chunk.0, chunk_done.clone()))?;
                done.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(chunk.0, chunk_done);
                Ok(())
            },
        )?;
        Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The layout of feature rows that are to be stored.
    fn stored_features(&self) -> Option<FeatureLayout> {
        let is_stored = |options: &FeatureOptions| options.source == FeatureSource::Stored;
        self.features
            .filter(|_| self.options.features.as_ref().is_some_and(is_stored))
    }

    /// Bytes that a node has in features and labels.
    fn column_bytes(&self) -> u64 {
        let features = self.stored_features().map_or(0, |layout| layout.stride);
        let labels = self.labels.map_or(0, |spec| spec.row_bytes());
        u64::from(features) + u64::from(labels)
    }

    /// Writes all files of a chunk. They are complete, but not synced.
    fn chunk(&self, folder: &StoreFolder, chunk: ChunkId) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let (done, mut files) = self.rows(folder, chunk)?;
        let span = ChunkSpan::of(&self.chunks, chunk);
        if let Some(layout) = self.stored_features() {
            let features = self.generator.features(layout.dim as usize);
            let meta = FeaturesMeta { span, layout }.encode();
            let row = |label, values: &mut Vec<f32>, out: &mut Vec<u8>| {
                values.resize(layout.dim as usize, 0.0);
                features.row(label, values);
                let start = out.len();
                out.resize(start + layout.stride as usize, 0);
                layout.encode_row(values, &mut out[start..]);
            };
            let path = folder.chunk(chunk)?.join("features");
            let writer = ContainerWriter::create(&path, FileKind::FEATURES, meta.len())?;
            files.push(self.column(writer, meta, span, layout.stride, row)?);
        }
        if let Some(spec) = self.labels {
            let meta = LabelsMeta { span, spec }.encode();
            let row = |label, (): &mut (), out: &mut Vec<u8>| spec.encode_single(self.generator.class(label), out);
            let path = folder.chunk(chunk)?.join("labels");
            let writer = ContainerWriter::create(&path, FileKind::LABELS, meta.len())?;
            files.push(self.column(writer, meta, span, spec.row_bytes(), row)?);
        }
        Ok((done, files))
    }

    /// Writes the row files of a chunk.
    fn rows(&self, folder: &StoreFolder, chunk: ChunkId) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let mut writer = ChunkRowsWriter::create(folder, &self.chunks, chunk, false)?;
        let mut drawn = 0;
        let pool = Mutex::new(Vec::new());
        let mut labels = Labels::new(self.order.as_ref(), self.chunks.range(chunk));
        let plan = || {
            let mut piece: Piece = pool
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()
                .unwrap_or_default();
            let cost = piece.plan(&mut labels, &self.generator);
            (!piece.labels.is_empty()).then_some(Planned { piece, cost })
        };
        let make = |piece| Ok(self.make(piece));
        in_order(self.share.team_threads, self.share.window, plan, make, |piece| {
            for row in piece.rows.rows().iter() {
                writer.push(row, &[])?;
            }
            drawn += piece.drawn;
            self.progress.advance(piece.drawn * 8, piece.drawn);
            if !piece.is_large {
                pool.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
            }
            Ok(())
        })?;
        let (entry, files) = writer.finish()?;
        let done = ChunkDone {
            edges: entry.edges,
            drawn,
            bucket_edges: entry.bucket_edges,
            files: Vec::new(),
        };
        Ok((done, files))
    }

    /// Makes the rows of a piece.
    fn make<'s>(&'s self, mut piece: Piece<'s>) -> Piece<'s> {
        // Only a row alone is larger than a window, and it is made when all before it are encoded: whoever waits here
        // holds no memory that others wait for.
        piece.is_large = piece.bound > self.share.window;
        if piece.is_large {
            piece.taken = Some(self.gate.take(piece.bound * EDGE_COST));
        }
        self.generator
            .rows_in_order(&piece.labels, self.order.as_ref(), &mut piece.rows);
        piece.drawn = piece.rows.rows().edges() as u64;
        piece.rows.apply(self.options.edge_options, piece.first_node);
        if piece.is_large {
            piece.rows.free_scratch();
        }
        piece
    }

    /// Writes a file of one row of `row_bytes` bytes for each node, which `row` appends given the node's label.
    fn column<S: Default>(
        &self,
        mut writer: ContainerWriter,
        meta: Vec<u8>,
        span: ChunkSpan,
        row_bytes: u32,
        row: impl Fn(u64, &mut S, &mut Vec<u8>) + Sync,
    ) -> Result<WrittenFile> {
        let end = span.first_node.0 + span.rows;
        let piece_rows = (COLUMN_PIECE_BYTES / u64::from(row_bytes)).max(1);
        let mut starts = (span.first_node.0..end).step_by(piece_rows as usize);
        let plan = || {
            let start = starts.next()?;
            let piece = start..end.min(start + piece_rows);
            let cost = (piece.end - piece.start) * u64::from(row_bytes);
            Some(Planned { piece, cost })
        };
        let make = |nodes: Range<u64>| {
            let mut bytes = Vec::with_capacity((nodes.end - nodes.start) as usize * row_bytes as usize);
            let mut state = S::default();
            for label in Labels::new(self.order.as_ref(), nodes) {
                row(label, &mut state, &mut bytes);
            }
            Ok(bytes)
        };
        let window = COLUMN_WINDOW_BYTES * self.share.team_threads as u64;
        in_order(self.share.team_threads, window, plan, make, |bytes: Vec<u8>| {
            self.progress.advance(bytes.len() as u64, 0);
            writer.write(&bytes)
        })?;
        writer.finish(meta)
    }

    /// Writes the splits, one after the other: each is in memory as a whole. Those of a slice hold only nodes of its
    /// chunks.
    fn make_splits(&self, folder: &StoreFolder, files: &mut Vec<FileEntry>) -> Result<Vec<SplitEntry>> {
        if self.labels.is_none() {
            return Ok(Vec::new());
        }
        self.progress.stage("writing splits", None);
        folder.folder("splits")?;
        let wanted: Vec<_> = self.wanted.iter().copied().map(ChunkId).collect();
        let mut entries = Vec::new();
        for split in SPLITS {
            let name = split.name();
            let set = Mutex::new(RoaringTreemap::new());
            workers::for_each(self.options.threads, &wanted, |chunk| {
                let range = self.chunks.range(chunk);
                let mut labels = Labels::new(self.order.as_ref(), range.clone());
                let is_in = |_: &u64| labels.next().is_some_and(|label| self.generator.split(label) == split);
                let part = RoaringTreemap::from_sorted_iter(range.filter(is_in)).expect("a range ascends");
                *set.lock().unwrap_or_else(PoisonError::into_inner) |= part;
                Ok(())
            })?;
            let set = set.into_inner().unwrap_or_else(PoisonError::into_inner);
            let encoded = splits::encode(name, self.chunks.nodes(), &set);
            files.push(folder.write_file(&format!("splits/{name}.roaring"), encoded)?);
            entries.push(SplitEntry {
                name: name.to_owned(),
                nodes: set.len(),
            });
        }
        Ok(entries)
    }
}

fn file_entry((path, bytes, digest): &(String, u64, u64)) -> FileEntry {
    FileEntry {
        path: path.clone(),
        bytes: *bytes,
        digest: *digest,
    }
}
