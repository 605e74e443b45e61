//! Features, labels and splits.

use super::*;

#[test]
fn corrupt_features_are_errors() {
    let name = "features-f32";
    errors! { changed:
        name, |p| p.put_meta(28, 8u32.to_le_bytes()) => 88, "at least 12, not 8";
        name, |p| p.put_meta(28, 14u32.to_le_bytes()) => 88, "multiple of 4";
        name, |p| p.put_meta(24, 0u32.to_le_bytes()) => 88, "rows have 0 values";
        name, |p| p.put_meta(24, [0xff; 4]) => 88, "rows have 4294967295 values";
        name, |p| p.meta[32] = 4 => 96, "there is no feature dtype 4";
        name, |p| p.meta[33] = 2 => 97, "it may have 1";
        name, |p| p.meta[33] = 1 => 88, "at least 28, not 12";
        name, |p| p.meta[39] = 1 => 103, "reserved byte";
        name, |p| p.payload_offset = 128 => 16, "no multiple of 4096";
        name, |p| p.payload.truncate(20) => 24, "calls for a payload of 24 bytes, the header says 20";
        name, |p| p.put_meta(16, 3u64.to_le_bytes()) => 24, "calls for a payload of 36 bytes, the header says 24";
        "features-f16", |p| p.payload[15] = 1 => 4096 + 15, "padding of a feature row is not 0";
    }
    let name = "features-int8";
    for scale in [f32::NAN, f32::INFINITY, f32::MAX / 127.0, -1.0, -0.0] {
        changed(name, |p| p.put(8, scale.to_le_bytes()), 4096 + 8, "the scale of an int8 row");
    }
    changed(name, |p| p.payload[5] = 0x80, 4096 + 5, "an int8 feature is -128");
    let name = "features-beside";
    for padding in [7, 15, 23] {
        changed(name, |p| p.payload[padding] = 1, 4096 + padding as u64, "padding of a feature row is not 0");
    }
    for at in [5, 13] {
        changed(name, |p| p.payload[at] = 0x80, 4096 + at as u64, "an int8 feature is -128");
    }
}

#[test]
fn corrupt_labels_are_errors() {
    let name = "labels-single";
    errors! { changed:
        name, |p| p.put(4, 300u16.to_le_bytes()) => PAYLOAD + 4, "label of row 2: class 300 of 300 classes";
        name, |p| p.put_meta(24, [0; 4]) => 88, "labels of 0 classes";
        name, |p| p.meta[28] = 4 => 92, "there is no label kind 4";
        name, |p| p.meta[29] = 1 => 93, "reserved byte";
        name, |p| p.put_meta(24, 255u32.to_le_bytes()) => 24, "calls for a payload of 4 bytes, the header says 8";
    }
    let name = "labels-multi";
    errors! { changed:
        name, |p| p.payload[1] |= 0x08 => PAYLOAD, "label of row 0: a bit beyond the last class";
        name, |p| p.payload[4] = 1 => PAYLOAD + 4, "label of row 2: an unlabelled node has classes";
        name, |p| p.payload[5] = 1 => PAYLOAD + 4, "label of row 2: an unlabelled node has classes";
        name, |p| p.payload.truncate(7) => 24, "calls for a payload of 8 bytes, the header says 7";
    }
    let name = "labels-partial";
    errors! { changed:
        name, |p| p.payload[1] |= 0x80 => PAGE, "label of row 0: a bit beyond the last class";
        name, |p| p.payload[4] = 2 => PAGE + 4, "label of row 2: the node is in class 1, which is unknown";
    }
    let name = "labels-targets";
    errors! { changed:
        name, |p| p.put(8, f32::NEG_INFINITY.to_le_bytes()) => PAGE + 8, "label of row 1: a target is -inf";
        name, |p| p.put_meta(24, ((1 << 24) + 1u32).to_le_bytes()) => 88, "16777217 targets; at most 16777216";
    }
}

#[test]
fn corrupt_splits_are_errors() {
    let name = "split";
    errors! { changed:
        name, |p| p.put_meta(0, *b"test\0\0\0\0") => 64, "of the split \"test";
        name, |p| p.put_meta(8, 9u64.to_le_bytes()) => 72, "of a graph of 9 nodes";
        name, |p| p.put_meta(16, 9u64.to_le_bytes()) => PAYLOAD, "has 104 nodes, but its meta says 9";
        name, |p| p.payload.fill(0xff) => PAYLOAD, "not a valid roaring bitmap";
        name, |p| p.payload[12] ^= 1 => PAYLOAD, "not a valid roaring bitmap: unknown cookie";
        name, |p| p.payload.clear() => PAYLOAD, "not a valid roaring bitmap";
        name, |p| p.payload.truncate(30) => PAYLOAD, "not a valid roaring bitmap";
        name, |p| p.payload.push(0) => PAYLOAD, "followed by other bytes";
    }
    // The key of the last bitmap, 1: as 0 it repeats, as 2 its node is beyond the last one.
    let key = Parts::from_file(&golden::bytes(name)).payload.len() - 22;
    errors! { changed:
        name, |p| p.put(key, 0u32.to_le_bytes()) => PAYLOAD, "repeats a key";
        name, |p| p.put(key, 2u32.to_le_bytes()) => PAYLOAD, "node 8589934599, but the graph has 8589934592";
    }
}
