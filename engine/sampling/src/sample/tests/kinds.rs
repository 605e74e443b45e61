//! Minibatches do not depend on the kind of view, on the number of threads, or on other threads that sample.

use grappa_formats::ChunkId;
use proptest::prelude::*;

use super::*;
use crate::{partition::Owned, view::tests::graph::TestStore};

/// Samplers of all methods.
fn samplers() -> Vec<Sampler> {
    let walks = |neighbors| RandomWalks { hops: 2, walks: 10, steps: 3, termination: 0.3, neighbors };
    vec![
        Sampler::uniform(fanouts("15,10,5"), false),
        Sampler::uniform(fanouts("4,-1"), false),
        Sampler::uniform(fanouts("100,3"), false),
        Sampler::uniform(fanouts("7,7"), true),
        Sampler::by_weight(fanouts("5,5"), false),
        Sampler::by_weight(fanouts("3,9"), true),
        Sampler::by_weight(fanouts("-1"), false),
        Sampler::random_walks(walks(3)).unwrap(),
        Sampler::random_walks(walks(100)).unwrap(),
    ]
}

fn stores() -> Vec<(Graph, TestStore)> {
    [Graph::mixed(3000), Graph::local(3000)]
        .map(|graph| {
            let store = graph.store_with(vec![0, 500, 500, 777, 1400, 1500, 3000], true);
            (graph, store)
        })
        .into()
}

/// Several ownerships of partition 0: everything, one chunk, and chunks that are not adjacent.
fn owned(store: &TestStore) -> [Owned; 3] {
    [&[0, 1, 2, 3, 4, 5][..], &[3], &[5, 0, 2]].map(|chunks| view::tests::owning(&store.store, chunks))
}

fn seeds_of(owned: &Owned, step: usize) -> Vec<NodeId> {
    let all = owned.runs().iter().cloned().flatten();
    nodes(all.step_by(step))
}

#[test]
fn both_kinds_of_view_give_the_same_minibatches() {
    for (_, store) in stores() {
        for owned in owned(&store) {
            for halo in Halo::ALL {
                let [memory, mapped] = view::tests::KINDS
                    .map(|kind| view::tests::view(&store.store, owned.clone(), halo, true, kind).unwrap());
                for sampler in samplers() {
                    let seeds = seeds_of(&owned, 17);
                    let minibatch = sample(&sampler, &memory, &seeds, 4).unwrap();
                    assert!(minibatch.edges() > 0);
                    assert!(
                        minibatch == sample(&sampler, &mapped, &seeds, 4).unwrap(),
                        "{} runs, halo {halo}, {sampler:?}",
                        owned.runs().len()
                    );
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_makes_no_difference() {
    let (_, store) = &stores()[0];
    let view = view::tests::whole(&store.store, true, ViewKind::Mapped).unwrap();
    for sampler in samplers() {
        let seeds = |batch: u64| nodes((0..40).map(|i| (batch * 40 + i) * 11 % 3000));
        let alone: Vec<_> = (0..12).map(|batch| sample(&sampler, &view, &seeds(batch), batch).unwrap()).collect();
        // Each of three threads takes every third batch, from the last to the first, with its own scratch.
        let together: Vec<_> = std::thread::scope(|scope| {
            let work = |thread: u64| {
                let (view, sampler, seeds) = (&view, &sampler, &seeds);
                scope.spawn(move || {
                    let mut scratch = Scratch::default();
                    let mut made = Vec::new();
                    for batch in (0..12).rev().filter(|batch| batch % 3 == thread) {
                        let mut out = Minibatch::default();
                        sampler.sample(view, &seeds(batch), key(batch), &mut scratch, &mut out).unwrap();
                        made.push((batch, out));
                    }
                    made
                })
            };
            let threads: Vec<_> = (0..3).map(work).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(together.len(), alone.len());
        for (batch, minibatch) in together {
            assert!(minibatch == alone[batch as usize], "batch {batch} of {sampler:?}");
        }
    }
}

#[test]
fn a_partition_that_owns_everything_samples_as_the_whole_graph() {
    let (_, store) = &stores()[0];
    let all = view::tests::owning(&store.store, &[0, 1, 2, 3, 4, 5]);
    let whole = view::tests::whole(&store.store, true, ViewKind::Memory).unwrap();
    for halo in Halo::ALL {
        let part = view::tests::view(&store.store, all.clone(), halo, true, ViewKind::Memory).unwrap();
        for sampler in samplers() {
            let seeds = nodes((0..3000).step_by(19));
            assert!(sample(&sampler, &part, &seeds, 1).unwrap() == sample(&sampler, &whole, &seeds, 1).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_graph_and_partition_sample_the_same_in_both_kinds(
        lists in prop::collection::vec(prop::collection::vec(0..60u64, 0..90), 60),
        cuts in prop::collection::vec(0..60u64, 5),
        owns in prop::collection::vec(any::<bool>(), 6),
        halo in prop::sample::select(Halo::ALL.to_vec()),
        batch in 0..1000u64,
    ) {
        let graph = Graph::new(60, |node| lists[node as usize].clone());
        let mut starts = [vec![0], cuts, vec![60]].concat();
        starts.sort_unstable();
        let store = graph.store_with(starts, true);
        let chunks: Vec<u32> = (0..6).filter(|&chunk| owns[chunk as usize]).collect();
        let owned = view::tests::owning(&store.store, &chunks);
        let [memory, mapped] = view::tests::KINDS
            .map(|kind| view::tests::view(&store.store, owned.clone(), halo, true, kind).unwrap());
        for sampler in samplers() {
            let minibatch = sample(&sampler, &memory, &seeds_of(&owned, 2), batch).unwrap();
            prop_assert_eq!(&minibatch, &sample(&sampler, &mapped, &seeds_of(&owned, 2), batch).unwrap());
        }
    }

    #[test]
    fn damaged_files_never_panic(
        local in any::<bool>(),
        file in prop::sample::select(vec!["edges", "degrees", "weights"]),
        chunk in 0..3u32,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let graph = if local { Graph::local(700) } else { Graph::mixed(700) };
        let store = graph.store_with(vec![0, 200, 450, 700], true);
        let store = store.forged(&format!("chunk-{chunk}/{file}"), |payload| {
            for (index, byte) in &damage {
                let at = index.index(payload.len());
                payload[at] ^= byte;
            }
        });
        for owned in [Owned::whole(&store.store), view::tests::owning(&store.store, &[chunk])] {
            let seeds = nodes(owned.runs().iter().cloned().flatten().step_by(3));
            let view = view::tests::view(&store.store, owned, Halo::Stop, true, ViewKind::Mapped).unwrap();
            for sampler in samplers() {
                // An error or any minibatch is allowed, but no panic and no node that does not exist.
                if let Ok(minibatch) = sample(&sampler, &view, &seeds, 0) {
                    prop_assert!(minibatch.nodes.iter().all(|node| node.0 < 700));
                }
            }
            // In memory, damage is found when lists are decoded.
            let owned = view.owned().clone();
            if let Ok(view) = view::tests::view(&store.store, owned, Halo::Stop, true, ViewKind::Memory) {
                for sampler in samplers() {
                    let _ = sample(&sampler, &view, &seeds, 0);
                }
            }
        }
    }
}

#[test]
fn the_example_stores_use_both_codecs() {
    use grappa_formats::rows::RowCodec;
    let [mixed, local] = &stores()[..] else { panic!("two stores") };
    let codec = |store: &TestStore| store.store.chunk(ChunkId(3)).unwrap().rows().meta().codec;
    assert_eq!(codec(&mixed.1), RowCodec::EliasFano);
    assert!(matches!(codec(&local.1), RowCodec::Gap(_)));
}
