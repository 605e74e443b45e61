//! What a worker sees of the graph while it samples.
//!
//! A [`PartitionView`] has the rows of the nodes that a partition owns, which are those that can be expanded. In which part
//! of a row a hop may draw is for its [`Halo`] mode to say. Rows are in memory as plain CSR, which they are streamed into,
//! or are decoded where the store's files are mapped ([`ViewKind`]); samples are the same.
//!
//! Streaming takes some 30 MiB beside the rows, until they are there: buffers of the read engine, encoded pieces that wait
//! to be decoded, and a decoded piece a thread.
//!
//! # The order of a row
//! A sampler draws positions, not sources. What makes its samples the same for all kinds of view is that all put the
//! sources of a row in the same order: those that the view owns, ascending, and after them the others, ascending. So both
//! who draws among owned sources and who draws among all draws among the first so many positions. In a view of the whole
//! graph, that is the order of the store.

mod halo;
mod kept;
mod kind;
mod load;
mod mapped;
mod memory;
pub(crate) mod rows;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
    read::Choice,
};
use grappa_storage::{Store, StoreIds};

pub use self::{halo::Halo, kind::ViewKind};
use self::{
    kept::Kept,
    mapped::{Mapped, MappedMemory},
    memory::Csr,
    rows::RowsIn,
    stream::open_engine,
};
use crate::partition::Owned;

/// Nodes of graphs with no more than this many take 32 bits.
const NARROW_NODES_MAX: u64 = 1 << 32;

/// Of the budget of views and the features beside them, what rows may take if not all fits: one part of so many.
const ROWS_SHARE: u64 = 4;

/// How to see a partition.
#[derive(Debug, Clone)]
pub struct ViewOptions {
    /// What becomes of sources that the partition does not own.
    pub halo: Halo,
    /// Whether to have the weights of edges, for samplers that draw by them.
    pub weights: bool,
    /// Where rows are to be.
    pub kind: ViewKind,
    /// Bytes of memory that the view may take. Pages of mapped files that were touched count, although the system would take
    /// them back when it needs them: beyond this, the view gives them back.
    pub memory: u64,
    /// Threads that decode rows into memory.
    pub threads: usize,
    /// What reads the rows that go into memory.
    pub engine: Choice,
}

/// The part of a store that is sampled from. Shared by the threads that sample.
#[derive(Debug)]
pub struct PartitionView {
    nodes: u64,
    ids: Arc<StoreIds>,
    owned: Owned,
    halo: Halo,
    weights: bool,
    bytes: u64,
    rows: Kind,
}

#[derive(Debug)]
enum Kind {
    Narrow(Csr<u32>),
    Wide(Csr<u64>),
    Mapped(Mapped),
}

impl PartitionView {
    /// The rows of the nodes that are `owned`.
    ///
    /// # Errors
    /// If they are to be in memory and the budget is too small for that; if the store is a slice that lacks an owned chunk,
    /// or has no weights and they are wanted; or if it is damaged so that it is noticed.
    pub fn open(store: &Store, owned: Owned, options: &ViewOptions) -> Result<Self> {
        Self::open_with(store, owned, options, &Arc::default(), &Silent)
    }

    fn open_with(
        store: &Store,
        owned: Owned,
        options: &ViewOptions,
        mapped: &Arc<MappedMemory>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let nodes = store.manifest().nodes;
        let kept = Kept {
            store,
            owned: &owned,
            halo: options.halo,
            weights: options.weights,
        };
        kept.check()?;
        let bytes = bytes_in_memory(&kept);
        let in_memory = match options.kind {
            ViewKind::Auto => bytes <= options.memory,
            ViewKind::Memory if bytes > options.memory => return Err(too_small(options.memory, bytes)),
            ViewKind::Memory => true,
            ViewKind::Mapped => false,
        };
        let open_engine = |files| open_engine(options.engine, files);
        let rows = match in_memory {
            true if nodes <= NARROW_NODES_MAX => {
                Kind::Narrow(Csr::load(&kept, options.threads, &open_engine, progress)?)
            }
            true => Kind::Wide(Csr::load(&kept, options.threads, &open_engine, progress)?),
            false => Kind::Mapped(Mapped::open(&kept, options.memory, mapped)?),
        };
        Ok(Self {
            nodes,
            ids: store.ids().clone(),
            owned,
            halo: options.halo,
            weights: options.weights,
            bytes: match &rows {
                Kind::Mapped(mapped) => mapped.bytes(),
                Kind::Narrow(_) | Kind::Wide(_) => bytes,
            },
            rows,
        })
    }

    /// The views of several partitions, of which features are wanted that take `feature_bytes`.
    ///
    /// [`ViewOptions::memory`] is for all of that. With [`ViewKind::Auto`] the rows are in memory if the features still fit
    /// beside them, or if they take no more than a quarter of it. Mapped rows share a quarter.
    ///
    /// # Errors
    /// As [`PartitionView::open`], and [`Error::Stopped`] if progress says to stop while adjacency lists are loaded.
    pub fn open_all(
        store: &Store,
        owned: Vec<Owned>,
        feature_bytes: u64,
        options: &ViewOptions,
        progress: &dyn Progress,
    ) -> Result<Vec<Arc<Self>>> {
        let memory = options.memory;
        let bytes = |owned| Self::bytes_in_memory(store, owned, options.halo, options.weights);
        let bytes: u64 = owned.iter().map(bytes).sum();
        let kind = match options.kind {
            ViewKind::Auto if bytes.saturating_add(feature_bytes) <= memory || bytes <= memory / ROWS_SHARE => {
                ViewKind::Memory
            }
            ViewKind::Auto => ViewKind::Mapped,
            ViewKind::Memory if bytes > memory => return Err(too_small(memory, bytes)),
            kind => kind,
        };
        let options = ViewOptions {
            kind,
            memory: match kind {
                ViewKind::Memory => memory,
                _ => memory / ROWS_SHARE / owned.len().max(1) as u64,
            },
            ..options.clone()
        };
        let mapped = Arc::default();
        let open = |owned| Ok(Arc::new(Self::open_with(store, owned, &options, &mapped, progress)?));
        let views: Vec<_> = owned.into_iter().map(open).collect::<Result<_>>()?;
        read_ahead(&views, memory);
        Ok(views)
    }

    /// Bytes of the files that rows are mapped from; 0 if they are in memory.
    pub fn mapped_bytes(&self) -> u64 {
        match &self.rows {
            Kind::Mapped(mapped) => mapped.file_bytes(self.weights),
            Kind::Narrow(_) | Kind::Wide(_) => 0,
        }
    }

    /// How many bytes the rows of the nodes that are `owned` take in memory. Read from the manifest: exact, and at once.
    pub fn bytes_in_memory(store: &Store, owned: &Owned, halo: Halo, weights: bool) -> u64 {
        bytes_in_memory(&Kept {
            store,
            owned,
            halo,
            weights,
        })
    }

    /// What the user's files call the nodes of the graph.
    pub fn ids(&self) -> &StoreIds {
        &self.ids
    }

    /// Number of nodes of the graph. Those that the view does not own count, too.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The nodes that can be expanded.
    pub fn owned(&self) -> &Owned {
        &self.owned
    }

    /// What becomes of sources that are not owned.
    pub fn halo(&self) -> Halo {
        self.halo
    }

    /// Whether the view has the weights of edges.
    pub fn has_weights(&self) -> bool {
        self.weights
    }

    /// Where the rows are: [`ViewKind::Memory`] or [`ViewKind::Mapped`].
    pub fn kind(&self) -> ViewKind {
        match self.rows {
            Kind::Narrow(_) | Kind::Wide(_) => ViewKind::Memory,
            Kind::Mapped(_) => ViewKind::Mapped,
        }
    }

    /// Bytes of memory that the rows take; if they are mapped, what their pages may take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn rows(&self) -> RowsIn<'_> {
        let owned = &self.owned;
        let keeps_halo = self.halo != Halo::None;
        match (&self.rows, owned.nodes() == self.nodes) {
            (Kind::Narrow(csr), true) => RowsIn::WholeNarrow(csr.whole()),
            (Kind::Wide(csr), true) => RowsIn::WholeWide(csr.whole()),
            (Kind::Narrow(csr), false) => RowsIn::PartNarrow(csr.part(owned, keeps_halo)),
            (Kind::Wide(csr), false) => RowsIn::PartWide(csr.part(owned, keeps_halo)),
            (Kind::Mapped(mapped), true) => RowsIn::MappedWhole(mapped.whole(owned)),
            (Kind::Mapped(mapped), false) => RowsIn::MappedPart(mapped.part(owned)),
        }
    }
}

/// Has the system begin to read what `views` have mapped, if the files of all of them together take at most half of
/// `memory`: front to back that takes a fraction of the time that page faults do.
fn read_ahead(views: &[Arc<PartitionView>], memory: u64) {
    let mapped = views.iter().filter_map(|view| match &view.rows {
        Kind::Mapped(mapped) => Some((mapped, view.weights)),
        Kind::Narrow(_) | Kind::Wide(_) => None,
    });
    let bytes: u64 = mapped.clone().map(|(mapped, weights)| mapped.file_bytes(weights)).sum();
    if bytes <= memory / 2 {
        mapped.for_each(|(mapped, weights)| mapped.read_ahead(weights));
    }
}

fn bytes_in_memory(kept: &Kept<'_>) -> u64 {
    if kept.store.manifest().nodes <= NARROW_NODES_MAX {
        Csr::<u32>::bytes(kept)
    } else {
        Csr::<u64>::bytes(kept)
    }
}

fn too_small(memory: u64, bytes: u64) -> Error {
    Error::Budget {
        what: "the rows of the graph in memory".into(),
        given: memory,
        least: bytes,
        remedy: "or map the rows",
    }
}
