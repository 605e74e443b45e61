//! Ingest of graphs with types, from data in memory.

use std::path::PathBuf;

use grappa_engine::ingest::{
    EdgeForm, EdgeIngest, EdgeSplit, GraphIngestOptions, Input, NodeData, NodeIngest, NodeSplits, NodeTypeIngest,
    RelationIngest, Resources, SplitFile, StoreLayout, TableForm, TimeColumn, TimeUnit, ingest_graph as ingest,
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use crate::{background, error::exception, inputs::Data};

/// The nodes of a type: the numbers below `nodes`, with data in their order.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct NodesInMemory<'py> {
    name: String,
    nodes: u64,
    features: Option<Data<'py>>,
    labels: Option<Data<'py>>,
    train: Option<Data<'py>>,
    val: Option<Data<'py>>,
    test: Option<Data<'py>>,
    /// A table with the ids of the nodes and their times, the column of the times, and the unit of integers in it.
    time: Option<(Data<'py>, String, Option<String>)>,
}

/// The edges of a relation, between numbers of nodes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EdgesInMemory<'py> {
    source: String,
    name: String,
    destination: String,
    edges: Data<'py>,
    weights: Option<Data<'py>>,
    edge_features: Option<Data<'py>>,
    /// The column of the table of edges with their times, and the unit of integers in it.
    time: Option<(String, Option<String>)>,
    /// The place of an earlier relation with the same edges in the other direction.
    reverse_of: Option<usize>,
    /// The shares of edges that are held out, such as `80/10/10`.
    edge_split: Option<String>,
}

/// Options of the run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RunOptions {
    out: PathBuf,
    memory: Option<u64>,
    threads: Option<usize>,
    tmp: Option<PathBuf>,
    force: bool,
    resume: bool,
    chunks: Option<u32>,
    seed: u64,
}

/// Builds a graph with types. Returns the numbers of nodes, edges and bytes.
#[pyfunction]
pub fn ingest_graph<'py>(
    py: Python<'py>,
    node_types: Vec<NodesInMemory<'py>>,
    relations: Vec<EdgesInMemory<'py>>,
    run: RunOptions,
    report: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let defaults = Resources::default();
    let layout = StoreLayout { chunks: run.chunks, seed: run.seed, ..StoreLayout::default() };
    let node_types = node_types.into_iter().map(|of_type| of_type.into_ingest(&layout));
    let relations = relations.into_iter().map(|relation| relation.into_ingest(run.seed));
    let options = GraphIngestOptions {
        node_types: node_types.collect::<PyResult<_>>()?,
        relations: relations.collect::<PyResult<_>>()?,
        resources: Resources {
            memory: run.memory.unwrap_or(defaults.memory),
            threads: run.threads.unwrap_or(defaults.threads),
            tmp: run.tmp,
        },
        replace: run.force,
        resume: run.resume,
        ..GraphIngestOptions::new(run.out)
    };
    let summary = background::run(py, report, |progress| ingest(&options, &*progress).map_err(exception))?;
    let dict = PyDict::new(py);
    let node_types: Vec<_> =
        summary.node_types.iter().map(|node_type| (node_type.name.clone(), node_type.nodes)).collect();
    let relations: Vec<_> =
        summary.relations.iter().map(|relation| (relation.name.clone(), relation.edges, relation.rejected)).collect();
    dict.set_item("node_types", node_types)?;
    dict.set_item("relations", relations)?;
    dict.set_item("bytes_on_disk", summary.bytes_on_disk)?;
    Ok(dict)
}

/// Data as an input of the engine.
fn input(data: Option<Data<'_>>) -> PyResult<Option<Input>> {
    data.map(|data| Ok(Input::from(data.into_input()?.1))).transpose()
}

/// A column of times, with the unit of a name.
fn time_column(column: String, unit: Option<&str>) -> TimeColumn<String> {
    TimeColumn { column, unit: unit.and_then(TimeUnit::from_name) }
}

impl NodesInMemory<'_> {
    fn into_ingest(self, layout: &StoreLayout) -> PyResult<NodeTypeIngest> {
        let splits = [("train", self.train), ("val", self.val), ("test", self.test)].into_iter();
        let splits = splits.filter_map(|(name, ids)| Some(input(Some(ids?)).map(|ids| (name, ids))));
        let splits =
            splits.map(|split| split.map(|(name, ids)| SplitFile { name, ids: ids.expect("data is an input") }));
        let mut tables = TableForm::default();
        let times = match self.time {
            Some((table, column, unit)) => {
                tables.columns.time = Some(time_column(column, unit.as_deref()));
                input(Some(table))?
            }
            None => None,
        };
        let data = NodeData {
            features: input(self.features)?,
            labels: input(self.labels)?,
            times,
            tables,
            ..NodeData::default()
        };
        let nodes = NodeIngest {
            number: Some(self.nodes),
            data,
            splits: NodeSplits { files: splits.collect::<PyResult<_>>()?, random: None },
            layout: layout.clone(),
            ..NodeIngest::default()
        };
        Ok(NodeTypeIngest { name: self.name, nodes })
    }
}

impl EdgesInMemory<'_> {
    fn into_ingest(self, seed: u64) -> PyResult<RelationIngest> {
        let split = self.edge_split.map(|shares| {
            let shares = shares.parse().map_err(|problem| PyValueError::new_err(format!("edge_split: {problem}")))?;
            EdgeSplit::random(shares, seed).map_err(exception)
        });
        let time = self.time.map(|(column, unit)| time_column(column, unit.as_deref()));
        let ends = [&self.source[..], &self.name, &self.destination];
        let mut relation = RelationIngest::new(ends, [Input::from(self.edges.into_input()?.1)]);
        relation.edges.form.columns.time = time;
        relation.edges = EdgeIngest {
            form: EdgeForm {
                weights: input(self.weights)?,
                features: input(self.edge_features)?,
                ..relation.edges.form
            },
            split: split.transpose()?,
            ..relation.edges
        };
        relation.reverse_of = self.reverse_of;
        Ok(relation)
    }
}
