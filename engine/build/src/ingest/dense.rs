//! Dense ids: the number of nodes follows from the largest id, for which all of the input is read once.
//!
//! Every id up to the largest becomes a node, and takes some bytes of disk whether or not it has edges. So one stray id
//! could fill a disk: far more nodes than edges are refused, unless the user says with `--nodes` that they are meant.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use grappa_input::{BlockId, EdgeBatch, EdgeSource, OnBadLine};
use grappa_io::{Error, Position, Result, progress::Progress, workers};

use crate::ingest::{IngestOptions, options::open_edges, state::Scan};

/// So many nodes are taken for granted: they cost some tens of megabytes.
const NODES_FREE: u64 = 1 << 24;
/// So many nodes an edge are taken for granted. Graphs in which most nodes have no edge exist; in one in which 63 of 64
/// have none, ids are hardly dense.
const NODES_PER_EDGE: u64 = 64;

/// The largest id of an input, and where it is.
#[derive(Debug, Clone, Copy)]
struct Largest {
    id: u64,
    block: BlockId,
}

impl Largest {
    /// Of two, the larger; of two that are the same, the one that comes first in the input.
    fn of(self, other: Self) -> Self {
        match self.id.cmp(&other.id).then(other.block.cmp(&self.block)) {
            std::cmp::Ordering::Less => other,
            _ => self,
        }
    }
}

/// Finds the number of nodes and edges.
pub fn scan(options: &IngestOptions, block_bytes: usize, progress: &dyn Progress) -> Result<Scan> {
    let source = open_edges(options, None, block_bytes)?;
    progress.stage("scanning ids", Some(source.total_bytes()));
    let (largest, edges) = (Mutex::new(None::<Largest>), AtomicU64::new(0));
    workers::run(options.threads, |turn| {
        let mut batch = EdgeBatch::default();
        while turn.goes_on()
            && let Some(block) = source.next_block(&|_| false)?
        {
            block.parse(&mut batch)?;
            if let Some(&id) = batch.sources.iter().chain(&batch.targets).max() {
                let found = Largest { id, block: block.id() };
                let mut largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
                *largest = Some(largest.map_or(found, |largest| largest.of(found)));
            }
            edges.fetch_add(batch.sources.len() as u64, Ordering::Relaxed);
            progress.advance(block.input_bytes(), batch.sources.len() as u64);
        }
        Ok(())
    })?;
    source.check()?;
    let edges = edges.into_inner();
    let Some(largest) = largest.into_inner().unwrap_or_else(PoisonError::into_inner) else {
        return Ok(Scan { nodes: 0, edges });
    };
    let nodes = largest.id + 1;
    if nodes > edges.saturating_mul(NODES_PER_EDGE).saturating_add(NODES_FREE) {
        return Err(stray(options, block_bytes, &source, largest, edges));
    }
    Ok(Scan { nodes, edges })
}

/// The error about an id that makes far more nodes than there are edges.
fn stray(
    options: &IngestOptions,
    block_bytes: usize,
    source: &EdgeSource,
    Largest { id, block }: Largest,
    edges: u64,
) -> Error {
    let nodes = id + 1;
    let what = format!(
        "the largest node id is {id}, which with --ids dense makes {nodes} nodes for {edges} edges; if ids are scattered, \
         give --ids sparse; if there are so many nodes, give --nodes {nodes}; else correct the id"
    );
    let position = position_of(options, block_bytes, id, block).unwrap_or(Position::Whole);
    Error::input(source.path(block.file), position, what)
}

/// The line or row of an id that is in a block, found by reading the block as if the id were too large. None if the input
/// has changed meanwhile.
fn position_of(options: &IngestOptions, block_bytes: usize, id: u64, block: BlockId) -> Option<Position> {
    let strict = IngestOptions {
        on_bad_line: OnBadLine::Fail,
        ..options.clone()
    };
    let read = || {
        let source = open_edges(&strict, Some(id), block_bytes)?;
        match source.next_block(&|other| other != block)? {
            Some(block) => block.parse(&mut EdgeBatch::default()),
            None => Ok(()),
        }
    };
    match read() {
        Err(Error::Input { position, .. }) => Some(position),
        _ => None,
    }
}
