//! The nodes whose states partitions need of each other.

use std::ops::Range;

use grappa_formats::NodeId;

use super::{lists::Lists, owners::Owners};

/// The boundary of a partitioned graph: for each partition, the nodes of other partitions that are sources of its edges.
///
/// If one process has all partitions, the copies that are sent are those that arrive. If several have some each, a copy is sent by the
/// process of the node's partition, and arrives at the process of the partition that needs it.
#[derive(Debug, Default)]
pub(crate) struct Boundary {
    /// The row of the state of each copy that this process sends.
    pub(crate) rows: Vec<u32>,
    /// The sum of the weights of each arriving copy's edges in a mean of in-neighbors.
    pub(crate) weights: Vec<f32>,
    /// The pairs of partitions with copies, in the order of `rows`. All copies for one process follow each other.
    pub(crate) channels: Vec<Channel>,
    /// The node of each copy that arrives at this process.
    pub(crate) arriving: Vec<NodeId>,
    /// The pairs of partitions with arriving copies, in the order of `arriving`. All copies from one process follow each other.
    pub(crate) arriving_channels: Vec<Channel>,
}

/// The copies that one partition sends another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channel {
    /// The sender.
    pub(crate) from: u32,
    /// The receiver.
    pub(crate) to: u32,
    /// Which of [`Boundary::rows`], or of [`Boundary::arriving`].
    pub(crate) copies: Range<usize>,
}

/// The nodes whose states one partition needs of another.
struct Pair {
    from: u32,
    to: u32,
    nodes: Vec<u32>,
}

impl Boundary {
    /// The boundary of the partitions of this process. `rows` has the row of the state of each node of theirs.
    pub(super) fn new(lists: &Lists, owners: &Owners, rows: &[u32]) -> Self {
        let (mut sent, mut arriving) = (Vec::new(), Vec::new());
        // The last partition that was found to need a node.
        let mut needed_by = vec![u32::MAX; owners.by_node.len()];
        for (to, members) in (0..).zip(&owners.members()) {
            let mut needed: Vec<(u32, u32)> = Vec::new();
            for &source in members.iter().flat_map(|&node| lists.list_of(node)) {
                let owner = owners.by_node[source as usize];
                if owner != to && std::mem::replace(&mut needed_by[source as usize], to) != to {
                    needed.push((owner, source));
                }
            }
            needed.sort_unstable();
            for of_owner in needed.chunk_by(|a, b| a.0 == b.0) {
                let from = of_owner[0].0;
                let nodes: Vec<u32> = of_owner.iter().map(|&(_, node)| node).collect();
                if owners.has(to) {
                    arriving.push(Pair { from, to, nodes: nodes.clone() });
                }
                if owners.has(from) {
                    sent.push(Pair { from, to, nodes });
                }
            }
        }
        sent.sort_by_key(|pair| (owners.rank_of(pair.to), pair.to, pair.from));
        arriving.sort_by_key(|pair| (owners.rank_of(pair.from), pair.to, pair.from));
        let sent_nodes = sent.iter().flat_map(|pair| &pair.nodes);
        let arriving_nodes = arriving.iter().flat_map(|pair| &pair.nodes);
        let nodes: Vec<NodeId> = arriving_nodes.map(|&node| NodeId(node.into())).collect();
        Self {
            rows: sent_nodes.map(|&node| rows[node as usize]).collect(),
            weights: vec![0.0; nodes.len()],
            channels: channels(&sent),
            arriving: nodes,
            arriving_channels: channels(&arriving),
        }
    }

    /// Number of copies that are sent.
    pub(crate) fn copies(&self) -> usize {
        self.rows.len()
    }
}

fn channels(pairs: &[Pair]) -> Vec<Channel> {
    let mut channels = Vec::with_capacity(pairs.len());
    let mut end = 0;
    for pair in pairs {
        let start = end;
        end += pair.nodes.len();
        channels.push(Channel { from: pair.from, to: pair.to, copies: start..end });
    }
    channels
}
