//! Options that several programs have.

use std::{ops::RangeInclusive, str::FromStr};

use clap::ValueEnum;
use grappa_formats::manifest::{FeatureDtype, SelfLoops};

/// How feature values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 32-bit float
    F32,
    /// 16-bit float (IEEE half precision)
    F16,
    /// 16-bit float with the exponent range of f32
    Bf16,
    /// 8-bit integer, with a scale for each row
    Int8,
}

impl From<Dtype> for FeatureDtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
            Dtype::Int8 => Self::Int8,
        }
    }
}

/// What happens to edges from a node to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Loops {
    /// Keep them as they are
    Keep,
    /// Remove them
    Drop,
    /// Give every node exactly one
    Add,
}

impl From<Loops> for SelfLoops {
    fn from(loops: Loops) -> Self {
        match loops {
            Loops::Keep => Self::Keep,
            Loops::Drop => Self::Drop,
            Loops::Add => Self::Add,
        }
    }
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
