//! An open graph: its node types and relations, each as a store.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
};

use grappa_formats::{
    NodeId,
    assignment::Assignment,
    chunks::ChunkMap,
    container::{self, FileKind},
    graph::{EDGE, GraphManifest, NODE, NodeTypeEntry, RelationEntry},
    manifest::{Manifest, Sources},
};
use grappa_io::{Error, Position, Result, container::ContainerFile};

use crate::{NodeTimes, Store, assignments, files, member::read_member, open::manifest_bytes};

/// A graph that is open for reading: one or more node types, and the relations between them.
///
/// A node type is a [`Store`] with ids, features, labels and splits. A relation is a store with adjacency lists: its nodes are the
/// destinations, and its sources are nodes of a type, which may be another one. Nodes are numbered within their type.
///
/// A store without types is a graph with one type and one relation, which are the same store.
#[derive(Debug, Clone)]
pub struct Graph {
    path: PathBuf,
    manifest: GraphManifest,
    node_types: Vec<Arc<Store>>,
    relations: Vec<Arc<Store>>,
    positions: Positions,
    assignment: Assignment,
}

/// A relation of a graph, with the types that it joins. A store without types is all three.
#[derive(Debug, Clone, Copy)]
pub struct Relation<'a> {
    /// The type of its sources.
    pub sources: &'a Store,
    /// Its edges. The nodes of this store are the destinations.
    pub edges: &'a Store,
    /// The type of its destinations.
    pub destinations: &'a Store,
}

impl Relation<'_> {
    /// Whether both ends are nodes of one type.
    pub fn joins_one_type(&self) -> bool {
        ptr::eq(self.sources, self.destinations)
    }
}

impl From<Arc<Store>> for Graph {
    fn from(store: Arc<Store>) -> Self {
        Self::from_store(&store)
    }
}

impl<'a> From<&'a Store> for Relation<'a> {
    fn from(store: &'a Store) -> Self {
        Self { sources: store, edges: store, destinations: store }
    }
}

impl<'a> From<&'a Arc<Store>> for Relation<'a> {
    fn from(store: &'a Arc<Store>) -> Self {
        Self::from(&**store)
    }
}

/// The positions of the nodes of all types: the nodes of the first type come first, then those of the second, and so on. Of a graph with
/// one type, they are the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions {
    /// The position of the first node of each type, then the number of nodes.
    starts: Vec<u64>,
    /// The first chunk of each type among the chunks of all types.
    first_chunks: Vec<u32>,
    chunks: ChunkMap,
}

impl Positions {
    fn new(node_types: &[Arc<Store>]) -> Result<Self> {
        let (mut starts, mut first_chunks, mut chunk_starts) = (vec![0], vec![0], vec![0]);
        for store in node_types {
            let first = starts[starts.len() - 1];
            chunk_starts.extend(store.chunks().starts()[1..].iter().map(|start| first + start));
            starts.push(first + store.chunks().nodes());
            first_chunks.push(chunk_starts.len() as u32 - 1);
        }
        let chunks = ChunkMap::from_starts(chunk_starts).map_err(|error| {
            Error::limit("the nodes of all types are too many", error.to_string(), "ingest fewer nodes")
        })?;
        Ok(Self { starts, first_chunks, chunks })
    }

    /// The number of types.
    pub fn types(&self) -> usize {
        self.starts.len() - 1
    }

    /// The positions of the nodes of a type.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn range(&self, node_type: usize) -> Range<u64> {
        self.starts[node_type]..self.starts[node_type + 1]
    }

    /// The type at a position, and the node.
    ///
    /// # Panics
    /// If there is no such position.
    #[inline]
    pub fn locate(&self, position: u64) -> (usize, NodeId) {
        let node_type = self.starts.partition_point(|&start| start <= position) - 1;
        assert!(position < self.starts[self.types()], "position {position} of {}", self.starts[self.types()]);
        (node_type, NodeId(position - self.starts[node_type]))
    }

    /// The chunks of all types, over positions.
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// The chunks of a type among the chunks of all types.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn chunks_of(&self, node_type: usize) -> Range<u32> {
        self.first_chunks[node_type]..self.first_chunks[node_type + 1]
    }
}

impl Graph {
    /// Opens the graph or the store at `path`. As for a store, this reads manifests and headers.
    ///
    /// # Errors
    /// If there is no graph, or a file of it is missing or damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let (file, bytes) = manifest_bytes(path)?;
        if !container::is_of_kind(&bytes, FileKind::GRAPH) {
            return Ok(Self::from_store(&Arc::new(Store::open(path)?)));
        }
        let manifest = GraphManifest::decode(&bytes).map_err(Error::format(file))?;
        let node_types = manifest.node_types.iter().enumerate().map(|(number, entry)| {
            let folder = path.join(files::node_type_folder(number));
            let member = read_member(&folder, entry.digest, |member| member.sources == Sources::None)?;
            Store::open_member(&folder, member, None).map(Arc::new)
        });
        let node_types = node_types.collect::<Result<Vec<_>>>()?;
        let relations = manifest.relations.iter().enumerate().map(|(number, entry)| {
            let folder = path.join(files::relation_folder(number));
            let [source, destination] = [entry.source, entry.destination].map(|end| &node_types[end as usize]);
            let starts = |store: &Store| store.chunks().starts().to_vec();
            let joins = |member: &Manifest| {
                member.sources == Sources::Type(starts(source)) && member.chunk_starts == starts(destination)
            };
            let member = read_member(&folder, entry.digest, joins)?;
            if member.is_timed() && source.has_node_times() {
                let problem = "both the edges and their sources have times";
                return Err(Error::input(folder, Position::Whole, problem));
            }
            let ids = [source, destination].map(|store| store.ids().clone());
            Store::open_member(&folder, member, Some(ids)).map(Arc::new)
        });
        let relations = relations.collect::<Result<_>>()?;
        let positions = Positions::new(&node_types)?;
        let assignment = assignments::read_newest(path, positions.chunks().chunks())?;
        Ok(Self { path: path.to_owned(), manifest, positions, assignment, node_types, relations })
    }

    /// A graph of one type and one relation.
    pub fn from_store(store: &Arc<Store>) -> Self {
        // The store checked its manifest when it was opened.
        let digest = 0;
        let manifest = GraphManifest {
            writer: store.manifest().writer.clone(),
            node_types: vec![NodeTypeEntry { name: NODE.to_owned(), digest }],
            relations: vec![RelationEntry {
                source: 0,
                name: EDGE.to_owned(),
                destination: 0,
                reverse_of: None,
                digest,
            }],
            generator: store.manifest().generator.clone(),
        };
        let node_types = vec![store.clone()];
        let positions = Positions::new(&node_types).expect("the chunks of a store are valid");
        Self {
            path: store.path().to_owned(),
            manifest,
            positions,
            assignment: store.assignment().clone(),
            node_types,
            relations: vec![store.clone()],
        }
    }

    /// The folder of the graph.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the manifest, which has the digests of all other files.
    ///
    /// # Errors
    /// If the manifest cannot be read.
    pub fn digest(&self) -> Result<u64> {
        let kind = if self.has_types() { FileKind::GRAPH } else { FileKind::MANIFEST };
        Ok(ContainerFile::open(&self.path.join("manifest"), kind)?.digest())
    }

    /// The names of types and relations, and which types a relation joins. Of a store without types, digests are 0.
    pub fn manifest(&self) -> &GraphManifest {
        &self.manifest
    }

    /// Whether node types and relations are members, with names. A store without types is both at once.
    pub fn has_types(&self) -> bool {
        self.relations.len() != 1 || !Arc::ptr_eq(&self.node_types[0], &self.relations[0])
    }

    /// Whether edges of a relation, or nodes of a type, have times.
    pub fn is_timed(&self) -> bool {
        self.relations.iter().any(|relation| relation.is_timed())
            || self.node_types.iter().any(|node_type| node_type.has_node_times())
    }

    /// The times of the nodes of a type, if they have times.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn node_times(&self, node_type: usize) -> Result<Option<&Arc<NodeTimes>>> {
        self.node_types[node_type].node_times()
    }

    /// The positions of nodes among the nodes of all types.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// The assignment that was current when the graph was opened. Its chunks are those of all types.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// The node types, in the order of the manifest.
    pub fn node_types(&self) -> &[Arc<Store>] {
        &self.node_types
    }

    /// The relations, in the order of the manifest.
    pub fn relations(&self) -> &[Arc<Store>] {
        &self.relations
    }

    /// The number of the node type of this name.
    pub fn type_named(&self, name: &str) -> Option<usize> {
        self.manifest.node_types.iter().position(|node_type| node_type.name == name)
    }

    /// Number of edges of all relations.
    pub fn edges(&self) -> u64 {
        self.relations.iter().map(|relation| relation.manifest().edges).sum()
    }

    /// Whether no chunk of a type or relation is missing.
    pub fn is_whole(&self) -> bool {
        self.node_types.iter().chain(&self.relations).all(|member| member.manifest().is_whole())
    }

    /// A relation with the types that it joins.
    ///
    /// # Panics
    /// If there is no such relation.
    pub fn relation(&self, number: usize) -> Relation<'_> {
        let RelationEntry { source, destination, .. } = self.manifest.relations[number];
        let [sources, destinations] = [source, destination].map(|end| &*self.node_types[end as usize]);
        Relation { sources, edges: &self.relations[number], destinations }
    }

    /// The relation that has the edges of a relation in the other direction, if there is one.
    ///
    /// # Panics
    /// If there is no such relation.
    pub fn reverse_of(&self, number: usize) -> Option<usize> {
        let relations = &self.manifest.relations;
        let reverse = relations[number].reverse_of.map(|reverse| reverse as usize);
        reverse.or_else(|| relations.iter().position(|other| other.reverse_of == Some(number as u32)))
    }

    /// Whether edges come from nodes whose stored features are missing: the graph is a slice without them.
    pub fn lacks_features(&self) -> bool {
        (0..self.relations.len()).any(|number| {
            let Relation { sources, edges, .. } = self.relation(number);
            let chunks = &sources.manifest().chunks;
            let lacks = |(chunk, edges): (usize, &u64)| *edges > 0 && !chunks[chunk].has_features();
            let mut present = edges.manifest().chunks.iter().filter(|entry| entry.present);
            sources.manifest().stored_features().is_some()
                && present.any(|entry| entry.bucket_edges.iter().enumerate().any(lacks))
        })
    }

    /// The relations whose sources have features, so that these can be pre-aggregated.
    pub fn relations_with_features(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.relations.len()).filter(|&number| self.relation(number).sources.manifest().features.is_some())
    }
}
