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
//! The ends of a relation between types have a dictionary each. If one of them fits in memory, it is mapped while the input is read, and
//! only the other one is joined.
//!
//! Long lists of ids, of rows and of splits, are looked up in the same segments before edges are read
//! ([`crate::ingest::id_lists`]).

use grappa_input::EdgeEnd;
use grappa_io::Result;

use crate::ingest::{
    edge_split::KeyParts,
    edge_values::ValueShape,
    edges::{
        blocks::Replace,
        ends::EdgeEnds,
        input_edges::InputEdges,
        route::Route,
        spill_pass::SpillPass,
        spilled_blocks::{SpilledBlocks, UnknownIds},
    },
    job::IngestJob,
    journal::Record,
    plan::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, IngestBudget, TABLE_OF_IDS},
    segments::{self, JoinPlan, JoinPlans, KeyFiles},
    spill::SpillFolder,
    stage::Stage,
};

/// Cuts the ids at both ends into segments, as far as they do not fit in memory together.
///
/// # Errors
/// If this run continues one that has begun to read edges with a table of ids that exceeds this run's memory.
pub fn plan_join(job: &IngestJob<'_>, ends: &mut EdgeEnds<'_>) -> Result<Option<JoinPlans>> {
    let memory = TABLE_OF_IDS.bytes(job.budget.memory);
    let before = job.journal.join();
    let table = match &before {
        None => ends.table_memory(),
        Some(plans) => plans.table_memory().max(loaded_memory(ends, plans)),
    };
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
    let mut plans = JoinPlans::default();
    if ends.have_one_type() {
        let plan = cut(job, ends, EdgeEnd::Target, KeyFiles::Nodes, memory)?;
        (plans.source, plans.target) = (plan.clone(), plan);
    } else {
        let [sources, targets] = [EdgeEnd::Source, EdgeEnd::Target].map(|end| ends.map(end).table_memory());
        // The smaller table may be in memory while the input is read.
        let (source_fits, target_fits) =
            (sources <= memory && sources <= targets, targets <= memory && targets < sources);
        if !source_fits {
            plans.source = cut(job, ends, EdgeEnd::Source, KeyFiles::Sources, memory)?;
        }
        if !target_fits {
            plans.target = cut(job, ends, EdgeEnd::Target, KeyFiles::Targets, memory)?;
        }
    }
    if plans.all().next().is_none() {
        return Ok(None);
    }
    job.journal.record(Record::Joining(Some(plans.clone())))?;
    Ok(Some(plans))
}

/// Bytes of memory of the tables that the first pass has.
fn loaded_memory(ends: &EdgeEnds<'_>, plans: &JoinPlans) -> u64 {
    let loaded = [EdgeEnd::Source, EdgeEnd::Target].into_iter().filter(|&end| plans.plan(end).is_none());
    loaded.map(|end| ends.map(end).table_memory()).sum()
}

/// Cuts the ids of an end. None if they are dense.
fn cut(
    job: &IngestJob<'_>,
    ends: &mut EdgeEnds<'_>,
    end: EdgeEnd,
    keys: KeyFiles,
    memory: u64,
) -> Result<Option<JoinPlan>> {
    let segments = segments::count(ends.map(end), memory);
    let permutation = ends.map(end).permutation().clone();
    let Some(dictionary) = ends.dictionary_mut(end) else {
        return Ok(None);
    };
    let scratch = job.store.lasting_scratch();
    segments::cut(dictionary, &permutation, segments, keys, scratch, memory).map(Some)
}

/// Reads the input. Replaces the ids of one end of all edges by nodes. The returned blocks replace the ids of the other end while they
/// are read.
pub fn map_ends<'p>(
    job: &IngestJob<'_>,
    input: &InputEdges<'_>,
    shape: ValueShape,
    parts: Option<KeyParts>,
    ends: &mut EdgeEnds<'_>,
    plans: &'p JoinPlans,
) -> Result<SpilledBlocks<'p>> {
    for end in [EdgeEnd::Source, EdgeEnd::Target] {
        if let (Some(dictionary), Some(plan)) = (ends.dictionary_mut(end), plans.plan(end)) {
            dictionary.hash = plan.hash.clone();
        }
    }
    let scratch = job.store.lasting_scratch();
    let record_words = 2 + shape.words();
    let by_source = SpillFolder::new(scratch, "by-source", record_words);
    let by_target = SpillFolder::new(scratch, "by-target", record_words);
    let (end, plan, spill) = match (&plans.source, &plans.target) {
        (Some(plan), _) => (EdgeEnd::Source, plan, &by_source),
        (None, plan) => (EdgeEnd::Target, plan.as_ref().expect("an end is joined"), &by_target),
    };
    let reserved = loaded_memory(ends, plans);
    let budget = IngestBudget { reserved, ..job.budget };
    let pass = SpillPass {
        job,
        stage: plans.first_stage(),
        title: "reading edges",
        route: Route::Segment { end, segments: plan.segments() },
        shape,
        spill,
        is_of_types: !ends.have_one_type() || ends.ids(EdgeEnd::Target).are_listed,
        budget,
        buffer_bytes: buffer_bytes(&budget, plan.segments()),
    };
    ends.load(|end| plans.plan(end).is_none())?;
    let replace = [EdgeEnd::Source, EdgeEnd::Target].map(|end| match plans.plan(end) {
        Some(_) => Replace::Keys,
        None => Replace::Nodes,
    });
    pass.run_input(input.source, ends, replace, input.is_reversed, parts)?;
    ends.unload();
    let (Some(sources), Some(targets)) = (&plans.source, &plans.target) else {
        let (spilled, done) = (job.journal.stage(plans.first_stage()), job.journal.stage(Stage::Edges).blocks);
        let unknown = UnknownIds::new(input, ends, end);
        let table = plan.table()?;
        return Ok(SpilledBlocks::new(plan, scratch, table, spill.clone(), shape, spilled, end, unknown, done));
    };

    let (spilled, done) = (job.journal.stage(Stage::BySource), job.journal.stage(Stage::ByTarget).blocks);
    let (end, unknown) = (EdgeEnd::Source, UnknownIds::new(input, ends, EdgeEnd::Source));
    let table = sources.table()?;
    let by_source = SpilledBlocks::new(sources, scratch, table, by_source.clone(), shape, spilled, end, unknown, done);
    let budget = IngestBudget { reserved: sources.table_memory(), ..job.budget };
    let pass = SpillPass {
        stage: Stage::ByTarget,
        title: "mapping sources",
        route: Route::Segment { end: EdgeEnd::Target, segments: targets.segments() },
        spill: &by_target,
        budget,
        buffer_bytes: buffer_bytes(&budget, targets.segments()),
        ..pass
    };
    by_source.check_known(|| input.reader.open(job.budget.block_bytes), pass.run(&by_source))?;
    by_source.remove()?;
    let table = by_source.into_table();
    let table = if ends.have_one_type() {
        table
    } else {
        drop(table);
        targets.table()?
    };
    let (spilled, done) = (job.journal.stage(Stage::ByTarget), job.journal.stage(Stage::Edges).blocks);
    let (end, unknown) = (EdgeEnd::Target, UnknownIds::new(input, ends, EdgeEnd::Target));
    Ok(SpilledBlocks::new(targets, scratch, table, by_target, shape, spilled, end, unknown, done))
}

fn buffer_bytes(budget: &IngestBudget, segments: u32) -> usize {
    budget.buffer_bytes(u64::from(segments)).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize
}
