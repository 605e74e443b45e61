//! Options of a loader.

use std::{env, path::PathBuf, sync::Arc};

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    ledger::MemoryShare,
    machine::{free_disk_bytes, free_memory_bytes},
    read,
};
use grappa_storage::Graph;
use roaring::RoaringTreemap;

use crate::{
    feed::{HostProcesses, MinibatchOptions, RowOptions},
    halo_neighbors::halo_neighbors_fit,
    partition::{Owned, SeedNodes, Share},
    placement::{ListsBudget, holds_minibatches},
    policy::LISTS,
    view::{GraphView, Halo, HaloSizes, ViewKind},
};

const DEFAULT_MEMORY: MemoryShare = MemoryShare::one(
    "a loader without --memory",
    2,
    "1/2 of the free memory leaves the other half to the model and to other programs; chosen, not measured",
);
pub(super) const EDGE_FEATURES: MemoryShare = MemoryShare::one(
    "features of edges",
    2,
    "all features of edges are in memory if they take at most 1/2, beside adjacency lists and feature rows; chosen, not measured",
);
/// The share of the free disk space that scratch files may take by default.
const SCRATCH: MemoryShare = MemoryShare::one(
    "scratch files",
    2,
    "1/2 of the free space leaves the other half to the run and to others; chosen, not measured",
);
/// The default memory in bytes if the free memory is unknown.
const DEFAULT_MEMORY_BYTES: u64 = 4 << 30;

/// Seed nodes: the nodes for which minibatches are sampled.
#[derive(Debug, Clone)]
pub enum Seeds {
    /// Every node.
    All,
    /// The nodes of a split of the store: `train`, `val` or `test`.
    Split(String),
    /// An explicit set.
    Nodes(Arc<RoaringTreemap>),
    /// Nodes that may be repeated, which epochs without shuffling visit in this order. There may be none.
    List(Arc<Vec<NodeId>>),
    /// An explicit set, of the chunks of one of several [hosts](crate::partition::Hosts).
    OfHost {
        /// The nodes.
        nodes: Arc<RoaringTreemap>,
        /// Number of seeds of each partition. Those of other hosts are not among `nodes`.
        of_partitions: Vec<u64>,
    },
}

impl Seeds {
    /// The seeds of a partition. `split` has the nodes of a split or an explicit set.
    pub(super) fn of_partition(&self, owned: &Owned, split: Option<&RoaringTreemap>) -> SeedNodes {
        match (self, split) {
            (Self::List(list), _) => {
                let of_base = list.iter().copied().filter(|&node| owned.has_seed(node));
                of_base.collect::<Vec<_>>().into()
            }
            (_, Some(split)) => owned.seeds(split),
            (_, None) => owned.all_seeds(),
        }
    }
}

/// Where a loader writes scratch files.
#[derive(Debug, Clone, Default)]
pub struct ScratchOptions {
    /// The folder. None is the system's folder of temporary files.
    pub folder: Option<PathBuf>,
    /// The most bytes that they take. None is half of what is free there.
    pub bytes_max: Option<u64>,
}

impl ScratchOptions {
    /// The folder, and the most bytes that files in it take.
    ///
    /// # Errors
    /// If the free space is needed and unknown.
    pub(super) fn resolve(&self) -> Result<(PathBuf, u64)> {
        let folder = self.folder.clone().unwrap_or_else(env::temp_dir);
        let bytes = match self.bytes_max {
            Some(bytes) => bytes,
            None => {
                let free = free_disk_bytes(&folder);
                SCRATCH.bytes(free.ok_or_else(|| {
                    Error::missing("the folder of scratch files", &folder, "name a folder on a disk with free space")
                })?)
            }
        };
        Ok((folder, bytes))
    }
}

/// Options of a [`Loader`](super::Loader).
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// The minibatches.
    pub minibatches: MinibatchOptions,
    /// The maximum number of partitions that take part in a step; none for all.
    pub concurrent: Option<usize>,
    /// Which partitions of each step this worker serves, of several that divide them. It opens no others.
    pub share: Share,
    /// How sources are treated that a partition does not own.
    pub halo: Halo,
    /// With [`Halo::Neighbors`], the maximum number of in-neighbors of a halo node. None chooses it: ten times as many as a node draws,
    /// or fewer if they would fill the memory.
    pub halo_neighbors: Option<u32>,
    /// Whether adjacency lists are in memory or mapped.
    pub view: ViewKind,
    /// The scratch files of sweeps, with [`ViewKind::Sweep`].
    pub scratch: ScratchOptions,
    /// The budget of the loader in bytes.
    pub memory: u64,
    /// The number of threads that sample and assemble.
    pub threads: usize,
    /// The feature rows of batches.
    pub rows: RowOptions,
    /// Whether batches have the features of their edges. The sampler must keep
    /// [ids of edges](crate::sample::Sampler::with_edge_ids).
    pub edge_features: bool,
    /// The processes of this machine that train together, to share feature rows in memory. All must ask for the batches
    /// of the first epoch.
    pub host: Option<Arc<dyn HostProcesses>>,
    /// The maximum number of minibatches whose feature rows are read together; none for as many as fit the memory.
    pub lookahead: Option<usize>,
    /// The read engine.
    pub read_engine: read::Choice,
}

impl LoaderOptions {
    /// The number of partitions that take part in a step, of `partitions`.
    pub(super) fn concurrent(&self, partitions: usize) -> usize {
        self.concurrent.unwrap_or(partitions).max(1)
    }

    /// The memory that adjacency lists share with the features of `store`.
    pub(super) fn lists_budget(&self, graph: &Graph) -> ListsBudget {
        ListsBudget {
            memory: self.memory.saturating_sub(self.edge_feature_bytes(graph)),
            feature_bytes: self.feature_bytes(graph),
        }
    }

    /// Bytes of the adjacency lists of a partition in memory.
    pub(super) fn list_bytes(&self, graph: &Graph, owned: &Owned) -> u64 {
        GraphView::bytes_in_memory(graph, owned, self.halo, self.minibatches.sampler.edge_data())
    }

    /// Bytes of memory for the features of edges: all, if they take at most half of it, or a share. 0 if they are not loaded.
    pub(super) fn edge_feature_bytes(&self, graph: &Graph) -> u64 {
        let bytes = graph.relations().iter().map(|store| store.edge_feature_bytes()).sum();
        match (self.edge_features, bytes) {
            (false, _) => 0,
            (true, bytes) if bytes <= EDGE_FEATURES.bytes(self.memory) => bytes,
            (true, _) => LISTS.bytes(self.memory),
        }
    }

    /// How many hops before the first one reach halo nodes: the ends of links are owned nodes and their in-neighbors.
    pub(super) fn hops_of_ends(&self) -> usize {
        usize::from(self.minibatches.links.is_some())
    }

    /// The most in-neighbors that a halo node draws at once. None is all.
    pub(super) fn halo_draws(&self) -> Option<u32> {
        self.minibatches.sampler.draws_after(1 - self.hops_of_ends())
    }

    /// The sizes of lists of halo nodes in each relation.
    pub(super) fn halo_sizes(&self, graph: &Graph) -> Vec<HaloSizes> {
        let edge_data = self.minibatches.sampler.edge_data();
        let relations = graph.relations().iter().enumerate();
        let sizes = relations.map(|(number, store)| HaloSizes {
            nodes: store.manifest().nodes,
            sources: store.source_nodes(),
            edges: store.manifest().edges,
            edge_data: edge_data.available_in(graph.relation(number)),
        });
        sizes.collect()
    }

    /// Whether minibatches of the whole graph fit the memory for sure. Those of links have the ends of negatives, too.
    pub fn holds_whole_minibatches(&self, graph: &Graph) -> bool {
        let MinibatchOptions { batch, sampler, links, .. } = &self.minibatches;
        let seeds = *batch as u64 * links.as_ref().map_or(1, |_| 4);
        let types = graph.node_types().iter().map(|store| store.manifest());
        let dim = types.clone().filter_map(|manifest| manifest.features.as_ref()).map(|spec| u64::from(spec.dim)).max();
        let row_bytes = if self.rows.features { dim.unwrap_or(0) * size_of::<f32>() as u64 } else { 0 };
        let fanouts = (0..sampler.hops()).map(|hop| sampler.draws_after(hop));
        holds_minibatches(seeds, fanouts, types.map(|manifest| manifest.nodes).sum(), row_bytes, self.memory)
    }

    /// Whether halo nodes can draw as in the whole graph: ten times as many in-neighbors of each as it draws fit in the memory.
    pub fn expands_all_halo_nodes(&self, graph: &Graph) -> bool {
        halo_neighbors_fit(self.halo_draws(), &self.halo_sizes(graph), self.lists_budget(graph).share())
    }

    /// Bytes of the stored features of all nodes; 0 if features are computed or not loaded.
    pub(super) fn feature_bytes(&self, graph: &Graph) -> u64 {
        let bytes = graph.node_types().iter().map(|store| match store.manifest().stored_features() {
            Some(spec) if self.rows.features => store.feature_nodes().saturating_mul(u64::from(spec.row_stride)),
            _ => 0,
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// These minibatches with features, in half of the free memory.
    pub fn new(minibatches: MinibatchOptions) -> Self {
        Self {
            minibatches,
            concurrent: None,
            share: Share::ALL,
            halo: Halo::default(),
            halo_neighbors: None,
            view: ViewKind::Auto,
            scratch: ScratchOptions::default(),
            memory: free_memory_bytes().map_or(DEFAULT_MEMORY_BYTES, |free| DEFAULT_MEMORY.bytes(free)),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            rows: RowOptions { features: true, ..RowOptions::default() },
            edge_features: false,
            host: None,
            lookahead: None,
            read_engine: read::Choice::Auto,
        }
    }
}
