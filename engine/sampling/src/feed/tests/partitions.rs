//! The division of seeds among steps.

use std::collections::BTreeMap;

use grappa_io::read::Choice;

use super::*;
use crate::{
    partition::Owned,
    sample::{Fanouts, Sampler},
    view::{Halo, PartitionView, ViewKind, ViewOptions},
};

fn parts(store: &Store, seeds: &[&[u64]]) -> Vec<Seeded> {
    let options = ViewOptions {
        halo: Halo::Stop,
        edge_weights: false,
        kind: ViewKind::Memory,
        memory: 64 << 20,
        threads: 1,
        engine: Choice::Auto,
    };
    let whole = Owned::whole(store.chunks());
    let view = Arc::new(PartitionView::open(store, whole, &options).unwrap());
    let part = |seeds: &&[u64]| Seeded {
        view: view.clone(),
        seeds: Arc::new(seeds.iter().copied().map(NodeId).collect::<Vec<_>>().into()),
    };
    seeds.iter().map(part).collect()
}

fn batches(parts: &[Seeded], batch: usize, concurrent: usize, shuffle: bool) -> PartitionBatches {
    let options = EpochOptions {
        sampler: Arc::new(Sampler::uniform(Fanouts::new(&[2]).unwrap(), false)),
        batch,
        concurrent,
        seed: 1,
        epoch: 0,
        shuffle,
    };
    PartitionBatches::new(parts.to_vec(), options)
}

#[test]
fn seeds_are_divided_evenly_among_the_steps_of_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, 4);
    let (many, some, few): (Vec<u64>, Vec<u64>, Vec<u64>) =
        ((0..103).collect(), (200..240).collect(), (300..302).collect());
    let parts = parts(&store, &[&many, &some, &few, &[]]);
    for (concurrent, steps) in [(4, 11), (1, 11 + 4 + 1), (2, 11 + 1), (3, 11)] {
        for shuffle in [false, true] {
            let batches = batches(&parts, 10, concurrent, shuffle);
            assert_eq!(batches.steps(), steps, "{concurrent} at a time");
            assert!((batches.seeds_per_step() - 145.0 / steps as f64).abs() < 1e-9);
            let (mut seen, mut sizes) = (Vec::new(), BTreeMap::new());
            let mut scratch = batches.scratch();
            let mut minibatch = Minibatch::default();
            for (index, place) in batches.places().iter().enumerate() {
                batches.sample(index as u64, &mut scratch, &mut minibatch).unwrap();
                let seeds = &minibatch.nodes[..minibatch.seeds];
                assert!((1..=10).contains(&seeds.len()), "{place:?}: {}", seeds.len());
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
