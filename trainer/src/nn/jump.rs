//! Jumping knowledge: logits from the states of all layers.
//!
//! The states of a node at different layers are never needed at once. A node carries a row from layer to layer instead, which exact
//! inference stores behind the node's state:
//!
//! ```text
//! cat    carried = bias + sum over layers l of weight[l] state[l]      logits = carried
//! max    carried = maximum over layers l of state[l]                   logits = weight carried + bias
//! ```

use grappa_run::model::{JumpingKnowledge, ModelOptions};
use tch::Tensor;

use super::{
    linear::{Epilogue, LinearLayer, float, linear},
    parameters::Builder,
};

#[derive(Debug)]
pub(crate) struct Jump {
    is_cat: bool,
    hidden: i64,
    /// The weight is `[outputs, hidden]`, or for `cat` `[outputs, layers * hidden]`.
    layer: LinearLayer,
}

impl Jump {
    /// The jump of a model; none if the last layer makes the logits.
    pub(crate) fn new(builder: &mut Builder, options: &ModelOptions) -> Option<Self> {
        let is_cat = match options.jumping_knowledge {
            JumpingKnowledge::None => return None,
            JumpingKnowledge::Max => false,
            JumpingKnowledge::Cat => true,
        };
        let (hidden, outputs) = (options.hidden as i64, options.outputs as i64);
        let inputs = if is_cat { options.layers as i64 * hidden } else { hidden };
        Some(Self { is_cat, hidden, layer: LinearLayer::of_pytorch(builder, "head", [inputs, outputs]) })
    }

    /// Values of a carried row.
    pub(crate) fn width(&self) -> usize {
        if self.is_cat { self.layer.outputs() as usize } else { self.hidden as usize }
    }

    /// The carried rows after a layer, f32, from the states that it made and the rows that were carried to it.
    pub(crate) fn carry(&self, layer: usize, states: &Tensor, carried: Option<&Tensor>) -> Tensor {
        if !self.is_cat {
            let states = float(states);
            return carried.map_or_else(|| states.shallow_clone(), |carried| states.maximum(carried));
        }
        let weight = self.layer.weight.narrow(1, layer as i64 * self.hidden, self.hidden);
        let bias = self.layer.bias.as_ref().filter(|_| carried.is_none());
        let share = float(&linear(&[(states, &weight)], bias, Epilogue::NONE));
        carried.map_or_else(|| share.shallow_clone(), |carried| &share + carried)
    }

    pub(crate) fn logits(&self, carried: &Tensor) -> Tensor {
        if self.is_cat {
            return carried.shallow_clone();
        }
        self.layer.apply(carried, Epilogue::NONE)
    }
}
