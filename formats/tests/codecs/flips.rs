//! Changed bytes. Without updated checksums, they must be detected; with them, decoders must not panic.

use grappa_formats::{
    container::{FileKind, Header},
    edge_rows::EdgeRows,
};
use proptest::prelude::*;

use crate::{
    corrupt::Parts,
    samples::{self, Sample},
};

/// A golden file of features consists mostly of the zeros before its payload. Testing one in 61 of them is enough.
fn offsets(sample: &Sample) -> impl Iterator<Item = usize> + use<'_> {
    (0..sample.bytes.len()).filter(|&at| sample.bytes.len() < 2000 || sample.bytes[at] != 0 || at % 61 == 0)
}

#[test]
fn every_flipped_byte_is_detected() {
    for sample in samples::all() {
        for at in offsets(&sample) {
            let mut bytes = sample.bytes.clone();
            bytes[at] ^= 0x10;
            assert!(samples::read(sample.name, &bytes).is_err(), "byte {at} of {}", sample.name);
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    for sample in samples::all() {
        for end in offsets(&sample) {
            assert!(samples::read(sample.name, &sample.bytes[..end]).is_err(), "{end} bytes of {}", sample.name);
        }
    }
}

/// Each byte of meta and payload takes many values, with valid checksums.
#[test]
fn decoders_do_not_panic_on_any_byte() {
    for sample in samples::all().into_iter().filter(|sample| sample.name != "CURRENT") {
        let parts = Parts::from_file(&sample.bytes);
        for at in 0..parts.meta.len() + parts.payload.len() {
            for flip in [0x01, 0x02, 0x10, 0x40, 0x7f, 0x80, 0xff] {
                let mut bad = parts.clone();
                *bad.byte(at) ^= flip;
                // Success or an error, but no panic.
                let _ = samples::read(sample.name, &bad.file());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_bytes_make_a_decoder_panic(
        pick in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let samples = samples::all();
        let sample = &samples[pick.index(samples.len() - 1)];
        let mut parts = Parts::from_file(&sample.bytes);
        if let Some(length) = length {
            let length = length.index(parts.payload.len() + 20);
            parts.payload.resize(length, 0);
        }
        let end = parts.meta.len() + parts.payload.len();
        for (at, value) in flips {
            if end > 0 {
                *parts.byte(at.index(end)) = value;
            }
        }
        let _ = samples::read(sample.name, &parts.file());
    }
}

/// The degrees come from another file, which may not match.
#[test]
fn degrees_that_do_not_fit_the_weights_are_an_error() {
    let sample = samples::all().into_iter().find(|sample| sample.name == "weights").expect("a sample");
    let parts = Parts::from_file(&sample.bytes);
    let header = Header::decode(&sample.bytes, FileKind::WEIGHTS, sample.bytes.len() as u64).unwrap();
    let weights = EdgeRows::new(&header, &parts.payload).unwrap();
    for degree in [3, 1 << 40, u64::MAX] {
        assert!(weights.range(63, |_| degree).is_err());
        assert!(weights.check([degree; 66]).is_err());
    }
    assert!(weights.check([0; 65]).is_err());
    assert!(weights.check([0; 200]).is_err());
}
