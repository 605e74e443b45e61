//! Rows that are computed: the states of nodes between two layers, and historical embeddings.

use std::{
    fs::File,
    num::NonZeroU64,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::{features::FeatureLayout, manifest::FeatureDtype};
use grappa_io::{Error, Result, arena::Arena, machine::free_disk_bytes, progress::Progress, unnamed::unnamed_file};
use grappa_sampling::NodeSet;
use rustix::fs::{Advice, fadvise};

use super::{
    super::budget::{Budget, COPIED_PIECE},
    NodeRows, READ_BYTES, RowScan, RowValues, ScannedColumn, check_room, read_decoded, rows_of,
};

/// Bytes that are copied at a time, at most.
const COPY_BYTES: u64 = 16 << 20;

/// Rows in memory, or in an unnamed scratch file that disappears when it is dropped. Rows that nobody writes are zeros.
#[derive(Debug)]
pub struct StateRows {
    space: Space,
    rows: u64,
    layout: FeatureLayout,
}

#[derive(Debug)]
enum Space {
    Memory(Arena),
    /// A file, and the folder that contains it, for errors.
    File(File, PathBuf),
}

impl StateRows {
    /// Bytes of `rows` rows of `width` values of a type.
    pub fn bytes_of(rows: u64, width: usize, dtype: FeatureDtype) -> u64 {
        rows.saturating_mul(u64::from(rows_of(width, dtype).stride))
    }

    /// The layout of rows of `width` values of a type. Rows of f32 have no padding.
    pub fn layout_of(width: usize, dtype: FeatureDtype) -> FeatureLayout {
        rows_of(width, dtype)
    }

    /// Space for `rows` rows of `width` values, which are rounded to `dtype`. It is in memory if it takes at most `memory` bytes,
    /// which are then subtracted, and else in a new file in `folder`.
    ///
    /// # Errors
    /// If the system refuses the memory, or the file cannot be created.
    pub fn create(folder: &Path, rows: u64, width: usize, dtype: FeatureDtype, memory: &mut u64) -> Result<Self> {
        let bytes = Self::bytes_of(rows, width, dtype);
        if bytes > *memory {
            return Self::in_file(folder, rows, width, dtype);
        }
        *memory -= bytes;
        Self::in_memory_as(rows, width, dtype)
    }

    /// Space in memory for `rows` rows of `width` f32 values.
    ///
    /// # Errors
    /// If the system refuses so much memory.
    pub fn new(rows: u64, width: usize) -> Result<Self> {
        Self::in_memory_as(rows, width, FeatureDtype::F32)
    }

    fn in_memory_as(rows: u64, width: usize, dtype: FeatureDtype) -> Result<Self> {
        let layout = rows_of(width, dtype);
        Ok(Self {
            // Most are written from front to back.
            space: Space::Memory(Arena::to_fill(rows as usize * layout.stride as usize)?),
            rows,
            layout,
        })
    }

    /// Space in a new file in `folder` for `rows` rows of `width` values, which are rounded to `dtype`.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn in_file(folder: &Path, rows: u64, width: usize, dtype: FeatureDtype) -> Result<Self> {
        Self::in_new_file(folder, rows, rows_of(width, dtype))
    }

    fn in_new_file(folder: &Path, rows: u64, layout: FeatureLayout) -> Result<Self> {
        let file = unnamed_file(folder)?;
        file.set_len(rows * u64::from(layout.stride)).map_err(Error::io("make room for a scratch file in", folder))?;
        Ok(Self { space: Space::File(file, folder.to_owned()), rows, layout })
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of memory that the rows take.
    pub fn memory(&self) -> u64 {
        match &self.space {
            Space::Memory(arena) => arena.len() as u64,
            Space::File(..) => 0,
        }
    }

    /// All values, row after row.
    ///
    /// # Panics
    /// If they are not f32 in memory.
    pub fn values_mut(&mut self) -> &mut [f32] {
        match &mut self.space {
            Space::Memory(arena) if self.layout.dtype == FeatureDtype::F32 => arena.values_mut(),
            _ => panic!("only f32 rows in memory are values"),
        }
    }

    /// Writes the rows from position `first` on.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// If `values` are not whole rows, or more than there is space for.
    pub fn write(&mut self, first: u64, values: &[f32]) -> Result<()> {
        let width = self.width();
        assert!(
            values.len().is_multiple_of(width) && first + (values.len() / width) as u64 <= self.rows,
            "{} values from row {first} of {}",
            values.len(),
            self.rows
        );
        let layout = self.layout;
        each_encoded(layout, first, values, |first, bytes| self.write_bytes(first, bytes))
    }

    /// As [`StateRows::write`] for rows in a file, which others may read meanwhile.
    pub(super) fn write_shared(&self, first: u64, values: &[f32]) -> Result<()> {
        each_encoded(self.layout, first, values, |first, bytes| self.write_to_file(first, bytes))
    }

    /// Reads the rows at some positions, in any order, into `out`, whose length is exactly theirs.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_any(&self, positions: impl IntoIterator<Item = u64>, out: &mut [f32]) -> Result<()> {
        let mut bytes = vec![0; self.layout.row_bytes()];
        let mut out = out.chunks_exact_mut(self.width());
        for (position, out) in positions.into_iter().zip(&mut out) {
            self.read_bytes(position, &mut bytes)?;
            self.layout.decode_row(&bytes, out);
        }
        assert_eq!(out.count(), 0, "room for the rows");
        Ok(())
    }

    /// Bytes of [`StateRows::copied`] for `needed` nodes, if rows are read `passes` times. 0 if it saves no reading, or if it takes more
    /// than half of the free disk.
    pub fn copy_bytes(folder: &Path, rows: &dyn NodeRows, needed: u64, passes: u64) -> u64 {
        let (whole, bytes) = (rows.file_bytes(), needed * u64::from(rows.layout().stride));
        let saves = whole + bytes * (1 + passes) < whole * passes;
        match saves && free_disk_bytes(folder).is_none_or(|free| bytes <= free / 2) {
            true => bytes,
            false => 0,
        }
    }

    /// A copy of the rows of some nodes, in a new file in `folder`. `rows` has the rows of all nodes. A pass over the copy reads no other
    /// rows.
    ///
    /// # Errors
    /// If files cannot be read or written, or progress says to stop.
    pub fn copied(
        folder: &Path,
        rows: &dyn NodeRows,
        nodes: &NodeSet,
        Budget { memory, threads }: Budget,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let layout = rows.layout();
        let mut copy = Self::in_new_file(folder, nodes.len(), layout)?;
        let piece = (COPY_BYTES.min(COPIED_PIECE.bytes(memory)) / u64::from(layout.stride)).max(1);
        let all = NodeSet::all(nodes.universe());
        let column = ScannedColumn { rows, nodes: &all };
        let scan = RowScan::new(&[column], nodes, piece, 0, threads)?.encoded();
        scan.each(progress, |part| copy.write_bytes(part.positions.start, bytemuck::cast_slice(&part.columns[0])))?;
        Ok(copy)
    }

    fn write_bytes(&mut self, first: u64, bytes: &[u8]) -> Result<()> {
        if let Space::Memory(arena) = &mut self.space {
            let at = (first * u64::from(self.layout.stride)) as usize;
            arena[at..][..bytes.len()].copy_from_slice(bytes);
            arena.filled(at + bytes.len());
            return Ok(());
        }
        self.write_to_file(first, bytes)
    }

    fn write_to_file(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let Space::File(file, folder) = &self.space else {
            panic!("rows in memory have one owner");
        };
        file.write_all_at(bytes, first * u64::from(self.layout.stride))
            .map_err(Error::io("write a scratch file in", folder))
    }

    fn read_bytes(&self, first: u64, bytes: &mut [u8]) -> Result<()> {
        let at = first * u64::from(self.layout.stride);
        match &self.space {
            Space::Memory(arena) => {
                bytes.copy_from_slice(&arena[at as usize..][..bytes.len()]);
                Ok(())
            }
            Space::File(file, folder) => {
                file.read_exact_at(bytes, at).map_err(Error::io("read a scratch file in", folder))
            }
        }
    }
}

/// Passes rows in their encoding to `write`, piece by piece, with the position of the first row.
fn each_encoded(
    layout: FeatureLayout,
    first: u64,
    values: &[f32],
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    if layout.dtype == FeatureDtype::F32 {
        return write(first, bytemuck::cast_slice(values));
    }
    let (width, stride) = (layout.dim as usize, layout.stride as usize);
    let piece = (READ_BYTES / stride).max(1);
    let mut bytes = Vec::new();
    for (values, first) in values.chunks(piece * width).zip((first..).step_by(piece)) {
        bytes.resize(values.len() / width * stride, 0);
        layout.encode_rows(values, &mut bytes);
        write(first, &bytes)?;
    }
    Ok(())
}

impl NodeRows for StateRows {
    fn width(&self) -> usize {
        self.layout.dim as usize
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        // Copies of a store's rows have the padding of the store.
        if self.layout == rows_of(self.width(), FeatureDtype::F32) {
            check_room(&positions, self.width(), out);
            return self.read_bytes(positions.start, bytemuck::cast_slice_mut(out));
        }
        read_decoded(self, positions, out)
    }

    fn layout(&self) -> FeatureLayout {
        self.layout
    }

    fn read_encoded(&self, positions: Range<u64>, out: &mut [u8]) -> Result<()> {
        self.read_bytes(positions.start, out)
    }

    fn read_ahead(&self, positions: Range<u64>) {
        let Space::File(file, _) = &self.space else { return };
        let stride = u64::from(self.layout.stride);
        // A length of zero would mean the rest of the file.
        if let Some(bytes) = NonZeroU64::new((positions.end - positions.start) * stride) {
            // Reading ahead only saves time, so failures do not matter.
            let _ = fadvise(file, positions.start * stride, Some(bytes), Advice::WillNeed);
        }
    }

    fn file_bytes(&self) -> u64 {
        match &self.space {
            Space::Memory(_) => 0,
            Space::File(..) => self.rows * u64::from(self.layout.stride),
        }
    }

    fn in_memory(&self) -> Option<RowValues<'_>> {
        match &self.space {
            Space::Memory(arena) if self.layout.dtype == FeatureDtype::F32 => {
                Some(RowValues { values: arena.values(), stride: self.width() })
            }
            _ => None,
        }
    }
}
