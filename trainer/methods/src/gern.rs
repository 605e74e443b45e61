//! GERN (Bonchi, Gentile, Nerini, Panisson, Vitale: "Fast and Effective GNN Training through Sequences of Random Path Graphs", arXiv
//! 2306.04828): one machine, and a graph with fewer edges than nodes in each step.
//!
//! A uniformly random spanning tree contains an edge with the probability that is its effective resistance: edges that connect parts of the
//! graph stay, and few of the many edges in a dense part do. A walk through the tree in depth-first order makes it a path, in which each
//! node is next to at most two others, which are near it in the graph. Each epoch has a path of its own. Evaluation takes the whole graph.
//!
//! Nodes that follow each other are joined by an edge with the weight 1 / r, where r is their effective resistance: in large graphs about
//! 1 / d + 1 / d' with their degrees d and d' (von Luxburg, Radl, Hein: "Hitting and Commute Times in Large Random Neighborhood Graphs",
//! 2014). Weights are relative to their mean, and count in means, sums and GCN's degrees.
//!
//! ```text
//! tree: the first node of each component, in a random order, is its root                                     (Wilson, 1996)
//!     each node in that order: walk at random until a node of the tree; without its loops, the walk joins the tree
//! path: the nodes of each tree, depth first, children in a random order
//! ```

use grappa_formats::{
    permutation::Feistel,
    random::{SplitMix64, below},
};
use grappa_sampling::sample;
use tch::Device;

use grappa_trainer::{nn::Block, train::key};

/// No node.
const NONE: u32 = u32::MAX;

/// A graph, and its path in each epoch.
pub(crate) struct PathGraphs {
    seed: u64,
    /// The neighbors of each node in both directions, each once: their offsets, and themselves.
    offsets: Vec<u32>,
    neighbors: Vec<u32>,
    /// The component of each node.
    components: Vec<u32>,
}

impl PathGraphs {
    /// The paths of a graph with these edges, (destination, source).
    pub(super) fn new(nodes: usize, edges: impl Iterator<Item = (u32, u32)>, seed: u64) -> Self {
        let mut pairs: Vec<(u32, u32)> = edges.filter(|(a, b)| a != b).flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut offsets = vec![0; nodes + 1];
        pairs.iter().for_each(|&(a, _)| offsets[a as usize + 1] += 1);
        for node in 0..nodes {
            offsets[node + 1] += offsets[node];
        }
        let mut paths =
            Self { seed, offsets, neighbors: pairs.into_iter().map(|(_, b)| b).collect(), components: Vec::new() };
        paths.components = paths.connected();
        paths
    }

    /// The path of an epoch, as a block from all nodes to all nodes.
    pub(super) fn block(&self, epoch: u64, device: Device) -> Block {
        let path = self.path(epoch);
        let nodes = self.components.len();
        let weights: Vec<f32> = path.windows(2).map(|pair| self.weight(pair[0], pair[1])).collect();
        let joined = weights.iter().filter(|weight| **weight > 0.0).count().max(1);
        let mean = weights.iter().sum::<f32>() / joined as f32;
        // The neighbors of each node in the path, with the weights of the edges to them.
        let mut sides = vec![[(NONE, 0.0); 2]; nodes];
        for (pair, weight) in path.windows(2).zip(&weights).filter(|(_, weight)| **weight > 0.0) {
            sides[pair[0] as usize][1] = (pair[1], weight / mean);
            sides[pair[1] as usize][0] = (pair[0], weight / mean);
        }
        let mut edges =
            sample::Block { destinations: nodes, sources: nodes, offsets: vec![0], ..sample::Block::default() };
        let mut degrees = Vec::with_capacity(nodes);
        for sides in sides {
            let is_there = sides.iter().filter(|(neighbor, _)| *neighbor != NONE);
            edges.indices.extend(is_there.clone().map(|(neighbor, _)| neighbor));
            edges.edge_weights.extend(is_there.map(|(_, weight)| weight));
            edges.offsets.push(edges.indices.len() as u32);
            degrees.push(sides[0].1 + sides[1].1);
        }
        Block::new(&edges, device).with_weighted_degrees(degrees)
    }

    /// 1 / the effective resistance of two nodes; 0 if nothing connects them.
    fn weight(&self, a: u32, b: u32) -> f32 {
        match self.components[a as usize] == self.components[b as usize] {
            true => 1.0 / (1.0 / self.neighbors_of(a).len() as f32 + 1.0 / self.neighbors_of(b).len() as f32),
            false => 0.0,
        }
    }

    /// All nodes: one tree after the other, each depth first.
    fn path(&self, epoch: u64) -> Vec<u32> {
        let nodes = self.components.len();
        let mut order: Vec<u64> = (0..nodes as u64).collect();
        Feistel::new(nodes as u64, key([self.seed, 0x70_61_74_68, epoch])).forward_all(&mut order);
        let order: Vec<u32> = order.into_iter().map(|node| node as u32).collect();
        let parents = self.tree(&order, key([self.seed, 0x74_72_65_65, epoch]));
        let mut starts = vec![0u32; nodes + 1];
        let joined: Vec<u32> = order.iter().copied().filter(|&node| parents[node as usize] != NONE).collect();
        joined.iter().for_each(|&node| starts[parents[node as usize] as usize + 1] += 1);
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let (mut next, mut children) = (starts.clone(), vec![0; joined.len()]);
        for node in joined {
            let place = &mut next[parents[node as usize] as usize];
            children[*place as usize] = node;
            *place += 1;
        }
        let (mut path, mut open) = (Vec::with_capacity(nodes), Vec::new());
        for &root in order.iter().filter(|&&node| parents[node as usize] == NONE) {
            open.push(root);
            while let Some(node) = open.pop() {
                path.push(node);
                open.extend(&children[starts[node as usize] as usize..starts[node as usize + 1] as usize]);
            }
        }
        path
    }

    /// The parent of each node in a uniformly random spanning tree of its component. Roots have none.
    fn tree(&self, order: &[u32], seed: u64) -> Vec<u32> {
        let mut draws = SplitMix64::new(seed);
        let (mut parents, mut is_in_tree) = (vec![NONE; order.len()], vec![false; order.len()]);
        let mut has_root = vec![false; order.len()];
        for &start in order {
            let component = self.components[start as usize] as usize;
            if !has_root[component] {
                (has_root[component], is_in_tree[start as usize]) = (true, true);
            }
            let mut at = start;
            while !is_in_tree[at as usize] {
                let neighbors = self.neighbors_of(at);
                let drawn = neighbors[below(neighbors.len() as u64, || draws.draw()) as usize];
                // A later visit replaces it, which leaves out the loop.
                parents[at as usize] = drawn;
                at = drawn;
            }
            at = start;
            while !is_in_tree[at as usize] {
                is_in_tree[at as usize] = true;
                at = parents[at as usize];
            }
        }
        parents
    }

    /// The component of each node.
    fn connected(&self) -> Vec<u32> {
        let mut components = vec![NONE; self.offsets.len() - 1];
        let (mut count, mut open) = (0, Vec::new());
        for start in 0..components.len() as u32 {
            if components[start as usize] != NONE {
                continue;
            }
            components[start as usize] = count;
            open.push(start);
            while let Some(node) = open.pop() {
                for &neighbor in self.neighbors_of(node) {
                    if components[neighbor as usize] == NONE {
                        components[neighbor as usize] = count;
                        open.push(neighbor);
                    }
                }
            }
            count += 1;
        }
        components
    }

    fn neighbors_of(&self, node: u32) -> &[u32] {
        &self.neighbors[self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two triangles that an edge connects, and a node alone.
    fn paths(seed: u64) -> PathGraphs {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)];
        PathGraphs::new(7, edges.into_iter(), seed)
    }

    #[test]
    fn a_path_visits_each_node_once_and_the_parts_of_the_graph_one_after_the_other() {
        for epoch in 0..200 {
            let paths = paths(1);
            let mut path = paths.path(epoch);
            let block = paths.block(epoch, Device::Cpu);
            assert_eq!(block.edges(), 2 * 5, "five edges connect six nodes, in both directions");
            let crossings = path.windows(2).filter(|pair| (pair[0] < 3) != (pair[1] < 3) && !pair.contains(&6));
            assert!(crossings.count() <= 3);
            path.sort_unstable();
            assert_eq!(path, [0, 1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn an_edge_is_in_the_tree_with_the_probability_that_is_its_effective_resistance() {
        let (mut bridge, mut triangles) = (0, 0);
        const TREES: u64 = 3000;
        for seed in 0..TREES {
            let parents = paths(0).tree(&[0, 1, 2, 3, 4, 5, 6], key([seed]));
            let has = |a: u32, b: u32| parents[a as usize] == b || parents[b as usize] == a;
            bridge += u64::from(has(2, 3));
            triangles += u64::from(has(0, 1));
        }
        assert_eq!(bridge, TREES);
        // Two of the three edges of a triangle; the deviation is 0.5 / 55.
        let share = triangles as f64 / TREES as f64;
        assert!((share - 2.0 / 3.0).abs() < 0.045, "{share}");
    }
}
