//! Reads payloads sequentially into memory.

use grappa_io::{
    Result,
    arena::Arena,
    read::{FileIndex, Read, ReadEngine},
};

use super::reads::read_all;
use crate::feed::files::RowFiles;

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
    let length_max = u64::from(engine.options().read_bytes_max);
    let reads = payloads.iter().flat_map(|payload| {
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
    });
    read_all(reads, engine, None, |read, bytes| {
        let place = read.tag as usize..read.tag as usize + bytes.len();
        memory[place.clone()].copy_from_slice(bytes);
        memory.filled(place.end);
        // Blocks that are longer than a read are verified at the end.
        match u64::from(files.checksums(read.file).header().block_bytes) <= length_max {
            true => files.check_read(read.file, read.offset, bytes),
            false => Ok(()),
        }
    })?;
    for payload in payloads {
        files.files[payload.file.0 as usize].check_unchanged()?;
        let bytes = &memory[payload.to as usize..(payload.to + payload.bytes) as usize];
        let checksums = files.checksums(payload.file);
        // Blocks that are verified already cost nothing here.
        files.check_read(payload.file, checksums.header().payload_offset, bytes)?;
        checksums.release();
    }
    Ok(())
}
