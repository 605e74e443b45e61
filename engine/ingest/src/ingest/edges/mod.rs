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
//!  chunk-<i>/{edges,degrees,weights,edge-features,times,time-degrees}
//! ```
//!
//! If ids do not fit in memory, `InputBlocks` maps ids to keys instead, and two more passes come before pass 1 ([`join`]):
//!
//! ```text
//!  InputBlocks -> SpillPass (Route::Segment by source) -> SpilledBlocks
//!              -> SpillPass (Route::Segment by target) -> SpilledBlocks -> pass 1
//! ```
//!
//! If edges have times, their axis is found between both passes ([`times`]).
//!
//! Every pass divides its input into blocks. The journal records finished blocks and chunks, so a resumed run skips them.

mod blocks;
pub mod ends;
pub mod input_edges;
pub mod join;
mod order;
mod parallel;
mod parts;
mod route;
mod sort_pass;
mod spill_pass;
mod spilled_blocks;
mod times;

use std::sync::atomic::AtomicBool;

use grappa_formats::chunks::ChunkMap;
use grappa_input::EdgeEnd;
use grappa_io::{
    Result,
    ledger::Lease,
    memory::{MemoryGate, SpareBuffers},
};

use self::{
    blocks::Replace,
    ends::EdgeEnds,
    input_edges::InputEdges,
    join::plan_join,
    parallel::ParallelEdges,
    route::{EdgeKeys, Route},
    sort_pass::SortPass,
    spill_pass::SpillPass,
    times::{SpilledTimes, find_axis},
};
use crate::ingest::{
    edge_ingest::EdgeReader,
    edge_split::{EdgeSplit, KeyParts},
    edge_values::ValueShape,
    job::IngestJob,
    journal::Record,
    plan::{IngestBudget, SpillPlan},
    spill::SpillFolder,
    stage::Stage,
};

/// The name of pass 2.
const SORTING: &str = "sorting and writing adjacency lists";

/// Runs both passes. Pass 2 has `directory_bytes` bytes of memory less than the budget.
pub fn write(job: &IngestJob<'_>, input: &InputEdges<'_>, ends: &mut EdgeEnds<'_>, directory_bytes: u64) -> Result<()> {
    let InputEdges { source, values, is_reversed, .. } = *input;
    let edge_options = job.edges.options;
    // The key and the values.
    let record_words = 1 + values.shape.words() as u64;
    let are_spilled = job.journal.are_edges_spilled();
    let join = match are_spilled {
        true => None,
        false => plan_join(job, ends)?,
    };
    let parts = key_parts(job, &input.reader, are_spilled)?;
    let source_bits = EdgeKeys::source_bits(ends.chunks(), parts);
    let cost = values.shape.sort_cost();
    let reserved = join.as_ref().map_or(ends.table_memory(), |join| join.table_memory_of(join.last_end()));
    let budget = IngestBudget { reserved, ..job.budget };
    let plan = plan_edges(job, input.edges, ends.chunks().destinations, cost, source_bits, &budget)?;
    let keys = EdgeKeys::new(ends.chunks(), &plan, parts);
    let spill = SpillFolder::new(job.store.lasting_scratch(), "edges", record_words as usize);

    let pass = SpillPass {
        job,
        stage: Stage::Edges,
        title: "reading edges",
        route: Route::Shard { keys: &keys, options: edge_options },
        shape: values.shape,
        spill: &spill,
        is_of_types: !ends.have_one_type() || ends.ids(EdgeEnd::Target).are_listed,
        budget,
        buffer_bytes: plan.buffer_bytes,
    };
    match &join {
        _ if are_spilled => {}
        None => {
            ends.load(|_| true)?;
            pass.run_input(source, ends, [Replace::Nodes; 2], is_reversed, parts)?;
            ends.unload();
        }
        Some(join) => {
            // Places say from which file an edge comes.
            let shape = ValueShape {
                is_ordered: values.shape.is_ordered || KeyParts::is_of_files(parts),
                is_timed: values.shape.is_timed,
                width: values.shape.width + KeyParts::extra_values(parts),
            };
            let edges = join::map_ends(job, input, shape, parts, ends, join)?;
            edges.check_known(|| input.reader.open(job.budget.block_bytes), pass.run(&edges))?;
            edges.remove()?;
            join.remove_keys(job.store.lasting_scratch())?;
        }
    }
    if !are_spilled {
        source.check()?;
        source.loss_warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        job.journal.record(Record::EdgesSpilled)?;
    }

    let spilled = job.journal.stage(Stage::Edges);
    let axis = values.time_unit.map(|unit| {
        let shards = keys.shards.chunks();
        find_axis(job, unit, &SpilledTimes { spill: &spill, spilled: &spilled, shards, shape: values.shape })
    });
    let axis = axis.transpose()?;
    let bytes = spilled.records() * record_words * 8;
    job.enter(SORTING, sort_leases(&job.budget, directory_bytes))?;
    job.progress.stage(SORTING, Some(bytes));
    // Lists in the order of time have parallel edges at other places than next to each other.
    let counts_parallel = edge_options.undirected && !edge_options.dedup && axis.is_none();
    let parallel = counts_parallel.then(ParallelEdges::default);
    let gate = MemoryGate::new(job.budget.memory - directory_bytes);
    let pass = SortPass {
        job,
        plan: &plan,
        keys: &keys,
        spilled: &spilled,
        spill: &spill,
        values,
        ends,
        buffers: SpareBuffers::new(&gate),
        directory_bytes,
        parallel: parallel.as_ref(),
        has_dropped: AtomicBool::new(false),
        axis: axis.as_ref(),
    };
    job.write_chunks(
        Stage::Edges,
        ends.chunks().destinations,
        |chunk| pass.chunk(chunk),
        |chunk| pass.remove_spill(chunk),
    )?;
    if pass.has_dropped.into_inner() {
        tracing::warn!("some edges of the graph are also held out for val or test: the graph does not have them");
    }
    if parallel.as_ref().is_some_and(ParallelEdges::are_nearly_all) {
        tracing::warn!(
            "--undirected: nearly every edge is in the store twice or more, so the input probably has both directions of \
             each edge; omit --undirected, or merge parallel edges with --dedup"
        );
    }
    Ok(())
}

/// The memory of pass 2 by consumer.
fn sort_leases(budget: &IngestBudget, directory_bytes: u64) -> Vec<Lease> {
    vec![
        Lease::new(
            "edge buckets and directories",
            directory_bytes,
            "a count for each pair of chunks, and the directories of the chunks that are written at the same time; refused above 1/2",
        ),
        Lease::new(
            "shards that are sorted",
            budget.memory - directory_bytes,
            "records, their copies for the sort and the encoded lists; threads wait for each other if a shard needs more than its part",
        ),
    ]
}

/// How the parts of edges follow from the input, if they do. Keys that are spilled have their part.
fn key_parts(job: &IngestJob<'_>, reader: &EdgeReader<'_>, are_spilled: bool) -> Result<Option<KeyParts>> {
    Ok(match &job.edges.split {
        None | Some(EdgeSplit::Random(_)) => None,
        Some(EdgeSplit::Files { val, .. }) => {
            let starts = [0, val.len()].map(|more| (job.edges.files.len() + more) as u64);
            Some(KeyParts::Files { starts })
        }
        Some(EdgeSplit::Column { shares, .. }) => {
            let starts = match are_spilled {
                true => [f64::INFINITY; 2],
                false => order::starts(job, reader, *shares)?,
            };
            Some(KeyParts::Order { starts })
        }
    })
}

/// The division of edges into shards: the division of the run that began pass 1, or a new one.
fn plan_edges(
    job: &IngestJob<'_>,
    edges: u64,
    chunks: &ChunkMap,
    record_cost: u64,
    source_bits: u32,
    budget: &IngestBudget,
) -> Result<SpillPlan> {
    match job.journal.stage(Stage::Edges).plan {
        Some(plan) if job.journal.are_edges_spilled() => return Ok(plan),
        Some(plan) => return plan.within(chunks, budget),
        None => {}
    }
    let directions = if job.edges.options.undirected { 2 } else { 1 };
    let plan = SpillPlan::of_edges(chunks, edges * directions, record_cost, source_bits, budget)?;
    job.journal.record(Record::Planned(Stage::Edges, plan))?;
    Ok(plan)
}
