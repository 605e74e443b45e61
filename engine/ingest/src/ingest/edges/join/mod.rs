//! A join on disk from external ids to nodes, for ids that do not fit in memory.
//!
//! The 64-bit keys of ids ([`crate::ids::keys`]) are cut into *segments*: even ranges of keys, so small that a table of
//! one segment fits in memory.
//!
//! ```text
//!                                                                          output, by segment of
//! keys        each id of the dictionary: (key, node)                       the id's key
//! by source   each edge of the input: (source key, destination key)        the source's key
//! by target   per segment, with its table: source key -> node              the destination's key
//! pass 1      per segment, with its table: destination key -> node         (by shard)
//! ```
//!
//! All files are read and written sequentially. Compared with ids that fit in memory, the join writes and reads each edge
//! twice more, 16 bytes each time (24 with a weight), and each id once, 16 bytes. The journal records the progress of the
//! three passes over edges. The keys are few, so an unfinished cut starts again.
//!
//! Long lists of ids, those of rows and of splits, are looked up in the same segments before edges are read
//! ([`super::super::id_lists`]).

pub(in crate::ingest) mod segments;
mod spilled;

use grappa_io::{Error, Result};

pub use self::{
    segments::{JoinPlan, segment_of},
    spilled::SpilledBlocks,
};
use super::{
    blocks::Replace,
    route::{EdgeEnd, Route},
    spill_pass::SpillPass,
};
use crate::{
    ids::IdMap,
    ingest::{
        Run,
        plan::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, IngestBudget},
        rejects::RejectsFolder,
        spill::SpillFolder,
        state::{Stage, StageState, State},
    },
};

impl Run<'_> {
    /// Cuts the ids into segments if they do not fit in memory.
    ///
    /// # Errors
    /// If this run continues one that has begun to read edges with a table of ids that exceeds this run's memory.
    pub(in crate::ingest) fn plan_join(&self, state: &State, ids: &mut IdMap) -> Result<Option<JoinPlan>> {
        let memory = self.budget.memory / 2;
        let before = state.join();
        let table = before.as_ref().map_or(ids.table_memory(), JoinPlan::table_memory);
        let edges_begun = state.has_blocks();
        if edges_begun && table > memory {
            return Err(Error::Budget {
                what: "continuing an ingest that has begun to read edges with a larger --memory".to_owned(),
                given: self.budget.memory * self.budget.share,
                least: table * 2 * self.budget.share,
                remedy: "raise --memory, or remove the unfinished store and start again",
            });
        }
        if table <= memory && (before.is_some() || edges_begun) {
            return Ok(before);
        }
        if before.is_some() {
            state.not_joining()?;
        } else if table <= memory {
            return Ok(None);
        }
        self.progress.stage("cutting ids into segments", None);
        let segments = segments::count(ids, memory);
        let permutation = ids.permutation().clone();
        let Some(dictionary) = ids.dictionary_mut() else {
            return Ok(None);
        };
        let plan = segments::cut(
            dictionary,
            &permutation,
            segments,
            self.folder.lasting_scratch(),
            memory,
        )?;
        state.joining(plan.clone())?;
        Ok(Some(plan))
    }

    /// Replaces the source keys of all edges by nodes. Returns the edges as blocks that replace the destination keys
    /// while they are read.
    pub(super) fn join<'p>(
        &self,
        state: &State,
        ids: &mut IdMap,
        plan: &'p JoinPlan,
        rejects: &RejectsFolder,
    ) -> Result<SpilledBlocks<'p>> {
        if let Some(dictionary) = ids.dictionary_mut() {
            dictionary.hash = plan.hash.clone();
        }
        let scratch = self.folder.lasting_scratch();
        let record_words = if self.source.weighted() { 3 } else { 2 };
        let by_source = SpillFolder::new(scratch, "by-source", record_words);
        let by_target = SpillFolder::new(scratch, "by-target", record_words);
        let segments = plan.segments();

        let pass = SpillPass {
            stage: Stage::BySource,
            title: "reading edges",
            route: Route::Segment {
                end: EdgeEnd::Source,
                segments,
            },
            spill: &by_source,
            rejects,
            buffer_bytes: buffer_bytes(&self.budget, segments),
            threads: self.budget.threads,
        };
        pass.run_input(&self.source, ids, Replace::Keys, state, self.progress)?;

        let spilled = state.stage(Stage::BySource);
        let done = state.stage(Stage::ByTarget).blocks;
        let by_source = SpilledBlocks::new(plan, scratch, plan.table()?, by_source, spilled, EdgeEnd::Source, done);
        let budget = IngestBudget {
            reserved: plan.table_memory(),
            ..self.budget
        };
        let pass = SpillPass {
            stage: Stage::ByTarget,
            title: "mapping sources",
            route: Route::Segment {
                end: EdgeEnd::Target,
                segments,
            },
            spill: &by_target,
            rejects,
            buffer_bytes: buffer_bytes(&budget, segments),
            threads: self.budget.threads,
        };
        pass.run(&by_source, state, self.progress)?;
        by_source.remove()?;
        let (table, spilled) = (by_source.into_table(), state.stage(Stage::ByTarget));
        Ok(SpilledBlocks::new(
            plan,
            scratch,
            table,
            by_target,
            spilled,
            EdgeEnd::Target,
            state.stage(Stage::Edges).blocks,
        ))
    }

    /// The state of the pass that read the input. It has the counts of edges and rejected lines.
    pub(in crate::ingest) fn input_stage(&self, state: &State) -> StageState {
        state.stage(match state.join() {
            Some(_) => Stage::BySource,
            None => Stage::Edges,
        })
    }

    /// Removes the files of the join that are left after pass 1.
    pub(super) fn end_join(&self, by_target: &SpilledBlocks) -> Result<()> {
        by_target.remove()?;
        by_target.remove_keys()
    }
}

fn buffer_bytes(budget: &IngestBudget, segments: u32) -> usize {
    budget
        .buffer_bytes(u64::from(segments))
        .clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize
}
