//! A flipped byte of adjacency lists or edge weights is an error with file and offset, or does not change any
//! minibatch. This holds for every view, read engine and block size.

use std::collections::BTreeSet;

use grappa_io::read::Choice;
use grappa_storage::Store;

use super::*;
use crate::{
    partition::Owned,
    view::{ViewOptions, tests::edge_data},
};

/// Kinds of view, with read engines.
const WAYS: [(ViewKind, Choice); 3] =
    [(ViewKind::Memory, Choice::Auto), (ViewKind::Memory, Choice::Pread), (ViewKind::Mapped, Choice::Auto)];

fn samplers() -> [Sampler; 3] {
    let walks = RandomWalks { hops: 1, walks: 5, steps: 2, termination: 0.3, neighbors: 3 };
    [
        Sampler::by_weight(fanouts("-1"), false),
        Sampler::uniform(fanouts("4,-1"), false),
        Sampler::random_walks(walks).unwrap(),
    ]
}

/// Minibatches of all owned nodes.
fn sampled(store: &Store, owned: &Owned, way: (ViewKind, Choice)) -> Result<Vec<Minibatch>> {
    let mapped_bytes_max = (way.0 == ViewKind::Mapped).then_some(u64::MAX);
    let options = ViewOptions {
        edge_data: edge_data(true),
        mapped_bytes_max,
        threads: 2,
        engine: way.1,
        ..ViewOptions::default()
    };
    let view = PartitionView::open(store, owned.clone(), &options)?;
    let seeds = nodes(owned.runs().iter().cloned().flatten());
    let batches = samplers().into_iter().flat_map(|sampler| {
        let sample = |(batch, seeds)| sample(&sampler, &view, seeds, batch);
        (0..).zip(seeds.chunks(100)).map(sample).collect::<Vec<_>>()
    });
    batches.collect()
}

/// Flips some bytes of each file of adjacency lists, and checks the minibatches or errors of samplers.
fn flips_are_found(store: &Store) {
    let whole = Owned::whole(store);
    let part = view::tests::owning(store, &[2, 0]);
    let sound = [&whole, &part].map(|owned| sampled(store, owned, WAYS[0]).unwrap());
    let mut found = BTreeSet::new();
    for file in ["edges", "degrees", "weights"] {
        for chunk in [0, 2] {
            let name = format!("chunk-{chunk}/{file}");
            let path = store.path().join(&name);
            let payload = grappa_forge::payload_of(&path);
            let length = payload.end - payload.start;
            for at in [0, length / 3, length / 2, length * 3 / 4, length - 9] {
                let offset = payload.start + at;
                let message = grappa_forge::message_about(&path, offset);
                grappa_forge::with_flip(&path, offset, || {
                    for way in WAYS {
                        for (owned, sound) in [&whole, &part].into_iter().zip(&sound) {
                            match sampled(store, owned, way) {
                                Ok(minibatches) => assert!(minibatches == *sound, "{way:?} {name} {offset}"),
                                Err(error) => {
                                    let error = error.to_string();
                                    assert!(error.contains(&message), "{way:?}: {error}, not {message}");
                                    found.insert((file, format!("{way:?}"), owned.nodes()));
                                }
                            }
                        }
                    }
                });
            }
        }
    }
    // At least one flip was found in each way, in each file, in the whole graph and in a partition.
    assert_eq!(found.len(), 3 * WAYS.len() * 2);
}

#[test]
fn a_flipped_byte_is_found_before_it_is_sampled() {
    for graph in [Graph::mixed(3000), Graph::local(6000)] {
        let nodes = graph.nodes();
        let store = graph.store_with(vec![0, nodes / 2, nodes / 2 + 100, nodes], true);
        flips_are_found(&store.store);
    }
}

#[test]
fn a_flipped_byte_is_found_in_files_with_any_blocks() {
    for block_bytes in [64 << 10, 1000, 1 << 20] {
        let store = Graph::mixed(3000).store_with(vec![0, 1500, 1600, 3000], true);
        grappa_forge::rewrite_all(store.store.path(), block_bytes);
        flips_are_found(&Store::open(store.store.path()).unwrap());
    }
}

#[test]
fn a_flipped_byte_of_the_checksum_table_is_found_before_it_is_used() {
    let store = Graph::mixed(3000).store_with(vec![0, 1500, 1600, 3000], true);
    let store = &store.store;
    let owned = Owned::whole(store);
    for file in ["edges", "degrees", "weights"] {
        let path = store.path().join(format!("chunk-2/{file}"));
        let table = grappa_forge::payload_of(&path).end;
        grappa_forge::with_flip(&path, table + 3, || {
            for way in WAYS {
                let error = sampled(store, &owned, way).unwrap_err().to_string();
                let expected = format!("{}: checksum table at offset {table}: checksum is", path.display());
                assert!(error.contains(&expected), "{way:?}: {error}");
            }
        });
    }
}
