//! One tiny file of each kind, built by the current encoders, and a reader of its whole content.

use grappa_formats::{
    ChunkId, ChunkSpan, DenseId, EdgePart, FormatError, NodeId, PartitionId, Result,
    aggregates::{AggregateFile, AggregateIndex, AggregateKind},
    assignment::{Assignment, Current, Owners, Serves},
    container::{FileKind, decode_file},
    dictionary::{DictionaryMeta, IntegerDictionary, KeyKind, StringDictionary},
    edge_rows::{EdgeRows, WEIGHT},
    features::{FeatureLayout, FeaturesMeta},
    graph::{GraphManifest, NodeTypeEntry, RelationEntry},
    labels::{Labels, LabelsMeta},
    manifest::*,
    permutation_table::PermutationTable,
    rows::{GapCode, RowCodec, RowSizes, Rows, RowsEncoder, RowsMeta, RowsPart, RowsTail},
    schema::{CategoryForm, Column, Encoding, Missing, Schema},
    splits,
    time_axis::{TimeAxis, TimeUnit},
};
use roaring::RoaringTreemap;

use crate::{dictionary, edge_rows::rows_file, file, permutation_table::table_file};

/// A sample file: its name among the golden files, and its bytes.
pub struct Sample {
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

/// Every sample.
pub fn all() -> Vec<Sample> {
    let sample = |name, bytes| Sample { name, bytes };
    vec![
        sample("manifest", manifest().encode()),
        sample("manifest-slice", slice_manifest().encode()),
        sample("manifest-halo", halo_manifest().encode()),
        sample("manifest-held-out", held_out_manifest().encode()),
        sample("manifest-halo-degrees", halo_degrees_manifest().encode()),
        sample("graph", graph().encode()),
        sample("member-type", type_manifest().encode()),
        sample("member-relation", relation_manifest().encode()),
        sample("features-f32", features(FeatureDtype::F32)),
        sample("features-f16", features(FeatureDtype::F16)),
        sample("features-bf16", features(FeatureDtype::Bf16)),
        sample("features-int8", features(FeatureDtype::Int8)),
        sample("features-beside", features_beside_aggregates()),
        sample("labels-single", single_labels()),
        sample("labels-multi", multi_labels()),
        sample("labels-partial", value_labels(LabelKind::Partial, &PARTIAL)),
        sample("labels-targets", value_labels(LabelKind::Targets, &TARGETS)),
        sample("split", splits::encode("train", SPLIT_NODES, &split()).0),
        sample("dictionary-integers", dictionary::integers(&INTEGERS)),
        sample("dictionary-strings", dictionary::strings(string_keys().iter().map(String::as_bytes))),
        sample("order", table_file(&ORDER)),
        sample("assignment", assignment().encode().0),
        sample("assignment-sweep", assignment_of_a_sweep().encode().0),
        sample("assignment-whole", Assignment::whole(3).encode().0),
        sample("weights", rows_file(FileKind::WEIGHTS, WEIGHT, &degrees(), &WEIGHTS)),
        sample("edge-features-bf16", edge_features(FeatureDtype::Bf16)),
        sample("edge-features-int8", edge_features(FeatureDtype::Int8)),
        sample("edges-elias-fano", rows(RowCodec::EliasFano)[0].clone()),
        sample("degrees-elias-fano", rows(RowCodec::EliasFano)[1].clone()),
        sample("edges-gap", rows(GAP)[0].clone()),
        sample("degrees-gap", rows(GAP)[1].clone()),
        sample("edges-by-time", rows(RowCodec::ByTime)[0].clone()),
        sample("degrees-by-time", rows(RowCodec::ByTime)[1].clone()),
        sample("times", times()[0].clone()),
        sample("time-degrees", times()[1].clone()),
        sample("node-times", node_times()[0].clone()),
        sample("node-time-degrees", node_times()[1].clone()),
        sample("time-axis-span", axis_of_span().encode().0),
        sample("time-axis-table", axis_of_table().encode().0),
        sample("aggregates", aggregates(AggregateKind::Gcn).encode()),
        sample("aggregates-weighted", aggregates(AggregateKind::WeightedMean).encode()),
        sample("schema", schema().encode().0),
        sample("schema-of-edges", schema_of_edges().encode().0),
        sample("CURRENT", Current { generation: 17 }.encode().into_bytes()),
    ]
}

/// Decodes and fully checks a file as the sample `name`, and reads every value by random access.
pub fn read(name: &str, bytes: &[u8]) -> Result<()> {
    match name {
        "manifest" | "manifest-slice" | "manifest-halo" | "manifest-halo-degrees" | "manifest-held-out" => {
            Manifest::decode(bytes).map(drop)
        }
        "member-type" | "member-relation" => Manifest::decode(bytes).map(drop),
        "graph" => GraphManifest::decode(bytes).map(drop),
        "split" => splits::decode(bytes, "train", SPLIT_NODES).map(drop),
        "assignment" => Assignment::decode(bytes, 2, 4).map(drop),
        "assignment-sweep" => Assignment::decode(bytes, 5, 4).and_then(|a| a.check_owners()),
        "assignment-whole" => Assignment::decode(bytes, 0, 3).and_then(|a| a.check_owners()),
        "CURRENT" => Current::decode(bytes).map(drop),
        "aggregates" => AggregateIndex::decode(bytes, AggregateKind::Gcn, AGGREGATES_OF, 2).map(drop),
        "aggregates-weighted" => AggregateIndex::decode(bytes, AggregateKind::WeightedMean, AGGREGATES_OF, 2).map(drop),
        "schema" => Schema::decode(bytes, 10, 2).map(|schema| drop(schema.feature_names())),
        "schema-of-edges" => Schema::decode(bytes, 0, 0).map(drop),
        "order" => {
            let (header, payload) = decode_file(bytes, FileKind::PERMUTATION)?;
            let table = PermutationTable::new(&header, payload)?;
            (0..table.nodes()).try_for_each(|node| table.dense_id(NodeId(node)).map(drop))?;
            table.check(0..table.nodes())
        }
        "weights" | "edge-features-bf16" | "edge-features-int8" => {
            let kind = if name == "weights" { FileKind::WEIGHTS } else { FileKind::EDGE_FEATURES };
            let (header, payload) = decode_file(bytes, kind)?;
            let rows = EdgeRows::new(&header, payload)?;
            let degrees = degrees();
            rows.meta.span.expect(&span(degrees.len() as u64))?;
            let dim = rows.meta.layout.dim as usize;
            for row in 0..degrees.len() {
                let range = rows.range(row as u64, |row| degrees[row as usize])?;
                rows.copy(range, &mut vec![0.0; degrees[row] as usize * dim]);
            }
            rows.check(degrees)
        }
        "dictionary-integers" => {
            let (header, payload) = decode_file(bytes, FileKind::DICTIONARY)?;
            let dictionary = IntegerDictionary::new(&header, payload)?;
            for key in INTEGERS.iter().copied().chain(dictionary.iter(0..dictionary.keys())) {
                dictionary.find(key);
            }
            dictionary.check(0..dictionary.keys())
        }
        "dictionary-strings" => {
            let (header, payload) = decode_file(bytes, FileKind::DICTIONARY)?;
            let dictionary = StringDictionary::new(&header, payload)?;
            // None of these may panic. Their results are defined only for files that pass the check.
            let mut key = Vec::new();
            let _ = (0..dictionary.keys).try_for_each(|id| dictionary.get(DenseId(id), &mut key, |_| Ok(())));
            let _ = string_keys().iter().try_for_each(|key| dictionary.find(key.as_bytes(), |_| Ok(())).map(drop));
            dictionary.check(0..dictionary.blocks())
        }
        name if name.starts_with("labels") => {
            let (header, payload) = decode_file(bytes, FileKind::LABELS)?;
            let labels = Labels::new(&header, payload)?;
            labels.meta.span.expect(&span(LABEL_ROWS))?;
            if labels.meta.spec.kind == LabelKind::Multi {
                let sets = (0..LABEL_ROWS).filter_map(|row| labels.multi(row));
                sets.for_each(|set| set.iter().for_each(drop));
            }
            if labels.meta.spec.kind.has_values() {
                (0..LABEL_ROWS).for_each(|row| labels.values(row).for_each(drop));
            }
            labels.check()
        }
        name if name.starts_with("features") => {
            let (header, payload) = decode_file(bytes, FileKind::FEATURES)?;
            let meta = FeaturesMeta::decode(&header)?;
            meta.span.expect(&span(FEATURE_ROWS))?;
            meta.layout.check_rows(payload, header.payload_offset, meta.with_features)?;
            let mut values = vec![0.0; meta.layout.dim as usize];
            for row in 0..meta.span.rows {
                meta.layout.decode_row(&payload[meta.row_offset(row) as usize..], &mut values);
            }
            Ok(())
        }
        "edges-elias-fano" => read_rows(bytes, &rows(RowCodec::EliasFano)[1]),
        "degrees-elias-fano" => read_rows(&rows(RowCodec::EliasFano)[0], bytes),
        "edges-gap" => read_rows(bytes, &rows(GAP)[1]),
        "degrees-gap" => read_rows(&rows(GAP)[0], bytes),
        "edges-by-time" => read_rows(bytes, &rows(RowCodec::ByTime)[1]),
        "degrees-by-time" => read_rows(&rows(RowCodec::ByTime)[0], bytes),
        "times" => read_rows_as([FileKind::TIMES, FileKind::TIME_DEGREES], bytes, &times()[1]),
        "time-degrees" => read_rows_as([FileKind::TIMES, FileKind::TIME_DEGREES], &times()[0], bytes),
        "node-times" => read_rows_as([FileKind::TIMES, FileKind::TIME_DEGREES], bytes, &node_times()[1]),
        "node-time-degrees" => read_rows_as([FileKind::TIMES, FileKind::TIME_DEGREES], &node_times()[0], bytes),
        "time-axis-span" | "time-axis-table" => TimeAxis::decode(bytes).map(|axis| {
            for time in [i64::MIN, -1, 0, 1_700_000_000, i64::MAX] {
                let (earlier, not_later) = (axis.earlier(time), axis.not_later(time));
                assert!(earlier <= not_later && not_later <= axis.positions());
            }
        }),
        name => panic!("no sample is named {name}"),
    }
}

/// Decodes and fully checks the two files of a chunk's rows.
fn read_rows(edges: &[u8], degrees: &[u8]) -> Result<()> {
    read_rows_as([FileKind::ROWS, FileKind::DEGREES], edges, degrees)
}

fn read_rows_as(kinds: [FileKind; 2], edges: &[u8], degrees: &[u8]) -> Result<()> {
    let (edges_header, edges) = decode_file(edges, kinds[0])?;
    let (degrees_header, degrees) = decode_file(degrees, kinds[1])?;
    let meta = RowsMeta::decode(&edges_header.meta)?;
    if RowsMeta::decode(&degrees_header.meta)? != meta {
        return Err(FormatError::invalid(64, "the files are not of the same rows"));
    }
    let sizes = RowSizes::from_meta(&meta);
    let rows = Rows::new(&meta, &sizes, edges, degrees)?;
    let mut sources = Vec::new();
    for row in rows.range(0..rows.meta.rows) {
        sources.extend(row.iter());
        row.decode_into(&mut sources);
        let positions: Vec<u64> = (0..row.degree()).step_by(3).collect();
        row.get_many(&positions, &mut sources);
        if !row.is_by_time() {
            row.lower_bound(8);
        }
    }
    rows.check(|_, _| {}).map_err(|problem| {
        let header = match problem.part {
            RowsPart::Edges => edges_header,
            RowsPart::Degrees => degrees_header,
        };
        match problem.error {
            FormatError::Invalid { problem, offset } => FormatError::invalid(offset + header.payload_offset, problem),
            other => other,
        }
    })
}

/// The parameters of the sample in gap code.
pub const GAP: RowCodec =
    RowCodec::Gap(GapCode { first_is_relative: true, first_k: 2, degree_k: 0, gap_k: 1, run_k: 0 });

/// The rows of nodes 4 to 7 of a graph of 16 nodes; in gap code, the graph has 1000 nodes and node 8 a row of two blocks.
pub fn rows(codec: RowCodec) -> [Vec<u8>; 2] {
    let universe = if codec == GAP { 1000 } else { 16 };
    let mut encoder = RowsEncoder::new(codec, universe, 4);
    if codec == RowCodec::ByTime {
        encoder.push(&[9, 3, 1, 3]);
        encoder.push(&[]);
        encoder.push(&[6, 7, 12, 5, 8]);
    } else {
        encoder.push(&[1, 3, 3, 9]);
        encoder.push(&[]);
        encoder.push(&[5, 6, 7, 8, 12]);
    }
    encoder.push(&[14]);
    if codec == GAP {
        let sources: Vec<u64> = (100..229).chain([500]).collect();
        encoder.push(&sources);
    }
    let RowsTail { edges_payload_rest, degrees_payload, meta } = encoder.finish();
    [file(FileKind::ROWS, meta.encode(), &edges_payload_rest), file(FileKind::DEGREES, meta.encode(), &degrees_payload)]
}

/// The times of the edges of the rows by time, as positions among 100.
fn times() -> [Vec<u8>; 2] {
    times_files(4, &[&[0, 17, 40, 40], &[], &[3, 3, 50, 98, 99], &[17]])
}

/// The times of five nodes, as positions among 100.
fn node_times() -> [Vec<u8>; 2] {
    times_files(0, &[&[0, 17, 17, 40, 99]])
}

fn times_files(first_node: u64, lists: &[&[u64]]) -> [Vec<u8>; 2] {
    let mut encoder = RowsEncoder::new(RowCodec::EliasFano, 100, first_node);
    lists.iter().for_each(|list| encoder.push(list));
    let RowsTail { edges_payload_rest, degrees_payload, meta } = encoder.finish();
    let [times, degrees] = [FileKind::TIMES, FileKind::TIME_DEGREES].map(|kind| (kind, meta.encode()));
    [file(times.0, times.1, &edges_payload_rest), file(degrees.0, degrees.1, &degrees_payload)]
}

/// 100 seconds.
fn axis_of_span() -> TimeAxis {
    TimeAxis::of_span(TimeUnit::Seconds, 1_700_000_000, 100)
}

/// Three days, a year apart.
fn axis_of_table() -> TimeAxis {
    TimeAxis::of_times(TimeUnit::Days, 1000, &[-365, 0, 365])
}

pub const FEATURE_ROWS: u64 = 2;
pub const LABEL_ROWS: u64 = 4;
pub const SPLIT_NODES: u64 = 1 << 33;
pub const INTEGERS: [u64; 4] = [3, 70, 71, 0x1122_3344_5566_7788];
pub const ORDER: [u64; 4] = [2, 0, 3, 1];
pub const WEIGHTS: [f32; 3] = [1.5, -2.0, 0.25];

/// Three values per edge.
const EDGE_FEATURES: [f32; 9] = [1.0, -2.5, 0.1, 127.0, -3.0, 0.0, 0.0, 0.0, 0.0];

/// The manifest digest in the sample of aggregates.
pub const AGGREGATES_OF: u64 = 0x0123_4567_89ab_cdef;

pub fn aggregates(kind: AggregateKind) -> AggregateIndex {
    let file = |bytes, digest| Some(AggregateFile { bytes, digest });
    AggregateIndex {
        kind,
        manifest_digest: AGGREGATES_OF,
        files: vec![file(4168, 0x1111_2222_3333_4444), file(8264, 0x5555_6666_7777_8888)],
    }
}

/// A column of each kind.
pub fn schema() -> Schema {
    let column = |name: &str, encoding| Column { name: name.into(), encoding };
    let number = |missing| Encoding::Number { missing };
    let boolean = |missing| Encoding::Boolean { missing };
    let date = |missing| Encoding::Date { missing };
    let category = |values: &[&str], form| Encoding::Category {
        values: values.iter().map(|&value| value.to_owned()).collect(),
        form,
    };
    Schema {
        features: vec![
            column("age", number(Missing::Refused)),
            column("is_admin", boolean(Missing::Constant(0.0))),
            column("income", number(Missing::Indicator(-1.5))),
            column("joined", date(Missing::Mean(19000.25))),
            column("country", category(&["DE", "FR", "other"], CategoryForm::OneHot)),
            column("plan", category(&["a", "b"], CategoryForm::Index)),
        ],
        classes: vec!["free".into(), "gold".into()],
        ..Schema::default()
    }
}

/// A schema of edge features alone.
fn schema_of_edges() -> Schema {
    Schema { edge_features: vec![Column::number("amount"), Column::number("hour")], ..Schema::default() }
}

/// Chunk 1, whose rows begin with node 500.
pub fn span(rows: u64) -> ChunkSpan {
    ChunkSpan { chunk: ChunkId(1), first_node: NodeId(500), rows }
}

/// 66 rows, which need a second anchor: two edges in row 1, one in row 65.
pub fn degrees() -> [u64; 66] {
    let mut degrees = [0; 66];
    (degrees[1], degrees[65]) = (2, 1);
    degrees
}

/// 18 keys, which need a second block.
pub fn string_keys() -> Vec<String> {
    let numbered = (10..26).map(|i| format!("bin/tool{i}"));
    ["bin/".into()].into_iter().chain(numbered).chain(["lib".into()]).collect()
}

pub fn split() -> RoaringTreemap {
    let mut set: RoaringTreemap = [1, 5, 0x1_0000, (1 << 32) + 7].into();
    set.insert_range(200..300);
    set.optimize();
    set
}

fn edge_features(dtype: FeatureDtype) -> Vec<u8> {
    rows_file(FileKind::EDGE_FEATURES, FeatureLayout::new(dtype, 3), &degrees(), &EDGE_FEATURES)
}

const FEATURES: [f32; 6] = [1.0, -2.5, 0.1, 127.0, -3.0, 0.0];

fn features(dtype: FeatureDtype) -> Vec<u8> {
    let layout = FeatureLayout::new(dtype, 3);
    let meta = FeaturesMeta { span: span(FEATURE_ROWS), layout, with_features: false };
    let mut payload = vec![0; FEATURE_ROWS as usize * layout.stride as usize];
    layout.encode_rows(&FEATURES, &mut payload);
    file(FileKind::FEATURES, meta.encode(), &payload)
}

/// Aggregates in int8, with the rows of `features` behind them.
fn features_beside_aggregates() -> Vec<u8> {
    let features = FeatureLayout::new(FeatureDtype::Int8, 3);
    let stride = features.stride as usize;
    let mut beside = vec![0; FEATURE_ROWS as usize * stride];
    features.encode_rows(&FEATURES, &mut beside);
    let layout = FeatureLayout::with_features(FeatureDtype::Int8, 3);
    let meta = FeaturesMeta { span: span(FEATURE_ROWS), layout, with_features: true };
    let mut payload = vec![0; FEATURE_ROWS as usize * layout.stride as usize];
    layout.encode_with_features(&[127.0, 0.0, -1.0, 0.0, 254.0, 126.0], &beside, stride, &mut payload);
    file(FileKind::FEATURES, meta.encode(), &payload)
}

fn single_labels() -> Vec<u8> {
    let spec = LabelSpec::new(LabelKind::Single, 300);
    let mut payload = Vec::new();
    for class in [Some(0), Some(299), None, Some(7)] {
        spec.encode_single(class, &mut payload);
    }
    file(FileKind::LABELS, LabelsMeta { span: span(LABEL_ROWS), spec }.encode(), &payload)
}

fn multi_labels() -> Vec<u8> {
    let spec = LabelSpec::new(LabelKind::Multi, 10);
    let mut payload = Vec::new();
    for classes in [Some(&[0, 9][..]), Some(&[]), None, Some(&[3])] {
        spec.encode_multi(classes, &mut payload);
    }
    file(FileKind::LABELS, LabelsMeta { span: span(LABEL_ROWS), spec }.encode(), &payload)
}

pub const PARTIAL: [[f32; 5]; 4] =
    [[1.0, 0.0, f32::NAN, 1.0, f32::NAN], [0.0; 5], [f32::NAN; 5], [f32::NAN, f32::NAN, f32::NAN, f32::NAN, 1.0]];
pub const TARGETS: [[f32; 2]; 4] = [[1.5, -2.0], [f32::NAN, 0.25], [f32::NAN; 2], [0.0, 3e38]];

fn value_labels<const N: usize>(kind: LabelKind, rows: &[[f32; N]; 4]) -> Vec<u8> {
    let spec = LabelSpec::new(kind, N as u32);
    let mut payload = Vec::new();
    for values in rows {
        spec.encode_values(values, &mut payload);
    }
    file(FileKind::LABELS, LabelsMeta { span: span(LABEL_ROWS), spec }.encode(), &payload)
}

/// Three partitions. The base of each is the variable part of the previous one.
fn assignment_of_a_sweep() -> Assignment {
    let owners =
        [0, 1, 0, 2].map(|base| Owners { base: PartitionId(base), variable: Some(PartitionId((base + 2) % 3)) });
    Assignment::from_owners(5, 3, "sweep", &owners)
}

/// A valid table that no owners of chunks give: both partitions see the edges between two groups of chunks.
fn assignment() -> Assignment {
    Assignment::from_fn(2, 4, 2, "sweep", |i, j| Serves {
        base: Some(PartitionId(i.0 / 2)),
        variable: (i.0 / 2 != j.0 / 2).then_some(PartitionId(j.0 / 2)),
    })
}

pub fn manifest() -> Manifest {
    let entry = |path: &str, bytes, digest| FileEntry { path: path.into(), bytes, digest };
    Manifest {
        sources: Sources::Nodes,
        writer: "grappa-ingest 0.1.0".into(),
        nodes: 5,
        edges: 7,
        edges_read: 9,
        rejected: 1,
        chunk_starts: vec![0, 2, 5],
        chunks: vec![ChunkEntry::of_buckets(vec![1, 2]), ChunkEntry::of_buckets(vec![4, 0])],
        ids: IdSpec { external: ExternalIds::Sparse, permutation: PermutationSpec::Feistel(0x1122_3344_5566_7788) },
        features: Some(FeatureSpec { dim: 3, dtype: FeatureDtype::F16, row_stride: 8, source: FeatureSource::Stored }),
        labels: Some(LabelSpec::new(LabelKind::Multi, 4)),
        splits: vec![SplitEntry { name: "train".into(), nodes: 2 }],
        weighted: true,
        edge_options: EdgeOptions { undirected: false, dedup: true, self_loops: SelfLoops::Add },
        generator: String::new(),
        files: vec![entry("chunk-0/edges", 4242, 0x0123_4567_89ab_cdef), entry("ids", 99, 0xfedc_ba98_7654_3210)],
    }
}

/// A graph with a relation and its reverse.
pub fn graph() -> GraphManifest {
    let of_type = |name: &str, digest| NodeTypeEntry { name: name.into(), digest };
    let writes = RelationEntry { source: 0, name: "writes".into(), destination: 1, reverse_of: None, digest: 33 };
    let reverse =
        RelationEntry { source: 1, name: "rev_writes".into(), destination: 0, reverse_of: Some(0), digest: 44 };
    GraphManifest {
        writer: "grappa-ingest 0.1.0".into(),
        node_types: vec![of_type("author", 11), of_type("paper", 22)],
        relations: vec![writes, reverse],
        generator: String::new(),
    }
}

/// A node type of a graph.
pub fn type_manifest() -> Manifest {
    Manifest {
        sources: Sources::None,
        edges: 0,
        chunks: vec![ChunkEntry::of_buckets(Vec::new()); 2],
        weighted: false,
        ..manifest()
    }
}

/// A relation of a graph, from nodes in three chunks.
pub fn relation_manifest() -> Manifest {
    Manifest {
        sources: Sources::Type(vec![0, 7, 8, 20]),
        chunks: vec![ChunkEntry::of_buckets(vec![1, 2, 0]), ChunkEntry::of_buckets(vec![4, 0, 0])],
        ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
        features: None,
        labels: None,
        splits: vec![],
        ..manifest()
    }
}

fn slice_manifest() -> Manifest {
    Manifest {
        writer: "g 1".into(),
        chunks: vec![ChunkEntry::absent(false), ChunkEntry::of_buckets(vec![7, 0])],
        ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
        features: None,
        labels: None,
        splits: vec![],
        generator: "{\"model\":\"rmat\"}".into(),
        files: vec![],
        ..manifest()
    }
}

/// A store with edges that are held out of the graph.
fn held_out_manifest() -> Manifest {
    let mut files = Vec::new();
    for (chunk, part) in [0, 1].into_iter().flat_map(|chunk| EdgePart::ALL.map(|part| (chunk, part))) {
        files.extend(["degrees", "edges", "weights"].map(|name| FileEntry {
            path: format!("chunk-{chunk}/{}", part.file(name)),
            bytes: 8,
            digest: 7,
        }));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Manifest { files, ..manifest() }
}

/// A slice with the features of the chunk that it lacks.
fn halo_manifest() -> Manifest {
    Manifest { edges: 4, chunks: vec![ChunkEntry::absent(true), ChunkEntry::of_buckets(vec![4, 0])], ..manifest() }
}

/// A slice with the features and in-degrees of the chunk that it lacks.
fn halo_degrees_manifest() -> Manifest {
    let mut manifest = halo_manifest();
    manifest.chunks[0].halo_degrees = true;
    manifest
}

#[test]
fn every_sample_is_right() {
    for sample in all() {
        read(sample.name, &sample.bytes).unwrap_or_else(|e| panic!("{}: {e}", sample.name));
    }
}

#[test]
fn samples_decode_to_their_values() {
    let bytes = |name| all().into_iter().find(|s| s.name == name).expect("a sample").bytes;
    assert_eq!(Manifest::decode(&bytes("manifest")).unwrap(), manifest());
    assert_eq!(Manifest::decode(&bytes("manifest-slice")).unwrap(), slice_manifest());
    assert_eq!(Manifest::decode(&bytes("manifest-halo")).unwrap(), halo_manifest());
    let held_out = Manifest::decode(&bytes("manifest-held-out")).unwrap();
    assert_eq!(held_out, held_out_manifest());
    assert_eq!(held_out.held_out(), EdgePart::HELD_OUT);
    assert_eq!(manifest().held_out(), []);
    assert_eq!(Manifest::decode(&bytes("manifest-halo-degrees")).unwrap(), halo_degrees_manifest());
    let strings = bytes("dictionary-strings");
    let (header, _) = decode_file(&strings, FileKind::DICTIONARY).unwrap();
    let meta = DictionaryMeta::decode(&header).unwrap();
    assert_eq!((meta.kind, meta.keys), (KeyKind::Strings, 18));
}
