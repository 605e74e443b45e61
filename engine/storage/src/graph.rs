//! An open graph: its node types and relations, each as a store.

use std::{path::Path, sync::Arc};

use grappa_formats::{
    container::{self, FileKind},
    graph::{GraphManifest, NodeTypeEntry, RelationEntry},
    manifest::{Manifest, Sources},
};
use grappa_io::{Error, Result};

use crate::{Store, files, member::read_member, open::manifest_bytes};

/// The name of the node type of a store without types.
pub const NODE: &str = "node";
/// The name of its relation.
pub const EDGE: &str = "to";

/// A graph that is open for reading: one or more node types, and the relations between them.
///
/// A node type is a [`Store`] with ids, features, labels and splits. A relation is a store with adjacency lists: its nodes are the
/// destinations, and its sources are nodes of a type, which may be another one. Nodes are numbered within their type.
///
/// A store without types is a graph with one type and one relation, which are the same store.
#[derive(Debug, Clone)]
pub struct Graph {
    manifest: GraphManifest,
    node_types: Vec<Arc<Store>>,
    relations: Vec<Arc<Store>>,
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
            let ids = [source, destination].map(|store| store.ids().clone());
            Store::open_member(&folder, member, Some(ids)).map(Arc::new)
        });
        let relations = relations.collect::<Result<_>>()?;
        Ok(Self { manifest, node_types, relations })
    }

    /// A graph of one type and one relation.
    pub fn from_store(store: &Arc<Store>) -> Self {
        let digest = store.manifest().digest();
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
        Self { manifest, node_types: vec![store.clone()], relations: vec![store.clone()] }
    }

    /// The names of types and relations, and which types a relation joins.
    pub fn manifest(&self) -> &GraphManifest {
        &self.manifest
    }

    /// The node types, in the order of the manifest.
    pub fn node_types(&self) -> &[Arc<Store>] {
        &self.node_types
    }

    /// The relations, in the order of the manifest.
    pub fn relations(&self) -> &[Arc<Store>] {
        &self.relations
    }
}
