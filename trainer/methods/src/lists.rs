//! The adjacency lists of a graph, in memory.

use std::ops::Range;

use grappa_formats::NodeId;
use grappa_io::progress::Progress;
use grappa_sampling::{InNeighbors, ListScratch};

use grappa_trainer::{Result, train::FullGraphInputs};

/// The in-neighbors of all nodes.
pub(super) struct Lists {
    pub(super) offsets: Vec<u32>,
    pub(super) sources: Vec<u32>,
}

impl Lists {
    pub(super) fn read(inputs: &FullGraphInputs<'_>, progress: &dyn Progress) -> Result<Self> {
        let manifest = inputs.store.manifest();
        let nodes: Vec<NodeId> = (0..manifest.nodes).map(NodeId).collect();
        let mut lists = Self { offsets: vec![0], sources: Vec::with_capacity(manifest.edges as usize) };
        let (mut scratch, mut decoded) = (ListScratch::default(), Vec::new());
        for piece in nodes.chunks(1 << 16) {
            grappa_io::progress::check_stopped(progress)?;
            InNeighbors::all(inputs.chunks).each(piece, &mut scratch, |_, list| {
                decoded.clear();
                list.decode_into(&mut decoded);
                lists.sources.extend(decoded.iter().map(|&source| source as u32));
                lists.offsets.push(lists.sources.len() as u32);
                Ok(())
            })?;
        }
        Ok(lists)
    }

    /// All edges, (destination, source).
    pub(super) fn edges(&self) -> impl Iterator<Item = (u32, u32)> {
        let nodes = 0..self.offsets.len() as u32 - 1;
        nodes.flat_map(|node| self.list_of(node).iter().map(move |&source| (node, source)))
    }

    pub(super) fn range(&self, node: u32) -> Range<usize> {
        self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize
    }

    pub(super) fn list_of(&self, node: u32) -> &[u32] {
        &self.sources[self.range(node)]
    }
}
