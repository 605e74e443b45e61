//! What ranks say when they join, and the errors about ranks that do not belong together.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::{Error, Result};

/// The message of a rank that joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Settings that must be the same on all ranks: a name, and a value that people can compare. The first one that differs is reported,
    /// so a setting comes before settings that follow from it.
    pub same: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrival {
    pub ranks: u32,
    pub host: String,
    pub process: u32,
    pub hello: Hello,
}

/// The error about ranks that did not come. `refused` is the last connection to the store that was refused.
pub(super) fn never_came(missing: &[u32], place: &Place, timeout: Duration, refused: Option<String>) -> Error {
    let refused = refused.map_or_else(String::new, |refused| format!("; a connection from {refused}"));
    let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
    Error::Distributed(format!(
        "rank {} did not come within {} s (--join-timeout); WORLD_SIZE is {}: start as many processes, with the same MASTER_ADDR and \
         MASTER_PORT{refused}",
        ranks.join(", "),
        timeout.as_secs_f64(),
        place.ranks
    ))
}

/// The error about another process with the rank of this one, which has `found` as its arrival.
pub(super) fn duplicate(place: &Place, found: &[u8]) -> Error {
    let who = match serde_json::from_slice::<Arrival>(found) {
        Ok(other) => format!("process {} on {}", other.process, other.host),
        Err(_) => "another process".to_owned(),
    };
    Error::Distributed(format!(
        "{who} is rank {} too: give each process another RANK, or each job another MASTER_PORT",
        place.rank
    ))
}

/// The error of a rank that lost the store while it joined.
pub(super) fn lost(place: &Place, text: &str) -> Error {
    Error::Distributed(format!("rank {} lost the store of {} while it joined: {text}", place.rank, place.store_of))
}

/// Refuses a rank that does not belong to this one.
pub(super) fn compare(place: &Place, own: &Arrival, rank: u32, other: &[u8]) -> Result<()> {
    let Ok(other) = serde_json::from_slice::<Arrival>(other) else {
        return Err(Error::Distributed(format!("rank {rank} is another program, or another version of this one")));
    };
    if other.ranks != own.ranks {
        return Err(Error::Distributed(format!(
            "rank {rank} has WORLD_SIZE {} and rank {} has {}: all ranks need the same",
            other.ranks, place.rank, own.ranks
        )));
    }
    for (name, value) in &own.hello.same {
        let same = other.hello.same.iter().find(|(other, _)| other == name);
        let other_value = same.map_or("none", |(_, value)| value);
        if other_value != value {
            return Err(Error::Distributed(format!(
                "ranks differ in the {name}: rank {} has {value}, and rank {rank} on {} has {other_value}",
                place.rank, other.host
            )));
        }
    }
    Ok(())
}
