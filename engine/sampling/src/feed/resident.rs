//! Rows of whole chunks in memory, found by arithmetic.

use grappa_formats::{ChunkId, NodeId, features::FeatureLayout};
use grappa_io::{Result, arena::Arena, prefetch::prefetch, read::ReadEngine};

use super::{files::RowFiles, reader};

/// The rows of some chunks, with the stride that they have on disk, column by column.
#[derive(Debug)]
pub(super) struct Resident {
    rows: Arena,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    stride: usize,
    row_bytes: usize,
    /// Of each chunk, what to multiply a node with the stride and add, to find its row: modulo 2^64, since the first node
    /// of a chunk is not the first row. None for chunks that are not resident.
    bases: Vec<Option<u64>>,
}

impl Resident {
    /// Bytes that the rows of `chunks` take.
    pub fn bytes(files: &RowFiles, chunks: &[ChunkId]) -> u64 {
        let rows: u64 = chunks.iter().map(|&chunk| files.chunks().len(chunk)).sum();
        let strides: u64 = files.layouts().map(|layout| u64::from(layout.stride)).sum();
        rows.saturating_mul(strides)
    }

    /// Reads the rows of `chunks`, which must be there, each once.
    pub fn load(files: &RowFiles, chunks: &[ChunkId], engine: &mut dyn ReadEngine) -> Result<Self> {
        let mut rows = Arena::new(usize::try_from(Self::bytes(files, chunks)).unwrap_or(usize::MAX))?;
        let mut pieces = Vec::with_capacity(chunks.len() * files.layouts().len());
        let mut at = 0u64;
        let mut place = |(column, layout): (usize, FeatureLayout)| {
            let stride = u64::from(layout.stride);
            let mut bases = vec![None; files.chunks().chunks() as usize];
            for &chunk in chunks {
                let range = files.chunks().range(chunk);
                let bytes = (range.end - range.start) * stride;
                let (file, _) = files.chunk(column, chunk).expect("resident chunks are there");
                bases[chunk.0 as usize] = Some(at.wrapping_sub(range.start.wrapping_mul(stride)));
                pieces.push(reader::Piece { file, bytes, to: at });
                at += bytes;
            }
            Column {
                stride: stride as usize,
                row_bytes: layout.row_bytes(),
                bases,
            }
        };
        let columns = files.layouts().enumerate().map(&mut place).collect();
        reader::read_whole(&pieces, files, engine, &mut rows)?;
        Ok(Self { rows, columns })
    }

    /// Whether a chunk's rows are here.
    #[inline]
    pub fn has(&self, chunk: ChunkId) -> bool {
        self.columns[0].bases[chunk.0 as usize].is_some()
    }

    /// Where a column's row of a node of a chunk is.
    #[inline]
    pub fn place(&self, column: usize, chunk: ChunkId, node: NodeId) -> Option<usize> {
        let column = &self.columns[column];
        let base = column.bases[chunk.0 as usize]?;
        Some(base.wrapping_add(node.0.wrapping_mul(column.stride as u64)) as usize)
    }

    /// A column's row at a place.
    #[inline]
    pub fn row(&self, column: usize, place: usize) -> &[u8] {
        &self.rows[place..place + self.columns[column].row_bytes]
    }

    /// Begins to bring the first `lines` cache lines at a place into the cache.
    #[inline]
    pub fn prefetch(&self, place: usize, lines: usize) {
        for line in 0..lines {
            prefetch(&self.rows, place + 64 * line);
        }
    }
}
