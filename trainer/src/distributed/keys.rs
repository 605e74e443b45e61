//! The keys of the store, and how their values are encoded.
//!
//! ```text
//! hello/RANK     RANK has come: who it is, and what must be the same on all ranks
//! alive/RANK     a counter that RANK raises twice a second
//! left           the first rank that ended before the work was finished, and why
//! bye/RANK       RANK needs the store no more
//! ```

use serde::{Deserialize, Serialize};

pub(super) const PREFIX: &str = "grappa";

pub(super) fn prefix(attempt: u64) -> String {
    format!("{PREFIX}/{attempt}")
}

pub(super) const LEFT: &str = "left";

/// The end of a rank before the work was finished.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Departure {
    pub rank: u32,
    /// It was asked to stop.
    pub is_stop: bool,
    /// The reason, as the rest of a sentence that begins with the rank.
    pub reason: String,
}

pub(super) fn hello(rank: u32) -> String {
    format!("hello/{rank}")
}

pub(super) fn bye(rank: u32) -> String {
    format!("bye/{rank}")
}

pub(super) fn alive(rank: u32) -> String {
    format!("alive/{rank}")
}

pub(super) fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("messages are representable")
}
