//! New files whose blocks are computed in parallel and written in order, in bounded memory.
//!
//! ```text
//! plan a round of blocks
//! while there are any:
//!     at once: make the blocks of this round, each on some thread
//!              write the blocks of the round before; plan the next round
//! ```
//!
//! A round usually has four blocks per thread of the caller's rayon pool. Two rounds are in memory.

use std::io::{Seek, SeekFrom, Write};

use rayon::prelude::*;

use super::durable::Destination;
use crate::{
    Error, Result,
    progress::{Progress, check_stopped},
};

/// Enough blocks that threads rarely wait for the slowest one.
const BLOCKS_PER_THREAD: usize = 4;

/// The most blocks in memory at the same time, with the caller's rayon pool.
pub fn blocks_at_once() -> usize {
    2 * round_len()
}

/// Blocks of a round, with the caller's rayon pool: enough that threads rarely wait.
pub fn round_len() -> usize {
    BLOCKS_PER_THREAD * rayon::current_num_threads()
}

/// A block to be made.
pub struct Planned<B> {
    /// Description of its content.
    pub block: B,
    /// Edges in it, for the progress.
    pub edges: u64,
}

/// A new file.
pub struct NewFile<'a> {
    /// Its final name. The file has it only when it is complete.
    pub destination: Destination<'a>,
    /// Bytes reserved at the start for a header.
    pub header_bytes: usize,
    /// Gets the bytes and edges of each written block.
    pub progress: &'a dyn Progress,
}

/// Block and state for making one block. Their capacity is reused.
#[derive(Default)]
struct Slot<S, T> {
    made: T,
    state: S,
    edges: u64,
}

impl NewFile<'_> {
    /// Writes the file. `plan` returns the blocks in order, and `make` appends a block's bytes. `header` makes the
    /// header from the number of those bytes. Then the file is synced and renamed to its final path. Returns the number
    /// of bytes without the header. After an error, no file is left.
    pub fn write<B: Send + Sync, S: Default + Send + Sync>(
        &self,
        plan: impl FnMut() -> Result<Option<Planned<B>>> + Send,
        make: impl Fn(&B, &mut S, &mut Vec<u8>) -> Result<()> + Sync,
        header: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<u64> {
        let temporary = self.destination.begin()?;
        let mut file = &temporary.file;
        file.seek(SeekFrom::Start(self.header_bytes as u64)).map_err(Error::io("write", &temporary.path))?;
        let mut bytes = 0;
        let make = |block: &B, state: &mut S, bytes: &mut Vec<u8>| {
            bytes.clear();
            make(block, state, bytes)
        };
        write_in_order(round_len(), plan, make, |block, edges| {
            let mut file = &temporary.file;
            file.write_all(block).map_err(Error::io("write", &temporary.path))?;
            bytes += block.len() as u64;
            self.progress.advance(block.len() as u64, edges);
            check_stopped(self.progress)
        })?;
        let header = header(bytes);
        assert_eq!(header.len(), self.header_bytes, "the header has the reserved length");
        file.rewind().and_then(|()| file.write_all(&header)).map_err(Error::io("write", &temporary.path))?;
        temporary.finish()?;
        Ok(bytes)
    }
}

/// Makes all blocks that `plan` returns, in rounds of `round_len`, and passes them with their numbers of edges to `sink`, in order. `make`
/// replaces a block that was made before.
pub fn write_in_order<B: Send + Sync, S: Default + Send + Sync, T: Default + Send + Sync>(
    round_len: usize,
    mut plan: impl FnMut() -> Result<Option<Planned<B>>> + Send,
    make: impl Fn(&B, &mut S, &mut T) -> Result<()> + Sync,
    mut sink: impl FnMut(&mut T, u64) -> Result<()> + Send,
) -> Result<()> {
    let mut plan_round = || std::iter::from_fn(|| plan().transpose()).take(round_len).collect::<Result<Vec<_>>>();
    let slots = || (0..round_len).map(|_| Slot::<S, T>::default()).collect::<Vec<_>>();
    let (mut made, mut making) = (slots(), slots());
    let (mut made_len, mut round) = (0, plan_round()?);
    while made_len > 0 || !round.is_empty() {
        let (written_and_planned, all_made) = rayon::join(
            || {
                made[..made_len].iter_mut().try_for_each(|slot| sink(&mut slot.made, slot.edges))?;
                plan_round()
            },
            || {
                making.par_iter_mut().zip(&round).try_for_each(|(slot, planned)| {
                    slot.edges = planned.edges;
                    make(&planned.block, &mut slot.state, &mut slot.made)
                })
            },
        );
        made_len = round.len();
        round = written_and_planned?;
        all_made?;
        std::mem::swap(&mut made, &mut making);
    }
    Ok(())
}
