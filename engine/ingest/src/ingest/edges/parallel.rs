//! Whether nearly all edges have a parallel edge.
//!
//! This is so if reverse edges were added to a graph that has both directions of each edge. Libraries such as PyTorch
//! Geometric store undirected graphs in this way.
//!
//! Cost: a comparison per edge, for the first millions of edges.

use std::sync::atomic::{AtomicU64, Ordering};

/// Edges after which the count ends. A chunk is a sample that is large enough.
const EDGES_MAX: u64 = 1 << 24;
/// At most 1/ALONE_SHARE of the edges may be without a parallel edge.
const ALONE_SHARE: u64 = 20;

/// Counts edges with and without parallel edges.
#[derive(Debug, Default)]
pub struct ParallelEdges {
    edges: AtomicU64,
    /// Those without a parallel edge.
    alone: AtomicU64,
}

impl ParallelEdges {
    /// Counts the edges of an adjacency list, given its sources, ascending.
    pub fn count(&self, sources: &[u64]) {
        if sources.is_empty() || self.edges.load(Ordering::Relaxed) >= EDGES_MAX {
            return;
        }
        let runs = sources.chunk_by(|a, b| a == b);
        let alone = runs.filter(|run| run.len() == 1).count();
        self.edges.fetch_add(sources.len() as u64, Ordering::Relaxed);
        self.alone.fetch_add(alone as u64, Ordering::Relaxed);
    }

    /// Whether there are edges, and nearly all of them have a parallel edge.
    pub fn are_nearly_all(&self) -> bool {
        let [edges, alone] = [&self.edges, &self.alone].map(|count| count.load(Ordering::Relaxed));
        edges > 0 && alone * ALONE_SHARE <= edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_edges_alone_are_ignored_and_many_are_not() {
        let are_nearly_all = |lists: &[&[u64]]| {
            let edges = ParallelEdges::default();
            lists.iter().for_each(|list| edges.count(list));
            edges.are_nearly_all()
        };
        assert!(!are_nearly_all(&[]));
        assert!(!are_nearly_all(&[&[], &[1, 2, 3]]));
        assert!(are_nearly_all(&[&[1, 1, 2, 2, 2], &[], &[7, 7]]));
        let pairs: Vec<u64> = (0..40).map(|k| k / 2).collect();
        assert!(are_nearly_all(&[&pairs, &[5]]));
        assert!(!are_nearly_all(&[&pairs, &[4, 5, 6]]));
    }
}
