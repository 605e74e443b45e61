//! The division of seeds among steps.

use std::collections::{BTreeMap, BTreeSet};

use grappa_formats::PartitionId;

use super::*;
use crate::{
    partition::{Owned, Share},
    sample::{Fanouts, Join, JoinScratch, Sampler, Scratch},
    shape::GraphShape,
    view::{PartitionView, ViewOptions, ViewSource},
};

/// Parts of a graph with some seeds each.
fn parts(seeds: &[&[u64]]) -> Vec<Part> {
    let folder = tempfile::tempdir().unwrap();
    parts_of(&stored(folder.path(), FeatureDtype::F32, 4), seeds)
}

fn parts_of(store: &Store, seeds: &[&[u64]]) -> Vec<Part> {
    let view = Arc::new(PartitionView::open(store, Owned::whole(store), &ViewOptions::default()).unwrap());
    let part = |seeds: &&[u64]| {
        Part::Served(Seeded {
            view: ViewSource::Open(view.clone()),
            seeds: Arc::new(seeds.iter().copied().map(NodeId).collect::<Vec<_>>().into()),
            times: None,
            batches: None,
            positives: None,
        })
    };
    seeds.iter().map(part).collect()
}

fn batches(parts: &[Part], batch: usize, concurrent: usize, shuffle: bool) -> PartitionBatches {
    PartitionBatches::new(parts.to_vec(), options_of(batch, shuffle), concurrent, 0)
}

/// All minibatches of a step in one batch.
fn joined(parts: &[Part], batch: usize, concurrent: usize, join: Join) -> PartitionBatches {
    let options = MinibatchOptions { join_steps: Some(join), ..options_of(batch, true) };
    PartitionBatches::new(parts.to_vec(), options, concurrent, 0)
}

fn options_of(batch: usize, shuffle: bool) -> MinibatchOptions {
    MinibatchOptions {
        batch,
        shuffle,
        ..MinibatchOptions::new(Sampler::uniform(Fanouts::new(&[3, 2]).unwrap(), false))
    }
}

#[test]
fn seeds_are_divided_evenly_among_the_steps_of_a_group() {
    let (many, some, few): (Vec<u64>, Vec<u64>, Vec<u64>) =
        ((0..103).collect(), (200..240).collect(), (300..302).collect());
    let parts = parts(&[&many, &some, &few, &[]]);
    for (concurrent, steps) in [(4, 11), (1, 11 + 4 + 1), (2, 11 + 1), (3, 11)] {
        for shuffle in [false, true] {
            let batches = batches(&parts, 10, concurrent, shuffle);
            assert_eq!(batches.steps(), steps, "{concurrent} at a time");
            assert!((batches.seeds_per_step() - 145.0 / steps as f64).abs() < 1e-9);
            let (mut seen, mut sizes) = (Vec::new(), BTreeMap::new());
            let mut scratch = Default::default();
            let mut minibatch = Minibatch::default();
            for index in 0..batches.batches() {
                let &[place] = batches.places(index) else {
                    panic!("batch {index} is one minibatch");
                };
                batches.sample(index, &mut scratch, std::slice::from_mut(&mut minibatch)).unwrap();
                let seeds = &minibatch.nodes[..minibatch.seeds];
                assert!((1..=10).contains(&seeds.len()), "{place:?}: {}", seeds.len());
                assert_eq!(seeds.len(), batches.seeds_of(place));
                seen.extend(seeds.iter().map(|node| node.0));
                sizes.entry(place.partition).or_insert_with(Vec::new).push(seeds.len());
            }
            seen.sort_unstable();
            assert_eq!(seen, [&many[..], &some, &few].concat());
            for (partition, sizes) in sizes {
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                assert!(most - least <= 1, "{partition}: {sizes:?}");
            }
        }
    }
    assert_eq!(batches(&parts, 10, 4, false).first(3).batches(), 3);
    assert_eq!(batches(&parts[3..], 10, 1, false).steps(), 0);
}

/// The seeds of each minibatch, with its place.
fn seeds(batches: &PartitionBatches) -> Vec<(BatchPlace, Vec<u64>)> {
    let mut scratch = Default::default();
    let sample = |index| {
        let mut minibatch = Minibatch::default();
        batches.sample(index, &mut scratch, std::slice::from_mut(&mut minibatch)).unwrap();
        let seeds = minibatch.nodes[..minibatch.seeds].iter().map(|node| node.0);
        (batches.places(index)[0], seeds.collect())
    };
    (0..batches.batches()).map(sample).collect()
}

#[test]
fn workers_divide_the_minibatches_of_each_step() {
    let (many, some, few): (Vec<u64>, Vec<u64>, Vec<u64>) =
        ((0..200).collect(), (200..300).collect(), (300..310).collect());
    let parts = parts(&[&many, &some, &few]);
    for concurrent in [1, 2, 3, 4] {
        let epoch = |parts| PartitionBatches::new(parts, options_of(10, true), concurrent, 0);
        let whole = epoch(parts.clone());
        for workers in [1, 2, 3, 5] {
            let of_share = |share: Share| {
                let part = |(partition, part): (u32, &Part)| match share.serves(PartitionId(partition), 3, concurrent) {
                    true => part.clone(),
                    false => Part::Elsewhere { seeds: part.seeds() },
                };
                let known: Vec<Part> = (0..).zip(&parts).map(part).collect();
                // What the division into steps depends on is known to all.
                let all = epoch(known.clone());
                let counts = |batches: &PartitionBatches| (batches.steps(), batches.batches(), batches.seeds_of_all());
                assert_eq!(counts(&all), counts(&whole));
                seeds(&all.served())
            };
            let shares: Vec<_> = Share::each(workers).map(of_share).collect();
            let most = concurrent.min(3).div_ceil(workers as usize);
            for share in &shares {
                let same_step = share.chunk_by(|(a, _), (b, _)| a.step == b.step);
                assert!(same_step.map(<[_]>::len).all(|minibatches| minibatches <= most));
            }
            let mut all = shares.concat();
            all.sort_by_key(|(place, _)| (place.step, place.partition.0));
            assert_eq!(all, seeds(&whole), "{concurrent} partitions, {workers} workers");
        }
    }
}

#[test]
fn workers_that_serve_the_same_partitions_take_consecutive_batches() {
    let (many, few): (Vec<u64>, Vec<u64>) = ((0..203).collect(), (300..302).collect());
    let parts = parts(&[&many, &few]);
    for workers in [1, 2, 5, 30] {
        let of_share = |share| seeds(&batches(&parts, 10, 1, false).of_share(share));
        let shares: Vec<_> = Share::each(workers).map(of_share).collect();
        assert_eq!(shares.concat(), seeds(&batches(&parts, 10, 1, false)), "{workers} workers");
        let joined =
            Share::each(workers).map(|share| joined(&parts, 10, 2, Join::SharedInput).of_share(share).batches());
        assert_eq!(joined.sum::<u64>(), 21);
    }
}

#[test]
fn full_batches_leave_the_rest_to_a_smaller_one_or_drop_it() {
    let sizes = |count: u64, division| {
        let nodes: Vec<u64> = (0..count).collect();
        let options = MinibatchOptions { division, ..options_of(10, false) };
        let batches = PartitionBatches::new(parts(&[&nodes]), options, 1, 0);
        seeds(&batches).iter().map(|(_, seeds)| seeds.len()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(24, Division::Full), [10, 10, 4]);
    assert_eq!(sizes(24, Division::OnlyFull), [10, 10]);
    assert_eq!(sizes(24, Division::Even), [8, 8, 8]);
    assert_eq!(sizes(20, Division::Full), sizes(20, Division::OnlyFull));
    assert!(sizes(9, Division::OnlyFull).is_empty());
}

#[test]
fn listed_batches_are_taken_as_they_are() {
    let mut parts = parts(&[&[4, 9, 4, 4, 7, 1]]);
    let Part::Served(seeded) = &mut parts[0] else { panic!("another worker serves it") };
    seeded.batches = Some(Arc::new(vec![2, 3, 6]));
    let listed = batches(&parts, 2, 1, false);
    let found: Vec<_> = seeds(&listed).into_iter().map(|(_, seeds)| seeds).collect();
    assert_eq!(found, [&[4, 9][..], &[4], &[4, 7, 1]]);
    assert_eq!((listed.steps(), listed.seeds_of_all(), listed.nodes_min()), (3, 6, 3));
    assert_eq!(listed.nodes_max(), NODES + 3, "node 4 may be in a batch twice");
}

#[test]
fn disjoint_seeds_have_the_neighborhoods_of_their_own() {
    let (mut scratch, mut batch) = (Default::default(), Minibatch::default());
    let all: Vec<u64> = (0..NODES).collect();
    batches(&parts(&[&all]), all.len(), 1, false).sample(0, &mut scratch, std::slice::from_mut(&mut batch)).unwrap();
    let degrees = &batch.blocks[0].global[..batch.seeds];
    let hub = (0..).zip(degrees).max_by_key(|(_, degree)| **degree).expect("there are nodes").0;
    let seeds = [hub, hub ^ 1, hub];

    let options = MinibatchOptions { disjoint: true, ..options_of(4, false) };
    let batches = PartitionBatches::new(parts(&[&seeds, &[7]]), options, 1, 0);
    batches.sample(0, &mut scratch, std::slice::from_mut(&mut batch)).unwrap();
    assert_eq!(batch.nodes[..batch.seeds], seeds.map(NodeId));
    // The seed of each node, by the edges from it.
    let mut seed_of: Vec<Option<u32>> = (0..3).map(Some).collect();
    seed_of.resize(batch.nodes.len(), None);
    for block in &batch.blocks {
        for destination in 0..block.destinations {
            let seed = seed_of[destination].expect("a destination is reached before it draws");
            for &source in &block.indices[block.edges_of(destination)] {
                assert_eq!(*seed_of[source as usize].get_or_insert(seed), seed, "an edge joins two seeds");
            }
        }
    }
    let nodes_of = |seed| {
        let nodes = batch
            .nodes
            .iter()
            .zip(&seed_of)
            .filter(|(_, seed_index)| **seed_index == Some(seed))
            .map(|(node, _)| *node);
        nodes.collect::<Vec<_>>()
    };
    for seed in 0..3 {
        assert_eq!(
            BTreeSet::from_iter(nodes_of(seed)).len(),
            nodes_of(seed).len(),
            "a node is there once for each seed"
        );
    }
    assert!((0..3).map(|seed| nodes_of(seed).len()).sum::<usize>() == batch.nodes.len());
    assert_ne!(nodes_of(0)[1..], nodes_of(2)[1..], "the same seed draws anew");
    assert_eq!(batches.nodes_max(), 3 * NODES);
}

#[test]
fn an_epoch_of_few_steps_takes_other_seeds_each_time_from_all_groups() {
    let (many, some, few): (Vec<u64>, Vec<u64>, Vec<u64>) =
        ((0..200).collect(), (200..300).collect(), (300..310).collect());
    let parts = parts(&[&many, &some, &few]);
    let epoch = |steps_max, epoch, concurrent| {
        let options = MinibatchOptions { steps_max, ..options_of(10, true) };
        PartitionBatches::new(parts.clone(), options, concurrent, epoch)
    };
    // Groups of 20, 10 and 1 steps, or of 20 and 1.
    for (concurrent, all) in [(1, 31), (2, 21)] {
        let whole = epoch(None, 0, concurrent);
        assert_eq!(whole.steps(), all);
        for steps in 0..=all {
            let batches = epoch(Some(steps), 0, concurrent);
            assert_eq!(batches.steps(), steps);
            let (taken, offered) = (seeds(&batches), seeds(&whole));
            // The minibatches of the whole epoch, as far as each group gets, with consecutive steps.
            assert!(taken.iter().all(|(place, seeds)| {
                let same =
                    |(other, _): &&(BatchPlace, _)| (other.partition, other.batch) == (place.partition, place.batch);
                offered.iter().find(same).is_some_and(|(_, expected)| expected == seeds)
            }));
            assert!(taken.iter().map(|(place, _)| place.step).is_sorted_by(|a, b| b - a <= 1));
            let seeds: usize = taken.iter().map(|(_, seeds)| seeds.len()).sum();
            assert_eq!(batches.seeds_of_all(), seeds as u64);
            let groups: BTreeSet<u32> = taken.iter().map(|(place, _)| place.partition.0 / concurrent as u32).collect();
            assert!(steps < 10 || concurrent > 1 || groups.len() >= 2, "{steps} steps of {groups:?}");
            // A resumed epoch has the remaining steps.
            let rest = epoch(Some(steps), 0, concurrent).from_step(steps / 2);
            assert_eq!(rest.batches(), taken.iter().filter(|(place, _)| place.step >= steps / 2).count() as u64);
        }
        assert_eq!(seeds(&epoch(Some(1000), 0, concurrent)), seeds(&whole));
    }
    // In the long run every seed is as likely as any other.
    let mut counts = vec![0_u64; 310];
    const EPOCHS: u64 = 400;
    for number in 0..EPOCHS {
        let drawn = seeds(&epoch(Some(4), number, 1));
        drawn.iter().flat_map(|(_, seeds)| seeds).for_each(|&seed| counts[seed as usize] += 1);
    }
    assert_eq!(counts.iter().sum::<u64>(), EPOCHS * 40);
    let mean = (EPOCHS * 40) as f64 / 310.0;
    let (least, most) = (*counts.iter().min().unwrap() as f64, *counts.iter().max().unwrap() as f64);
    assert!(least > 0.4 * mean && most < 1.8 * mean, "{least} to {most}, and {mean} on average");
}

#[test]
fn the_batch_of_a_step_is_its_minibatches_joined() {
    let (many, some, few): (Vec<u64>, Vec<u64>, Vec<u64>) =
        ((0..60).collect(), (60..100).collect(), (100..103).collect());
    let parts = parts(&[&many, &some, &few, &[]]);
    for concurrent in [1, 2, 4] {
        let joined = |parts: &[Part]| joined(parts, 10, concurrent, Join::SharedInput);
        let (steps, separate) = (joined(&parts), batches(&parts, 10, concurrent, true));
        assert_eq!((steps.steps(), steps.batches()), (separate.steps(), separate.steps()));
        let (mut scratch, mut of_separate) = Default::default();
        let (mut next, mut shares, mut seeds_max) = (0, false, 0);
        for step in 0..steps.steps() {
            let mut minibatches = Vec::new();
            for place in steps.places(step) {
                assert_eq!((place.step, separate.places(next)), (step, &[*place][..]));
                let mut minibatch = Minibatch::default();
                separate.sample(next, &mut of_separate, std::slice::from_mut(&mut minibatch)).unwrap();
                minibatches.push(minibatch);
                next += 1;
            }
            let (mut expected, mut batch) = (Minibatch::default(), Minibatch::default());
            let (mut tables, mut join) = (Scratch::default(), JoinScratch::default());
            let (shape, out) = (GraphShape::untyped(NODES), std::slice::from_mut(&mut expected));
            Minibatch::join(&minibatches, Join::SharedInput, &shape, &mut tables, &mut join, out).unwrap();
            steps.sample(step, &mut scratch, std::slice::from_mut(&mut batch)).unwrap();
            assert_eq!(batch, expected, "step {step}, {concurrent} partitions");
            seeds_max = seeds_max.max(batch.seeds as u64);
            let distinct: BTreeSet<NodeId> = batch.nodes.iter().copied().collect();
            assert_eq!(distinct.len(), batch.nodes.len(), "the batch has each node once");
            shares |= minibatches.iter().map(|part| part.nodes.len()).sum::<usize>() > batch.nodes.len();
            // The budget has room for the parts.
            let of_parts: u64 = minibatches.iter().map(demand::minibatch_bytes).sum();
            let bytes = steps.scratch_bytes(&scratch, batch.nodes.len());
            assert!(minibatches.len() == 1 || bytes > of_parts, "{bytes} bytes with parts of {of_parts}");
            assert!(steps.scratch_bytes(&scratch, 2 * batch.nodes.len()) >= bytes);
        }
        assert_eq!(next, separate.batches());
        assert_eq!(shares, concurrent > 1, "parts have nodes in common");
        assert_eq!(steps.nodes_min(), seeds_max);
        assert_eq!(steps.nodes_max(), separate.nodes_max());
        // A resumed epoch has the remaining steps.
        let rest = joined(&parts).from_step(2);
        assert_eq!((rest.batches(), rest.places(0)), (steps.batches() - 2, steps.places(2)));
        assert_eq!(joined(&parts).first(2).batches(), 2);
    }
}

#[test]
fn a_joined_batch_has_the_features_of_every_part() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(37);
        let seeds: Vec<Vec<u64>> = (0..4).map(|part| (part * 100..part * 100 + 100).collect()).collect();
        let seeds: Vec<&[u64]> = seeds.iter().map(Vec::as_slice).collect();
        for join in [Join::SharedInput, Join::Apart] {
            let source = Arc::new(joined(&parts_of(&store, &seeds), 10, 4, join));
            let generous = options(64 << 20, 2);
            let little = with_little(&store, &*source, 20 << 10, generous.clone());
            for (owned, options) in [(&all_chunks()[..], &generous), (&[ChunkId(1)], &generous), (&[], &little)] {
                let feed = Feed::open(&store, owned, &*source, options).unwrap();
                let mut batches = 0;
                for batch in feed.epoch(&source) {
                    let batch = batch.unwrap();
                    let found = batch.features().unwrap().bytes().chunks(37 * size_of::<f32>());
                    assert_eq!(found.len(), batch.minibatch().nodes.len());
                    for (node, row) in batch.minibatch().nodes.iter().zip(found) {
                        assert_eq!(row, &rows[node.0 as usize][..], "batch {batches}, node {node}");
                    }
                    batches += 1;
                }
                assert_eq!(batches, 10);
            }
        }
    });
}

#[test]
fn every_worker_has_a_batch_in_every_step_and_the_weights_of_all_count_each_seed_alike() {
    let all = parts(&[&[1, 2, 3, 4, 5, 6, 7], &[100, 101, 102], &[200, 201]]);
    let of_worker = |worker: usize| -> Vec<Part> {
        let others = all.iter().map(|part| Part::Elsewhere { seeds: part.seeds() });
        let mut parts: Vec<Part> = others.collect();
        parts[worker] = all[worker].clone();
        parts
    };
    let (steps, seeds_per_step) = (4, 12.0 / 4.0);
    let mut counted = [0.0; 3];
    for (worker, counted) in counted.iter_mut().enumerate() {
        let batches = joined(&of_worker(worker), 2, 3, Join::Apart);
        assert_eq!((batches.steps(), batches.seeds_per_step()), (steps, seeds_per_step));
        let batches = batches.served().in_every_step(steps);
        assert_eq!((batches.batches(), batches.steps()), (steps, steps));
        let (mut scratch, mut minibatch) = (Default::default(), Minibatch::default());
        for step in 0..steps {
            batches.sample(step, &mut scratch, std::slice::from_mut(&mut minibatch)).unwrap();
            assert_eq!(batches.places(step)[0].step, step);
            assert!(minibatch.seeds > 0, "worker {worker}, step {step}");
            let weight = batches.loss_weight(step, seeds_per_step, 3);
            let repeats = batches.places(step)[0].repeats;
            // The mean over workers of the weighted means is the sum over seeds, divided by the seeds of a mean step.
            let expected = if repeats { 0.0 } else { minibatch.seeds as f64 };
            assert!((weight / 3.0 * seeds_per_step - expected).abs() < 1e-9);
            *counted += expected;
        }
    }
    assert_eq!(counted, [7.0, 3.0, 2.0]);
    let idle = joined(&of_worker(0)[1..], 2, 3, Join::Apart).served();
    assert_eq!(idle.in_every_step(steps).batches(), 0);
}
