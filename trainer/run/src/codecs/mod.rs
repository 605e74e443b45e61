//! Encodings of gradients, for the messages of processes that train together.
//!
//! A [`Dense`] encoding has every value. [`top_k`] has the values of the largest magnitude, and their indices. Encodings that lose
//! digits are for error feedback (Seide, Fu, Droppo, Li, Yu: "1-bit stochastic gradient descent", 2014): the sender keeps the
//! difference to what it sent and adds it to the next gradient.
//!
//! ```text
//!             bytes of n values                       loses
//! bf16        2 n                                     the last 16 of 24 digits
//! int8        n + 4 n / 1024                          differences up to 1/254 of a block's largest magnitude
//! lossless    about 3.5 n, at most 4 n + 32           nothing
//! top-k       k (16 + 2 + log2(n / k)) bits           all other values, and digits as bf16
//! ```
//!
//! All take a few nanoseconds per value.
//!
//! Encodings are not files: both ends are the same version of the program, which they check when they meet. NaN and infinities are not
//! lost: the values that are decoded for them are not finite.

mod bf16;
mod indices;
mod int8;
mod lossless;
mod malformed;
pub mod top_k;

pub use self::malformed::Malformed;

/// An encoding of all values of a gradient, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dense {
    /// Each value as bf16, rounded to nearest.
    Bf16,
    /// Each value as an integer from -127 to 127, times a scale per block of 1024 values.
    Int8,
    /// Each value as it is; exponents, signs and digits are entropy-coded apart from each other.
    Lossless,
}

impl Dense {
    /// The bytes of an encoding of `values` values. None if they depend on the values.
    pub fn encoded_bytes(self, values: usize) -> Option<usize> {
        match self {
            Self::Bf16 => Some(bf16::encoded_bytes(values)),
            Self::Int8 => Some(int8::encoded_bytes(values)),
            Self::Lossless => None,
        }
    }

    /// Whether decoded values differ from those that were encoded so much that the sender keeps the difference for its next gradient.
    pub fn needs_feedback(self) -> bool {
        self == Self::Int8
    }

    /// Appends the encoding of values.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) {
        match self {
            Self::Bf16 => bf16::encode(values, out),
            Self::Int8 => int8::encode(values, out),
            Self::Lossless => lossless::encode(values, out),
        }
    }

    /// Replaces values by the values that an encoding keeps.
    ///
    /// # Errors
    /// If these bytes do not encode `values.len()` values. The values are then undefined.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) -> Result<(), Malformed> {
        match self {
            Self::Bf16 => bf16::decode(bytes, values),
            Self::Int8 => int8::decode(bytes, values),
            Self::Lossless => lossless::decode(bytes, values),
        }
    }
}

#[cfg(test)]
mod tests;
