//! Mutations of inputs. They find bugs in length fields, offsets, numbers in text, and the order of parts.

use grappa_tests::random::Random;

/// The longest mutant. Bugs need structure, not size, and short inputs run faster.
pub const INPUT_BYTES_MAX: usize = 32 << 10;

/// Numbers in text that parsers often handle wrongly.
const NUMBERS: [&str; 20] = [
    "0",
    "-0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "1099511627775",
    "1099511627776",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "-1e-400",
    "0.1",
    "nan",
    "inf",
];

/// Applies one to eight mutations to `input`. `other` is an input to splice with. `words` are the words of the target's
/// language.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    // Mostly few: each mutation may undo what makes the input worth mutating.
    let mutations = 1 + (random.draw() & random.draw() & 7);
    for _ in 0..mutations {
        mutate_once(input, other, words, random);
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn mutate_once(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    match random.below(16) {
        0 | 1 => flip_bit(input, random),
        2 => set_byte(input, random),
        3..=5 => set_integer(input, random),
        6 => add_to_integer(input, random),
        7 => truncate(input, random),
        8 => remove(input, random),
        9 => repeat(input, random),
        10 => swap(input, random),
        11 => insert(input, random),
        12 | 13 => splice(input, other, random),
        14 => replace_number(input, random),
        _ => insert_word(input, words, random),
    }
}

/// A position in the input; `None` if it is empty.
fn place(input: &[u8], random: &mut Random) -> Option<usize> {
    (!input.is_empty()).then(|| random.below(input.len() as u64) as usize)
}

/// A range of the input, usually a short one.
fn range(input: &[u8], random: &mut Random) -> Option<std::ops::Range<usize>> {
    let start = place(input, random)?;
    let most = match random.below(4) {
        0 => input.len() - start,
        _ => (input.len() - start).min(16),
    };
    Some(start..start + 1 + random.below(most as u64) as usize)
}

fn flip_bit(input: &mut [u8], random: &mut Random) {
    if let Some(at) = place(input, random) {
        input[at] ^= 1 << random.below(8);
    }
}

fn set_byte(input: &mut [u8], random: &mut Random) {
    if let Some(at) = place(input, random) {
        input[at] = random.draw() as u8;
    }
}

/// Overwrites a little-endian integer of 1 to 8 bytes with a value near a limit, or near the size of the input.
fn set_integer(input: &mut [u8], random: &mut Random) {
    let bytes = 1usize << random.below(4);
    let Some(last) = input.len().checked_sub(bytes) else {
        return;
    };
    let size = input.len() as u64;
    let value = match random.below(8) {
        0 => random.below(4),
        1 => u64::MAX - random.below(4),
        2 => 1 << random.below(64),
        3 => (1u64 << random.below(64)).wrapping_sub(1),
        4 => size.wrapping_add(random.below(17)).wrapping_sub(8),
        5 => i64::MAX as u64 - random.below(2),
        6 => (1 << 40) - 1 + random.below(3),
        _ => random.below(size + 1),
    };
    // Fields are aligned more often than not.
    let mut at = random.below(last as u64 + 1) as usize;
    if random.below(4) > 0 {
        at -= at % bytes;
    }
    input[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

fn add_to_integer(input: &mut [u8], random: &mut Random) {
    let bytes = 1usize << random.below(4);
    let Some(last) = input.len().checked_sub(bytes) else {
        return;
    };
    let at = random.below(last as u64 + 1) as usize;
    let mut value = [0; 8];
    value[..bytes].copy_from_slice(&input[at..at + bytes]);
    let value = u64::from_le_bytes(value)
        .wrapping_add(random.below(33))
        .wrapping_sub(16);
    input[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

fn truncate(input: &mut Vec<u8>, random: &mut Random) {
    let length = input.len() as u64;
    let cut = match random.below(2) {
        0 => random.below(length.min(16) + 1),
        _ => random.below(length + 1),
    };
    input.truncate((length - cut) as usize);
}

fn remove(input: &mut Vec<u8>, random: &mut Random) {
    if let Some(range) = range(input, random) {
        input.drain(range);
    }
}

/// Inserts a copy of a range elsewhere, or many copies of a short one.
fn repeat(input: &mut Vec<u8>, random: &mut Random) {
    let (Some(range), Some(at)) = (range(input, random), place(input, random)) else {
        return;
    };
    let times = match random.below(8) {
        0 => 1 + random.below(200),
        _ => 1,
    };
    let copy = input[range].repeat(times as usize);
    if input.len() + copy.len() <= INPUT_BYTES_MAX {
        input.splice(at..at, copy);
    }
}

/// Exchanges two ranges of the same length.
fn swap(input: &mut [u8], random: &mut Random) {
    let (Some(range), Some(to)) = (range(input, random), place(input, random)) else {
        return;
    };
    let length = range.len().min(input.len() - to);
    for k in 0..length {
        input.swap(range.start + k, to + k);
    }
}

fn insert(input: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(input.len() as u64 + 1) as usize;
    let (length, value) = (1 + random.below(16) as usize, random.draw());
    let filled = random.below(2) == 0;
    let bytes = (0..length).map(|k| match filled {
        true => value as u8,
        false => (value >> (8 * (k % 8))) as u8,
    });
    let bytes: Vec<u8> = bytes.collect();
    input.splice(at..at, bytes);
}

/// Copies a range of another input into this one, over a range or between two bytes.
fn splice(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let (Some(from), at) = (range(other, random), random.below(input.len() as u64 + 1) as usize) else {
        return;
    };
    let end = match random.below(2) {
        0 => at,
        _ => (at + from.len()).min(input.len()),
    };
    input.splice(at..end, other[from].iter().copied());
}

/// Replaces a number in text.
fn replace_number(input: &mut Vec<u8>, random: &mut Random) {
    let Some(from) = place(input, random) else { return };
    let Some(start) = input[from..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let start = from + start;
    let end = input[start..]
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .map_or(input.len(), |length| start + length);
    let number = NUMBERS[random.below(NUMBERS.len() as u64) as usize];
    input.splice(start..end, number.bytes());
}

fn insert_word(input: &mut Vec<u8>, words: &[&str], random: &mut Random) {
    if words.is_empty() {
        return insert(input, random);
    }
    let word = words[random.below(words.len() as u64) as usize].as_bytes();
    let at = random.below(input.len() as u64 + 1) as usize;
    // Over what is there, as often as between it.
    let end = match random.below(2) {
        0 => at,
        _ => (at + word.len()).min(input.len()),
    };
    input.splice(at..end, word.iter().copied());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn mutants_differ_and_stay_short_whatever_they_are_made_of() {
        let mut random = Random::new(1);
        for seed in [&b""[..], b"7", b"0 1\n2 3\n", &[0; INPUT_BYTES_MAX]] {
            let mut seen = BTreeSet::new();
            for _ in 0..500 {
                let mut input = seed.to_vec();
                mutate(&mut input, b"another", &["word"], &mut random);
                assert!(input.len() <= INPUT_BYTES_MAX);
                seen.insert(input);
            }
            assert!(seen.len() > 100, "{} of {} bytes", seen.len(), seed.len());
        }
    }

    #[test]
    fn the_same_numbers_make_the_same_mutants() {
        let mutants = |seed| {
            let mut random = Random::new(seed);
            let mut input = b"a line 12\n".to_vec();
            (0..50)
                .map(|_| {
                    mutate(&mut input, b"12 34\n", &[], &mut random);
                    input.clone()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(mutants(3), mutants(3));
        assert_ne!(mutants(3), mutants(4));
    }
}
