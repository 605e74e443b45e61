//! A small store with every kind of file, and what is in it.

use std::path::{Path, PathBuf};

use grappa_formats::{
    ChunkId, ChunkSpan,
    chunks::ChunkMap,
    container::FileKind,
    dictionary::{IntegerDictionaryBuilder, StringDictionaryBuilder},
    features::{FeatureLayout, FeaturesMeta},
    labels::LabelsMeta,
    manifest::{
        ChunkEntry, EdgeOptions, ExternalIds, FeatureDtype, FeatureSource, FeatureSpec, FileEntry, IdSpec, LabelKind,
        LabelSpec, Manifest, PermutationSpec, SelfLoops, Sources, SplitEntry,
    },
    permutation_table::{self, PermutationTableMeta},
    schema::{Column, Schema},
    splits,
};
use grappa_io::container::{ContainerWriter, WrittenFile};
use grappa_storage::{
    files,
    writer::{AdjacencyWriter, StoreFolder},
};
use tempfile::TempDir;

pub const NODES: u64 = 150;
pub const CHUNKS: u32 = 3;
pub const DIM: u32 = 5;

/// What `make` makes in a new folder, and the folder.
pub(crate) fn in_folder<T>(make: impl FnOnce(&Path) -> T) -> (TempDir, T) {
    let folder = tempfile::tempdir().unwrap();
    let made = make(folder.path());
    (folder, made)
}

/// The properties in which samples differ.
#[derive(Clone, Copy)]
pub struct Sample {
    pub ids: ExternalIds,
    pub permutation: PermutationSpec,
    pub weighted: bool,
    pub dtype: FeatureDtype,
    pub label_kind: LabelKind,
    /// Factor of all features.
    pub feature_scale: f32,
    /// Factor of all weights.
    pub weight_scale: f32,
    /// A slice lacks this chunk.
    pub without: Option<u32>,
    /// Whether sources are the nodes before their destination, so that adjacency lists are in gap code.
    pub local: bool,
}

impl Sample {
    pub const ALL_PARTS: Self = Self {
        ids: ExternalIds::Sparse,
        permutation: PermutationSpec::Table,
        weighted: true,
        dtype: FeatureDtype::Int8,
        label_kind: LabelKind::Single,
        feature_scale: 1.0,
        weight_scale: 1.0,
        without: None,
        local: false,
    };

    pub const STRINGS: Self = Self {
        ids: ExternalIds::String,
        permutation: PermutationSpec::Feistel(7),
        weighted: false,
        dtype: FeatureDtype::F32,
        label_kind: LabelKind::Multi,
        feature_scale: 1.0,
        weight_scale: 1.0,
        without: None,
        local: false,
    };

    /// The sources of a node: ascending, without self-loops.
    pub fn sources(node: u64) -> Vec<u64> {
        (0..node % 7)
            .map(|k| (node * 13 + k * k * 29) % NODES)
            .filter(|&s| s != node)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    fn sources_of(&self, node: u64) -> Vec<u64> {
        match self.local {
            true => (node - node % 7..node).collect(),
            false => Self::sources(node),
        }
    }

    pub fn weight(node: u64, source: u64) -> f32 {
        (node * NODES + source) as f32 / 16.0
    }

    /// The features of an edge of a weighted graph, exact in each type.
    pub fn edge_features(node: u64, source: u64) -> [f32; 2] {
        [127.0, (node + source) as f32 % 100.0]
    }

    pub fn feature(node: u64, i: u64) -> f32 {
        ((node + i) % 50) as f32 - 25.0
    }

    pub fn class(node: u64) -> Option<u32> {
        (!node.is_multiple_of(11)).then_some((node % 4) as u32)
    }

    /// The sparse external id of a dense id.
    pub fn sparse_id(id: u64) -> u64 {
        id * id * 1_000_003 + 17
    }

    pub fn string_id(id: u64) -> String {
        format!("node/{id:05}")
    }

    pub fn schema() -> Schema {
        Schema {
            features: (0..DIM).map(|i| Column::number(format!("f{i}"))).collect(),
            classes: ["red", "green", "blue", "none"].map(str::to_owned).to_vec(),
            ..Schema::default()
        }
    }

    /// The node of a dense id, if the permutation is a table.
    pub fn table_node(id: u64) -> u64 {
        (id * 7 + 3) % NODES
    }

    /// Writes the store into `folder`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("sample.grappa");
        self.write_with(&path, |_| {});
        path
    }

    /// Writes the store, with a manifest that was tampered with.
    pub fn write_with(&self, path: &Path, tamper: impl FnOnce(&mut Manifest)) {
        let (store, _) = StoreFolder::begin(path, None, false).unwrap();
        let map = ChunkMap::uniform(NODES, CHUNKS);
        let layout = FeatureLayout::new(self.dtype, DIM);
        let labels = LabelSpec::new(self.label_kind, 4);
        let mut manifest = Manifest {
            sources: Sources::Nodes,
            writer: "test 1".into(),
            nodes: NODES,
            edges: 0,
            chunk_starts: map.starts().to_vec(),
            chunks: Vec::new(),
            ids: IdSpec { external: self.ids, permutation: self.permutation },
            features: Some(FeatureSpec {
                dim: DIM,
                dtype: self.dtype,
                row_stride: layout.stride,
                source: FeatureSource::Stored,
            }),
            labels: Some(labels),
            splits: Vec::new(),
            weighted: self.weighted,
            edge_options: EdgeOptions { undirected: false, dedup: true, self_loops: SelfLoops::Drop },
            edges_read: 0,
            rejected: 0,
            generator: String::new(),
            files: Vec::new(),
        };
        for chunk in (0..CHUNKS).map(ChunkId) {
            if self.without == Some(chunk.0) {
                manifest.chunks.push(ChunkEntry::absent(false));
                continue;
            }
            let edge_layout = FeatureLayout::new(self.dtype, 2);
            let features = self.weighted.then_some(edge_layout);
            let mut rows = AdjacencyWriter::create(&store, &map, chunk, self.weighted, features).unwrap();
            for node in map.range(chunk) {
                let sources = self.sources_of(node);
                let weights: Vec<_> = sources.iter().map(|&s| self.weight_scale * Self::weight(node, s)).collect();
                let features: Vec<f32> = sources.iter().flat_map(|&s| Self::edge_features(node, s)).collect();
                let mut encoded = vec![0; sources.len() * edge_layout.stride as usize];
                edge_layout.encode_rows(&features, &mut encoded);
                match self.weighted {
                    true => rows.push(&sources, &weights, &encoded).unwrap(),
                    false => rows.push(&sources, &[], &[]).unwrap(),
                }
            }
            let (entry, files) = rows.finish().unwrap();
            manifest.edges += entry.edges;
            manifest.chunks.push(entry);
            manifest.files.extend(files.iter().map(|file| store.entry(file)));
            let span = ChunkSpan::for_chunk(&map, chunk);
            let files = [self.features(&store, span, layout), self.labels(&store, span, labels)];
            manifest.files.extend(files.iter().map(|file| store.entry(file)));
        }
        manifest.edges_read = manifest.edges;
        self.ids(&store, &mut manifest);
        self.splits(&store, &mut manifest);
        let mut schema = Self::schema();
        if self.weighted {
            schema.edge_features = ["amount", "hour"].map(Column::number).to_vec();
        }
        let schema = store.write_file(files::SCHEMA, schema.encode()).unwrap();
        manifest.files.push(schema);
        manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        tamper(&mut manifest);
        store.commit(&manifest).unwrap();
    }

    fn features(&self, store: &StoreFolder, span: ChunkSpan, layout: FeatureLayout) -> WrittenFile {
        let meta = FeaturesMeta { span, layout, with_features: false }.encode();
        let path = store.chunk(span.chunk).unwrap().join("features");
        let mut file = ContainerWriter::create(&path, FileKind::FEATURES, meta.len()).unwrap();
        for node in span.first_node.0..span.first_node.0 + span.rows {
            let values: Vec<_> = (0..u64::from(DIM)).map(|i| self.feature_scale * Self::feature(node, i)).collect();
            let mut row = vec![0; layout.stride as usize];
            layout.encode_row(&values, &mut row);
            file.write(&row).unwrap();
        }
        file.finish(meta).unwrap()
    }

    /// The values of a node's classes or targets. Class 3 is unknown of nodes in class 0.
    pub fn values(class: Option<u32>) -> [f32; 4] {
        [0, 1, 2, 3].map(|c| match class {
            None => f32::NAN,
            Some(0) if c == 3 => f32::NAN,
            Some(class) => f32::from(u8::from(c == class)),
        })
    }

    fn labels(&self, store: &StoreFolder, span: ChunkSpan, spec: LabelSpec) -> WrittenFile {
        let meta = LabelsMeta { span, spec }.encode();
        let path = store.chunk(span.chunk).unwrap().join("labels");
        let mut file = ContainerWriter::create(&path, FileKind::LABELS, meta.len()).unwrap();
        let mut payload = Vec::new();
        for node in span.first_node.0..span.first_node.0 + span.rows {
            let class = Self::class(node);
            match self.label_kind {
                LabelKind::Single => spec.encode_single(class, &mut payload),
                LabelKind::Multi => spec.encode_multi(class.as_ref().map(std::slice::from_ref), &mut payload),
                LabelKind::Partial | LabelKind::Targets => spec.encode_values(&Self::values(class), &mut payload),
            }
        }
        file.write(&payload).unwrap();
        file.finish(meta).unwrap()
    }

    fn ids(&self, store: &StoreFolder, manifest: &mut Manifest) {
        let folder = store.folder("ids").unwrap();
        let mut add = |path: &str, kind, meta: Vec<u8>, payload: &[u8]| {
            let path = folder.join(path.strip_prefix("ids/").unwrap());
            let mut file = ContainerWriter::create(&path, kind, meta.len()).unwrap();
            file.write(payload).unwrap();
            let entry: FileEntry = store.entry(&file.finish(meta).unwrap());
            manifest.files.push(entry);
        };
        match self.ids {
            ExternalIds::Dense => {}
            ExternalIds::Sparse => {
                let mut keys = IntegerDictionaryBuilder::new();
                (0..NODES).for_each(|id| keys.push(Self::sparse_id(id)));
                let (meta, payload) = keys.finish();
                add(files::DICTIONARY, FileKind::DICTIONARY, meta.encode(), &payload);
            }
            ExternalIds::String => {
                let mut keys = StringDictionaryBuilder::new();
                (0..NODES).for_each(|id| keys.push(Self::string_id(id).as_bytes()));
                let (meta, tail) = keys.finish();
                let payload: Vec<u8> = tail.flatten().collect();
                add(files::DICTIONARY, FileKind::DICTIONARY, meta.encode(), &payload);
            }
        }
        if self.permutation == PermutationSpec::Table {
            let nodes: Vec<_> = (0..NODES).map(Self::table_node).collect();
            let mut dense_ids = vec![0; NODES as usize];
            (0..NODES).for_each(|id| dense_ids[nodes[id as usize] as usize] = id);
            let mut payload = Vec::new();
            permutation_table::encode_entries(&nodes, &mut payload);
            permutation_table::encode_entries(&dense_ids, &mut payload);
            add(files::PERMUTATION, FileKind::PERMUTATION, PermutationTableMeta { nodes: NODES }.encode(), &payload);
        }
    }

    fn splits(&self, store: &StoreFolder, manifest: &mut Manifest) {
        store.folder("splits").unwrap();
        for (third, name) in (0..).zip(["train", "val", "test"]) {
            let set = (0..NODES).filter(|node| node % 5 == third).collect();
            let file = store.write_file(&files::split(name), splits::encode(name, NODES, &set)).unwrap();
            manifest.files.push(file);
            manifest.splits.push(SplitEntry { name: name.into(), nodes: set.len() });
        }
    }
}
