//! What several targets use.

use crate::{Input, Target, target::no_repair};

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
    Target { name, seeds, words, repair: no_repair, run, memory_base: 4 << 20, memory_per_byte: 256 }
}

/// The outcome of a result: the error, or the text of `accepted`.
pub fn outcome<T, E: std::fmt::Display>(result: Result<T, E>, accepted: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => accepted(value),
        Err(error) => format!("error: {error}"),
    }
}
