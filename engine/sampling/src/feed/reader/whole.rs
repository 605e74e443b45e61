//! Reads payloads sequentially into memory.

use grappa_io::{
    Result,
    arena::Arena,
    read::{FileIndex, Read, ReadEngine},
};

use crate::feed::files::RowFiles;

/// Number of reads that are passed to the engine at once.
pub(super) const SUBMIT_READS: usize = 64;

/// The first bytes of the payload of a file, and where in memory they go.
#[derive(Debug, Clone, Copy)]
pub(in crate::feed) struct PayloadRead {
    pub file: FileIndex,
    pub bytes: u64,
    /// Offset in memory.
    pub to: u64,
}

/// Reads payloads into `memory` as fast as the engine can, and verifies them.
pub(in crate::feed) fn read_whole(
    payloads: &[PayloadRead],
    files: &RowFiles,
    engine: &mut dyn ReadEngine,
    memory: &mut Arena,
) -> Result<()> {
    let length_max = u64::from(engine.read_bytes_max());
    let mut reads = payloads
        .iter()
        .flat_map(|payload| {
            let header = files.checksums(payload.file).header();
            let block_bytes = u64::from(header.block_bytes);
            // Reads have whole blocks, so that each can be verified while it is in the processor's cache.
            let length_max = match length_max - length_max % block_bytes {
                0 => length_max,
                blocks => blocks,
            };
            (0..payload.bytes.div_ceil(length_max)).map(move |part| {
                let at = part * length_max;
                Read {
                    file: payload.file,
                    offset: header.payload_offset + at,
                    length: (payload.bytes - at).min(length_max) as u32,
                    tag: payload.to + at,
                }
            })
        })
        .peekable();
    let mut waiting = Vec::with_capacity(SUBMIT_READS);
    loop {
        loop {
            waiting.extend(reads.by_ref().take(SUBMIT_READS - waiting.len()));
            let submitted = engine.submit(&waiting)?;
            waiting.drain(..submitted);
            if submitted == 0 || engine.in_flight() >= engine.depth() {
                break;
            }
        }
        let mut checked = Ok(());
        let completed = engine.complete(&mut |read, bytes| {
            let place = read.tag as usize..read.tag as usize + bytes.len();
            memory[place.clone()].copy_from_slice(bytes);
            memory.filled(place.end);
            let checksums = files.checksums(read.file);
            // Blocks that are longer than a read are verified at the end.
            if checked.is_ok() && u64::from(checksums.header().block_bytes) <= length_max {
                checked = files.check_read(read.file, read.offset, bytes);
            }
        })?;
        if let Err(error) = checked {
            abandon(engine);
            return Err(error);
        }
        if completed == 0 && waiting.is_empty() && reads.peek().is_none() {
            break;
        }
    }
    for payload in payloads {
        files.files()[payload.file.0 as usize].check_unchanged()?;
        let bytes = &memory[payload.to as usize..(payload.to + payload.bytes) as usize];
        let checksums = files.checksums(payload.file);
        // Blocks that are verified already cost nothing here.
        files.check_read(payload.file, checksums.header().payload_offset, bytes)?;
        checksums.release();
    }
    Ok(())
}

/// Waits for the reads in flight, and ignores their results.
pub(super) fn abandon(engine: &mut dyn ReadEngine) {
    // After an error nothing is in flight.
    while matches!(engine.complete(&mut |_, _| {}), Ok(1..)) {}
}
