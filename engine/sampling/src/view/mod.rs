//! Adjacency lists in the form that samplers read.
//!
//! A [`PartitionView`] has the adjacency lists of the nodes that a partition owns. Only these nodes can be expanded.
//! The [`Halo`] mode decides which in-neighbors a hop may draw. The lists are in memory as plain CSR, or are decoded
//! from the mapped files of the store ([`ViewKind`]). Samples are the same.
//!
//! Loading into memory takes about 30 MiB besides the lists: buffers of the read engine, encoded pieces that wait to be
//! decoded, and one decoded piece per thread. The memory is freed when loading ends.
//!
//! # Order of sources
//! A sampler draws positions, not sources. All kinds of view list the sources of a node in the same order, so they give
//! the same samples: owned sources, ascending, then the others, ascending. Owned sources thus have the first positions,
//! and a draw among them is a draw below the visible degree. In a view of the whole graph, this is the order of the
//! store.

pub(crate) mod adjacency;
mod edge_filter;
mod halo;
mod halo_lists;
mod kind;
mod load;
mod mapped;
mod memory;
mod spare;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod turns;

use std::sync::Arc;

use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
    read::Choice,
};
use grappa_storage::{Store, StoreIds};

pub(crate) use self::halo_lists::HaloPiece;
use self::{
    adjacency::ViewLists,
    edge_filter::EdgeFilter,
    halo_lists::WithHalo,
    mapped::{Mapped, MappedMemory},
    memory::Csr,
    spare::SpareArenas,
    stream::open_engine,
};
pub use self::{
    halo::Halo,
    halo_lists::{Given, HaloLists},
    kind::ViewKind,
    turns::{TurnPlace, Turns, ViewSource},
};
use crate::{
    partition::Owned,
    policy::{LISTS_SHARE, lists_fit},
};

/// Sources take 32 bits in graphs of at most this many nodes.
const NARROW_NODES_MAX: u64 = 1 << 32;

/// Options of a [`PartitionView`].
#[derive(Debug, Clone)]
pub struct ViewOptions {
    /// How sources are treated that the partition does not own.
    pub halo: Halo,
    /// The adjacency lists of halo nodes, with [`Halo::Neighbors`].
    pub halo_lists: Option<Arc<HaloLists>>,
    /// Whether the view has edge weights. Samplers that draw by weight need them.
    pub edge_weights: bool,
    /// Where the adjacency lists are.
    pub kind: ViewKind,
    /// The maximum number of bytes of memory. Touched pages of mapped files count, although the system could reclaim
    /// them; the view releases them when they exceed this.
    pub memory: u64,
    /// Number of threads that decode adjacency lists into memory.
    pub threads: usize,
    /// The engine that reads adjacency lists into memory.
    pub engine: Choice,
}

/// The part of a store that is sampled from. Shared by the threads that sample.
#[derive(Debug)]
pub struct PartitionView {
    nodes: u64,
    ids: Arc<StoreIds>,
    owned: Owned,
    halo: Halo,
    halo_lists: Option<Arc<HaloLists>>,
    edge_weights: bool,
    bytes: u64,
    lists: Storage,
}

/// Data that the views of several partitions share.
#[derive(Debug, Default)]
struct Shared<'a> {
    mapped: Arc<MappedMemory>,
    spare: Option<&'a Arc<SpareArenas>>,
}

/// Where the adjacency lists are, and how wide the sources are.
#[derive(Debug)]
enum Storage {
    Narrow(Csr<u32>),
    Wide(Csr<u64>),
    Mapped(Mapped),
}

impl PartitionView {
    /// Opens the adjacency lists of the nodes that are `owned`.
    ///
    /// # Errors
    /// If `options` ask for memory and the budget is too small, the store is a slice that lacks an owned chunk, it has
    /// no edge weights and they are needed, or damage is found.
    pub fn open(store: &Store, owned: Owned, options: &ViewOptions) -> Result<Self> {
        Self::open_with(store, owned, options, &Shared::default(), &Silent)
    }

    fn open_with(
        store: &Store,
        owned: Owned,
        options: &ViewOptions,
        shared: &Shared<'_>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let nodes = store.manifest().nodes;
        let filter = EdgeFilter {
            store,
            owned: &owned,
            halo: options.halo,
            edge_weights: options.edge_weights,
        };
        filter.check()?;
        let bytes = bytes_in_memory(&filter);
        let in_memory = match options.kind {
            ViewKind::Auto => bytes <= options.memory,
            ViewKind::Memory | ViewKind::InTurn if bytes > options.memory => {
                return Err(too_small(options.memory, bytes));
            }
            ViewKind::Memory | ViewKind::InTurn => true,
            ViewKind::Mapped => false,
        };
        let open_engine = |files| open_engine(options.engine, files);
        let (threads, spare) = (options.threads, shared.spare);
        let lists = match in_memory {
            true if nodes <= NARROW_NODES_MAX => {
                Storage::Narrow(Csr::load(&filter, threads, &open_engine, spare, progress)?)
            }
            true => Storage::Wide(Csr::load(&filter, threads, &open_engine, spare, progress)?),
            false => Storage::Mapped(Mapped::open(&filter, options.memory, &shared.mapped)?),
        };
        Ok(Self {
            nodes,
            ids: store.ids().clone(),
            owned,
            halo: options.halo,
            halo_lists: options.halo_lists.clone(),
            edge_weights: options.edge_weights,
            bytes: match &lists {
                Storage::Mapped(mapped) => mapped.bytes(),
                Storage::Narrow(_) | Storage::Wide(_) => bytes,
            },
            lists,
        })
    }

    /// Opens the views of several partitions, all at once. They share [`ViewOptions::memory`] with features of `feature_bytes`.
    ///
    /// With [`ViewKind::Auto`] the adjacency lists are in memory if they and the features fit, or if they take at most
    /// a quarter of the budget. Mapped lists share a quarter.
    ///
    /// # Errors
    /// As [`PartitionView::open`], and [`Error::Stopped`] if `progress` asks to stop while adjacency lists are loaded.
    pub fn open_all(
        store: &Store,
        owned: Vec<Owned>,
        feature_bytes: u64,
        options: &ViewOptions,
        progress: &dyn Progress,
    ) -> Result<Vec<Arc<Self>>> {
        Self::open_all_with(store, owned, feature_bytes, options, None, progress)
    }

    /// [`PartitionView::open_all`] that takes memory from `spare`.
    fn open_all_with(
        store: &Store,
        owned: Vec<Owned>,
        feature_bytes: u64,
        options: &ViewOptions,
        spare: Option<&Arc<SpareArenas>>,
        progress: &dyn Progress,
    ) -> Result<Vec<Arc<Self>>> {
        let memory = options.memory;
        let bytes = |owned| Self::bytes_in_memory(store, owned, options.halo, options.edge_weights);
        let bytes: u64 = owned.iter().map(bytes).sum();
        let kind = match options.kind {
            ViewKind::Auto if lists_fit(bytes, feature_bytes, memory) => ViewKind::Memory,
            ViewKind::Auto => ViewKind::Mapped,
            ViewKind::Memory | ViewKind::InTurn if bytes > memory => return Err(too_small(memory, bytes)),
            ViewKind::InTurn => ViewKind::Memory,
            kind => kind,
        };
        let options = ViewOptions {
            kind,
            memory: match kind {
                ViewKind::Memory => memory,
                _ => memory / LISTS_SHARE / owned.len().max(1) as u64,
            },
            ..options.clone()
        };
        let shared = Shared {
            mapped: Arc::default(),
            spare,
        };
        let open = |owned| Ok(Arc::new(Self::open_with(store, owned, &options, &shared, progress)?));
        let views: Vec<_> = owned.into_iter().map(open).collect::<Result<_>>()?;
        read_ahead(&views, memory);
        Ok(views)
    }

    /// Bytes of the mapped files of adjacency lists; 0 if the lists are in memory.
    pub fn mapped_bytes(&self) -> u64 {
        match &self.lists {
            Storage::Mapped(mapped) => mapped.file_bytes(self.edge_weights),
            Storage::Narrow(_) | Storage::Wide(_) => 0,
        }
    }

    /// The exact number of bytes that the adjacency lists of owned nodes take in memory. Computed from the manifest
    /// alone.
    pub fn bytes_in_memory(store: &Store, owned: &Owned, halo: Halo, edge_weights: bool) -> u64 {
        bytes_in_memory(&EdgeFilter {
            store,
            owned,
            halo,
            edge_weights,
        })
    }

    /// The external ids of the nodes.
    pub fn ids(&self) -> &StoreIds {
        &self.ids
    }

    /// The number of nodes of the graph, owned or not.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The nodes that can be expanded.
    pub fn owned(&self) -> &Owned {
        &self.owned
    }

    /// How sources are treated that are not owned.
    pub fn halo(&self) -> Halo {
        self.halo
    }

    /// The adjacency lists of halo nodes, if they have any.
    pub fn halo_lists(&self) -> Option<&Arc<HaloLists>> {
        self.halo_lists.as_ref()
    }

    pub(crate) fn set_halo_lists(&mut self, lists: Arc<HaloLists>) {
        self.halo_lists = Some(lists);
    }

    /// Whether the view has edge weights.
    pub fn has_edge_weights(&self) -> bool {
        self.edge_weights
    }

    /// Where the adjacency lists are: [`ViewKind::Memory`] or [`ViewKind::Mapped`].
    pub fn kind(&self) -> ViewKind {
        match self.lists {
            Storage::Narrow(_) | Storage::Wide(_) => ViewKind::Memory,
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
        if let (Some(halo), false) = (&self.halo_lists, owned.nodes() == self.nodes) {
            return match &self.lists {
                Storage::Narrow(csr) => ViewLists::HaloNarrow(WithHalo::new(owned, csr.partition(owned, true), halo)),
                Storage::Wide(csr) => ViewLists::HaloWide(WithHalo::new(owned, csr.partition(owned, true), halo)),
                Storage::Mapped(mapped) => {
                    ViewLists::HaloMapped(WithHalo::new(owned, mapped.partition(owned, true), halo))
                }
            };
        }
        match (&self.lists, owned.nodes() == self.nodes) {
            (Storage::Narrow(csr), true) => ViewLists::WholeNarrow(csr.whole()),
            (Storage::Wide(csr), true) => ViewLists::WholeWide(csr.whole()),
            (Storage::Narrow(csr), false) => ViewLists::PartitionNarrow(csr.partition(owned, keeps_halo)),
            (Storage::Wide(csr), false) => ViewLists::PartitionWide(csr.partition(owned, keeps_halo)),
            (Storage::Mapped(mapped), true) => ViewLists::MappedWhole(mapped.whole(owned)),
            (Storage::Mapped(mapped), false) => ViewLists::MappedPartition(mapped.partition(owned, keeps_halo)),
        }
    }
}

/// Asks the system to read the mapped files of `views` ahead if they take at most half of `memory` together. Reading
/// them from front to back takes a fraction of the time of page faults.
fn read_ahead(views: &[Arc<PartitionView>], memory: u64) {
    let mapped = views.iter().filter_map(|view| match &view.lists {
        Storage::Mapped(mapped) => Some((mapped, view.edge_weights)),
        Storage::Narrow(_) | Storage::Wide(_) => None,
    });
    let bytes: u64 = mapped
        .clone()
        .map(|(mapped, edge_weights)| mapped.file_bytes(edge_weights))
        .sum();
    if bytes <= memory / 2 {
        mapped.for_each(|(mapped, edge_weights)| mapped.read_ahead(edge_weights));
    }
}

fn bytes_in_memory(filter: &EdgeFilter<'_>) -> u64 {
    if filter.store.manifest().nodes <= NARROW_NODES_MAX {
        Csr::<u32>::bytes(filter)
    } else {
        Csr::<u64>::bytes(filter)
    }
}

fn too_small(memory: u64, bytes: u64) -> Error {
    Error::Budget {
        what: "adjacency lists in memory".into(),
        given: memory,
        least: bytes,
        remedy: "raise --memory, or leave out --view memory to have the adjacency lists mapped",
    }
}
