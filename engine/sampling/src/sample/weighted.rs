//! Draws positions of an adjacency list with probabilities that depend on edge weights.
//!
//! Edges of weight 0 are never drawn. Weights that are negative, infinite or NaN are errors. The time is proportional
//! to the degree, because all weights of the list are read.

use grappa_io::{Error, Result};

use super::{draw::DrawScratch, random::Draws};

/// Fails if an edge weight is negative, infinite or NaN. `name` returns the destination for the error.
pub(super) fn check(edge_weights: &[f32], name: impl FnOnce() -> String) -> Result<()> {
    // One test finds all three: NaN is in no range.
    match edge_weights
        .iter()
        .find(|&&weight| !(0.0..f32::INFINITY).contains(&weight))
    {
        None => Ok(()),
        Some(weight) => Err(Error::conflict(
            format!(
                "an edge to {} has weight {weight}, but sampling by weight needs finite weights of at least 0",
                name()
            ),
            "sample uniformly, or ingest other edge weights",
        )),
    }
}

/// Appends the positions of all edges whose weight is not 0.
pub(super) fn all(edge_weights: &[f32], positions: &mut Vec<u64>) {
    positions.extend(
        (0..)
            .zip(edge_weights)
            .filter(|(_, weight)| **weight > 0.0)
            .map(|(at, _)| at),
    );
}

/// Appends `k` positions, ascending, or all with positive weights if these are fewer. The distribution equals
/// drawing one after another, each with a probability proportional to its weight among the remaining ones.
///
/// Each position gets the time of the first event of a Poisson process whose rate is its weight. The k earliest
/// positions have this distribution. (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.)
pub(super) fn without_replacement(
    draws: &mut Draws,
    edge_weights: &[f32],
    k: u32,
    scratch: &mut DrawScratch,
    positions: &mut Vec<u64>,
) {
    let times = &mut scratch.times;
    times.clear();
    for (at, &weight) in (0..).zip(edge_weights) {
        if weight > 0.0 {
            times.push((-libm::log(draws.unit()) / f64::from(weight), at));
        }
    }
    if times.len() > k as usize {
        // Times may be equal or infinite, but positions differ, so the order is total.
        times.select_nth_unstable_by(k as usize, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        times.truncate(k as usize);
    }
    let start = positions.len();
    positions.extend(times.iter().map(|&(_, at)| at));
    positions[start..].sort_unstable();
}

/// Appends `k` positions, ascending, drawn independently with probabilities proportional to the weights. Appends none
/// if all weights are 0.
pub(super) fn with_replacement(
    draws: &mut Draws,
    edge_weights: &[f32],
    k: u32,
    scratch: &mut DrawScratch,
    positions: &mut Vec<u64>,
) {
    let sums = &mut scratch.weight_sums;
    sums.clear();
    let mut sum = 0.0;
    sums.extend(edge_weights.iter().map(|&weight| {
        sum += f64::from(weight);
        sum
    }));
    if sum == 0.0 {
        return;
    }
    let start = positions.len();
    positions.extend((0..k).map(|_| {
        // In (0, sum], so the first cumulative sum that is at least this belongs to an edge with a positive weight.
        let drawn = draws.unit() * sum;
        sums.partition_point(|&until| until < drawn) as u64
    }));
    positions[start..].sort_unstable();
}
