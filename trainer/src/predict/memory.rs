//! The division of memory among the stages of a prediction. Each stage frees its memory before the next one begins.

use grappa_engine::aggregate::Budget;
use grappa_io::ledger::{Lease, Ledger, MemoryShare};

use crate::Result;

/// The inference, of the memory that results leave.
const INFERENCE: MemoryShare = MemoryShare::fraction(
    "states and features",
    [3, 4],
    "the other 1/4 is for the model, tensors of libtorch, and rows that are encoded; chosen, not measured",
);
/// The rows of all nodes while they are put into the order of external ids.
const ORDER: MemoryShare =
    MemoryShare::one("rows in order of ids", 2, "the other 1/2 is for tables that are encoded; chosen, not measured");
/// Embeddings that links are predicted from.
const EMBEDDINGS: MemoryShare = MemoryShare::one(
    "embeddings",
    2,
    "embeddings of more than 1/2 are in a scratch file, so that inference and comparisons keep as much; chosen, not measured",
);
/// Comparisons of embeddings, of the memory that embeddings leave.
const COMPARISONS: MemoryShare = MemoryShare::one(
    "comparisons of embeddings",
    2,
    "the other 1/2 is for pairs, sets of nodes and tables that are encoded; chosen, not measured",
);

/// The budget of a prediction, and the leases of its stages.
pub(super) struct PredictionMemory {
    budget: Budget,
    /// Bytes of embeddings in memory.
    embeddings: u64,
    pub ledger: Ledger,
}

impl PredictionMemory {
    pub fn new(budget: Budget) -> Self {
        Self { budget, embeddings: 0, ledger: Ledger::new(budget.memory) }
    }

    /// The budget of an inference whose results stay in memory as single rows, which count as nothing.
    pub fn inference_of_few(&mut self) -> Result<Budget> {
        let all = Lease::new(INFERENCE.name, self.budget.memory, "few results beside it");
        self.ledger.enter("inference", vec![all])?;
        Ok(self.budget)
    }

    /// The budget of an inference.
    pub fn inference(&mut self) -> Result<Budget> {
        self.stage("inference", INFERENCE)
    }

    /// The budget for rows that are put in order.
    pub fn order(&self) -> Budget {
        Budget { memory: ORDER.bytes(self.budget.memory), ..self.budget }
    }

    /// Notes the memory of rows that are put in order.
    pub fn enter_order(&mut self, lease: Lease) -> Result<()> {
        Ok(self.ledger.enter("ordering", vec![lease])?)
    }

    /// Adds to an error about too little memory for rows in order what the rest takes.
    pub fn in_order<T>(&self, result: grappa_io::Result<T>) -> Result<T> {
        Ok(result.map_err(grappa_io::Error::in_budget(self.budget.memory, |least| ORDER.budget_of(least)))?)
    }

    /// Bytes of memory that embeddings may take.
    pub fn embeddings_max(&self) -> u64 {
        EMBEDDINGS.bytes(self.budget.memory)
    }

    /// Notes the bytes of embeddings that stay in memory from now on.
    pub fn hold_embeddings(&mut self, bytes: u64) {
        self.embeddings = bytes;
    }

    /// The budget of comparisons.
    pub fn comparisons(&mut self) -> Result<Budget> {
        self.stage("comparing", COMPARISONS)
    }

    /// Enters a stage that takes a share of the memory that embeddings leave.
    fn stage(&mut self, phase: &'static str, share: MemoryShare) -> Result<Budget> {
        let memory = share.bytes(self.budget.memory - self.embeddings);
        self.ledger.enter(phase, vec![EMBEDDINGS.lease_of(self.embeddings), share.lease_of(memory)])?;
        Ok(Budget { memory, ..self.budget })
    }
}
