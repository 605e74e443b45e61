//! An open graph with types.

use std::{path::PathBuf, sync::Arc};

use grappa_engine::{io::map::report_faults, store::Graph as EngineGraph};
use pyo3::{exceptions::PyIndexError, prelude::*};

use crate::{array::Array, error::exception, labels::Labels, links::RelationStores, store::Store};

/// A graph that is open for reading: its node types and relations. A store without types has one of each.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Graph {
    graph: EngineGraph,
    /// Of each node type.
    stores: Vec<Py<Store>>,
}

impl Graph {
    pub fn engine(&self) -> &EngineGraph {
        &self.graph
    }

    /// The labels of each type, if it has any.
    pub fn labels(&self) -> PyResult<Vec<Option<Arc<Labels>>>> {
        self.stores.iter().map(|store| store.get().mapped_labels()).collect()
    }
}

#[pymethods]
impl Graph {
    /// Opens the graph or store at `path`.
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        report_faults();
        let graph = py.detach(|| EngineGraph::open(&path)).map_err(exception)?;
        let stores = graph.node_types().iter().map(|store| Py::new(py, Store::from_engine(store.clone())));
        Ok(Self { stores: stores.collect::<PyResult<_>>()?, graph })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.graph.path().to_owned()
    }

    #[getter]
    fn has_types(&self) -> bool {
        self.graph.has_types()
    }

    /// The names of the node types.
    #[getter]
    fn node_types(&self) -> Vec<String> {
        self.graph.manifest().node_types.iter().map(|entry| entry.name.clone()).collect()
    }

    /// Of each relation: the type of sources, its name, the type of destinations, and the relation that it reverses.
    #[getter]
    fn relations(&self) -> Vec<(u32, String, u32, Option<u32>)> {
        let relations = self.graph.manifest().relations.iter();
        relations.map(|entry| (entry.source, entry.name.clone(), entry.destination, entry.reverse_of)).collect()
    }

    /// Of each relation: the number of edges, whether they have weights, the values of their features, and whether they have times.
    #[getter]
    fn edges(&self) -> Vec<(u64, bool, u32, bool)> {
        let relations = self.graph.relations().iter();
        let edges = relations.map(|store| {
            let manifest = store.manifest();
            let dim = store.edge_features().map_or(0, |layout| layout.dim);
            (manifest.edges, manifest.weighted, dim, store.is_timed())
        });
        edges.collect()
    }

    /// The units of the times of each relation, and then of each node type. None without times.
    #[getter]
    fn time_units(&self) -> PyResult<Vec<Option<&'static str>>> {
        let of_edges = self.graph.relations().iter().map(|store| Ok(store.time_axis()?.map(|axis| axis.unit.name())));
        let of_nodes =
            self.graph.node_types().iter().map(|store| Ok(store.node_times()?.map(|times| times.axis().unit.name())));
        of_edges.chain(of_nodes).collect::<grappa_engine::Result<_>>().map_err(exception)
    }

    /// The sources and destinations of the edges of a part of a relation, as `Store.edge_split` has them: shape (2, edges).
    fn edge_split(&self, py: Python<'_>, relation: usize, part: &str) -> PyResult<Array> {
        if relation >= self.graph.relations().len() {
            return Err(PyIndexError::new_err("there is no such relation"));
        }
        RelationStores::new(&self.graph, relation).edges_of_part(py, part)
    }

    /// The nodes of a type.
    fn nodes_of(&self, py: Python<'_>, node_type: usize) -> PyResult<Py<Store>> {
        let store = self.stores.get(node_type).ok_or_else(|| PyIndexError::new_err("there is no such node type"))?;
        Ok(store.clone_ref(py))
    }
}
