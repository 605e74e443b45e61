//! An open store.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_engine::{
    ChunkId, Error as EngineError, ExternalId, NodeId, Store as EngineStore,
    formats::{
        DenseId,
        dictionary::KEY_BYTES_MAX,
        manifest::{ExternalIds, LabelKind},
    },
    io::{heap, map::report_faults},
};
use pyo3::{
    buffer::PyBuffer,
    exceptions::PyKeyError,
    prelude::*,
    types::{PyBytes, PyList},
};

use crate::{
    array::Array,
    edge_values::EdgeValues,
    error::{Error, exception},
    in_edges::InEdges,
    labels::Labels,
    links::RelationStores,
    nodes::{Numbers, by_chunk, collected, nodes_of, numbers_of, positions_of, reserved},
};

/// The purpose of the memory, in errors.
const IDS: &str = "the ids of nodes";

/// A store that is open for reading. Nodes are numbers: node k is the one with the k-th smallest id of the input.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Store {
    store: Arc<EngineStore>,
    #[pyo3(get)]
    num_nodes: u64,
    #[pyo3(get)]
    num_edges: u64,
    #[pyo3(get)]
    has_edge_weights: bool,
    #[pyo3(get)]
    has_edge_times: bool,
    #[pyo3(get)]
    has_node_times: bool,
    /// Values per row of edge features; 0 without them.
    #[pyo3(get)]
    num_edge_features: u32,
    /// Values per feature row; 0 without features.
    #[pyo3(get)]
    num_features: u32,
    /// 0 without classes.
    #[pyo3(get)]
    num_classes: u32,
    /// 0 without targets.
    #[pyo3(get)]
    num_targets: u32,
    #[pyo3(get)]
    num_chunks: u32,
    #[pyo3(get)]
    num_partitions: u32,
    /// Whether the ids of the input are strings.
    #[pyo3(get)]
    has_string_ids: bool,
    /// The type of a stored feature value; None without features.
    #[pyo3(get)]
    feature_dtype: Option<&'static str>,
    /// Bytes of the files of the store.
    #[pyo3(get)]
    num_bytes: u64,
    /// Mapped when they are first read: that opens a file per chunk.
    labels: Mutex<Option<Arc<Labels>>>,
}

impl Store {
    pub fn engine(&self) -> &Arc<EngineStore> {
        &self.store
    }

    /// A store that is open already.
    pub fn from_engine(store: Arc<EngineStore>) -> Self {
        let manifest = store.manifest();
        let (features, labels) = (manifest.features.as_ref(), manifest.labels);
        let columns = |are_targets| {
            labels
                .filter(|labels| (labels.kind == LabelKind::Targets) == are_targets)
                .map_or(0, |labels| labels.classes)
        };
        Self {
            num_nodes: manifest.nodes,
            num_edges: manifest.edges,
            has_edge_weights: manifest.weighted,
            has_edge_times: store.is_timed(),
            has_node_times: store.has_node_times(),
            num_edge_features: store.edge_features().map_or(0, |layout| layout.dim),
            num_features: features.map_or(0, |features| features.dim),
            num_classes: columns(false),
            num_targets: columns(true),
            num_chunks: store.chunks().chunks(),
            num_partitions: store.assignment().partitions(),
            has_string_ids: manifest.ids.external == ExternalIds::String,
            feature_dtype: features.map(|features| features.dtype.name()),
            num_bytes: manifest.files.iter().map(|file| file.bytes).sum(),
            store,
            labels: Mutex::default(),
        }
    }

    /// The labels of the store, if it has any.
    pub fn mapped_labels(&self) -> PyResult<Option<Arc<Labels>>> {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if labels.is_none() {
            *labels = Labels::open(&self.store).map_err(exception)?.map(Arc::new);
        }
        Ok(labels.clone())
    }
}

#[pymethods]
impl Store {
    /// The unit of the times of edges, or of nodes. None without times.
    #[getter]
    fn time_unit(&self) -> PyResult<Option<&'static str>> {
        if let Some(axis) = self.store.time_axis().map_err(exception)? {
            return Ok(Some(axis.unit.name()));
        }
        Ok(self.store.node_times().map_err(exception)?.map(|times| times.axis().unit.name()))
    }

    /// Opens the store at `path`.
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        // A mapped file that is cut short ends the process; this says which one it was.
        report_faults();
        let store = py.detach(|| EngineStore::open(&path)).map_err(exception)?;
        Ok(Self::from_engine(Arc::new(store)))
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.store.path().to_owned()
    }

    /// The names of the types of edges; empty if they have none.
    #[getter]
    fn edge_types(&self) -> PyResult<Vec<String>> {
        Ok(self.store.edge_types().map_err(exception)?.map_or_else(Vec::new, |(_, names)| names))
    }

    #[getter]
    fn edge_feature_names(&self) -> PyResult<Vec<String>> {
        Ok(self.store.schema().map_err(exception)?.edge_feature_names())
    }

    /// The splits, with the number of nodes of each.
    #[getter]
    fn splits(&self) -> Vec<(String, u64)> {
        let splits = &self.store.manifest().splits;
        splits.iter().map(|split| (split.name.clone(), split.nodes)).collect()
    }

    #[getter]
    fn feature_names(&self) -> PyResult<Vec<String>> {
        Ok(self.store.schema().map_err(exception)?.feature_names())
    }

    #[getter]
    fn class_names(&self) -> PyResult<Vec<String>> {
        Ok(self.store.schema().map_err(exception)?.classes)
    }

    /// The nodes of a split, ascending.
    fn split(&self, py: Python<'_>, name: &str) -> PyResult<Array> {
        let numbers = py.detach(|| -> PyResult<Vec<i64>> {
            let Some(split) = self.store.split(name).map_err(exception)? else {
                let names: Vec<_> = self.store.manifest().splits.iter().map(|split| split.name.as_str()).collect();
                return Err(PyKeyError::new_err(format!("no split is named {name:?}; there are {names:?}")));
            };
            let nodes: Vec<NodeId> = split.iter().map(NodeId).collect();
            let mut numbers = numbers_of(&self.store, &nodes).map_err(exception)?;
            numbers.sort_unstable();
            Ok(numbers)
        })?;
        Ok(Array::vector(numbers))
    }

    /// The sources and destinations of the edges of a part, in the order in which loaders of links number them: shape (2, edges).
    fn edge_split(&self, py: Python<'_>, part: &str) -> PyResult<Array> {
        RelationStores::untyped(&self.store).edges_of_part(py, part)
    }

    /// The position of the first node of each chunk, then the number of nodes.
    #[getter]
    fn chunk_starts(&self) -> Vec<u64> {
        self.store.chunks().starts().to_vec()
    }

    /// The feature rows of nodes, as 32-bit floats, read from disk.
    fn features(&self, py: Python<'_>, nodes: Numbers) -> PyResult<Array> {
        let dim = self.num_features as usize;
        if self.store.manifest().stored_features().is_none() {
            return Err(Error::new_err(format!(
                "{} has no stored features; ingest with features=...",
                self.store.path().display()
            )));
        }
        py.detach(|| {
            let rows = nodes_of(&self.store, &nodes.0)?;
            let mut values = heap::zeroed(rows.len().saturating_mul(dim), "feature rows").map_err(exception)?;
            for (chunk, group) in by_chunk(&self.store, &rows).map_err(exception)? {
                self.read_features(chunk, &group, &rows, &mut values).map_err(exception)?;
            }
            Ok(Array::new(values, &[rows.len(), dim]))
        })
    }

    /// The labels of nodes: a class each, -1 for none; or a row of 0 and 1 if nodes have sets of classes; or numbers, NaN for none.
    fn labels(&self, py: Python<'_>, nodes: Numbers) -> PyResult<Array> {
        py.detach(|| {
            let labels = self.mapped_labels()?.ok_or_else(|| {
                let path = self.store.path().display();
                Error::new_err(format!("{path} has no labels; ingest with labels=..."))
            })?;
            labels.read(&self.store, &nodes_of(&self.store, &nodes.0)?).map_err(exception)
        })
    }

    /// The times of nodes, in the unit of the store.
    fn node_times(&self, py: Python<'_>, nodes: Numbers) -> PyResult<Array> {
        py.detach(|| {
            let times = self.store.node_times().map_err(exception)?.ok_or_else(|| {
                let path = self.store.path().display();
                Error::new_err(format!("{path}: nodes have no times; ingest with node_time=..."))
            })?;
            let nodes = nodes_of(&self.store, &nodes.0)?;
            Ok(Array::vector(nodes.into_iter().map(|node| times.time(node)).collect()))
        })
    }

    /// The positions of nodes in the files of the store.
    fn positions(&self, py: Python<'_>, nodes: Numbers) -> PyResult<Array> {
        let nodes = py.detach(|| nodes_of(&self.store, &nodes.0))?;
        let positions = positions_of(&nodes).map_err(exception)?;
        Ok(Array::vector(positions))
    }

    /// The in-edges of nodes: where the edges of each begin and end, their sources in ascending order, their weights if there are some, and
    /// with `features` also these.
    fn in_edges(
        &self,
        py: Python<'_>,
        nodes: Numbers,
        features: bool,
    ) -> PyResult<(Array, Array, Option<Array>, Option<Array>)> {
        py.detach(|| {
            let InEdges { offsets, sources, weights, features } =
                InEdges::read(&self.store, &nodes_of(&self.store, &nodes.0)?, features).map_err(exception)?;
            let (edges, dim) = (sources.len(), self.num_edge_features as usize);
            let features = features.map(|features| Array::new(features, &[edges, dim]));
            Ok((Array::vector(offsets), Array::vector(sources), weights.map(Array::vector), features))
        })
    }

    /// Weights and features of the edges at these places of the store, if edges have some.
    fn edge_values(&self, py: Python<'_>, places: Numbers) -> PyResult<(Option<Array>, Option<Array>)> {
        py.detach(|| {
            let EdgeValues { weights, features } = EdgeValues::read(&self.store, &places.0)?;
            let (edges, dim) = (places.0.len(), self.num_edge_features as usize);
            Ok((weights.map(Array::vector), features.map(|features| Array::new(features, &[edges, dim]))))
        })
    }

    /// The in-neighbors of a node.
    fn in_neighbors(&self, py: Python<'_>, node: i64) -> PyResult<Array> {
        py.detach(|| {
            let node = nodes_of(&self.store, &[node])?[0];
            let sources = self.store.neighbors().in_neighbors(node).map_err(exception)?;
            let numbers = numbers_of(&self.store, &sources).map_err(exception)?;
            Ok(Array::vector(numbers))
        })
    }

    /// The ids of nodes in the input: 64-bit integers, unsigned if they exceed signed ones; or a list of strings, and of bytes where an id
    /// is not UTF-8.
    fn ids<'py>(&self, py: Python<'py>, nodes: Numbers) -> PyResult<Bound<'py, PyAny>> {
        let (ids, len) = (self.store.ids(), nodes.0.len());
        // A number is the dense id.
        nodes_of(&self.store, &nodes.0)?;
        let dense_ids = nodes.0.into_iter().map(|number| DenseId(number as u64));
        if self.has_string_ids {
            let (text, ends) = py
                .detach(|| -> Result<_, EngineError> {
                    let (mut text, mut ends) = (Vec::new(), reserved(len, IDS)?);
                    for id in dense_ids {
                        // Doubled by hand: a vector that grows by itself ends the interpreter if the system refuses.
                        if text.capacity() - text.len() < KEY_BYTES_MAX {
                            let room = text.len().max(KEY_BYTES_MAX);
                            heap::reserve(&mut text, room, IDS)?;
                        }
                        ids.append_text_at(id, &mut text)?;
                        ends.push(text.len());
                    }
                    Ok((text, ends))
                })
                .map_err(exception)?;
            let list = PyList::empty(py);
            let mut start = 0;
            for end in ends {
                let id = &text[start..end];
                match str::from_utf8(id) {
                    Ok(text) => list.append(text)?,
                    Err(_) => list.append(PyBytes::new(py, id))?,
                }
                start = end;
            }
            return Ok(list.into_any());
        }
        let numbers = py
            .detach(|| -> Result<_, EngineError> {
                let mut numbers = reserved(len, IDS)?;
                for id in dense_ids {
                    numbers.push(ids.integer_at(id)?);
                }
                Ok(numbers)
            })
            .map_err(exception)?;
        let array = match numbers.iter().any(|&id| i64::try_from(id).is_err()) {
            true => Array::vector(numbers),
            // In place: both have 64 bits.
            false => Array::vector(numbers.into_iter().map(u64::cast_signed).collect()),
        };
        Ok(array.into_pyobject(py)?.into_any())
    }

    /// The nodes with these ids of the input: an array of unsigned integers, or a list of strings and bytes.
    fn nodes(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<Array> {
        let ids: Vec<ExternalId> = match PyBuffer::<u64>::get(ids) {
            Ok(integers) => {
                let mut values = heap::zeroed(integers.item_count(), IDS).map_err(exception)?;
                integers.copy_to_slice(py, &mut values)?;
                let count = values.len();
                collected(values.into_iter().map(ExternalId::Integer), count, IDS).map_err(exception)?
            }
            Err(_) => ids.try_iter()?.map(|id| string_of(&id?)).collect::<PyResult<_>>()?,
        };
        py.detach(|| {
            let mut nodes = reserved(ids.len(), IDS).map_err(exception)?;
            for id in &ids {
                let node = self.store.node(id).map_err(exception)?;
                nodes.push(node.ok_or_else(|| {
                    let path = self.store.path().display();
                    PyKeyError::new_err(format!("{path} has no node with the id {id}"))
                })?);
            }
            let numbers = numbers_of(&self.store, &nodes).map_err(exception)?;
            Ok(Array::vector(numbers))
        })
    }

    fn __getnewargs__(&self) -> (PathBuf,) {
        (self.path(),)
    }
}

/// The id that is a string, or bytes.
fn string_of(id: &Bound<'_, PyAny>) -> PyResult<ExternalId> {
    Ok(ExternalId::String(match id.extract::<String>() {
        Ok(text) => text.into_bytes(),
        Err(_) => id.extract()?,
    }))
}

impl Store {
    /// Reads the rows of the nodes at the indices `group`, which are in `chunk`, to the same rows of `values`.
    fn read_features(
        &self,
        chunk: ChunkId,
        group: &[usize],
        nodes: &[NodeId],
        values: &mut [f32],
    ) -> grappa_engine::Result<()> {
        let features = self.store.features(chunk)?.expect("features are stored");
        let layout = &features.meta().layout;
        let (dim, first) = (layout.dim as usize, self.store.chunks().range(chunk).start);
        for &at in group {
            let row = features.row(nodes[at].0 - first)?;
            layout.decode_row(row, &mut values[at * dim..][..dim]);
        }
        Ok(())
    }
}
