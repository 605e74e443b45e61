//! Every codec against a naive twin, golden files, corrupt samples, and the examples of the spec.

mod assignment;
mod corrupt;
mod dictionary;
mod features;
mod flips;
mod golden;
mod labels;
mod order_table;
mod samples;
mod spec;
mod splits;
mod weights;

use grappa_formats::container::{BlockHasher, FileKind, Header, decode_file};

/// A container file with this payload, at a multiple of `align`.
fn file(kind: FileKind, meta: Vec<u8>, payload: &[u8], align: u64) -> Vec<u8> {
    let mut hasher = BlockHasher::new();
    hasher.update(payload);
    let offset = Header::payload_offset(meta.len(), align);
    let (header, table) = hasher.finish(kind, meta, offset);
    [header.encode(), payload.to_vec(), table].concat()
}

/// Header and payload of a file that is known to be right as far as its container goes.
fn open(file: &[u8], kind: FileKind) -> (Header, &[u8]) {
    decode_file(file, kind).expect("the container is right")
}
