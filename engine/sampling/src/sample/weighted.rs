//! Which positions of a row are kept, where edges with larger weights are drawn more often.
//!
//! An edge whose weight is 0 is never drawn. Weights that are negative or no numbers are errors. All of it takes time
//! proportional to the degree: the weights of a row are read whole.

use grappa_io::{Error, Result};

use super::{draw::DrawScratch, random::Draws};

/// Fails if there is a weight that nothing can be drawn by.
pub(super) fn check(weights: &[f32], name: impl FnOnce() -> String) -> Result<()> {
    // One comparison a weight finds all kinds: what is not a number is not at least 0.
    match weights.iter().find(|&&weight| !(0.0..f32::INFINITY).contains(&weight)) {
        None => Ok(()),
        Some(weight) => Err(Error::conflict(
            format!(
                "an edge to {} has weight {weight}, and weights to sample by must be 0 or more",
                name()
            ),
            "sample uniformly, or ingest other edge weights",
        )),
    }
}

/// Appends the positions of all weights but zeros.
pub(super) fn all(weights: &[f32], positions: &mut Vec<u64>) {
    positions.extend(
        (0..)
            .zip(weights)
            .filter(|(_, weight)| **weight > 0.0)
            .map(|(at, _)| at),
    );
}

/// Appends `k` positions, ascending, or all if fewer have weights: as if they were drawn one after another, each with a
/// probability proportional to its weight among those that are left.
///
/// Every position gets the time until a Poisson process with its weight as rate has its first event, and the earliest k
/// are kept: which is that distribution. (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.)
pub(super) fn without_replacement(
    draws: &mut Draws,
    weights: &[f32],
    k: u32,
    scratch: &mut DrawScratch,
    positions: &mut Vec<u64>,
) {
    let times = &mut scratch.times;
    times.clear();
    for (at, &weight) in (0..).zip(weights) {
        if weight > 0.0 {
            times.push((-libm::log(draws.unit()) / f64::from(weight), at));
        }
    }
    if times.len() > k as usize {
        // Times may be equal, or infinite; positions differ.
        times.select_nth_unstable_by(k as usize, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        times.truncate(k as usize);
    }
    let start = positions.len();
    positions.extend(times.iter().map(|&(_, at)| at));
    positions[start..].sort_unstable();
}

/// Appends `k` positions, ascending, drawn independently with probabilities proportional to the weights; none if all are
/// zero.
pub(super) fn with_replacement(
    draws: &mut Draws,
    weights: &[f32],
    k: u32,
    scratch: &mut DrawScratch,
    positions: &mut Vec<u64>,
) {
    let sums = &mut scratch.sums;
    sums.clear();
    let mut sum = 0.0;
    sums.extend(weights.iter().map(|&weight| {
        sum += f64::from(weight);
        sum
    }));
    if sum == 0.0 {
        return;
    }
    let start = positions.len();
    positions.extend((0..k).map(|_| {
        // In (0, sum], so that the first sum which is no less is that of an edge with a weight.
        let at = draws.unit() * sum;
        sums.partition_point(|&until| until < at) as u64
    }));
    positions[start..].sort_unstable();
}
