//! Where adjacency lists in memory start.

/// Where the lists of the owned nodes start.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListStarts<'a> {
    numbers: &'a [u64],
    stride: usize,
}

impl<'a> ListStarts<'a> {
    /// The starts among `numbers`. Each list has `stride` numbers, and the last number is the end of the last list.
    pub(super) fn new(numbers: &'a [u64], stride: usize) -> Self {
        Self { numbers, stride }
    }

    /// The first edge of a list, by its index; or the end of the list before it.
    pub(super) fn start(self, list: usize) -> u64 {
        self.numbers[self.stride * list]
    }
}
