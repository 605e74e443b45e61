//! The parts of a batch whose seeds share no nodes, before they are joined.

use super::minibatch::Minibatch;

/// Parts that are sampled one after another. Each is a minibatch of each node type.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    minibatches: &'a mut Vec<Minibatch>,
    types: usize,
    /// The number of parts.
    count: usize,
    /// The time of each part, if seeds have times.
    times: Vec<i64>,
}

impl<'a> Parts<'a> {
    /// No parts yet, of a graph with this number of node types. `minibatches` are reusable buffers.
    pub fn new(minibatches: &'a mut Vec<Minibatch>, types: usize) -> Self {
        Self { minibatches, types, count: 0, times: Vec::new() }
    }

    /// The minibatches of the next part, whose seeds have this time.
    pub fn begin_part(&mut self, time: Option<i64>) -> &mut [Minibatch] {
        let range = self.count * self.types..(self.count + 1) * self.types;
        self.minibatches.resize_with(self.minibatches.len().max(range.end), Minibatch::default);
        self.count += 1;
        self.times.extend(time);
        &mut self.minibatches[range]
    }

    /// All parts, and their times.
    pub fn finish(self) -> (&'a [Minibatch], Vec<i64>) {
        (&self.minibatches[..self.count * self.types], self.times)
    }
}
