//! Tests of `hosts`.

use proptest::prelude::*;

use super::*;
use crate::partition::{Schedule, assignment};

fn chunk(i: u64) -> HeldChunk {
    HeldChunk { node_type: 0, nodes: 100 + i % 3, edges: 1000 + i * i % 97 * 50, seeds: 1 + i % 7 }
}

/// A worker with some of `count` chunks.
fn with(chunks: impl IntoIterator<Item = u64>, count: u64) -> HeldChunks {
    let mut held = vec![None; count as usize];
    chunks.into_iter().for_each(|i| held[i as usize] = Some(chunk(i)));
    held
}

fn options(schedule: Schedule, partitions: u32, super_epoch: u64) -> RepartitionOptions {
    RepartitionOptions { partitions, schedule, seed: 3, super_epoch: Some(super_epoch) }
}

#[test]
fn one_host_divides_its_chunks_as_a_store_does() {
    for held in [with(0..13, 13), with(2..9, 13)] {
        let sizes: Vec<_> = held.iter().map(|held| held.map(HeldChunk::work)).collect();
        for workers in [1, 2, 3] {
            let hosts = Hosts::one(&held, workers);
            assert_eq!(hosts, Hosts::of_workers(&vec![held.clone(); workers as usize]).unwrap());
            assert_eq!(hosts.count(), 1);
            for (schedule, super_epoch) in Schedule::ALL.into_iter().flat_map(|schedule| [(schedule, 0), (schedule, 5)])
            {
                let found = hosts.assign(&options(schedule, 5, super_epoch), 2, 9).unwrap();
                assert_eq!(found, assignment(schedule, std::slice::from_ref(&sizes), 5, 3, super_epoch, 9).unwrap());
            }
            let error = hosts.assign(&options(Schedule::Sweep, 14, 0), 2, 9).unwrap_err().to_string();
            assert_eq!(
                error,
                assignment(Schedule::Sweep, std::slice::from_ref(&sizes), 14, 3, 0, 9).unwrap_err().to_string()
            );
        }
    }
}

#[test]
fn partitions_of_a_host_have_its_chunks_and_no_others() {
    let (a, b) = (with(0..4, 12), with(4..10, 12));
    let hosts = Hosts::of_workers(&[a.clone(), b.clone(), a.clone()]).unwrap();
    assert_eq!(hosts.count(), 2);
    // With other numbers of workers, the same partitions are on the same hosts.
    let renumbered = Hosts::of_workers(&[b, a.clone(), a]).unwrap();
    assert_eq!([1, 2, 0].map(|worker| renumbered.share(worker)), [0, 2, 1].map(|worker| hosts.share(worker)));
    assert_eq!(renumbered.chunks, hosts.chunks);
    assert!(!hosts.has_all());
    assert_eq!(hosts.trained().count(), 10);
    assert_eq!(hosts.partitions_of_worker_max(), 2);
    assert_eq!([0, 1, 2].map(|worker| hosts.share_within(worker)), [Share::new(0, 2), Share::ALL, Share::new(1, 2)]);
    for (schedule, super_epoch) in Schedule::ALL.into_iter().flat_map(|schedule| [(schedule, 0), (schedule, 3)]) {
        let assignment = hosts.assign(&options(schedule, 6, super_epoch), 3, 1).unwrap();
        assignment.check_owners().unwrap();
        // In each step of three partitions, the second worker serves the last one: its host has the last chunks.
        for (chunk, _) in hosts.trained() {
            let owners = assignment.owners(chunk);
            let is_of_second = chunk.0 >= 4;
            assert_eq!(hosts.trains(1, chunk), is_of_second);
            assert_eq!(hosts.trains(2, chunk), !is_of_second);
            for partition in owners.base.into_iter().chain(owners.variable) {
                assert_eq!(partition.0 % 3 == 2, is_of_second, "{chunk}: {owners:?}");
            }
        }
        assert_eq!(renumbered.assign(&options(schedule, 6, super_epoch), 3, 1).unwrap(), assignment);
        let seeds = hosts.seeds(&assignment);
        assert!(seeds.iter().all(|&seeds| seeds > 0), "{seeds:?}");
        assert_eq!(seeds.iter().sum::<u64>(), hosts.trained().map(|(_, held)| held.seeds).sum::<u64>());
    }
}

proptest! {
    #[test]
    fn chunks_that_several_hosts_have_are_divided_evenly(first in 1..40u64, both in 0..40u64, second in 1..40u64) {
        let count = first + both + second;
        let held = [with(0..first + both, count), with(first..count, count), with(0..first + both, count)];
        let hosts = Hosts::of_workers(&held).unwrap();
        let mut work = [0; 2];
        for (chunk, held) in hosts.trained() {
            let host = usize::from(hosts.trains(1, chunk));
            prop_assert!(hosts.trains([0, 1][host], chunk) && !hosts.trains([1, 0][host], chunk));
            work[host] += held.work();
        }
        prop_assert!(hosts.has_all());
        // The first host has two workers. Chunks that only the second one has come last, so it may have more work.
        let largest = 100 + 2 + 1000 + 96 * 50;
        let own: u64 = (0..first).map(|i| chunk(i).work()).sum();
        prop_assert!(work[0] == own || work[0] <= 2 * (work[1] + largest), "{work:?}");
    }
}

#[test]
fn hosts_without_a_partition_or_with_other_chunks_are_refused() {
    let (a, b) = (with(0..4, 8), with(4..8, 8));
    let hosts = Hosts::of_workers(&[a.clone(), b.clone()]).unwrap();
    let error = |partitions, concurrent| {
        let refused = hosts.assign(&options(Schedule::Sweep, partitions, 0), concurrent, 1);
        refused.unwrap_err().to_string()
    };
    let found = error(1, 1);
    assert!(found.contains("rank 1 has 4 chunks of its own, and serves 0 of the 1 partitions"), "{found}");
    assert!(found.contains("--concurrent of at least 2"), "{found}");
    assert!(error(10, 2).contains("rank 0 has 4 chunks of its own, and serves 5"), "{}", error(10, 2));
    assert!(hosts.assign(&options(Schedule::Sweep, 0, 0), 1, 1).is_err());
    let mut other = with(3..8, 8);
    other[3] = Some(HeldChunk { edges: 1, ..chunk(3) });
    let error = Hosts::of_workers(&[b, a, other]).unwrap_err().to_string();
    assert!(error.contains("rank 1 and rank 2 have a different chunk 3"), "{error}");
}
