//! A linear layer of the features of edges, computed edge by edge in an inference over the whole graph.

use tch::{Device, Tensor};

use super::linear::LinearLayer;

/// Values whose sums are formed at a time. They stay in registers.
pub(super) const STRIP: usize = 32;

/// The weight and the bias of a linear layer of edges' features.
#[derive(Debug, Clone)]
pub(crate) struct EdgeWeight {
    /// Row by row: the weights of one feature.
    by_feature: Vec<f32>,
    pub(crate) features: usize,
    /// Empty if there is none.
    bias: Vec<f32>,
}

impl EdgeWeight {
    pub(crate) fn new(layer: &LinearLayer) -> Self {
        Self {
            by_feature: values(&layer.weight.tr()),
            features: layer.inputs() as usize,
            bias: layer.bias.as_ref().map_or_else(Vec::new, values),
        }
    }

    /// Number of products.
    pub(crate) fn width(&self) -> usize {
        self.by_feature.len() / self.features
    }

    /// Adds some of the products with an edge's features to `out`, from the one numbered `first` on.
    #[inline]
    pub(crate) fn add_products(&self, edge: &[f32], first: usize, out: &mut [f32]) {
        let width = self.width();
        if !self.bias.is_empty() {
            let bias = &self.bias[first..first + out.len()];
            out.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
        }
        for (feature, weights) in edge.iter().zip(self.by_feature.chunks_exact(width)) {
            let weights = &weights[first..first + out.len()];
            out.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += feature * weight);
        }
    }
}

fn values(parameter: &Tensor) -> Vec<f32> {
    let values = parameter.detach().contiguous().to_device(Device::Cpu).view([-1]);
    Vec::try_from(values).expect("parameters are f32")
}
