//! Files of a store. Each is decoded, checked, read at random positions, and encoded again.

use std::{fs, path::Path};

use grappa_formats::{
    DenseId, NodeId, Result,
    aggregates::{AggregateIndex, AggregateKind},
    assignment::{Assignment, Current},
    container::{FileKind, HEADER_BYTES, Header, decode_file, encode_file},
    dictionary::{
        DictionaryMeta, IntegerDictionary, IntegerDictionaryBuilder, KeyKind, StringDictionary, StringDictionaryBuilder,
    },
    edge_rows::EdgeRows,
    features::FeaturesMeta,
    labels::Labels,
    manifest::{FeatureDtype, LabelKind, Manifest},
    permutation_table::{PermutationTable, encode_entries},
    schema::{Column, Schema},
    splits,
    time_axis::TimeAxis,
};

use super::shared::outcome;
use crate::{Input, Target, target::Repair};

/// A target for a decoder of a store's file. It may allocate a multiple of the file, because values are wider in memory
/// than on disk.
fn target(name: &'static str, repair: Repair, seeds: fn() -> Vec<Vec<u8>>, run: fn(&Input) -> String) -> Target {
    Target { name, seeds, words: &[], repair, run, memory_base: 1 << 20, memory_per_byte: 64 }
}

pub fn targets() -> Vec<Target> {
    let of_kind = |name, kind, seeds: fn() -> _, run| target(name, Repair::ContainerOf(kind), seeds, run);
    let labels = || golden(&["labels-single", "labels-multi", "labels-partial", "labels-targets"]);
    let features = || golden(&["features-f32", "features-f16", "features-bf16", "features-int8"]);
    let edge_features = || golden(&["edge-features-bf16", "edge-features-int8"]);
    let assignments = || golden(&["assignment", "assignment-sweep", "assignment-whole"]);
    let aggregates = || golden(&["aggregates", "aggregates-weighted"]);
    let axes = || golden(&["time-axis-span", "time-axis-table"]);
    vec![
        target("container", Repair::Container, container_seeds, run_container),
        of_kind("manifest", FileKind::MANIFEST, || golden(&["manifest", "manifest-slice"]), run_manifest),
        of_kind("assignment", FileKind::ASSIGNMENT, assignments, run_assignment),
        Target {
            words: &["generation ", " ", "\n", "+1", "18446744073709551616"],
            ..target("current", Repair::Nothing, || golden(&["CURRENT"]), run_current)
        },
        of_kind("aggregates", FileKind::AGGREGATES, aggregates, run_aggregates),
        of_kind("dictionary", FileKind::DICTIONARY, dictionary_seeds, run_dictionary),
        of_kind("order", FileKind::PERMUTATION, || golden(&["order"]), run_permutation),
        of_kind("labels", FileKind::LABELS, labels, run_labels),
        of_kind("features", FileKind::FEATURES, features, run_features),
        of_kind("weights", FileKind::WEIGHTS, || golden(&["weights"]), |input| run_edge_rows(input, FileKind::WEIGHTS)),
        of_kind("edge-features", FileKind::EDGE_FEATURES, edge_features, |input| {
            run_edge_rows(input, FileKind::EDGE_FEATURES)
        }),
        of_kind("split", FileKind::SPLIT, split_seeds, run_split),
        of_kind("time-axis", FileKind::TIME_AXIS, axes, run_time_axis),
        Target {
            words: &["\"kind\":\"number\"", "{\"mean\":1e9}", "\"one_hot\"", "\"values\":[]", "\\u0000", "null"],
            // A name of a column comes back in the names of its dimensions.
            memory_per_byte: 256,
            ..of_kind("schema", FileKind::SCHEMA, schema_seeds, run_schema)
        },
    ]
}

/// Golden files of the `formats` tests, with both lengths of checksum blocks if there are two.
fn golden(names: &[&str]) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/golden");
    let files = names.iter().flat_map(|name| {
        let found: Vec<_> = ["v1", "v1-pages", "v3"]
            .iter()
            .filter_map(|layout| fs::read(folder.join(layout).join(name)).ok())
            .collect();
        assert!(!found.is_empty(), "there is no golden file {name}");
        found
    });
    files.collect()
}

fn schema_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden(&["schema"]);
    let numbers = Schema {
        features: (0..10).map(|i| Column::number(format!("f{i}"))).collect(),
        classes: vec!["a".into(), "b".into()],
        edge_features: vec![Column::number("amount")],
    };
    seeds.push(numbers.encode().0);
    seeds
}

fn run_time_axis(input: &Input) -> String {
    outcome(TimeAxis::decode(input.bytes), |axis| {
        for position in (0..axis.positions()).step_by((axis.positions() / 50).max(1) as usize) {
            let time = axis.time(position);
            assert_eq!((axis.position(time), axis.earlier(time)), (Some(position), position));
            assert_eq!(axis.not_later(time), position + 1);
        }
        assert_eq!(TimeAxis::decode(&axis.encode().0).expect("it was just encoded"), axis);
        format!("accepted, a table: {}", axis.is_table())
    })
}

fn run_schema(input: &Input) -> String {
    outcome(Schema::decode(input.bytes, 10, 2), |schema| {
        assert_eq!(schema.feature_names().len() as u64, schema.dim());
        let again = Schema::decode(&schema.encode().0, 10, 2).expect("it was just encoded");
        assert_eq!(again, schema);
        format!("accepted, {} dimensions", schema.dim())
    })
}

/// A container whose payload was verified, as the decoder sees it.
fn payload(file: &[u8]) -> &[u8] {
    let header = Header::decode(file, kind_of(file), file.len() as u64).expect("it was decoded");
    &file[header.payload_offset as usize..header.table_offset() as usize]
}

fn kind_of(file: &[u8]) -> FileKind {
    FileKind(file[8..12].try_into().expect("four bytes"))
}

fn container_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden(&["edges-gap", "degrees-gap", "split", "order"]);
    seeds.push(encode_file(FileKind::ROWS, vec![], &[]).0);
    seeds
}

fn run_container(input: &Input) -> String {
    let file = input.bytes;
    let Some(fixed) = file.first_chunk::<HEADER_BYTES>() else {
        return outcome(decode_file(file, FileKind::ROWS), |_| unreachable!("no header is that short"));
    };
    let kind = kind_of(file);
    let decoded = decode_file(file, kind);
    if decoded.is_ok() {
        assert!(Header::prefix_bytes(fixed).expect("it was decoded") <= file.len() as u64);
    }
    outcome(decoded, |(header, payload)| {
        assert_eq!(header.file_bytes(), Some(file.len() as u64));
        // The decoded header has all information of the file, except zeros before the payload, which a checksum covers.
        let encoded = Header::decode(&header.encode(), kind, file.len() as u64).expect("it was just encoded");
        assert_eq!(encoded, header);
        let (again, _) = encode_file(kind, header.meta.clone(), payload);
        let (_, same) = decode_file(&again, kind).expect("it was just encoded");
        assert_eq!(same, payload);
        format!("accepted, {} blocks", header.blocks().min(3))
    })
}

fn run_manifest(input: &Input) -> String {
    outcome(Manifest::decode(input.bytes), |manifest| {
        let again = Manifest::decode(&manifest.encode()).expect("it was just encoded");
        assert_eq!(again, manifest);
        let map = manifest.chunk_map();
        assert_eq!(map.nodes(), manifest.nodes);
        format!(
            "accepted, whole: {}, features: {}, labels: {}",
            manifest.is_whole(),
            manifest.features.is_some(),
            manifest.labels.is_some()
        )
    })
}

fn run_assignment(input: &Input) -> String {
    // Generation and chunks are known from elsewhere: here, from the file itself if it has them.
    let number =
        |at: usize| input.bytes.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
    let mut outcomes = Vec::new();
    for (generation, chunks) in [(2, 4), (5, 4), (0, 3), (number(64).unwrap_or(0), 4)] {
        let decoded = Assignment::decode(input.bytes, generation, chunks);
        outcomes.push(outcome(decoded, |assignment| {
            let again = Assignment::decode(&assignment.encode().0, generation, chunks).expect("it was just encoded");
            assert_eq!(again, assignment);
            for i in 0..chunks {
                let i = grappa_formats::ChunkId(i);
                for j in 0..chunks {
                    let serves = assignment.bucket(i, grappa_formats::ChunkId(j));
                    for partition in [serves.base, serves.variable].into_iter().flatten() {
                        assert!(partition.0 < assignment.partitions());
                    }
                }
                assignment.owners(i);
            }
            outcome(assignment.check_owners(), |()| "accepted".to_owned())
        }));
    }
    outcomes.join("\n")
}

fn run_current(input: &Input) -> String {
    outcome(Current::decode(input.bytes), |current| {
        assert_eq!(current.encode().as_bytes(), input.bytes);
        "accepted".to_owned()
    })
}

fn run_aggregates(input: &Input) -> String {
    let digest = input.bytes.get(64..72).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
    let outcomes = AggregateKind::ALL.map(|kind| {
        outcome(AggregateIndex::decode(input.bytes, kind, digest, 2), |index| {
            assert_eq!(payload(&index.encode()), payload(input.bytes));
            format!("accepted, {kind}")
        })
    });
    outcomes.join("\n")
}

fn dictionary_of(meta: DictionaryMeta, payload: &[u8]) -> Vec<u8> {
    encode_file(FileKind::DICTIONARY, meta.encode(), payload).0
}

fn integers(keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut builder = IntegerDictionaryBuilder::new();
    keys.into_iter().for_each(|key| builder.push(key));
    let (meta, payload) = builder.finish();
    dictionary_of(meta, &payload)
}

fn strings<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<u8> {
    let mut builder = StringDictionaryBuilder::new();
    keys.into_iter().for_each(|key| builder.push(key.as_ref()));
    let (meta, pieces) = builder.finish();
    dictionary_of(meta, &pieces.collect::<Vec<_>>().concat())
}

fn dictionary_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden(&["dictionary-integers", "dictionary-strings"]);
    seeds.push(integers([]));
    seeds.push(strings::<&str>([]));
    seeds.push(strings((10..99).map(|i| format!("prefix/{i}/of/all/keys"))));
    let long = format!("z{}", "y".repeat(300));
    seeds.push(strings(["", "a", &long, "\u{e9}"]));
    seeds
}

fn run_dictionary(input: &Input) -> String {
    let decoded = decode_file(input.bytes, FileKind::DICTIONARY)
        .and_then(|(header, payload)| Ok((DictionaryMeta::decode(&header)?, header, payload)));
    let result = decoded.and_then(|(meta, header, payload)| match meta.kind {
        KeyKind::Integers => run_integers(&header, payload),
        KeyKind::Strings => run_strings(&header, payload),
    });
    outcome(result, |problem| problem)
}

fn run_integers(header: &Header, payload: &[u8]) -> Result<String> {
    let dictionary = IntegerDictionary::new(header, payload)?;
    // Before it is checked, none of this may panic.
    for key in dictionary.iter(0..dictionary.keys()).take(200).chain([0, u64::MAX]) {
        dictionary.find(key);
    }
    dictionary.check(0..dictionary.keys())?;
    let mut builder = IntegerDictionaryBuilder::new();
    for id in (0..dictionary.keys()).map(DenseId) {
        let key = dictionary.get(id);
        assert_eq!(dictionary.find(key), Some(id));
        builder.push(key);
    }
    assert_eq!(builder.finish().1, payload);
    Ok("integers accepted".to_owned())
}

fn run_strings(header: &Header, payload: &[u8]) -> Result<String> {
    let dictionary = StringDictionary::new(header, payload)?;
    // Before it is checked, none of this may panic; what is found is only defined for what passes the check.
    let mut key = Vec::new();
    let mut some = Vec::new();
    for id in (0..dictionary.keys).take(100) {
        if dictionary.get(DenseId(id), &mut key, |_| Ok(())).is_ok() {
            some.push(key.clone());
        }
    }
    some.push(b"zzz".to_vec());
    for key in &some {
        let _ = dictionary.find(key, |_| Ok(()));
    }
    dictionary.check(0..dictionary.blocks())?;
    let mut builder = StringDictionaryBuilder::new();
    for id in (0..dictionary.keys).map(DenseId) {
        dictionary.get(id, &mut key, |_| Ok(()))?;
        assert_eq!(dictionary.find(&key, |_| Ok(()))?, Some(id));
        builder.push(&key);
    }
    let (_, pieces) = builder.finish();
    assert_eq!(pieces.collect::<Vec<_>>().concat(), payload, "the same keys make the same bytes");
    Ok("strings accepted".to_owned())
}

fn run_permutation(input: &Input) -> String {
    let result = decode_file(input.bytes, FileKind::PERMUTATION).and_then(|(header, payload)| {
        let table = PermutationTable::new(&header, payload)?;
        for number in (0..table.nodes()).take(100) {
            let _ = (table.dense_id(NodeId(number)), table.node(DenseId(number)));
        }
        table.check(0..table.nodes())?;
        let all = |entry: &dyn Fn(u64) -> Result<u64>| (0..table.nodes()).map(entry).collect::<Result<Vec<u64>>>();
        let nodes = all(&|id| Ok(table.node(DenseId(id))?.0))?;
        let dense_ids = all(&|node| Ok(table.dense_id(NodeId(node))?.0))?;
        for (node, &id) in dense_ids.iter().enumerate() {
            assert_eq!(nodes[id as usize], node as u64);
        }
        let mut again = Vec::new();
        encode_entries(&nodes, &mut again);
        encode_entries(&dense_ids, &mut again);
        assert_eq!(again, payload);
        Ok(())
    });
    outcome(result, |()| "accepted".to_owned())
}

fn run_labels(input: &Input) -> String {
    let result = decode_file(input.bytes, FileKind::LABELS).and_then(|(header, payload)| {
        let labels = Labels::new(&header, payload)?;
        let (spec, rows) = (labels.meta.spec, labels.meta.span.rows);
        for row in (0..rows).take(100) {
            match spec.kind {
                LabelKind::Single => drop(labels.single(row)),
                LabelKind::Multi => {
                    let _ = labels.multi(row).map(|set| set.iter().take(1000).count());
                }
                LabelKind::Partial | LabelKind::Targets => drop(labels.values(row).take(1000).count()),
            }
        }
        labels.check()?;
        let mut again = Vec::new();
        for row in 0..rows {
            match spec.kind {
                LabelKind::Single => spec.encode_single(labels.single(row)?, &mut again),
                LabelKind::Multi => {
                    let classes: Option<Vec<u32>> = labels.multi(row).map(|set| set.iter().collect());
                    spec.encode_multi(classes.as_deref(), &mut again);
                }
                LabelKind::Partial | LabelKind::Targets => {
                    spec.encode_values(&labels.values(row).collect::<Vec<f32>>(), &mut again);
                }
            }
        }
        // Writers write one NaN, and readers accept all.
        let has_nan = spec.kind == LabelKind::Targets && (0..rows).any(|row| labels.values(row).any(f32::is_nan));
        assert!(again == payload || has_nan && again.len() == payload.len());
        Ok(spec.kind)
    });
    outcome(result, |kind| format!("accepted, {kind:?}"))
}

fn run_features(input: &Input) -> String {
    let result = decode_file(input.bytes, FileKind::FEATURES).and_then(|(header, payload)| {
        let meta = FeaturesMeta::decode(&header)?;
        let layout = meta.layout;
        layout.check_rows(payload, header.payload_offset, meta.with_features)?;
        let (dim, rows) = (layout.dim as usize, meta.span.rows as usize);
        let mut values = vec![0.0; dim * rows];
        layout.decode_rows(payload, &mut values);
        let mut row_values = vec![0.0; if rows > 0 { dim } else { 0 }];
        for row in 0..rows {
            layout.decode_row(&payload[meta.row_offset(row as u64) as usize..], &mut row_values);
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&row_values), bits(&values[row * dim..][..dim]));
        }
        let mut again = vec![0; payload.len()];
        layout.encode_rows(&values, &mut again);
        // Scales of int8 are chosen anew, and a NaN need not keep its bits.
        if layout.dtype != FeatureDtype::Int8 && values.iter().all(|value| !value.is_nan()) {
            assert_eq!(again, payload);
        }
        Ok(layout.dtype)
    });
    outcome(result, |dtype| format!("accepted, {dtype:?}"))
}

/// The degrees in the golden file.
fn degrees() -> [u64; 66] {
    let mut degrees = [0; 66];
    (degrees[1], degrees[65]) = (2, 1);
    degrees
}

fn run_edge_rows(input: &Input, kind: FileKind) -> String {
    let result = decode_file(input.bytes, kind).and_then(|(header, payload)| {
        let of_edges = EdgeRows::new(&header, payload)?;
        let degrees = degrees();
        let rows = of_edges.meta.span.rows;
        let layout = of_edges.meta.layout;
        let dim = layout.dim as usize;
        // Degrees come from another file, which may not fit.
        for degree in [0, 3, u64::MAX] {
            for row in (0..rows).take(100) {
                if let Ok(range) = of_edges.range(row, |row| degrees.get(row as usize).copied().unwrap_or(degree)) {
                    let edges = (range.end - range.start) as usize;
                    of_edges.copy(range, &mut vec![0.0; edges * dim]);
                }
            }
        }
        of_edges.check(degrees)?;
        let mut values = vec![0.0; dim];
        let mut again = vec![0; layout.stride as usize];
        for edge in 0..of_edges.meta.edges {
            of_edges.copy(edge..edge + 1, &mut values);
            layout.encode_rows(&values, &mut again);
            // Scales of int8 are chosen anew, and a NaN need not keep its bits.
            if layout.dtype != FeatureDtype::Int8 && values.iter().all(|value| !value.is_nan()) {
                assert_eq!(of_edges.rows(edge..edge + 1), again);
            }
        }
        Ok(())
    });
    outcome(result, |()| "accepted".to_owned())
}

fn split_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden(&["split"]);
    for set in [
        (0..0).collect::<roaring::RoaringTreemap>(),
        (0..9000).step_by(2).collect(),
        [0, (1 << 33) - 1].into_iter().collect(),
    ] {
        seeds.push(splits::encode("train", 1 << 33, &set).0);
    }
    seeds
}

fn run_split(input: &Input) -> String {
    outcome(splits::decode(input.bytes, "train", 1 << 33), |set| {
        let (file, _) = splits::encode("train", 1 << 33, &set);
        let again = splits::decode(&file, "train", 1 << 33).expect("it was just encoded");
        assert_eq!(again, set);
        assert!(set.max().is_none_or(|max| max < 1 << 33));
        assert_eq!(set.iter().take(20_000).count() as u64, set.len().min(20_000));
        "accepted".to_owned()
    })
}
