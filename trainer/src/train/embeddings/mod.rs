//! Learnable embeddings of nodes, as inputs of the model beside features.
//!
//! ```text
//! tables    the embeddings of each type
//! batch     the embeddings of the nodes of a batch, as leaves of its gradient
//! update    what the optimizer does to them in a step, by the gradients of all partitions
//! exchange  the rows of other processes
//! rows      features and embeddings as rows of exact inference
//! memory    the memory of all of it, and the choice between memory and disk
//! ```
//!
//! An embedding belongs to a node, and not to the model. The partition that owns the node updates it, by lazy Adam: only embeddings with a
//! gradient change, and each counts its own updates. Other partitions read a copy of it, which dates from the start of the epoch, and send its
//! gradient to the owner. So partitions exchange nothing but gradients while they train an epoch. Copies are state: they are made once per
//! epoch, and processes give each other the rows that they own after each epoch, for evaluations, checkpoints and the next copies.
//!
//! Embeddings that exceed their share of the memory are in scratch files of the run, mapped: the page cache has the rows that batches use, and
//! the rows of a batch are read at once, before it needs them.

mod batch;
mod exchange;
mod memory;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod update;

pub(super) use self::{
    batch::{BatchEmbeddings, Owners},
    memory::TableMemory,
    rows::input_rows,
    tables::NodeTables,
    update::RowOwners,
};
