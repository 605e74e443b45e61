//! Corrupt samples. Each is a golden file with one named change, and has its own error.
//!
//! Changes to meta and payload come with matching checksums, so that the tests reach the checks behind the checksums.

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
    pub fn of(file: &[u8]) -> Self {
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
        self.meta
            .get_mut(at)
            .unwrap_or_else(|| &mut self.payload[at - meta_bytes])
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

/// Asserts that a change to the parts of a golden file gives this error at this offset.
#[track_caller]
fn changed(name: &str, change: impl FnOnce(&mut Parts), offset: u64, message: &str) {
    let mut parts = Parts::of(&golden::bytes(name));
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
    assert!(
        error.to_string().contains(message),
        "found: {error}\nexpected: {message}"
    );
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
    damaged(name, |b| b[0] = b'P', 0, "not a Grappa file");
    damaged(name, |b| b[12] = 2, 8, "format version 2 is newer");
    damaged(name, |b| (b[12], b[15]) = (1, 1), 8, "format version 16777217 is newer");
    damaged(
        name,
        |b| {
            b[12] = 0;
            seal(b);
        },
        12,
        "format version 0",
    );
    damaged(name, |b| b[16] ^= 1, 0, "header at offset 0: checksum");
    damaged(
        name,
        |b| b[8..12].copy_from_slice(b"FEAT"),
        0,
        "header at offset 0: checksum",
    );
    changed(
        name,
        |p| p.kind = FileKind::FEATURES,
        8,
        "expected a file of kind LABL, found kind FEAT",
    );
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
    damaged(name, lie(16, 1 << 50, 8), 16, "starts later than any writer puts it");
    damaged(
        name,
        lie(24, u64::MAX, 8),
        144,
        "file: expected 18446744073709551615 bytes",
    );
    damaged(name, lie(24, 1 << 40, 8), 144, "file: expected");
    damaged(name, lie(32, 65, 4), 16, "header lengths contradict");
    damaged(name, lie(36, 0, 4), 16, "header lengths contradict");
    damaged(name, lie(36, u64::from(u32::MAX), 4), 16, "header lengths contradict");
}

#[test]
fn files_of_another_chunk_are_errors() {
    for name in ["features-f16", "labels-single", "weights"] {
        changed(name, |p| p.meta[0] = 2, 64, "were files swapped?");
        changed(name, |p| p.meta[8] += 1, 64, "were files swapped?");
        changed(name, |p| p.meta[4] = 1, 68, "a reserved byte of the meta is not 0");
        changed(
            name,
            |p| p.put_meta(8, [0xff; 8]),
            72,
            "more than a chunk or a graph can have",
        );
        changed(
            name,
            |p| p.put_meta(16, [0xff; 8]),
            72,
            "more than a chunk or a graph can have",
        );
        changed(
            name,
            |p| p.put_meta(8, (NODES_MAX - 1).to_le_bytes()),
            72,
            "more than a chunk or a graph can have",
        );
        changed(name, |p| p.meta.push(0), 32, "the meta has");
    }
}

#[test]
fn corrupt_features_are_errors() {
    let name = "features-f32";
    changed(name, |p| p.put_meta(28, 8u32.to_le_bytes()), 88, "at least 12, not 8");
    changed(name, |p| p.put_meta(28, 14u32.to_le_bytes()), 88, "multiple of 4");
    changed(name, |p| p.put_meta(24, 0u32.to_le_bytes()), 88, "rows have 0 values");
    changed(name, |p| p.put_meta(24, [0xff; 4]), 88, "rows have 4294967295 values");
    changed(name, |p| p.meta[32] = 4, 96, "there is no feature dtype 4");
    changed(name, |p| p.meta[39] = 1, 103, "reserved byte");
    changed(name, |p| p.payload_offset = 128, 16, "no multiple of 4096");
    changed(
        name,
        |p| p.payload.truncate(20),
        24,
        "calls for a payload of 24 bytes, the header says 20",
    );
    changed(
        name,
        |p| p.put_meta(16, 3u64.to_le_bytes()),
        24,
        "calls for a payload of 36 bytes, the header says 24",
    );
    changed(
        "features-f16",
        |p| p.payload[15] = 1,
        4096 + 15,
        "padding of a feature row is not 0",
    );
    let name = "features-int8";
    for scale in [f32::NAN, f32::INFINITY, f32::MAX / 127.0, -1.0, -0.0] {
        changed(
            name,
            |p| p.put(8, scale.to_le_bytes()),
            4096 + 8,
            "the scale of an int8 row",
        );
    }
    changed(name, |p| p.payload[5] = 0x80, 4096 + 5, "an int8 feature is -128");
}

#[test]
fn corrupt_labels_are_errors() {
    let name = "labels-single";
    changed(
        name,
        |p| p.put(4, 300u16.to_le_bytes()),
        PAYLOAD + 4,
        "label of row 2: class 300 of 300 classes",
    );
    changed(name, |p| p.put_meta(24, [0; 4]), 88, "labels of 0 classes");
    changed(name, |p| p.meta[28] = 2, 92, "there is no label kind 2");
    changed(name, |p| p.meta[29] = 1, 93, "reserved byte");
    changed(
        name,
        |p| p.put_meta(24, 255u32.to_le_bytes()),
        24,
        "calls for a payload of 4 bytes, the header says 8",
    );
    let name = "labels-multi";
    changed(
        name,
        |p| p.payload[1] |= 0x08,
        PAYLOAD,
        "label of row 0: a bit beyond the last class",
    );
    changed(
        name,
        |p| p.payload[4] = 1,
        PAYLOAD + 4,
        "label of row 2: an unlabelled node has classes",
    );
    changed(
        name,
        |p| p.payload[5] = 1,
        PAYLOAD + 4,
        "label of row 2: an unlabelled node has classes",
    );
    changed(
        name,
        |p| p.payload.truncate(7),
        24,
        "calls for a payload of 8 bytes, the header says 7",
    );
}

#[test]
fn corrupt_splits_are_errors() {
    let name = "split";
    changed(name, |p| p.put_meta(0, *b"test\0\0\0\0"), 64, "of the split \"test");
    changed(name, |p| p.put_meta(8, 9u64.to_le_bytes()), 72, "of a graph of 9 nodes");
    changed(
        name,
        |p| p.put_meta(16, 9u64.to_le_bytes()),
        PAYLOAD,
        "has 104 nodes, but its meta says 9",
    );
    changed(name, |p| p.payload.fill(0xff), PAYLOAD, "not a valid roaring bitmap");
    changed(
        name,
        |p| p.payload[12] ^= 1,
        PAYLOAD,
        "not a valid roaring bitmap: unknown cookie",
    );
    changed(name, |p| p.payload.clear(), PAYLOAD, "not a valid roaring bitmap");
    changed(name, |p| p.payload.truncate(30), PAYLOAD, "not a valid roaring bitmap");
    changed(name, |p| p.payload.push(0), PAYLOAD, "followed by other bytes");
    // The key of the last bitmap, 1: as 0 it repeats, as 2 its node is beyond the last one.
    let key = Parts::of(&golden::bytes(name)).payload.len() - 22;
    changed(name, |p| p.put(key, 0u32.to_le_bytes()), PAYLOAD, "repeats a key");
    changed(
        name,
        |p| p.put(key, 2u32.to_le_bytes()),
        PAYLOAD,
        "node 8589934599, but the graph has 8589934592",
    );
}

#[test]
fn corrupt_dictionaries_are_errors() {
    let name = "dictionary-integers";
    changed(
        name,
        |p| p.put(8, 3u64.to_le_bytes()),
        PAYLOAD + 8,
        "not sorted: 3, dense id 1, comes after 3",
    );
    changed(
        name,
        |p| p.put(16, 1u64.to_le_bytes()),
        PAYLOAD + 16,
        "not sorted: 1, dense id 2, comes after 70",
    );
    changed(name, |p| p.meta[0] = 2, 64, "there is no kind of dictionary 2");
    changed(name, |p| p.put_meta(8, [0xff; 8]), 72, "keys are more than 2^40");
    changed(
        name,
        |p| p.put_meta(8, 5u64.to_le_bytes()),
        80,
        "5 integers do not have 32 bytes",
    );
    changed(
        name,
        |p| p.payload.truncate(24),
        24,
        "calls for a payload of 32 bytes, the header says 24",
    );

    let name = "dictionary-strings";
    let parts = Parts::of(&golden::bytes(name));
    let table = parts.payload.len() - 16;
    let second = u64::from_le_bytes(parts.payload[table + 8..].try_into().unwrap()) as usize;
    changed(name, |p| p.put_meta(0, [0; 4]), 80, "18 integers do not have");
    changed(name, |p| p.put_meta(16, [0xff; 8]), 24, "calls for a payload of");
    changed(
        name,
        |p| p.payload[1] = b'c',
        PAYLOAD + second as u64,
        "not sorted at dense id 16",
    );
    changed(
        name,
        |p| p.payload[second + 1] = b'a',
        PAYLOAD + second as u64,
        "not sorted at dense id 16",
    );
    // Rank 2 follows `bin/tool10`: 8 bytes in common, then a last digit of `1`; the same digit again is not sorted.
    let digit = parts.payload.iter().position(|&b| b == b'1').unwrap() + 4;
    assert_eq!(parts.payload[digit - 2..=digit], [9, 1, b'1']);
    let key_2 = PAYLOAD + digit as u64 - 2;
    changed(name, |p| p.payload[digit] = b'0', key_2, "not sorted at dense id 2");
    changed(name, |p| p.payload[digit - 2] = 8, key_2, "not sorted at dense id 2");
    changed(
        name,
        |p| p.payload[digit - 2] = 11,
        key_2,
        "a key of 11 + 1 bytes after one of 10",
    );
    changed(
        name,
        |p| p.put(digit - 1, [0xff, 0xff, 0x7f]),
        PAYLOAD + digit as u64 - 1,
        "holds a bad length",
    );
    changed(name, |p| p.put(0, [0x84, 0x00]), PAYLOAD, "holds a bad length");
    let last = second as u64 + PAYLOAD + 13;
    changed(
        name,
        |p| p.payload[second + 12] = 100,
        last,
        "a key of 100 bytes where a block",
    );
    let entry = PAYLOAD + table as u64 + 8;
    changed(
        name,
        |p| p.put(table + 8, 3u64.to_le_bytes()),
        entry,
        "but the dictionary's table says 3",
    );
    changed(
        name,
        |p| p.put(table + 8, [0xff; 8]),
        entry,
        "but the dictionary's table says 18446744073709551615",
    );
}

#[test]
fn offsets_of_a_dictionary_are_checked_before_use() {
    use grappa_formats::dictionary::StringDictionary;
    for start in [1 << 20, u64::MAX] {
        let mut parts = Parts::of(&golden::bytes("dictionary-strings"));
        let table = parts.payload.len() - 16;
        parts.put(table + 8, start.to_le_bytes());
        let file = parts.file();
        let (header, payload) = crate::open(&file, FileKind::DICTIONARY);
        let dictionary = StringDictionary::new(&header, payload).unwrap();
        for id in [0, 16] {
            let error = dictionary.get(DenseId(id), &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("of the dictionary is at"), "{error}");
            assert_eq!(error.offset(), PAYLOAD + table as u64 + 8 * (id / 16));
        }
        assert!(dictionary.find(b"lib").is_err());
    }
}

#[test]
fn corrupt_permutation_tables_are_errors() {
    let name = "order";
    changed(
        name,
        |p| p.payload[5] = 4,
        PAYLOAD + 5,
        "has the entry 4, but there are 4 nodes",
    );
    changed(
        name,
        |p| p.payload[24] = 1,
        PAYLOAD + 20,
        "has the entry 4294967297, but there are 4 nodes",
    );
    changed(
        name,
        |p| p.payload[5] = 1,
        PAYLOAD + 5,
        "dense id 1 has node 1, but that node has dense id 3",
    );
    changed(
        name,
        |p| p.put_meta(0, 5u64.to_le_bytes()),
        24,
        "calls for a payload of 50 bytes, the header says 40",
    );
    changed(name, |p| p.put_meta(0, [0xff; 8]), 64, "nodes are more than 2^40");
}

#[test]
fn corrupt_assignments_are_errors() {
    let name = "assignment";
    changed(name, |p| p.meta[0] = 3, 64, "is generation 3 of 4 chunks");
    changed(name, |p| p.meta[8] = 3, 64, "is generation 2 of 3 chunks");
    changed(
        name,
        |p| p.meta[12] = 0,
        72,
        "4 chunks, 0 partitions and 2 distinct table rows",
    );
    changed(name, |p| p.meta[16] = 5, 72, "2 partitions and 5 distinct table rows");
    changed(name, |p| p.put_meta(12, [0xff; 4]), 72, "make no assignment");
    changed(name, |p| p.meta[20] = 1, 84, "reserved byte");
    changed(
        name,
        |p| p.meta[24] = b'S',
        88,
        "\"Sweep\" is not a valid name of a schedule",
    );
    changed(name, |p| p.meta[39] = b'x', 88, "is not a valid name of a schedule");
    changed(
        name,
        |p| p.put_meta(24, [0; 16]),
        88,
        "is not a valid name of a schedule",
    );
    changed(
        name,
        |p| p.meta[16] = 1,
        24,
        "calls for a payload of 32 bytes, the header says 48",
    );
    changed(
        name,
        |p| p.payload[0] = 1,
        PAYLOAD,
        "table row 0 is distinct row 1 of 2, but only the first 0 are in use",
    );
    changed(
        name,
        |p| p.payload[12] = 2,
        PAYLOAD + 12,
        "table row 3 is distinct row 2 of 2",
    );
    changed(
        name,
        |p| (p.payload[8], p.payload[12]) = (0, 0),
        PAYLOAD,
        "has 2 distinct table rows but uses only 1",
    );
    changed(
        name,
        |p| p.payload[16] = 2,
        PAYLOAD + 16,
        "gives bucket 0 to partitions 2 and",
    );
    changed(
        name,
        |p| p.payload[26] = 0,
        PAYLOAD + 24,
        "gives bucket 2 to partitions 0 and 0 of 2",
    );
}

#[test]
fn tables_that_contradict_their_diagonal_are_errors() {
    let name = "assignment-sweep";
    let none = |at: usize| move |p: &mut Parts| p.put(at, [0xff, 0xff]);
    changed(name, none(16), PAYLOAD + 16, "chunk 0 is in the base of no partition");
    changed(
        name,
        none(18),
        PAYLOAD + 24,
        "make partition 0 and none see edge bucket (0, 2), but the table says partition 0 and partition 2",
    );
    changed(
        name,
        none(20),
        PAYLOAD + 20,
        "make partition 0 and none see edge bucket (0, 1), but the table says none and none",
    );
    // Chunks 0 and 2 share a row. It is valid for chunk 0. It would be valid for chunk 2 if that had the same owners.
    changed(
        name,
        none(26),
        PAYLOAD + 16,
        "make partition 0 and none see edge bucket (2, 0), but the table says partition 0 and partition 2",
    );
}

#[test]
fn corrupt_weights_are_errors() {
    let name = "weights";
    // Three weights and a padding, then the anchors of rows 0 and 64.
    changed(
        name,
        |p| p.payload[24] = 3,
        PAYLOAD + 24,
        "the weights of node 65 of the chunk, counted from edge 3",
    );
    changed(
        name,
        |p| p.payload[24] = 1,
        PAYLOAD + 24,
        "the anchor of node 64 of the chunk is edge 1",
    );
    changed(
        name,
        |p| p.put(16, [0xff; 8]),
        PAYLOAD + 16,
        "the weights of node 0 of the chunk, counted from edge 18446744073709551615",
    );
    changed(
        name,
        |p| p.payload[12] = 1,
        PAYLOAD + 12,
        "between the weights and their anchors",
    );
    changed(name, |p| p.payload_offset = 100, 16, "no multiple of 8");
    changed(
        name,
        |p| p.put_meta(24, [0xff; 8]),
        24,
        "calls for a payload of 18446744073709551615",
    );
    changed(
        name,
        |p| p.meta[24] = 5,
        24,
        "calls for a payload of 40 bytes, the header says 32",
    );
}

#[test]
fn current_must_be_one_line_with_its_checksum() {
    let name = "CURRENT";
    damaged(name, |b| b[11] = b'2', 0, "CURRENT must be the line");
    damaged(name, |b| b.truncate(30), 0, "CURRENT must be the line");
    damaged(name, |b| b.push(b'\n'), 0, "CURRENT must be the line");
    damaged(name, |b| b.clear(), 0, "CURRENT must be the line");
    damaged(
        name,
        |b| b.splice(11..11, *b"0").for_each(drop),
        0,
        "CURRENT must be the line",
    );
}

mod manifests {
    use grappa_formats::manifest::{ArchivedManifest, ChunkEntry, FileEntry, Manifest};

    use super::*;

    /// Asserts that a manifest with this change of its parts is refused.
    #[track_caller]
    fn refused(change: impl FnOnce(&mut Manifest), message: &str) {
        let mut manifest = samples::manifest();
        change(&mut manifest);
        expect(Manifest::decode(&manifest.encode()).map(drop), 64, message);
    }

    #[test]
    fn an_invalid_archive_is_refused() {
        let root = Parts::of(&golden::bytes("manifest")).payload.len() - size_of::<ArchivedManifest>();
        let name = "manifest";
        let invalid = "the manifest's archive is invalid";
        changed(name, |p| p.payload.truncate(100), 64, invalid);
        changed(name, |p| p.payload.clear(), 64, invalid);
        // The pointer of `chunk_starts`, its length, the tag of `ids.permutation`, the bytes of `writer`.
        changed(name, |p| p.put(root + 24, i32::MIN.to_le_bytes()), 64, invalid);
        changed(name, |p| p.put(root + 24, 0i32.to_le_bytes()), 64, invalid);
        changed(name, |p| p.put(root + 28, u32::MAX.to_le_bytes()), 64, invalid);
        changed(name, |p| p.payload[root + 48] = 3, 64, invalid);
        changed(name, |p| p.payload[0] = 0xff, 64, invalid);
    }

    #[test]
    fn parts_that_disagree_are_refused() {
        refused(|m| m.nodes = 6, "6 nodes in 2 chunks, but the chunk starts say 5 in 2");
        refused(|m| drop(m.chunks.pop()), "5 nodes in 1 chunks");
        refused(|m| m.chunk_starts[0] = 1, "chunk starts must begin with 0");
        refused(|m| m.chunk_starts[1] = 6, "chunk 1 has a negative size");
        refused(|m| m.edges = 8, "8 edges, but the chunks have 7");
        refused(|m| m.chunks[0].edges = 4, "the edge buckets of chunk 0 do not add up");
        refused(
            |m| m.chunks[0].bucket_edges = vec![u64::MAX, 4],
            "the edge buckets of chunk 0 do not add up",
        );
        refused(
            |m| m.chunks[1].bucket_edges.push(0),
            "the edge buckets of chunk 1 do not add up",
        );
        refused(
            |m| m.chunks[1].present = false,
            "the edge buckets of chunk 1 do not add up",
        );
        let most = ChunkEntry {
            present: true,
            edges: u64::MAX,
            bucket_edges: vec![u64::MAX, 0],
        };
        refused(|m| m.chunks[1] = most, "overflow 64 bits");
        refused(|m| m.features.as_mut().unwrap().row_stride = 4, "at least 6, not 4");
        refused(|m| m.features.as_mut().unwrap().dim = 0, "rows have 0 values");
        refused(|m| m.labels.as_mut().unwrap().classes = 0, "labels of 0 classes");
        refused(
            |m| m.splits[0].name = "../train".into(),
            "only train, val and test are known",
        );
        refused(|m| m.files.reverse(), "the files are not sorted by path");
        refused(|m| m.files[1] = m.files[0].clone(), "the files are not sorted by path");
    }

    #[test]
    fn paths_that_leave_the_store_are_refused() {
        for path in [
            "../other",
            "/etc/passwd",
            "chunk-0/../../x",
            "chunk-0//edges",
            "./x",
            "",
            "x/",
        ] {
            let file = FileEntry {
                path: path.into(),
                bytes: 0,
                digest: 0,
            };
            refused(|m| m.files = vec![file], "leads out of the store");
        }
    }
}

#[test]
fn corrupt_rows_are_errors() {
    let (edges, degrees) = ("edges-elias-fano", "degrees-elias-fano");
    changed(edges, |p| p.put_meta(0, [2]), 64, "row codec 2");
    changed(
        edges,
        |p| p.put_meta(1, [1]),
        64,
        "row codec 0 with parameters [1, 0, 0, 0, 0, 0, 0]",
    );
    changed(edges, |p| p.put_meta(6, [1]), 64, "reserved");
    changed(
        "edges-gap",
        |p| p.put_meta(2, [32]),
        64,
        "row codec 1 with parameters [1, 32,",
    );
    changed(
        edges,
        |p| p.put_meta(16, 13u64.to_le_bytes()),
        64,
        "4 rows from node 13 on",
    );
    changed(
        edges,
        |p| p.put_meta(8, (NODES_MAX + 1).to_le_bytes()),
        64,
        "more than 2^40",
    );
    changed(
        edges,
        |p| p.put_meta(32, u64::MAX.to_le_bytes()),
        64,
        "do not fit 36 bits",
    );
    changed(edges, |p| p.put_meta(48, [5]), 64, "5 exceptions among 4 rows");
    changed(edges, |p| p.put_meta(32, [11]), 64, "not of the same rows");
    changed(
        edges,
        |p| p.payload.truncate(12),
        12,
        "the rows: expected 13 bytes, found 12",
    );
    changed(
        degrees,
        |p| p.payload.push(0),
        64,
        "the row directory: expected 64 bytes, found 65",
    );
    // The lower bits of the first three sources become 1, 3, 0.
    changed(
        edges,
        |p| p.put(1, [0x26]),
        PAYLOAD,
        "the sources of row 0 do not ascend",
    );
    changed(edges, |p| p.put(5, [1]), PAYLOAD + 5, "are not the encoding of any row");
    changed(degrees, |p| p.put(0, [1]), PAYLOAD, "row 0 does not start where");
    changed(degrees, |p| p.put(6, [1]), PAYLOAD + 6, "row 0 does not start where");
    changed(
        degrees,
        |p| p.put(14, [1]),
        PAYLOAD + 14,
        "line of rows 0.. is not that of the rows",
    );
}

/// A header that announces a meta larger than the file does not make a reader allocate it.
#[test]
fn a_prefix_that_is_too_short_is_an_error() {
    let bytes = golden::bytes("labels-single");
    let error = Header::decode(&bytes[..HEADER_BYTES + 3], FileKind::LABELS, bytes.len() as u64).unwrap_err();
    assert!(
        error.to_string().contains("meta: expected 128 bytes, found 67"),
        "{error}"
    );
}

#[test]
fn aggregates_of_another_store_or_kind() {
    let other = "the pre-aggregated features are of another store";
    changed("aggregates", |parts| parts.meta[0] ^= 1, 64, other);
    changed("aggregates", |parts| parts.meta[8] = 3, 64, other);
    changed(
        "aggregates",
        |parts| parts.meta[12] = 0,
        76,
        "expected the aggregation gcn, found number 0",
    );
    changed(
        "aggregates",
        |parts| parts.meta[12] = 3,
        76,
        "expected the aggregation gcn, found number 3",
    );
    changed(
        "aggregates",
        |parts| parts.meta[15] = 1,
        79,
        "a reserved byte of the meta is not 0",
    );
    changed("aggregates", |parts| parts.payload.truncate(31), 24, "payload");
}
