//! Reads find damage, for any block length.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use grappa_formats::container::{BlockHasher, FileKind};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::map::Access;

const PAYLOAD_BYTES: usize = 50_000;

/// A file with blocks of `block_bytes`, and its payload.
fn file(path: &Path, block_bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..PAYLOAD_BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let mut hasher = BlockHasher::new(block_bytes);
    hasher.update(&payload);
    let (header, table) = hasher.finish(FileKind::ROWS, vec![1, 2, 3], 128);
    fs::write(path, [header.encode(), payload.clone(), table].concat()).unwrap();
    payload
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

const BLOCKS: [usize; 5] = [4096, 64 << 10, 1000, 100_000, 512];

#[test]
fn a_flipped_byte_is_found_by_reads_of_its_block_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for block_bytes in BLOCKS {
        for at in [0, 1, 4095, 4096, 20_000, PAYLOAD_BYTES - 1] {
            let payload = file(&path, block_bytes);
            flip(&path, 128 + at as u64);
            let block = at / block_bytes * block_bytes;
            let opened = ContainerFile::open(&path, FileKind::ROWS).unwrap();
            let mapped = MappedPayload::new(&opened, Access::Random).unwrap();
            for (start, end) in [(0, 1), (block, block + 1), (at, at + 1), (0, PAYLOAD_BYTES), (25_000, 45_000)] {
                let is_hit = start < block + block_bytes && end > block;
                let mut buffer = vec![0; end - start];
                let read = opened.read_at(&mut buffer, start as u64);
                let got = mapped.get(start as u64..end as u64);
                assert_eq!(read.is_err(), is_hit, "blocks of {block_bytes}: {at} in {start}..{end}");
                assert_eq!(got.is_err(), is_hit, "blocks of {block_bytes}: {at} in {start}..{end}");
                if !is_hit {
                    assert_eq!(buffer, payload[start..end]);
                    assert_eq!(got.unwrap(), &payload[start..end]);
                    continue;
                }
                for error in [read.unwrap_err(), got.unwrap_err()] {
                    let message = error.to_string();
                    let expected = format!("file: payload block at offset {}: checksum is", 128 + block);
                    assert!(message.contains(&expected), "{message}");
                }
            }
        }
    }
}

#[test]
fn a_damaged_checksum_table_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for block_bytes in BLOCKS {
        file(&path, block_bytes);
        // Damages the entry of the last block, which is never read.
        flip(&path, fs::metadata(&path).unwrap().len() - 1);
        let opened = ContainerFile::open(&path, FileKind::ROWS).unwrap();
        let mapped = MappedPayload::new(&opened, Access::Random).unwrap();
        let table = opened.header().table_offset();
        for error in [opened.read_at(&mut [0], 0).unwrap_err(), mapped.get(0..1).unwrap_err()] {
            let message = error.to_string();
            assert!(message.contains(&format!("checksum table at offset {table}")), "{message}");
        }
    }
}

#[test]
fn files_are_read_in_pieces_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for block_bytes in BLOCKS {
        let payload = file(&path, block_bytes);
        for piece in [1 << 20, 4096, 4097, 700] {
            let opened = ContainerFile::open(&path, FileKind::ROWS).unwrap();
            let mapped = MappedPayload::new(&opened, Access::Random).unwrap();
            for start in (0..PAYLOAD_BYTES).step_by(piece) {
                let end = PAYLOAD_BYTES.min(start + piece);
                let mut buffer = vec![0; end - start];
                opened.read_at(&mut buffer, start as u64).unwrap();
                assert_eq!(buffer, payload[start..end]);
                assert_eq!(mapped.get(start as u64..end as u64).unwrap(), &payload[start..end]);
            }
            // Verified blocks are remembered, and bytes beyond the end are ignored.
            mapped.check(0..u64::MAX).unwrap();
            flip(&path, 128 + 5);
            assert!(opened.read_at(&mut [0], 5).is_ok());
            flip(&path, 128 + 5);
        }
    }
}

#[test]
fn damage_in_the_bytes_of_a_partial_block_is_found_though_a_second_read_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let payload = file(&path, 4096);
    let opened = ContainerFile::open(&path, FileKind::ROWS).unwrap();
    // The bytes are inside of a block, or end in another one.
    for (start, end) in [(100, 200), (4000, 9000), (49_500, PAYLOAD_BYTES)] {
        for damaged in [start, end - 1] {
            let mut bytes = payload[start..end].to_vec();
            bytes[damaged - start] ^= 4;
            let check = |bytes: &[u8]| {
                let checksums = opened.new_checksums().unwrap();
                checksums.check_with(start as u64, bytes, |block, at| {
                    block.copy_from_slice(&payload[at as usize..][..block.len()]);
                    Ok(())
                })
            };
            let message = check(&bytes).unwrap_err().to_string();
            let block = damaged / 4096 * 4096;
            let expected = format!("file: payload block at offset {}: checksum is", 128 + block);
            assert!(message.contains(&expected), "{message}");
            check(&payload[start..end]).unwrap();
        }
    }
}

#[test]
fn blocks_around_covers_whole_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    file(&path, 4096);
    let checksums = ContainerFile::open(&path, FileKind::ROWS).unwrap().new_checksums().unwrap();
    assert_eq!(checksums.blocks_around(0..1), 0..4096);
    assert_eq!(checksums.blocks_around(4095..4097), 0..8192);
    assert_eq!(checksums.blocks_around(49_999..50_000), 49_152..50_000);
    assert_eq!(checksums.blocks_around(7..7), 7..7);
}

#[test]
fn a_pipe_in_place_of_a_reopened_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    file(&path, 4096);
    let closed = ContainerFile::open(&path, FileKind::ROWS).unwrap().close();
    fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = closed.open().unwrap_err().to_string();
    assert!(error.contains("this is a pipe"), "{error}");
}
