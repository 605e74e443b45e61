//! Changes the files of stores, with and without valid checksums.

use std::{fs, ops::Range, path::Path};

use grappa_formats::{
    container::{BlockHasher, FileKind, Header},
    manifest::Manifest,
};

/// Name of the manifest in a store.
const MANIFEST: &str = "manifest";

/// Rewrites a file of a store with a payload changed by `change`. All checksums are valid, and the manifest names the
/// new file. If `block_bytes` is given, the file has blocks of that length, and its payload starts where the first
/// writers put it.
pub fn rewrite(store: &Path, file: &str, block_bytes: Option<usize>, change: impl FnOnce(&mut Vec<u8>)) {
    let path = store.join(file);
    let old = fs::read(&path).unwrap();
    let header = header(&old);
    let payload = header.payload_offset as usize..header.table_offset() as usize;
    let mut payload = old[payload].to_vec();
    change(&mut payload);
    let mut hasher = BlockHasher::new(block_bytes.unwrap_or(header.block_bytes as usize));
    hasher.update(&payload);
    let offset = match header.kind {
        _ if block_bytes.is_none() => header.payload_offset,
        FileKind::FEATURES => 4096,
        _ => (64 + header.meta.len() as u64).next_multiple_of(64),
    };
    let (header, table) = hasher.finish(header.kind, header.meta, offset);
    let bytes = [header.encode(), payload, table].concat();
    fs::write(&path, &bytes).unwrap();
    let manifest_path = store.join(MANIFEST);
    let mut manifest = Manifest::decode(&fs::read(&manifest_path).unwrap()).unwrap();
    let entry = manifest.files.iter_mut().find(|entry| entry.path == file).unwrap();
    (entry.bytes, entry.digest) = (bytes.len() as u64, header.digest());
    fs::write(&manifest_path, manifest.encode()).unwrap();
}

/// Rewrites all container files of a store in the layout of the first writers, with blocks of this length.
pub fn rewrite_all(store: &Path, block_bytes: usize) {
    let manifest = Manifest::decode(&fs::read(store.join(MANIFEST)).unwrap()).unwrap();
    for entry in manifest.files.iter().filter(|entry| !entry.path.starts_with("assign")) {
        rewrite(store, &entry.path, Some(block_bytes), |_| {});
    }
}

/// The header of a file.
pub fn header(file: &[u8]) -> Header {
    let kind = FileKind(file[8..12].try_into().unwrap());
    Header::decode(file, kind, file.len() as u64).unwrap()
}

/// The range of the payload in a file of a store.
pub fn payload_of(path: &Path) -> Range<u64> {
    let header = header(&fs::read(path).unwrap());
    header.payload_offset..header.table_offset()
}

/// Flips bits of the byte at `offset` while `body` runs.
pub fn with_flip<T>(path: &Path, offset: u64, body: impl FnOnce() -> T) -> T {
    let flip = || {
        let mut bytes = fs::read(path).unwrap();
        bytes[offset as usize] ^= 0x24;
        fs::write(path, bytes).unwrap();
    };
    flip();
    let result = body();
    flip();
    result
}

/// The name that errors use for the damaged block with the byte at `offset`.
pub fn message_about(path: &Path, offset: u64) -> String {
    let header = header(&fs::read(path).unwrap());
    let block = (offset - header.payload_offset) / u64::from(header.block_bytes);
    let start = header.payload_offset + header.block(block).start;
    format!("{}: payload block at offset {start}: checksum is", path.display())
}
