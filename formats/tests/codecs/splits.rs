use grappa_formats::{NODES_MAX, splits};
use proptest::prelude::*;
use roaring::RoaringTreemap;

proptest! {
    #[test]
    fn sets_come_back(
        dense in prop::collection::btree_set(0..100_000u64, 0..500),
        wide in prop::collection::btree_set(0..NODES_MAX, 0..50),
        run in prop::option::of((0..NODES_MAX - 100_000, 1..100_000u64)),
        optimize in any::<bool>(),
    ) {
        let mut set: RoaringTreemap = dense.into_iter().chain(wide).collect();
        if let Some((start, length)) = run {
            set.insert_range(start..start + length);
        }
        if optimize {
            set.optimize();
        }
        let (file, _) = splits::encode("train", NODES_MAX, &set);
        prop_assert_eq!(splits::decode(&file, "train", NODES_MAX).unwrap(), set);
    }
}
