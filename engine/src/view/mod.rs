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

pub use self::{halo::Halo, kind::ViewKind};
use self::{kept::Kept, mapped::Mapped, memory::Csr, rows::RowsIn, stream::open_engine};
use crate::{Error, Result, io::read::Choice, partition::Owned, store::Store};

/// Nodes of graphs with no more than this many take 32 bits.
const NARROW_NODES_MAX: u64 = 1 << 32;

/// How to see a partition.
#[derive(Debug, Clone)]
pub struct ViewOptions {
    /// What becomes of sources that the partition does not own.
    pub halo: Halo,
    /// Whether to have the weights of edges, for samplers that draw by them.
    pub weights: bool,
    /// Where rows are to be.
    pub kind: ViewKind,
    /// Bytes of memory that the view may take. Pages of mapped files do not count: the system takes them back when it
    /// needs them.
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
            true if nodes <= NARROW_NODES_MAX => Kind::Narrow(Csr::load(&kept, options.threads, &open_engine)?),
            true => Kind::Wide(Csr::load(&kept, options.threads, &open_engine)?),
            false => Kind::Mapped(Mapped::open(&kept)?),
        };
        Ok(Self {
            nodes,
            owned,
            halo: options.halo,
            weights: options.weights,
            bytes: if in_memory { bytes } else { 0 },
            rows,
        })
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

    /// Bytes of memory that the rows take; 0 if they are mapped.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has the system begin to read what `views` have mapped, if the files of all of them together take at most half of
    /// `memory`: front to back that takes a fraction of the time that page faults do. Call it when all are open.
    pub fn read_ahead<'a>(views: impl Iterator<Item = &'a Self> + Clone, memory: u64) {
        let mapped = views.filter_map(|view| match &view.rows {
            Kind::Mapped(mapped) => Some((mapped, view.weights)),
            Kind::Narrow(_) | Kind::Wide(_) => None,
        });
        let bytes: u64 = mapped.clone().map(|(mapped, weights)| mapped.file_bytes(weights)).sum();
        if bytes <= memory / 2 {
            mapped.for_each(|(mapped, weights)| mapped.read_ahead(weights));
        }
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

fn bytes_in_memory(kept: &Kept<'_>) -> u64 {
    if kept.store.manifest().nodes <= NARROW_NODES_MAX {
        Csr::<u32>::bytes(kept)
    } else {
        Csr::<u64>::bytes(kept)
    }
}

fn too_small(memory: u64, bytes: u64) -> Error {
    Error::Options(format!(
        "the rows of the view take {bytes} bytes in memory, and it may take {memory}; give it {bytes}, or map the rows"
    ))
}
