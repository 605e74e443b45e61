//! Options that several programs have.

use std::{ops::RangeInclusive, str::FromStr};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use grappa_formats::manifest::{FeatureDtype, SelfLoops};

/// Parses a name as its value. The long help explains each name.
pub fn choices<T: Clone + Send + Sync + 'static, const N: usize>(
    choices: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = choices.each_ref().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).map(move |choice| {
        let found = choices.iter().find(|(name, ..)| *name == choice);
        found.expect("clap accepts no other name").2.clone()
    })
}

/// How feature values are stored.
pub fn dtypes() -> impl TypedValueParser<Value = FeatureDtype> {
    choices([
        ("f32", "32-bit float", FeatureDtype::F32),
        ("f16", "16-bit float (IEEE half precision)", FeatureDtype::F16),
        ("bf16", "16-bit float with the exponent range of f32", FeatureDtype::Bf16),
        ("int8", "8-bit integer, with a scale for each row", FeatureDtype::Int8),
    ])
}

/// What happens to edges from a node to itself.
pub fn self_loops() -> impl TypedValueParser<Value = SelfLoops> {
    choices([
        ("keep", "Keep them as they are", SelfLoops::Keep),
        ("drop", "Remove them", SelfLoops::Drop),
        ("add", "Give every node exactly one", SelfLoops::Add),
    ])
}

/// The number of chunks of a new store. `auto` is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks(pub Option<u32>);

impl FromStr for Chunks {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Self(None)),
            (_, Ok(chunks)) if chunks > 0 => Ok(Self(Some(chunks))),
            _ => Err("expected `auto` or a number of chunks from 1 to 4294967295"),
        }
    }
}

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
