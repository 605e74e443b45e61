//! New files whose blocks are made in parallel and written in order, in bounded memory.
//!
//! ```text
//! plan a round of blocks
//! while there are any:
//!     at once: make the blocks of this round, each on some thread
//!              write the blocks of the round before; plan the next round
//! ```
//!
//! A round has [`BLOCKS_PER_THREAD`] blocks for each thread of the pool, and two rounds are in memory.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use crate::{Error, Result, io::durable, progress::Progress};

/// Enough that threads seldom wait for the slowest.
const BLOCKS_PER_THREAD: usize = 4;

/// A block that is yet to be made.
pub(super) struct Planned<B> {
    /// What it will hold.
    pub(super) block: B,
    /// Edges in it, for the progress.
    pub(super) edges: u64,
}

/// A new file.
pub(super) struct NewFile<'a> {
    /// Its name, once it is complete.
    pub(super) path: &'a Path,
    /// Room at its start for a header.
    pub(super) header_bytes: usize,
    /// Told of every block.
    pub(super) progress: &'a dyn Progress,
}

/// What a thread makes one block with; its capacity is reused.
#[derive(Default)]
struct Slot<S> {
    bytes: Vec<u8>,
    state: S,
    edges: u64,
}

impl NewFile<'_> {
    /// Writes what `make` appends to a block's bytes for every block that `plan` returns, in order, before them the header
    /// that `header` gives for so many bytes, and syncs and names the file. Returns the number of bytes without the
    /// header. After an error nothing is left.
    pub(super) fn write<B: Send + Sync, S: Default + Send + Sync>(
        &self,
        mut plan: impl FnMut() -> Option<Planned<B>> + Send,
        make: impl Fn(&B, &mut S, &mut Vec<u8>) + Sync,
        header: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<u64> {
        if self.path.exists() {
            return Err(Error::Options(format!(
                "{} exists; remove it or choose another name",
                self.path.display()
            )));
        }
        let temporary = Temporary(durable::temporary_name(self.path));
        let mut file = File::create(&temporary.0).map_err(Error::io("create", &temporary.0))?;
        file.seek(SeekFrom::Start(self.header_bytes as u64))
            .map_err(Error::io("write", &temporary.0))?;

        let round_len = BLOCKS_PER_THREAD * rayon::current_num_threads();
        let mut plan_round = || std::iter::from_fn(&mut plan).take(round_len).collect::<Vec<_>>();
        let slots = || (0..round_len).map(|_| Slot::<S>::default()).collect::<Vec<_>>();
        let (mut made, mut making) = (slots(), slots());
        let (mut made_len, mut round) = (0, plan_round());
        let mut bytes = 0;
        while made_len > 0 || !round.is_empty() {
            let (written_and_planned, ()) = rayon::join(
                || {
                    for slot in &made[..made_len] {
                        file.write_all(&slot.bytes).map_err(Error::io("write", &temporary.0))?;
                        bytes += slot.bytes.len() as u64;
                        self.progress.advance(slot.bytes.len() as u64, slot.edges);
                    }
                    Ok(plan_round())
                },
                || {
                    making.par_iter_mut().zip(&round).for_each(|(slot, planned)| {
                        slot.bytes.clear();
                        slot.edges = planned.edges;
                        make(&planned.block, &mut slot.state, &mut slot.bytes);
                    });
                },
            );
            made_len = round.len();
            round = written_and_planned?;
            std::mem::swap(&mut made, &mut making);
        }

        let header = header(bytes);
        assert_eq!(header.len(), self.header_bytes, "the header fits the room left for it");
        file.rewind()
            .and_then(|()| file.write_all(&header))
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", &temporary.0))?;
        durable::rename(&temporary.0, self.path)?;
        Ok(bytes)
    }
}

/// Removes the file on the way out, unless it was renamed before.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It is gone if all went well; if it cannot be removed, then whatever went wrong says more.
        let _ = fs::remove_file(&self.0);
    }
}
