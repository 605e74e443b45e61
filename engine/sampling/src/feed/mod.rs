//! The feature feed: minibatches with the features of their nodes, from a graph whose features do not fit in memory.
//!
//! ```text
//! batch source --sample--> nodes --plan--> places, misses --fetch--> slots --assemble--> buffer --> consumer
//!                                          \_______ a window at a time _______/
//! ```
//!
//! A [`Feed`] holds what stays from epoch to epoch; [`Feed::epoch`] starts the threads of one, and is an iterator over its
//! [`Batch`]es, in order. What they hold is a function of the source and the store: neither the number of threads, nor the
//! budget, the window or the engine makes a difference.
//!
//! Rows are where memory allows, in the type in which they are stored:
//!
//! - *resident*: all rows of the owned chunks, if they fit, read once and found by arithmetic. If nothing else can be
//!   wanted there is nothing to plan;
//! - *pooled*: places for the rows that minibatches under way want, and for those that were wanted most often;
//! - *computed*, where the store says that features are procedural.
//!
//! A *window* is some minibatches whose missing rows are read together. It ends when as many batches are planned as the
//! budget pays for, when half of the pool is taken by its rows, or, as soon as the reader has nothing to do, when so few
//! rows are missing that waiting for more is not worth it. So windows are short while nearly all rows are in memory, and
//! become passes over the files while few are. While a window is assembled and consumed the next one is sampled, planned
//! and read.
//!
//! A row is a node's features, and with them their aggregate over its in-neighbours if there are such
//! ([`Aggregates`]) and they are asked for: both are found, missed and given up together.
//!
//! What can go wrong (a read, a file that changed, a batch that does not fit) ends all threads and is the iterator's last
//! item. A panic of a thread becomes one of the consumer.

mod access;
mod budget;
mod buffer;
mod disk;
mod files;
mod options;
mod partitions;
mod pipeline;
mod planner;
mod pool;
mod reader;
mod resident;
mod rows;
mod source;
mod state;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Condvar, Mutex, atomic::AtomicBool};

use grappa_formats::{ChunkId, aggregates::AggregateKind, manifest::FeatureSource};
use grappa_io::{
    Error, Result,
    read::{self, ReadEngine},
    slots::Slots,
};
use grappa_storage::{Store, aggregates::Aggregates, no_features};
use grappa_synthetic::{Generator, Recipe};

use self::{
    access::{Generated, PoolRows, RowAccess, Stored},
    budget::{Budget, RowsToHold},
    buffer::Reserve,
    files::RowFiles,
    pipeline::{Core, Threads},
    planner::Planner,
    pool::Pool,
    resident::Resident,
    rows::RowFormat,
    source::Demand,
    state::{Sheet, State},
    stats::Counters,
};
pub use self::{
    buffer::FeatureBuffer,
    options::{FeedOptions, OutputDtype, RegisterMemory, Registration},
    partitions::{BatchPlace, EpochOptions, PartitionBatches, Seeded},
    pipeline::Batch,
    source::BatchSource,
    stats::{FeedStats, Stall},
};

/// Delivers minibatches with features, epoch after epoch.
pub struct Feed {
    core: Arc<Core>,
    engine: Option<Box<dyn ReadEngine>>,
    engine_name: Option<&'static str>,
    threads: usize,
    budget: Budget,
}

impl Feed {
    /// Makes a feed of the features of `store` for minibatches like those of `source`, of which a few are sampled to see
    /// how large they are. The rows of the `owned` chunks become resident if they fit, and are then read now.
    ///
    /// # Errors
    /// If the memory is too little for one minibatch (the message says how much would do), the store has no features and
    /// they are wanted, it has no aggregates of the kind that is, or its files can't be read.
    pub fn open<S: BatchSource>(
        store: &Arc<Store>,
        owned: &[ChunkId],
        source: &S,
        options: &FeedOptions,
    ) -> Result<Self> {
        Self::open_with(store, owned, source, options, |files, options| {
            read::open(options.engine, files.files().clone(), options.read.clone())
        })
    }

    /// The same, with an engine that `open_engine` makes.
    fn open_with<S: BatchSource>(
        store: &Arc<Store>,
        owned: &[ChunkId],
        source: &S,
        options: &FeedOptions,
        open_engine: impl FnOnce(&RowFiles, &FeedOptions) -> Result<Box<dyn ReadEngine>>,
    ) -> Result<Self> {
        if options.threads == 0 {
            return Err(Error::out_of_range("the number of feed threads", "at least 1", 0));
        }
        // Budgets are divided for reads as they were asked for: with another budget they would be other ones.
        let asked = options;
        let options = &FeedOptions {
            read: budget::read_options(asked),
            ..asked.clone()
        };
        let spec = match &store.manifest().features {
            _ if !options.features => None,
            Some(spec) => Some(spec),
            None => return Err(no_features(store.path())),
        };
        let is_stored = spec.is_some_and(|spec| spec.source == FeatureSource::Stored);
        let aggregates = options
            .aggregates
            .map(|kind| aggregates(store, kind, is_stored))
            .transpose()?;
        let format = spec.map(|spec| {
            let aggregates = aggregates.as_ref().map(Aggregates::layout);
            let columns: Vec<_> = std::iter::once(RowFormat::features(spec)).chain(aggregates).collect();
            RowFormat::new(&columns, options.output)
        });
        let stored = match &format {
            Some(format) if is_stored => Some((
                RowFiles::open(store, format.columns()[0].stored, aggregates.as_ref())?,
                present(store, owned),
            )),
            _ => None,
        };
        let (rows, checksum_bytes) = match &stored {
            Some((files, owned)) => (rows_to_hold(store, files, owned), files.checksum_bytes()),
            None => (RowsToHold::None, 0),
        };
        let divide = |demand: &mut Demand, what: &str| {
            demand.held_bytes += checksum_bytes;
            Budget::divide(asked, demand, format.as_ref(), rows, what)
        };
        // If this is too much, nothing need be sampled.
        divide(
            &mut Demand::of_seeds(source),
            "the feature feed, even with minibatches of nothing but seeds",
        )?;
        let mut demand = Demand::measure(source)?;
        let budget = divide(&mut demand, "the feature feed, with minibatches of this size")?;
        let (access, planner, engine) = match (&format, stored) {
            (Some(format), Some((files, owned))) => {
                let mut engine = open_engine(&files, options)?;
                let resident = budget
                    .resident
                    .then(|| Resident::load(&files, &owned, &mut *engine))
                    .transpose()?;
                let slots = |geometry: pool::Geometry| Slots::new(geometry.slots(), format.slot_bytes());
                let pool = match budget.pool {
                    Some(geometry) => Some(PoolRows {
                        geometry,
                        slots: slots(geometry)?,
                        bridge_bytes: match options.bridge_bytes {
                            Some(bytes) => bytes,
                            None => disk::measure_bridge_bytes(&files, &mut *engine)?,
                        }
                        .into(),
                    }),
                    None => None,
                };
                let rows = Arc::new(Stored { files, resident, pool });
                let planner = budget
                    .pool
                    .map(|geometry| Planner::new(Pool::new(geometry), rows.clone()));
                (RowAccess::Stored(rows), planner, Some(engine))
            }
            (Some(format), None) => {
                let recipe = Recipe::from_json(&store.manifest().generator)?;
                let generated = Generated {
                    features: Generator::new(recipe)?.features(format.dim()),
                    store: store.clone(),
                };
                (RowAccess::Generated(generated), None, None)
            }
            (None, _) => (RowAccess::None, None, None),
        };
        let buffers = match &format {
            Some(format) => {
                let buffer = |_| FeatureBuffer::new(demand.rows, format, options.register.clone());
                Some((0..budget.buffers).map(buffer).collect::<Result<_>>()?)
            }
            None => None,
        };
        let sheet = |_| {
            let minibatch = demand.minibatch();
            Sheet {
                bytes: source::bytes_of(&minibatch),
                minibatch,
                places: Vec::with_capacity(if planner.is_some() { demand.rows } else { 0 }),
            }
        };
        let sheets = (0..budget.minibatches).map(sheet).collect();
        tracing::debug!(?budget, ?demand, "feed");
        let engine_name = engine.as_ref().map(|engine| engine.name());
        // Without a pool, everything was read.
        let engine = engine.filter(|_| planner.is_some());
        Ok(Self {
            core: Arc::new(Core {
                state: Mutex::new(State::new(sheets, buffers, planner, options.threads, budget.lookahead)),
                changed: Condvar::new(),
                stop: AtomicBool::new(false),
                counters: Counters::default(),
                access,
                format,
                reserve: Reserve::of(options.memory_bytes),
                scratch_bytes: demand.scratch_bytes,
            }),
            engine,
            engine_name,
            threads: options.threads,
            budget,
        })
    }

    /// Starts the threads that sample, read and assemble the batches of `source`.
    ///
    /// # Panics
    /// If a thread of an earlier epoch panicked.
    pub fn epoch<S: BatchSource>(&mut self, source: &Arc<S>) -> Epoch<'_> {
        assert!(!self.core.lock().has_panicked(), "a thread of this feed panicked");
        let threads = Threads::start(&self.core, source, self.threads, self.engine.take());
        Epoch { threads, feed: self }
    }

    /// What was done since the feed was made.
    pub fn stats(&self) -> FeedStats {
        self.core.stats()
    }

    /// What reads, or read, rows: `uring` or `pread`; none if rows are computed or there are none.
    pub fn engine_name(&self) -> Option<&'static str> {
        self.engine_name
    }

    /// Whether the rows of all owned chunks are in memory.
    pub fn is_resident(&self) -> bool {
        self.budget.resident
    }

    /// Rows that the pool has room for.
    pub fn pool_rows(&self) -> usize {
        self.budget.pool.map_or(0, pool::Geometry::slots)
    }

    /// The most batches of a window.
    pub fn lookahead(&self) -> usize {
        self.budget.lookahead
    }
}

/// The batches of an epoch, in order. Dropping it ends its threads.
pub struct Epoch<'a> {
    feed: &'a mut Feed,
    threads: Threads,
}

impl Epoch<'_> {
    /// What was done since the feed was made, so far.
    pub fn stats(&self) -> FeedStats {
        self.feed.core.stats()
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    /// Waits for the next batch. After an error there are no more.
    ///
    /// # Panics
    /// If a thread panicked.
    fn next(&mut self) -> Option<Result<Batch>> {
        self.threads.next()
    }
}

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        self.feed.engine = self.threads.join();
        let mut state = self.feed.core.lock();
        if !state.has_panicked() {
            state.end();
        }
    }
}

impl Core {
    fn stats(&self) -> FeedStats {
        let row_bytes = self.format.as_ref().map_or(0, RowFormat::stored_bytes);
        self.counters.stats(row_bytes)
    }
}

/// The pre-aggregated features of a kind.
fn aggregates(store: &Store, kind: AggregateKind, is_stored: bool) -> Result<Aggregates> {
    if !is_stored {
        return Err(Error::conflict(
            format!(
                "{}: pre-aggregated features are delivered with stored features, and here features are computed, or not \
                 wanted",
                store.path().display()
            ),
            "sample without pre-aggregated features",
        ));
    }
    Aggregates::open(store, kind)?.ok_or_else(|| {
        Error::missing(
            format!("pre-aggregated features of kind {kind}"),
            store.path(),
            format!(
                "make them with `grappa-store preaggregate {} --kind {kind}`",
                store.path().display()
            ),
        )
    })
}

/// Those of `chunks` that are there.
fn present(store: &Store, chunks: &[ChunkId]) -> Vec<ChunkId> {
    let chunks: std::collections::BTreeSet<_> = chunks.iter().copied().collect();
    store.present_chunks().filter(|chunk| chunks.contains(chunk)).collect()
}

fn rows_to_hold(store: &Store, files: &RowFiles, owned: &[ChunkId]) -> RowsToHold {
    let all: u64 = store.present_chunks().map(|chunk| store.chunks().len(chunk)).sum();
    let resident: u64 = owned.iter().map(|&chunk| store.chunks().len(chunk)).sum();
    RowsToHold::Stored {
        resident_bytes: Resident::bytes(files, owned),
        others: all - resident,
        all,
    }
}
