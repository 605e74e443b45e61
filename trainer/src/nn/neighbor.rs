//! Historical embeddings that follow the parameters.
//!
//! # Problem
//! A partition does not see the in-neighbors of a halo node u. Instead of their aggregate, it uses A(u): the aggregate at this
//! layer in the last exact inference. A(u) is stale, because the parameters have changed since. And it is a constant, so no
//! gradient flows through it, and lower layers do not learn their effect on u.
//!
//! # Idea: a control variate
//! Exact inference also samples one in-neighbor w of u. Let h(w) be the contribution of w at the parameters of that inference,
//! and h'(w) its contribution at the current parameters. Halo node u then gets
//!
//! ```text
//! A(u) - h(w) + h'(w)
//! ```
//!
//! If the parameters have not changed, this is A(u). Otherwise its expectation over w is A(u) plus the mean change of all
//! in-neighbors, and it has the gradient of the mean. Chen, Zhu and Song use such a control variate for sampled neighbors
//! ("Stochastic Training of Graph Convolutional Networks with Variance Reduction", 2018). Here w is sampled once per exact
//! inference. Layers that add up, GCN and GIN, count h(w) once for each in-neighbor of u, with GCN's factors.
//!
//! # Inputs
//! Computing h'(w) at layer l takes the state of w at layer l - 1, hence the aggregates of w at the layers below. Those are
//! estimated in the same way, by an in-neighbor of w, and so on down to the features. So the files of `train::historical` have
//! for each node the chain u, w, w's neighbor, ...: features, their aggregates and in-degrees, and the differences A - h. No
//! partition asks another for anything during a step.
//!
//! ```text
//! states[i] = layer 0 of chain[i]                          from its features and their aggregate, for i = 1 .. l
//! for layer k in 1 .. l:
//!     aggregate[i] = share(states[i + 1]) + difference[k][i]
//!     states[i] = layer k of (states[i], aggregate[i])     the chain gets shorter by one
//! h'(w) = share(states[1])
//! ```
//!
//! # Dropout
//! A partition that sees u's in-neighbors samples m of them and drops values of their states. The variance of their mean is 1/m
//! of the variance of one dropped state. A known aggregate has no such noise, and deep models overfit to that. So it gets noise of
//! the same size: the aggregate, plus (the aggregate with dropout - the aggregate) / sqrt(m).

use grappa_formats::random;
use tch::Tensor;

use super::{
    aggregate_kind::Aggregate,
    historical::{HistoricalEmbeddings, Neighbor},
    linear::{Dropout, Epilogue, apply},
    model::{Model, Operands},
    pass::{Pass, RowsOf},
};

/// Keeps the keys of this dropout apart from the keys of the layers.
const DROPOUT_KEY: u64 = 1 << 32;

impl Model {
    /// Whether historical embeddings can follow the parameters of this model: all its layers take means or sums, and nothing of edges.
    pub fn has_neighbors(&self) -> bool {
        let mut aggregates = (0..self.options().layers).map(|layer| self.aggregate(layer));
        self.options().edges.is_nothing()
            && aggregates.all(|kind| matches!(kind, Aggregate::Mean | Aggregate::Sum | Aggregate::Gcn))
    }

    /// The contributions of the neighbors at a layer above the first, `[rows, hidden]`: the nodes' aggregates, estimated from the
    /// current state of one neighbor each. Without dropout. The comment at the top of `neighbor.rs` has the algorithm.
    ///
    /// # Panics
    /// If `neighbor` has too few inputs for the layer.
    pub fn neighbor_share(&self, layer: usize, neighbor: &Neighbor) -> Tensor {
        let kind = self.kind();
        let width = self.options().inputs as i64;
        let inputs = &neighbor.inputs[..layer];
        let degrees: Vec<Tensor> = std::iter::once(neighbor.degrees.shallow_clone())
            .chain(inputs.iter().map(|rows| rows.select(1, 2 * width)))
            .collect();
        // Of the neighbor, of its neighbor, and so on.
        let mut states = Vec::with_capacity(layer);
        for (rows, degrees) in inputs.iter().zip(&degrees[1..]) {
            let rows = rows.to_kind(kind);
            let (own, aggregates) = (rows.narrow(1, 0, width), rows.narrow(1, width, width));
            states.push(self.step(0, Operands::Apart(&own, &[aggregates], Some(degrees))));
        }
        for below in 1..layer {
            let mut above = Vec::with_capacity(states.len());
            for (at, pair) in states.windows(2).enumerate() {
                let share = self.share(below, &pair[1], &degrees[at + 1], &degrees[at + 2]);
                let aggregates = share + neighbor.differences[below - 1][at].to_kind(kind);
                above.push(self.step(below, Operands::Apart(&pair[0], &[aggregates], Some(&degrees[at + 1]))));
            }
            states = above;
        }
        self.share(layer, &states[0], &degrees[0], &degrees[1])
    }

    /// The aggregate of a node if all its in-neighbors had the given states.
    fn share(&self, layer: usize, states: &Tensor, node_part: &Tensor, neighbor_part: &Tensor) -> Tensor {
        let factors = match self.aggregate(layer) {
            Aggregate::Mean => return states.shallow_clone(),
            Aggregate::Sum => node_part.shallow_clone(),
            Aggregate::Gcn => node_part * ((node_part + 1.0) * (neighbor_part + 1.0)).rsqrt(),
            other => unreachable!("{other:?} has no neighbors"),
        };
        states * factors.unsqueeze(1).to_kind(states.kind())
    }

    /// Historical embeddings of a layer at the current parameters, if they have neighbors that tell the change.
    pub(super) fn follow(
        &self,
        layer: usize,
        historical: &HistoricalEmbeddings,
        pass: &Pass,
    ) -> Option<HistoricalEmbeddings> {
        let neighbor = historical.neighbor.as_ref()?;
        let known = self.neighbor_share(layer, neighbor) + historical.rows.to_kind(self.kind());
        let probability = self.options().dropout;
        let rows = match (pass.training, &neighbor.spread) {
            (Some(seed), Some(spread)) if probability > 0.0 => {
                let dropout = Some(Dropout {
                    probability,
                    key: random::combine(seed, random::mix(DROPOUT_KEY + layer as u64)),
                    names: pass.names.as_ref().map(|names| historical.names(&names.of(0, RowsOf::Destinations))),
                });
                let dropped = apply(&known, Epilogue { relu: false, dropout });
                &known + (dropped - &known) * spread.to_kind(self.kind())
            }
            _ => known,
        };
        Some(HistoricalEmbeddings { destinations: historical.destinations.shallow_clone(), rows, neighbor: None })
    }
}
