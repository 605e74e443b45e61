//! How the memory of a feed is divided, before any of it is taken.

use grappa_io::{Error, read};

use super::{
    buffer::Reserve,
    options::FeedOptions,
    pool::{BATCHES_MAX, Geometry, Miss},
    rows::RowFormat,
    source::Demand,
};

/// Bytes for what is not counted one by one: stacks of threads, lists of files.
const SMALL_BYTES: u64 = 1 << 20;
/// The most batches of a window unless the user wants more: at least so many,
const LOOKAHEAD_MAX: u64 = 64;
/// and, of small ones, as many as have so many nodes.
const LOOKAHEAD_NODES: u64 = 1 << 22;
/// Buffers of features may have one part of so many of the memory.
const BUFFERS_SHARE: u64 = 8;
/// The engine's buffers may have one part of so many, unless reads would become shorter or fewer than these.
const ENGINE_SHARE: u64 = 8;
const READ_BYTES_LEAST: u32 = 64 << 10;
const DEPTH_LEAST: usize = 16;

/// What rows there are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsToHold {
    /// None: there are no features, or they are computed.
    None,
    /// Stored rows.
    Stored {
        /// Those of the chunks that should be resident.
        resident_bytes: u64,
        /// How many rows of other chunks may be wanted, too.
        others: u64,
        /// How many rows of any chunk may be wanted.
        all: u64,
    },
}

/// How many there are of each part of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// The most batches of a window.
    pub lookahead: usize,
    /// Minibatches that are sampled and not delivered, or delivered and not dropped.
    pub minibatches: usize,
    /// Buffers of features.
    pub buffers: usize,
    /// Whether the chunks that should be are resident.
    pub resident: bool,
    /// The row pool, if rows are read as they are wanted.
    pub pool: Option<Geometry>,
}

impl Budget {
    /// Divides `options.memory_bytes`. `format` is that of the rows, if there are any. The error calls it `what`.
    pub fn divide(
        options: &FeedOptions,
        demand: &Demand,
        format: Option<&RowFormat>,
        rows: RowsToHold,
        what: &str,
    ) -> grappa_io::Result<Self> {
        let divide = |options: &FeedOptions| Costs::new(options, demand, format).divide(options, rows);
        let mut lacking = match divide(options) {
            Ok(budget) => return Ok(budget),
            Err(Lacking(lacking)) => lacking,
        };
        // With more memory the reserve and the engine take more, too.
        let mut enough = options.clone();
        loop {
            enough.memory_bytes = u64::try_from(i128::from(enough.memory_bytes) + lacking).unwrap_or(u64::MAX);
            match divide(&enough) {
                Err(Lacking(more)) => lacking = more,
                Ok(_) => break,
            }
        }
        Err(Error::Budget {
            what: what.to_owned(),
            given: options.memory_bytes + options.rows_bytes,
            least: enough.memory_bytes + options.rows_beside(enough.memory_bytes),
            remedy: "or sample with smaller batches, fewer neighbours (--fanouts) or fewer --threads",
        })
    }
}

/// What is lacking, in bytes.
struct Lacking(i128);

/// What the parts take.
struct Costs {
    /// What is left when everything that does not vary has its part.
    left: i128,
    demand: Demand,
    minibatch: u64,
    places: u64,
    buffer: u64,
    slot: u64,
    smallest_pool: u64,
    engine: u64,
}

impl Costs {
    fn new(options: &FeedOptions, demand: &Demand, format: Option<&RowFormat>) -> Self {
        let rows = demand.rows as u64;
        let scratch = demand.scratch_bytes + format.map_or(0, RowFormat::scratch_bytes);
        let held = demand.held_bytes.saturating_add(options.threads as u64 * scratch);
        let per_slot = format.map_or(0, |format| format.slot_bytes() as u64)
            + Geometry::BYTES_PER_SLOT
            // Each slot may be a miss of the window that is read or of the one that is planned.
            + 2 * size_of::<Miss>() as u64;
        Self {
            left: i128::from(options.memory_bytes)
                - i128::from(options.memory_bytes / Reserve::SHARE + SMALL_BYTES)
                - i128::from(held),
            demand: demand.clone(),
            minibatch: demand.minibatch_bytes(),
            places: rows * size_of::<u32>() as u64,
            buffer: format.map_or(0, |format| rows * format.output_bytes() as u64),
            slot: per_slot,
            smallest_pool: Geometry::for_rows(demand.rows).slots() as u64,
            engine: read_options(options).memory_bytes(),
        }
    }

    fn divide(&self, options: &FeedOptions, rows: RowsToHold) -> Result<Budget, Lacking> {
        match rows {
            RowsToHold::None => self.without_pool(options, 0),
            RowsToHold::Stored {
                resident_bytes,
                others,
                all,
            } => {
                let resident = match others {
                    0 => self.without_pool(options, resident_bytes + self.engine),
                    _ => self.with_pool(options, resident_bytes, others),
                };
                resident.or_else(|_| self.with_pool(options, 0, all))
            }
        }
    }

    /// Everything that is wanted is there: minibatches wait for no window.
    fn without_pool(&self, options: &FeedOptions, resident: u64) -> Result<Budget, Lacking> {
        let one = i128::from(self.minibatch + self.buffer);
        let left = self.left - i128::from(resident);
        if left < 2 * one {
            return Err(Lacking(2 * one - left));
        }
        let buffers = (left / one.max(1)).min(options.threads as i128 + 2) as usize;
        Ok(Budget {
            lookahead: 1,
            minibatches: buffers,
            buffers,
            resident: resident > 0,
            pool: None,
        })
    }

    fn with_pool(&self, options: &FeedOptions, resident: u64, rows: u64) -> Result<Budget, Lacking> {
        let left = self.left - i128::from(resident) - i128::from(self.engine);
        let waiting = i128::from(self.minibatch + self.places);
        let buffer = i128::from(self.buffer);
        // A window of one batch that is read, and one that is planned; a batch at the consumer, and one assembled.
        let least = 4 * waiting + 2 * buffer + i128::from(self.smallest_pool * self.slot);
        if left < least {
            return Err(Lacking(least - left));
        }
        let spare = left - least;
        let buffers = 2 + (spare / i128::from(BUFFERS_SHARE) / buffer.max(1)).min(options.threads as i128) as usize;
        let spare = spare - (buffers as i128 - 2) * (buffer + waiting);
        let affordable = 1 + (spare / (2 * waiting).max(1)).max(0) as u64;
        let lookahead = match options.lookahead {
            Some(wanted) => affordable.min(wanted.max(1) as u64),
            None => {
                let most = LOOKAHEAD_MAX.max(LOOKAHEAD_NODES / (self.demand.rows as u64).max(1));
                self.balanced(spare, waiting, rows, affordable.min(most))
            }
        };
        let lookahead = lookahead.min(BATCHES_MAX / 4) as usize;
        let minibatches = 2 * lookahead + buffers;
        let left = left - minibatches as i128 * waiting - buffers as i128 * buffer;
        // More places than rows would be of no use.
        let all = Geometry::for_rows(usize::try_from(rows).unwrap_or(usize::MAX)).slots();
        let slots = usize::try_from(left / i128::from(self.slot)).expect("the least has room for a pool");
        Ok(Budget {
            lookahead,
            minibatches,
            buffers,
            resident: resident > 0,
            pool: Some(Geometry::within(slots.min(all))),
        })
    }
}

impl Costs {
    /// How many batches a window may have, of at most so many, so that the rows of two windows, of which one is consumed while the
    /// other is read, fit the pool that they leave: fewer would be more windows, each of which reads nearly as much; with more, the
    /// pool would end windows earlier.
    fn balanced(&self, spare: i128, waiting: i128, rows: u64, most: u64) -> u64 {
        let fits = |batches: u64| {
            let distinct = self.demand.distinct_rows(2 * batches).min(rows);
            2 * i128::from(batches) * waiting + i128::from(distinct * self.slot) <= spare
        };
        let (mut fit, mut unfit) = (1, most + 1);
        while unfit - fit > 1 {
            let middle = fit + (unfit - fit) / 2;
            match fits(middle) {
                true => fit = middle,
                false => unfit = middle,
            }
        }
        fit
    }
}

/// How the engine reads: as the user wants, but with shorter and then fewer reads under way where their buffers would
/// take too much of the memory.
pub(super) fn read_options(options: &FeedOptions) -> read::Options {
    let mut read = options.read.clone();
    let too_much = |read: &read::Options| read.memory_bytes() > options.memory_bytes / ENGINE_SHARE;
    while too_much(&read) && read.read_bytes_max > READ_BYTES_LEAST {
        read.read_bytes_max = (read.read_bytes_max / 2).max(READ_BYTES_LEAST);
    }
    while too_much(&read) && read.depth > DEPTH_LEAST {
        read.depth = (read.depth / 2).max(DEPTH_LEAST);
    }
    read
}
