//! Edges by destination, as samplers list them (CSR), and by source (transposed), for backward passes.

use std::sync::OnceLock;

/// The edges of destinations.
#[derive(Debug, Default)]
pub struct Csr {
    /// Offset of each destination's edges, and the number of edges at the end.
    pub offsets: Vec<u32>,
    /// Source of each edge.
    pub indices: Vec<u32>,
    /// Edge weights; empty if all are 1.
    pub weights: Vec<f32>,
    /// Number of sources.
    pub sources: usize,
    transposed: OnceLock<[Vec<u32>; 3]>,
}

impl Csr {
    /// Edges without weights.
    pub fn new(offsets: Vec<u32>, indices: Vec<u32>, sources: usize) -> Self {
        Self { offsets, indices, sources, ..Self::default() }
    }

    /// Destinations with one edge each, from the source at a place. There are no sources after the last of these.
    pub fn of_places(places: &[u32]) -> Self {
        let sources = places.iter().max().map_or(0, |&last| last as usize + 1);
        Self::new((0..=places.len() as u32).collect(), places.to_vec(), sources)
    }

    /// Number of destinations.
    pub fn destinations(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The edges by source. The first call transposes them.
    pub fn transposed(&self) -> Transposed<'_> {
        let lists = self.transposed.get_or_init(|| {
            let edges = self.indices.len();
            let mut lists = [self.sources + 1, edges, edges].map(|length| vec![0; length]);
            transpose(&self.offsets, &self.indices, lists.each_mut().map(Vec::as_mut_slice));
            lists
        });
        Transposed::from_lists(lists.each_ref().map(Vec::as_slice))
    }
}

/// Edges sorted by destination.
#[derive(Debug, PartialEq)]
pub struct SortedEdges<'a> {
    /// Offset of each destination's edges, and the number of edges at the end.
    pub offsets: &'a mut [u32],
    /// Source of each edge. There is room for all edges and loops.
    pub indices: &'a mut [u32],
    /// The place of each edge before sorting; [`LOOP`] for an added loop.
    pub places: &'a mut [u32],
}

/// The place of a loop that was added.
pub const LOOP: u32 = u32::MAX;

/// Why edges cannot be sorted.
#[derive(Debug, PartialEq, Eq)]
pub enum EdgeError {
    /// An end of an edge is no node.
    End {
        /// The index of the edge.
        edge: usize,
        /// The end that is wrong.
        end: i64,
        /// Whether it is the source.
        is_source: bool,
    },
    /// The edges need numbers of more than 32 bits.
    TooMany,
}

/// Sorts edges by destination, by counting. The edges of a destination stay in order. With `loops`, edges from a node to itself are left out,
/// and each of so many first destinations gets one after its other edges. Returns the number of edges.
///
/// # Panics
/// If `sorted` has room for another number of destinations or edges.
pub fn sort_by_destination(
    [sources, destinations]: [&[i64]; 2],
    source_count: usize,
    loops: Option<usize>,
    sorted: SortedEdges<'_>,
) -> Result<usize, EdgeError> {
    let SortedEdges { offsets, indices, places } = sorted;
    let count = offsets.len() - 1;
    assert_eq!(sources.len(), destinations.len(), "two ends of each edge");
    assert_eq!([indices.len(), places.len()], [sources.len() + loops.unwrap_or(0); 2], "room for edges");
    assert!(loops.is_none_or(|loops| loops <= count.min(source_count)), "loops of nodes");
    if u32::try_from(indices.len()).is_err() || u32::try_from(count.max(source_count)).is_err() {
        return Err(EdgeError::TooMany);
    }
    offsets.fill(0);
    let is_kept = |source, destination| loops.is_none() || source != destination;
    for (edge, (&source, &destination)) in sources.iter().zip(destinations).enumerate() {
        for (end, count, is_source) in [(source, source_count, true), (destination, count, false)] {
            if usize::try_from(end).is_ok_and(|end| end < count) {
                continue;
            }
            return Err(EdgeError::End { edge, end, is_source });
        }
        offsets[destination as usize] += u32::from(is_kept(source, destination));
    }
    // From here on, `offsets[i]` is the index of the next edge of destination i, and then of the first one of destination i + 1.
    let mut total = 0;
    for (destination, offset) in offsets.iter_mut().enumerate() {
        let edges = *offset + u32::from(loops.is_some_and(|loops| destination < loops));
        *offset = total;
        total += edges;
    }
    let mut push = |destination: usize, source: i64, place: u32| {
        let next = &mut offsets[destination];
        indices[*next as usize] = source as u32;
        places[*next as usize] = place;
        *next += 1;
    };
    for (edge, (&source, &destination)) in sources.iter().zip(destinations).enumerate() {
        if is_kept(source, destination) {
            push(destination as usize, source, edge as u32);
        }
    }
    (0..loops.unwrap_or(0)).for_each(|node| push(node, node as i64, LOOP));
    offsets.copy_within(..count, 1);
    offsets[0] = 0;
    indices[total as usize..].fill(0);
    places[total as usize..].fill(LOOP);
    Ok(total as usize)
}

/// A CSR whose rows are the sources of another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transposed<'a> {
    /// Offset of each source's edges, and the number of edges at the end.
    pub offsets: &'a [u32],
    /// Destination of each edge, ascending within a source.
    pub indices: &'a [u32],
    /// Index of each edge in the original CSR.
    pub edges: &'a [u32],
}

impl<'a> Transposed<'a> {
    /// The lists that [`transpose`] filled.
    pub fn from_lists([offsets, indices, edges]: [&'a [u32]; 3]) -> Self {
        Self { offsets, indices, edges }
    }
}

/// Transposes a CSR by a counting sort: two passes over the edges, with one cache miss per edge in the second. Fills the lists of
/// [`Transposed`]: an offset for each source and one more, the destinations, and the edges.
///
/// # Panics
/// If an index is not a source.
pub fn transpose(offsets: &[u32], indices: &[u32], [starts, destinations, edges]: [&mut [u32]; 3]) {
    starts.fill(0);
    for &index in indices {
        starts[index as usize] += 1;
    }
    // From here on, `starts[i]` is the index of the next edge of source i, and in the end of the first one of source i + 1.
    let mut total = 0;
    for start in &mut *starts {
        total += std::mem::replace(start, total);
    }
    for (destination, bounds) in offsets.windows(2).enumerate() {
        for edge in bounds[0]..bounds[1] {
            let place = &mut starts[indices[edge as usize] as usize];
            destinations[*place as usize] = destination as u32;
            edges[*place as usize] = edge;
            *place += 1;
        }
    }
    let last = starts.len() - 1;
    starts.copy_within(..last, 1);
    starts[0] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_sorted_and_loops_take_the_place_of_loops() {
        let ends = [[2, 1, 0, 0, 3].as_slice(), [1, 1, 0, 1, 0].as_slice()];
        let sort = |loops: Option<usize>| {
            let room = 5 + loops.unwrap_or(0);
            let (mut offsets, mut indices, mut places) = (vec![9; 4], vec![9; room], vec![9; room]);
            let sorted = SortedEdges { offsets: &mut offsets, indices: &mut indices, places: &mut places };
            let count = sort_by_destination(ends, 4, loops, sorted).unwrap();
            (count, offsets, indices, places)
        };
        assert_eq!(sort(None), (5, vec![0, 2, 5, 5], vec![0, 3, 2, 1, 0], vec![2, 4, 0, 1, 3]));
        // Three edges stay, and two loops are added. Two of seven places are unused.
        let (indices, places) = (vec![3, 0, 2, 0, 1, 0, 0], vec![4, LOOP, 0, 3, LOOP, LOOP, LOOP]);
        assert_eq!(sort(Some(2)), (5, vec![0, 2, 5, 5], indices, places));
    }

    #[test]
    fn ends_that_are_no_nodes_are_named() {
        let sort = |source, destination| {
            let (mut offsets, mut indices, mut places) = ([0; 3], [0; 2], [0; 2]);
            let sorted = SortedEdges { offsets: &mut offsets, indices: &mut indices, places: &mut places };
            sort_by_destination([&[0, source], &[1, destination]], 4, None, sorted)
        };
        assert_eq!(sort(3, 1), Ok(2));
        assert_eq!(sort(4, 1), Err(EdgeError::End { edge: 1, end: 4, is_source: true }));
        assert_eq!(sort(0, -1), Err(EdgeError::End { edge: 1, end: -1, is_source: false }));
    }

    #[test]
    fn each_source_gets_its_edges_in_order() {
        // 0 <- 2, 0, 2; 1 <- nothing; 2 <- 0
        let csr = Csr::new(vec![0, 3, 3, 4], vec![2, 0, 2, 0], 4);
        let expected = Transposed { offsets: &[0, 2, 2, 4, 4], indices: &[0, 2, 0, 0], edges: &[1, 3, 0, 2] };
        assert_eq!(csr.transposed(), expected);
    }
}
