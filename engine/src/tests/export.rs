use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::{
    DenseId, EdgePart, NodeId,
    features::{ElementType, FeatureLayout},
    manifest::{FeatureDtype, LabelKind, PermutationSpec},
};
use grappa_ingestion::ingest::{
    EdgeForm, EdgeIngest, IngestOptions, NodeData, NodeIngest, NodeSplits, SplitFile, StoreLayout, ingest,
};
use grappa_io::{
    Result, npy,
    progress::{Progress, Silent},
};
use grappa_storage::Store;

use super::sample::{DIM, NODES, Sample, in_folder};
use crate::export::{
    Budget, Exported,
    columns::{export_features, export_labels},
    edges::{EdgeColumns, export_edges},
    ids::export_ids,
    scratch_rows::ScratchRows,
    table::{TableFormat, TableOut},
};

/// So little memory that there are several shards.
const BUDGET: Budget = Budget { threads: 2, memory: 4 << 10 };

/// Edges are exported in blocks of at least 1024.
const OF_EDGES: Budget = Budget { threads: 2, memory: 4 << 20 };

/// Tables take more.
const OF_TABLES: Budget = Budget { threads: 2, memory: 64 << 20 };

fn print_edges(store: &Store, out: &mut Vec<u8>, budget: &Budget, progress: &dyn Progress) -> Result<Exported> {
    let out = TableOut::Stream(out, TableFormat::Tsv);
    export_edges(store, EdgePart::Graph, EdgeColumns::All, out, budget, progress)
}

/// The external id of a node, as text.
fn id_of(store: &Store, node: u64) -> String {
    store.external_id(NodeId(node)).unwrap().to_string()
}

/// Source, destination, weight and features of all edges, in the order of the store.
fn edges_of(store: &Store) -> Vec<(String, String, f32, [f32; 2])> {
    let row = |node| {
        Sample::sources(node).into_iter().map(move |source| {
            let features = Sample::edge_features(node, source);
            (source, node, Sample::weight(node, source), features)
        })
    };
    let edges = (0..NODES).flat_map(row);
    edges
        .map(|(source, target, weight, features)| (id_of(store, source), id_of(store, target), weight, features))
        .collect()
}

#[test]
fn text_has_a_line_for_each_edge_in_external_ids() {
    let (folder, store) = in_folder(|folder| Store::open(&Sample::ALL_PARTS.write(folder)).unwrap());
    let path = folder.path().join("edges.tsv");
    let exported = export_edges(&store, EdgePart::Graph, EdgeColumns::All, &path, &OF_EDGES, &Silent).unwrap();
    let expected: String = edges_of(&store)
        .iter()
        .map(|(source, target, weight, [amount, hour])| format!("{source}\t{target}\t{weight}\t{amount}\t{hour}\n"))
        .collect();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected);
    assert_eq!((exported.rows, exported.bytes), (store.manifest().edges, text.len() as u64));

    let mut printed = Vec::new();
    print_edges(&store, &mut printed, &OF_EDGES, &Silent).unwrap();
    assert_eq!(printed, text.as_bytes());

    let path = folder.path().join("edges.csv");
    export_edges(&store, EdgePart::Graph, EdgeColumns::All, &path, &OF_EDGES, &Silent).unwrap();
    let expected = format!("source,target,weight,amount,hour\n{}", expected.replace('\t', ","));
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}

#[test]
fn arrays_have_a_row_for_each_edge() {
    let (folder, store) = in_folder(|folder| Store::open(&Sample::ALL_PARTS.write(folder)).unwrap());
    let (edges, weights) = (folder.path().join("edges.npy"), folder.path().join("weights.npy"));
    export_edges(&store, EdgePart::Graph, EdgeColumns::All, &edges, &OF_EDGES, &Silent).unwrap();
    export_edges(&store, EdgePart::Graph, EdgeColumns::Weights, &weights, &OF_EDGES, &Silent).unwrap();
    let features = folder.path().join("edge-features.npy");
    export_edges(&store, EdgePart::Graph, EdgeColumns::Features, &features, &OF_EDGES, &Silent).unwrap();
    let expected = edges_of(&store);
    let mut rows = npy::header("<f4", &[expected.len() as u64, 2]).to_vec();
    let mut pairs = npy::header("<i8", &[expected.len() as u64, 2]).to_vec();
    let mut values = npy::header("<f4", &[expected.len() as u64]).to_vec();
    for (source, target, weight, features) in expected {
        rows.extend(features.iter().flat_map(|value| value.to_le_bytes()));
        pairs.extend(source.parse::<u64>().unwrap().to_le_bytes());
        pairs.extend(target.parse::<u64>().unwrap().to_le_bytes());
        values.extend(weight.to_le_bytes());
    }
    assert!(fs::read(&edges).unwrap() == pairs);
    assert!(fs::read(&weights).unwrap() == values);
    assert!(fs::read(&features).unwrap() == rows);
}

#[test]
fn string_ids_are_written_as_text_and_not_as_arrays() {
    let (folder, store) = in_folder(|folder| Store::open(&Sample::STRINGS.write(folder)).unwrap());
    let path = folder.path().join("edges.tsv");
    export_edges(&store, EdgePart::Graph, EdgeColumns::All, &path, &OF_EDGES, &Silent).unwrap();
    let lines: String = edges_of(&store).iter().map(|(s, t, ..)| format!("{s}\t{t}\n")).collect();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("source\ttarget\n{lines}"));

    let path = folder.path().join("edges.npy");
    let error = export_edges(&store, EdgePart::Graph, EdgeColumns::All, &path, &OF_EDGES, &Silent).unwrap_err();
    assert!(error.to_string().contains("ids are strings"), "{error}");
    assert!(!path.exists());

    let path = folder.path().join("val.txt");
    assert_eq!(export_ids(&store, Some("val"), &path, &Silent).unwrap().rows, 30);
    let mut expected: Vec<_> = (0..NODES).filter(|n| n % 5 == 1).map(|n| id_of(&store, n) + "\n").collect();
    expected.sort();
    assert_eq!(fs::read_to_string(&path).unwrap(), expected.concat());
}

#[test]
fn columns_come_in_the_order_of_external_ids() {
    for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::Int8] {
        let folder = tempfile::tempdir().unwrap();
        let label_kind = match dtype {
            FeatureDtype::F32 => LabelKind::Single,
            FeatureDtype::F16 => LabelKind::Multi,
            FeatureDtype::Bf16 => LabelKind::Partial,
            FeatureDtype::Int8 => LabelKind::Targets,
        };
        let sample = Sample { dtype, label_kind, ..Sample::ALL_PARTS };
        let store = Store::open(&sample.write(folder.path())).unwrap();
        let path = folder.path().join("x.npy");
        export_features(&store, &path, &BUDGET, &Silent).unwrap();
        let file = fs::read(&path).unwrap();
        let (descr, width) = if dtype == FeatureDtype::F16 { ("<f2", 2) } else { ("<f4", 4) };
        assert_eq!(file[..128], npy::header(descr, &[NODES, DIM.into()]));
        let element = if width == 2 { ElementType::F16 } else { ElementType::F32 };
        let mut values = vec![0.0; (NODES * u64::from(DIM)) as usize];
        element.to_f32(&file[128..], &mut values);
        for (at, value) in (0u64..).zip(values) {
            let (id, i) = (at / u64::from(DIM), at % u64::from(DIM));
            let expected = Sample::feature(Sample::table_node(id), i);
            assert!((value - expected).abs() < 0.11, "{value}, not {expected}, at dense id {id} in {dtype:?}");
        }

        let path = folder.path().join("y.npy");
        export_labels(&store, &path, &BUDGET, &Silent).unwrap();
        let file = fs::read(&path).unwrap();
        let classes = (0..NODES).map(|id| Sample::class(Sample::table_node(id)));
        let expected: Vec<u8> = match label_kind {
            LabelKind::Single => classes.flat_map(|c| c.map_or(-1, i64::from).to_le_bytes()).collect(),
            LabelKind::Multi => classes
                .flat_map(|class| [0, 1, 2, 3].map(|c| class.map_or(u8::MAX, |class| u8::from(c == class))))
                .collect(),
            LabelKind::Partial | LabelKind::Targets => {
                classes.flat_map(|class| Sample::values(class).map(f32::to_le_bytes)).flatten().collect()
            }
        };
        assert!(file[128..] == expected, "{dtype:?}");

        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["sample.grappa", "x.npy", "y.npy"]);
    }
}

#[test]
fn rows_that_were_made_come_in_the_order_of_external_ids() {
    for sample in [Sample::ALL_PARTS, Sample::STRINGS] {
        let (folder, store) = in_folder(|folder| Store::open(&sample.write(folder)).unwrap());
        let made = ScratchRows::create(folder.path(), "numbers", 12).unwrap();
        for node in 0..NODES {
            let row = [node as u32, 7, !(node as u32)];
            made.write(node, bytemuck::cast_slice(&row)).unwrap();
        }
        let row = |id| {
            let node = store.ids().node_of(DenseId(id)).unwrap().0 as u32;
            [node, 7, !node]
        };
        let expected: Vec<u32> = (0..NODES).flat_map(row).collect();

        let mut rows: Vec<u8> = Vec::new();
        let mut append = |bytes: &[u8]| {
            rows.extend_from_slice(bytes);
            Ok(())
        };
        made.read_in_order(&store, &BUDGET, &Silent, &mut append).unwrap();
        assert!(rows == bytemuck::cast_slice::<u32, u8>(&expected));

        let positions: Vec<u64> = (0..NODES).rev().collect();
        let mut rows: Vec<u8> = Vec::new();
        let mut append = |bytes: &[u8]| {
            rows.extend_from_slice(bytes);
            Ok(())
        };
        made.read_at(&positions, &Silent, &mut append).unwrap();
        let expected: Vec<u32> = positions.iter().flat_map(|&node| [node as u32, 7, !(node as u32)]).collect();
        assert!(rows == bytemuck::cast_slice::<u32, u8>(&expected));
        // Nothing is left but the store.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn missing_data_is_not_exported_and_existing_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let slice = Sample { without: Some(1), weighted: false, ..Sample::ALL_PARTS };
    let store = Store::open(&slice.write(folder.path())).unwrap();
    let path = folder.path().join("out");
    let error = export_features(&store, &path, &BUDGET, &Silent).unwrap_err();
    assert!(error.to_string().contains("2 of 3 chunks"), "{error}");
    let error = export_edges(&store, EdgePart::Graph, EdgeColumns::Weights, &path, &OF_EDGES, &Silent).unwrap_err();
    assert!(error.to_string().contains("no weights"), "{error}");
    let error = export_ids(&store, Some("valid"), &path, &Silent).unwrap_err();
    assert!(error.to_string().contains("the store has train, val, test"), "{error}");
    assert!(!path.exists());
    fs::write(&path, "mine").unwrap();
    let error = export_edges(&store, EdgePart::Graph, EdgeColumns::All, &path, &OF_EDGES, &Silent).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

/// Exports read what was not verified. Whatever is there must end in lines or an error.
#[test]
fn damaged_rows_are_never_followed_out_of_range() {
    for sample in [Sample::ALL_PARTS, Sample::STRINGS] {
        let (_folder, store) = in_folder(|folder| Store::open(&sample.write(folder)).unwrap());
        let mut errors = 0;
        for name in ["edges", "degrees", "weights"] {
            let path = store.path().join("chunk-1").join(name);
            let Ok(sound) = fs::read(&path) else { continue };
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            for (at, &byte) in sound.iter().enumerate().take(sound.len() - 8).skip(128) {
                for bit in [1, 0x80, 0xff] {
                    file.write_all_at(&[byte ^ bit], at as u64).unwrap();
                    errors += u64::from(print_edges(&store, &mut Vec::new(), &OF_EDGES, &Silent).is_err());
                }
                file.write_all_at(&[byte], at as u64).unwrap();
            }
        }
        assert!(errors > 0);
        print_edges(&store, &mut Vec::new(), &OF_EDGES, &Silent).unwrap();
    }
}

/// Every file of a store, by name.
fn files_of(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(store).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn exported_and_reingested_stores_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // With a row that is longer than a block of edges.
    let hub = (0..70_000).map(|i| (i * 7 % 500, 3, i as f32 / 8.0));
    let edges = (0..5000u64).map(|i| (i * i % 499, i * 31 % 500, -(i as f32)));
    let text: String = edges.chain(hub).map(|(s, t, w)| format!("{s} {t} {w}\n")).collect();
    fs::write(at("edges.txt"), text).unwrap();
    let mut features = npy::header("<f2", &[500, 3]).to_vec();
    let layout = FeatureLayout::new(FeatureDtype::F16, 1);
    let mut row = [0; 4];
    for i in 0..1500 {
        layout.encode_row(&[i as f32 / 4.0], &mut row);
        features.extend(&row[..2]);
    }
    fs::write(at("x.npy"), features).unwrap();
    let labels: String = (0..500).map(|i| if i % 9 == 0 { "\n".into() } else { format!("{}\n", i % 300) }).collect();
    fs::write(at("y.csv"), labels).unwrap();
    fs::write(at("train.txt"), (0..50).map(|i| format!("{}\n", i * 3)).collect::<String>()).unwrap();

    let options = IngestOptions {
        nodes: NodeIngest {
            number: Some(500),
            data: NodeData {
                features: Some(at("x.npy").into()),
                labels: Some(at("y.csv").into()),
                ..NodeData::default()
            },
            splits: NodeSplits { files: vec![SplitFile::new("train", at("train.txt"))], ..NodeSplits::default() },
            layout: StoreLayout { chunks: Some(7), seed: 7, ..StoreLayout::default() },
            ..NodeIngest::default()
        },
        ..IngestOptions::new(vec![at("edges.txt")], at("first.grappa"))
    };
    ingest(&options, &Silent).unwrap();
    let first = Store::open(&options.out).unwrap();
    assert_eq!(first.manifest().ids.permutation, PermutationSpec::Feistel(7));

    for ending in ["npy", "parquet", "csv"] {
        export_features(&first, &at(&format!("x2.{ending}")), &BUDGET, &Silent).unwrap();
        export_labels(&first, &at(&format!("y2.{ending}")), &BUDGET, &Silent).unwrap();
        export_ids(&first, Some("train"), &at(&format!("train2.{ending}")), &Silent).unwrap();
    }
    export_edges(&first, EdgePart::Graph, EdgeColumns::Weights, &at("weights.npy"), &OF_EDGES, &Silent).unwrap();
    let (before, after) = (files_of(&options.out), |edges: &str, nodes: &str, weights: Option<&str>| {
        export_edges(&first, EdgePart::Graph, EdgeColumns::All, &at(edges), &OF_TABLES, &Silent).unwrap();
        let again = IngestOptions {
            out: at(&format!("{edges}.grappa")),
            nodes: NodeIngest {
                data: NodeData {
                    features: Some(at(&format!("x2.{nodes}")).into()),
                    feature_dtype: Some(FeatureDtype::F16),
                    labels: Some(at(&format!("y2.{nodes}")).into()),
                    ..options.nodes.data.clone()
                },
                splits: NodeSplits {
                    files: vec![SplitFile { name: "train", ids: at(&format!("train2.{nodes}")).into() }],
                    ..options.nodes.splits.clone()
                },
                ..options.nodes.clone()
            },
            edges: EdgeIngest {
                files: vec![at(edges).into()],
                form: EdgeForm { weights: weights.map(at).map(Into::into), ..options.edges.form.clone() },
                ..options.edges.clone()
            },
            ..options.clone()
        };
        ingest(&again, &Silent).unwrap();
        files_of(&again.out)
    });
    for (edges, nodes, weights) in [
        ("e.tsv", "npy", None),
        ("e.csv", "csv", None),
        ("e.npy", "npy", Some("weights.npy")),
        ("e.parquet", "parquet", None),
    ] {
        let mut after = after(edges, nodes, weights);
        // Columns of text have names, which the first store has not. Its manifest has their digest.
        let names = [after.remove(Path::new("schema")), after.remove(Path::new("manifest"))];
        assert_eq!(names[0].is_some(), nodes == "csv");
        let before: BTreeMap<_, _> = before.iter().filter(|(name, _)| *name != Path::new("manifest")).collect();
        assert_eq!(before.keys().copied().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        for (name, bytes) in before {
            assert!(*bytes == after[name], "{edges}: {}", name.display());
        }
    }
}
