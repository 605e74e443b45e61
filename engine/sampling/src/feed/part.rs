//! A partition of an epoch, and how its seeds are divided among batches.

use std::{ops::Range, sync::Arc};

use crate::{links::Positives, partition::SeedNodes, view::ViewSource};

/// A partition with its seed nodes.
#[derive(Debug, Clone)]
pub struct Seeded {
    /// The adjacency lists that the partition sees.
    pub view: ViewSource,
    /// Nodes that the partition owns.
    pub seeds: Arc<SeedNodes>,
    /// The time of each seed, if the sampler needs times.
    pub times: Option<Arc<Vec<i64>>>,
    /// The end of each batch among the seeds or positives, if batches are listed. Otherwise, [`Division`] divides them.
    pub batches: Option<Arc<Vec<u64>>>,
    /// Edges whose destinations are among these, if minibatches are of links. They count as the seeds then.
    pub positives: Option<Arc<Positives>>,
}

/// A partition of an epoch, as one of several workers has it.
#[derive(Debug, Clone)]
pub enum Part {
    /// This worker serves it.
    Served(Seeded),
    /// Another worker serves it. Only the number of its seeds is known here: the steps of its group depend on it.
    Elsewhere {
        /// Number of its seeds.
        seeds: u64,
    },
}

impl Part {
    /// The partition with its seed nodes, if this worker serves it.
    pub fn served(&self) -> Option<&Seeded> {
        match self {
            Self::Served(seeded) => Some(seeded),
            Self::Elsewhere { .. } => None,
        }
    }

    pub(crate) fn served_mut(&mut self) -> Option<&mut Seeded> {
        match self {
            Self::Served(seeded) => Some(seeded),
            Self::Elsewhere { .. } => None,
        }
    }

    /// The end of each batch among its seeds, if batches are listed.
    pub(crate) fn listed_batches(&self) -> Option<&[u64]> {
        self.served().and_then(|seeded| seeded.batches.as_ref()).map(|ends| &ends[..])
    }

    /// Number of its seeds.
    pub fn seeds(&self) -> u64 {
        match self {
            Self::Served(seeded) => match &seeded.positives {
                Some(positives) => positives.len(),
                None => seeded.seeds.len(),
            },
            Self::Elsewhere { seeds } => *seeds,
        }
    }
}

impl From<Seeded> for Part {
    fn from(seeded: Seeded) -> Self {
        Self::Served(seeded)
    }
}

/// How the seeds of a partition are divided among batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Division {
    /// The sizes of two batches differ by at most one.
    #[default]
    Even,
    /// All batches but the last one have [`MinibatchOptions::batch`](super::MinibatchOptions::batch) seeds.
    Full,
    /// As `Full`, without a smaller last batch.
    OnlyFull,
}

impl Division {
    /// The number of batches of at most `size` seeds.
    pub(crate) fn batches(self, seeds: u64, size: u64) -> u64 {
        match self {
            Self::Even | Self::Full => seeds.div_ceil(size),
            Self::OnlyFull => seeds / size,
        }
    }

    /// The seeds of batch `batch`, as indices, if `seeds` seeds are divided among `batches` batches.
    pub(crate) fn share(self, seeds: u64, size: u64, batch: u64, batches: u64) -> Range<u64> {
        let [start, end] = [batch, batch + 1].map(|batch| match self {
            // The product may exceed 64 bits.
            Self::Even => (u128::from(seeds) * u128::from(batch) / u128::from(batches)) as u64,
            Self::Full => batch.saturating_mul(size).min(seeds),
            Self::OnlyFull => batch.saturating_mul(size).min(seeds / size * size),
        });
        start..end
    }
}
