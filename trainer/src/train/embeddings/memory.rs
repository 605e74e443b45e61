//! The memory of the embeddings of nodes, and where they are.

use std::path::Path;

use grappa_io::{array::Storage, ledger::MemoryShare, size::ByteSize};
use grappa_knowledge::rows::{RowOptimizer, Rows};
use grappa_run::config::TrainConfig;
use grappa_storage::Graph;

use crate::{Error, Result};

/// Bytes of the id of a node.
const ID_BYTES: u64 = size_of::<u32>() as u64;
const EMBEDDINGS: MemoryShare = MemoryShare::one(
    "embeddings of nodes",
    2,
    "above 1/2, with their optimizer and copies, they are on the disk, because minibatches and features need the rest; chosen, not measured",
);
const PAGES: MemoryShare = MemoryShare::one(
    "pages of embeddings",
    8,
    "pages of embeddings on a disk that stay mapped; all are released after as many bytes; chosen, not measured",
);
/// The least memory for the pages of embeddings on a disk.
const PAGES_MIN: u64 = 4 << 20;

/// Where the embeddings of nodes are, and the memory that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableMemory {
    /// Bytes of the embeddings of all nodes, with the state of their optimizer, and with copies if there are several partitions.
    pub table_bytes: u64,
    /// Bytes of the budget: all of these, or their mapped pages.
    pub leased_bytes: u64,
    /// Whether they are on the disk.
    pub are_on_disk: bool,
}

impl TableMemory {
    /// Decides where the embeddings are. `memory` is the memory of the whole run.
    ///
    /// # Errors
    /// If embeddings have no such optimizer, or the memory has no room for their pages.
    pub fn new(config: &TrainConfig, memory: u64, graph: &Graph) -> Result<Self> {
        if config.node_embeddings.is_empty() {
            return Ok(Self { table_bytes: 0, leased_bytes: 0, are_on_disk: false });
        }
        let table_bytes = table_bytes(config, graph)?;
        if table_bytes <= EMBEDDINGS.bytes(memory) {
            return Ok(Self { table_bytes, leased_bytes: table_bytes, are_on_disk: false });
        }
        match PAGES.bytes(memory) {
            pages if pages >= PAGES_MIN => Ok(Self { table_bytes, leased_bytes: pages, are_on_disk: true }),
            _ => Err(Error::Options(format!(
                "node-embeddings {} are on the disk, because they need {} of memory, and their pages need 1/8 of --memory {}, at least {}: use \
                 --memory {} or more",
                config.node_embeddings,
                ByteSize(2 * table_bytes),
                ByteSize(memory),
                ByteSize(PAGES_MIN),
                ByteSize((8 * PAGES_MIN).min(2 * table_bytes))
            ))),
        }
    }

    /// Where the embeddings of an inference are, which need `table_bytes` and no optimizer.
    pub fn for_inference(table_bytes: u64, memory: u64) -> Self {
        let are_on_disk = table_bytes > EMBEDDINGS.bytes(memory);
        Self { table_bytes, leased_bytes: if are_on_disk { PAGES.bytes(memory) } else { table_bytes }, are_on_disk }
    }

    /// Where to store embeddings: in memory, or in scratch files of `folder`.
    pub fn storage(&self, folder: &Path) -> Storage {
        match self.are_on_disk {
            true => Storage::Disk(folder.to_owned()),
            false => Storage::Memory,
        }
    }
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

fn table_bytes(config: &TrainConfig, graph: &Graph) -> Result<u64> {
    let optimizer = optimizer(config)?;
    let has_copies = config.partitions.value() != Some(1);
    let types = graph.manifest().node_types.iter().zip(graph.node_types());
    let bytes = types.map(|(entry, store)| {
        let values = config.node_embeddings.values(&entry.name);
        let copies = if has_copies { (values * size_of::<f32>()) as u64 } else { 0 };
        match values {
            0 => 0,
            _ => store.manifest().nodes.saturating_mul(Rows::row_bytes(values, optimizer) + copies + ID_BYTES),
        }
    });
    Ok(bytes.fold(0, u64::saturating_add))
}
