//! Lists of chunks on command lines.

use std::ops::RangeInclusive;

/// Parses one element of a list of chunks, such as `5` or `5-7`. The options split the list at commas.
///
/// # Errors
/// If it is neither a number nor a range.
pub fn chunk_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("expected chunks such as 5 or 5-7".to_owned()),
    }
}
