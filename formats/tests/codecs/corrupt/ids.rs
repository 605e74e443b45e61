//! Dictionaries and permutation tables.

use super::*;

#[test]
fn corrupt_dictionaries_are_errors() {
    let name = "dictionary-integers";
    errors! { changed:
        name, |p| p.put(8, 3u64.to_le_bytes()) => PAYLOAD + 8, "not sorted: 3, dense id 1, comes after 3";
        name, |p| p.put(16, 1u64.to_le_bytes()) => PAYLOAD + 16, "not sorted: 1, dense id 2, comes after 70";
        name, |p| p.meta[0] = 2 => 64, "there is no kind of dictionary 2";
        name, |p| p.put_meta(8, [0xff; 8]) => 72, "keys are more than 2^40";
        name, |p| p.put_meta(8, 5u64.to_le_bytes()) => 80, "5 integers do not have 32 bytes";
        name, |p| p.payload.truncate(24) => 24, "calls for a payload of 32 bytes, the header says 24";
    }

    let name = "dictionary-strings";
    let parts = Parts::from_file(&golden::bytes(name));
    let table = parts.payload.len() - 16;
    let second = u64::from_le_bytes(parts.payload[table + 8..].try_into().unwrap()) as usize;
    errors! { changed:
        name, |p| p.put_meta(0, [0; 4]) => 80, "18 integers do not have";
        name, |p| p.put_meta(16, [0xff; 8]) => 24, "calls for a payload of";
        name, |p| p.payload[1] = b'c' => PAYLOAD + second as u64, "not sorted at dense id 16";
        name, |p| p.payload[second + 1] = b'a' => PAYLOAD + second as u64, "not sorted at dense id 16";
    }
    // Rank 2 follows `bin/tool10`: 8 bytes in common, then a last digit of `1`; the same digit again is not sorted.
    let digit = parts.payload.iter().position(|&b| b == b'1').unwrap() + 4;
    assert_eq!(parts.payload[digit - 2..=digit], [9, 1, b'1']);
    let key_2 = PAYLOAD + digit as u64 - 2;
    errors! { changed:
        name, |p| p.payload[digit] = b'0' => key_2, "not sorted at dense id 2";
        name, |p| p.payload[digit - 2] = 8 => key_2, "not sorted at dense id 2";
        name, |p| p.payload[digit - 2] = 11 => key_2, "a key of 11 + 1 bytes after one of 10";
        name, |p| p.put(digit - 1, [0xff, 0xff, 0x7f]) => PAYLOAD + digit as u64 - 1, "holds a bad length";
        name, |p| p.put(0, [0x84, 0x00]) => PAYLOAD, "holds a bad length";
    }
    let last = second as u64 + PAYLOAD + 13;
    changed(name, |p| p.payload[second + 12] = 100, last, "a key of 100 bytes where a block");
    let entry = PAYLOAD + table as u64 + 8;
    errors! { changed:
        name, |p| p.put(table + 8, 3u64.to_le_bytes()) => entry, "but the dictionary's table says 3";
        name, |p| p.put(table + 8, [0xff; 8]) => entry, "but the dictionary's table says 18446744073709551615";
    }
}

#[test]
fn offsets_of_a_dictionary_are_checked_before_use() {
    use grappa_formats::dictionary::StringDictionary;
    for start in [1 << 20, u64::MAX] {
        let mut parts = Parts::from_file(&golden::bytes("dictionary-strings"));
        let table = parts.payload.len() - 16;
        parts.put(table + 8, start.to_le_bytes());
        let file = parts.file();
        let (header, payload) = crate::open(&file, FileKind::DICTIONARY);
        let dictionary = StringDictionary::new(&header, payload).unwrap();
        for id in [0, 16] {
            let error = dictionary.get(DenseId(id), &mut Vec::new(), |_| Ok(())).unwrap_err();
            assert!(error.to_string().contains("of the dictionary is at"), "{error}");
            assert_eq!(error.offset(), PAYLOAD + table as u64 + 8 * (id / 16));
        }
        assert!(dictionary.find(b"lib", |_| Ok(())).is_err());
    }
}

#[test]
fn corrupt_permutation_tables_are_errors() {
    let name = "order";
    errors! { changed:
        name, |p| p.payload[5] = 4 => PAYLOAD + 5, "has the entry 4, but there are 4 nodes";
        name, |p| p.payload[24] = 1 => PAYLOAD + 20, "has the entry 4294967297, but there are 4 nodes";
        name, |p| p.payload[5] = 1 => PAYLOAD + 5, "dense id 1 has node 1, but that node has dense id 3";
        name, |p| p.put_meta(0, 5u64.to_le_bytes()) => 24, "calls for a payload of 50 bytes, the header says 40";
        name, |p| p.put_meta(0, [0xff; 8]) => 64, "nodes are more than 2^40";
    }
}
