//! What an epoch costs on several machines.

use std::ops::AddAssign;

use grappa_run::journal::EpochRecord;

/// Bits per second of the links that tables assume: 1 Gbit/s.
pub(super) const BANDWIDTH: f64 = 1e9;

/// Seconds of computing, and bytes that all machines send together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Costs {
    /// Seconds in which one process trained all partitions, without evaluations and files.
    pub(super) seconds: f64,
    /// Bytes of gradients.
    pub(super) gradients: f64,
    /// Bytes of hidden states and their gradients.
    pub(super) activations: f64,
    /// Bytes of features.
    pub(super) features: f64,
}

impl Costs {
    /// The costs of an epoch on `machines` machines. An all-reduce of b bytes sends 2 (machines - 1) b. What partitions got about halo
    /// nodes, and copies of embeddings, count as features.
    pub(super) fn from_record(record: &EpochRecord, machines: u32) -> Self {
        Self {
            seconds: record.seconds_by_stage.training(),
            gradients: 2.0 * (f64::from(machines) - 1.0) * record.gradient_bytes as f64,
            activations: record.activation_bytes as f64,
            features: (record.feature_bytes + record.halo_bytes + record.row_bytes) as f64,
        }
    }

    pub(super) fn bytes(&self) -> f64 {
        self.gradients + self.activations + self.features
    }

    /// Each of them times a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            seconds: self.seconds * factor,
            gradients: self.gradients * factor,
            activations: self.activations * factor,
            features: self.features * factor,
        }
    }

    /// Seconds on machines that compute and send side by side, with links of `bandwidth` bits per second.
    pub(super) fn modelled_seconds(&self, machines: u32, bandwidth: f64) -> f64 {
        let machines = f64::from(machines);
        self.seconds / machines + self.bytes() / machines * 8.0 / bandwidth
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.gradients += other.gradients;
        self.activations += other.activations;
        self.features += other.features;
    }
}
