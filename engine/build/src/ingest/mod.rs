//! Edge lists in, a store out, within a memory budget.
//!
//! ```text
//! open every input, so that most mistakes are found before anything is written
//! find the number of nodes, or sort the external ids into a dictionary      dense, dictionary, runs
//! order the nodes by the user's parts, if there are any                     order
//! join edges with their ids on disk, if the ids do not fit memory           join
//! pass 1: parse, map ids, append each edge to its shard's spill file        edges, spread, spill
//! pass 2: per chunk, sort its edges and encode its rows                     rows
//! features, labels: spill rows by shard, then write them in node order      columns
//! splits, manifest, rename                                                  store::writer
//! ```
//!
//! Each step notes in the journal what it has finished (`state`), so that a killed run goes on where it was. The
//! store depends on the input and the options alone: not on the memory budget, the number of threads, or where a run
//! was killed.

mod columns;
mod dense;
mod dictionary;
mod edges;
mod external;
mod features;
mod join;
mod labels;
mod nodes;
mod options;
mod permutation;
pub mod plan;
mod rejects;
mod rows;
mod runs;
pub mod spill;
mod splits;
mod spread;
mod state;

use std::collections::BTreeMap;

use grappa_formats::{
    ChunkId, NODES_MAX,
    chunks::ChunkMap,
    manifest::{ExternalIds, Manifest},
};
use grappa_input::EdgeSource;
use grappa_io::{Error, Result, container::WrittenFile, memory::MemoryGate, progress::Progress, sort::bits_for};
use grappa_storage::writer::StoreFolder;

use self::{
    edges::{EdgeKeys, InputBlocks, Replace, Scatter},
    features::FeatureInput,
    join::JoinPlan,
    labels::LabelInput,
    nodes::NodeFiles,
    options::{fingerprint, memory_share, open_edges, rejects_path},
    plan::{Budget, SpillPlan},
    rejects::RejectsFolder,
    rows::Gather,
    spill::SpillFolder,
    spread::{Blocks, Spread},
    state::{ChunkDone, Scan, Stage, StageState, State},
};
pub use self::{
    options::{Assign, IngestOptions, Summary},
    splits::SplitFile,
};
use crate::ids::IdMap;

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
        memory: options.memory / memory_share(options),
        share: memory_share(options),
        threads: options.threads,
        reserved: 0,
    };
    let node_files = NodeFiles::open(options)?;
    let nodes = options
        .nodes
        .or_else(|| node_files.rows().filter(|_| options.ids == ExternalIds::Dense));
    if let Some(nodes) = nodes.filter(|&nodes| nodes > NODES_MAX) {
        return Err(Error::limit(
            format!("the graph has {nodes} nodes"),
            format!("{NODES_MAX} (2^40)"),
            "give a smaller --nodes",
        ));
    }
    let source = open_edges(options, nodes, budget.block_bytes())?;
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
    run.finish(fingerprint, node_files)
        .map_err(|error| folder.failed(begun, error))
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
    fn finish(mut self, fingerprint: BTreeMap<String, String>, node_files: NodeFiles) -> Result<Summary> {
        let folder = self.folder.path();
        let journal = match State::path(folder).exists() {
            true => Some(State::resume(folder, fingerprint.clone())?),
            false => None,
        };
        if let Some(manifest) = self.folder.committing()? {
            let bytes_on_disk = self.folder.commit(&manifest)?;
            return Ok(Summary::of(&manifest, bytes_on_disk, self.options));
        }
        let state = match journal {
            Some(state) => state,
            None => State::create(folder, fingerprint, self.budget.block_bytes())?,
        };
        if state.block_bytes() != self.budget.block_bytes() {
            // The budget is another than when the run began, but the blocks it finished were cut by that one.
            self.source = open_edges(self.options, self.nodes, state.block_bytes())?;
        }
        let scan = self.scan(&state)?;
        let (permutation, spec, chunks) = self.permutation(&state, scan.nodes)?;
        let (mut ids, id_spec) = self.id_map(scan.nodes, permutation, spec)?;
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
        let bytes_on_disk = self.folder.commit(&manifest)?;
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
            None => dense::scan(self.options, self.budget.block_bytes(), self.progress)?,
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
                let (source, replace) = (&self.source, Replace::Nodes);
                spread(&InputBlocks { source, ids, replace })?;
                ids.unload();
            }
        }

        let spilled = state.stage(Stage::Edges);
        // Once chunks are written, an earlier run has checked it.
        if spilled.chunks.is_empty() {
            self.source.check()?;
        }
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
            share: self.budget.share,
            ids,
        };
        let write = |chunk| gather.chunk(chunk, self.progress);
        self.write_chunks(Stage::Edges, state, chunks, write, |chunk| gather.remove_spill(chunk))?;
        Ok(state.stage(Stage::Edges))
    }

    /// Writes the files of those chunks that the journal does not know as finished, on all threads, while others sync
    /// them, note them in the journal, and then do `after`.
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
