//! Tests of `schedule`.

use std::collections::HashSet;

use grappa_formats::ChunkId;

use super::*;

fn dealt(sizes: &[u64], balanced: bool, partitions: u32, seed: u64, super_epoch: u64) -> Vec<u32> {
    let dealt = deal(sizes, balanced, partitions, seed, super_epoch);
    dealt.into_iter().map(|partition| partition.0).collect()
}

fn uneven(chunks: u64) -> Vec<u64> {
    (0..chunks).map(|i| 1000 + i * i % 97 * 50).collect()
}

fn assign(schedule: Schedule, chunks: u64, partitions: u32, seed: u64, super_epoch: u64) -> Assignment {
    let sizes: Vec<_> = uneven(chunks).into_iter().map(Some).collect();
    assignment(schedule, std::slice::from_ref(&sizes), partitions, seed, super_epoch, 1).unwrap()
}

fn owners(assignment: &Assignment) -> Vec<(u32, Option<u32>)> {
    (0..assignment.chunks())
        .map(|chunk| {
            let owners = assignment.owners(ChunkId(chunk));
            (owners.base.expect("every chunk has a base").0, owners.variable.map(|p| p.0))
        })
        .collect()
}

fn bases(assignment: &Assignment) -> Vec<u32> {
    owners(assignment).into_iter().map(|(base, _)| base).collect()
}

#[test]
fn every_chunk_is_in_one_base_and_dealt_bases_differ_by_at_most_one_chunk() {
    for schedule in Schedule::ALL {
        for (chunks, partitions) in [(1, 1), (2, 2), (3, 2), (5, 5), (64, 16), (65, 16), (79, 16)] {
            let assignment = assign(schedule, chunks, partitions, 3, 5);
            assignment.check_owners().unwrap();
            assert_eq!(assignment.schedule(), schedule.name());
            let mut chunks_of = vec![0u64; partitions as usize];
            bases(&assignment).iter().for_each(|&base| chunks_of[base as usize] += 1);
            let (least, most) = match schedule {
                Schedule::Local => (1, chunks),
                _ => (chunks / u64::from(partitions), chunks.div_ceil(u64::from(partitions))),
            };
            assert!(chunks_of.iter().all(|n| (least..=most).contains(n)), "{chunks_of:?}");
        }
    }
}

#[test]
fn a_sweep_brings_each_pair_of_partitions_together_once_in_each_direction() {
    for partitions in [2, 3, 7, 16] {
        for start in [0, 5] {
            let mut met = HashSet::new();
            let first = bases(&assign(Schedule::Sweep, 40, partitions, 9, 0));
            for super_epoch in start..start + u64::from(partitions) - 1 {
                let assignment = assign(Schedule::Sweep, 40, partitions, 9, super_epoch);
                assert_eq!(bases(&assignment), first, "the bases stay");
                let pairs: HashSet<_> = owners(&assignment)
                    .into_iter()
                    .map(|(base, variable)| (variable.expect("every chunk has a variable part"), base))
                    .collect();
                assert_eq!(pairs.len(), partitions as usize, "each partition has another variable part");
                for pair in pairs {
                    assert!(met.insert(pair), "{pair:?} of {partitions} meet twice");
                }
            }
            assert_eq!(met.len(), (partitions * (partitions - 1)) as usize);
        }
    }
}

#[test]
fn two_partitions_of_a_sweep_see_everything() {
    let assignment = assign(Schedule::Sweep, 6, 2, 1, 3);
    for (i, j) in (0..6).flat_map(|i| (0..6).map(move |j| (ChunkId(i), ChunkId(j)))) {
        let seen = assignment.bucket(i, j);
        assert!(seen.base.is_some() && seen.variable.is_some(), "({i}, {j})");
    }
}

#[test]
fn the_chunks_of_a_slice_are_dealt_as_those_of_a_store_of_its_size() {
    for schedule in Schedule::ALL {
        let whole: Vec<_> = uneven(10).into_iter().map(Some).collect();
        let slice: Vec<_> = whole.iter().flat_map(|size| [None, *size, None]).collect();
        let try_assign =
            |sizes: &[Option<u64>], partitions| assignment(schedule, &[sizes.to_vec()], partitions, 3, 1, 1);
        let (whole, made) = (try_assign(&whole, 4).unwrap(), try_assign(&slice, 4).unwrap());
        made.check_owners().unwrap();
        let made = owners(&made);
        assert!(made.iter().skip(1).step_by(3).eq(&owners(&whole)));
        assert!(made.iter().step_by(3).all(|owners| *owners == (0, None)));
        let error = try_assign(&slice, 11).unwrap_err().to_string();
        assert!(error.contains("has 10 chunks"), "{error}");
    }
}

#[test]
fn one_partition_has_no_variable_part() {
    for schedule in Schedule::ALL {
        assert!(owners(&assign(schedule, 5, 1, 0, 7)).iter().all(|&o| o == (0, None)));
    }
}

#[test]
fn a_shuffle_groups_anew_and_a_fixed_schedule_never() {
    let shuffled: HashSet<_> = (0..20).map(|s| bases(&assign(Schedule::Shuffle, 32, 4, 1, s))).collect();
    assert_eq!(shuffled.len(), 20);
    assert!(owners(&assign(Schedule::Shuffle, 32, 4, 1, 0)).iter().all(|(_, v)| v.is_none()));
    let first = owners(&assign(Schedule::Sweep, 32, 4, 1, 0));
    for super_epoch in 0..20 {
        assert_eq!(owners(&assign(Schedule::Fixed, 32, 4, 1, super_epoch)), first);
    }
}

#[test]
fn a_local_schedule_has_bases_of_neighboring_chunks_with_similar_work() {
    let ends = |sizes: &[u64], partitions| runs(sizes, partitions).iter().map(|run| run.0).collect::<Vec<_>>();
    assert_eq!(ends(&[1; 8], 4), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(ends(&[9, 1, 1, 1], 2), [0, 1, 1, 1]);
    // Each partition has a chunk, even if one chunk has nearly all work.
    assert_eq!(ends(&[1, 1, 1, 9], 3), [0, 0, 1, 2]);
    assert_eq!(ends(&[9, 0, 0], 3), [0, 1, 2]);
    assert_eq!(ends(&[0, 0, 0], 3), [0, 1, 2]);
    // All bases meet, as under `sweep`.
    let variable =
        |super_epoch| owners(&assign(Schedule::Local, 8, 4, 0, super_epoch)).iter().map(|o| o.1).collect::<Vec<_>>();
    assert_ne!(variable(0), variable(1));
    assert_eq!(variable(0), variable(3));
}

/// Expected: 3 of 11 for each pair, 545 of 2000 super-epochs, with a standard deviation of 20.
#[test]
fn a_shuffle_brings_any_two_chunks_together_with_the_same_probability() {
    let sizes = uneven(12);
    let mut together = [[0; 12]; 12];
    for super_epoch in 0..2000 {
        let base_of = deal(&sizes, false, 3, 1, super_epoch);
        for (i, j) in (0..12).flat_map(|i| (0..i).map(move |j| (i, j))) {
            together[i][j] += u32::from(base_of[i] == base_of[j]);
        }
    }
    for (i, j) in (0..12).flat_map(|i| (0..i).map(move |j| (i, j))) {
        assert!((465..=625).contains(&together[i][j]), "{i}, {j}: {}", together[i][j]);
    }
}

#[test]
fn an_assignment_depends_on_the_seed_and_nothing_else() {
    let groups: HashSet<_> = (0..20).map(|seed| bases(&assign(Schedule::Sweep, 32, 4, seed, 0))).collect();
    assert_eq!(groups.len(), 20);
    for schedule in Schedule::ALL {
        assert_eq!(assign(schedule, 32, 4, 7, 2), assign(schedule, 32, 4, 7, 2));
    }
    // Values from an independent implementation. If they change, a resumed run becomes another run.
    assert_eq!(dealt(&[1; 10], true, 3, 42, 0), [0, 2, 1, 2, 2, 1, 2, 0, 0, 1]);
    assert_eq!(dealt(&uneven(10), true, 3, 42, 0), [2, 2, 1, 0, 1, 2, 0, 0, 1, 2]);
    assert_eq!(dealt(&uneven(10), false, 3, 42, 5), [2, 1, 1, 0, 2, 0, 1, 2, 0, 2]);
}

/// Chunks of 1000 to 5800 units. If they are dealt without regard to size, the largest of 16 partitions is 38 %
/// larger than the mean, on average.
#[test]
fn a_sweep_spreads_the_work_evenly() {
    let sizes = uneven(64);
    let mean = sizes.iter().sum::<u64>() as f64 / 16.0;
    let excess = |seed, balanced| {
        let mut load = [0u64; 16];
        for (&partition, size) in deal(&sizes, balanced, 16, seed, 0).iter().zip(&sizes) {
            load[partition.0 as usize] += size;
        }
        load.into_iter().max().unwrap() as f64 / mean - 1.0
    };
    let mean_excess = |balanced| (0..100).map(|seed| excess(seed, balanced)).sum::<f64>() / 100.0;
    assert!(mean_excess(true) < 0.12, "{}", mean_excess(true));
    assert!(mean_excess(false) > 0.3, "{}", mean_excess(false));
}

#[test]
fn names_parse_back_and_unknown_names_are_errors() {
    for schedule in Schedule::ALL {
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
    }
    let error = "Sweep".parse::<Schedule>().unwrap_err().to_string();
    assert!(error.contains("sweep, shuffle, fixed and local"), "{error}");
}

#[test]
fn too_many_partitions_and_none_are_errors() {
    let error = |partitions| {
        let error = assignment(Schedule::Sweep, &[vec![Some(5); 4]], partitions, 0, 0, 1).unwrap_err();
        error.to_string()
    };
    assert!(error(5).contains("at most 4") && error(5).contains("--chunks"), "{}", error(5));
    assert!(error(0).contains("at least 1"), "{}", error(0));
}
