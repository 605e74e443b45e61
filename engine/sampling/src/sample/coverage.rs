//! Coverage: the share of its sampled neighborhood that a seed sees in its partition.
//!
//! The coverage of a seed v is
//!
//! ```text
//! c(v) = product over inner hops of the mean of l(u) / g(u) over the nodes u of that hop reached from v
//! ```
//!
//! where a partition can expand l(u) of the g(u) in-neighbors of u: the ratio of target to proposal probability of a draw. It takes the
//! mean over nodes, not the product over draws, because the variance of a product grows with the number of draws (Xu, Siebenbrunner,
//! Bindschaedler: "Grappa", arXiv 2602.01872).

use super::minibatch::{Block, Minibatch};

/// The coverage of each seed.
///
/// One pass over the edges of the blocks, from the outermost hop to the seeds. Each destination gets its own l / g times the
/// mean coverage of its sources. The coverage of a node without in-edges or without sampled edges is its own l / g alone, and
/// an aggregate that is known without sampling has coverage 1.
pub fn coverage(minibatch: &Minibatch) -> Vec<f32> {
    if minibatch.blocks.is_empty() {
        return vec![1.0; minibatch.seeds];
    }
    // The nodes of hop h are the destinations of block h. Those that drew at an earlier hop may have no degrees in later blocks.
    let mut own: Vec<f32> = Vec::new();
    for block in &minibatch.blocks {
        own.extend((own.len()..block.destinations).map(|destination| of_node(block, destination)));
    }
    let mut below: Vec<f32> = Vec::new();
    for block in minibatch.blocks.iter().rev() {
        below = (0..block.destinations)
            .map(|destination| {
                let sources = &block.indices[block.edges_of(destination)];
                if sources.is_empty() || below.is_empty() {
                    return own[destination];
                }
                let sum: f32 = sources.iter().map(|&source| below[source as usize]).sum();
                own[destination] * sum / sources.len() as f32
            })
            .collect();
    }
    below.truncate(minibatch.seeds);
    below
}

/// l / g of a destination. Halo nodes have no edges and coverage 0.
fn of_node(block: &Block, destination: usize) -> f32 {
    match (block.halo[destination], block.global[destination]) {
        (true, _) => 0.0,
        (false, 0) => 1.0,
        (false, global) => (block.visible[destination] as f64 / global as f64) as f32,
    }
}

/// The loss weights of the seeds of a partition, from their coverage: one for each, or the mean of all. The mean is the scalar with the
/// least squared error when gradients of seeds are uncorrelated and equally large. With a `shrinkage` of s, a weight a is (1 - s) + s a.
pub fn loss_weights(coverage: &[f32], of_each: bool, shrinkage: f64) -> Vec<f32> {
    let mean = coverage.iter().sum::<f32>() / coverage.len().max(1) as f32;
    let weights = coverage.iter().map(|&own| if of_each { own } else { mean });
    weights.map(|weight| (1.0 - shrinkage + shrinkage * f64::from(weight)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use grappa_formats::NodeId;

    use super::*;

    fn block(edges: &[&[u32]], sources: usize, degrees: &[(u64, u64)]) -> Block {
        let mut offsets = vec![0];
        offsets.extend(edges.iter().scan(0, |end, edges| {
            *end += edges.len() as u32;
            Some(*end)
        }));
        Block {
            destinations: edges.len(),
            sources,
            offsets,
            indices: edges.concat(),
            visible: degrees.iter().map(|degree| degree.0).collect(),
            global: degrees.iter().map(|degree| degree.1).collect(),
            halo: vec![false; edges.len()],
            ..Block::default()
        }
    }

    #[test]
    fn coverage_is_the_product_over_hops_of_means_over_nodes() {
        let mut minibatch = Minibatch {
            nodes: (0..5).map(NodeId).collect(),
            seeds: 2,
            blocks: vec![
                block(&[&[2, 3], &[]], 4, &[(1, 2), (0, 0)]),
                block(&[&[2], &[], &[4], &[]], 5, &[(1, 2), (0, 0), (1, 4), (3, 3)]),
            ],
            ..Minibatch::default()
        };
        // The first seed sees half of its neighbors, which see a quarter and all of theirs; the second has none.
        assert_eq!(coverage(&minibatch), [0.5 * (0.25 + 1.0) / 2.0, 1.0]);
        minibatch.blocks[1].halo[3] = true;
        assert_eq!(coverage(&minibatch), [0.5 * 0.25 / 2.0, 1.0]);
    }

    #[test]
    fn a_node_that_draws_once_keeps_its_coverage_at_later_hops() {
        let minibatch = Minibatch {
            nodes: (0..3).map(NodeId).collect(),
            seeds: 2,
            blocks: vec![
                block(&[&[1, 2], &[2]], 3, &[(1, 1), (1, 4)]),
                block(&[&[], &[], &[0]], 3, &[(0, 0), (0, 0), (1, 2)]),
            ],
            ..Minibatch::default()
        };
        assert_eq!(coverage(&minibatch), [(0.25 + 0.5) / 2.0, 0.25 * 0.5]);
    }

    #[test]
    fn a_partition_has_one_weight_or_each_seed_its_own() {
        let coverage = [1.0, 0.5];
        assert_eq!(loss_weights(&coverage, true, 1.0), [1.0, 0.5]);
        assert_eq!(loss_weights(&coverage, false, 1.0), [0.75, 0.75]);
        assert_eq!(loss_weights(&coverage, true, 0.5), [1.0, 0.75]);
        assert_eq!(loss_weights(&coverage, false, 0.0), [1.0, 1.0]);
    }
}
