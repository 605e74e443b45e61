//! The batches of an epoch as the source of a feed: their sizes, and how they are sampled and joined.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use grappa_io::Result;

use super::{BatchPlace, EpochScratch, PartitionBatches};
use crate::{
    feed::{
        demand::minibatch_bytes,
        part::Part,
        source::{BatchSource, WorkAhead},
    },
    links::LinkScratch,
    sample::{Join, Minibatch, Sampler, SeedParts},
    sweep::SweepSource,
    view::OpenView,
};

/// Bytes of a node of a swept minibatch while it is read: the edges of a hop in a scratch file.
const SWEPT_NODE_BYTES: u64 = 8;

impl BatchSource for PartitionBatches {
    type Scratch = EpochScratch;

    fn batches(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn nodes_max(&self) -> u64 {
        let nodes: u64 = self.shape.nodes.iter().sum();
        let of_parts = match self.options.join_steps {
            _ if self.options.disjoint => return nodes.saturating_mul(self.seeds_max()),
            Some(Join::Apart) => nodes.saturating_mul(self.concurrent.min(self.parts.len()) as u64),
            Some(Join::SharedInput) | None => nodes,
        };
        match self.parts.iter().filter_map(Part::served).any(|part| part.seeds.has_repeats()) {
            true => of_parts.saturating_add(self.nodes_min()),
            false => of_parts,
        }
    }

    fn bytes(&self) -> u64 {
        // Partitions may share a list of seeds. It is counted once.
        let lists: BTreeMap<_, _> =
            self.parts.iter().filter_map(Part::served).map(|part| (Arc::as_ptr(&part.seeds), &part.seeds)).collect();
        let lists: u64 = lists.values().map(|seeds| seeds.bytes()).sum();
        let times = self.parts.iter().filter_map(|part| part.served()?.times.as_ref());
        let times = times.map(|times| size_of_val(&times[..]) as u64).sum::<u64>();
        let positives = self.parts.iter().filter_map(|part| part.served()?.positives.as_ref());
        let positives: u64 = positives.map(|positives| positives.bytes()).sum();
        let links = self.options.links.as_ref().map_or(0, |task| task.bytes());
        let places = self.places.capacity() * size_of::<BatchPlace>() + self.starts.capacity() * size_of::<usize>();
        lists + times + positives + links + places as u64
    }

    fn nodes_min(&self) -> u64 {
        if self.options.links.is_some() {
            return 1;
        }
        self.seeds_max()
    }

    fn probes(&self) -> Range<u64> {
        match self.turns() {
            // Other groups would have to be loaded.
            Some(_) => 0..self.groups().first().map_or(0, |&(_, batches)| batches),
            None => 0..self.batches(),
        }
    }

    fn begin(self: &Arc<Self>) -> Option<WorkAhead> {
        match &self.sweeps {
            Some(sweeps) => Some(WorkAhead::Sweeps(sweeps.begin(self.clone()))),
            None => self.turns().map(|turns| WorkAhead::Views(turns.begin(self.groups()))),
        }
    }

    fn sampled(&self, index: u64) {
        if let Some(turns) = self.turns() {
            turns.sampled(self.group(index));
        }
        if let Some(sweeps) = &self.sweeps {
            sweeps.used(index);
        }
    }

    fn scratch_bytes(&self, scratch: &Self::Scratch, nodes: usize) -> u64 {
        let EpochScratch { sampler, seeds, links, parts, swept, join, nodes: sampled } = scratch;
        // Minibatches that were sampled to measure them were not swept.
        let swept = self.sweeps.as_ref().map_or(0, |_| swept.bytes().max(SWEPT_NODE_BYTES * nodes as u64));
        let seeds = seeds.bytes() + links.bytes() + swept;
        let of_parts = parts.iter().map(minibatch_bytes).sum();
        let part_nodes = parts.iter().map(|part| part.nodes.len() as u64);
        let (largest, all) = (part_nodes.clone().max().unwrap_or(0), part_nodes.sum());
        if all == 0 {
            return sampler.bytes(nodes) + seeds + of_parts + join.bytes(0);
        }
        // The parts of a larger batch are larger by the same factor.
        let [of_parts, largest, all] = [of_parts, largest, all].map(|value| {
            let scaled = u128::from(value) * nodes.max(*sampled) as u128;
            scaled.div_ceil(*sampled as u128) as u64
        });
        // The table has the nodes of a part, and then the nodes of the batch.
        sampler.bytes(nodes.max(largest as usize)) + seeds + of_parts + join.bytes(all as usize)
    }

    fn types(&self) -> usize {
        self.shape.types()
    }

    fn sample(&self, index: u64, scratch: &mut Self::Scratch, out: &mut [Minibatch]) -> Result<()> {
        // Empties the parts of the previous batch.
        scratch.parts.iter_mut().for_each(Minibatch::clear);
        let is_read = self.read_swept(index, scratch, out)?;
        let EpochScratch { sampler, seeds, links, parts, join, nodes, .. } = scratch;
        match self.places(index) {
            _ if is_read => {}
            &[place] => self.sample_part(place, sampler, seeds, links, out)?,
            places => {
                let join_steps = || self.options.join_steps.expect("a batch of several minibatches is joined");
                let how = if self.options.disjoint { Join::Apart } else { join_steps() };
                let types = out.len();
                parts.resize_with(parts.len().max(places.len() * types), Minibatch::default);
                for (&place, part) in places.iter().zip(parts.chunks_mut(types)) {
                    self.sample_part(place, sampler, seeds, links, part)?;
                }
                Minibatch::join(&parts[..places.len() * types], how, &self.shape, sampler, join, out)?;
            }
        }
        *nodes = out.iter().map(|minibatch| minibatch.nodes.len()).sum();
        Ok(())
    }
}

impl PartitionBatches {
    /// Reads a minibatch that was swept. False if it was not.
    fn read_swept(&self, index: u64, scratch: &mut EpochScratch, out: &mut [Minibatch]) -> Result<bool> {
        let EpochScratch { sampler, seeds, links, parts, swept, join, .. } = scratch;
        let Some(sweeps) = &self.sweeps else { return Ok(false) };
        let Some(minibatches) = sweeps.wait(index)? else { return Ok(false) };
        let numbers = minibatches.parts(index);
        if numbers.len() == 1 {
            minibatches.read(numbers.start, &self.shape, swept, out)?;
        } else {
            let (types, count) = (out.len(), numbers.len());
            parts.resize_with(parts.len().max(count * types), Minibatch::default);
            for (number, part) in numbers.zip(parts.chunks_mut(types)) {
                minibatches.read(number, &self.shape, swept, part)?;
            }
            Minibatch::join(&parts[..count * types], Join::Apart, &self.shape, sampler, join, out)?;
        }
        if self.options.links.is_some() {
            let place = self.places(index)[0];
            // Draws the pairs again, instead of keeping them.
            self.list_seeds(place, &self.part(place).view.open()?, seeds, links)?;
            self.put_pairs(links, out)?;
        }
        Ok(true)
    }
}

impl SweepSource for PartitionBatches {
    fn minibatches(&self) -> u64 {
        self.batches()
    }

    fn sampler(&self) -> &Sampler {
        &self.options.sampler
    }

    fn view(&self) -> Result<OpenView> {
        let part = self.parts.iter().find_map(Part::served).expect("sweeps are over a partition that is served");
        part.view.open()
    }

    fn seeds(&self, minibatch: u64, out: &mut SeedParts) -> Result<()> {
        let place = self.places(minibatch)[0];
        self.list_seeds(place, &self.view()?, out, &mut LinkScratch::default())
    }
}
