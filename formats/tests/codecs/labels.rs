use std::collections::BTreeSet;

use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    container::FileKind,
    labels::{Labels, LabelsMeta},
    manifest::{LabelKind, LabelSpec},
};
use proptest::prelude::*;

use crate::{
    file, open,
    samples::{PARTIAL, TARGETS},
};

fn labels_file(spec: LabelSpec, rows: usize, payload: &[u8]) -> Vec<u8> {
    let span = ChunkSpan { chunk: ChunkId(3), first_node: NodeId(1000), rows: rows as u64 };
    file(FileKind::LABELS, LabelsMeta { span, spec }.encode(), payload)
}

proptest! {
    #[test]
    fn single_labels_come_back(
        classes in prop_oneof![1..300u32, 65_000..66_000u32, Just(u32::MAX)],
        picks in prop::collection::vec(prop::option::of(any::<u32>()), 0..50),
    ) {
        let spec = LabelSpec { classes, kind: LabelKind::Single };
        let labels: Vec<Option<u32>> = picks.iter().map(|p| p.map(|p| p % classes)).collect();
        let mut payload = Vec::new();
        labels.iter().for_each(|label| spec.encode_single(*label, &mut payload));
        let file = labels_file(spec, labels.len(), &payload);
        let (header, payload) = open(&file, FileKind::LABELS);
        let reader = Labels::new(&header, payload).unwrap();
        prop_assert!(reader.check().is_ok());
        for (row, label) in labels.iter().enumerate() {
            prop_assert_eq!(reader.single(row as u64).unwrap(), *label);
        }
    }

    #[test]
    fn label_sets_come_back(
        classes in 1..40u32,
        picks in prop::collection::vec(prop::option::of(prop::collection::btree_set(0..40u32, 0..10)), 0..30),
    ) {
        let spec = LabelSpec { classes, kind: LabelKind::Multi };
        let sets: Vec<Option<BTreeSet<u32>>> =
            picks.into_iter().map(|p| p.map(|set| set.into_iter().map(|c| c % classes).collect())).collect();
        let mut payload = Vec::new();
        for set in &sets {
            let classes: Option<Vec<u32>> = set.as_ref().map(|set| set.iter().copied().collect());
            spec.encode_multi(classes.as_deref(), &mut payload);
        }
        let file = labels_file(spec, sets.len(), &payload);
        let (header, payload) = open(&file, FileKind::LABELS);
        let reader = Labels::new(&header, payload).unwrap();
        prop_assert!(reader.check().is_ok());
        for (row, set) in sets.iter().enumerate() {
            let found = reader.multi(row as u64);
            prop_assert_eq!(found.map(|found| found.iter().collect::<BTreeSet<_>>()), set.clone());
        }
    }
}

#[test]
fn values_come_back_and_missing_ones_are_nan() {
    for (kind, rows) in
        [(LabelKind::Partial, PARTIAL.map(|row| row.to_vec())), (LabelKind::Targets, TARGETS.map(|row| row.to_vec()))]
    {
        let spec = LabelSpec::new(kind, rows[0].len() as u32);
        let mut payload = Vec::new();
        rows.iter().for_each(|row| spec.encode_values(row, &mut payload));
        let file = labels_file(spec, rows.len(), &payload);
        let (header, payload) = open(&file, FileKind::LABELS);
        let reader = Labels::new(&header, payload).unwrap();
        reader.check().unwrap();
        for (row, expected) in rows.iter().enumerate() {
            let found: Vec<u32> = reader.values(row as u64).map(f32::to_bits).collect();
            let expected: Vec<u32> = expected.iter().map(|value| value.to_bits()).collect();
            assert_eq!(found, expected, "{kind:?}, row {row}");
        }
    }
}

#[test]
fn a_label_takes_no_more_bytes_than_its_classes_need() {
    for (classes, bytes) in [(1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4), (u32::MAX, 4)] {
        assert_eq!(LabelSpec::new(LabelKind::Single, classes).row_bytes(), bytes, "{classes} classes");
    }
    for (classes, bytes) in [(1, 1), (7, 1), (8, 2), (15, 2), (112, 15), (u32::MAX, 1 << 29)] {
        assert_eq!(LabelSpec::new(LabelKind::Multi, classes).row_bytes(), bytes, "{classes} classes");
    }
}
