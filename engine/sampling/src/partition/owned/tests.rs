//! Tests of `owned`.

use grappa_formats::assignment::Owners;
use proptest::prelude::*;

use super::*;

fn by_owners(owners: &[(u32, Option<u32>)], partitions: u32) -> Assignment {
    let owners: Vec<_> = owners
        .iter()
        .map(|&(base, variable)| Owners { base: PartitionId(base), variable: variable.map(PartitionId) })
        .collect();
    Assignment::from_owners(1, partitions, "sweep", &owners)
}

proptest! {
    #[test]
    fn local_ids_number_the_owned_nodes_in_order(
        lengths in prop::collection::vec(0..6u64, 1..20),
        picks in prop::collection::vec((0..3u32, prop::option::of(1..3u32)), 20),
    ) {
        let mut starts = vec![0];
        lengths.iter().for_each(|length| starts.push(starts[starts.len() - 1] + length));
        let map = ChunkMap::from_starts(starts).unwrap();
        // The variable part belongs to another partition: `further` partitions after the base.
        let owners: Vec<_> = picks[..lengths.len()]
            .iter()
            .map(|&(base, further)| (base, further.map(|further| (base + further) % 3)))
            .collect();
        let assignment = by_owners(&owners, 3);
        let split: RoaringTreemap = (0..map.nodes()).step_by(3).collect();
        let mut seeds_of_all = Vec::new();
        for partition in 0..3 {
            let owned = Owned::among(&assignment, &map, |_| true, PartitionId(partition));
            let owns = |chunk: ChunkId| {
                let (base, variable) = owners[chunk.0 as usize];
                base == partition || variable == Some(partition)
            };
            let mut next = 0;
            for node in (0..map.nodes()).map(NodeId) {
                let expected = owns(map.chunk_of(node)).then_some(LocalId(next));
                prop_assert_eq!(owned.local(node), expected);
                prop_assert_eq!(owned.contains(node), expected.is_some());
                prop_assert_eq!(owned.has_seed(node), owners[map.chunk_of(node).0 as usize].0 == partition);
                next += u64::from(expected.is_some());
            }
            prop_assert_eq!(owned.nodes(), next);
            let of_runs: Vec<_> = owned.runs().iter().cloned().flatten().collect();
            let contained: Vec<_> = (0..map.nodes()).filter(|&node| owned.contains(NodeId(node))).collect();
            prop_assert_eq!(of_runs, contained);
            prop_assert!(owned.runs().windows(2).all(|pair| pair[0].end < pair[1].start), "not merged");
            prop_assert!(owned.runs().iter().all(|run| !run.is_empty()));
            let all: Vec<_> = owned.chunks().collect();
            let mut both = [owned.base(), owned.variable()].concat();
            both.sort();
            prop_assert_eq!(&all, &both);
            prop_assert!(all.iter().all(|&chunk| owns(chunk)));
            let all: Vec<_> = owned.base().iter().flat_map(|&chunk| map.range(chunk)).map(NodeId).collect();
            prop_assert!(owned.all_seeds().iter().eq(all));
            let seeds: Vec<_> = owned.seeds(&split).iter().collect();
            prop_assert!(seeds.is_sorted());
            prop_assert_eq!(owned.seed_count(&split), seeds.len() as u64);
            prop_assert!(seeds.iter().all(|&seed| owners[map.chunk_of(seed).0 as usize].0 == partition));
            seeds_of_all.extend(seeds.iter().map(|seed| seed.0));
        }
        seeds_of_all.sort_unstable();
        prop_assert_eq!(seeds_of_all, split.iter().collect::<Vec<_>>(), "each node is a seed once");
    }
}

#[test]
fn one_partition_owns_everything_under_the_same_ids() {
    let map = ChunkMap::uniform(1 << 40, 64);
    let owned = Owned::among(&Assignment::whole(64), &map, |_| true, PartitionId(0));
    assert_eq!((owned.runs().len(), owned.runs()[0].clone()), (1, 0..1 << 40));
    let last = (1 << 40) - 1;
    assert_eq!(owned.local(NodeId(last)), Some(LocalId(last)));
}

#[test]
fn nobody_owns_a_chunk_that_a_slice_lacks() {
    let map = ChunkMap::uniform(12, 4);
    let owned = Owned::among(&Assignment::whole(4), &map, |chunk| chunk.0 % 2 == 1, PartitionId(0));
    assert_eq!((owned.base(), owned.nodes()), (&[ChunkId(1), ChunkId(3)][..], 6));
    assert_eq!((owned.local(NodeId(2)), owned.local(NodeId(9))), (None, Some(LocalId(3))));
    assert!(owned.all_seeds().iter().eq([3, 4, 5, 9, 10, 11].map(NodeId)));
}

#[test]
fn a_partition_may_own_nothing() {
    let map = ChunkMap::uniform(9, 3);
    let owned = Owned::among(&by_owners(&[(0, None); 3], 2), &map, |_| true, PartitionId(1));
    assert_eq!((owned.nodes(), owned.runs().len()), (0, 0));
    assert_eq!(owned.local(NodeId(4)), None);
}
