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
//! twice more, 16 bytes each time (24 with a weight, more with features), and each id once, 16 bytes. The journal
//! records the progress of the three passes over edges. The keys are few, so an unfinished cut starts again.
//!
//! Long lists of ids, of rows and of splits, are looked up in the same segments before edges are read
//! ([`crate::ingest::id_lists`]).

use grappa_input::EdgeSource;
use grappa_io::Result;

use crate::{
    ids::IdMap,
    ingest::{
        edge_split::KeyParts,
        edge_values::ValueShape,
        edges::{
            blocks::Replace,
            route::{EdgeEnd, Route},
            spill_pass::SpillPass,
            spilled_blocks::SpilledBlocks,
        },
        job::IngestJob,
        journal::{Record, Stage},
        plan::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, IngestBudget, TABLE_OF_IDS},
        segments::{self, JoinPlan},
        spill::SpillFolder,
    },
};

/// Cuts the ids into segments if they do not fit in memory.
///
/// # Errors
/// If this run continues one that has begun to read edges with a table of ids that exceeds this run's memory.
pub fn plan_join(job: &IngestJob<'_>, ids: &mut IdMap) -> Result<Option<JoinPlan>> {
    let memory = TABLE_OF_IDS.bytes(job.budget.memory);
    let before = job.journal.join();
    let table = before.as_ref().map_or(ids.table_memory(), JoinPlan::table_memory);
    let edges_begun = job.journal.has_blocks();
    if edges_begun && table > memory {
        return Err(job.budget.too_small(
            "continuing an ingest that has begun to read edges with a larger --memory".to_owned(),
            TABLE_OF_IDS.budget_of(table),
            "raise --memory, or remove the unfinished store and start again",
        ));
    }
    if table <= memory && (before.is_some() || edges_begun) {
        return Ok(before);
    }
    if before.is_some() {
        job.journal.record(Record::Joining(None))?;
    } else if table <= memory {
        return Ok(None);
    }
    job.progress.stage("cutting ids into segments", None);
    let segments = segments::count(ids, memory);
    let permutation = ids.permutation().clone();
    let Some(dictionary) = ids.dictionary_mut() else {
        return Ok(None);
    };
    let scratch = job.store.lasting_scratch();
    let plan = segments::cut(dictionary, &permutation, segments, scratch, memory)?;
    job.journal.record(Record::Joining(Some(plan.clone())))?;
    Ok(Some(plan))
}

/// Replaces the source keys of all edges by nodes. Returns the edges as blocks that replace the destination keys
/// while they are read.
pub fn map_sources<'p>(
    job: &IngestJob<'_>,
    source: &EdgeSource,
    shape: ValueShape,
    parts: Option<KeyParts>,
    ids: &mut IdMap,
    plan: &'p JoinPlan,
) -> Result<SpilledBlocks<'p>> {
    if let Some(dictionary) = ids.dictionary_mut() {
        dictionary.hash = plan.hash.clone();
    }
    let scratch = job.store.lasting_scratch();
    let record_words = 2 + shape.words();
    let by_source = SpillFolder::new(scratch, "by-source", record_words);
    let by_target = SpillFolder::new(scratch, "by-target", record_words);
    let segments = plan.segments();

    let pass = SpillPass {
        job,
        stage: Stage::BySource,
        title: "reading edges",
        route: Route::Segment { end: EdgeEnd::Source, segments },
        shape,
        spill: &by_source,
        budget: job.budget,
        buffer_bytes: buffer_bytes(&job.budget, segments),
    };
    pass.run_input(source, ids, Replace::Keys, parts)?;

    let spilled = job.journal.stage(Stage::BySource);
    let done = job.journal.stage(Stage::ByTarget).blocks;
    let by_source =
        SpilledBlocks::new(plan, scratch, plan.table()?, by_source.clone(), shape, spilled, EdgeEnd::Source, done);
    let budget = IngestBudget { reserved: plan.table_memory(), ..job.budget };
    let pass = SpillPass {
        stage: Stage::ByTarget,
        title: "mapping sources",
        route: Route::Segment { end: EdgeEnd::Target, segments },
        spill: &by_target,
        budget,
        buffer_bytes: buffer_bytes(&budget, segments),
        ..pass
    };
    pass.run(&by_source)?;
    by_source.remove()?;
    let (table, spilled) = (by_source.into_table(), job.journal.stage(Stage::ByTarget));
    let done = job.journal.stage(Stage::Edges).blocks;
    Ok(SpilledBlocks::new(plan, scratch, table, by_target, shape, spilled, EdgeEnd::Target, done))
}

fn buffer_bytes(budget: &IngestBudget, segments: u32) -> usize {
    budget.buffer_bytes(u64::from(segments)).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize
}
