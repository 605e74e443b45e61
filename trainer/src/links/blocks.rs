//! The scores of some sources with all nodes, block by block.

use std::ops::Range;

use grappa_io::{
    progress::{Progress, check_stopped},
    workers,
};
use grappa_kernels::keys::Keys;
use tch::{Device, Kind, Tensor, no_grad};

use super::{LinkEmbeddings, memory::BLOCK};
use crate::{Result, shim};

/// Rows of a block: its keys and the scores of a group stay in the cache of the processor.
const BLOCK_ROWS: u64 = 1 << 13;
/// Sources whose scores are computed at once.
const GROUP_SOURCES: usize = 1 << 9;

/// The scores of a source with a block of nodes.
pub(super) struct BlockScores<'a> {
    /// The positions of the nodes among the destinations.
    pub positions: Range<u64>,
    /// Their scores.
    pub scores: &'a [f32],
}

/// Calls `each` with the state of each source and its scores with each block of destinations, in the order of positions. `sources` are
/// embeddings, `[sources, values]`.
///
/// # Errors
/// If embeddings cannot be read, or `progress` asks to stop.
pub(super) fn score_blocks<S: Send>(
    embeddings: &LinkEmbeddings<'_>,
    sources: &Tensor,
    states: &mut [S],
    progress: &dyn Progress,
    each: impl Fn(&mut S, BlockScores<'_>) + Sync,
) -> Result<()> {
    let (nodes, width) = (embeddings.destinations.len(), embeddings.rows.width() as i64);
    // Of all targets, positions among the destinations are positions of rows.
    let are_all = nodes == embeddings.targets.nodes.len();
    let first_row = embeddings.targets.first;
    // Products are scored where they are computed, in the cache.
    let queries = (embeddings.device == Device::Cpu && embeddings.decoder.is_product())
        .then(|| no_grad(|| embeddings.decoder.queries(sources).contiguous()));
    // The rows, their keys and a copy of these, and the scores of a group.
    let row_bytes = 3 * embeddings.row_bytes() + (GROUP_SOURCES * size_of::<f32>()) as u64;
    let block = (BLOCK.bytes(embeddings.memory) / row_bytes).clamp(1, BLOCK_ROWS);
    let rows = Tensor::empty([if are_all { block.min(nodes) } else { 0 } as i64, width], (Kind::Float, Device::Cpu));
    for first in (0..nodes).step_by(block as usize) {
        check_stopped(progress)?;
        let positions = first..nodes.min(first + block);
        let count = (positions.end - first) as i64;
        let rows = if are_all {
            let mut rows = rows.narrow(0, 0, count);
            embeddings.rows.read(first_row + first..first_row + positions.end, shim::values_mut(&mut rows))?;
            if positions.end < nodes {
                let next = positions.end..nodes.min(positions.end + block);
                embeddings.rows.read_ahead(first_row + next.start..first_row + next.end);
            }
            rows.to_device(embeddings.device)
        } else {
            let mut chosen = Vec::with_capacity(count as usize);
            embeddings.destinations.nodes_at(positions.clone(), &mut chosen);
            embeddings.read(embeddings.targets, &chosen)?
        };
        match &queries {
            Some(queries) => visit_products(embeddings, queries, &rows, states, first, &each),
            None => visit_groups(embeddings, sources, &rows, states, &positions, &each)?,
        }
        progress.advance(count as u64 * embeddings.row_bytes(), 0);
    }
    Ok(())
}

/// Calls `each` with the products of queries and the keys of a block that begins at position `first`.
fn visit_products<S: Send>(
    embeddings: &LinkEmbeddings<'_>,
    queries: &Tensor,
    rows: &Tensor,
    states: &mut [S],
    first: u64,
    each: &(impl Fn(&mut S, BlockScores<'_>) + Sync),
) {
    let keys = no_grad(|| embeddings.decoder.keys(rows).contiguous());
    let keys = Keys::new(shim::values(&keys), embeddings.rows.width());
    keys.each_product(shim::values(queries), states, |state, range, scores| {
        let positions = first + range.start as u64..first + range.end as u64;
        each(state, BlockScores { positions, scores });
    });
}

/// Calls `each` with the scores of any decoder on any device, which are a tensor for each group of sources.
fn visit_groups<S: Send>(
    embeddings: &LinkEmbeddings<'_>,
    sources: &Tensor,
    rows: &Tensor,
    states: &mut [S],
    positions: &Range<u64>,
    each: &(impl Fn(&mut S, BlockScores<'_>) + Sync),
) -> Result<()> {
    for (group, states) in states.chunks_mut(GROUP_SOURCES).enumerate() {
        let start = (group * GROUP_SOURCES) as i64;
        let scores = no_grad(|| {
            let sources = sources.narrow(0, start, states.len() as i64);
            embeddings.decoder.score_all(&sources, rows)
        });
        let scores = scores.to_device(Device::Cpu).contiguous();
        visit(shim::values(&scores), states, positions, embeddings.threads, each)?;
    }
    Ok(())
}

/// Calls `each` for all sources of a group, on several threads.
fn visit<S: Send>(
    scores: &[f32],
    states: &mut [S],
    positions: &Range<u64>,
    threads: usize,
    each: &(impl Fn(&mut S, BlockScores<'_>) + Sync),
) -> Result<()> {
    let count = (positions.end - positions.start) as usize;
    let part = states.len().div_ceil(threads.max(1));
    let parts = states.chunks_mut(part).zip(scores.chunks(part * count));
    workers::each(parts, |(states, scores)| {
        for (state, scores) in states.iter_mut().zip(scores.chunks_exact(count)) {
            each(state, BlockScores { positions: positions.clone(), scores });
        }
        Ok(())
    })?;
    Ok(())
}
