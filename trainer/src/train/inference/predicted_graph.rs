//! The nodes or links of a graph that a trained model predicts.

use std::{collections::BTreeSet, ptr, sync::Arc};

use grappa_run::model::ModelOptions;
use grappa_sampling::NodeSet;
use grappa_storage::{Graph, Relation, Store};

use crate::{Error, Result};

/// The nodes or links that a model predicts, and the graph that they are in.
#[derive(Debug, Clone, Copy)]
pub struct PredictedGraph<'a> {
    /// The store of the nodes, or of the destinations of links: all of a graph without types.
    pub nodes: &'a Store,
    /// The relation of the links, if the model predicts links.
    pub links: Relation<'a>,
    /// The graph, for a model with weights for each relation.
    pub(crate) graph: Option<&'a Graph>,
    /// The graph, if nodes are predicted at a time.
    pub(super) times: Option<&'a Graph>,
    /// The time of all nodes; none for their own.
    pub(super) at: Option<i64>,
}

impl<'a> From<&'a Store> for PredictedGraph<'a> {
    fn from(store: &'a Store) -> Self {
        Self { nodes: store, links: Relation::from(store), graph: None, times: None, at: None }
    }
}

impl<'a> PredictedGraph<'a> {
    /// The time at which links are predicted; none without times.
    pub fn time(&self) -> Option<i64> {
        self.at
    }

    /// The same graph, with the nodes of another type of links. None for the type that it has.
    ///
    /// # Errors
    /// If the model gives nodes of this type no outputs.
    pub fn of_type(self, name: Option<&str>) -> Result<Self> {
        let Some(name) = name else { return Ok(self) };
        let Some(graph) = self.graph else {
            return Err(Error::Options(format!("type {name}: the graph has no types: leave out --type")));
        };
        let ends = [self.nodes, self.links.sources];
        let types = graph.node_types();
        let named = |store: &Store| graph.type_named(name).is_some_and(|number| ptr::eq(&*types[number], store));
        match ends.into_iter().find(|store| named(store)) {
            Some(nodes) => Ok(Self { nodes, ..self }),
            None => {
                let names = ends.iter().filter_map(|end| types.iter().position(|store| ptr::eq(&**store, *end)));
                let names: BTreeSet<&str> = names.map(|number| &*graph.manifest().node_types[number].name).collect();
                Err(Error::Options(format!(
                    "type {name}: the model has outputs of nodes of type {}: use --type with one of these, or leave it out",
                    names.into_iter().collect::<Vec<_>>().join(" and ")
                )))
            }
        }
    }

    /// A set of the nodes, as a request needs it of the model's output types.
    pub(super) fn set_of_each(&self, model: &ModelOptions, nodes: NodeSet) -> Vec<NodeSet> {
        let Some(graph) = self.graph else { return vec![nodes] };
        let mut nodes = Some(nodes);
        let of_type = |number: usize| {
            let store = &graph.node_types()[number];
            let own = nodes.take_if(|_| ptr::eq(&**store, self.nodes));
            own.unwrap_or_else(|| NodeSet::from_members(store.manifest().nodes, []))
        };
        model.graph().output_types().into_iter().map(of_type).collect()
    }
}

impl<'a> From<&'a Arc<Store>> for PredictedGraph<'a> {
    fn from(store: &'a Arc<Store>) -> Self {
        Self::from(&**store)
    }
}
