//! Edge weights in a separate file.

use std::{path::Path, sync::Arc};

use grappa_io::Result;

use crate::{
    file::InputFile,
    npy::{ArrayReader, NpyArray},
};

/// An array with one weight per edge.
#[derive(Clone)]
pub(super) struct EdgeWeights {
    array: Arc<NpyArray>,
    reader: Arc<ArrayReader>,
}

impl EdgeWeights {
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(NpyArray::open(&InputFile::open(path)?)?)
    }

    /// The weights in an array.
    pub fn of(array: NpyArray) -> Result<Self> {
        if !matches!(*array.shape, [_] | [_, 1]) {
            return Err(array.error(format!(
                "weights must have shape [E], one per edge, found {}",
                array.shape_shown()
            )));
        }
        Ok(Self {
            reader: Arc::new(array.reader()),
            array: Arc::new(array),
        })
    }

    /// Fails unless there is one weight per edge.
    pub fn expect_rows(&self, edges: u64) -> Result<()> {
        if self.array.shape[0] == edges {
            return Ok(());
        }
        Err(self.array.error(format!(
            "expected {edges} weights, one per edge, found {}",
            self.array.shape[0]
        )))
    }

    /// Fails unless the member of an archive has its CRC-32.
    pub fn check(&self) -> Result<()> {
        self.reader.check()
    }

    pub fn element_bytes(&self) -> usize {
        self.array.element.bytes()
    }

    /// Fills `into` with the bytes of the weights from number `first` on.
    pub fn read(&self, first: u64, into: &mut [u8]) -> Result<()> {
        self.reader.read(first, into)
    }

    /// Replaces the contents of `into` with the weights in `bytes`.
    pub fn convert(&self, bytes: &[u8], into: &mut Vec<f32>) {
        into.resize(bytes.len() / self.element_bytes(), 0.0);
        self.array.element.to_f32(bytes, into);
    }
}
