//! Corrupt samples. Each is a golden file with one named change, and has its own error.
//!
//! Changes to meta and payload come with matching checksums, so that the tests reach the checks behind the checksums.

/// A table of changes of golden files: name, change, offset of the error, and message.
macro_rules! errors {
    ($make:ident: $($name:expr, $change:expr => $offset:expr, $message:expr;)+) => {
        $($make($name, $change, $offset, $message);)+
    };
}

mod assignments;
mod ids;
mod manifests;
mod node_columns;
mod rows;

use grappa_formats::{
    DenseId, FormatError, NODES_MAX,
    container::{BlockHasher, FileKind, HEADER_BYTES, Header},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{golden, samples};

/// The parts of a container file. They can be changed and reassembled.
#[derive(Clone)]
pub struct Parts {
    pub kind: FileKind,
    pub meta: Vec<u8>,
    pub payload: Vec<u8>,
    pub payload_offset: u64,
    pub block_bytes: u32,
}

impl Parts {
    /// Takes a sound file apart.
    pub fn from_file(file: &[u8]) -> Self {
        let kind = FileKind(file[8..12].try_into().unwrap());
        let header = Header::decode(file, kind, file.len() as u64).unwrap();
        let payload = &file[header.payload_offset as usize..header.table_offset() as usize];
        Self {
            kind,
            payload: payload.to_vec(),
            payload_offset: header.payload_offset,
            block_bytes: header.block_bytes,
            meta: header.meta,
        }
    }

    /// The file, with matching checksums.
    pub fn file(&self) -> Vec<u8> {
        let mut hasher = BlockHasher::new(self.block_bytes as usize);
        hasher.update(&self.payload);
        let (header, table) = hasher.finish(self.kind, self.meta.clone(), self.payload_offset);
        [header.encode(), self.payload.clone(), table].concat()
    }

    /// A byte of the concatenation of meta and payload.
    pub fn byte(&mut self, at: usize) -> &mut u8 {
        let meta_bytes = self.meta.len();
        self.meta.get_mut(at).unwrap_or_else(|| &mut self.payload[at - meta_bytes])
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.payload[at..at + N].copy_from_slice(&bytes);
    }

    fn put_meta<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.meta[at..at + N].copy_from_slice(&bytes);
    }
}

/// Where the payload of samples other than features and manifests starts.
const PAYLOAD: u64 = 128;
/// Offset of the payload in files with a checksum per page.
const PAGE: u64 = 4096;

/// Asserts that a change to the parts of a golden file gives this error at this offset.
#[track_caller]
fn changed(name: &str, change: impl FnOnce(&mut Parts), offset: u64, message: &str) {
    let mut parts = Parts::from_file(&golden::bytes(name));
    change(&mut parts);
    expect(samples::read(name, &parts.file()), offset, message);
}

/// Asserts that a change to the bytes of a golden file, including checksums, gives this error at this offset.
#[track_caller]
fn damaged(name: &str, change: impl FnOnce(&mut Vec<u8>), offset: u64, message: &str) {
    let mut bytes = golden::bytes(name);
    change(&mut bytes);
    expect(samples::read(name, &bytes), offset, message);
}

#[track_caller]
fn expect(found: Result<(), FormatError>, offset: u64, message: &str) {
    let error = found.expect_err("the sample is corrupt");
    assert!(error.to_string().contains(message), "found: {error}\nexpected: {message}");
    assert_eq!(error.offset(), offset, "{error}");
}

/// Updates the checksum of the fixed header.
fn seal(bytes: &mut [u8]) {
    let digest = xxh3_64(&bytes[..56]);
    bytes[56..64].copy_from_slice(&digest.to_le_bytes());
}

#[test]
fn corrupt_containers_are_errors() {
    let name = "labels-single";
    errors! { damaged:
        name, |b| b[0] = b'P' => 0, "not a Grappa file";
        name, |b| b[12] = 4 => 8, "format version 4 is newer";
        name, |b| { b[12] = 2; seal(b); } => 12, "files of kind LABL have format version 1, not 2";
        name, |b| (b[12], b[15]) = (1, 1) => 8, "format version 16777217 is newer";
        name, |b| { b[12] = 0; seal(b); } => 12, "format version 0";
        name, |b| b[16] ^= 1 => 0, "header at offset 0: checksum";
        name, |b| b[8..12].copy_from_slice(b"FEAT") => 0, "header at offset 0: checksum";
    }
    changed(name, |p| p.kind = FileKind::FEATURES, 8, "expected a file of kind LABL, found kind FEAT");
    damaged(name, |b| b.truncate(40), 40, "header: expected 64 bytes, found 40");
    damaged(name, |b| b.truncate(100), 100, "file: expected 144 bytes, found 100");
    damaged(name, |b| b.truncate(130), 130, "file: expected 144 bytes, found 130");
    damaged(name, |b| b.truncate(140), 140, "file: expected 144 bytes, found 140");
    damaged(name, |b| b.push(0), 144, "file: expected 144 bytes, found 145");
    damaged(name, |b| b[70] ^= 1, 64, "meta at offset 64: checksum");
    damaged(name, |b| b[127] ^= 1, 64, "meta at offset 64: checksum");
    damaged(name, |b| b[130] ^= 1, 128, "payload block at offset 128: checksum");
    damaged(name, |b| b[140] ^= 1, 136, "checksum table at offset 136: checksum");
    let lie = |at: usize, value: u64, bytes: usize| {
        move |b: &mut Vec<u8>| {
            b[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            seal(b);
        }
    };
    errors! { damaged:
        name, lie(16, 1 << 50, 8) => 16, "starts later than any writer puts it";
        name, lie(24, u64::MAX, 8) => 144, "file: expected 18446744073709551615 bytes";
        name, lie(24, 1 << 40, 8) => 144, "file: expected";
        name, lie(32, 65, 4) => 16, "header lengths contradict";
        name, lie(36, 0, 4) => 16, "header lengths contradict";
        name, lie(36, u64::from(u32::MAX), 4) => 16, "header lengths contradict";
    }
}

#[test]
fn files_of_another_chunk_are_errors() {
    for name in ["features-f16", "labels-single", "weights", "edge-features-bf16"] {
        errors! { changed:
            name, |p| p.meta[0] = 2 => 64, "were files swapped?";
            name, |p| p.meta[8] += 1 => 64, "were files swapped?";
            name, |p| p.meta[4] = 1 => 68, "a reserved byte of the meta is not 0";
            name, |p| p.put_meta(8, [0xff; 8]) => 72, "more than a chunk or a graph can have";
            name, |p| p.put_meta(16, [0xff; 8]) => 72, "more than a chunk or a graph can have";
            name, |p| p.put_meta(8, (NODES_MAX - 1).to_le_bytes()) => 72, "more than a chunk or a graph can have";
            name, |p| p.meta.push(0) => 32, "the meta has";
        }
    }
}

/// A header that announces a meta larger than the file does not make a reader allocate it.
#[test]
fn a_prefix_that_is_too_short_is_an_error() {
    let bytes = golden::bytes("labels-single");
    let error = Header::decode(&bytes[..HEADER_BYTES + 3], FileKind::LABELS, bytes.len() as u64).unwrap_err();
    assert!(error.to_string().contains("meta: expected 128 bytes, found 67"), "{error}");
}

#[test]
fn schemas_that_are_not_valid_json_of_a_schema() {
    let invalid = "the schema's JSON is invalid";
    let replaced = |text: &'static str| move |parts: &mut Parts| parts.payload = text.into();
    let with_meta = |parts: &mut Parts| {
        parts.meta.push(0);
        parts.payload_offset = 128;
    };
    changed("schema", with_meta, 32, "the meta has 1 bytes, not 0");
    changed("schema", |parts| parts.payload[20] = 0xff, 64, invalid);
    changed("schema", |parts| parts.payload.push(b'}'), 64, invalid);
    for text in [
        "",
        r#"{"features":[]}"#,
        r#"{"features":[],"classes":["a"],"labels":[]}"#,
        r#"{"features":[],"features":[],"classes":["a"]}"#,
        r#"{"features":[{"name":"a","encoding":{"kind":"text"}}],"classes":[]}"#,
        r#"{"features":[{"name":"a","encoding":{"kind":"number","missing":{"mean":1e999}}}],"classes":[]}"#,
        r#"{"features":[{"name":"a","encoding":{"kind":"number","missing":"refused","unit":"s"}}],"classes":[]}"#,
    ] {
        changed("schema", replaced(text), 64, invalid);
    }
    errors! { changed:
        "schema", replaced(r#"{"features":[],"classes":[]}"#) => 64, "names nothing";
        "schema", replaced(r#"{"features":[],"classes":["a","a"]}"#) => 64, "two classes have the name";
        "schema-of-edges", replaced(r#"{"features":[],"classes":[],"edge_features":["a","a"]}"#)
            => 64, "two edge features have the name";
        "schema-of-edges", replaced(r#"{"features":[],"classes":[],"edge_features":["a",""]}"#)
            => 64, "column 1 of the edge features has an empty name";
        "schema-of-edges", replaced(r#"{"features":[],"classes":[],"edge_features":[7]}"#) => 64, "JSON is invalid";
    }
}

#[test]
fn aggregates_of_another_store_or_kind() {
    let other = "the pre-aggregated features are of another store";
    errors! { changed:
        "aggregates", |parts| parts.meta[0] ^= 1 => 64, other;
        "aggregates", |parts| parts.meta[8] = 3 => 64, other;
        "aggregates", |parts| parts.meta[12] = 0 => 76, "expected the aggregation gcn, found number 0";
        "aggregates", |parts| parts.meta[12] = 3 => 76, "expected the aggregation gcn, found number 3";
        "aggregates", |parts| parts.meta[12] = 6 => 76, "expected the aggregation gcn, found number 6";
        "aggregates-weighted", |parts| parts.meta[12] = 0 => 76, "expected the aggregation weighted-mean, found number 0";
        "aggregates", |parts| parts.meta[15] = 1 => 79, "a reserved byte of the meta is not 0";
        "aggregates", |parts| parts.payload.truncate(31) => 24, "payload";
    }
}
