//! The embeddings of several processes: each updates the rows of the partitions that it serves, and gets the others after an epoch.

use std::ops::Range;

use grappa_io::{array::Array, progress::Progress};
use grappa_storage::Graph;
use tch::Tensor;

use super::tables::{NodeTables, pieces};
use crate::{Result, distributed::ProcessGroup, shim};

impl NodeTables {
    /// Replaces the embeddings that other processes own, and the state of their optimizer, by what their owners have. `is_own` says which
    /// chunks of the graph this process owns; each is owned by one. Returns the bytes of all embeddings and of that state. All ranks must
    /// call it.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached.
    pub fn exchange(
        &mut self,
        graph: &Graph,
        is_own: impl Fn(usize) -> bool,
        group: &ProcessGroup,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let mut bytes = 0;
        for (node_type, table) in self.types.iter_mut().enumerate() {
            let Some(table) = table else { continue };
            let chunks = graph.node_types()[node_type].chunks();
            let first = graph.positions().chunks_of(node_type).start as usize;
            let others = (0..chunks.chunks()).filter(|chunk| !is_own(first + *chunk as usize));
            let others: Vec<Range<usize>> = others
                .map(|chunk| chunks.range(grappa_formats::ChunkId(chunk)))
                .map(|nodes| nodes.start as usize..nodes.end as usize)
                .collect();
            let dim = table.rows.dim();
            bytes += exchange_values(table.rows.values_mut(), dim, &others, group)?;
            let (moments, updates) = table.rows.optimizer_mut();
            for moments in moments {
                bytes += exchange_values(moments, dim, &others, group)?;
            }
            bytes += exchange_counts(updates, &others, group, progress)?;
        }
        Ok(bytes)
    }
}

/// The parts of some ranges that are in `piece`, from its start on.
fn within<'a>(ranges: &'a [Range<usize>], piece: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let Range { start, end } = *piece;
    let cut = move |range: &Range<usize>| range.start.clamp(start, end) - start..range.end.clamp(start, end) - start;
    ranges.iter().map(cut).filter(|range| !range.is_empty())
}

/// Sums up values of `dim` per row, of which each rank adds the rows that it owns. Only the rows of `others` change.
fn exchange_values(values: &mut Array<f32>, dim: usize, others: &[Range<usize>], group: &ProcessGroup) -> Result<u64> {
    for piece in pieces(values.len() / dim, dim * size_of::<f32>()) {
        let rows = &mut values[piece.start * dim..piece.end * dim];
        let mut sum = Tensor::from_slice(rows);
        let summed = shim::values_mut(&mut sum);
        within(others, &piece).for_each(|rows| summed[rows.start * dim..rows.end * dim].fill(0.0));
        group.all_reduce(&sum)?;
        let summed = shim::values_mut(&mut sum);
        for other in within(others, &piece) {
            let other = other.start * dim..other.end * dim;
            rows[other.clone()].copy_from_slice(&summed[other]);
        }
        values.release();
    }
    Ok(size_of_val(&values[..]) as u64)
}

/// As [`exchange_values`], of the updates of each row.
fn exchange_counts(
    counts: &mut Array<u32>,
    others: &[Range<usize>],
    group: &ProcessGroup,
    progress: &dyn Progress,
) -> Result<u64> {
    for piece in pieces(counts.len(), size_of::<u64>()) {
        let rows = &mut counts[piece.clone()];
        let mut sums: Vec<u64> = rows.iter().map(|&count| count.into()).collect();
        within(others, &piece).for_each(|rows| sums[rows].fill(0));
        group.sum(&mut sums, progress)?;
        for other in within(others, &piece) {
            rows[other.clone()].iter_mut().zip(&sums[other]).for_each(|(count, &sum)| *count = sum as u32);
        }
        counts.release();
    }
    Ok(size_of_val(&counts[..]) as u64)
}
