//! Divides the memory of a feed, before any of it is allocated.

use grappa_io::{
    Error,
    ledger::{Lease, MemoryShare, leased_bytes},
    read,
};

use super::{
    demand::MinibatchDemand,
    options::FeedOptions,
    pool::{
        BATCHES_MAX,
        geometry::{Miss, PoolGeometry},
    },
    rows::RowFormat,
};
use crate::policy::{LOOKAHEAD_MAX, LOOKAHEAD_NODES, READ_BUFFERS, RESERVE};

/// The lease of feature rows that are read once.
pub const RESIDENT_ROWS: &str = "resident rows";
/// Bytes for everything that is not counted individually: stacks of threads, lists of files.
const UNCOUNTED_BYTES: u64 = 1 << 20;
/// Additional feature buffers, of the memory that is left over.
const BUFFERS: MemoryShare = MemoryShare::one(
    "feature buffers",
    8,
    "one that is assembled and one at the consumer, and one for each thread while the additional ones take at most 1/8 of what is left: \
     the rest is worth more as pool; chosen, not measured",
);
/// Read buffers may take more than their share of the memory if reads would become shorter or fewer otherwise.
const READ_BYTES_MIN: u32 = 64 << 10;
const DEPTH_MIN: usize = 16;

/// The stored feature rows that minibatches can need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowDemand {
    /// Bytes of the rows of the chunks that should be resident, or of this process's part of them.
    pub resident_bytes: u64,
    /// Number of rows of all other chunks.
    pub other_rows: u64,
    /// Number of rows of all chunks.
    pub all_rows: u64,
}

/// The parts that the memory of a feed pays for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeedBudget {
    /// The maximum number of batches of a window.
    pub lookahead: usize,
    /// Number of in-flight batches: sampled and not yet dropped by the consumer.
    pub in_flight_batches: usize,
    pub buffers: usize,
    /// Bytes of resident rows; 0 if the chunks that should be resident are not.
    pub resident_bytes: u64,
    /// The row pool. None if no row is read on demand.
    pub pool: Option<PoolGeometry>,
    /// The memory of each part.
    pub leases: Vec<Lease>,
}

impl FeedBudget {
    /// Divides `options.memory_bytes`. `format` is None if there are no features, `rows` if none are stored. `operation` is
    /// the consumer of the memory in the error, which names a sufficient budget.
    pub fn divide(
        options: &FeedOptions,
        demand: &MinibatchDemand,
        format: Option<&RowFormat>,
        rows: Option<RowDemand>,
        operation: &str,
    ) -> grappa_io::Result<Self> {
        let minibatch = demand.batch_bytes(format)?;
        let mut shortage = match FeedCosts::new(options, demand, minibatch, format).divide(options, rows) {
            Ok(budget) => return Ok(budget),
            Err(shortage) => shortage,
        };
        // The reserve and the read buffers grow with the memory, so adding the shortage once may not be sufficient.
        let mut enough = options.clone();
        loop {
            enough.memory_bytes = u64::try_from(i128::from(enough.memory_bytes) + shortage).unwrap_or(u64::MAX);
            match FeedCosts::new(&enough, demand, minibatch, format).divide(&enough, rows) {
                Err(bytes) => shortage = bytes,
                Ok(_) => break,
            }
        }
        Err(Error::Budget {
            operation: operation.to_owned(),
            given: options.memory_bytes + options.adjacency_bytes,
            least: enough.memory_bytes + options.adjacency_bytes_beside(enough.memory_bytes),
            remedy: match demand.has_negatives() {
                true => {
                    "raise --memory, or use smaller batches, fewer --negatives, fewer neighbors (--fanouts) or fewer --threads"
                }
                false => "raise --memory, or use smaller batches, fewer neighbors (--fanouts) or fewer --threads",
            },
        })
    }
}

/// The bytes by which a budget is too small.
type Shortage = i128;

/// The costs of the parts of a feed, in bytes.
struct FeedCosts {
    /// The parts of fixed size.
    fixed: Vec<Lease>,
    /// Memory that is left after the fixed parts. Negative if there is too little for these.
    left: i128,
    demand: MinibatchDemand,
    minibatch: u64,
    /// The slots of the rows of a minibatch.
    batch_slots: u64,
    /// The rows of a batch.
    rows: u64,
    buffer: u64,
    /// A row in the pool, with its bookkeeping.
    pool_slot: u64,
    /// Number of slots of the smallest pool.
    pool_slots_min: u64,
    engine: u64,
}

impl FeedCosts {
    /// Minibatches have `minibatch` bytes.
    fn new(options: &FeedOptions, demand: &MinibatchDemand, minibatch: u64, format: Option<&RowFormat>) -> Self {
        let rows = format.map_or(0, |format| demand.rows(format));
        let scratch = demand.scratch_bytes + format.map_or(0, RowFormat::scratch_bytes);
        let held = demand.held_bytes.saturating_add(options.threads as u64 * scratch);
        let pool_slot = format.map_or(0, |format| format.slot_bytes() as u64)
            + PoolGeometry::BYTES_PER_SLOT
            // Each slot can be a miss of the window that is read, or of the one that is planned.
            + 2 * size_of::<Miss>() as u64;
        let fixed = vec![
            RESERVE.lease(options.memory_bytes),
            Lease::new(
                "samplers",
                held,
                "tables of the sampler of each thread, lists of seeds, checksums of feature files; measured",
            ),
            Lease::new("other memory of the feed", UNCOUNTED_BYTES, "1 MiB for stacks of threads and lists of files"),
        ];
        Self {
            left: i128::from(options.memory_bytes) - i128::from(leased_bytes(&fixed)),
            fixed,
            demand: demand.clone(),
            minibatch,
            batch_slots: (rows * size_of::<u32>()) as u64,
            rows: rows as u64,
            buffer: format.map_or(0, |format| format.output_bytes(|node_type| demand.nodes_of(node_type)) as u64),
            pool_slot,
            pool_slots_min: PoolGeometry::for_rows(rows).slots() as u64,
            engine: read_options(options).memory_bytes(),
        }
    }

    fn divide(&self, options: &FeedOptions, rows: Option<RowDemand>) -> Result<FeedBudget, Shortage> {
        let Some(rows) = rows else {
            return self.without_pool(options, 0, 0);
        };
        let resident = match rows.other_rows {
            0 => self.without_pool(options, rows.resident_bytes, self.engine),
            others => self.with_pool(options, rows.resident_bytes, others),
        };
        // If the owned chunks do not fit, none of them is resident: all memory for rows goes to the pool.
        resident.or_else(|_| self.with_pool(options, 0, rows.all_rows))
    }

    /// All rows are resident or computed, so batches do not wait for a window.
    fn without_pool(&self, options: &FeedOptions, resident_bytes: u64, engine: u64) -> Result<FeedBudget, Shortage> {
        let batch = i128::from(self.minibatch + self.buffer);
        let left = self.left - i128::from(resident_bytes) - i128::from(engine);
        if left < 2 * batch {
            return Err(2 * batch - left);
        }
        let buffers = (left / batch.max(1)).min(options.threads as i128 + 2) as usize;
        let leases = self.leases(resident_bytes, engine, [buffers, buffers], self.minibatch, 0);
        Ok(FeedBudget { lookahead: 1, in_flight_batches: buffers, buffers, resident_bytes, pool: None, leases })
    }

    /// `rows` rows are read on demand, and the others are resident.
    fn with_pool(&self, options: &FeedOptions, resident_bytes: u64, rows: u64) -> Result<FeedBudget, Shortage> {
        let left = self.left - i128::from(resident_bytes) - i128::from(self.engine);
        let waiting = i128::from(self.minibatch + self.batch_slots);
        let buffer = i128::from(self.buffer);
        // The minimum is four batches: one in the window that is read, one in the window that is planned, one that is
        // assembled and one at the consumer. The last two have buffers.
        let least = 4 * waiting + 2 * buffer + i128::from(self.pool_slots_min * self.pool_slot);
        if left < least {
            return Err(least - left);
        }
        let spare = left - least;
        let buffers = 2 + (BUFFERS.bytes(spare as u64) as i128 / buffer.max(1)).min(options.threads as i128) as usize;
        let spare = spare - (buffers as i128 - 2) * (buffer + waiting);
        let affordable = 1 + (spare / (2 * waiting).max(1)).max(0) as u64;
        let lookahead = match options.lookahead {
            Some(wanted) => affordable.min(wanted.max(1) as u64),
            None => {
                let most = LOOKAHEAD_MAX.max(LOOKAHEAD_NODES / self.rows.max(1));
                self.balanced_lookahead(spare, waiting, rows, affordable.min(most))
            }
        };
        let lookahead = lookahead.min(BATCHES_MAX / 4) as usize;
        let in_flight_batches = 2 * lookahead + buffers;
        let left = left - in_flight_batches as i128 * waiting - buffers as i128 * buffer;
        // More slots than rows would be useless.
        let all = PoolGeometry::for_rows(usize::try_from(rows).unwrap_or(usize::MAX)).slots();
        let slots = usize::try_from(left / i128::from(self.pool_slot)).expect("the minimum includes a pool");
        let pool = PoolGeometry::within(slots.min(all));
        let batches = [in_flight_batches, buffers];
        let waiting = self.minibatch + self.batch_slots;
        let leases = self.leases(resident_bytes, self.engine, batches, waiting, pool.slots() as u64);
        Ok(FeedBudget { lookahead, in_flight_batches, buffers, resident_bytes, pool: Some(pool), leases })
    }

    /// The memory of each part, for in-flight batches of `batch_bytes` and feature buffers (`batches` has both numbers).
    fn leases(
        &self,
        resident_bytes: u64,
        engine: u64,
        batches: [usize; 2],
        batch_bytes: u64,
        pool_slots: u64,
    ) -> Vec<Lease> {
        let [in_flight, buffers] = batches.map(|count| count as u64);
        let mut leases = self.fixed.clone();
        leases.extend([
            READ_BUFFERS.lease_of(engine),
            Lease::new(RESIDENT_ROWS, resident_bytes, "all feature rows of the owned chunks, because they fit"),
            Lease::new(
                "in-flight minibatches",
                in_flight * batch_bytes,
                "nodes and edges of two windows of batches and of those with a buffer, each as large as the largest that was sampled in \
                 advance and a margin",
            ),
            BUFFERS.lease_of(buffers * self.buffer),
            Lease::new(
                "row pool",
                pool_slots * self.pool_slot,
                "all that is left: rows of two windows of batches, and rows that were used most",
            ),
        ]);
        leases
    }

    /// The largest number of batches of a window, up to `most`, with which the rows of two windows fit the pool: one
    /// window is consumed while the next is read.
    ///
    /// Waiting batches and pool share the memory. Fewer batches per window mean more windows, and each window reads
    /// nearly as much. With more batches the pool would be smaller and would end windows earlier.
    fn balanced_lookahead(&self, spare: i128, waiting: i128, rows: u64, most: u64) -> u64 {
        let (mut fit, mut unfit) = (1, most + 1);
        while unfit - fit > 1 {
            let middle = fit + (unfit - fit) / 2;
            let distinct = self.demand.distinct_rows(2 * middle).min(rows);
            match 2 * i128::from(middle) * waiting + i128::from(distinct * self.pool_slot) <= spare {
                true => fit = middle,
                false => unfit = middle,
            }
        }
        fit
    }
}

/// The options of the user for the read engine, but with shorter reads, and then fewer reads in flight, if read
/// buffers would take too much of the memory.
pub(super) fn read_options(options: &FeedOptions) -> read::Options {
    let mut read = options.read.clone();
    let memory_max = READ_BUFFERS.bytes(options.memory_bytes);
    while read.memory_bytes() > memory_max && read.read_bytes_max > READ_BYTES_MIN {
        read.read_bytes_max = (read.read_bytes_max / 2).max(READ_BYTES_MIN);
    }
    while read.memory_bytes() > memory_max && read.depth > DEPTH_MIN {
        read.depth = (read.depth / 2).max(DEPTH_MIN);
    }
    read
}
