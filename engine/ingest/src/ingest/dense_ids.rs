//! The number of nodes of a graph with dense ids: the largest id plus one. Finding it takes one pass over the input.
//!
//! Every id up to the largest becomes a node, and each node takes some bytes on disk, with or without edges. One wrong id
//! could therefore fill a disk. So the scan refuses a graph with far more nodes than edges, unless the user confirms the
//! number with `--nodes`.

use std::{
    cmp::Reverse,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_input::{BlockId, EdgeSource, OnBadLine};
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
    workers,
};

use crate::ingest::{
    edge_ingest::{EdgeForm, EdgeIngest, EdgeReader, EndNodes},
    id_columns::{IdColumns, ParsedIds},
    journal::Scan,
    plan::IngestBudget,
};

/// This many nodes are always accepted. They take some tens of MB.
const NODES_FREE: u64 = 1 << 24;
/// This many nodes per edge are always accepted. There are graphs in which most nodes have no edge, but if 63 of 64 nodes
/// have none, the ids are probably not dense.
const NODES_PER_EDGE: u64 = 64;

/// Counts the nodes and edges.
pub fn scan(columns: &[IdColumns<'_>], budget: &IngestBudget, progress: &dyn Progress) -> Result<Scan> {
    let sources = columns.iter().map(|columns| columns.reader.open(budget.block_bytes));
    let sources: Vec<_> = sources.collect::<Result<_>>()?;
    progress.stage("scanning ids", Some(sources.iter().map(EdgeSource::total_bytes).sum()));
    let (largest, edges) = (Mutex::new(None), AtomicU64::new(0));
    for (number, (source, columns)) in sources.iter().zip(columns).enumerate() {
        source.read_ahead(budget.threads, &|_| false, |blocks| {
            workers::run(budget.threads, |turn| {
                let mut batch = ParsedIds::default();
                while turn.goes_on()
                    && let Some(block) = blocks.next()?
                {
                    let count = batch.parse(source, &block)?;
                    edges.fetch_add(count, Ordering::Relaxed);
                    progress.advance(block.input_bytes(), count);
                    check_stopped(progress)?;
                    let max = columns.select([0, 1]).filter_map(|end| batch.integers(end).max()).max();
                    let found = max.map(|id| (id, Reverse((number, block.id()))));
                    let mut largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
                    *largest = found.max(*largest);
                }
                Ok(())
            })
        })?;
        source.check()?;
    }
    let edges = edges.into_inner();
    let Some(largest) = largest.into_inner().unwrap_or_else(PoisonError::into_inner) else {
        return Ok(Scan { nodes: 0, edges });
    };
    let nodes = largest.0 + 1;
    if nodes > edges.saturating_mul(NODES_PER_EDGE).saturating_add(NODES_FREE) {
        let (_, Reverse((number, block))) = largest;
        let columns = &columns[number];
        let path = sources[number].path(block.file);
        return Err(implausible(columns, budget.block_bytes, path, (largest.0, block), edges));
    }
    Ok(Scan { nodes, edges })
}

/// The error about an id that gives the graph far more nodes than edges.
fn implausible(
    columns: &IdColumns<'_>,
    block_bytes: usize,
    path: &Path,
    (id, block): (u64, BlockId),
    edges: u64,
) -> Error {
    let nodes = id + 1;
    let problem = format!(
        "the largest node id is {id}, so with --ids dense there are {nodes} nodes for {edges} edges; if ids are not \
         consecutive, give --ids sparse; if there are really {nodes} nodes, give --nodes {nodes}; otherwise correct the id"
    );
    let position = position_of(columns, block_bytes, id, block).unwrap_or(Position::Whole);
    Error::input(path, position, problem)
}

/// The line or row of an id in a block. Parsed blocks do not keep positions, so the block is read again with a limit that
/// makes the id an error. None if the input has changed meanwhile.
fn position_of(columns: &IdColumns<'_>, block_bytes: usize, id: u64, block: BlockId) -> Option<Position> {
    let EdgeReader { input, ends } = columns.reader.clone();
    let form = EdgeForm { on_bad_line: OnBadLine::Fail, ..input.form.clone() };
    let [source, target] = ends;
    let [is_source, is_target] = columns.ends;
    let strict = EdgeIngest { form, ..input.clone() };
    let source = EndNodes { number: if is_source { Some(id) } else { source.number }, ..source };
    let target = EndNodes { number: if is_target { Some(id) } else { target.number }, ..target };
    let reader = EdgeReader { input: &strict, ends: [source, target] };
    let parsed = reader.open(block_bytes).and_then(|source| {
        let block = source.next_block(&|other| other != block)?;
        block.map_or(Ok(0), |block| ParsedIds::default().parse(&source, &block))
    });
    match parsed {
        Err(Error::Input { position, .. }) => Some(position),
        _ => None,
    }
}
