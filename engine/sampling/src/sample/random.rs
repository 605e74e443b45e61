//! Random numbers of minibatches. They are addressed by counter, so they do not depend on who draws them or in which
//! order.
//!
//! ```text
//! batch        = seed, epoch, partition and number of the batch, mixed one after another
//! destination  = mix(batch, hop, index of the destination in its hop)
//! draw i       = fold(destination + (i + 1) * step)
//! ```
//!
//! So the draws of a destination do not depend on earlier draws, on threads, on the kind of view, or on how
//! destinations are grouped. `mix` is SplitMix64's ([`grappa_formats::random`]). `fold` is one multiplication to 128
//! bits whose halves are combined, as in wyrand (Wang Yi, "wyhash", 2019). It takes a third of the time of `mix` and is
//! called much more often.

#[cfg(test)]
mod tests;

use grappa_formats::{PartitionId, random};

/// The step and the second factor of wyrand. Both are odd, with as many ones as zeros.
const STEP: u64 = 0xa076_1d64_78bd_642f;
const FOLD: u64 = 0xe703_7ed1_a0b4_28db;

/// Stands for the hop in the key of negatives.
const LINKS: usize = usize::MAX - 1;

/// Identifies a minibatch. With the store, the seeds and the sampler, it determines all draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchKey {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The partition that is sampled.
    pub partition: PartitionId,
    /// The number of the batch in its epoch and partition.
    pub batch: u64,
}

impl BatchKey {
    /// The key of the permutation of seeds in an epoch. It depends on the seed, the epoch and the partition.
    pub fn shuffle(&self) -> u64 {
        Self { batch: u64::MAX, ..*self }.hop(usize::MAX).0
    }

    /// The key of a seed of a batch whose seeds are sampled apart.
    pub(crate) fn of_seed(&self, number: u64) -> Self {
        Self { seed: random::combine(random::hash(self.seed), number), ..*self }
    }

    /// The key of the draws of a hop.
    pub(crate) fn hop(&self, hop: usize) -> HopKey {
        let parts = [self.epoch, self.partition.0.into(), self.batch, hop as u64];
        let start = random::hash(self.seed);
        HopKey(parts.into_iter().fold(start, random::combine))
    }
}

/// An unbiased number below `end`, which must not be 0. It depends on `seed` and `number` alone.
pub fn draw_below(seed: u64, number: u64, end: u64) -> u64 {
    HopKey(random::hash(seed)).draws(number).below(end)
}

/// The random numbers of a negative of a minibatch of links, in a round of draws.
pub(crate) fn link_draws(key: BatchKey, number: u64, round: u64) -> Draws {
    HopKey(random::combine(key.hop(LINKS).0, round)).draws(number)
}

/// The random numbers that follow from a key.
pub(super) fn draws(key: u64) -> Draws {
    HopKey(random::hash(key)).draws(0)
}

/// The key of the draws of a hop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HopKey(u64);

impl HopKey {
    /// The key of a relation at this hop. That of relation 0 is the key of a graph without types.
    pub(crate) fn of_relation(self, relation: usize) -> Self {
        match relation {
            0 => self,
            _ => Self(random::combine(self.0, relation as u64)),
        }
    }

    /// The draws of a destination, or of a walk, by its index at the hop.
    #[inline(always)]
    pub(super) fn draws(self, number: u64) -> Draws {
        Draws(random::draw_at(self.0, number))
    }
}

/// The keys of the draws of the destinations of a hop.
#[derive(Debug, Clone, Copy)]
pub(super) enum HopKeys<'a> {
    /// All are of one minibatch.
    Shared(HopKey),
    /// Each is of a part of a minibatch, which has a key of its own.
    Apart {
        keys: &'a [HopKey],
        /// The part of each destination, and its index among the nodes of the part.
        parts: &'a [u32],
        indices: &'a [u32],
    },
}

impl HopKeys<'_> {
    /// The draws of a destination.
    #[inline(always)]
    pub(super) fn draws(&self, destination: usize) -> Draws {
        match self {
            Self::Shared(key) => key.draws(destination as u64),
            Self::Apart { keys, parts, indices } => {
                keys[parts[destination] as usize].draws(indices[destination].into())
            }
        }
    }
}

/// An endless sequence of uniform random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Draws(u64);

impl Draws {
    /// A uniform random number.
    #[inline(always)]
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let product = u128::from(self.0) * u128::from(self.0 ^ FOLD);
        (product >> 64) as u64 ^ product as u64
    }

    /// An unbiased number below `end`, which must not be 0.
    #[inline(always)]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        random::below(end, || self.next())
    }

    /// A uniform number in (0, 1], a multiple of 2^-53.
    #[inline(always)]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}
