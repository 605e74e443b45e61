//! The format of feature rows: as stored, in memory, and as delivered.

use grappa_formats::{
    features::FeatureLayout,
    manifest::{FeatureDtype, FeatureSource, FeatureSpec},
};

use super::options::OutputDtype;

/// The columns of rows: a node's features, and if they are requested, its pre-aggregated features of each relation into its type. Node types
/// have columns of their own. Each column has its own files. In memory the columns of a node are adjacent. Batches have the first column of
/// all nodes of its type, then the second.
#[derive(Debug, Clone)]
pub(super) struct RowFormat {
    /// In the order of types.
    pub columns: Vec<Column>,
}

/// A node type whose nodes have rows. The default is the first type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RowType {
    pub node_type: usize,
    /// The position of its first node.
    pub start: u64,
}

/// The content of a row, or of a column of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowContent {
    /// The features of a node.
    Features,
    /// The pre-aggregated features of its in-neighbors by this relation.
    Aggregates(usize),
}

/// The format of one column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub row_type: RowType,
    pub content: RowContent,
    pub stored: FeatureLayout,
    pub output: OutputDtype,
    /// The offset of the column in a slot, in bytes: a multiple of 8.
    pub offset: usize,
}

impl RowFormat {
    /// Rows whose columns have these layouts, in the order of types.
    pub fn new(stored: &[(RowType, RowContent, FeatureLayout)], output: OutputDtype) -> Self {
        let mut end = (None, 0);
        let columns = stored.iter().map(|&(row_type, content, stored)| {
            let offset = if end.0 == Some(row_type.node_type) { end.1 } else { 0 };
            end = (Some(row_type.node_type), offset + stored.row_bytes().next_multiple_of(8));
            Column { row_type, content, stored, output, offset }
        });
        Self { columns: columns.collect() }
    }

    /// The types whose nodes have rows.
    pub fn types(&self) -> impl Iterator<Item = RowType> + '_ {
        self.columns.chunk_by(|a, b| a.row_type == b.row_type).map(|columns| columns[0].row_type)
    }

    /// Whether the positions of rows differ from the nodes of a type, so that batches list them.
    pub fn lists_positions(&self) -> bool {
        let mut types = self.types();
        types.next().is_some_and(|first| first.start > 0) || types.next().is_some()
    }

    /// The number of feature rows of minibatches with `nodes(type)` nodes of each node type.
    pub fn rows(&self, nodes: impl Fn(usize) -> usize) -> usize {
        self.types().map(|rows| nodes(rows.node_type)).sum()
    }

    /// Bytes of the columns of such minibatches as delivered.
    pub fn output_bytes(&self, nodes: impl Fn(usize) -> usize) -> usize {
        self.columns.iter().map(|column| nodes(column.row_type.node_type) * column.output_bytes()).sum()
    }

    /// Bytes of them as stored.
    pub fn stored_bytes(&self, nodes: impl Fn(usize) -> usize) -> u64 {
        let bytes = self.columns.iter().map(|column| nodes(column.row_type.node_type) * column.stored.row_bytes());
        bytes.map(|bytes| bytes as u64).sum()
    }

    /// The layout of rows in feature files. Computed rows are like rows of f32.
    pub fn features(spec: &FeatureSpec) -> FeatureLayout {
        FeatureLayout {
            dtype: match spec.source {
                FeatureSource::Stored => spec.dtype,
                FeatureSource::Procedural => FeatureDtype::F32,
            },
            dim: spec.dim,
            stride: spec.row_stride,
        }
    }

    /// The most values of a column.
    pub fn dim_max(&self) -> usize {
        self.columns.iter().map(|column| column.stored.dim as usize).max().unwrap_or_default()
    }

    /// Bytes of a slot: the columns of a node of the widest type, each padded to a multiple of 8.
    pub fn slot_bytes(&self) -> usize {
        let ends = self.columns.iter().map(|column| column.offset + column.stored.row_bytes().next_multiple_of(8));
        ends.max().unwrap_or_default()
    }

    /// Creates the memory of a thread for conversions.
    pub fn scratch(&self) -> RowScratch {
        RowScratch { values: vec![0.0; self.dim_max()], row: vec![0; self.row_bytes_max()] }
    }

    /// Bytes of [`RowFormat::scratch`].
    pub fn scratch_bytes(&self) -> u64 {
        (self.dim_max() * size_of::<f32>() + self.row_bytes_max()) as u64
    }

    fn row_bytes_max(&self) -> usize {
        let row_bytes = self.columns.iter().map(|column| column.stored.row_bytes());
        row_bytes.max().unwrap_or_default()
    }
}

impl Column {
    /// Bytes of a delivered row.
    pub fn output_bytes(&self) -> usize {
        self.stored.dim as usize * self.output.bytes()
    }

    /// Whether a delivered row has the same bytes as the stored row.
    pub fn is_verbatim(&self) -> bool {
        matches!(
            (self.stored.dtype, self.output),
            (FeatureDtype::F32, OutputDtype::F32) | (FeatureDtype::Bf16, OutputDtype::Bf16)
        )
    }

    /// Converts a stored row. `out` is aligned to its values.
    #[inline]
    pub fn convert(&self, row: &[u8], values: &mut [f32], out: &mut [u8]) {
        if self.is_verbatim() {
            out.copy_from_slice(&row[..out.len()]);
            return;
        }
        match self.output {
            OutputDtype::F32 => self.stored.decode_row(row, bytemuck::cast_slice_mut(out)),
            OutputDtype::Bf16 => {
                let values = &mut values[..self.stored.dim as usize];
                self.stored.decode_row(row, values);
                self.narrow(values, out);
            }
        }
    }

    /// Delivers the values that `write` computes.
    #[inline]
    pub fn write(&self, values: &mut [f32], out: &mut [u8], write: impl FnOnce(&mut [f32])) {
        match self.output {
            OutputDtype::F32 => write(bytemuck::cast_slice_mut(out)),
            OutputDtype::Bf16 => {
                let values = &mut values[..self.stored.dim as usize];
                write(values);
                self.narrow(values, out);
            }
        }
    }

    fn narrow(&self, values: &[f32], out: &mut [u8]) {
        let layout = FeatureLayout { dtype: FeatureDtype::Bf16, dim: self.stored.dim, stride: 2 * self.stored.dim };
        layout.encode_row(values, out);
    }
}

/// Memory for converting rows, one per thread.
#[derive(Debug)]
pub(super) struct RowScratch {
    /// One row of values.
    pub values: Vec<f32>,
    /// One stored row.
    pub row: Vec<u8>,
}
