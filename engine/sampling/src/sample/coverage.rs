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
use crate::shape::GraphShape;

/// The coverage of each seed.
///
/// One pass over the edges of the blocks, from the outermost hop to the seeds. Each destination gets its own l / g times the
/// mean coverage of its sources. The coverage of a node without in-edges or without sampled edges is its own l / g alone, and
/// an aggregate that is known without sampling has coverage 1.
pub fn coverage(minibatch: &Minibatch) -> Vec<f32> {
    coverage_of_types(&GraphShape::untyped(minibatch.nodes.len() as u64), std::slice::from_ref(minibatch))
        .swap_remove(0)
}

/// As [`coverage`], of the seeds of each type of a graph. Models add up what a node receives by its relations. So its coverage is the mean
/// over the relations in which it has in-edges.
pub fn coverage_of_types(shape: &GraphShape, types: &[Minibatch]) -> Vec<Vec<f32>> {
    let hops = shape.hops(types);
    // l / g of each destination in each relation, from the first hop that has it. A node that drew at an earlier hop may have no degrees in
    // later blocks.
    let mut own: Vec<Vec<Option<f32>>> = vec![Vec::new(); shape.relations.len()];
    for hop in 0..hops {
        for (number, own) in own.iter_mut().enumerate() {
            let block = shape.block(types, number, hop);
            own.extend((own.len()..block.destinations).map(|destination| in_block(block, destination)));
        }
    }
    let mut below: Vec<Vec<f32>> = vec![Vec::new(); types.len()];
    for hop in (0..hops).rev() {
        let of_type = |node_type: usize| {
            let into_type = shape.relations.iter().enumerate().filter(|(_, ends)| ends.destination == node_type);
            let relations: Vec<_> = into_type
                .map(|(number, ends)| (&own[number], &below[ends.source], shape.block(types, number, hop)))
                .collect();
            let destinations = relations.first().map_or(0, |(_, _, block)| block.destinations);
            let coverage = (0..destinations).map(|destination| {
                let (mut sum, mut count) = (0.0, 0.0);
                for (own, below, block) in &relations {
                    let Some(own) = own[destination] else { continue };
                    let sources = &block.indices[block.edges_of(destination)];
                    let of_sources = match sources.is_empty() || below.is_empty() {
                        true => 1.0,
                        false => {
                            let sum: f32 = sources.iter().map(|&source| below[source as usize]).sum();
                            sum / sources.len() as f32
                        }
                    };
                    sum += own * of_sources;
                    count += 1.0;
                }
                if count > 0.0 { sum / count } else { 1.0 }
            });
            coverage.collect()
        };
        below = (0..types.len()).map(of_type).collect();
    }
    below.iter_mut().zip(types).for_each(|(coverage, minibatch)| coverage.resize(minibatch.seeds, 1.0));
    below
}

/// l / g of a destination, if it has in-edges. Halo nodes have no edges and coverage 0.
fn in_block(block: &Block, destination: usize) -> Option<f32> {
    match (block.halo[destination], block.global[destination]) {
        (true, _) => Some(0.0),
        (false, 0) => None,
        (false, global) => Some((block.visible[destination] as f64 / global as f64) as f32),
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
    use crate::shape::RelationEnds;

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

    #[test]
    fn the_coverage_of_a_node_is_the_mean_over_its_relations() {
        // Papers (type 0) have authors (type 1) and cite papers.
        let ends = |source, destination| RelationEnds { source, destination };
        let shape = GraphShape { nodes: vec![10, 10], relations: vec![ends(1, 0), ends(0, 0), ends(0, 1)] };
        let papers = Minibatch {
            nodes: (0..3).map(NodeId).collect(),
            seeds: 2,
            blocks: vec![
                block(&[&[0], &[]], 1, &[(1, 2), (0, 0)]),
                block(&[&[2], &[]], 3, &[(3, 4), (0, 0)]),
                block(&[&[], &[], &[]], 1, &[(0, 0), (0, 0), (0, 0)]),
                block(&[&[], &[], &[]], 3, &[(0, 0), (0, 0), (1, 5)]),
            ],
            ..Minibatch::default()
        };
        let authors = Minibatch {
            nodes: vec![NodeId(0)],
            seeds: 0,
            blocks: vec![block(&[], 3, &[]), block(&[&[1]], 3, &[(1, 4)])],
            ..Minibatch::default()
        };
        let found = coverage_of_types(&shape, &[papers, authors]);
        // The author sees 1/4 of its papers, the cited paper 1/5 of its sources; the other seed has no in-edges.
        assert_eq!(found, [vec![(0.5 * 0.25 + 0.75 * 0.2) / 2.0, 1.0], vec![]]);
    }
}
