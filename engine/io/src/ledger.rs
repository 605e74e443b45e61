//! The ledger of a memory limit: who may take how much of it, and why.
//!
//! A process has one limit, `--memory`. Each consumer of memory that grows with the graph takes a [`Lease`]: a name, a number of bytes and a
//! reason. Leases of one phase are in memory at the same time, so their sum must not exceed the limit; [`Ledger::enter`] checks this before
//! the phase begins. Some phases may exceed the limit, such as an inference with little memory. [`split_at_limit`] lists their excess as
//! memory beside the limit, so that the check passes and the ledger shows the excess. A [`MemoryShare`] is a part of a budget by a constant, which is declared with its reason.
//!
//! The ledger allocates nothing and enforces nothing while a phase runs: consumers size their buffers by the same numbers.

use std::fmt;

use serde::Serialize;

use crate::{Error, Result, size::ByteSize};

/// A constant part of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShare {
    /// The consumer: a noun phrase.
    pub name: &'static str,
    numerator: u64,
    denominator: u64,
    /// Why the part has this size: a sentence without a full stop.
    pub reason: &'static str,
}

impl MemoryShare {
    /// 1/`denominator` of a budget for the consumer `name`.
    pub const fn one(name: &'static str, denominator: u64, reason: &'static str) -> Self {
        Self::fraction(name, [1, denominator], reason)
    }

    /// A fraction of a budget: numerator and denominator.
    pub const fn fraction(name: &'static str, fraction: [u64; 2], reason: &'static str) -> Self {
        let [numerator, denominator] = fraction;
        assert!(0 < numerator && numerator < denominator, "a share is less than the budget");
        Self { name, numerator, denominator, reason }
    }

    /// Whether consumers that have these parts at the same time stay within the budget.
    pub const fn fit(shares: &[Self]) -> bool {
        let (mut numerator, mut denominator, mut index) = (0, 1, 0);
        while index < shares.len() {
            numerator = numerator * shares[index].denominator + shares[index].numerator * denominator;
            denominator *= shares[index].denominator;
            index += 1;
        }
        numerator <= denominator
    }

    /// The part of a budget of `memory` bytes, rounded down.
    pub const fn bytes(&self, memory: u64) -> u64 {
        memory / self.denominator * self.numerator
    }

    /// The part as a number between 0 and 1.
    pub fn ratio(&self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// The smallest budget whose part has `bytes`, apart from rounding.
    pub fn budget_of(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.denominator).div_ceil(self.numerator)
    }

    /// The smallest budget that leaves `bytes` beside the part, apart from rounding.
    pub fn budget_beside(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.denominator).div_ceil(self.denominator - self.numerator)
    }

    /// A lease of the part of a budget of `memory` bytes.
    pub fn lease(&self, memory: u64) -> Lease {
        self.lease_of(self.bytes(memory))
    }

    /// A lease of `bytes`, where the consumer needs less than its part.
    pub fn lease_of(&self, bytes: u64) -> Lease {
        Lease::new(self.name, bytes, self.reason)
    }
}

/// Memory of one consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// The consumer: a noun phrase.
    pub name: &'static str,
    /// The most that it takes, in bytes.
    pub bytes: u64,
    /// Whether these bytes come on top of the limit.
    pub beside_limit: bool,
    /// Why it takes this much: a sentence without a full stop.
    pub reason: &'static str,
}

impl Lease {
    /// `bytes` of the limit for the consumer `name`.
    pub fn new(name: &'static str, bytes: u64, reason: &'static str) -> Self {
        Self { name, bytes, beside_limit: false, reason }
    }

    /// The lease, on top of the limit.
    #[must_use]
    pub fn beside_limit(self) -> Self {
        Self { beside_limit: true, ..self }
    }
}

/// Bytes of all `leases` that count against the limit.
pub fn leased_bytes(leases: &[Lease]) -> u64 {
    leases.iter().filter(|lease| !lease.beside_limit).fold(0, |sum, lease| sum.saturating_add(lease.bytes))
}

/// Divides leases at a limit: what exceeds it becomes leases of the same names beside the limit. The first leases fill the limit.
pub fn split_at_limit(limit: u64, leases: Vec<Lease>) -> Vec<Lease> {
    let mut left = limit;
    let parts = leases.into_iter().flat_map(|lease| {
        let inside = if lease.beside_limit { 0 } else { lease.bytes.min(left) };
        left -= inside;
        let beside = Lease { bytes: lease.bytes - inside, ..lease.clone() }.beside_limit();
        [Lease { bytes: inside, ..lease }, beside]
    });
    parts.filter(|lease| lease.bytes > 0).collect()
}

/// Leases that are in memory at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// The phase: a noun phrase.
    pub name: &'static str,
    /// The leases. None has 0 bytes.
    pub leases: Vec<Lease>,
}

/// The leases of a process, by phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// The limit of each phase, in bytes.
    pub limit: u64,
    /// The phases, in the order in which the process entered them first.
    pub phases: Vec<Phase>,
}

impl Ledger {
    /// A ledger without leases.
    pub fn new(limit: u64) -> Self {
        Self { limit, phases: Vec::new() }
    }

    /// Notes the leases of the phase `name`, instead of those that it had before. Leases of 0 bytes are left out.
    ///
    /// # Errors
    /// If the leases exceed the limit. The error names each of them, and the smallest limit that would do.
    pub fn enter(&mut self, name: &'static str, mut leases: Vec<Lease>) -> Result<()> {
        leases.retain(|lease| lease.bytes > 0);
        let least = leased_bytes(&leases);
        if least > self.limit {
            let inside = leases.iter().filter(|lease| !lease.beside_limit);
            let listed: Vec<_> = inside.map(|lease| format!("{} ({})", lease.name, ByteSize(lease.bytes))).collect();
            return Err(Error::Budget {
                operation: format!("{name}: {}", listed.join(", ")),
                given: self.limit,
                least,
                remedy: "raise --memory",
            });
        }
        match self.phases.iter_mut().find(|phase| phase.name == name) {
            Some(phase) => phase.leases = leases,
            None => self.phases.push(Phase { name, leases }),
        }
        Ok(())
    }
}

/// A table of the leases, with a heading for each phase and no line feed at the end.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, phase) in self.phases.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            let leased = ByteSize(leased_bytes(&phase.leases));
            write!(f, "{separator}{}: {leased} of {}", phase.name, ByteSize(self.limit))?;
            let width = phase.leases.iter().map(|lease| lease.name.len()).max().unwrap_or(0);
            for lease in &phase.leases {
                let beside = if lease.beside_limit { "beside the limit: " } else { "" };
                write!(f, "\n  {:<width$}  {:>10}  {beside}{}", lease.name, ByteSize(lease.bytes), lease.reason)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: MemoryShare = MemoryShare::one("a quarter", 4, "chosen for the test");
    const MOST: MemoryShare = MemoryShare::fraction("most", [7, 8], "chosen for the test");

    #[test]
    fn leases_of_a_phase_fill_the_limit_and_never_exceed_it() {
        let mut ledger = Ledger::new(100);
        let leases = |rest| vec![QUARTER.lease(100), Lease::new("rows", rest, "what is left")];
        ledger.enter("steps", leases(75)).unwrap();
        // Another phase has all of the limit again.
        ledger.enter("evaluation", leases(75)).unwrap();
        let error = ledger.enter("steps", leases(76)).unwrap_err();
        assert!(matches!(error, Error::Budget { given: 100, least: 101, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("steps: a quarter (25 B), rows (76 B)"), "{text}");
        assert_eq!(leased_bytes(&ledger.phases[0].leases), 100, "a refused phase changes nothing");
    }

    #[test]
    fn leases_beside_the_limit_are_listed_and_not_counted() {
        let mut ledger = Ledger::new(10);
        ledger.enter("steps", vec![Lease::new("kept", 11, "stays").beside_limit(), QUARTER.lease_of(0)]).unwrap();
        let [phase] = &ledger.phases[..] else { panic!("{ledger:?}") };
        assert_eq!((phase.leases.len(), leased_bytes(&phase.leases)), (1, 0));
        assert_eq!(ledger.to_string(), "steps: 0 B of 10 B\n  kept        11 B  beside the limit: stays");
    }

    #[test]
    fn leases_beyond_the_limit_become_leases_beside_it() {
        let leases = [7, 5, 1].map(|bytes| Lease::new("rows", bytes, "rows"));
        let beside = [(7, false), (3, false), (2, true), (1, true)];
        let beside = beside.map(|(bytes, beside_limit)| Lease { beside_limit, ..Lease::new("rows", bytes, "rows") });
        assert_eq!(split_at_limit(10, leases.to_vec()), beside);
        assert_eq!(split_at_limit(13, leases.to_vec()), leases);
    }

    #[test]
    fn a_phase_that_is_entered_again_replaces_its_leases() {
        let mut ledger = Ledger::new(10);
        for bytes in [10, 4] {
            ledger.enter("steps", vec![Lease::new("rows", bytes, "rows")]).unwrap();
        }
        assert_eq!(ledger.phases, [Phase { name: "steps", leases: vec![Lease::new("rows", 4, "rows")] }]);
    }

    #[test]
    fn the_budget_of_a_part_has_that_part() {
        for bytes in [0, 1, 7, 1000, 12_345] {
            for share in [QUARTER, MOST] {
                // Parts are rounded down.
                let budget = share.budget_of(bytes) + 8;
                assert!((bytes..bytes + 16).contains(&share.bytes(budget)), "{share:?}, {bytes}");
                let budget = share.budget_beside(bytes) + 8;
                assert!((bytes..bytes + 72).contains(&(budget - share.bytes(budget))), "{share:?}, {bytes}");
            }
        }
        assert_eq!((QUARTER.bytes(102), MOST.bytes(80)), (25, 70));
        assert!(MemoryShare::fit(&[QUARTER; 4]) && !MemoryShare::fit(&[QUARTER, MOST]));
    }
}
