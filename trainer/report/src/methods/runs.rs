//! Where the runs of a method are.

use std::path::PathBuf;

/// The runs of a method with a number of partitions.
#[derive(Debug, Clone)]
pub struct MethodRuns {
    /// The method and its options, as the user gave them.
    pub name: String,
    /// Number of partitions, and of machines.
    pub partitions: u32,
    /// A run for each seed.
    pub folders: Vec<PathBuf>,
}
