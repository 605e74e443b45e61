//! The means of neighbors' features, for a node type without features of its own.
//!
//! ```text
//! features of a node = [mean over its in-neighbors by relation 1, mean by relation 2, ..]     zeros without in-neighbors
//! ```
//!
//! They follow from a node's neighborhood alone, so a node that is new in another graph has them too. They are what the baselines of OGB's
//! MAG240M take for authors and institutions.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use grappa_formats::{
    ChunkId,
    features::{DIM_MAX, FeatureLayout},
    manifest::FeatureDtype,
};
use grappa_io::{Error, Result, ledger::Lease, progress::Progress};
use grappa_sampling::EdgeValues;
use grappa_storage::{
    Graph,
    feature_rows::{self, ENCODE_ROWS, FeatureRowsWriter},
};

use crate::aggregate::{Budget, Mean, NodeRows, StoredRows, WholeGraph, store_features};

/// Gets the rows of a range of nodes.
type WriteRows<'a> = dyn FnMut(Range<u64>, &[f32]) -> Result<()> + 'a;

/// Which relations a type takes the features of its neighbors from.
#[derive(Debug, Clone, PartialEq)]
pub struct NeighborMeans {
    /// The numbers of the relations, all into the type.
    pub relations: Vec<usize>,
    /// Their names, with their types.
    names: Vec<String>,
    /// Values of a node.
    pub dim: u32,
}

impl NeighborMeans {
    /// The means by these relations into a type. Without any, by all relations whose sources have features.
    ///
    /// # Errors
    /// If a relation leads to another type or its sources have no features, if there is none, or if a node would have too many values.
    pub fn new(graph: &Graph, node_type: usize, relations: &[usize]) -> Result<Self> {
        let manifest = graph.manifest();
        let type_name = &manifest.node_types[node_type].name;
        let leads_there = |number: usize| manifest.relations[number].destination as usize == node_type;
        let dim_of = |number: usize| graph.relation(number).sources.manifest().features.as_ref().map(|spec| spec.dim);
        let relations = match relations {
            [] => {
                let all = 0..graph.relations().len();
                all.filter(|&number| leads_there(number) && dim_of(number).is_some()).collect()
            }
            named => named.to_vec(),
        };
        let mut dim = 0u32;
        for &number in &relations {
            let name = manifest.relation_name(number);
            if !leads_there(number) {
                return Err(Error::conflict(
                    format!("relation {name} does not lead to {type_name}"),
                    format!("name relations into {type_name}"),
                ));
            }
            let Some(values) = dim_of(number) else {
                let source = &manifest.node_types[manifest.relations[number].source as usize].name;
                return Err(Error::conflict(
                    format!("the sources of relation {name} have no features"),
                    format!("give features to {source} first, or leave the relation out"),
                ));
            };
            dim = dim.saturating_add(values);
        }
        if relations.is_empty() {
            return Err(Error::conflict(
                format!("no relation from nodes with features leads to {type_name}"),
                "give features to the types of its neighbors first",
            ));
        }
        if dim > DIM_MAX {
            return Err(Error::out_of_range("the values of all relations", format!("at most {DIM_MAX}"), dim));
        }
        let names = relations.iter().map(|&number| manifest.relation_name(number)).collect();
        Ok(Self { relations, names, dim })
    }
}

impl fmt::Display for NeighborMeans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--kind mean --relations {}", self.names.join(","))
    }
}

/// Writes the feature rows of the nodes from `first` on. `folder` creates the folder for the means by a relation, from 1 on. Returns who took
/// how much of the memory in the last pass.
///
/// # Errors
/// If the memory is too small, or files cannot be read or written.
pub fn make(
    graph: &Graph,
    means: &NeighborMeans,
    folder: &dyn Fn(usize) -> Result<PathBuf>,
    out: &mut FeatureRowsWriter<'_>,
    first: u64,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<Vec<Lease>> {
    let (&last, others) = means.relations.split_last().expect("there is a relation");
    let mut earlier: Vec<StoredRows<'_>> = Vec::new();
    for (number, &relation) in (1..).zip(others) {
        let store = &graph.relations()[relation];
        let folder = folder(number)?;
        let mut made = FeatureRowsWriter::new(store, &folder, layout_of(graph, relation));
        let first = made.keep_finished(budget.threads, progress)?;
        let beside = made.memory();
        aggregate(graph, relation, first, (beside, &folder), budget, progress, &mut |nodes, rows| {
            made.write(nodes, rows)
        })?;
        made.complete()?;
        let files = (0..store.chunks().chunks()).map(|chunk| {
            let (file, _) = feature_rows::open(&folder, store.chunks(), ChunkId(chunk))?;
            Ok(Some(file.close()))
        });
        earlier.push(StoredRows::new(store, files.collect::<Result<_>>()?, layout_of(graph, relation)));
    }
    let scratch = out.folder().to_owned();
    let (mut leases, beside) = (vec![out.lease()], out.memory());
    let dim = means.dim as usize;
    leases.extend(aggregate(graph, last, first, (beside, &scratch), budget, progress, &mut |nodes, rows| {
        let width = rows.len() / (nodes.end - nodes.start).max(1) as usize;
        if earlier.is_empty() {
            return out.write(nodes, rows);
        }
        let mut node = nodes.start;
        for part in rows.chunks(ENCODE_ROWS * width) {
            let nodes = node..node + (part.len() / width) as u64;
            node = nodes.end;
            let count = (nodes.end - nodes.start) as usize;
            let mut values = vec![0.0; count * dim];
            let mut start = 0;
            for rows in &earlier {
                let mut of_relation = vec![0.0; count * rows.width()];
                rows.read(nodes.clone(), &mut of_relation)?;
                put_columns(&of_relation, rows.width(), &mut values, dim, start);
                start += rows.width();
            }
            put_columns(part, width, &mut values, dim, start);
            out.write(nodes, &values)?;
        }
        Ok(())
    })?);
    Ok(leases)
}

/// Rows as they are between two passes.
fn layout_of(graph: &Graph, relation: usize) -> FeatureLayout {
    let features = graph.relation(relation).sources.manifest().features.as_ref();
    FeatureLayout::new(FeatureDtype::F32, features.map_or(0, |spec| spec.dim))
}

/// Passes the means by a relation to `write`, beside `beside` bytes that it takes.
fn aggregate(
    graph: &Graph,
    relation: usize,
    first: u64,
    (beside, scratch): (u64, &Path),
    budget: Budget,
    progress: &dyn Progress,
    write: &mut WriteRows<'_>,
) -> Result<Vec<Lease>> {
    let relation = graph.relation(relation);
    let rows = store_features(relation.sources)?;
    let whole = WholeGraph {
        relation,
        rows: &*rows,
        edge_values: EdgeValues::Nothing,
        budget: Budget { memory: budget.memory.saturating_sub(beside), ..budget },
        scratch: Some(scratch),
    };
    let sink = &mut |nodes: Range<u64>, rows: &mut Vec<f32>| write(nodes, rows);
    whole
        .run(&Mean { width: rows.width() }, first, progress, sink)
        .map_err(Error::in_budget(budget.memory, |least| least + beside))
}

/// Copies rows of `width` values to columns of wider rows.
fn put_columns(rows: &[f32], width: usize, wide: &mut [f32], wide_width: usize, start: usize) {
    for (row, wide) in rows.chunks_exact(width).zip(wide.chunks_exact_mut(wide_width)) {
        wide[start..start + width].copy_from_slice(row);
    }
}
