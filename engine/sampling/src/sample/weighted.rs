//! Draws positions of an adjacency list with probabilities that depend on edge weights.
//!
//! Edges of weight 0 are never drawn. Weights that are negative, infinite or NaN are errors.
//!
//! A few edges of a long list are drawn by rejection (von Neumann, 1951): a uniform position is kept with the
//! probability (its weight / the largest weight of the list). That takes (largest / mean weight) tries for an edge and
//! does not depend on the degree, where views know the largest weight. What is missing after some tries, and short
//! lists, take time in proportion to the degree: all weights of the list are read.

use grappa_io::{Error, Result};

use super::{draw::DrawScratch, random::Draws};

/// Lists of at least this many times the draws are drawn from by rejection.
const LONG_LIST: u64 = 4;
/// The most draws of a list by rejection. Each is compared with all others.
const REJECTION_DRAWS_MAX: u32 = 64;
/// Positions that are tried together, so that their weights are fetched together.
const TOGETHER: usize = 32;
/// How often positions are tried.
const ROUNDS: usize = 8;

/// Whether `k` edges of a list of `degree` edges are drawn by rejection.
pub(super) fn is_long(degree: u64, k: u32) -> bool {
    k <= REJECTION_DRAWS_MAX && degree >= LONG_LIST * u64::from(k)
}

/// Calls `each` with the positions that [`by_rejection`] tries first, if it draws `k` positions below `degree`.
#[inline(always)]
pub(super) fn first_tries(mut draws: Draws, degree: u64, k: u32, mut each: impl FnMut(u64)) {
    (0..tried_together(k as usize)).for_each(|_| each(draws.below(degree)));
}

/// Number of positions that are tried together if `missing` are missing.
#[inline(always)]
fn tried_together(missing: usize) -> usize {
    (2 * missing).min(TOGETHER)
}

/// Draws up to `k` positions below `degree` one after another, each with a probability proportional to its weight. With
/// `replace`, positions may repeat; otherwise the probability is among those that were not drawn. Stops early after some
/// tries. Replaces `drawn` by them.
pub(super) fn by_rejection(
    draws: &mut Draws,
    (degree, k, replace): (u64, u32, bool),
    largest: f32,
    weight: impl Fn(u64) -> f32,
    drawn: &mut Vec<u64>,
) {
    drawn.clear();
    if largest <= 0.0 {
        return;
    }
    for _ in 0..ROUNDS {
        let missing = k as usize - drawn.len();
        if missing == 0 {
            return;
        }
        let (mut tries, mut weights) = ([0; TOGETHER], [0.0f32; TOGETHER]);
        let tries = &mut tries[..tried_together(missing)];
        let weights = &mut weights[..tries.len()];
        tries.iter_mut().for_each(|at| *at = draws.below(degree));
        tries.iter().zip(&mut *weights).for_each(|(&at, value)| *value = weight(at));
        // Half of the tries of even weights are kept, so a branch for each would be mispredicted.
        let mut kept = 0;
        for (index, &weight) in weights.iter().enumerate() {
            // The unit is above 0, so weights of 0 are rejected.
            let is_kept = draws.unit() * f64::from(largest) <= f64::from(weight);
            tries[kept] = tries[index];
            kept += usize::from(is_kept);
        }
        for &at in &tries[..kept] {
            if drawn.len() < k as usize && (replace || !drawn.contains(&at)) {
                drawn.push(at);
            }
        }
    }
}

/// Fails if an edge weight is negative, infinite or NaN. `name` returns the destination for the error.
pub(super) fn check(edge_weights: &[f32], name: impl FnOnce() -> String) -> Result<()> {
    // One test finds all three: NaN is in no range.
    match edge_weights.iter().find(|&&weight| !(0.0..f32::INFINITY).contains(&weight)) {
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
    positions.extend((0..).zip(edge_weights).filter(|(_, weight)| **weight > 0.0).map(|(at, _)| at));
}

/// Appends `k` positions, ascending, or all with positive weights if these are fewer. The first ones were drawn before:
/// [`DrawScratch::drawn`]. The distribution equals
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
    let DrawScratch { times, drawn, .. } = scratch;
    let k = k - drawn.len() as u32;
    times.clear();
    for (at, &weight) in (0..).zip(edge_weights) {
        if weight > 0.0 && !drawn.contains(&at) {
            times.push((-libm::log(draws.unit()) / f64::from(weight), at));
        }
    }
    if times.len() > k as usize {
        // Times may be equal or infinite, but positions differ, so the order is total.
        times.select_nth_unstable_by(k as usize, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        times.truncate(k as usize);
    }
    let start = positions.len();
    positions.extend(times.iter().map(|&(_, at)| at).chain(drawn.iter().copied()));
    positions[start..].sort_unstable();
}

/// Appends `k` positions, ascending, drawn independently with probabilities proportional to the weights. The first ones
/// were drawn before: [`DrawScratch::drawn`]. Appends none if all weights are 0.
pub(super) fn with_replacement(
    draws: &mut Draws,
    edge_weights: &[f32],
    k: u32,
    scratch: &mut DrawScratch,
    positions: &mut Vec<u64>,
) {
    let DrawScratch { weight_sums: sums, drawn, .. } = scratch;
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
    positions.extend_from_slice(drawn);
    positions.extend((drawn.len()..k as usize).map(|_| {
        // In (0, sum], so the first cumulative sum that is at least this belongs to an edge with a positive weight.
        let drawn = draws.unit() * sum;
        sums.partition_point(|&until| until < drawn) as u64
    }));
    positions[start..].sort_unstable();
}
