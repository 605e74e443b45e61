//! The node types and relations that a model learns from.

use grappa_formats::{
    graph::{EDGE, NODE},
    schema::Column,
};
use serde::{Deserialize, Serialize};

use super::time_encoding::TimeEncoding;

/// The node types and relations that a model learns from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelGraph {
    /// The node types, in the order of the graph.
    pub node_types: Vec<ModelNodeType>,
    /// The relations, in the order of the graph.
    pub relations: Vec<ModelRelation>,
    /// What the outputs are for.
    pub target: ModelTarget,
}

/// The nodes or edges of a [`ModelGraph`] that a model predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTarget {
    /// The nodes of the type of this number.
    Type(usize),
    /// Edges of the relation of this number: both of its types get outputs.
    Relation(usize),
}

/// A node type of a [`ModelGraph`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelNodeType {
    /// The name.
    pub name: String,
    /// Inputs per node: its features, its encoded age, and its learnable embedding.
    pub inputs: usize,
    /// The values that encode the age among these; 0 without.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ages: usize,
    /// The values of the embedding among these; 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub embedding: usize,
    /// The columns of these features. Empty if they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
}

/// A relation of a [`ModelGraph`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRelation {
    /// The number of the type of its sources.
    pub source: usize,
    /// The name.
    pub name: String,
    /// The number of the type of its destinations.
    pub destination: usize,
    /// The values that encode the age of an edge, in layers that take it; 0 without.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ages: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ModelNodeType {
    /// The features of a node among its inputs.
    pub fn features(&self) -> usize {
        self.inputs - self.ages - self.embedding
    }
}

impl ModelGraph {
    /// The graph of a store without types, with this number of features per node.
    pub fn untyped(inputs: usize) -> Self {
        Self {
            node_types: vec![ModelNodeType {
                name: NODE.to_owned(),
                inputs,
                ages: 0,
                embedding: 0,
                columns: Vec::new(),
            }],
            relations: vec![ModelRelation { source: 0, name: EDGE.to_owned(), destination: 0, ages: 0 }],
            target: ModelTarget::Type(0),
        }
    }

    /// The numbers of the types whose nodes get outputs, in the order of the outputs: one type, or the sources' and the destinations' type.
    pub fn output_types(&self) -> Vec<usize> {
        match self.target {
            ModelTarget::Type(number) => vec![number],
            ModelTarget::Relation(number) => {
                let ModelRelation { source, destination, .. } = self.relations[number];
                if source == destination { vec![source] } else { vec![source, destination] }
            }
        }
    }

    /// For each relation, how the ages of its edges are encoded, if layers take them. `encoding` is the model's.
    pub fn edge_ages(&self, encoding: Option<TimeEncoding>) -> Vec<Option<TimeEncoding>> {
        self.relations.iter().map(|relation| encoding.filter(|_| relation.ages > 0)).collect()
    }

    /// The name of the target: a type, or `SOURCE:NAME:DESTINATION`.
    pub fn target_name(&self) -> String {
        match self.target {
            ModelTarget::Type(number) => self.node_types[number].name.clone(),
            ModelTarget::Relation(number) => self.names(number).join(":"),
        }
    }

    /// The names of a relation and of the types that it joins.
    pub fn names(&self, relation: usize) -> [&str; 3] {
        let ModelRelation { source, name, destination, .. } = &self.relations[relation];
        let [source, destination] = [source, destination].map(|&end| self.node_types[end].name.as_str());
        [source, name, destination]
    }
}
