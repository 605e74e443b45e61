//! The embeddings of the nodes of a batch.

use grappa_kernels::for_each;
use grappa_knowledge::{matrix::Matrix, rows::GradientOf};
use grappa_sampling::{feed::BatchPlace, sample::Minibatch};
use grappa_storage::Graph;
use tch::{Device, Tensor};

use super::tables::{NodeTable, NodeTables};
use crate::train::tensors::{HostValues, host_values};

/// Rows that a thread copies at a time.
const ROWS: usize = 512;

/// The partitions of a batch and of all nodes.
#[derive(Clone, Copy)]
pub(crate) struct Owners<'a> {
    /// The partition of each chunk of the graph.
    pub of_chunks: &'a [u32],
    /// The parts of the batch.
    pub parts: &'a [BatchPlace],
}

/// The embeddings of the nodes of a batch, as leaves of its gradient.
pub(crate) struct BatchEmbeddings {
    pub(super) types: Vec<TypeEmbeddings>,
}

/// The embeddings of the nodes of a type.
pub(super) struct TypeEmbeddings {
    pub node_type: usize,
    /// f32 of `[nodes, values]`.
    leaf: Tensor,
    /// The nodes, with their places in the batch, ascending.
    rows: Vec<GradientOf>,
    /// Number of places whose partition does not own the node, so that it sends the gradient to the owner.
    others: usize,
}

impl TypeEmbeddings {
    /// The gradient, row by row. None if the loss does not depend on it.
    fn gradient(&self) -> Option<HostValues> {
        let gradient = self.leaf.grad();
        gradient.defined().then(|| host_values(&gradient))
    }

    /// The rows of its gradients, and the gradients of `dim` values times a factor. None if the loss depends on none.
    pub fn scaled_gradients(&self, dim: usize, factor: f32) -> Option<(&[GradientOf], Matrix)> {
        let values = self.gradient()?;
        let gradient: &[f32] = &values;
        let mut matrix = Matrix::default();
        matrix.resize(gradient.len() / dim, dim);
        matrix.fill_rows(|row, out| {
            let gradient = &gradient[row * dim..][..dim];
            out.iter_mut().zip(gradient).for_each(|(out, value)| *out = value * factor);
            out[dim..].fill(0.0);
        });
        Some((&self.rows, matrix))
    }
}

impl NodeTables {
    /// Reads the embeddings of the nodes of a batch. Without `owners`, all are the newest ones.
    pub fn gather(
        &self,
        graph: &Graph,
        minibatches: &[Minibatch],
        owners: Option<Owners<'_>>,
        device: Device,
    ) -> BatchEmbeddings {
        let types = self.types.iter().enumerate().filter_map(|(node_type, table)| {
            let table = table.as_ref()?;
            let minibatch = &minibatches[node_type];
            let owned: Vec<bool> = match owners.filter(|_| table.copies.is_some()) {
                Some(owners) => owned(graph, node_type, minibatch, owners),
                None => vec![true; minibatch.nodes.len()],
            };
            let leaf = gather_rows(table, minibatch, &owned).to_device(device).set_requires_grad(true);
            let places = (0..).zip(&minibatch.nodes);
            let mut rows: Vec<GradientOf> =
                places.map(|(gradient, node)| GradientOf { row: node.0 as u32, gradient }).collect();
            rows.sort_unstable();
            let others = owned.iter().filter(|is_own| !**is_own).count();
            Some(TypeEmbeddings { node_type, leaf, rows, others })
        });
        BatchEmbeddings { types: types.collect() }
    }
}

impl BatchEmbeddings {
    /// Bytes of the gradients that partitions send to the owners of their rows.
    pub fn sent_gradient_bytes(&self) -> u64 {
        let bytes = self.types.iter().map(|gathered| {
            let gradient_bytes = size_of::<u32>() + gathered.leaf.size()[1] as usize * size_of::<f32>();
            gathered.others * gradient_bytes
        });
        bytes.sum::<usize>() as u64
    }

    /// Appends the embeddings to the features of each type, `[nodes, features]`.
    pub fn append_to(&self, features: &mut [Tensor]) {
        for TypeEmbeddings { node_type, leaf, .. } in &self.types {
            let features = &mut features[*node_type];
            *features = Tensor::cat(&[features.shallow_clone(), leaf.to_kind(features.kind())], 1);
        }
    }
}

/// The embeddings of the nodes of a minibatch, f32 of `[nodes, values]`: the newest one where `owned`, and else the copy.
fn gather_rows(table: &NodeTable, minibatch: &Minibatch, owned: &[bool]) -> Tensor {
    let values = table.rows.dim();
    let mut all = vec![0.0f32; minibatch.nodes.len() * values];
    let at_once = table.rows_at_once(table.read_bytes());
    let parts = all.chunks_mut(at_once.saturating_mul(values).max(1));
    for (out, (nodes, owned)) in parts.zip(minibatch.nodes.chunks(at_once).zip(owned.chunks(at_once))) {
        let places = nodes.iter().map(|node| node.0 as usize).zip(owned);
        let [own, copied] = [true, false].map(|is_own| {
            let places = places.clone().filter(move |place| *place.1 == is_own);
            places.map(|(row, _)| row)
        });
        table.rows.read_ahead(own, false);
        if let Some(copies) = &table.copies {
            copied.for_each(|row| copies.read_ahead(row * values..(row + 1) * values));
        }
        let parts: Vec<_> = out.chunks_mut(ROWS * values).zip(nodes.chunks(ROWS).zip(owned.chunks(ROWS))).collect();
        for_each(parts, |(out, (nodes, owned))| {
            for (out, (node, &is_own)) in out.chunks_exact_mut(values).zip(nodes.iter().zip(owned)) {
                let row = node.0 as usize;
                out.copy_from_slice(match &table.copies {
                    Some(copies) if !is_own => &copies[row * values..][..values],
                    _ => table.rows.row(row),
                });
            }
        });
        table.touched(nodes.len() as u64 * table.read_bytes());
    }
    Tensor::from_slice(&all).view([-1, values as i64])
}

/// Whether the partition of each place of a minibatch owns its node.
fn owned(graph: &Graph, node_type: usize, minibatch: &Minibatch, owners: Owners<'_>) -> Vec<bool> {
    let store = &graph.node_types()[node_type];
    let first_chunk = graph.positions().chunks_of(node_type).start as usize;
    let is_owned = |(at, node): (usize, &_)| {
        let part = minibatch.parts.get(at).map_or(0, |&part| part as usize);
        let chunk = first_chunk + store.chunks().chunk_of(*node).0 as usize;
        owners.of_chunks[chunk] == owners.parts[part].partition.0
    };
    minibatch.nodes.iter().enumerate().map(is_owned).collect()
}
