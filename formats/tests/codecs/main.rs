//! Tests of every codec: against a naive implementation, with golden files, with corrupt samples, and with the examples
//! of the specification.

mod assignment;
mod corrupt;
mod dictionary;
mod edge_rows;
mod features;
mod flips;
mod golden;
mod labels;
mod permutation_table;
mod samples;
mod schema;
mod spec;
mod splits;

use grappa_formats::container::{FileKind, Header, decode_file, encode_file};

/// A container file with this payload, in the current layout.
fn file(kind: FileKind, meta: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    encode_file(kind, meta, payload).0
}

/// Header and payload of a file whose container is known to be valid.
fn open(file: &[u8], kind: FileKind) -> (Header, &[u8]) {
    decode_file(file, kind).expect("the container is right")
}
