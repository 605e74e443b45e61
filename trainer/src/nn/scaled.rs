//! Sums with a learned factor.

use grappa_kernels::sum::dot;
use tch::Tensor;

use super::{backend::Backend, linear::float};
use crate::shim;

/// `sum + factor * rows`, for a factor of `[1]` that may have a gradient.
///
/// libtorch would divide the gradient of the factor, a sum over all values, among its threads. Its bits would depend on their number.
pub(crate) fn add_scaled(backend: Backend, sum: &Tensor, rows: &Tensor, factor: &Tensor) -> Tensor {
    let has_kernels = backend.has_kernels_for(rows);
    let constant = if has_kernels { factor.detach() } else { factor.shallow_clone() };
    let result = sum.addcmul(rows, &constant.to_kind(rows.kind()));
    if !has_kernels {
        return result;
    }
    let rows = rows.detach();
    shim::with_gradient(result.detach(), &[&result, factor], move |gradient, _| {
        let factors = [gradient, &rows].map(|factor| float(factor).contiguous());
        let factor_gradient = dot(shim::values(&factors[0]), shim::values(&factors[1])) as f32;
        vec![Some(gradient.shallow_clone()), Some(Tensor::from_slice(&[factor_gradient]))]
    })
}
