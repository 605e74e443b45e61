//! The ranks on one machine, which share feature rows in memory.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use grappa_io::Error;
use grappa_sampling::feed::HostProcesses;

use super::group::ProcessGroup;
use crate::Result;

/// The ranks that can open each other's memory.
#[derive(Debug)]
pub struct LocalRanks {
    group: Arc<ProcessGroup>,
    /// They, and this one among them.
    ranks: Vec<u32>,
    /// Number of exchanges so far.
    exchanges: AtomicU64,
}

/// The boot of the kernel and the process namespace. Ranks for which both are equal can see each other's processes. None if the system does
/// not tell.
fn machine() -> Option<[String; 2]> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some([boot, fs::read_link("/proc/self/ns/pid").ok()?.display().to_string()])
}

impl LocalRanks {
    /// The ranks on the machine of this one; none if it is alone there. All ranks must call it.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached.
    pub fn find(group: &Arc<ProcessGroup>) -> Result<Option<Self>> {
        let own = machine();
        let machines = group.gather_all("machines", own.clone())?;
        let here = (0..).zip(&machines).filter(|(_, machine)| own.is_some() && **machine == own);
        let ranks: Vec<u32> = here.map(|(rank, _)| rank).collect();
        Ok((ranks.len() > 1).then(|| Self { group: group.clone(), ranks, exchanges: AtomicU64::new(0) }))
    }
}

impl HostProcesses for LocalRanks {
    fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn index(&self) -> u32 {
        let own = self.group.place().rank;
        self.ranks.iter().position(|&rank| rank == own).expect("this rank is among them") as u32
    }

    fn exchange(&self, numbers: &[u64]) -> grappa_io::Result<Vec<Vec<u64>>> {
        let name = format!("local/{}/{}", self.ranks[0], self.exchanges.fetch_add(1, Relaxed));
        // The caller asks the group who has left.
        self.group.exchange(&name, &self.ranks, numbers.to_vec()).map_err(|_| Error::Stopped)
    }
}
