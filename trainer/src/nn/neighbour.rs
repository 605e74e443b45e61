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
//! changes as the mean does. That is a control variate, as Chen, Zhu and Song have it for sampled neighbours ("Stochastic
//! Training of Graph Convolutional Networks with Variance Reduction", 2018); here the neighbour is drawn once for each exact
//! inference, and all that it takes to compute its state moves with history: its features with their aggregate, and, for
//! layers further up, what is known of its own in-neighbours, of which one stands for the others in turn. No partition asks
//! another for anything.
//!
//! # Dropout
//! A partition that saw u's in-neighbours would draw m of them and drop parts of their states, so that their mean would have
//! 1/m of the variance that one dropped state has. Known aggregates have none, and models that lean on them overfit. So they
//! get it: the aggregate, plus (the aggregate with dropout, less itself) / sqrt(m).

use tch::Tensor;

use super::{
    Aggregate, History, Model,
    affine::{Dropout, Epilogue, apply},
};
use crate::random;

/// Apart from layers' keys.
const DROPOUT_KEY: u64 = 1 << 32;

/// What it takes to compute the state of one in-neighbour of each of some nodes at a layer's input.
#[derive(Debug)]
pub struct Neighbour {
    /// Features and their aggregates, side by side, f32 of `[rows, 2 inputs]`: of the neighbour, of its own neighbour, and so
    /// on; one for each layer below.
    pub inputs: Vec<Tensor>,
    /// For layers 1, 2, .. below this one: how much more the aggregate is than its neighbour's state, f32 of `[rows, width]`:
    /// of the neighbour, of its own neighbour, and so on; for each layer one fewer.
    pub differences: Vec<Vec<Tensor>>,
    /// How far each row's aggregate may be dropped: 1 / sqrt(neighbours that would be drawn), f32 of `[rows, 1]`.
    pub spread: Option<Tensor>,
}

impl Neighbour {
    /// All that it holds.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs
            .iter()
            .chain(self.differences.iter().flatten())
            .chain(&self.spread)
    }
}

impl Model {
    /// Whether the history of halo nodes can follow the parameters: layers take the mean, the first one of features.
    pub fn has_neighbours(&self) -> bool {
        (0..self.options().layers).all(|layer| self.aggregate(layer) == Aggregate::Mean)
    }

    /// The states at the input of a layer above the first, `[rows, hidden]`, of one neighbour of each of some nodes. Without
    /// dropout.
    ///
    /// # Panics
    /// If there is not what that takes.
    pub fn neighbour_states(&self, layer: usize, neighbour: &Neighbour) -> Tensor {
        let kind = self.kind();
        let width = self.options().inputs as i64;
        let first = |rows: &Tensor| {
            let rows = rows.to_kind(kind);
            self.step(0, &rows.narrow(1, 0, width), &rows.narrow(1, width, width), None, None)
        };
        let mut states: Vec<Tensor> = neighbour.inputs[..layer].iter().map(first).collect();
        for below in 1..layer {
            let aggregates = states[1..].iter().zip(&neighbour.differences[below - 1]);
            let aggregates = aggregates.map(|(states, differences)| differences.to_kind(kind) + states);
            states = aggregates
                .zip(&states)
                .map(|(aggregates, own)| self.step(below, own, &aggregates, None, None))
                .collect();
        }
        states.swap_remove(0)
    }

    /// History of a layer with what has changed since, if it has neighbours that tell.
    pub(super) fn follow(&self, layer: usize, history: &History, training: Option<u64>) -> Option<History> {
        let neighbour = history.neighbour.as_ref()?;
        Some(History {
            destinations: history.destinations.shallow_clone(),
            rows: self.followed(layer, &history.rows, neighbour, training),
            neighbour: None,
        })
    }

    fn followed(&self, layer: usize, rows: &Tensor, neighbour: &Neighbour, training: Option<u64>) -> Tensor {
        let known = self.neighbour_states(layer, neighbour) + rows.to_kind(self.kind());
        let probability = self.options().dropout;
        match (training, &neighbour.spread) {
            (Some(seed), Some(spread)) if probability > 0.0 => {
                let dropout = Some(Dropout {
                    probability,
                    key: random::combine(seed, DROPOUT_KEY + layer as u64),
                });
                let dropped = apply(&known, Epilogue { relu: false, dropout });
                &known + (dropped - &known) * spread.to_kind(self.kind())
            }
            _ => known,
        }
    }
}
