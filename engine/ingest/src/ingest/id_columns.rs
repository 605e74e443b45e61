//! The columns of edges with the ids of nodes.

use grappa_input::{EdgeBatch, EdgeSource, Keys, RawBlock, TextBatch, integer_of};
use grappa_io::Result;

use crate::ingest::edge_ingest::EdgeReader;

/// Edges with ids of nodes: at both ends, or at one, if the other is of another type.
pub struct IdColumns<'a> {
    pub reader: EdgeReader<'a>,
    /// Whether sources, and targets, are such nodes.
    pub ends: [bool; 2],
}

impl IdColumns<'_> {
    /// The values of the ends that are such nodes.
    pub fn select<T>(&self, values: [T; 2]) -> impl Iterator<Item = T> {
        values.into_iter().zip(self.ends).filter_map(|(value, is_read)| is_read.then_some(value))
    }
}

/// The ids of a block of edges.
#[derive(Default)]
pub struct ParsedIds {
    batch: EdgeBatch,
    text: TextBatch,
    is_text: bool,
}

impl ParsedIds {
    /// Parses a block. Lines that are no edges are left out, or an error. Returns the number of edges.
    pub fn parse(&mut self, source: &EdgeSource, block: &RawBlock<'_>) -> Result<u64> {
        self.is_text = source.options().are_strings();
        match self.is_text {
            true => block.parse_text(&mut self.text, &mut |_| Ok(()))?,
            false => block.parse(&mut self.batch, &mut |_| Ok(()))?,
        }
        Ok(if self.is_text { self.text.sources.len() } else { self.batch.sources.len() } as u64)
    }

    /// The keys at an end, if edges are parsed as text.
    pub fn keys(&self, end: usize) -> Option<&Keys> {
        let keys = if end == 0 { &self.text.sources } else { &self.text.targets };
        self.is_text.then_some(keys)
    }

    /// The integers at an end.
    pub fn integers(&self, end: usize) -> impl Iterator<Item = u64> {
        let keys = self.keys(end).map(|keys| keys.iter().map(integer_of));
        let integers = match self.is_text {
            true => &[][..],
            false if end == 0 => &self.batch.sources,
            false => &self.batch.targets,
        };
        keys.into_iter().flatten().chain(integers.iter().copied())
    }

    /// The places of edges in their order, if they have one.
    pub fn places(&self) -> &[f64] {
        if self.is_text { &self.text.order.values } else { &self.batch.order.values }
    }
}
