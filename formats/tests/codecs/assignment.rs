use grappa_formats::{
    ChunkId, PartitionId,
    assignment::{Assignment, Current, Owners, Serves},
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn tables_come_back(
        chunks in 1..20u32,
        partitions in prop_oneof![1..10u32, 65_530..65_540u32, Just(u32::MAX - 1)],
        picks in prop::collection::vec(prop::option::of((any::<u32>(), prop::option::of(any::<u32>()))), 60),
    ) {
        // Rows repeat: there are fewer picks than buckets.
        let serves = |i: ChunkId, j: ChunkId| {
            let pick = picks[(i.0 % 3 * 20 + j.0) as usize];
            let base = pick.map(|(base, _)| base % partitions);
            let variable = pick.and_then(|(_, variable)| variable).map(|v| v % partitions);
            Serves {
                base: base.map(PartitionId),
                variable: variable.filter(|v| Some(*v) != base).map(PartitionId),
            }
        };
        let assignment = Assignment::from_fn(7, chunks, partitions, "sweep", serves);
        let (file, _) = assignment.encode();
        let decoded = Assignment::decode(&file, 7, chunks).unwrap();
        prop_assert_eq!(&decoded, &assignment);
        prop_assert_eq!((decoded.generation(), decoded.chunks(), decoded.partitions(), decoded.schedule()), (7, chunks, partitions, "sweep"));
        for i in (0..chunks).map(ChunkId) {
            for j in (0..chunks).map(ChunkId) {
                prop_assert_eq!(decoded.bucket(i, j), serves(i, j));
            }
        }
    }

    #[test]
    fn a_table_follows_from_the_owners_of_chunks_and_no_other_passes(
        picks in prop::collection::vec((0..5u32, prop::option::of(1..5u32)), 1..12),
        (i, j, slot, other) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>(), 0..6u32),
    ) {
        let owners: Vec<_> = picks
            .iter()
            .map(|&(base, further)| Owners {
                base: PartitionId(base),
                variable: further.map(|further| PartitionId((base + further) % 5)),
            })
            .collect();
        let owns = |p: PartitionId, j: ChunkId| {
            let owners = owners[j.0 as usize];
            owners.base == p || owners.variable == Some(p)
        };
        let chunks = owners.len() as u32;
        let serves = |i: ChunkId, j: ChunkId| Serves {
            base: Some(owners[i.0 as usize].base).filter(|&p| owns(p, j)),
            variable: owners[i.0 as usize].variable.filter(|&p| owns(p, j)),
        };
        let assignment = Assignment::from_owners(3, 5, "sweep", &owners);
        prop_assert_eq!(&assignment, &Assignment::from_fn(3, chunks, 5, "sweep", serves));
        assignment.check_owners().unwrap();

        // Another entry anywhere off the diagonal contradicts it.
        let (i, j) = (ChunkId(i.index(owners.len()) as u32), ChunkId(j.index(owners.len()) as u32));
        let other = (other < 5).then_some(PartitionId(other));
        let tampered = |a: ChunkId, b: ChunkId| {
            let mut cell = serves(a, b);
            if (a, b) == (i, j) {
                *if slot { &mut cell.base } else { &mut cell.variable } = other;
            }
            cell
        };
        let cell = tampered(i, j);
        prop_assume!(i != j && cell != serves(i, j) && (cell.base != cell.variable || cell.base.is_none()));
        let error = Assignment::from_fn(3, chunks, 5, "sweep", tampered).check_owners().unwrap_err().to_string();
        prop_assert!(error.contains(&format!("bucket ({i}, {j})")), "{}", error);
    }

    #[test]
    fn current_names_its_generation_and_nothing_else(generation in any::<u64>(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let current = Current { generation };
        let mut line = current.encode().into_bytes();
        prop_assert_eq!(Current::decode(&line).unwrap(), current);
        let at = at.index(line.len());
        line[at] ^= flip;
        prop_assert!(Current::decode(&line).is_err());
        line[at] ^= flip;
        prop_assert!(Current::decode(&line[..at]).is_err());
    }
}

#[test]
fn a_store_of_4096_chunks_that_is_not_partitioned_costs_32_kib() {
    let assignment = Assignment::whole(4096);
    let (file, _) = assignment.encode();
    assert!(file.len() < 33 << 10, "{} bytes", file.len());
    assert_eq!(assignment, Assignment::decode(&file, 0, 4096).unwrap());
    let everything = Serves { base: Some(PartitionId(0)), variable: None };
    assert_eq!(assignment.bucket(ChunkId(17), ChunkId(4095)), everything);
    assert_eq!(assignment, Assignment::from_fn(0, 4096, 1, "whole", |_, _| everything));
}

#[test]
fn a_chunk_without_a_base_is_an_error() {
    let no_base = |i: ChunkId, _| Serves { base: (i.0 != 2).then_some(PartitionId(0)), variable: None };
    let error = Assignment::from_fn(1, 3, 1, "sweep", no_base).check_owners().unwrap_err();
    assert!(error.to_string().contains("chunk 2 is in the base of no partition"), "{error}");
}
