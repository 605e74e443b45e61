//! The embeddings of all nodes of the types that have some.

use std::{
    ops::Range,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use bytemuck::Pod;
use grappa_formats::{NodeId, random};
use grappa_io::array::{Array, PAGE_BYTES, Storage};
use grappa_knowledge::rows::{RowOptimizer, Rows};
use grappa_run::{
    checkpoint::{Dtype, NamedTensor},
    config::TrainConfig,
    model::ModelGraph,
};
use grappa_storage::{Graph, Store};

use super::memory::{TableMemory, optimizer};
use crate::train::tensors::of_another_model;
use crate::{Error, Result};

/// Bytes of embeddings that are copied before their pages are released.
const PIECE_BYTES: usize = 16 << 20;
/// Bytes of a node while its id is read.
const ID_READ_BYTES: usize = 256;

// What a whole checkpoint has beside the embeddings of a type: the state of their optimizer, and the copies.
const MOMENTS: [&str; 2] = ["first", "second"];
const UPDATES: &str = "updates";
const COPIES: &str = "copies";

/// The embeddings of each node type. None for types without.
#[derive(Debug)]
pub(crate) struct NodeTables {
    pub(super) optimizer: RowOptimizer,
    pub(super) types: Vec<Option<NodeTable>>,
    /// Where they are, and the snapshots that checkpoints write.
    storage: Storage,
}

/// The embeddings of a type.
#[derive(Debug)]
pub(super) struct NodeTable {
    name: String,
    /// The dense id of each node: files have rows in the order of ids, as predictions do.
    ids: Array<u32>,
    pub rows: Rows,
    /// The embeddings that partitions read of nodes that they do not own; none if one partition owns all nodes.
    pub copies: Option<Array<f32>>,
    pub pages: MappedPages,
}

/// The pages of embeddings on a disk that may be in the memory of the process.
#[derive(Debug)]
pub(super) struct MappedPages {
    /// Bytes of them that may be; `u64::MAX` if embeddings are in memory.
    bytes_max: u64,
    touched_bytes: AtomicU64,
}

impl NodeTables {
    /// New embeddings, as `--node-embeddings` wants them, in memory or in scratch files of `folder`. None if no type has any. They are uniform,
    /// of length 1 on average, and follow from the seed.
    ///
    /// # Errors
    /// If embeddings have no such optimizer, or the disk has no room for them.
    pub fn new(graph: &Graph, config: &TrainConfig, memory: TableMemory, folder: &Path) -> Result<Option<Self>> {
        if config.node_embeddings.is_empty() {
            return Ok(None);
        }
        let (optimizer, storage) = (optimizer(config)?, memory.storage(folder));
        let types = graph.manifest().node_types.iter().zip(graph.node_types()).enumerate();
        let types = types.map(|(number, (entry, store))| {
            let values = config.node_embeddings.values(&entry.name);
            if values == 0 {
                return Ok(None);
            }
            let mut table = NodeTable::zeros(&entry.name, store, values, optimizer, memory, &storage)?;
            let key = random::combine(random::hash(config.seed), number as u64);
            let range = (3.0 / values as f32).sqrt();
            let ids = &table.ids;
            for piece in pieces(ids.len(), values * size_of::<f32>()) {
                table.rows.randomize(piece, range, key, |row| u64::from(ids[row]));
                table.rows.release();
                ids.release();
            }
            Ok(Some(table))
        });
        Ok(Some(Self { optimizer, types: types.collect::<Result<_>>()?, storage }))
    }

    /// The embeddings of a checkpoint of a model of `learned`, for inference on its graph with `memory` bytes. None if it has none.
    ///
    /// # Errors
    /// If the checkpoint, which was read from `path`, lacks the embeddings of a type, or ids cannot be read, or `scratch` has no room for
    /// embeddings that memory does not hold.
    pub fn of_checkpoint(
        path: &Path,
        learned: &ModelGraph,
        graph: &Graph,
        embeddings: &[NamedTensor],
        (memory, scratch): (u64, &Path),
    ) -> Result<Option<Self>> {
        let bytes = embeddings.iter().map(|tensor| tensor.bytes.len() as u64).sum();
        let memory = TableMemory::for_inference(bytes, memory);
        let storage = memory.storage(scratch);
        let types = learned.node_types.iter().zip(graph.node_types()).map(|(node_type, store)| {
            let values = node_type.embedding;
            let table = || NodeTable::zeros(&node_type.name, store, values, RowOptimizer::Sgd, memory, &storage);
            (values > 0).then(table).transpose()
        });
        let mut tables = Self { optimizer: RowOptimizer::Sgd, types: types.collect::<Result<_>>()?, storage };
        tables.load(path, embeddings)?;
        Ok(tables.types.iter().any(Option::is_some).then_some(tables))
    }

    /// The embeddings of a type, in the order of nodes.
    pub(super) fn table(&self, node_type: usize) -> Option<&NodeTable> {
        self.types[node_type].as_ref()
    }

    /// Makes the copies that partitions read of nodes that they do not own what the embeddings are now. Returns their bytes.
    ///
    /// # Errors
    /// If the disk has no room for them.
    pub fn copy(&mut self) -> Result<u64> {
        let mut bytes = 0;
        for table in self.types.iter_mut().flatten() {
            let mut copies = match table.copies.take() {
                Some(copies) => copies,
                None => Array::zeros(table.rows.values().len(), &self.storage)?,
            };
            bytes += size_of_val(&copies[..]) as u64;
            for piece in pieces(copies.len(), size_of::<f32>()) {
                copies[piece.clone()].copy_from_slice(&table.rows.values()[piece]);
                copies.release();
                table.rows.release();
            }
            table.copies = Some(copies);
        }
        Ok(bytes)
    }

    /// The embeddings for a checkpoint; with `whole`, also the state of their optimizer. Within an epoch, also the copies, which later steps read.
    ///
    /// # Errors
    /// If the disk has no room for a snapshot of embeddings that memory does not hold.
    pub fn named(&self, whole: bool, is_within_epoch: bool) -> Result<Vec<NamedTensor>> {
        let mut tensors = Vec::new();
        for table in self.types.iter().flatten() {
            let NodeTable { name, rows, copies, .. } = table;
            let shape = [rows.len(), rows.dim()];
            let mut add = |name: String, dtype, shape: &[usize], bytes| {
                tensors.push(NamedTensor::new(name, dtype, shape, bytes));
            };
            add(name.clone(), Dtype::F32, &shape, table.by_id(rows.values(), &self.storage)?);
            if !whole {
                continue;
            }
            for (moment, values) in MOMENTS.into_iter().zip(rows.moments()) {
                add(state_name(name, moment), Dtype::F32, &shape, table.by_id(values, &self.storage)?);
            }
            if !rows.updates().is_empty() {
                let updates = table.by_id(rows.updates(), &self.storage)?;
                add(state_name(name, UPDATES), Dtype::U32, &shape[..1], updates);
            }
            if let Some(copies) = copies.as_ref().filter(|_| is_within_epoch) {
                add(state_name(name, COPIES), Dtype::F32, &shape, table.by_id(copies, &self.storage)?);
            }
            table.release();
        }
        Ok(tensors)
    }

    /// Restores the embeddings of a checkpoint, which was read from `path`.
    ///
    /// # Errors
    /// If it has other embeddings.
    pub fn load(&mut self, path: &Path, embeddings: &[NamedTensor]) -> Result<()> {
        for table in self.types.iter_mut().flatten() {
            let shape = [table.rows.len(), table.rows.dim()];
            let by_id = found(path, embeddings, &table.name, Dtype::F32, &shape)?;
            to_nodes(by_id, &table.ids, table.rows.values_mut());
        }
        Ok(())
    }

    /// As [`NodeTables::load`], with the state of the optimizer, which a whole checkpoint has, and the copies of a checkpoint within an epoch.
    ///
    /// # Errors
    /// If the checkpoint has other embeddings.
    pub fn restore(&mut self, path: &Path, embeddings: &[NamedTensor]) -> Result<()> {
        self.load(path, embeddings)?;
        for NodeTable { name, ids, rows, copies, .. } in self.types.iter_mut().flatten() {
            let shape = [rows.len(), rows.dim()];
            let state = |part, dtype, shape: &[usize]| found(path, embeddings, &state_name(name, part), dtype, shape);
            let (moments, updates) = rows.optimizer_mut();
            for (part, moments) in MOMENTS.into_iter().zip(moments) {
                to_nodes(state(part, Dtype::F32, &shape)?, ids, moments);
            }
            if !updates.is_empty() {
                to_nodes(state(UPDATES, Dtype::U32, &shape[..1])?, ids, updates);
            }
            let copied = state_name(name, COPIES);
            *copies = match embeddings.iter().any(|tensor| tensor.name == copied) {
                true => {
                    let mut copies = Array::zeros(shape[0] * shape[1], &self.storage)?;
                    to_nodes(state(COPIES, Dtype::F32, &shape)?, ids, &mut copies);
                    Some(copies)
                }
                false => None,
            };
        }
        Ok(())
    }
}

impl NodeTable {
    fn zeros(
        name: &str,
        store: &Store,
        values: usize,
        optimizer: RowOptimizer,
        memory: TableMemory,
        storage: &Storage,
    ) -> Result<Self> {
        let ids = dense_ids(store, storage)?;
        Ok(Self {
            name: name.to_owned(),
            rows: Rows::zeros_in(storage, ids.len(), values, optimizer)?,
            copies: None,
            ids,
            pages: MappedPages {
                bytes_max: if memory.are_on_disk { memory.leased_bytes } else { u64::MAX },
                touched_bytes: AtomicU64::new(0),
            },
        })
    }

    /// Rows in the order of ids, from rows in the order of nodes.
    fn by_id<T: Pod>(&self, by_node: &[T], storage: &Storage) -> Result<Array<u8>> {
        let mut by_id = Array::zeros(size_of_val(by_node), storage)?;
        let row_bytes = (by_id.len() / self.ids.len().max(1)).max(1);
        for piece in pieces(self.ids.len(), row_bytes) {
            let rows = bytemuck::cast_slice::<T, u8>(by_node)[piece.start * row_bytes..].chunks_exact(row_bytes);
            for (row, &id) in rows.zip(&self.ids[piece]) {
                by_id[id as usize * row_bytes..][..row_bytes].copy_from_slice(row);
            }
            by_id.release();
            self.release();
        }
        Ok(by_id)
    }

    /// The number of rows whose pages may be touched at once.
    pub fn rows_at_once(&self, touched_bytes: u64) -> usize {
        usize::try_from(self.pages.bytes_max / touched_bytes).unwrap_or(usize::MAX).max(1)
    }

    /// Notes that pages were touched, and releases all pages if they may be too many.
    pub fn touched(&self, bytes: u64) {
        let touched = self.pages.touched_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if touched > self.pages.bytes_max {
            self.release();
        }
    }

    /// Releases the pages of embeddings on a disk.
    fn release(&self) {
        self.rows.release();
        self.ids.release();
        self.copies.iter().for_each(Array::release);
        self.pages.touched_bytes.store(0, Ordering::Relaxed);
    }

    /// The most bytes of pages that reading a row touches.
    pub fn read_bytes(&self) -> u64 {
        (self.rows.dim() * size_of::<f32>()) as u64 + PAGE_BYTES
    }
}

/// Ranges of so many rows that their bytes take little memory.
pub(super) fn pieces(rows: usize, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let at_once = (PIECE_BYTES / row_bytes).max(1);
    (0..rows).step_by(at_once).map(move |start| start..rows.min(start + at_once))
}

/// Sets values in the order of nodes from bytes in the order of ids.
fn to_nodes<T: Pod>(by_id: &[u8], ids: &Array<u32>, by_node: &mut Array<T>) {
    let row_bytes = (size_of_val(&by_node[..]) / ids.len().max(1)).max(1);
    for piece in pieces(ids.len(), row_bytes) {
        let rows = &mut bytemuck::cast_slice_mut::<T, u8>(by_node)[piece.start * row_bytes..];
        for (row, &id) in rows.chunks_exact_mut(row_bytes).zip(&ids[piece]) {
            row.copy_from_slice(&by_id[id as usize * row_bytes..][..row_bytes]);
        }
        by_node.release();
        ids.release();
    }
}

/// The bytes of a tensor of a checkpoint, which was read from `path`.
fn found<'a>(path: &Path, tensors: &'a [NamedTensor], name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8]> {
    let found = tensors.iter().find(|tensor| tensor.name == name);
    let found = found.filter(|tensor| tensor.dtype == dtype && tensor.shape == shape);
    found.map(|tensor| &*tensor.bytes).ok_or_else(|| {
        of_another_model(path, format!("it has no embeddings of {name} of this number of nodes and values"))
    })
}

/// The dense id of each node of a type.
///
/// # Errors
/// If there are 2^32 nodes, or ids cannot be read.
fn dense_ids(store: &Store, storage: &Storage) -> Result<Array<u32>> {
    let count = store.manifest().nodes;
    if u32::try_from(count).is_err() {
        return Err(Error::TooLarge(format!(
            "{}: embeddings of {count} nodes; at most 2^32 - 1 nodes of a type may have some: leave the type out of --node-embeddings",
            store.path().display()
        )));
    }
    let mut ids = Array::zeros(count as usize, storage)?;
    for piece in pieces(ids.len(), ID_READ_BYTES) {
        let nodes: Vec<NodeId> = piece.clone().map(|node| NodeId(node as u64)).collect();
        let dense = store.ids().dense_ids(&nodes)?;
        ids[piece].iter_mut().zip(dense).for_each(|(id, dense)| *id = dense as u32);
    }
    ids.release();
    Ok(ids)
}

/// The name of a part of the state of a type's embeddings. Names of types have no `#`.
fn state_name(node_type: &str, part: &str) -> String {
    format!("{node_type}#{part}")
}
