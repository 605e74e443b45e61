//! A view that samplers read: open, in memory or mapped.

use std::sync::Arc;

use grappa_io::{
    Result,
    progress::{Progress, Silent},
    read::Choice,
};
use grappa_storage::{NodeTimes, Store, StoreIds};

use super::{
    edge_filter::{EdgeData, EdgeFilter},
    files::{Mapped, MappedMemory},
    halo::Halo,
    halo_lists::{HaloLists, WithHalo},
    kind::ViewKind,
    mapped::MappedLists,
    memory::{Csr, PartitionCsr, WholeCsr},
    relation_times::RelationTimes,
    spare::SpareArenas,
    storage::Storage,
    stream::open_engine,
    time_lists::TimeLists,
};
use crate::partition::Owned;

/// Options of a [`PartitionView`]. By default, lists are in memory without edge data.
#[derive(Debug, Clone, Default)]
pub struct ViewOptions {
    /// How sources are treated that the partition does not own.
    pub halo: Halo,
    /// The sources that the partition owns, if they have another type than the destinations.
    pub sources: Option<Owned>,
    /// The times of the sources, if they have some and another type than the destinations.
    pub source_times: Option<Arc<NodeTimes>>,
    /// The adjacency lists of halo nodes, with [`Halo::Neighbors`].
    pub halo_lists: Option<Arc<HaloLists>>,
    /// What the view has of edges: what the sampler needs (`Sampler::edge_data`).
    pub edge_data: EdgeData,
    /// If given, adjacency lists are mapped, and this is the maximum number of bytes of touched pages. They count as
    /// memory, although the system could reclaim them; the view releases them when they exceed this. Otherwise the
    /// lists are in memory.
    pub mapped_bytes_max: Option<u64>,
    /// Number of threads that decode adjacency lists into memory; 0 counts as 1.
    pub threads: usize,
    /// The engine that reads adjacency lists into memory.
    pub engine: Choice,
}

/// The part of a store that is sampled from. Shared by the threads that sample.
#[derive(Debug)]
pub struct PartitionView {
    nodes: u64,
    source_nodes: u64,
    ids: Arc<StoreIds>,
    owned: Owned,
    /// None if they are the destinations.
    sources: Option<Owned>,
    halo: Halo,
    halo_lists: Option<Arc<HaloLists>>,
    edge_data: EdgeData,
    by_time: bool,
    /// The times of edges or sources, if samplers need them.
    times: Option<RelationTimes>,
    bytes: u64,
    pub(super) lists: Storage,
}

/// The adjacency lists of a view. Each variant is a type of its own, so that samplers are compiled for each. In memory,
/// lists of the whole graph take half of the heads. For lists in memory and mapped lists, see `benches/record/feed.md`
/// and `2026-11-23-mapped-lists.md`.
pub(crate) enum ViewLists<'a> {
    /// The whole graph, in memory.
    Whole(WholeCsr<'a>),
    /// A partition, in memory.
    Partition(PartitionCsr<'a>),
    /// The whole graph or a partition, mapped.
    Mapped(MappedLists<'a>),
    /// A partition with lists of halo nodes, in memory.
    Halo(WithHalo<'a, PartitionCsr<'a>>),
    /// A partition with lists of halo nodes, mapped.
    MappedHalo(WithHalo<'a, MappedLists<'a>>),
}

impl PartitionView {
    /// Opens the adjacency lists of the nodes that are `owned`.
    ///
    /// # Errors
    /// If the store is a slice that lacks an owned chunk, it has no edge weights and they are needed, or damage is
    /// found.
    pub fn open(store: &Store, owned: Owned, options: &ViewOptions) -> Result<Self> {
        Self::open_with(store, owned, options, &Arc::default(), None, &Silent)
    }

    pub(super) fn open_with(
        store: &Store,
        owned: Owned,
        options: &ViewOptions,
        mapped: &Arc<MappedMemory>,
        spare: Option<&Arc<SpareArenas>>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let sources = options.sources.as_ref().unwrap_or(&owned);
        let filter = EdgeFilter { store, owned: &owned, sources, halo: options.halo, edge_data: options.edge_data };
        filter.check()?;
        let mut times = match options.edge_data.times {
            true => Some(RelationTimes::open(store, options.source_times.as_ref())?),
            false => None,
        };
        let (lists, bytes) = match options.mapped_bytes_max {
            Some(bytes_max) => {
                let mapped = Mapped::open(&filter, bytes_max, mapped)?;
                let bytes = mapped.bytes;
                (Storage::Mapped(mapped), bytes)
            }
            None => {
                let open = |files| open_engine(options.engine, files);
                let csr = Csr::load(&filter, filter.is_narrow(), options.threads, &open, spare, progress)?;
                if let Some(times) = &mut times {
                    times.load(&filter, csr.starts(&filter), options.threads, progress)?;
                }
                (Storage::Memory(csr), Csr::bytes(&filter))
            }
        };
        Ok(Self {
            nodes: store.manifest().nodes,
            source_nodes: store.source_nodes(),
            ids: store.ids().clone(),
            owned,
            sources: options.sources.clone(),
            halo: options.halo,
            halo_lists: options.halo_lists.clone(),
            edge_data: options.edge_data,
            by_time: store.is_timed(),
            times,
            bytes,
            lists,
        })
    }

    /// Opens the views of several partitions, all at once. They share [`ViewOptions::mapped_bytes_max`], and the limits of all that
    /// share `mapped` count together. Takes memory from `spare`.
    ///
    /// # Errors
    /// As [`PartitionView::open`], and [`Error::Stopped`](grappa_io::Error::Stopped) if `progress` asks to stop while
    /// adjacency lists are loaded.
    pub(crate) fn open_all(
        store: &Store,
        owned: Vec<Owned>,
        options: &ViewOptions,
        mapped: &Arc<MappedMemory>,
        spare: Option<&Arc<SpareArenas>>,
        progress: &dyn Progress,
    ) -> Result<Vec<Arc<Self>>> {
        let count = owned.len().max(1) as u64;
        let options =
            ViewOptions { mapped_bytes_max: options.mapped_bytes_max.map(|of_all| of_all / count), ..options.clone() };
        let views = owned
            .into_iter()
            .map(|owned| Self::open_with(store, owned, &options, mapped, spare, progress).map(Arc::new));
        views.collect()
    }

    /// Asks the system to read mapped files ahead. From front to back this takes a fraction of the time of page faults.
    pub(crate) fn read_ahead(&self) {
        if let Storage::Mapped(mapped) = &self.lists {
            mapped.read_ahead(self.edge_data);
        }
    }

    /// Asks the system to read the lists of some ascending nodes, if they are mapped.
    pub(crate) fn read_ahead_nodes(&self, nodes: &[u64]) {
        if let Storage::Mapped(mapped) = &self.lists {
            mapped.read_ahead_nodes(self.owned.chunk_map(), nodes);
        }
    }

    /// Bytes of the mapped files of adjacency lists; 0 if the lists are in memory.
    pub fn mapped_bytes(&self) -> u64 {
        match &self.lists {
            Storage::Mapped(mapped) => mapped.file_bytes(self.edge_data),
            Storage::Memory(_) => 0,
        }
    }

    /// The exact number of bytes that the adjacency lists of owned nodes take in memory. Computed from the manifest
    /// alone.
    pub fn bytes_in_memory(store: &Store, owned: &Owned, halo: Halo, edge_data: EdgeData) -> u64 {
        Self::relation_bytes(store, owned, owned, halo, edge_data)
    }

    /// As [`PartitionView::bytes_in_memory`], for a relation. The partition owns these destinations and sources.
    pub(crate) fn relation_bytes(
        store: &Store,
        owned: &Owned,
        sources: &Owned,
        halo: Halo,
        edge_data: EdgeData,
    ) -> u64 {
        Csr::bytes(&EdgeFilter { store, owned, sources, halo, edge_data })
    }

    /// The external ids of the destinations.
    pub fn ids(&self) -> &StoreIds {
        &self.ids
    }

    /// The number of nodes of the graph, or of the type of the destinations, owned or not.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The nodes that can be expanded.
    pub fn owned(&self) -> &Owned {
        &self.owned
    }

    /// The sources that the partition owns: the same nodes, unless they have another type.
    pub fn sources(&self) -> &Owned {
        self.sources.as_ref().unwrap_or(&self.owned)
    }

    pub(crate) fn set_halo_lists(&mut self, lists: Arc<HaloLists>) {
        self.halo_lists = Some(lists);
    }

    /// What the view has of edges.
    pub fn edge_data(&self) -> EdgeData {
        self.edge_data
    }

    /// The lists by which draws are limited, if the view has times.
    pub(crate) fn time_lists(&self) -> Option<TimeLists<'_>> {
        self.times.as_ref().map(|times| times.lists(&self.lists, &self.owned))
    }

    /// Whether lists are in the order of time, because edges have times. Otherwise sources ascend.
    pub(crate) fn is_by_time(&self) -> bool {
        self.by_time
    }

    /// Whether the view has all nodes.
    fn is_whole(&self) -> bool {
        self.owned.nodes() == self.nodes && self.sources().nodes() == self.source_nodes
    }

    /// Whether lists are in the order of the store, because that is the order of time. Otherwise owned sources come first.
    fn keeps_order(&self) -> bool {
        self.by_time || self.times.is_some()
    }

    /// The owned sources, if owned sources are not the first ones of each list: samplers count them among the drawn ones.
    pub(crate) fn counted_sources(&self) -> Option<&Owned> {
        (self.keeps_order() && !self.is_whole()).then(|| self.sources())
    }

    /// Where the adjacency lists are: [`ViewKind::Memory`] or [`ViewKind::Mapped`].
    pub fn kind(&self) -> ViewKind {
        match self.lists {
            Storage::Memory(_) => ViewKind::Memory,
            Storage::Mapped(_) => ViewKind::Mapped,
        }
    }

    /// Bytes of memory of the adjacency lists. If they are mapped, the limit for their resident pages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn lists(&self) -> ViewLists<'_> {
        let owned = &self.owned;
        let keeps_halo = self.halo != Halo::None;
        let sources = self.sources();
        let (is_whole, keeps_order) = (self.is_whole(), self.keeps_order());
        match (&self.lists, &self.halo_lists) {
            (Storage::Memory(csr), _) if is_whole => ViewLists::Whole(csr.whole()),
            (Storage::Memory(csr), None) => {
                ViewLists::Partition(csr.partition(owned, [keeps_halo || self.edge_data.ids, keeps_halo, keeps_order]))
            }
            (Storage::Memory(csr), Some(halo)) => {
                ViewLists::Halo(WithHalo::new(owned, csr.partition(owned, [true, true, keeps_order]), halo))
            }
            (Storage::Mapped(mapped), halo) => {
                let lists = MappedLists::new(mapped, owned, (!is_whole && !keeps_order).then_some(sources), keeps_halo);
                match halo {
                    Some(halo) if !is_whole => ViewLists::MappedHalo(WithHalo::new(owned, lists, halo)),
                    _ => ViewLists::Mapped(lists),
                }
            }
        }
    }
}
