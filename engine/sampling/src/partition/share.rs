//! The part of the work that one of several workers does.
//!
//! Workers divide the partitions of each step, so that all of them are busy in every step that has as many partitions.
//! A worker opens the views of its own partitions only. The division is a function of numbers that all workers know, so
//! they need not tell each other.

use std::ops::Range;

use grappa_formats::PartitionId;

/// One of several workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    worker: u32,
    workers: u32,
}

impl Share {
    /// A single worker, which does all the work.
    pub const ALL: Self = Self { worker: 0, workers: 1 };

    /// Worker `worker` of `workers`, counted from 0.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn new(worker: u32, workers: u32) -> Self {
        assert!(worker < workers, "worker {worker} of {workers}");
        Self { worker, workers }
    }

    /// The shares of all workers.
    pub fn each(workers: u32) -> impl Iterator<Item = Self> {
        (0..workers).map(move |worker| Self { worker, workers })
    }

    /// The number of this worker.
    pub fn worker(self) -> u32 {
        self.worker
    }

    /// Number of workers.
    pub fn workers(self) -> u32 {
        self.workers
    }

    /// The indices of this worker among `count` things: a contiguous range. The ranges of two workers differ by at most
    /// one in length, and the share of worker 0 is empty only if there is nothing.
    pub fn range(self, count: u64) -> Range<u64> {
        // The product may exceed 64 bits.
        let [start, end] = [self.worker, self.worker + 1]
            .map(|worker| (u128::from(count) * u128::from(worker)).div_ceil(u128::from(self.workers)));
        start as u64..end as u64
    }

    /// Whether this worker serves a partition. `concurrent` of the `partitions` take part in a step.
    ///
    /// # Panics
    /// If `concurrent` or `partitions` is 0.
    pub fn serves(self, partition: PartitionId, partitions: usize, concurrent: usize) -> bool {
        let of_step = concurrent.min(partitions) as u64;
        self.range(of_step).contains(&(u64::from(partition.0) % of_step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_divide_things_evenly() {
        for workers in 1..9 {
            for count in (0..30).chain([u64::MAX]) {
                let ranges: Vec<_> = Share::each(workers).map(|share| share.range(count)).collect();
                assert_eq!((ranges[0].start, ranges[workers as usize - 1].end), (0, count));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
                let lengths = || ranges.iter().map(|range| range.end - range.start);
                assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1, "{ranges:?}");
                assert!(count == 0 || !ranges[0].is_empty(), "{ranges:?}");
            }
        }
    }

    #[test]
    fn each_partition_has_one_worker_and_those_of_a_step_are_divided_evenly() {
        for (partitions, concurrent, workers) in [(8, 8, 3), (8, 2, 2), (7, 3, 2), (4, 2, 4), (3, 5, 2), (1, 1, 3)] {
            let workers_of = |partition| -> Vec<usize> {
                let serves = |share: &Share| share.serves(PartitionId(partition), partitions, concurrent);
                let shares: Vec<Share> = Share::each(workers).collect();
                (0..shares.len()).filter(|&worker| serves(&shares[worker])).collect()
            };
            let of_each: Vec<_> = (0..partitions as u32).map(workers_of).collect();
            assert!(of_each.iter().all(|workers| workers.len() == 1), "{of_each:?}");
            for step in of_each.chunks(concurrent) {
                let mut counts = vec![0; workers as usize];
                step.iter().for_each(|worker| counts[worker[0]] += 1);
                assert!(counts[0] > 0, "the first worker has a part in every step: {of_each:?}");
                let most = concurrent.min(partitions).div_ceil(workers as usize);
                assert!(counts.iter().all(|&count| count <= most), "{of_each:?}");
            }
        }
    }
}
