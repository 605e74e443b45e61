//! Feature rows of whole chunks in memory. A row is found by arithmetic.

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Result, arena::Arena, prefetch::prefetch, read::ReadEngine};

use super::{
    files::RowFiles,
    reader::whole::{PayloadRead, read_whole},
};

/// The slot of a row of a resident chunk. Such a row is found by arithmetic.
pub(super) const RESIDENT: u32 = u32::MAX;

/// The rows of some chunks, with the same stride as on disk, column by column.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) rows: Arena,
    columns: Vec<ResidentColumn>,
}

#[derive(Debug)]
struct ResidentColumn {
    stride: usize,
    row_bytes: usize,
    /// For each chunk, the number to add to `node * stride` to get the offset of the node's row. Modulo 2^64, because
    /// it is negative for most chunks. None for chunks that are not resident.
    bases: Vec<Option<u64>>,
}

impl Resident {
    /// Bytes of the rows of `chunks`.
    pub fn bytes(files: &RowFiles, chunks: &[ChunkId]) -> u64 {
        let bytes = files.rows.iter().map(|row| {
            let of_row = chunks.iter().filter(|&&chunk| files.chunk(row.columns.start, chunk).is_some());
            of_row.map(|&chunk| files.chunks.len(chunk)).sum::<u64>().saturating_mul(row.stride)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Reads the rows of `chunks`. Each chunk must have rows in the store and be listed once.
    pub fn load(files: &RowFiles, chunks: &[ChunkId], engine: &mut dyn ReadEngine) -> Result<Self> {
        let rows = Arena::to_fill(usize::try_from(Self::bytes(files, chunks)).unwrap_or(usize::MAX))?;
        Self::load_part(files, chunks, rows, (0, 1), engine)
    }

    /// As [`Resident::load`], into `rows`, which has room for all. Reads part `index` of `count`; others have to be
    /// read by other processes before the rows are used.
    pub fn load_part(
        files: &RowFiles,
        chunks: &[ChunkId],
        mut rows: Arena,
        (index, count): (u64, u64),
        engine: &mut dyn ReadEngine,
    ) -> Result<Self> {
        let (mut payloads, mut columns) = (Vec::new(), Vec::new());
        let mut at = 0u64;
        for row in &files.rows {
            let mut bases = vec![None; files.chunks.chunks() as usize];
            for &chunk in chunks {
                // The chunks of other types have other rows.
                let Some((file, _)) = files.chunk(row.columns.start, chunk) else { continue };
                let range = files.chunks.range(chunk);
                let bytes = (range.end - range.start) * row.stride;
                bases[chunk.0 as usize] = Some(at.wrapping_sub(range.start.wrapping_mul(row.stride)));
                payloads.push(PayloadRead { file, bytes, to: at });
                at += bytes;
            }
            for (column, layout) in row.columns.clone().zip(files.layouts().skip(row.columns.start)) {
                let offset = files.offset(column);
                columns.push(ResidentColumn {
                    stride: row.stride as usize,
                    row_bytes: layout.row_bytes(),
                    bases: bases.iter().map(|base| base.map(|base| base.wrapping_add(offset))).collect(),
                });
            }
        }
        payloads.retain(|payload| {
            // A payload belongs to the part in which its middle is.
            let middle = u128::from(payload.to) + u128::from(payload.bytes / 2);
            middle * u128::from(count) / u128::from(at.max(1)) == u128::from(index)
        });
        read_whole(&payloads, files, engine, &mut rows)?;
        Ok(Self { rows, columns })
    }

    /// Whether the rows of a chunk are resident.
    #[inline]
    pub fn has(&self, chunk: ChunkId) -> bool {
        self.columns.iter().any(|column| column.bases[chunk.0 as usize].is_some())
    }

    /// The offset of a column's row of a node, which is in `chunk`. None if the chunk is not resident.
    #[inline]
    pub fn offset(&self, column: usize, chunk: ChunkId, node: NodeId) -> Option<usize> {
        let column = &self.columns[column];
        let base = column.bases[chunk.0 as usize]?;
        Some(base.wrapping_add(node.0.wrapping_mul(column.stride as u64)) as usize)
    }

    /// A column's row at an offset.
    #[inline]
    pub fn row(&self, column: usize, offset: usize) -> &[u8] {
        &self.rows[offset..offset + self.columns[column].row_bytes]
    }

    /// Prefetches the first `lines` cache lines at an offset.
    #[inline]
    pub fn prefetch(&self, offset: usize, lines: usize) {
        for line in 0..lines {
            prefetch(&self.rows, offset + 64 * line);
        }
    }
}
