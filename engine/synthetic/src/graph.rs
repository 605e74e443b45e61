//! Recipes of graphs with several node types and relations.

use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::{
    BlockModel, Degrees, ErdosRenyi, Model, Recipe, RelationModel, SplitShares,
    random::{Purpose, Source},
};

/// Everything that determines a graph with types. Its manifest records it as JSON.
///
/// Each node type and each relation has a [`Recipe`] of its own, with a seed that depends on [`GraphRecipe::seed`] and its number. So
/// another type or relation at the end leaves those before it as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphRecipe {
    /// [`Recipe::VERSION`] of the program that made the graph.
    pub version: u32,
    /// Selects a graph.
    pub seed: u64,
    /// The node types.
    pub node_types: Vec<NodeTypeRecipe>,
    /// The relations.
    pub relations: Vec<RelationRecipe>,
}

/// A node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTypeRecipe {
    /// Its name.
    pub name: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of classes, for labels, splits and the means of features; 0 for none.
    pub classes: u32,
    /// The shares of the splits, unless they are [`SplitShares::default`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<SplitShares>,
}

/// A relation, and its reverse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationRecipe {
    /// Number of the type of sources.
    pub source: u32,
    /// Its name.
    pub name: String,
    /// Number of the type of destinations.
    pub destination: u32,
    /// Number of edges.
    pub edges: u64,
    /// The degrees at both ends.
    pub degrees: Degrees,
    /// The name of the relation with the same edges in the other direction, if there is one.
    pub reverse: Option<String>,
}

/// A relation of the graph: one of the recipe or the reverse of one.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationMember {
    /// Number of the type of sources.
    pub source: u32,
    /// Its name.
    pub name: String,
    /// Number of the type of destinations.
    pub destination: u32,
    /// The number of the relation whose edges it has in the other direction.
    pub reverse_of: Option<u32>,
    /// Its edges.
    pub recipe: Recipe,
}

impl GraphRecipe {
    /// Fails if a number is out of range, or a relation names a type that there is not.
    pub fn check(&self) -> Result<()> {
        if self.node_types.is_empty() || self.relations.is_empty() {
            return Err(Error::conflict("a graph has node types and relations", "give at least one of both"));
        }
        for (number, node_type) in self.node_types.iter().enumerate() {
            if node_type.name.is_empty() || self.node_types[..number].iter().any(|other| other.name == node_type.name) {
                let problem = format!("the node type {:?} has the name of another, or none", node_type.name);
                return Err(Error::conflict(problem, "give each type a name of its own"));
            }
            self.node_type(number).check()?;
        }
        let members = self.relation_members()?;
        for (number, member) in members.iter().enumerate() {
            let ends = |other: &RelationMember| (other.source, other.destination);
            let is_same = |other: &RelationMember| other.name == member.name && ends(other) == ends(member);
            if member.name.is_empty() || members[..number].iter().any(is_same) {
                let problem =
                    format!("the relation {:?} has the name of another between these types, or none", member.name);
                return Err(Error::conflict(problem, "give each relation a name of its own"));
            }
            member.recipe.check()?;
        }
        Ok(())
    }

    /// The recipe of the nodes of a type, without edges.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn node_type(&self, number: usize) -> Recipe {
        let NodeTypeRecipe { nodes, classes, splits, .. } = self.node_types[number];
        let model = match classes {
            0 => Model::Er(ErdosRenyi::new(nodes, 0.0)),
            classes => Model::Sbm(BlockModel { classes, ..BlockModel::new(nodes, 0.0) }),
        };
        let seed = Source::new(self.seed, Purpose::NodeType).at(number as u64);
        Recipe { splits, ..Recipe::new(model, seed) }
    }

    /// All relations: each of the recipe, followed by its reverse.
    pub fn relation_members(&self) -> Result<Vec<RelationMember>> {
        let nodes = |name: &str, node_type: u32| {
            self.node_types.get(node_type as usize).map(|node_type| node_type.nodes).ok_or_else(|| {
                let problem = format!("the relation {name:?} joins type {node_type}, and there is no such type");
                Error::conflict(problem, "name a type of the graph")
            })
        };
        let mut members = Vec::new();
        for (number, relation) in self.relations.iter().enumerate() {
            let RelationRecipe { source, destination, edges, degrees, .. } = *relation;
            let seed = Source::new(self.seed, Purpose::RelationSeed).at(number as u64);
            let [sources, destinations] = [nodes(&relation.name, source)?, nodes(&relation.name, destination)?];
            let model = RelationModel { sources, nodes: destinations, edges, degrees, is_reverse: false };
            let turned = RelationModel { sources: destinations, nodes: sources, is_reverse: true, ..model.clone() };
            let number = members.len() as u32;
            members.push(RelationMember {
                source,
                name: relation.name.clone(),
                destination,
                reverse_of: None,
                recipe: Recipe::new(Model::Relation(model), seed),
            });
            members.extend(relation.reverse.clone().map(|name| RelationMember {
                source: destination,
                name,
                destination: source,
                reverse_of: Some(number),
                recipe: Recipe::new(Model::Relation(turned), seed),
            }));
        }
        Ok(members)
    }

    /// The recipe as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a recipe is plain data, which always serializes")
    }
}
