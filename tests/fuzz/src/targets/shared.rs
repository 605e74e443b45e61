//! What several targets use.

use std::fmt::{Debug, Display};

use grappa_input::{IdKind, IdLimit};

use crate::{Input, Target, target::Repair};

/// Words of JSON files: recipes, journals, headers of safetensors, metrics.
pub const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "1e400",
    "-0.0",
    "\\u0000",
    "\\ud800",
    "\"model\"",
    "\"seed\"",
    "\"rmat\"",
    "\"sbm\"",
    "\"erdos-renyi\"",
    "\"dtype\"",
    "\"F32\"",
    "\"F16\"",
    "\"BF16\"",
    "\"I64\"",
    "\"shape\"",
    "\"data_offsets\"",
    "\"__metadata__\"",
    "[0,0]",
    "18446744073709551615",
];

/// A target without checksums whose inputs are small files.
pub fn small(
    name: &'static str,
    words: &'static [&'static str],
    seeds: fn() -> Vec<Vec<u8>>,
    run: fn(&Input) -> String,
) -> Target {
    Target { name, seeds, words, repair: Repair::Nothing, run, memory_base: 4 << 20, memory_per_byte: 256 }
}

/// The outcome of a result: the error, or the text of `accepted`.
pub fn outcome<T, E: Display>(result: Result<T, E>, accepted: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => accepted(value),
        Err(error) => format!("error: {error}"),
    }
}

/// The outcome of reading a file in pieces and as a whole, which must be the same: the error, or the text of `accepted`.
pub fn same_outcome<T: Debug + PartialEq, E: Debug + Display>(
    in_pieces: Result<T, E>,
    whole: Result<T, E>,
    accepted: impl FnOnce(T) -> String,
) -> String {
    match (in_pieces, whole) {
        (Ok(in_pieces), Ok(whole)) => {
            assert_eq!(in_pieces, whole);
            accepted(whole)
        }
        (Err(_), Err(error)) => format!("error: {error}"),
        (in_pieces, whole) => panic!("in pieces: {in_pieces:?}, as a whole: {whole:?}"),
    }
}

/// An input whose first byte selects options.
pub fn with_choice(choice: u8, file: impl AsRef<[u8]>) -> Vec<u8> {
    [&[choice], file.as_ref()].concat()
}

/// The kind of ids, and their limit, that a choice selects.
pub fn ids_of(choice: u8) -> (IdKind, IdLimit) {
    let kind = if choice & 0x20 == 0 { IdKind::Integer } else { IdKind::String };
    let limit = match choice >> 3 & 3 {
        0 => IdLimit::Dense,
        1 => IdLimit::Nodes(1000),
        _ => IdLimit::Sparse,
    };
    (kind, limit)
}
