//! Edge lists in, a store out, within a memory budget.
//!
//! ```text
//! open every input, so that most mistakes are found before anything is written
//! find the number of nodes, or sort the external ids into a dictionary      ids
//! pass 1: parse, map ids, append each edge to its shard's spill file        edges, spill
//! pass 2: per chunk, sort its edges and encode its rows                     rows
//! features, labels: spill rows by shard, then write them in node order      columns
//! splits, manifest, rename                                                  store::writer
//! ```
//!
//! Each step notes in the journal what it has finished (`state`), so that a killed run goes on where it was. The
//! store depends on the input and the options alone: not on the memory budget, the number of threads, or where a run
//! was killed.

mod columns;
mod dictionary;
mod edges;
mod external;
mod features;
mod join;
mod labels;
pub(crate) mod memory;
pub(crate) mod plan;
mod rejects;
mod rows;
mod runs;
pub mod source;
mod spill;
mod splits;
mod spread;
mod state;
pub(crate) mod workers;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use grappa_formats::{
    ChunkId, ChunkSpan,
    chunks::ChunkMap,
    container::{FileKind, PAGE_BYTES},
    features::FeaturesMeta,
    labels::LabelsMeta,
    manifest::{EdgeOptions, ExternalIds, FeatureDtype, FeatureSpec, FileEntry, LabelSpec, Manifest, SplitEntry},
};

pub use self::splits::SplitFile;
use self::{
    columns::{Column, ColumnFile, ColumnInput},
    edges::{EdgeKeys, InputBlocks, Replace, Scatter},
    features::FeatureInput,
    join::JoinPlan,
    labels::LabelInput,
    memory::MemoryGate,
    plan::{Budget, SpillPlan},
    rejects::RejectsFolder,
    rows::Gather,
    source::{EdgeFormat, EdgeSource, EdgeSourceOptions, IdKind, IdLimit, LabelSource, MatrixSource, OnBadLine},
    spill::SpillFolder,
    spread::{Blocks, Spread},
    state::{ChunkDone, Scan, Stage, StageState, State},
};
use crate::{
    Error, Result,
    ids::IdMap,
    io::container::WrittenFile,
    progress::Progress,
    sort::bits_for,
    store::writer::{Begun, StoreFolder, with_suffix},
};

/// What to ingest, and how.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Files of edges.
    pub edges: Vec<PathBuf>,
    /// The store to make.
    pub out: PathBuf,
    /// How the files are to be read.
    pub format: EdgeFormat,
    /// What external ids are.
    pub ids: ExternalIds,
    /// The number of nodes, if known: then the input is not scanned for it.
    pub nodes: Option<u64>,
    /// What to do to edges.
    pub edge_options: EdgeOptions,
    /// A `.npy` of one weight per edge.
    pub weights: Option<PathBuf>,
    /// A matrix of one row per node.
    pub features: Option<PathBuf>,
    /// How features are stored; by default as precisely as the file has them, up to f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// Let features be NaN or infinite.
    pub allow_nan: bool,
    /// One label, or one set of labels, per node.
    pub labels: Option<PathBuf>,
    /// Files of the ids in a split.
    pub splits: Vec<SplitFile>,
    /// The number of chunks, if the user chose one.
    pub chunks: Option<u32>,
    /// How nodes are put in order.
    pub assign: Assign,
    /// Selects the random order.
    pub seed: u64,
    /// Bytes of memory to use.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// What to do with bad lines.
    pub on_bad_line: OnBadLine,
    /// Go on with a run that was killed.
    pub resume: bool,
    /// Where scratch files go; by default beside the store.
    pub tmp: Option<PathBuf>,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

/// How nodes are put in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assign {
    /// At random, so that every chunk is a random sample.
    Random,
    /// By external id, so that ids that are close stay close.
    Range,
}

/// What an ingest did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges in the store.
    pub edges: u64,
    /// Number of edges in the input.
    pub edges_read: u64,
    /// Number of bad lines that were skipped.
    pub rejected: u64,
    /// Where they were written, if there are any.
    pub rejects: Option<PathBuf>,
    /// Number of chunks.
    pub chunks: u32,
    /// Length of all files of the store in bytes.
    pub bytes_on_disk: u64,
}

impl Summary {
    fn of(manifest: &Manifest, bytes_on_disk: u64, options: &IngestOptions) -> Self {
        Self {
            nodes: manifest.nodes,
            edges: manifest.edges,
            edges_read: manifest.edges_read,
            rejected: manifest.rejected,
            rejects: (manifest.rejected > 0).then(|| rejects_path(options)),
            chunks: manifest.chunks.len() as u32,
            bytes_on_disk,
        }
    }
}

/// Where skipped lines are written: beside the store.
fn rejects_path(options: &IngestOptions) -> PathBuf {
    with_suffix(&options.out, ".rejects")
}

/// Files of a chunk that are complete but not synced, and what the journal is to say of them.
struct ChunkFiles {
    done: ChunkDone,
    files: Vec<WrittenFile>,
}

/// Bytes of text that an edge takes at least, but for small ids: what the number of edges is judged by.
const TEXT_EDGE_BYTES: u64 = 8;

/// Makes a store of edge lists.
pub fn ingest(options: &IngestOptions, progress: &dyn Progress) -> Result<Summary> {
    let budget = Budget {
        memory: options.memory,
        threads: options.threads,
        reserved: 0,
    };
    let node_files = NodeFiles::open(options)?;
    let nodes = options
        .nodes
        .or_else(|| node_files.rows().filter(|_| options.ids == ExternalIds::Dense));
    let source = open_edges(options, nodes, &budget)?;
    let fingerprint = fingerprint(options)?;
    let (folder, begun) = StoreFolder::begin(&options.out, options.tmp.as_deref(), options.resume)?;
    let run = Run {
        options,
        budget,
        source,
        nodes,
        folder: folder.clone(),
        progress,
    };
    run.finish(begun, fingerprint, node_files)
        .map_err(|error| folder.failed(begun, error))
}

/// The files with a row per node, open.
struct NodeFiles {
    features: Option<MatrixSource>,
    labels: Option<LabelSource>,
}

impl NodeFiles {
    fn open(options: &IngestOptions) -> Result<Self> {
        Ok(Self {
            features: options.features.as_deref().map(MatrixSource::open).transpose()?,
            labels: options.labels.as_deref().map(LabelSource::open).transpose()?,
        })
    }

    /// The number of rows, which is that of nodes, if it is known before they are read.
    fn rows(&self) -> Option<u64> {
        let features = self.features.as_ref().and_then(MatrixSource::rows);
        features.or_else(|| self.labels.as_ref().and_then(LabelSource::rows))
    }
}

struct Run<'a> {
    options: &'a IngestOptions,
    budget: Budget,
    source: EdgeSource,
    /// The number of nodes, if it is known without reading the edges.
    nodes: Option<u64>,
    folder: StoreFolder,
    progress: &'a dyn Progress,
}

impl Run<'_> {
    fn finish(self, begun: Begun, fingerprint: BTreeMap<String, String>, node_files: NodeFiles) -> Result<Summary> {
        let folder = self.folder.path();
        let state = match begun {
            Begun::Resumed if State::path(folder).exists() => State::resume(folder, fingerprint)?,
            // The journal goes when all but the rename is done.
            Begun::Resumed if folder.join("manifest").exists() => {
                let manifest = Manifest::decode(&fs::read(folder.join("manifest")).map_err(Error::io("read", folder))?)
                    .map_err(Error::format(folder))?;
                let bytes_on_disk = self.folder.commit(&manifest, &State::path(folder))?;
                return Ok(Summary::of(&manifest, bytes_on_disk, self.options));
            }
            _ => State::create(folder, fingerprint)?,
        };
        let scan = self.scan(&state)?;
        let (mut ids, id_spec) = self.id_map(scan.nodes)?;
        let chunks = plan::chunk_map(scan.nodes, self.options.chunks)?;
        plan::check_buckets(&chunks, u64::from(chunks.chunks()))?;

        let rejects = RejectsFolder::new(self.folder.lasting_scratch());
        // Before the edges, because these fail sooner.
        if !self.options.splits.is_empty() && ids.table_memory() <= self.budget.memory / 2 {
            ids.load()?;
        }
        let (splits, split_files) = self.splits(&ids, scan.nodes)?;
        ids.unload();
        let labels = match node_files.labels {
            Some(source) => Some(self.labels(&state, &chunks, &ids, LabelInput::new(source, scan.nodes)?)?),
            None => None,
        };
        let features = match node_files.features {
            Some(matrix) => {
                let (dtype, allow_nan) = (self.options.feature_dtype, self.options.allow_nan);
                let input = FeatureInput::new(matrix, dtype, scan.nodes, allow_nan)?;
                Some(self.features(&state, &chunks, &ids, input)?)
            }
            None => None,
        };
        let edges = self.edges(&state, scan, &chunks, &mut ids, &rejects)?;
        let input = self.input_stage(&state);
        let mut files = [state.files(), split_files].concat();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest {
            writer: self.options.writer.clone(),
            nodes: scan.nodes,
            edges: edges.chunks.values().map(|chunk| chunk.edges).sum(),
            chunk_starts: chunks.starts().to_vec(),
            chunks: edges.chunks.values().map(ChunkDone::entry).collect(),
            ids: id_spec,
            features,
            labels,
            splits,
            weighted: self.source.weighted(),
            edge_options: self.options.edge_options,
            edges_read: input.counts().read,
            rejected: input.counts().rejected,
            generator: String::new(),
            files,
        };
        if manifest.rejected > 0 {
            rejects.collect(&input, &rejects_path(self.options))?;
        }
        let bytes_on_disk = self.folder.commit(&manifest, &State::path(folder))?;
        Ok(Summary::of(&manifest, bytes_on_disk, self.options))
    }

    /// The number of nodes and, as far as known, of edges.
    fn scan(&self, state: &State) -> Result<Scan> {
        if let Some(scan) = state.scan() {
            return Ok(scan);
        }
        if self.options.ids != ExternalIds::Dense {
            return self.scan_dictionary(state);
        }
        let scan = match self.nodes {
            Some(nodes) => Scan {
                nodes,
                edges: self
                    .source
                    .edges_hint()
                    .unwrap_or(self.source.total_bytes() / TEXT_EDGE_BYTES),
            },
            None => {
                self.progress.stage("scanning ids", Some(self.source.total_bytes()));
                edges::scan(
                    &open_edges(self.options, None, &self.budget)?,
                    self.options.threads,
                    self.progress,
                )?
            }
        };
        state.scanned(scan)?;
        Ok(scan)
    }

    /// Pass 1 and 2. Returns what was done.
    fn edges(
        &self,
        state: &State,
        scan: Scan,
        chunks: &ChunkMap,
        ids: &mut IdMap,
        rejects: &RejectsFolder,
    ) -> Result<StageState> {
        let record_words = if self.source.weighted() { 2 } else { 1 };
        let join = self.plan_join(state, ids)?;
        let plan = match state.stage(Stage::Edges).plan {
            Some(plan) => plan,
            None => {
                let directions = if self.options.edge_options.undirected { 2 } else { 1 };
                let bits = bits_for(chunks.nodes());
                let budget = Budget {
                    reserved: join.as_ref().map_or(ids.table_memory(), JoinPlan::table_memory),
                    ..self.budget
                };
                let plan = SpillPlan::of_edges(chunks, scan.edges * directions, record_words, bits, &budget)?;
                state.planned(Stage::Edges, plan)?;
                plan
            }
        };
        let keys = EdgeKeys::new(chunks, &plan);
        let spill = SpillFolder::new(self.folder.lasting_scratch(), "edges", record_words as usize);

        let scatter = Scatter {
            order: &ids.order().clone(),
            options: self.options.edge_options,
            keys: &keys,
        };
        let spread = |blocks: &dyn Blocks| {
            self.progress.stage("reading edges", Some(blocks.total_bytes()));
            let spread = Spread {
                stage: Stage::Edges,
                blocks,
                push: &|batch, writer| scatter.push(batch, writer),
                spill: &spill,
                shards: keys.shards.chunks(),
                rejects,
                buffer_bytes: plan.buffer_bytes,
                threads: self.options.threads,
            };
            spread.run(state, self.progress)
        };
        match &join {
            Some(join) => {
                let edges = self.join(state, ids, join, rejects)?;
                spread(&edges)?;
                self.end_join(&edges)?;
            }
            None => {
                ids.load()?;
                let (source, replace) = (&self.source, Replace::Ranks);
                spread(&InputBlocks { source, ids, replace })?;
                ids.unload();
            }
        }

        let spilled = state.stage(Stage::Edges);
        self.progress
            .stage("sorting and writing rows", Some(spilled.records() * record_words * 8));
        let gather = Gather {
            chunks,
            plan: &plan,
            keys: &keys,
            spilled: &spilled,
            spill: &spill,
            options: self.options.edge_options,
            weighted: self.source.weighted(),
            store: &self.folder,
            gate: &MemoryGate::new(self.budget.memory),
        };
        let write = |chunk| gather.chunk(chunk, self.progress);
        self.write_chunks(Stage::Edges, state, chunks, write, |chunk| gather.remove_spill(chunk))?;
        Ok(state.stage(Stage::Edges))
    }

    fn features(&self, state: &State, chunks: &ChunkMap, ids: &IdMap, input: FeatureInput) -> Result<FeatureSpec> {
        let layout = input.layout();
        let span = chunks.clone();
        let meta = move |chunk| {
            FeaturesMeta {
                span: ChunkSpan::of(&span, chunk),
                layout,
            }
            .encode()
        };
        let file = ColumnFile {
            name: "features",
            kind: FileKind::FEATURES,
            align: PAGE_BYTES,
            meta: Box::new(meta),
        };
        self.column(Stage::Features, state, chunks, ids, &input, file)?;
        Ok(input.spec())
    }

    fn labels(&self, state: &State, chunks: &ChunkMap, ids: &IdMap, input: LabelInput) -> Result<LabelSpec> {
        let spec = input.spec();
        let span = chunks.clone();
        let meta = move |chunk| {
            LabelsMeta {
                span: ChunkSpan::of(&span, chunk),
                spec,
            }
            .encode()
        };
        let file = ColumnFile {
            name: "labels",
            kind: FileKind::LABELS,
            align: 64,
            meta: Box::new(meta),
        };
        self.column(Stage::Labels, state, chunks, ids, &input, file)?;
        Ok(spec)
    }

    fn column(
        &self,
        stage: Stage,
        state: &State,
        chunks: &ChunkMap,
        ids: &IdMap,
        input: &dyn ColumnInput,
        file: ColumnFile,
    ) -> Result<()> {
        let bytes = input.rows() * input.row_bytes() as u64;
        let name = file.name;
        let column = Column {
            stage,
            input,
            file,
            chunks,
            order: ids.order(),
            store: &self.folder,
            budget: self.budget,
        };
        let plan = column.plan(state)?;
        self.progress.stage(&format!("reading {name}"), Some(bytes));
        column.scatter(&plan, state, self.progress)?;
        let (spilled, gate) = (state.stage(stage), MemoryGate::new(self.budget.memory));
        self.progress.stage(&format!("writing {name}"), Some(bytes));
        let write = |chunk| column.gather(chunk, &plan, &spilled, &gate, self.progress);
        self.write_chunks(stage, state, chunks, write, |chunk| {
            column.remove_spill(chunk, &plan, &spilled)
        })
    }

    fn splits(&self, ids: &IdMap, nodes: u64) -> Result<(Vec<SplitEntry>, Vec<FileEntry>)> {
        let options = self.options;
        if options.splits.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut sets = Vec::new();
        for split in &options.splits {
            let limit = id_limit(options.ids, Some(nodes));
            sets.push((
                split.clone(),
                splits::read(&split.path, id_kind(options.ids), limit, ids)?,
            ));
        }
        splits::check_disjoint(&sets, |node| ids.external(node))?;
        self.folder.folder("splits")?;
        let (mut entries, mut files) = (Vec::new(), Vec::new());
        for (split, set) in &sets {
            let path = format!("splits/{}.roaring", split.name);
            files.push(
                self.folder
                    .write_file(&path, grappa_formats::splits::encode(split.name, nodes, set))?,
            );
            entries.push(SplitEntry {
                name: split.name.to_owned(),
                nodes: set.len(),
            });
        }
        Ok((entries, files))
    }

    /// Writes the files of those chunks that the journal does not know as finished, on all threads, while one more
    /// thread syncs them, notes them in the journal, and then does `after`.
    fn write_chunks(
        &self,
        stage: Stage,
        state: &State,
        chunks: &ChunkMap,
        write: impl Fn(ChunkId) -> Result<ChunkFiles> + Sync,
        after: impl Fn(ChunkId) -> Result<()> + Sync,
    ) -> Result<()> {
        let before = state.stage(stage).chunks;
        let missing: Vec<_> = (0..chunks.chunks())
            .filter(|chunk| !before.contains_key(chunk))
            .map(ChunkId)
            .collect();
        self.folder.write_chunks(
            self.options.threads,
            &missing,
            |chunk| write(chunk).map(|ChunkFiles { done, files }| (done, files)),
            |chunk, mut done, files| {
                done.files = files
                    .into_iter()
                    .map(|file| (file.path, file.bytes, file.digest))
                    .collect();
                state.chunk_done(stage, chunk, done)?;
                after(chunk)
            },
        )
    }
}

/// Opens the files of edges.
fn open_edges(options: &IngestOptions, nodes: Option<u64>, budget: &Budget) -> Result<EdgeSource> {
    let source_options = EdgeSourceOptions {
        format: options.format,
        ids: id_kind(options.ids),
        id_limit: id_limit(options.ids, nodes),
        weights: options.weights.clone(),
        on_bad_line: options.on_bad_line,
        // Strings take up to twice the memory of integers once they are parsed.
        block_bytes: match options.ids {
            ExternalIds::String => budget.block_bytes() / 2,
            ExternalIds::Dense | ExternalIds::Sparse => budget.block_bytes(),
        },
    };
    EdgeSource::open(&options.edges, source_options)
}

fn id_kind(ids: ExternalIds) -> IdKind {
    match ids {
        ExternalIds::Dense | ExternalIds::Sparse => IdKind::Integer,
        ExternalIds::String => IdKind::String,
    }
}

fn id_limit(ids: ExternalIds, nodes: Option<u64>) -> IdLimit {
    match (ids, nodes) {
        (ExternalIds::Dense, Some(nodes)) => IdLimit::Nodes(nodes),
        (ExternalIds::Dense, None) => IdLimit::Dense,
        _ => IdLimit::Sparse,
    }
}

/// What the store depends on: a run can be resumed only with the same.
fn fingerprint(options: &IngestOptions) -> Result<BTreeMap<String, String>> {
    let mut fingerprint = BTreeMap::new();
    let mut add = |name: &str, value: String| fingerprint.insert(name.to_owned(), value);
    let splits = options.splits.iter().map(|split| &split.path);
    let rows = options.weights.iter().chain(&options.features).chain(&options.labels);
    for path in options.edges.iter().chain(rows).chain(splits) {
        add(&format!("input {}", path.display()), version_of(path)?);
    }
    add("--format", format!("{:?}", options.format));
    add("--ids", format!("{:?}", options.ids));
    add("--nodes", format!("{:?}", options.nodes));
    add("--feature-dtype", format!("{:?}", options.feature_dtype));
    add("--allow-nan", options.allow_nan.to_string());
    add("edge options", format!("{:?}", options.edge_options));
    add("--chunks", format!("{:?}", options.chunks));
    add("--assign", format!("{:?}", options.assign));
    add("--seed", options.seed.to_string());
    add("--on-bad-line", format!("{:?}", options.on_bad_line));
    add("--tmp", format!("{:?}", options.tmp));
    add("version", options.writer.clone());
    Ok(fingerprint)
}

/// Length and modification time of a file: enough to notice that it is not the one of the earlier run.
fn version_of(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(format!(
        "{} bytes of {}",
        metadata.len(),
        modified.map_or(0, |time| time.as_nanos())
    ))
}
