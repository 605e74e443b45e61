//! One copy of the resident rows for all processes of a machine that train together.
//!
//! They share if one of them has no room for all rows. Copies of their own are faster: they are on huge pages, which
//! memory that processes share mostly cannot be. One of them makes the memory, and each reads a part of the rows into
//! it:
//!
//! ```text
//! agree    all have room for their part, one lacks room for all, and they mean the same rows
//! make     the first makes the memory, and the others open it
//! fill     each reads its part, and waits for the others
//! ```
//!
//! Otherwise each opens its feed alone.

use std::sync::Arc;

use grappa_formats::{ChunkId, random};
use grappa_io::{
    Result,
    read::ReadEngine,
    shared::{SharedMemory, SharedName},
};

use super::{files::RowFiles, options::HostProcesses, resident::Resident};

/// The rows that a process has room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// All rows.
    pub for_all: bool,
    /// Its part of the rows.
    pub for_part: bool,
}

/// Memory that processes share, before it is filled.
#[derive(Debug)]
pub(super) struct SharedRows {
    host: Arc<dyn HostProcesses>,
    memory: SharedMemory,
}

impl SharedRows {
    /// Makes memory for the rows of `chunks` with the other processes. `room` says what fits this process, and
    /// `identity` names the rows. None if the processes do not share.
    ///
    /// # Errors
    /// If another process has ended.
    pub fn agree(
        host: &Arc<dyn HostProcesses>,
        files: &RowFiles,
        chunks: &[ChunkId],
        identity: u64,
        room: Room,
    ) -> Result<Option<Self>> {
        let bytes = Resident::bytes(files, chunks);
        let rows = chunks.iter().fold(identity, |hash, chunk| random::combine(hash, chunk.0.into()));
        let told = host.exchange(&[bytes, rows, room.for_part.into(), room.for_all.into()])?;
        let can_share = told.iter().all(|told| told.starts_with(&[bytes, rows, 1]));
        if !can_share || told.iter().all(|told| told.ends_with(&[1])) {
            return Ok(None);
        }
        let made = match host.index() {
            0 => SharedMemory::create(bytes).and_then(|memory| Ok((memory.name()?, memory))).ok(),
            _ => None,
        };
        let name = made.as_ref().map_or([0; 4], |(name, _)| name.0);
        let told = host.exchange(&name)?;
        let memory = match (made, <[u64; 4]>::try_from(&told[0][..])) {
            (Some((_, memory)), _) => Some(memory),
            (None, Ok(name)) => SharedMemory::open(SharedName(name), bytes)
                .inspect_err(|error| tracing::debug!("no shared feature rows: {error}"))
                .ok(),
            (None, Err(_)) => None,
        };
        let are_open = host.exchange(&[u64::from(memory.is_some())])?.iter().all(|told| *told == [1]);
        Ok(memory.filter(|_| are_open).map(|memory| Self { host: host.clone(), memory }))
    }

    /// Reads the part of this process, and waits for the other processes.
    ///
    /// # Errors
    /// If files cannot be read, or another process has ended.
    pub fn fill(self, files: &RowFiles, chunks: &[ChunkId], engine: &mut dyn ReadEngine) -> Result<Resident> {
        let (index, count) = (self.host.index().into(), self.host.count().into());
        let rows = Resident::load_part(files, chunks, self.memory.arena()?, (index, count), engine)?;
        self.host.exchange(&[])?;
        Ok(rows)
    }
}
