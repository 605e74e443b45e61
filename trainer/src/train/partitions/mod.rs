//! The open partitions of a super-epoch, and their batches on the device.

pub mod correction;
pub(super) mod loaded_batch;
pub(super) mod open_partitions;
