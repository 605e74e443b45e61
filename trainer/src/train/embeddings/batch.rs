//! The embeddings of the nodes of a batch.

use grappa_kernels::for_each;
use grappa_knowledge::{
    matrix::Matrix,
    rows::{GradientOf, Rows},
};
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
    /// The nodes that are updated, with their places in the batch, ascending: those that the partition of the place owns.
    pub own: Vec<GradientOf>,
}

impl TypeEmbeddings {
    /// The gradient, row by row. None if the loss does not depend on it.
    pub fn gradient(&self) -> Option<HostValues> {
        let gradient = self.leaf.grad();
        gradient.defined().then(|| host_values(&gradient))
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
            let places = (0..).zip(&minibatch.nodes).zip(&owned);
            let mut own: Vec<GradientOf> = places
                .filter(|(_, is_own)| **is_own)
                .map(|((gradient, node), _)| GradientOf { row: node.0 as u32, gradient })
                .collect();
            own.sort_unstable();
            Some(TypeEmbeddings { node_type, leaf, own })
        });
        BatchEmbeddings { types: types.collect() }
    }

    /// Updates the embeddings of a batch by their gradients, divided by `denominator`.
    pub fn update(&mut self, batch: &BatchEmbeddings, rate: f64, denominator: f64) {
        let factor = (1.0 / denominator) as f32;
        for gathered in &batch.types {
            let Some(table) = &mut self.types[gathered.node_type] else { continue };
            let Some(gradient) = gathered.gradient() else { continue };
            let (values, gradient) = (table.rows.dim(), &*gradient);
            let mut matrix = Matrix::default();
            matrix.resize(gradient.len() / values, values);
            matrix.fill_rows(|row, out| {
                let gradient = &gradient[row * values..][..values];
                out.iter_mut().zip(gradient).for_each(|(out, value)| *out = value * factor);
                out[values..].fill(0.0);
            });
            let touched_bytes = Rows::touched_bytes(values, self.optimizer);
            for rows in parts_of_rows(&gathered.own, table.rows_at_once(touched_bytes)) {
                table.rows.read_ahead(rows.iter().map(|gradient| gradient.row as usize), true);
                table.rows.update(self.optimizer, rate as f32, rows, 0, &matrix);
                table.touched(rows.len() as u64 * touched_bytes);
            }
        }
    }
}

impl BatchEmbeddings {
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

/// Splits gradients, which are sorted by rows, into parts of about so many gradients. A row is in one part.
fn parts_of_rows(gradients: &[GradientOf], at_once: usize) -> impl Iterator<Item = &[GradientOf]> {
    let mut left = gradients;
    std::iter::from_fn(move || {
        let last = left.get(at_once.min(left.len()).checked_sub(1)?)?;
        let (part, others) = left.split_at(left.partition_point(|gradient| gradient.row <= last.row));
        left = others;
        Some(part)
    })
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
