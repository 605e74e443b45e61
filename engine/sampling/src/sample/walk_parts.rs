//! Random walks of parts that share no nodes. Walks start at each destination and need the nodes of their part alone, so parts are sampled
//! one by one and joined.

use grappa_formats::NodeId;
use grappa_io::Result;

use super::{
    apart::SeedParts,
    join::{Join, JoinScratch},
    minibatch::Minibatch,
    sampler::{Sampler, Scratch},
};
use crate::view::GraphLists;

impl Sampler {
    /// As [`Sampler::sample_parts`], for random walks: samples the parts one by one.
    pub(super) fn join_walks(
        &self,
        graph: &GraphLists<'_>,
        seeds: &SeedParts,
        scratch: &mut Scratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let types = out.len();
        let mut parts = vec![Minibatch::default(); types * seeds.len()];
        for (number, (part, &key)) in parts.chunks_mut(types).zip(&seeds.keys).enumerate() {
            let seeds: Vec<&[NodeId]> = (0..types).map(|node_type| seeds.seeds_of(node_type, number)).collect();
            self.sample_types(graph, &seeds, key, scratch, part)?;
        }
        Minibatch::join(&parts, Join::Apart, graph.shape, scratch, &mut JoinScratch::default(), out)
    }
}
