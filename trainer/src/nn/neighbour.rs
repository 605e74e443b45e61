//! History that follows the parameters: one in-neighbour of each halo node stands for what has changed since.
//!
//! What is known of a halo node u is the aggregate A(u) that a layer had in the last exact inference, of its in-neighbours'
//! states h. Since then parameters changed; and as a number, A(u) has no gradient, so that lower layers would not learn what
//! they do to u. So one in-neighbour w of u is drawn, and u is given
//!
//! ```text
//! A(u) - h(w) of that inference + h(w) of now
//! ```
//!
//! which is the aggregate itself where nothing has changed, and whose expectation over w has the gradient of the mean, and
//! changes as the mean does. (Where layers add up, GCN and GIN, h(w) counts as often as u has in-neighbours, each time with its
//! factor.) That is a control variate, as Chen, Zhu and Song have it for sampled neighbours ("Stochastic
//! Training of Graph Convolutional Networks with Variance Reduction", 2018); here the neighbour is drawn once for each exact
//! inference, and all that it takes to compute its state moves with history: its features with their aggregate, and, for
//! layers further up, what is known of its own in-neighbours, of which one stands for the others in turn. No partition asks
//! another for anything.
//!
//! # Dropout
//! A partition that saw u's in-neighbours would draw m of them and drop parts of their states, so that their mean would have
//! 1/m of the variance that one dropped state has. Known aggregates have none, and models that lean on them overfit. So they
//! get it: the aggregate, plus (the aggregate with dropout, less itself) / sqrt(m).

use grappa_formats::random;
use tch::Tensor;

use super::{
    Aggregate, HistoricalEmbeddings, Model,
    linear::{Dropout, Epilogue, apply},
};

/// Apart from layers' keys.
const DROPOUT_KEY: u64 = 1 << 32;

/// What it takes to compute what one in-neighbour of each of some nodes stands for at a layer.
#[derive(Debug)]
pub struct Neighbour {
    /// In-degrees of the nodes, f32 of `[rows]`.
    pub degrees: Tensor,
    /// Features, their aggregates and the in-degree, side by side, f32 of `[rows, 2 inputs + 1]`: of the neighbour, of its own
    /// neighbour, and so on; one for each layer below.
    pub inputs: Vec<Tensor>,
    /// For layers 1, 2, .. below this one: how much more the aggregate is than what the neighbour stands for, f32 of `[rows,
    /// width]`: of the neighbour, of its own neighbour, and so on; for each layer one fewer.
    pub differences: Vec<Vec<Tensor>>,
    /// How far each row's aggregate may be dropped: 1 / sqrt(neighbours that would be drawn), f32 of `[rows, 1]`.
    pub spread: Option<Tensor>,
}

impl Neighbour {
    /// All that it holds.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        std::iter::once(&self.degrees)
            .chain(&self.inputs)
            .chain(self.differences.iter().flatten())
            .chain(&self.spread)
    }
}

impl Model {
    /// Whether the history of halo nodes can follow the parameters: layers take means or sums, the first one of features.
    pub fn has_neighbours(&self) -> bool {
        let follows = |layer| matches!(self.aggregate(layer), Aggregate::Mean | Aggregate::Sum | Aggregate::Gcn);
        (0..self.options().layers).all(follows)
    }

    /// What one neighbour of each of some nodes stands for at a layer above the first: of the nodes' aggregates, `[rows, hidden]`,
    /// an estimate by the state of that neighbour alone. Without dropout.
    ///
    /// # Panics
    /// If there is not what that takes.
    pub fn neighbour_share(&self, layer: usize, neighbour: &Neighbour) -> Tensor {
        let kind = self.kind();
        let width = self.options().inputs as i64;
        let inputs = &neighbour.inputs[..layer];
        let degrees: Vec<Tensor> = std::iter::once(neighbour.degrees.shallow_clone())
            .chain(inputs.iter().map(|rows| rows.select(1, 2 * width)))
            .collect();
        let first = |(rows, degrees): (&Tensor, &Tensor)| {
            let rows = rows.to_kind(kind);
            let (own, aggregates) = (rows.narrow(1, 0, width), rows.narrow(1, width, width));
            self.step(0, &own, &aggregates, Some(degrees), None)
        };
        // Of the neighbour, of its own neighbour, and so on.
        let mut states: Vec<Tensor> = inputs.iter().zip(&degrees[1..]).map(first).collect();
        for below in 1..layer {
            let share = |at: usize| self.share(below, &states[at], &degrees[at], &degrees[at + 1]);
            let next = |at: usize| {
                let aggregates = share(at + 1) + neighbour.differences[below - 1][at].to_kind(kind);
                self.step(below, &states[at], &aggregates, Some(&degrees[at + 1]), None)
            };
            states = (0..states.len() - 1).map(next).collect();
        }
        self.share(layer, &states[0], &degrees[0], &degrees[1])
    }

    /// What a neighbour's state comes to in the aggregate of a node, if all in-neighbours are like it.
    fn share(&self, layer: usize, states: &Tensor, of_node: &Tensor, of_neighbour: &Tensor) -> Tensor {
        let factors = match self.aggregate(layer) {
            Aggregate::Mean => return states.shallow_clone(),
            Aggregate::Sum => of_node.shallow_clone(),
            Aggregate::Gcn => of_node * ((of_node + 1.0) * (of_neighbour + 1.0)).rsqrt(),
            other => unreachable!("{other:?} has no neighbours"),
        };
        states * factors.unsqueeze(1).to_kind(states.kind())
    }

    /// History of a layer with what has changed since, if it has neighbours that tell.
    pub(super) fn follow(
        &self,
        layer: usize,
        historical: &HistoricalEmbeddings,
        training: Option<u64>,
    ) -> Option<HistoricalEmbeddings> {
        let neighbour = historical.neighbour.as_ref()?;
        Some(HistoricalEmbeddings {
            destinations: historical.destinations.shallow_clone(),
            rows: self.followed(layer, &historical.rows, neighbour, training),
            neighbour: None,
        })
    }

    fn followed(&self, layer: usize, rows: &Tensor, neighbour: &Neighbour, training: Option<u64>) -> Tensor {
        let known = self.neighbour_share(layer, neighbour) + rows.to_kind(self.kind());
        let probability = self.options().dropout;
        match (training, &neighbour.spread) {
            (Some(seed), Some(spread)) if probability > 0.0 => {
                let dropout = Some(Dropout {
                    probability,
                    key: random::combine(seed, random::mix(DROPOUT_KEY + layer as u64)),
                });
                let dropped = apply(&known, Epilogue { relu: false, dropout });
                &known + (dropped - &known) * spread.to_kind(self.kind())
            }
            _ => known,
        }
    }
}
