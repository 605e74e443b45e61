//! Edges by destination, as samplers list them (CSR), and by source (transposed), for backward passes.

use std::sync::OnceLock;

/// The edges of destinations.
#[derive(Debug, Default)]
pub(crate) struct Csr {
    /// Offset of each destination's edges, and the number of edges at the end.
    pub(crate) offsets: Vec<u32>,
    /// Source of each edge.
    pub(crate) indices: Vec<u32>,
    /// Edge weights; empty if all are 1.
    pub(crate) weights: Vec<f32>,
    pub(crate) sources: usize,
    transposed: OnceLock<Transposed>,
}

impl Csr {
    pub(crate) fn new(offsets: Vec<u32>, indices: Vec<u32>, sources: usize) -> Self {
        Self { offsets, indices, sources, ..Self::default() }
    }

    /// Destinations with one edge each, from the source at a place. There are no sources after the last of these.
    pub(crate) fn of_places(places: &[u32]) -> Self {
        let sources = places.iter().max().map_or(0, |&last| last as usize + 1);
        Self::new((0..=places.len() as u32).collect(), places.to_vec(), sources)
    }

    pub(crate) fn destinations(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The edges by source. The first call transposes them.
    pub(crate) fn transposed(&self) -> &Transposed {
        self.transposed.get_or_init(|| Transposed::new(&self.offsets, &self.indices, self.sources))
    }
}

/// A CSR whose rows are the sources of another one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Transposed {
    /// Offset of each source's edges, and the number of edges at the end.
    pub(crate) offsets: Vec<u32>,
    /// Destination of each edge, ascending within a source.
    pub(crate) indices: Vec<u32>,
    /// Index of each edge in the original CSR.
    pub(crate) edges: Vec<u32>,
}

impl Transposed {
    /// Transposes a CSR by a counting sort: two passes over the edges, with one cache miss per edge in the second.
    fn new(offsets: &[u32], indices: &[u32], sources: usize) -> Self {
        let mut ends = vec![0u32; sources + 1];
        for &index in indices {
            ends[index as usize + 1] += 1;
        }
        for i in 1..ends.len() {
            ends[i] += ends[i - 1];
        }
        let mut transposed =
            Self { offsets: ends.clone(), indices: vec![0; indices.len()], edges: vec![0; indices.len()] };
        // From here on, `ends[i]` is the index of the next edge of source i.
        for (destination, bounds) in offsets.windows(2).enumerate() {
            for edge in bounds[0]..bounds[1] {
                let place = &mut ends[indices[edge as usize] as usize];
                transposed.indices[*place as usize] = destination as u32;
                transposed.edges[*place as usize] = edge;
                *place += 1;
            }
        }
        transposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_gets_its_edges_in_order() {
        // 0 <- 2, 0, 2; 1 <- nothing; 2 <- 0
        let transposed = Transposed::new(&[0, 3, 3, 4], &[2, 0, 2, 0], 4);
        let expected = Transposed { offsets: vec![0, 2, 2, 4, 4], indices: vec![0, 2, 0, 0], edges: vec![1, 3, 0, 2] };
        assert_eq!(transposed, expected);
    }
}
