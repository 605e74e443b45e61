//! Minibatches that were swept, on disk.

use std::{ops::Range, sync::Arc};

use grappa_io::Result;

use super::{
    pass::{PartList, Pass, Resources, block_columns},
    record::{EdgeColumns, Reader, take_block, take_nodes},
    source::SweepSource,
    spill::{DiskSpace, PartFile},
};
use crate::{
    sample::{Block, Minibatch},
    shape::GraphShape,
};

/// The minibatches of a sweep.
#[derive(Debug)]
pub(crate) struct Swept {
    /// The numbers of the minibatches.
    pub(super) minibatches: Range<u64>,
    /// The first part of each minibatch, and the number of parts.
    first_parts: Vec<u32>,
    /// The time of each part, if the sampler has times.
    times: Vec<i64>,
    levels: Vec<PartFile>,
    blocks: Vec<PartFile>,
    /// The values of edges in the blocks of each relation.
    columns: Vec<EdgeColumns>,
    has_limits: bool,
}

/// Reusable memory of a thread that reads swept minibatches.
#[derive(Debug, Default)]
pub(crate) struct SweptScratch {
    bytes: Vec<u8>,
}

impl SweptScratch {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

impl Swept {
    /// Sweeps some minibatches.
    pub(super) fn sweep(
        source: &dyn SweepSource,
        minibatches: Range<u64>,
        resources: Resources,
        disk: &Arc<DiskSpace>,
        stop: &std::sync::atomic::AtomicBool,
    ) -> Result<Self> {
        let view = source.view()?;
        let (graph, sampler) = (view.lists(), source.sampler());
        let mut pass = Pass {
            sampler,
            graph: &graph,
            resources,
            disk,
            stop,
            parts: PartList::default(),
            levels: Vec::new(),
            blocks: Vec::new(),
        };
        let first_parts = pass.run(minibatches.clone(), &|number, seeds| source.seeds(number, seeds))?;
        let Pass { parts, levels, blocks, .. } = pass;
        let columns = (0..graph.shape.relations.len()).map(|relation| block_columns(sampler, &graph, relation));
        Ok(Self {
            minibatches,
            first_parts,
            times: parts.times,
            levels,
            blocks,
            columns: columns.collect(),
            has_limits: sampler.limits_by_edge(),
        })
    }

    /// The parts of a minibatch, for [`Swept::read`].
    pub fn parts(&self, minibatch: u64) -> Range<usize> {
        let at = (minibatch - self.minibatches.start) as usize;
        self.first_parts[at] as usize..self.first_parts[at + 1] as usize
    }

    /// Replaces `out` with a part: a minibatch for each node type.
    pub fn read(
        &self,
        part: usize,
        shape: &GraphShape,
        scratch: &mut SweptScratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        for (node_type, out) in out.iter_mut().enumerate() {
            out.clear();
            out.blocks.resize_with(self.blocks.len() * shape.blocks_per_hop(node_type), Block::default);
            out.part_times.extend(self.times.get(part));
        }
        for (number, level) in self.levels.iter().enumerate() {
            if let Some(hop) = number.checked_sub(1) {
                self.read_blocks(hop, part, shape, scratch, out)?;
            }
            level.read(part, &mut scratch.bytes)?;
            let mut rest = Reader(&scratch.bytes);
            let mut limits = Vec::new();
            for out in &mut *out {
                let limits = self.has_limits.then_some(&mut limits);
                take_nodes(&mut rest, &mut out.nodes, limits).ok_or_else(|| level.damaged())?;
                if number == 0 {
                    out.seeds = out.nodes.len();
                }
            }
            if let Some(hop) = number.checked_sub(1) {
                for (relation, ends) in shape.relations.iter().enumerate() {
                    let sources = out[ends.source].nodes.len();
                    out[ends.destination].blocks[shape.block_place(relation, hop)].sources = sources;
                }
            }
        }
        Ok(())
    }

    fn read_blocks(
        &self,
        hop: usize,
        part: usize,
        shape: &GraphShape,
        scratch: &mut SweptScratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let file = &self.blocks[hop];
        file.read(part, &mut scratch.bytes)?;
        let mut rest = Reader(&scratch.bytes);
        for (relation, ends) in shape.relations.iter().enumerate() {
            let block = &mut out[ends.destination].blocks[shape.block_place(relation, hop)];
            take_block(&mut rest, self.columns[relation], block).ok_or_else(|| file.damaged())?;
        }
        Ok(())
    }
}
