//! The edges of some destinations, sorted by block of sources.

use std::{mem, ops::Range, slice};

use grappa_io::{Result, arena::Arena};

use super::budget::SEGMENTS;

/// The most words of a segment.
const SEGMENT_WORDS_MAX: u64 = 4096;
/// The fewest: an edge has two.
const SEGMENT_WORDS_MIN: u64 = 4;
/// Memory is used again if at most 1/ROOM_SHARE of it would not be used.
const ROOM_SHARE: usize = 8;

/// Whether memory of this size is used again for something of `needed` bytes.
pub fn is_room(size: usize, needed: usize) -> bool {
    size.checked_sub(needed).is_some_and(|unused| unused <= size / ROOM_SHARE)
}

/// How an edge of a block is encoded in words of 32 bits: the source's place in the block, and above it how many destinations lie between
/// its destination and the destination of the edge before. If that does not fit, all upper bits are ones, and the destination follows.
#[derive(Debug, Clone, Copy)]
pub struct EdgeCode {
    /// A block has two to the power of this many sources.
    pub place_bits: u32,
}

impl EdgeCode {
    /// The places in a block, as bits that are ones.
    fn places(self) -> u32 {
        !(u32::MAX << self.place_bits)
    }

    /// The number of the upper bits that stands for a destination that follows.
    pub fn far(self) -> u32 {
        u32::MAX >> self.place_bits
    }
}

/// Lists of edges, one for each block. After an edge come its values, if edges have any, one in a word. Each list grows by segments of the same memory, so that edges need not be counted before they are
/// listed.
#[derive(Debug)]
pub struct EdgeLists {
    code: EdgeCode,
    /// Values of an edge.
    width: usize,
    pub words: Arena,
    /// Words in segments.
    used: usize,
    segment_words: usize,
    lists: Vec<BlockList>,
}

/// The edges of a block.
#[derive(Debug, Clone, Default)]
struct BlockList {
    /// The destination of the last edge.
    destination: u32,
    /// The free part of the last segment.
    free: Range<usize>,
    /// The used parts of the segments before it.
    full: Vec<Range<usize>>,
    /// Where the last segment starts.
    start: usize,
}

impl EdgeLists {
    /// Words of an edge with `width` values.
    pub fn edge_words(width: usize) -> u64 {
        1 + width as u64
    }

    /// Words of a segment of edges with `width` values, if there are lists of `blocks` blocks for each of `threads` threads, in `memory`
    /// bytes.
    pub fn segment_words(width: usize, blocks: u64, threads: u64, memory: u64) -> u64 {
        let (words, words_per_edge) = (memory / size_of::<u32>() as u64, Self::edge_words(width));
        let edges = SEGMENTS.bytes(words) / (blocks * threads) / words_per_edge;
        edges.clamp(SEGMENT_WORDS_MIN, SEGMENT_WORDS_MAX) * words_per_edge
    }

    /// Bytes of the lists of `blocks` blocks without edges: a segment that is not full, and where it is.
    pub fn bytes_of_lists(blocks: u64, segment_words: u64) -> u64 {
        blocks * (size_of::<u32>() as u64 * segment_words + size_of::<BlockList>() as u64)
    }

    /// The most bytes that the lists of `blocks` or fewer blocks take without edges for all threads, in `memory` bytes.
    pub fn bytes_of_lists_max(width: usize, blocks: u64, threads: u64, memory: u64) -> u64 {
        let least = SEGMENT_WORDS_MIN * Self::edge_words(width);
        threads * Self::bytes_of_lists(blocks, least) + SEGMENTS.bytes(memory)
    }

    /// The words that an edge takes at most beyond [`EdgeLists::edge_words`] if its destination is in a word of its own: that word, and
    /// those that stay free because of it at the ends of segments.
    pub fn far_words(width: usize) -> u64 {
        2 * Self::edge_words(width)
    }

    /// The most edges from `blocks` blocks to `destinations` destinations that take one more word.
    pub fn far_edges(code: EdgeCode, blocks: u64, destinations: u64) -> u64 {
        blocks * destinations.div_ceil(u64::from(code.far()))
    }

    /// Empty lists of `blocks` blocks, with room for `edges` edges of `width` values; `far` of them take one more word. They take the memory
    /// `spare` if it has the right size.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn new(
        code: EdgeCode,
        width: usize,
        blocks: u64,
        segment_words: u64,
        [edges, far]: [u64; 2],
        spare: Option<Arena>,
    ) -> Result<Self> {
        let words = edges * Self::edge_words(width) + far * Self::far_words(width) + blocks * segment_words;
        let bytes = words as usize * size_of::<u32>();
        Ok(Self {
            code,
            width,
            words: match spare.filter(|spare| is_room(spare.len(), bytes)) {
                Some(spare) => spare,
                None => Arena::new(bytes)?,
            },
            used: 0,
            segment_words: segment_words as usize,
            lists: vec![BlockList::default(); blocks as usize],
        })
    }

    /// Adds an edge with its values from the source at `position` to a destination. The destinations of a block ascend.
    #[inline(always)]
    pub fn push(&mut self, destination: u32, position: u64, values: &[f32]) {
        let (code, place) = (self.code, position as u32 & self.code.places());
        let list = &mut self.lists[(position >> code.place_bits) as usize];
        let step = (destination - list.destination).min(code.far());
        list.destination = destination;
        let words = 1 + usize::from(step == code.far()) + self.width;
        if list.free.len() < words {
            let start = self.used;
            self.used += self.segment_words;
            list.grow(start..self.used);
        }
        let at = list.free.start;
        list.free.start += words;
        let out: &mut [u32] = self.words.values_mut();
        out[at] = step << code.place_bits | place;
        if step == code.far() {
            out[at + 1] = destination;
        }
        if self.width > 0 {
            out[list.free.start - self.width..list.free.start].copy_from_slice(bytemuck::cast_slice(values));
        }
    }

    /// Whether a block has no edges.
    pub fn is_empty(&self, block: u64) -> bool {
        self.lists[block as usize].free.start == 0
    }

    /// The edges of a block in the order of their destinations: destination, the source's place in the block, and values.
    pub fn of_block(&self, block: u64) -> BlockEdges<'_> {
        let list = &self.lists[block as usize];
        BlockEdges {
            lists: self,
            words: &[],
            destination: 0,
            full: list.full.iter(),
            last: list.start..list.free.start,
        }
    }
}

impl BlockList {
    /// Goes on in a new segment.
    #[cold]
    fn grow(&mut self, segment: Range<usize>) {
        if self.free.start > 0 {
            self.full.push(self.start..self.free.start);
        }
        (self.start, self.free) = (segment.start, segment);
    }
}

/// The edges of a block.
#[derive(Debug, Clone)]
pub struct BlockEdges<'a> {
    lists: &'a EdgeLists,
    /// The rest of the segment.
    words: &'a [u32],
    /// The destination of the last edge.
    destination: u32,
    /// The segments that follow, and the last one.
    full: slice::Iter<'a, Range<usize>>,
    last: Range<usize>,
}

impl BlockEdges<'_> {
    /// Begins the next segment. False after the last.
    #[cold]
    fn next_segment(&mut self) -> bool {
        let next = match self.full.next() {
            Some(full) => full.clone(),
            None => mem::take(&mut self.last),
        };
        self.words = &self.lists.words.values()[next];
        !self.words.is_empty()
    }
}

impl<'a> Iterator for BlockEdges<'a> {
    type Item = (u32, u32, &'a [f32]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.words.is_empty() && !self.next_segment() {
            return None;
        }
        let code = self.lists.code;
        let (&edge, mut rest) = self.words.split_first()?;
        let step = edge >> code.place_bits;
        if step == code.far() {
            (self.destination, rest) = (rest[0], &rest[1..]);
        } else {
            self.destination += step;
        }
        let (values, rest) = rest.split_at(self.lists.width);
        self.words = rest;
        Some((self.destination, edge & code.places(), bytemuck::cast_slice(values)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn edges_come_back_by_block(
            place_bits in 0u32..=20,
            width in 0usize..4,
            segment_edges in 2u64..20,
            steps in prop::collection::vec((prop_oneof![0u32..3, 4000u32..4200, 0u32..1 << 27], 0u64..5, any::<u32>()), 0..80),
        ) {
            let code = EdgeCode { place_bits };
            let segment_words = segment_edges * EdgeLists::edge_words(width);
            let mut lists = EdgeLists::new(code, width, 5, segment_words, [steps.len() as u64; 2], None).unwrap();
            let mut expected = vec![Vec::new(); 5];
            let mut destination = 0;
            for (step, block, place) in steps {
                destination += step;
                let place = place & code.places();
                let values: Vec<f32> = (0..width).map(|value| (destination as usize + value) as f32).collect();
                lists.push(destination, block << place_bits | u64::from(place), &values);
                expected[block as usize].push((destination, place, values));
            }
            for (block, expected) in (0..).zip(expected) {
                prop_assert_eq!(lists.is_empty(block), expected.is_empty());
                let found = lists.of_block(block).map(|(destination, place, values)| (destination, place, values.to_vec()));
                prop_assert_eq!(found.collect::<Vec<_>>(), expected);
            }
        }
    }
}
