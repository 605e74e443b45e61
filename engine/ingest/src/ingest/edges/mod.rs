//! Edges, from the input to the adjacency lists of chunks: the two passes of ingest.
//!
//! ```text
//!  EdgeSource                     the user's files, read ahead on threads of their own
//!      | blocks                   InputBlocks: parses a block, maps ids to nodes
//!      v
//!  SpillPass  (pass 1)            Route::Shard: the spill file of each edge's destination
//!      | records                  SpillWriter: a buffer per shard, a file per worker and shard
//!      v
//!  SortPass   (pass 2)            per chunk, per shard: reads, sorts
//!      | adjacency lists          AdjacencyWriter: encodes
//!      v
//!  chunk-<i>/{edges,degrees,weights}
//! ```
//!
//! If ids do not fit in memory, `InputBlocks` maps ids to keys instead, and two more passes come before pass 1 ([`join`]):
//!
//! ```text
//!  InputBlocks -> SpillPass (Route::Segment by source) -> SpilledBlocks
//!              -> SpillPass (Route::Segment by target) -> SpilledBlocks -> pass 1
//! ```
//!
//! Every pass divides its input into blocks. The journal records finished blocks and chunks, so a resumed run skips them.

mod blocks;
pub(super) mod join;
mod parallel;
mod route;
mod sort_pass;
mod spill_pass;

use grappa_formats::chunks::ChunkMap;
use grappa_io::{
    Result,
    memory::{MemoryGate, SpareBuffers},
    sort::bits_for,
};

use self::{
    blocks::Replace,
    join::JoinPlan,
    parallel::ParallelEdges,
    route::{EdgeKeys, Route},
    sort_pass::SortPass,
    spill_pass::SpillPass,
};
use crate::{
    ids::IdMap,
    ingest::{
        Run,
        plan::{IngestBudget, SpillPlan},
        rejects::RejectsFolder,
        spill::SpillFolder,
        state::{Scan, Stage, State},
    },
};

impl Run<'_> {
    /// Runs both passes. Pass 2 has `held` bytes of memory less than the budget.
    pub(super) fn edges(
        &self,
        state: &State,
        scan: Scan,
        chunks: &ChunkMap,
        held: u64,
        ids: &mut IdMap,
        rejects: &RejectsFolder,
    ) -> Result<()> {
        let are_spilled = state.are_edges_spilled();
        let join = match are_spilled {
            true => None,
            false => self.plan_join(state, ids)?,
        };
        let plan = self.plan_edges(state, scan, chunks, ids, join.as_ref())?;
        let keys = EdgeKeys::new(chunks, &plan);
        let spill = SpillFolder::new(self.folder.lasting_scratch(), "edges", self.record_words());

        let pass = SpillPass {
            stage: Stage::Edges,
            title: "reading edges",
            route: Route::Shard {
                keys: &keys,
                options: self.options.edge_options,
            },
            spill: &spill,
            rejects,
            buffer_bytes: plan.buffer_bytes,
            threads: self.options.threads,
        };
        match &join {
            _ if are_spilled => {}
            None => {
                ids.load()?;
                pass.run_input(&self.source, ids, Replace::Nodes, state, self.progress)?;
                ids.unload();
            }
            Some(join) => {
                let edges = self.join(state, ids, join, rejects)?;
                pass.run(&edges, state, self.progress)?;
                self.end_join(&edges)?;
            }
        }
        if !are_spilled {
            self.source.check()?;
            state.edges_spilled()?;
        }

        let spilled = state.stage(Stage::Edges);
        let bytes = spilled.records() * spill.record_words() as u64 * 8;
        self.progress.stage("sorting and writing adjacency lists", Some(bytes));
        let options = self.options.edge_options;
        let parallel = (options.undirected && !options.dedup).then(ParallelEdges::default);
        let gate = MemoryGate::new(self.budget.memory - held);
        let pass = SortPass {
            chunks,
            plan: &plan,
            keys: &keys,
            spilled: &spilled,
            spill: &spill,
            options: self.options.edge_options,
            weighted: self.source.weighted(),
            store: &self.folder,
            ids,
            buffers: SpareBuffers::new(&gate),
            held,
            share: self.budget.share,
            parallel: parallel.as_ref(),
        };
        let write = |chunk| pass.chunk(chunk, self.progress);
        self.write_chunks(Stage::Edges, state, chunks, write, |chunk| pass.remove_spill(chunk))?;
        if parallel.as_ref().is_some_and(ParallelEdges::are_nearly_all) {
            tracing::warn!(
                "--undirected: nearly every edge is in the store twice or more, so the input probably has both directions of \
                 each edge; omit --undirected, or merge parallel edges with --dedup"
            );
        }
        Ok(())
    }

    /// The division of edges into shards: that of the run that began pass 1, or a new one.
    fn plan_edges(
        &self,
        state: &State,
        scan: Scan,
        chunks: &ChunkMap,
        ids: &IdMap,
        join: Option<&JoinPlan>,
    ) -> Result<SpillPlan> {
        let budget = IngestBudget {
            reserved: join.map_or(ids.table_memory(), JoinPlan::table_memory),
            ..self.budget
        };
        match state.stage(Stage::Edges).plan {
            Some(plan) if state.are_edges_spilled() => return Ok(plan),
            Some(plan) => return plan.within(chunks, &budget),
            None => {}
        }
        let directions = if self.options.edge_options.undirected { 2 } else { 1 };
        let plan = SpillPlan::of_edges(
            chunks,
            scan.edges * directions,
            self.record_words() as u64,
            bits_for(chunks.nodes()),
            &budget,
        )?;
        state.planned(Stage::Edges, plan)?;
        Ok(plan)
    }

    /// Words of a record of pass 1: the key and, if the graph is weighted, the weight.
    fn record_words(&self) -> usize {
        if self.source.weighted() { 2 } else { 1 }
    }
}
