//! The embeddings of all nodes of the types that have some.

use std::path::Path;

use grappa_formats::{NodeId, random};
use grappa_knowledge::rows::{RowOptimizer, Rows};
use grappa_run::{
    checkpoint::{Dtype, NamedTensor},
    config::TrainConfig,
    model::ModelGraph,
};
use grappa_storage::{Graph, Store};

use crate::train::tensors::of_another_model;
use crate::{Error, Result};

/// Nodes whose ids are read at once.
const IDS_AT_ONCE: usize = 1 << 16;

// What a whole checkpoint has beside the embeddings of a type: the state of their optimizer, and the copies.
const MOMENTS: [&str; 2] = ["first", "second"];
const UPDATES: &str = "updates";
const COPIES: &str = "copies";

/// The embeddings of each node type. None for types without.
#[derive(Debug)]
pub(crate) struct NodeTables {
    pub(super) optimizer: RowOptimizer,
    pub(super) types: Vec<Option<NodeTable>>,
}

/// The embeddings of a type.
#[derive(Debug)]
pub(super) struct NodeTable {
    name: String,
    /// The dense id of each node: files have rows in the order of ids, as predictions do.
    ids: Vec<u32>,
    pub rows: Rows,
    /// The embeddings that partitions read of nodes that they do not own; none if one partition owns all nodes.
    pub copies: Option<Vec<f32>>,
}

/// The optimizer of embeddings.
///
/// # Errors
/// If embeddings have none of this name.
pub(super) fn optimizer(config: &TrainConfig) -> Result<RowOptimizer> {
    RowOptimizer::named(config.optimizer).ok_or_else(|| {
        Error::Options(format!("node-embeddings have no optimizer {}: use --optimizer adam", config.optimizer))
    })
}

impl NodeTables {
    /// New embeddings, as `--node-embeddings` wants them. None if no type has any. They are uniform, of length 1 on average, and follow from the
    /// seed.
    ///
    /// # Errors
    /// If embeddings have no such optimizer.
    pub fn new(graph: &Graph, config: &TrainConfig) -> Result<Option<Self>> {
        if config.node_embeddings.is_empty() {
            return Ok(None);
        }
        let optimizer = optimizer(config)?;
        let types = graph.manifest().node_types.iter().zip(graph.node_types()).enumerate();
        let types = types.map(|(number, (entry, store))| {
            let values = config.node_embeddings.values(&entry.name);
            if values == 0 {
                return Ok(None);
            }
            let key = random::combine(random::hash(config.seed), number as u64);
            let range = (3.0 / values as f32).sqrt();
            let ids = dense_ids(store)?;
            let rows = Rows::random(ids.len(), values, optimizer, range, key, |row| u64::from(ids[row]));
            Ok(Some(NodeTable { name: entry.name.clone(), ids, rows, copies: None }))
        });
        Ok(Some(Self { optimizer, types: types.collect::<Result<_>>()? }))
    }

    /// The embeddings of a checkpoint of a model of `learned`, for inference on its graph. None if it has none.
    ///
    /// # Errors
    /// If the checkpoint, which was read from `path`, lacks the embeddings of a type, or ids cannot be read.
    pub fn of_checkpoint(
        path: &Path,
        learned: &ModelGraph,
        graph: &Graph,
        embeddings: &[NamedTensor],
    ) -> Result<Option<Self>> {
        let types = learned.node_types.iter().zip(graph.node_types()).map(|(node_type, store)| {
            if node_type.embedding == 0 {
                return Ok(None);
            }
            let ids = dense_ids(store)?;
            let rows = Rows::zeros(ids.len(), node_type.embedding, RowOptimizer::Sgd);
            Ok(Some(NodeTable { name: node_type.name.clone(), ids, rows, copies: None }))
        });
        let mut tables = Self { optimizer: RowOptimizer::Sgd, types: types.collect::<Result<_>>()? };
        tables.load(path, embeddings)?;
        Ok(tables.types.iter().any(Option::is_some).then_some(tables))
    }

    /// The embeddings of a type, in the order of nodes.
    pub fn rows(&self, node_type: usize) -> Option<&Rows> {
        self.types[node_type].as_ref().map(|table| &table.rows)
    }

    /// Makes the copies that partitions read of nodes that they do not own what the embeddings are now. Returns their bytes.
    pub fn copy(&mut self) -> u64 {
        let mut bytes = 0;
        for table in self.types.iter_mut().flatten() {
            let values = table.rows.values();
            bytes += size_of_val(values) as u64;
            match &mut table.copies {
                Some(copies) => copies.copy_from_slice(values),
                None => table.copies = Some(values.to_vec()),
            }
        }
        bytes
    }

    /// Whether there are copies.
    pub fn has_copies(&self) -> bool {
        self.types.iter().flatten().any(|table| table.copies.is_some())
    }

    /// The embeddings for a checkpoint; with `whole`, also the state of their optimizer and the copies.
    pub fn named(&self, whole: bool) -> Vec<NamedTensor> {
        let mut tensors = Vec::new();
        for table in self.types.iter().flatten() {
            let NodeTable { name, rows, copies, .. } = table;
            let shape = [rows.len(), rows.dim()];
            let named = |name: &str, values: &[f32]| NamedTensor::from_f32(name, &shape, &table.by_id(values));
            tensors.push(named(name, rows.values()));
            if !whole {
                continue;
            }
            for (moment, values) in MOMENTS.into_iter().zip(rows.moments()) {
                tensors.push(named(&state_name(name, moment), values));
            }
            if !rows.updates().is_empty() {
                let bytes = table.by_id(rows.updates()).iter().flat_map(|updates| updates.to_le_bytes()).collect();
                tensors.push(NamedTensor::new(state_name(name, UPDATES), Dtype::U32, &[rows.len()], bytes));
            }
            if let Some(copies) = copies {
                tensors.push(named(&state_name(name, COPIES), copies));
            }
        }
        tensors
    }

    /// Restores the embeddings of a checkpoint, which was read from `path`.
    ///
    /// # Errors
    /// If it has other embeddings.
    pub fn load(&mut self, path: &Path, embeddings: &[NamedTensor]) -> Result<()> {
        for table in self.types.iter_mut().flatten() {
            let values = table.read(path, embeddings, &table.name)?;
            table.rows.set_values(values);
        }
        Ok(())
    }

    /// As [`NodeTables::load`], with the state of the optimizer and the copies, which a whole checkpoint has.
    ///
    /// # Errors
    /// If the checkpoint has other embeddings.
    pub fn restore(&mut self, path: &Path, embeddings: &[NamedTensor]) -> Result<()> {
        self.load(path, embeddings)?;
        for table in self.types.iter_mut().flatten() {
            let part = |part: &str| state_name(&table.name, part);
            let moments = MOMENTS.into_iter().take(table.rows.moments().len());
            let moments = moments.map(|moment| table.read(path, embeddings, &part(moment)));
            let moments = moments.collect::<Result<Vec<_>>>()?;
            let mut updates = Vec::new();
            if !table.rows.updates().is_empty() {
                let found = embeddings.iter().find(|tensor| tensor.name == part(UPDATES));
                let found = found.filter(|found| found.dtype == Dtype::U32 && found.shape == [table.rows.len()]);
                let bytes = found.ok_or_else(|| missing(path, &table.name))?.bytes.chunks_exact(4);
                let by_id: Vec<u32> =
                    bytes.map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes"))).collect();
                updates = table.by_node(&by_id);
            }
            let has_copies = embeddings.iter().any(|tensor| tensor.name == part(COPIES));
            let copies = has_copies.then(|| table.read(path, embeddings, &part(COPIES))).transpose()?;
            table.rows.set_optimizer(moments, updates);
            table.copies = copies;
        }
        Ok(())
    }
}

impl NodeTable {
    /// Rows in the order of ids, from rows in the order of nodes.
    fn by_id<T: Copy + Default>(&self, by_node: &[T]) -> Vec<T> {
        let width = by_node.len() / self.ids.len().max(1);
        let mut by_id = vec![T::default(); by_node.len()];
        for (row, &id) in by_node.chunks_exact(width.max(1)).zip(&self.ids) {
            by_id[id as usize * width..][..width].copy_from_slice(row);
        }
        by_id
    }

    /// Rows in the order of nodes, from rows in the order of ids.
    fn by_node<T: Copy>(&self, by_id: &[T]) -> Vec<T> {
        let width = by_id.len() / self.ids.len().max(1);
        self.ids.iter().flat_map(|&id| by_id[id as usize * width..][..width].iter().copied()).collect()
    }

    /// Values for each node, from a tensor of a checkpoint, which was read from `path`.
    fn read(&self, path: &Path, tensors: &[NamedTensor], name: &str) -> Result<Vec<f32>> {
        let shape = [self.rows.len(), self.rows.dim()];
        let found = tensors.iter().find(|tensor| tensor.name == name).filter(|tensor| tensor.shape == shape);
        let by_id = found.and_then(NamedTensor::to_f32).ok_or_else(|| missing(path, name))?;
        Ok(self.by_node(&by_id))
    }
}

/// The dense id of each node of a type.
///
/// # Errors
/// If there are 2^32 nodes, or ids cannot be read.
fn dense_ids(store: &Store) -> Result<Vec<u32>> {
    let count = store.manifest().nodes;
    if u32::try_from(count).is_err() {
        return Err(Error::TooLarge(format!(
            "{}: embeddings of {count} nodes; at most 2^32 - 1 nodes of a type may have some: leave the type out of --node-embeddings",
            store.path().display()
        )));
    }
    let mut ids = Vec::with_capacity(count as usize);
    for first in (0..count).step_by(IDS_AT_ONCE) {
        let nodes: Vec<NodeId> = (first..count.min(first + IDS_AT_ONCE as u64)).map(NodeId).collect();
        ids.extend(store.ids().dense_ids(&nodes)?.into_iter().map(|id| id as u32));
    }
    Ok(ids)
}

/// The name of a part of the state of a type's embeddings. Names of types have no `#`.
fn state_name(node_type: &str, part: &str) -> String {
    format!("{node_type}#{part}")
}

fn missing(path: &Path, name: &str) -> Error {
    of_another_model(path, format!("it has no embeddings of {name} of this number of nodes and values"))
}
