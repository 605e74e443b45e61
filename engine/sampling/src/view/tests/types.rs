//! Small graphs with types, and stores of them.

use grappa_formats::{
    ChunkId, ChunkSpan,
    chunks::ChunkMap,
    container::FileKind,
    features::{FeatureLayout, FeaturesMeta},
    graph::{GraphManifest, NodeTypeEntry, RelationEntry},
    manifest::{
        ChunkEntry, EdgeOptions, ExternalIds, FeatureDtype, FeatureSource, FeatureSpec, IdSpec, Manifest,
        PermutationSpec, Sources,
    },
};
use grappa_io::container::ContainerWriter;
use grappa_storage::{
    Graph, files,
    writer::{AdjacencyWriter, EndChunks, StoreFolder},
};
use tempfile::TempDir;

/// A node type: the number of its nodes and chunks, and of the values of their features.
#[derive(Debug, Clone, Copy)]
pub struct TypeShape {
    pub nodes: u64,
    pub chunks: u32,
    pub dim: Option<u32>,
}

/// A graph with types as plain adjacency lists.
#[derive(Debug, Clone)]
pub struct TypedGraph {
    pub types: Vec<TypeShape>,
    pub relations: Vec<TypedRelation>,
}

#[derive(Debug, Clone)]
pub struct TypedRelation {
    pub source: usize,
    pub destination: usize,
    /// The sources of each destination, ascending.
    pub lists: Vec<Vec<u64>>,
}

impl TypedGraph {
    /// Three types, of which one has no features and one no relation into it, and five relations. Lists have all kinds of degrees.
    pub fn library() -> Self {
        let types = vec![
            TypeShape { nodes: 700, chunks: 3, dim: Some(5) },
            TypeShape { nodes: 300, chunks: 2, dim: None },
            TypeShape { nodes: 40, chunks: 1, dim: Some(12) },
        ];
        let mut graph = Self { types, relations: Vec::new() };
        for (number, (source, destination)) in (0..).zip([(1, 0), (0, 1), (0, 0), (2, 0), (2, 1)]) {
            let nodes = graph.types[source].nodes;
            let lists = (0..graph.types[destination].nodes).map(|node| {
                let degree = match node % 7 {
                    0 => 0,
                    1 => nodes.min(120),
                    kind => kind * 2,
                };
                let mut sources: Vec<u64> =
                    (0..degree).map(|k| (node * 31 + k * k * 17 + k + number) % nodes).collect();
                sources.sort_unstable();
                sources.dedup();
                sources
            });
            let lists = lists.collect();
            graph.relations.push(TypedRelation { source, destination, lists });
        }
        graph
    }

    /// A value of the features of a node.
    pub fn value(node_type: usize, node: u64, place: u32) -> f32 {
        node_type as f32 * 4e6 + node as f32 * 2048.0 + place as f32
    }

    /// Writes the graph and opens it.
    pub fn write(&self) -> (TempDir, Graph) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.grappa");
        let (store, _) = StoreFolder::begin(&path, None, false).unwrap();
        let types = (0..self.types.len())
            .map(|number| NodeTypeEntry { name: format!("type{number}"), digest: self.write_type(&store, number) });
        let relations = self.relations.iter().enumerate().map(|(number, relation)| RelationEntry {
            source: relation.source as u32,
            name: format!("relation{number}"),
            destination: relation.destination as u32,
            reverse_of: None,
            digest: self.write_relation(&store, number),
        });
        let manifest = GraphManifest {
            writer: "test 1".into(),
            node_types: types.collect(),
            relations: relations.collect(),
            generator: String::new(),
        };
        store.commit_graph(&manifest).unwrap();
        let graph = Graph::open(&path).unwrap();
        assert_eq!(*graph.manifest(), manifest);
        (folder, graph)
    }

    fn chunks(&self, node_type: usize) -> ChunkMap {
        ChunkMap::uniform(self.types[node_type].nodes, self.types[node_type].chunks)
    }

    fn manifest(&self, node_type: usize, sources: Sources) -> Manifest {
        let map = self.chunks(node_type);
        Manifest {
            sources,
            writer: "test 1".into(),
            nodes: map.nodes(),
            edges: 0,
            chunk_starts: map.starts().to_vec(),
            chunks: Vec::new(),
            ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
            features: None,
            labels: None,
            splits: Vec::new(),
            weighted: false,
            edge_options: EdgeOptions::default(),
            edges_read: 0,
            rejected: 0,
            generator: String::new(),
            files: Vec::new(),
        }
    }

    fn write_type(&self, graph: &StoreFolder, number: usize) -> u64 {
        let (store, _) = StoreFolder::begin(&graph.path().join(files::node_type_folder(number)), None, false).unwrap();
        let mut manifest = self.manifest(number, Sources::None);
        let map = self.chunks(number);
        for chunk in (0..map.chunks()).map(ChunkId) {
            manifest.chunks.push(ChunkEntry::of_buckets(Vec::new()));
            let Some(dim) = self.types[number].dim else { continue };
            let layout = FeatureLayout { dtype: FeatureDtype::F32, dim, stride: 4 * dim };
            manifest.features = Some(FeatureSpec {
                dim,
                dtype: layout.dtype,
                row_stride: layout.stride,
                source: FeatureSource::Stored,
            });
            let meta = FeaturesMeta { span: ChunkSpan::for_chunk(&map, chunk), layout, with_features: false }.encode();
            let path = store.chunk(chunk).unwrap().join("features");
            let mut file = ContainerWriter::create(&path, FileKind::FEATURES, meta.len()).unwrap();
            for node in map.range(chunk) {
                for place in 0..dim {
                    file.write(&Self::value(number, node, place).to_le_bytes()).unwrap();
                }
            }
            manifest.files.push(store.entry(&file.finish(meta).unwrap()));
        }
        store.commit(&manifest).unwrap();
        manifest.digest()
    }

    fn write_relation(&self, graph: &StoreFolder, number: usize) -> u64 {
        let (store, _) = StoreFolder::begin(&graph.path().join(files::relation_folder(number)), None, false).unwrap();
        let TypedRelation { source, destination, lists } = &self.relations[number];
        let (sources, destinations) = (self.chunks(*source), self.chunks(*destination));
        let mut manifest = self.manifest(*destination, Sources::Type(sources.starts().to_vec()));
        for chunk in (0..destinations.chunks()).map(ChunkId) {
            let ends = EndChunks { destinations: &destinations, sources: &sources };
            let mut writer = AdjacencyWriter::create(&store, ends, chunk, false, None).unwrap();
            for node in destinations.range(chunk) {
                writer.push(&lists[node as usize], &[], &[]).unwrap();
            }
            let (entry, written) = writer.finish().unwrap();
            manifest.edges += entry.edges;
            manifest.chunks.push(entry);
            manifest.files.extend(written.iter().map(|file| store.entry(file)));
        }
        manifest.edges_read = manifest.edges;
        manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        store.commit(&manifest).unwrap();
        manifest.digest()
    }
}
