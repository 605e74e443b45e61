//! Where the states between two layers are, and how they are encoded.

use std::{ops::Range, path::Path};

use grappa_engine::aggregate::{Budget, NodeRows, StateRows};
use grappa_formats::{features::FeatureLayout, manifest::FeatureDtype};
use grappa_io::ledger::MemoryShare;
use tch::{Device, Kind, Tensor};

use crate::{Result, shim};

/// The messages of a layer, which its inputs become before they are aggregated.
pub(super) const MESSAGES: MemoryShare = MemoryShare::one(
    "messages of a layer",
    2,
    "messages are in memory if they leave as much for what aggregates them; chosen, not measured",
);
const OUTPUTS: MemoryShare = MemoryShare::one(
    "outputs of a layer",
    2,
    "outputs take at most 1/2, beside the inputs of the layer; chosen, not measured",
);
const STREAMED_OUTPUTS: MemoryShare = MemoryShare::one(
    "outputs of a layer",
    16,
    "a layer that streams its inputs reads all of them once for each part of the outputs that fits the rest of the memory, so outputs are \
     better in a file: they are written once and read once; chosen, not measured",
);

/// Where states are.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatesPlace {
    pub(super) dtype: FeatureDtype,
    /// Bytes of memory and of a scratch file that they take.
    pub(super) memory: u64,
    pub(super) file: u64,
}

impl Default for StatesPlace {
    fn default() -> Self {
        Self { dtype: FeatureDtype::F32, memory: 0, file: 0 }
    }
}

impl StatesPlace {
    /// That of `rows` rows of `width` values, if memory has `room` bytes for them. Those that it does not hold as f32 have the type
    /// `rounded`.
    pub(super) fn for_rows(rows: u64, width: usize, room: u64, rounded: FeatureDtype) -> Self {
        let dtype = match StateRows::bytes_of(rows, width, FeatureDtype::F32) {
            bytes if bytes <= room => FeatureDtype::F32,
            _ => rounded,
        };
        let bytes = StateRows::bytes_of(rows, width, dtype);
        let (memory, file) = if bytes <= room { (bytes, 0) } else { (0, bytes) };
        Self { dtype, memory, file }
    }

    /// Space for `rows` rows of `width` values here, if that is where they are.
    pub(super) fn create(self, scratch: &Path, rows: u64, width: usize) -> Result<StateRows> {
        let mut memory = self.memory;
        Ok(StateRows::create(scratch, rows, width, self.dtype, &mut memory)?)
    }
}

impl From<&StateRows> for StatesPlace {
    fn from(states: &StateRows) -> Self {
        Self { dtype: states.layout().dtype, memory: states.memory(), file: states.file_bytes() }
    }
}

/// The share of the `free` memory that the states which a layer makes may take.
pub(super) fn outputs_share(has_rows: bool, inputs: u64, width: usize, free: Budget) -> MemoryShare {
    match !has_rows && free.streams(inputs, width) {
        true => STREAMED_OUTPUTS,
        false => OUTPUTS,
    }
}

/// States in their encoding.
#[derive(Clone, Copy)]
pub(super) struct EncodedStates<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: FeatureLayout,
}

impl EncodedStates<'_> {
    /// Some of them, as a tensor.
    pub(super) fn decoded(&self, range: Range<u64>) -> Tensor {
        let stride = u64::from(self.layout.stride);
        let bytes = &self.bytes[(range.start * stride) as usize..(range.end * stride) as usize];
        let shape = [(range.end - range.start) as i64, i64::from(self.layout.dim)];
        let mut tensor = Tensor::empty(shape, (Kind::Float, Device::Cpu));
        self.layout.decode_rows(bytes, shim::values_mut(&mut tensor));
        tensor
    }
}
