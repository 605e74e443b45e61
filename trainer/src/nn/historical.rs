//! Historical embeddings of halo nodes, as tensors.

use std::sync::Arc;

use tch::Tensor;

/// Known aggregates of halo nodes among the destinations of a block, from the last exact inference.
#[derive(Debug)]
pub struct HistoricalEmbeddings {
    /// Their places among the destinations, int64 of `[rows]`, each at most once. The known aggregates replace the aggregates of sampled
    /// edges.
    pub destinations: Tensor,
    /// The aggregates, f32 of `[rows, result width of the layer's reduction]`. With a [`Neighbor`], their differences to its
    /// contribution.
    pub rows: Tensor,
    /// The inputs that let the aggregates follow the parameters.
    pub neighbor: Option<Neighbor>,
}

impl HistoricalEmbeddings {
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let neighbors = self.neighbor.iter().flat_map(|Neighbor { degrees, inputs, differences, spread }| {
            [degrees].into_iter().chain(inputs).chain(differences.iter().flatten()).chain(spread)
        });
        [&self.destinations, &self.rows].into_iter().chain(neighbors)
    }

    /// The names of the nodes of its rows, from the names of all destinations. On a processor only.
    pub(crate) fn names(&self, names: &[u64]) -> Arc<[u64]> {
        let places: Vec<i64> = Vec::try_from(&self.destinations).expect("places are int64");
        places.into_iter().map(|place| names[place as usize]).collect()
    }
}

/// Inputs for recomputing the contribution of one sampled in-neighbor per node (control variate).
#[derive(Debug)]
pub struct Neighbor {
    /// In-degrees of the nodes, f32 of `[rows]`.
    pub degrees: Tensor,
    /// Features, their aggregates and the in-degree, side by side, f32 of `[rows, 2 inputs + 1]`: of the neighbor, of its
    /// neighbor, and so on. One tensor per layer below.
    pub inputs: Vec<Tensor>,
    /// For layers 1, 2, ... below this one: the differences between the aggregate and the neighbor's contribution, f32 of `[rows,
    /// width]`, of the neighbor, of its neighbor, and so on. Each layer has one tensor fewer than the layer below.
    pub differences: Vec<Vec<Tensor>>,
    /// Scale of the dropout noise of each row, 1 / sqrt(neighbors that would be sampled), f32 of `[rows, 1]`. None: no dropout.
    pub spread: Option<Tensor>,
}
