//! The manifest of a graph with several node types or relations.
//!
//! Each node type and each relation is a *member*: a folder of its own, in the layout of a store. A node type has ids, features, labels and
//! splits, and no edges. A relation has adjacency lists, and no data of nodes. Its destinations are the nodes of one type, in the same
//! chunks, and its sources the nodes of a type, as indices within that type. So a file of a member is like the file of any store.
//!
//! The manifest of the graph names the members and says which types a relation joins. It is the payload of the container file `manifest`
//! in the folder of the graph, archived as the [manifest](crate::manifest) of a store, and written last.

use rkyv::{Archive, Deserialize, Serialize};

use crate::{
    Result,
    container::FileKind,
    error::invalid_if,
    manifest::{decode_archive, encode_archive},
};

/// The name of the node type of a store without types.
pub const NODE: &str = "node";
/// The name of its relation.
pub const EDGE: &str = "to";

/// The node types and relations of a graph.
///
/// ```
/// use grappa_formats::graph::*;
///
/// let type_named = |name: &str| NodeTypeEntry { name: name.into(), digest: 0 };
/// let writes = RelationEntry { source: 0, name: "writes".into(), destination: 1, reverse_of: None, digest: 0 };
/// let graph = GraphManifest {
///     writer: "example 1.0".into(),
///     node_types: vec![type_named("author"), type_named("paper")],
///     relations: vec![writes.clone()],
///     generator: String::new(),
/// };
/// assert_eq!(GraphManifest::decode(&graph.encode())?, graph);
/// assert_eq!(graph.relation_name(0), "author:writes:paper");
///
/// // A relation joins types of the graph.
/// let wrong = GraphManifest { relations: vec![RelationEntry { source: 2, ..writes }], ..graph };
/// assert!(GraphManifest::decode(&wrong.encode()).is_err());
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GraphManifest {
    /// The program and version that wrote the graph.
    pub writer: String,
    /// The node types. Type `t` is in the folder `nodes-<t>`.
    pub node_types: Vec<NodeTypeEntry>,
    /// The relations. Relation `r` is in the folder `relation-<r>`.
    pub relations: Vec<RelationEntry>,
    /// The recipe of a generated graph, as JSON. Empty for an ingested graph.
    pub generator: String,
}

/// A node type.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct NodeTypeEntry {
    /// Its name.
    pub name: String,
    /// The digest of its manifest.
    pub digest: u64,
}

/// A relation: edges from nodes of one type to nodes of one type.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct RelationEntry {
    /// The type of sources.
    pub source: u32,
    /// Its name. Relations between other types may share it.
    pub name: String,
    /// The type of destinations.
    pub destination: u32,
    /// The relation whose edges it has in the other direction.
    pub reverse_of: Option<u32>,
    /// The digest of its manifest.
    pub digest: u64,
}

impl GraphManifest {
    /// Encodes the file `manifest`.
    pub fn encode(&self) -> Vec<u8> {
        encode_archive(FileKind::GRAPH, self).0
    }

    /// Decodes and fully checks the file `manifest`.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let (graph, at) = decode_archive::<Self, _>(file, FileKind::GRAPH)?;
        graph.check().map_err(|error| error.moved_to(at))?;
        Ok(graph)
    }

    /// `source:name:destination` of a relation.
    ///
    /// # Panics
    /// If there is no such relation.
    pub fn relation_name(&self, relation: usize) -> String {
        let RelationEntry { source, name, destination, .. } = &self.relations[relation];
        let [source, destination] = [source, destination].map(|&end| &self.node_types[end as usize].name);
        format!("{source}:{name}:{destination}")
    }

    /// The type with this name.
    pub fn node_type(&self, name: &str) -> Option<usize> {
        self.node_types.iter().position(|entry| entry.name == name)
    }

    /// Checks that names differ, and that relations join types of the graph.
    pub fn check(&self) -> Result<()> {
        let types = self.node_types.len();
        invalid_if!(types == 0, 0, "a graph has at least one node type");
        for (index, entry) in self.node_types.iter().enumerate() {
            invalid_if!(entry.name.is_empty(), 0, "node type {index} has no name");
            invalid_if!(self.node_type(&entry.name) != Some(index), 0, "two node types are named {:?}", entry.name);
        }
        for (index, relation) in self.relations.iter().enumerate() {
            let ends = [relation.source, relation.destination];
            invalid_if!(
                ends.iter().any(|&end| end as usize >= types),
                0,
                "relation {index} joins types that the graph does not have"
            );
            invalid_if!(relation.name.is_empty(), 0, "relation {index} has no name");
            let is_same =
                |other: &&RelationEntry| other.name == relation.name && [other.source, other.destination] == ends;
            let first = self.relations.iter().position(|other| is_same(&other));
            invalid_if!(first != Some(index), 0, "two relations are named {}", self.relation_name(index));
            if let Some(other) = relation.reverse_of {
                let other = self.relations.get(other as usize);
                invalid_if!(
                    other.is_none_or(|other| [other.destination, other.source] != ends),
                    0,
                    "relation {index} is the reverse of one between other types"
                );
            }
        }
        Ok(())
    }
}
