//! The memory of the embeddings of nodes.

use grappa_io::{ledger::MemoryShare, size::ByteSize};
use grappa_knowledge::rows::Rows;
use grappa_run::config::TrainConfig;
use grappa_storage::Graph;

use super::tables::optimizer;
use crate::{Error, Result};

/// Bytes of the id of a node.
const ID_BYTES: u64 = size_of::<u32>() as u64;
const EMBEDDINGS: MemoryShare = MemoryShare::one(
    "embeddings of nodes",
    2,
    "refused above 1/2 with their optimizer and copies, because minibatches and features need the rest; chosen, not measured",
);

/// The bytes of the embeddings of all nodes, with the state of their optimizer, and with copies if there are several partitions.
///
/// # Errors
/// If embeddings have no such optimizer.
pub(crate) fn table_bytes(config: &TrainConfig, graph: &Graph) -> Result<u64> {
    if config.node_embeddings.is_empty() {
        return Ok(0);
    }
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

/// The bytes of the budget that embeddings take.
///
/// # Errors
/// If they take more than their share.
pub(crate) fn budgeted_bytes(config: &TrainConfig, graph: &Graph) -> Result<u64> {
    let (bytes, memory) = (table_bytes(config, graph)?, config.memory.0);
    match bytes <= EMBEDDINGS.bytes(memory) {
        true => Ok(bytes),
        false => Err(Error::Options(format!(
            "node-embeddings {} need {} with the state of their optimizer, and they may have half of --memory {}: use --memory {} or more, \
             or fewer values",
            config.node_embeddings,
            ByteSize(bytes),
            ByteSize(memory),
            ByteSize(2 * bytes)
        ))),
    }
}
