//! Buffers of generated adjacency lists.

use grappa_formats::manifest::{EdgeOptions, SelfLoops};

/// Adjacency lists and scratch memory, reused from call to call.
#[derive(Debug, Default)]
pub struct AdjacencyBuffer {
    /// The sources of all lists, one list after the other.
    pub(crate) sources: Vec<u64>,
    pub(crate) scratch: Vec<u64>,
    /// The end of each list in `sources`.
    pub(crate) ends: Vec<usize>,
}

/// Some adjacency lists, borrowed from an [`AdjacencyBuffer`].
#[derive(Debug, Clone, Copy)]
pub struct AdjacencyLists<'a> {
    pub(crate) sources: &'a [u64],
    pub(crate) ends: &'a [usize],
}

impl AdjacencyBuffer {
    /// Applies the options to the lists in the buffer: removes parallel edges, and removes or adds self-loops. The lists must
    /// be sorted and be the lists of `first_node` and the nodes after it.
    pub fn apply(&mut self, options: EdgeOptions, first_node: u64) {
        if !options.dedup && options.self_loops == SelfLoops::Keep {
            return;
        }
        let AdjacencyBuffer { sources, scratch, ends } = self;
        scratch.clear();
        let mut start = 0;
        for (node, end) in (first_node..).zip(ends) {
            let list = &sources[start..*end];
            start = *end;
            let kept_from = scratch.len();
            let mut previous = None;
            let mut keep = |source: u64, scratch: &mut Vec<u64>| {
                if !(options.dedup && previous == Some(source)) {
                    scratch.push(source);
                }
                previous = Some(source);
            };
            match options.self_loops {
                SelfLoops::Keep => list.iter().for_each(|&source| keep(source, scratch)),
                SelfLoops::Drop | SelfLoops::Add => {
                    let loops =
                        list.partition_point(|&source| source < node)..list.partition_point(|&source| source <= node);
                    list[..loops.start].iter().for_each(|&source| keep(source, scratch));
                    if options.self_loops == SelfLoops::Add {
                        keep(node, scratch);
                    }
                    list[loops.end..].iter().for_each(|&source| keep(source, scratch));
                }
            }
            debug_assert!(scratch[kept_from..].is_sorted());
            *end = scratch.len();
        }
        std::mem::swap(sources, scratch);
    }

    /// Frees the scratch memory.
    pub fn free_scratch(&mut self) {
        self.scratch = Vec::new();
    }

    /// The lists in the buffer.
    pub fn lists(&self) -> AdjacencyLists<'_> {
        AdjacencyLists { sources: &self.sources, ends: &self.ends }
    }
}

impl<'a> AdjacencyLists<'a> {
    /// The lists, in the order of the requested labels.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u64]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.sources[std::mem::replace(&mut start, end)..end])
    }

    /// Number of edges of all lists.
    pub fn edges(self) -> usize {
        self.sources.len()
    }
}
