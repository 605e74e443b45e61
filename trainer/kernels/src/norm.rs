//! Layer norms and batch norms of rows, forward and backward, in f32.
//!
//! libtorch divides sums over rows among its threads. So the gradients of a norm's weights, and the statistics of a batch norm, change
//! with the number of threads. These loops divide the rows into parts of fixed size, and add the sums of parts in their order.
//!
//! ```text
//! unit(x)     (x - mean) / deviation         the mean and deviation of a row (layer norm), or of a column (batch norm)
//! result      unit(x) * weight + bias
//! backward    h = gradient * weight
//!             of x       (h - mean(h) - unit(x) * mean(h * unit(x))) / deviation
//!             of weight  the sum of gradient * unit(x) over rows; of bias, the sum of gradient
//! ```

use crate::{
    parallel::{ROWS, for_each, in_parts},
    sum::{products, sum},
};

/// Added to variances.
pub const EPSILON: f32 = 1e-5;

/// The weight and the bias of a norm, a value for each column.
type Weights<'a> = [&'a [f32]; 2];

/// Statistics of columns.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The mean of each column.
    pub means: Vec<f32>,
    /// The biased variance of each column.
    pub variances: Vec<f32>,
}

/// The mean of a row, and one by its deviation.
#[derive(Debug, Default, Clone, Copy)]
pub struct RowStatistics {
    mean: f32,
    inverse: f32,
}

/// The layer norm of each row. Returns the statistics of the rows.
pub fn layer_forward(values: &[f32], [weight, bias]: Weights<'_>, results: &mut [f32]) -> Vec<RowStatistics> {
    let columns = weight.len();
    let mut statistics = vec![RowStatistics::default(); values.len() / columns];
    for_each(
        in_parts(columns, values, results).zip(statistics.chunks_mut(ROWS)).collect(),
        |((values, results), statistics): ((&[f32], &mut [f32]), &mut [RowStatistics])| {
            let rows = values.chunks_exact(columns).zip(results.chunks_exact_mut(columns));
            for ((row, result), statistics) in rows.zip(statistics) {
                let mean = sum(row, |value| value) / columns as f32;
                let variance = sum(row, |value| (value - mean) * (value - mean)) / columns as f32;
                let inverse = (variance + EPSILON).sqrt().recip();
                *statistics = RowStatistics { mean, inverse };
                let weights = weight.iter().zip(bias);
                for ((result, value), (weight, bias)) in result.iter_mut().zip(row).zip(weights) {
                    *result = (value - mean) * inverse * weight + bias;
                }
            }
        },
    );
    statistics
}

/// The gradients of [`layer_forward`], which returned `statistics`: of the values into `of_values`, and of the weights.
pub fn layer_backward(
    values: &[f32],
    weight: &[f32],
    statistics: &[RowStatistics],
    gradient: &[f32],
    of_values: &mut [f32],
) -> [Vec<f32>; 2] {
    let columns = weight.len();
    let parts = in_parts(columns, values, of_values);
    let mut sums = vec![[vec![0.0; columns], vec![0.0; columns]]; parts.len()];
    let parts = parts.zip(gradient.chunks(ROWS * columns)).zip(&mut sums);
    for_each(parts.zip(statistics.chunks(ROWS)).collect(), |((((values, of_values), gradient), sums), statistics)| {
        let mut unit = vec![0.0; columns];
        let rows = values.chunks_exact(columns).zip(gradient.chunks_exact(columns));
        let rows = rows.zip(of_values.chunks_exact_mut(columns)).zip(statistics);
        for (((row, gradient), of_values), &RowStatistics { mean, inverse }) in rows {
            for (unit, value) in unit.iter_mut().zip(row) {
                *unit = (value - mean) * inverse;
            }
            add_products(sums, gradient, &unit);
            for ((of_value, gradient), weight) in of_values.iter_mut().zip(gradient).zip(weight) {
                *of_value = gradient * weight;
            }
            let mean = sum(of_values, |value| value) / columns as f32;
            let slope = products(of_values, &unit) / columns as f32;
            for (of_value, unit) in of_values.iter_mut().zip(&unit) {
                *of_value = (*of_value - mean - unit * slope) * inverse;
            }
        }
    });
    total(columns, &sums)
}

/// The mean and the (biased) variance of each column of `rows` > 0 rows.
pub fn columns_of(columns: usize, values: &[f32]) -> Columns {
    let parts = values.chunks(ROWS * columns);
    let mut of_parts = vec![[vec![0f32; columns], vec![0f32; columns]]; parts.len()];
    for_each(parts.zip(&mut of_parts).collect(), |(values, [means, squares]): (&[f32], &mut [Vec<f32>; 2])| {
        for row in values.chunks_exact(columns) {
            for (sum, value) in means.iter_mut().zip(row) {
                *sum += value;
            }
        }
        let rows = (values.len() / columns) as f32;
        means.iter_mut().for_each(|sum| *sum /= rows);
        // The part is in a cache.
        for row in values.chunks_exact(columns) {
            for ((square, value), mean) in squares.iter_mut().zip(row).zip(means.iter()) {
                *square += (value - mean) * (value - mean);
            }
        }
    });
    let rows = values.len() / columns;
    let rows_of_parts = (0..of_parts.len()).map(|part| (rows - part * ROWS).min(ROWS) as f64);
    let mut means = vec![0f64; columns];
    for ([of_part, _], weight) in of_parts.iter().zip(rows_of_parts.clone()) {
        for (mean, of_part) in means.iter_mut().zip(of_part) {
            *mean += f64::from(*of_part) * weight / rows as f64;
        }
    }
    let mut variances = vec![0f64; columns];
    for ([of_part, squares], weight) in of_parts.iter().zip(rows_of_parts) {
        for ((variance, square), (of_part, mean)) in variances.iter_mut().zip(squares).zip(of_part.iter().zip(&means)) {
            let difference = f64::from(*of_part) - mean;
            *variance += (f64::from(*square) + weight * difference * difference) / rows as f64;
        }
    }
    let [means, variances] = [means, variances].map(|values| values.into_iter().map(|value| value as f32).collect());
    Columns { means, variances }
}

/// The batch norm of each row, with the statistics of the columns.
pub fn batch_forward(values: &[f32], [weight, bias]: Weights<'_>, statistics: &Columns, results: &mut [f32]) {
    let columns = weight.len();
    let scales: Vec<f32> = inverses(statistics).zip(weight).map(|(a, b)| a * b).collect();
    for_each(in_parts(columns, values, results).collect(), |(values, results): (&[f32], &mut [f32])| {
        for (row, result) in values.chunks_exact(columns).zip(results.chunks_exact_mut(columns)) {
            let of_columns = statistics.means.iter().zip(&scales).zip(bias);
            for ((result, value), ((mean, scale), bias)) in result.iter_mut().zip(row).zip(of_columns) {
                *result = (value - mean) * scale + bias;
            }
        }
    });
}

/// The gradients of [`batch_forward`]. `are_own`: the statistics are the values' own, and depend on them.
pub fn batch_backward(
    values: &[f32],
    weight: &[f32],
    statistics: &Columns,
    are_own: bool,
    gradient: &[f32],
    of_values: &mut [f32],
) -> [Vec<f32>; 2] {
    let columns = weight.len();
    let rows = values.len() / columns;
    let inverses: Vec<f32> = inverses(statistics).collect();
    let parts = values.chunks(ROWS * columns).zip(gradient.chunks(ROWS * columns));
    let mut sums = vec![[vec![0.0; columns], vec![0.0; columns]]; rows.div_ceil(ROWS)];
    for_each(parts.zip(&mut sums).collect(), |((values, gradient), sums)| {
        let mut unit = vec![0.0; columns];
        for (row, gradient) in values.chunks_exact(columns).zip(gradient.chunks_exact(columns)) {
            let of_columns = statistics.means.iter().zip(&inverses);
            for ((unit, value), (mean, inverse)) in unit.iter_mut().zip(row).zip(of_columns) {
                *unit = (value - mean) * inverse;
            }
            add_products(sums, gradient, &unit);
        }
    });
    let of_weights = total(columns, &sums);
    // The gradient of a value is linear in the gradient of its result and in its difference from the mean.
    let share = if are_own { (rows as f32).recip() } else { 0.0 };
    let by_gradient: Vec<f32> = inverses.iter().zip(weight).map(|(a, b)| a * b).collect();
    let [mut by_difference, constants] = of_weights.each_ref().map(|sums| {
        let products = sums.iter().zip(&by_gradient);
        products.map(|(sum, by)| -share * sum * by).collect::<Vec<f32>>()
    });
    for (by, inverse) in by_difference.iter_mut().zip(&inverses) {
        *by *= inverse;
    }
    let parts = in_parts(columns, values, of_values).zip(gradient.chunks(ROWS * columns)).collect();
    for_each(parts, |((values, of_values), gradient): ((&[f32], &mut [f32]), &[f32])| {
        let rows = values.chunks_exact(columns).zip(gradient.chunks_exact(columns));
        for ((row, gradient), of_values) in rows.zip(of_values.chunks_exact_mut(columns)) {
            let of_columns = (statistics.means.iter().zip(&by_gradient)).zip(by_difference.iter().zip(&constants));
            for ((of_value, (value, gradient)), ((mean, by_gradient), (by_difference, constant))) in
                of_values.iter_mut().zip(row.iter().zip(gradient)).zip(of_columns)
            {
                *of_value = gradient * by_gradient + (value - mean) * by_difference + constant;
            }
        }
    });
    of_weights
}

/// One by the deviation of each column.
fn inverses(statistics: &Columns) -> impl Iterator<Item = f32> + '_ {
    statistics.variances.iter().map(|variance| (variance + EPSILON).sqrt().recip())
}

/// Adds what a row contributes to the gradients of weight and bias.
fn add_products([weight, bias]: &mut [Vec<f32>; 2], gradient: &[f32], unit: &[f32]) {
    for ((weight, bias), (gradient, unit)) in weight.iter_mut().zip(bias).zip(gradient.iter().zip(unit)) {
        *weight += gradient * unit;
        *bias += gradient;
    }
}

/// The sums of all parts, in their order.
fn total(columns: usize, parts: &[[Vec<f32>; 2]]) -> [Vec<f32>; 2] {
    [0, 1].map(|which| {
        let mut total = vec![0f64; columns];
        for part in parts {
            for (total, sum) in total.iter_mut().zip(&part[which]) {
                *total += f64::from(*sum);
            }
        }
        total.into_iter().map(|sum| sum as f32).collect()
    })
}
