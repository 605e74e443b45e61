//! Tests of the readers, with files as users and their programs write them.

mod arrays;
mod damage;
mod losses;
mod matrices;
mod memory;
mod naive;
mod nodes;
mod orders;
mod packed;
mod parts;
mod sources;
mod splits;
mod tables;
mod text;

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Mutex,
};

use grappa_io::{
    Result,
    workers::{self, ReadAhead},
};

use super::*;

/// A temporary folder for the files of a test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Some file systems flush a file that is truncated and rewritten. Writing a new file is faster.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// A `.npy` file of version 1 with this type, this shape and these bytes of elements.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_of(1, &format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

fn npy_of(version: u8, dictionary: &str, data: &[u8]) -> Vec<u8> {
    let prefix = if version == 1 { 10 } else { 12 };
    let mut header = dictionary.to_owned();
    while !(prefix + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    if version == 1 {
        file.extend((header.len() as u16).to_le_bytes());
    } else {
        file.extend((header.len() as u32).to_le_bytes());
    }
    file.extend(header.bytes());
    file.extend(data);
    file
}

fn le<const N: usize, T: Copy>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| bytes(number)).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// An archive of these `.npy` files, as numpy.savez writes it (stored) or numpy.savez_compressed (deflated). With `zip64`,
/// all sizes have the long form of members beyond 4 GiB.
fn npz(members: &[(&str, Vec<u8>)], deflated: bool, zip64: bool) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let name = format!("{name}.npy");
        let packed = if deflated {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        } else {
            bytes.clone()
        };
        let sizes = [bytes.len() as u64, packed.len() as u64, file.len() as u64];
        let short = |size: u64| if zip64 { u32::MAX } else { size as u32 }.to_le_bytes();
        let mut extra = Vec::new();
        if zip64 {
            extra.extend([0xfe, 0xca, 2, 0, 7, 7, 1, 0, 24, 0]);
            extra.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        }
        let method = if deflated { 8_u16 } else { 0 };
        let mut common = Vec::new();
        common.extend([45, 0, 0, 0]);
        common.extend(method.to_le_bytes());
        common.extend([0; 4]);
        common.extend(crc32fast::hash(bytes).to_le_bytes());
        common.extend(short(sizes[1]));
        common.extend(short(sizes[0]));
        common.extend((name.len() as u16).to_le_bytes());
        directory.extend(b"PK\x01\x02\x2d\x03");
        directory.extend(&common);
        directory.extend((extra.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend(short(sizes[2]));
        directory.extend(name.bytes());
        directory.extend(&extra);
        // NumPy always reserves room for long sizes in the local header.
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(20_u16.to_le_bytes());
        file.extend(name.bytes());
        file.extend([1, 0, 16, 0]);
        file.extend([0; 16]);
        file.extend(packed);
    }
    let (offset, count) = (file.len() as u64, members.len() as u64);
    file.extend(&directory);
    if zip64 {
        let at = file.len() as u64;
        file.extend(b"PK\x06\x06");
        file.extend(44_u64.to_le_bytes());
        file.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend([count, count, directory.len() as u64, offset].iter().flat_map(|n| n.to_le_bytes()));
        file.extend(b"PK\x06\x07\0\0\0\0");
        file.extend(at.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
    }
    let short = |size: u64| if zip64 { u32::MAX } else { size as u32 }.to_le_bytes();
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([(count as u16).to_le_bytes(); 2].concat());
    file.extend(short(directory.len() as u64));
    file.extend(short(offset));
    file.extend([0, 0]);
    file
}

fn skipping(block_bytes: usize) -> EdgeSourceOptions {
    EdgeSourceOptions { on_bad_line: OnBadLine::Skip, block_bytes, ..Default::default() }
}

/// All edges, their values and rejects of a source, in file order.
#[derive(Debug, Default, PartialEq)]
struct Read {
    edges: Vec<(u64, u64)>,
    values: Vec<f32>,
    order: Vec<f64>,
    rejected: Vec<Reject>,
}

/// Reads a source to its end with `threads` threads, parses it with as many, and sorts the blocks.
fn read(source: &EdgeSource, threads: usize) -> Result<Read> {
    let blocks = Mutex::new(Vec::new());
    let input_bytes = Mutex::new(0);
    let work = |read: &ReadAhead<RawBlock<'_>>| -> Result<()> {
        let mut batch = EdgeBatch::default();
        while let Some(block) = read.next()? {
            let mut rejected = Vec::new();
            block.parse(&mut batch, &mut |reject| {
                rejected.push(reject);
                Ok(())
            })?;
            assert_eq!(batch.sources.len(), batch.targets.len());
            let width = usize::from(source.weighted()) + source.features();
            assert_eq!(batch.values.len(), width * batch.sources.len());
            *input_bytes.lock().unwrap() += block.input_bytes();
            blocks.lock().unwrap().push((block.id(), std::mem::take(&mut batch), rejected));
        }
        Ok(())
    };
    source.read_ahead(threads, &|_| false, |read| workers::run(threads, |_| work(read)))?;
    assert!(*input_bytes.lock().unwrap() <= source.total_bytes());
    let mut blocks = blocks.into_inner().unwrap();
    blocks.sort_by_key(|&(id, ..)| id);
    assert!(blocks.windows(2).all(|pair| pair[0].0 < pair[1].0), "a block came twice");
    let mut all = Read::default();
    for (_, batch, rejected) in blocks {
        all.edges.extend(batch.sources.into_iter().zip(batch.targets));
        all.values.extend(batch.values);
        all.order.extend(batch.order.values);
        all.rejected.extend(rejected);
    }
    Ok(all)
}

fn read_path(path: &Path, options: EdgeSourceOptions) -> Result<Read> {
    read(&EdgeSource::open(&[path.to_owned()], options)?, 1)
}

/// The error message of a result that must be an error.
#[track_caller]
fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("this must fail"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// The folder of Cora, which is bundled.
fn cora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cora")
}

/// The folder of a real graph beside the workspace. None if this machine does not have it; then a part of the test is
/// skipped.
fn real_data(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    grappa_skip::skip_part!("{name} is not in ../shared/data");
    None
}
