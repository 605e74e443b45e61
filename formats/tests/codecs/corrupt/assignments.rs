//! Assignments, and the file that names the current one.

use super::*;

#[test]
fn corrupt_assignments_are_errors() {
    let name = "assignment";
    errors! { changed:
        name, |p| p.meta[0] = 3 => 64, "is generation 3 of 4 chunks";
        name, |p| p.meta[8] = 3 => 64, "is generation 2 of 3 chunks";
        name, |p| p.meta[12] = 0 => 72, "4 chunks, 0 partitions and 2 distinct table rows";
        name, |p| p.meta[16] = 5 => 72, "2 partitions and 5 distinct table rows";
        name, |p| p.put_meta(12, [0xff; 4]) => 72, "make no assignment";
        name, |p| p.meta[20] = 1 => 84, "reserved byte";
        name, |p| p.meta[24] = b'S' => 88, "\"Sweep\" is not a valid name of a schedule";
        name, |p| p.meta[39] = b'x' => 88, "is not a valid name of a schedule";
        name, |p| p.put_meta(24, [0; 16]) => 88, "is not a valid name of a schedule";
        name, |p| p.meta[16] = 1 => 24, "calls for a payload of 32 bytes, the header says 48";
        name, |p| p.payload[0] = 1 => PAYLOAD, "table row 0 is distinct row 1 of 2, but only the first 0 are in use";
        name, |p| p.payload[12] = 2 => PAYLOAD + 12, "table row 3 is distinct row 2 of 2";
        name, |p| (p.payload[8], p.payload[12]) = (0, 0) => PAYLOAD, "has 2 distinct table rows but uses only 1";
        name, |p| p.payload[16] = 2 => PAYLOAD + 16, "gives bucket 0 to partitions 2 and";
        name, |p| p.payload[26] = 0 => PAYLOAD + 24, "gives bucket 2 to partitions 0 and 0 of 2";
    }
}

#[test]
fn tables_that_contradict_their_diagonal_are_errors() {
    let name = "assignment-sweep";
    let none = |at: usize| move |p: &mut Parts| p.put(at, [0xff, 0xff]);
    errors! { changed:
        name, none(16) => PAYLOAD + 16, "chunk 0 is in the base of no partition";
        name, none(18)
            => PAYLOAD + 24, "make partition 0 and none see edge bucket (0, 2), but the table says partition 0 and partition 2";
        name, none(20)
            => PAYLOAD + 20, "make partition 0 and none see edge bucket (0, 1), but the table says none and none";
        // Chunks 0 and 2 share a row. It is valid for chunk 0. It would be valid for chunk 2 if that had the same owners.
        name, none(26)
            => PAYLOAD + 16, "make partition 0 and none see edge bucket (2, 0), but the table says partition 0 and partition 2";
    }
}

#[test]
fn current_must_be_one_line_with_its_checksum() {
    let name = "CURRENT";
    errors! { damaged:
        name, |b| b[11] = b'2' => 0, "CURRENT must be the line";
        name, |b| b.truncate(30) => 0, "CURRENT must be the line";
        name, |b| b.push(b'\n') => 0, "CURRENT must be the line";
        name, |b| b.clear() => 0, "CURRENT must be the line";
        name, |b| b.splice(11..11, *b"0").for_each(drop) => 0, "CURRENT must be the line";
    }
}
