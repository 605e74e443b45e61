//! The halo nodes that the steps of a super-epoch can reach.

use grappa_io::progress::Progress;
use grappa_sampling::{InNeighbors, NodeSet, feed::Seeded};
use grappa_storage::MappedChunks;

use crate::Result;

/// The halo nodes that minibatches of the partitions can reach in at most one hop, in at most two, and so on, for `hops` hops. A hop
/// goes along up to `steps` edges, as random walks do. Any in-neighbor may be sampled, and halo nodes are not expanded. A node is in
/// a set if it is a halo node of any partition. Also returns the sizes of the partitions' own sets, summed.
pub(crate) fn halo_in_reach<'a>(
    chunks: &MappedChunks,
    partitions: impl Iterator<Item = &'a Seeded>,
    [hops, steps]: [usize; 2],
    threads: usize,
    progress: &dyn Progress,
) -> Result<(Vec<NodeSet>, Vec<u64>)> {
    let nodes = chunks.map().nodes();
    let mut halo = vec![NodeSet::from_members(nodes, []); hops];
    let mut partition_nodes = vec![0; hops];
    for partition in partitions {
        let owned = partition.view.owned();
        let mut expanded = NodeSet::from_members(nodes, partition.seeds.iter());
        let mut own = NodeSet::from_members(nodes, []);
        for (halo, partition_nodes) in halo.iter_mut().zip(&mut partition_nodes) {
            for _ in 0..steps {
                let (reached, _) = InNeighbors::all(chunks).with_sources(&expanded, threads, progress)?;
                let (inside, outside) = reached.split(owned.runs());
                own = own.union(&outside);
                expanded = inside;
            }
            *halo = halo.union(&own);
            *partition_nodes += own.len();
        }
    }
    Ok((halo, partition_nodes))
}
