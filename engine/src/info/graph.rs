//! Describes a graph with node types and relations, from manifests and headers.

use std::path::Path;

use grappa_formats::{graph::RelationEntry, manifest::Manifest};
use grappa_io::Result;
use grappa_storage::{Graph, Store};
use serde::Serialize;

use super::{
    AggregatesInfo, EdgeFeaturesInfo, FeaturesInfo, NodeTimesInfo, SplitsInfo, TimesInfo, aggregates, bytes,
    bytes_beside_members, edge_features_info, features_info, ids_name, labels_name, node_times_info, recipe_json,
    self_loops_name, splits_info, times_info,
};

/// The description of a graph. Field names are the keys of the JSON object that `grappa-store info --json` prints.
#[derive(Debug, Clone, Serialize)]
pub struct GraphInfo {
    /// Nodes of all types.
    pub nodes: u64,
    /// Edges of all relations.
    pub edges: u64,
    /// The node types.
    pub node_types: Vec<NodeTypeInfo>,
    /// The relations.
    pub relations: Vec<RelationInfo>,
    /// Generation of the assignment of edge buckets to partitions.
    pub generation: u64,
    /// Number of partitions.
    pub partitions: u32,
    /// The schedule that made them.
    pub schedule: String,
    /// Length of all files in bytes.
    pub bytes: u64,
    /// The program that wrote the graph.
    pub writer: String,
    /// The recipe of a generated graph.
    pub generator: Option<serde_json::Value>,
}

/// A node type.
#[derive(Debug, Clone, Serialize)]
pub struct NodeTypeInfo {
    /// Its name.
    pub name: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of chunks. Those of the first type come first among the chunks of the graph.
    pub chunks: u32,
    /// Chunks whose files exist; fewer than `chunks` in a slice.
    pub chunks_present: u32,
    /// Other chunks whose features a slice has, for halo nodes.
    pub chunks_halo: u32,
    /// The kind of external ids: `dense`, `sparse` or `string`.
    pub ids: &'static str,
    /// The times of nodes, if they have any.
    pub times: Option<NodeTimesInfo>,
    /// The features, if there are any.
    pub features: Option<FeaturesInfo>,
    /// The name of each dimension of the features. Empty if they have none.
    pub feature_names: Vec<String>,
    /// Number of classes or targets, if there are labels.
    pub classes: Option<u32>,
    /// `single`, `multi`, `partial` or `targets`, if there are labels.
    pub labels: Option<&'static str>,
    /// The name of each class. Empty if they have none.
    pub class_names: Vec<String>,
    /// Nodes in each split.
    pub splits: SplitsInfo,
    /// Length of its files in bytes.
    pub bytes: u64,
}

/// A relation.
#[derive(Debug, Clone, Serialize)]
pub struct RelationInfo {
    /// `source:name:destination`.
    pub name: String,
    /// The type of sources.
    pub source: String,
    /// Its name without the types.
    pub relation: String,
    /// The type of destinations.
    pub destination: String,
    /// The relation whose edges it has in the other direction.
    pub reverse_of: Option<String>,
    /// Number of edges.
    pub edges: u64,
    /// Edges in the input.
    pub edges_read: u64,
    /// Lines and rows of the input that were not edges.
    pub rejected: u64,
    /// Whether edges have weights.
    pub weighted: bool,
    /// The times of edges, if they have any.
    pub times: Option<TimesInfo>,
    /// The features of edges, if they have any.
    pub edge_features: Option<EdgeFeaturesInfo>,
    /// Whether each edge was stored in both directions.
    pub undirected: bool,
    /// Whether parallel edges were merged.
    pub dedup: bool,
    /// How self-loops were treated: `keep`, `drop` or `add`.
    pub self_loops: &'static str,
    /// Pre-aggregated features of the sources.
    pub aggregates: Vec<AggregatesInfo>,
    /// Length of its files in bytes.
    pub bytes: u64,
}

/// Describes a graph.
///
/// # Errors
/// If a file can't be read.
pub fn graph_info(graph: &Graph, path: &Path) -> Result<GraphInfo> {
    let manifest = graph.manifest();
    let node_types = manifest.node_types.iter().zip(graph.node_types());
    let node_types = node_types.map(|(entry, store)| node_type_info(&entry.name, store)).collect::<Result<Vec<_>>>()?;
    let relations = graph.relations().iter().enumerate().map(|(number, store)| {
        let RelationEntry { source, name, destination, reverse_of, .. } = &manifest.relations[number];
        let [source, destination] = [source, destination].map(|&end| manifest.node_types[end as usize].name.clone());
        let aggregates = aggregates(graph.relation(number))?;
        let file_bytes = bytes(store, aggregates.iter().map(|of_kind| of_kind.bytes).sum())?;
        let Manifest { edges, edges_read, rejected, weighted, edge_options, .. } = *store.manifest();
        Ok(RelationInfo {
            name: manifest.relation_name(number),
            source,
            relation: name.clone(),
            destination,
            reverse_of: reverse_of.map(|other| manifest.relation_name(other as usize)),
            edges,
            edges_read,
            rejected,
            weighted,
            times: times_info(store, |_| file_bytes.times)?,
            edge_features: edge_features_info(store, &file_bytes),
            undirected: edge_options.undirected,
            dedup: edge_options.dedup,
            self_loops: self_loops_name(edge_options.self_loops),
            aggregates,
            bytes: file_bytes.total,
        })
    });
    let relations = relations.collect::<Result<Vec<_>>>()?;
    let own_bytes = bytes_beside_members(path)?;
    let members =
        node_types.iter().map(|node_type| node_type.bytes).chain(relations.iter().map(|relation| relation.bytes));
    Ok(GraphInfo {
        nodes: node_types.iter().map(|node_type| node_type.nodes).sum(),
        edges: relations.iter().map(|relation| relation.edges).sum(),
        generation: graph.assignment().generation(),
        partitions: graph.assignment().partitions(),
        schedule: graph.assignment().schedule().to_owned(),
        bytes: own_bytes + members.sum::<u64>(),
        node_types,
        relations,
        writer: manifest.writer.clone(),
        generator: recipe_json(&manifest.generator),
    })
}

fn node_type_info(name: &str, store: &Store) -> Result<NodeTypeInfo> {
    let (manifest, schema, file_bytes) = (store.manifest(), store.schema()?, bytes(store, 0)?);
    Ok(NodeTypeInfo {
        name: name.to_owned(),
        nodes: manifest.nodes,
        chunks: store.chunks().chunks(),
        chunks_present: store.present_chunks().count() as u32,
        chunks_halo: manifest.chunks.iter().filter(|entry| entry.halo).count() as u32,
        ids: ids_name(manifest),
        times: node_times_info(store)?,
        features: features_info(manifest, &file_bytes),
        feature_names: schema.feature_names(),
        classes: manifest.labels.map(|labels| labels.classes),
        labels: labels_name(manifest),
        class_names: schema.classes,
        splits: splits_info(manifest),
        bytes: file_bytes.total,
    })
}
