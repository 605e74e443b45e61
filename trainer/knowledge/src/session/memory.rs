//! The memory of a run: the number of partitions, and whether triples are on disk.

use grappa_io::{
    Error as EngineError,
    ledger::{Lease, Ledger, MemoryShare},
};
use grappa_kernels::padded;
use grappa_run::config::TripleNegatives;

use crate::{
    Result,
    rows::{Rows, TableShape},
    step::TripleModel,
    triples::Triple,
};

const ROWS: MemoryShare = MemoryShare::fraction(
    "rows of entities",
    [5, 8],
    "the moments of the optimizer are among them; the rest is for triples, known triples and a batch; chosen, not measured",
);
const TRIPLES: MemoryShare = MemoryShare::one(
    "triples",
    4,
    "training triples that exceed 1/4 are in a temporary file of the run; chosen, not measured",
);
/// Partitions in memory: two that train, and one that is written or read.
const PARTITIONS_AT_ONCE: u64 = 3;
const PARTITIONS_MAX: u32 = 1 << 12;
/// Copies of a batch's rows: values and gradients of heads, of tails, of two relations and of two queries.
const COPIES_OF_BATCH: u64 = 12;
/// Copies of candidates: values, transposed values and gradients.
const COPIES_OF_CANDIDATES: u64 = 3;

/// Sizes of a run, from which its memory follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub model: TripleModel,
    pub entities: u64,
    /// Training triples.
    pub triples: u64,
    pub batch: usize,
    /// Bytes of known triples.
    pub known: u64,
    /// The limit.
    pub memory: u64,
}

impl Sizes {
    fn row_bytes(&self) -> u64 {
        Rows::row_bytes(self.model.dim, self.model.optimizer)
    }

    fn rows_bytes(&self, parts: u32) -> u64 {
        let rows = TableShape { rows: self.entities, dim: self.model.dim, parts, key: 0 }.rows_of(0) as u64;
        rows * self.row_bytes() * if parts == 1 { 1 } else { PARTITIONS_AT_ONCE }
    }

    /// The smallest number of partitions whose rows fit: 1, or a power of two.
    ///
    /// # Errors
    /// If even the largest number of partitions exceeds the limit.
    pub fn partitions(&self) -> Result<u32> {
        let others = self.batch_bytes() + self.known + if self.keeps_triples() { self.triples_bytes() } else { 0 };
        let share = ROWS.bytes(self.memory).min(self.memory.saturating_sub(others));
        let mut parts = 1;
        while self.rows_bytes(parts) > share {
            parts = if parts == 1 { 4 } else { 2 * parts };
            if parts > PARTITIONS_MAX {
                return Err(EngineError::Budget {
                    operation: format!("rows of {} entities in {PARTITIONS_MAX} partitions", self.entities),
                    given: self.memory,
                    least: ROWS.budget_of(self.rows_bytes(PARTITIONS_MAX)),
                    remedy: "raise --memory, or give a smaller --embedding",
                }
                .into());
            }
        }
        Ok(parts)
    }

    /// Whether training triples are in memory.
    pub fn keeps_triples(&self) -> bool {
        self.triples_bytes() <= TRIPLES.bytes(self.memory)
    }

    fn triples_bytes(&self) -> u64 {
        self.triples.saturating_mul(size_of::<Triple>() as u64)
    }

    /// Bytes of the rows, the gradients and the scores of a batch.
    fn batch_bytes(&self) -> u64 {
        let width = 4 * padded(self.model.dim) as u64;
        let (candidates, copies) = match self.model.negatives {
            TripleNegatives::All => (self.entities, COPIES_OF_CANDIDATES),
            TripleNegatives::Shared(negatives) => (2 * u64::from(negatives), COPIES_OF_CANDIDATES),
        };
        let scores = 4 * self.batch as u64 * candidates;
        // Gradients of distances in slices, and slices of queries.
        let slices = if self.model.similarity.is_product() { 0 } else { 1 };
        width * ((COPIES_OF_BATCH + 4 * slices) * self.batch as u64 + (copies + slices) * candidates) + scores
    }

    /// Enters the leases of training into a ledger.
    ///
    /// # Errors
    /// If they exceed the limit.
    pub fn enter(&self, ledger: &mut Ledger, parts: u32, bucket_max: u64) -> Result<()> {
        let triples = match self.keeps_triples() {
            true => self.triples_bytes(),
            false => bucket_max * size_of::<Triple>() as u64,
        };
        ledger.enter(
            "training",
            vec![
                Lease::new("rows of entities", self.rows_bytes(parts), ROWS.reason),
                Lease::new("triples", triples, TRIPLES.reason),
                Lease::new("known triples", self.known, "answers to held-out triples, which filtered ranks leave out"),
                Lease::new(
                    "a batch",
                    self.batch_bytes(),
                    "rows of the triples and the candidates of a batch, their gradients, and the scores of its queries",
                ),
            ],
        )?;
        Ok(())
    }
}
