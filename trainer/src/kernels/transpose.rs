//! The transposed CSR: the edges of each source, for backward passes.

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
    pub(crate) fn new(offsets: &[u32], indices: &[u32], sources: usize) -> Self {
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
