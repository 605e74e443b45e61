//! A minibatch of link prediction: positives, negatives, the neighborhoods of their ends.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::{Result, heap};
use grappa_storage::Store;

use super::{
    known::KnownEdges,
    negatives::{Candidates, Draw, DrawScratch, LinkSamples, Negatives, PAIRS, WithoutNegative},
};
use crate::{
    NodeSet,
    sample::{BatchKey, LinkPairs, Minibatch, Sampler, Scratch},
    view::PartitionView,
};

/// The edges that a minibatch leaves out of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExcludedEdges {
    /// None.
    None,
    /// The positives of the minibatch.
    Positives,
    /// The positives and their reverses.
    WithReverses,
}

/// What is drawn for each minibatch of links, in all epochs.
#[derive(Debug)]
pub struct LinkTask {
    /// The store.
    pub store: Arc<Store>,
    /// How many negatives there are.
    pub negatives: Negatives,
    /// Which nodes they are drawn from.
    pub candidates: Candidates,
    /// The nodes that destinations are among, of positives and of negatives; none for all nodes.
    pub destinations: Option<Arc<NodeSet>>,
    /// What becomes of a positive whose source has no negative.
    pub without_negative: WithoutNegative,
    /// The true edges that are no negatives, beside the graph's. If none, negatives may be true edges.
    pub known: Option<KnownEdges>,
    /// The edges that messages do not use.
    pub excluded: ExcludedEdges,
}

/// The state of a thread that samples links.
#[derive(Debug, Default)]
pub(crate) struct LinkScratch {
    draw: DrawScratch,
    samples: LinkSamples,
    seeds: Vec<NodeId>,
    /// The excluded edges of the minibatch: source and destination, as indices of its nodes.
    excluded: Vec<[u32; 2]>,
}

impl LinkScratch {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let LinkSamples { positives, negatives, is_negative } = &self.samples;
        // Negatives are drawn and looked up in lists as long as the pairs.
        let pairs = 3 * (positives.capacity() + negatives.capacity());
        let indices = self.excluded.capacity() * size_of::<[u32; 2]>();
        (pairs * size_of::<(NodeId, NodeId)>()
            + self.seeds.capacity() * size_of::<NodeId>()
            + indices
            + is_negative.capacity()) as u64
    }
}

impl LinkTask {
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let destinations = self.destinations.as_ref().map_or(0, |destinations| destinations.bytes());
        self.known.as_ref().map_or(0, KnownEdges::bytes) + self.candidates.bytes() + destinations
    }

    /// Samples the minibatch of some positives. Its seeds are their ends and the ends of negatives, each once, ascending.
    ///
    /// # Errors
    /// As [`Sampler::sample`], or if a source has edges to nearly all candidates and that is refused.
    pub(crate) fn sample(
        &self,
        sampler: &Sampler,
        view: &PartitionView,
        positives: &[(NodeId, NodeId)],
        key: BatchKey,
        (scratch, sampling): (&mut LinkScratch, &mut Scratch),
        out: &mut Minibatch,
    ) -> Result<()> {
        let LinkScratch { draw, samples, seeds, excluded } = scratch;
        samples.positives.clear();
        heap::reserve(&mut samples.positives, positives.len(), PAIRS)?;
        samples.positives.extend_from_slice(positives);
        Draw {
            store: &self.store,
            view,
            negatives: self.negatives,
            candidates: &self.candidates,
            destinations: self.destinations.as_deref(),
            without_negative: self.without_negative,
            known: self.known.as_ref(),
            key,
        }
        .draw(draw, samples)?;
        seeds.clear();
        heap::reserve(seeds, 2 * (samples.positives.len() + samples.negatives.len()), PAIRS)?;
        for &(source, target) in samples.positives.iter().chain(&samples.negatives) {
            seeds.extend([source, target]);
        }
        seeds.sort_unstable();
        seeds.dedup();
        sampler.sample_ends(view, seeds, key, sampling, out)?;
        put(&mut out.links, samples, seeds)?;
        excluded.clear();
        heap::reserve(excluded, 2 * out.links.positives.len(), PAIRS)?;
        for &[source, target] in &out.links.positives {
            match self.excluded {
                ExcludedEdges::None => break,
                ExcludedEdges::Positives => excluded.push([source, target]),
                ExcludedEdges::WithReverses => excluded.extend([[source, target], [target, source]]),
            }
        }
        excluded.sort_unstable();
        // Both ends are seeds, so a node is never reached through removed edges only.
        let seeds = seeds.len() as u32;
        for block in &mut out.blocks {
            block.retain(|source, target| {
                source >= seeds || target >= seeds || excluded.binary_search(&[source, target]).is_err()
            });
        }
        Ok(())
    }
}

/// Sets the pairs of a minibatch.
fn put(links: &mut LinkPairs, samples: &LinkSamples, seeds: &[NodeId]) -> Result<()> {
    let pairs = [(&mut links.positives, &samples.positives), (&mut links.negatives, &samples.negatives)];
    for (to, from) in pairs {
        heap::reserve(to, from.len(), PAIRS)?;
        to.extend(from.iter().map(|&(source, target)| {
            let places = [source, target].map(|node| seeds.binary_search(&node));
            places.map(|place| place.expect("both ends of a link are seeds") as u32)
        }));
    }
    heap::reserve(&mut links.is_negative, samples.is_negative.len(), PAIRS)?;
    links.is_negative.extend_from_slice(&samples.is_negative);
    Ok(())
}
