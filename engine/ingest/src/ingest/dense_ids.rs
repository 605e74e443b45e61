//! The number of nodes of a graph with dense ids: the largest id plus one. Finding it takes one pass over the input.
//!
//! Every id up to the largest becomes a node, and each node takes some bytes on disk, with or without edges. One wrong id
//! could therefore fill a disk. So the scan refuses a graph with far more nodes than edges, unless the user confirms the
//! number with `--nodes`.

use std::{
    cmp::Reverse,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_input::{BlockId, EdgeBatch, EdgeSource, OnBadLine};
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
    workers,
};

use crate::ingest::{
    journal::Scan,
    options::{EdgeForm, IngestOptions, open_edges},
};

/// This many nodes are always accepted. They take some tens of MB.
const NODES_FREE: u64 = 1 << 24;
/// This many nodes per edge are always accepted. There are graphs in which most nodes have no edge, but if 63 of 64 nodes
/// have none, the ids are probably not dense.
const NODES_PER_EDGE: u64 = 64;

/// The largest id of an input, and the first block that has it, so that the error does not depend on the number of threads.
type Largest = (u64, Reverse<BlockId>);

/// Counts the nodes and edges.
pub fn scan(options: &IngestOptions, block_bytes: usize, progress: &dyn Progress) -> Result<Scan> {
    let source = open_edges(options, None, block_bytes)?;
    progress.stage("scanning ids", Some(source.total_bytes()));
    let (largest, edges) = (Mutex::new(None), AtomicU64::new(0));
    let threads = options.resources.threads;
    source.read_ahead(threads, &|_| false, |blocks| {
        workers::run(threads, |turn| {
            let mut batch = EdgeBatch::default();
            while turn.goes_on()
                && let Some(block) = blocks.next()?
            {
                block.parse(&mut batch, &mut |_| Ok(()))?;
                edges.fetch_add(batch.sources.len() as u64, Ordering::Relaxed);
                progress.advance(block.input_bytes(), batch.sources.len() as u64);
                check_stopped(progress)?;
                let found = batch.sources.iter().chain(&batch.targets).max().map(|&id| (id, Reverse(block.id())));
                let mut largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
                *largest = found.max(*largest);
            }
            Ok(())
        })
    })?;
    source.check()?;
    let edges = edges.into_inner();
    let Some(largest) = largest.into_inner().unwrap_or_else(PoisonError::into_inner) else {
        return Ok(Scan { nodes: 0, edges });
    };
    let nodes = largest.0 + 1;
    if nodes > edges.saturating_mul(NODES_PER_EDGE).saturating_add(NODES_FREE) {
        return Err(implausible(options, block_bytes, &source, largest, edges));
    }
    Ok(Scan { nodes, edges })
}

/// The error about an id that gives the graph far more nodes than edges.
fn implausible(
    options: &IngestOptions,
    block_bytes: usize,
    source: &EdgeSource,
    (id, Reverse(block)): Largest,
    edges: u64,
) -> Error {
    let nodes = id + 1;
    let problem = format!(
        "the largest node id is {id}, so with --ids dense there are {nodes} nodes for {edges} edges; if ids are not \
         consecutive, give --ids sparse; if there are really {nodes} nodes, give --nodes {nodes}; otherwise correct the id"
    );
    let position = position_of(options, block_bytes, id, block).unwrap_or(Position::Whole);
    Error::input(source.path(block.file), position, problem)
}

/// The line or row of an id in a block. Parsed blocks do not keep positions, so the block is read again with a limit that
/// makes the id an error. None if the input has changed meanwhile.
fn position_of(options: &IngestOptions, block_bytes: usize, id: u64, block: BlockId) -> Option<Position> {
    let strict = IngestOptions {
        edge_form: EdgeForm { on_bad_line: OnBadLine::Fail, ..options.edge_form.clone() },
        ..options.clone()
    };
    let parsed = open_edges(&strict, Some(id), block_bytes).and_then(|source| {
        let block = source.next_block(&|other| other != block)?;
        block.map_or(Ok(()), |block| block.parse(&mut EdgeBatch::default(), &mut |_| Ok(())))
    });
    match parsed {
        Err(Error::Input { position, .. }) => Some(position),
        _ => None,
    }
}
