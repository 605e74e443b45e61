//! The place of a process in a job, from the environment variables that torchrun and other launchers set.

use std::{env, fmt, num::NonZero, str::FromStr};

use super::secret::{SECRET, Secret};
use crate::{Error, Result};

/// The variable by which a process knows that `grappa-train --workers` started it. It has the id of that process.
pub const LAUNCHER: &str = "GRAPPA_LAUNCHER";

/// The place of this process among the processes that train together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// RANK: the number of this process.
    pub rank: u32,
    /// WORLD_SIZE: the number of processes.
    pub ranks: u32,
    /// LOCAL_RANK: its number on this host, 0 if it is not set.
    pub local_rank: u32,
    /// LOCAL_WORLD_SIZE: the number of processes on this host, 1 if it is not set.
    pub local_ranks: u32,
    /// MASTER_ADDR and MASTER_PORT: where the store is served.
    pub store: (String, u16),
    /// Who serves the store.
    pub store_of: StoreOf,
    /// TORCHELASTIC_RESTART_COUNT is set: the launcher starts all processes again when one ends.
    pub is_restarted: bool,
    /// GRAPPA_SECRET: what the ranks know and others do not.
    pub secret: Secret,
}

/// Who serves the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOf {
    /// Rank 0.
    FirstRank,
    /// The launcher of `--workers`.
    Workers,
    /// TORCHELASTIC_USE_AGENT_STORE: torchrun, a TCPStore of PyTorch.
    Torchrun,
}

impl fmt::Display for StoreOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstRank => "rank 0",
            Self::Workers => "the launcher",
            Self::Torchrun => "torchrun",
        })
    }
}

impl Place {
    /// The place that the environment names. None if RANK and WORLD_SIZE are not set, or WORLD_SIZE is 1.
    ///
    /// # Errors
    /// If variables are missing or contradict each other.
    pub fn from_environment() -> Result<Option<Self>> {
        Self::from_variables(&|name| env::var(name).ok())
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        if variable("RANK").is_none() && variable("WORLD_SIZE").is_none() {
            return Ok(None);
        }
        let ranks = required::<NonZero<u32>>(variable, "WORLD_SIZE")?.get();
        let rank: u32 = required(variable, "RANK")?;
        check_rank(["RANK", "WORLD_SIZE"], "ranks", rank, ranks)?;
        if ranks == 1 {
            return Ok(None);
        }
        let optional = |name, default: u32| match variable(name) {
            Some(_) => required(variable, name),
            None => Ok(default),
        };
        let local_rank = optional("LOCAL_RANK", 0)?;
        let local_ranks = optional("LOCAL_WORLD_SIZE", 1)?.max(1);
        if variable("LOCAL_WORLD_SIZE").is_some() {
            check_rank(["LOCAL_RANK", "LOCAL_WORLD_SIZE"], "local ranks", local_rank, local_ranks)?;
        }
        let is_torchrun = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        let store_of = match variable(LAUNCHER) {
            Some(_) => StoreOf::Workers,
            None if is_torchrun => StoreOf::Torchrun,
            None => StoreOf::FirstRank,
        };
        let secret = variable(SECRET);
        if is_torchrun && secret.is_some() {
            return Err(Error::Distributed(format!(
                "{SECRET} is set, and the store of torchrun takes no secret: start the ranks in another way (see docs/distributed.md), or \
                 unset {SECRET}"
            )));
        }
        Ok(Some(Self {
            rank,
            ranks,
            local_rank,
            local_ranks,
            store: (required(variable, "MASTER_ADDR")?, required::<NonZero<u16>>(variable, "MASTER_PORT")?.get()),
            store_of,
            is_restarted: variable("TORCHELASTIC_RESTART_COUNT").is_some(),
            secret: Secret::from_variable(secret.as_deref())?,
        }))
    }

    pub(super) fn serves_store(&self) -> bool {
        self.rank == 0 && self.store_of == StoreOf::FirstRank
    }
}

fn check_rank([name, name_of_count]: [&str; 2], kind: &str, rank: u32, count: u32) -> Result<()> {
    if rank < count {
        return Ok(());
    }
    let last = count - 1;
    Err(Error::Distributed(format!("{name} is {rank} and {name_of_count} is {count}: {kind} count from 0 to {last}")))
}

/// The value of a variable that must be set.
fn required<T: FromStr>(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<T> {
    let Some(text) = variable(name) else {
        return Err(Error::Distributed(format!(
            "{name} is not set, although RANK or WORLD_SIZE is: set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as \
             torchrun does, or unset RANK and WORLD_SIZE to train with one process"
        )));
    };
    text.trim().parse().map_err(|_| {
        Error::Distributed(format!(
            "{name} is `{text}`, which is not a value for it: torchrun sets the variables RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR \
             and MASTER_PORT right"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)]) -> Result<Option<Place>> {
        Place::from_variables(&|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_place_is_read_from_the_variables_of_torchrun() {
        let mut variables = vec![
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
        ];
        let expected = Place {
            rank: 3,
            ranks: 4,
            local_rank: 1,
            local_ranks: 2,
            store: ("node0".to_owned(), 29500),
            store_of: StoreOf::FirstRank,
            is_restarted: false,
            secret: Secret::from_variable(None).unwrap(),
        };
        assert_eq!(place(&variables).unwrap(), Some(expected.clone()));
        variables.extend([("TORCHELASTIC_USE_AGENT_STORE", "True"), ("TORCHELASTIC_RESTART_COUNT", "2")]);
        let restarted = Place { store_of: StoreOf::Torchrun, is_restarted: true, ..expected };
        assert_eq!(place(&variables).unwrap(), Some(restarted));
        variables.push((SECRET, "0123456789abcdef"));
        let error = place(&variables).unwrap_err().to_string();
        assert!(error.contains("the store of torchrun takes no secret"), "{error}");
    }

    #[test]
    fn a_secret_is_read_from_its_variable_and_may_not_be_short() {
        let group = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
        let with = |secret| place(&[&group[..], &[(SECRET, secret)]].concat());
        let found = with("0123456789abcdef").unwrap().unwrap().secret;
        assert_eq!(found, Secret::from_variable(Some("0123456789abcdef")).unwrap());
        assert_ne!(found, place(&group).unwrap().unwrap().secret);
        let error = with("short").unwrap_err().to_string();
        assert!(error.starts_with("GRAPPA_SECRET has 5 characters, and needs 16 or more: "), "{error}");
    }

    #[test]
    fn a_single_process_needs_no_group() {
        assert_eq!(place(&[]).unwrap(), None);
        assert_eq!(place(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), None);
    }

    #[test]
    fn variables_that_are_missing_or_wrong_are_named() {
        let error = |variables: &[(&str, &str)]| place(variables).expect_err("it is wrong").to_string();
        assert!(error(&[("RANK", "0")]).starts_with("WORLD_SIZE is not set"));
        assert!(error(&[("WORLD_SIZE", "2")]).starts_with("RANK is not set"));
        assert!(error(&[("RANK", "0"), ("WORLD_SIZE", "2")]).starts_with("MASTER_ADDR is not set"));
        assert!(
            error(&[("RANK", "2"), ("WORLD_SIZE", "2")])
                .starts_with("RANK is 2 and WORLD_SIZE is 2: ranks count from 0 to 1")
        );
        assert!(error(&[("RANK", "x"), ("WORLD_SIZE", "2")]).starts_with("RANK is `x`"));
        assert!(error(&[("RANK", "0"), ("WORLD_SIZE", "0")]).starts_with("WORLD_SIZE is `0`"));
        let in_group = |more: &[(&'static str, &'static str)]| {
            let group = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")];
            error(&[&group[..], more].concat())
        };
        for port in ["0", "99999"] {
            let expected = format!("MASTER_PORT is `{port}`");
            assert!(in_group(&[("MASTER_PORT", port)]).starts_with(&expected));
        }
        let local = [("LOCAL_RANK", "7"), ("LOCAL_WORLD_SIZE", "2")];
        assert!(
            in_group(&local).starts_with("LOCAL_RANK is 7 and LOCAL_WORLD_SIZE is 2: local ranks count from 0 to 1")
        );
    }
}
