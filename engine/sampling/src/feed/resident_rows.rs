//! Columns of rows in memory that outlive the feed.

use std::{ops::Range, sync::Arc};

use grappa_formats::{ChunkId, NodeId, features::FeatureLayout, manifest::FeatureDtype};

use super::access::StoredRows;

/// The rows of all nodes in one column of a feed, in memory. They stay as long as this exists, also if the feed is
/// closed.
#[derive(Debug, Clone)]
pub struct ResidentRows {
    rows: Arc<StoredRows>,
    layout: FeatureLayout,
    /// The place of the column among all rows.
    bytes: Range<usize>,
}

impl ResidentRows {
    /// A column of `rows`, if it has the rows of all nodes. Then they follow each other, because chunks are loaded in
    /// order.
    pub(super) fn from_rows(rows: &Arc<StoredRows>, column: usize) -> Option<Self> {
        let (chunks, resident) = (&rows.files.chunks, rows.resident.as_ref()?);
        let layout = rows.files.layouts().nth(column)?;
        let mut at = resident.offset(column, ChunkId(0), NodeId(0))?;
        let start = at;
        for chunk in (0..chunks.chunks()).map(ChunkId) {
            let first = NodeId(chunks.range(chunk).start);
            if resident.offset(column, chunk, first)? != at {
                return None;
            }
            at += chunks.len(chunk) as usize * layout.stride as usize;
        }
        Some(Self {
            rows: rows.clone(),
            layout,
            // If another column is beside this one, the last row may end before its stride does.
            bytes: start..at.min(resident.rows.len()),
        })
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.layout.dim as usize
    }

    /// Decodes the rows of a range of nodes.
    ///
    /// # Panics
    /// If `out` is not as long as the rows, or there are no such nodes.
    pub fn read(&self, nodes: Range<u64>, out: &mut [f32]) {
        let (stride, row_bytes) = (self.layout.stride as usize, self.layout.row_bytes());
        let bytes = self.bytes();
        let rows = bytes[nodes.start as usize * stride..bytes.len().min(nodes.end as usize * stride)].chunks(stride);
        assert_eq!(out.len(), rows.len() * self.width(), "room for the rows");
        for (row, out) in rows.zip(out.chunks_exact_mut(self.width())) {
            self.layout.decode_row(&row[..row_bytes], out);
        }
    }

    /// The rows if they are stored as f32: the numbers, and the distance between the starts of two rows. Those after
    /// the [width](Self::width) are padding, or another column.
    pub fn values(&self) -> Option<(&[f32], usize)> {
        let stride = self.layout.stride as usize;
        let is_aligned = self.layout.dtype == FeatureDtype::F32 && stride.is_multiple_of(size_of::<f32>());
        is_aligned.then(|| (bytemuck::cast_slice(self.bytes()), stride / size_of::<f32>()))
    }

    fn bytes(&self) -> &[u8] {
        &self.rows.resident.as_ref().expect("rows stay resident").rows[self.bytes.clone()]
    }
}
