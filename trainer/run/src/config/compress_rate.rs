//! The share of a gradient's values that is sent.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// The share of a gradient's values that is sent: a number (`0.01`), or a range over the epochs of a run (`0.01..0.5`).
///
/// Over a range, the compression ratio, which is 1 divided by the share, falls linearly, as in VARCO (Cerviño, Turja, Mostafa,
/// Himayat, Ribeiro: "Distributed Training of Large Graph Neural Networks with Variable Communication Rates", arXiv 2406.17611,
/// which compresses activations): coarse sums do for the first steps, and the last ones need exact sums.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompressRate {
    first: f64,
    last: f64,
}

impl CompressRate {
    /// The share at a time of the run: 0 is its beginning, 1 its end.
    pub fn at(&self, done: f64) -> f64 {
        let (first, last) = (self.first.recip(), self.last.recip());
        (first + (last - first) * done.clamp(0.0, 1.0)).recip().min(1.0)
    }

    /// The largest share, at the end of the run.
    pub fn last(&self) -> f64 {
        self.last
    }

    /// Checks the range of shares, and their order.
    pub(super) fn check(&self) -> Result<()> {
        // Written so that NaN is in no range.
        if [self.first, self.last].iter().any(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(Error::out_of_range("compress-rate", "above 0 and at most 1", self));
        }
        if self.first > self.last {
            return Err(Error::Options(format!(
                "compress-rate is {self}; a rate cannot fall: give the smaller one first"
            )));
        }
        Ok(())
    }
}

impl Default for CompressRate {
    /// The smallest share without a loss of accuracy in runs of some hundred steps.
    fn default() -> Self {
        Self { first: 0.25, last: 0.25 }
    }
}

impl FromStr for CompressRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) => Ok(Self { first, last }),
            _ => Err(Error::Options(format!(
                "`{text}` is no rate: give a share such as 0.01, or a range such as 0.01..0.5"
            ))),
        }
    }
}

impl fmt::Display for CompressRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Also if both are NaN.
        if self.first.to_bits() == self.last.to_bits() {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}..{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> CompressRate {
        text.parse().unwrap()
    }

    #[test]
    fn a_single_share_is_for_the_whole_run() {
        for done in [0.0, 0.5, 1.0] {
            assert!((rate("0.01").at(done) - 0.01).abs() < 1e-15);
        }
        assert_eq!(rate("1").at(0.3), 1.0);
    }

    #[test]
    fn over_a_range_the_compression_ratio_falls_linearly() {
        let rate = rate("0.01..0.5");
        for (done, ratio) in [(0.0, 100.0), (0.25, 75.5), (0.5, 51.0), (1.0, 2.0), (1.5, 2.0)] {
            assert!((rate.at(done).recip() - ratio).abs() < 1e-9, "{done}");
        }
        assert_eq!(rate.last(), 0.5);
    }

    #[test]
    fn a_rate_is_written_as_it_is_read() {
        for text in ["0.01", "0.01..0.5", "1"] {
            assert_eq!(rate(text).to_string(), text);
        }
        for text in ["", "x", "0.1..", "..0.5", "0.1..0.2..0.3", "1%"] {
            let error = text.parse::<CompressRate>().unwrap_err().to_string();
            assert!(error.contains("is no rate: give a share such as 0.01"), "{text}: {error}");
        }
    }
}
