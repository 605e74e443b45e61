//! Adjacency lists and edge weights.

use super::*;

#[test]
fn corrupt_rows_are_errors() {
    let (edges, degrees) = ("edges-elias-fano", "degrees-elias-fano");
    errors! { changed:
        edges, |p| p.put_meta(0, [3]) => 64, "row codec 3";
        edges, |p| p.put_meta(0, [2]) => 64, "not of the same rows";
        "edges-by-time", |p| p.put_meta(3, [1]) => 64, "row codec 2 with parameters [0, 0, 1,";
        edges, |p| p.put_meta(1, [1]) => 64, "row codec 0 with parameters [1, 0, 0, 0, 0, 0, 0]";
        edges, |p| p.put_meta(6, [1]) => 64, "reserved";
        "edges-gap", |p| p.put_meta(2, [32]) => 64, "row codec 1 with parameters [1, 32,";
        edges, |p| p.put_meta(16, ((1u64 << 40) - 3).to_le_bytes()) => 64, "4 rows from node 1099511627773 on";
        edges, |p| p.put_meta(8, (NODES_MAX + 1).to_le_bytes()) => 64, "more than 2^40";
        edges, |p| p.put_meta(32, u64::MAX.to_le_bytes()) => 64, "do not fit 36 bits";
        edges, |p| p.put_meta(48, [5]) => 64, "5 exceptions among 4 rows";
        edges, |p| p.put_meta(32, [11]) => 64, "not of the same rows";
        edges, |p| p.payload.truncate(12) => 12, "the rows: expected 13 bytes, found 12";
        degrees, |p| p.payload.push(0) => 64, "the row directory: expected 64 bytes, found 65";
        // The lower bits of the first three sources become 1, 3, 0.
        edges, |p| p.put(1, [0x26]) => PAYLOAD, "the sources of row 0 do not ascend";
        edges, |p| p.put(5, [1]) => PAYLOAD + 5, "are not the encoding of any row";
        degrees, |p| p.put(0, [1]) => PAYLOAD, "row 0 does not start where";
        degrees, |p| p.put(6, [1]) => PAYLOAD + 6, "row 0 does not start where";
        degrees, |p| p.put(14, [1]) => PAYLOAD + 14, "line of rows 0.. does not match the rows";
    }
}

#[test]
fn corrupt_times_are_errors() {
    let (times, degrees) = ("times", "time-degrees");
    errors! { changed:
        "edges-by-time", |p| p.put(5, [1]) => PAGE + 5, "are not the encoding of any row";
        times, |p| p.put(8, [1]) => PAGE + 8, "are not the encoding of any row";
        times, |p| p.put_meta(8, [99]) => 64, "not of the same rows";
        times, |p| p.payload.truncate(12) => 12, "the rows: expected 16 bytes, found 12";
        degrees, |p| p.put(14, [1]) => PAGE + 14, "line of rows 0.. does not match the rows";
    }
    let (span, table) = ("time-axis-span", "time-axis-table");
    errors! { changed:
        span, |p| p.meta[0] = 6 => 64, "there is no unit of time 6";
        span, |p| p.meta[1] = 2 => 65, "there is no form 2 of an axis of time";
        span, |p| p.meta[7] = 1 => 71, "a reserved byte of the meta is not 0";
        span, |p| p.put_meta(8, i64::MAX.to_le_bytes()) => 72, "100 points in time from 9223372036854775807 on exceed an i64";
        span, |p| p.put_meta(16, [0; 8]) => 72, "0 points in time from 1700000000 on exceed an i64";
        span, |p| p.put_meta(16, (NODES_MAX + 1).to_le_bytes()) => 80, "points in time are more than 2^40";
        span, |p| p.meta.truncate(16) => 32, "the meta has 16 bytes, not 24";
        span, |p| p.payload.push(0) => 24, "calls for a payload of 0 bytes, the header says 1";
        table, |p| p.put_meta(16, [4]) => 24, "calls for a payload of 32 bytes, the header says 24";
        table, |p| p.put(8, (-365i64).to_le_bytes()) => PAYLOAD + 8, "the times of the table do not ascend";
        table, |p| p.put_meta(8, [0; 8]) => 72, "the meta has the first time 0, the table -365";
    }
}

#[test]
fn corrupt_weights_are_errors() {
    let name = "weights";
    // Three weights and a padding, then the anchors of rows 0 and 64.
    errors! { changed:
        name, |p| p.payload[24] = 3 => PAYLOAD + 24, "the edges of node 65 of the chunk, counted from edge 3";
        name, |p| p.payload[24] = 1 => PAYLOAD + 24, "the anchor of node 64 of the chunk is edge 1";
        name, |p| p.put(16, [0xff; 8])
            => PAYLOAD + 16, "the edges of node 0 of the chunk, counted from edge 18446744073709551615";
        name, |p| p.payload[12] = 1 => PAYLOAD + 12, "between the rows of edges and their anchors";
        name, |p| p.payload_offset = 100 => 16, "no multiple of 8";
        name, |p| p.put_meta(24, [0xff; 8]) => 24, "calls for a payload of 18446744073709551615";
        name, |p| p.meta[24] = 5 => 24, "calls for a payload of 40 bytes, the header says 32";
    }
}

#[test]
fn corrupt_edge_features_are_errors() {
    // Rows of 6 bytes and a padding of 2. Three of them, then the anchors of rows 0 and 64.
    let name = "edge-features-bf16";
    let payload = 4096;
    errors! { changed:
        name, |p| p.payload[32] = 3 => payload + 32, "the edges of node 65 of the chunk, counted from edge 3";
        name, |p| p.payload[32] = 1 => payload + 32, "the anchor of node 64 of the chunk is edge 1";
        name, |p| p.payload[7] = 1 => payload + 7, "the padding of a feature row is not 0";
        name, |p| p.payload_offset = 4100 => 16, "no multiple of 8";
        name, |p| p.put_meta(32, [0; 4]) => 96, "rows have 0 values";
        name, |p| p.meta[36] = 4 => 96, "need a stride that is a multiple of 4 and at least 6, not 4";
        name, |p| p.meta[40] = 4 => 104, "there is no feature dtype 4";
        name, |p| p.meta[41] = 1 => 105, "a reserved byte of the meta is not 0";
        name, |p| p.put_meta(24, [0xff; 8]) => 24, "calls for a payload of 18446744073709551615";
        name, |p| p.meta[24] = 4 => 24, "calls for a payload of 48 bytes, the header says 40";
    }
    let name = "edge-features-int8";
    changed(name, |p| p.payload[5] = 0x80, payload + 5, "an int8 feature is -128");
    changed(name, |p| p.payload[3] = 0xff, payload, "the scale of an int8 row is");
}
