//! The division of edges by time.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// Percentages of the edges of a graph, in the order of time: to learn, for validation and for test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSplit([f64; 3]);

impl TimeSplit {
    /// The shares of the edges to learn and for validation.
    pub fn shares(self) -> [f64; 2] {
        [self.0[0] / 100.0, self.0[1] / 100.0]
    }
}

impl Default for TimeSplit {
    fn default() -> Self {
        Self([70.0, 15.0, 15.0])
    }
}

impl FromStr for TimeSplit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: std::result::Result<Vec<f64>, _> = text.split('/').map(str::parse).collect();
        let refused = || {
            Error::Options(format!("time-split is {text}; give three percentages that add up to 100, such as 70/15/15"))
        };
        let parts = <[f64; 3]>::try_from(parts.map_err(|_| refused())?).map_err(|_| refused())?;
        let is_possible = parts[0] > 0.0 && parts.iter().all(|part| *part >= 0.0 && part.is_finite());
        match is_possible && (parts.iter().sum::<f64>() - 100.0).abs() < 1e-6 {
            true => Ok(Self(parts)),
            false => Err(refused()),
        }
    }
}

impl fmt::Display for TimeSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [learned, val, test] = self.0;
        write!(f, "{learned}/{val}/{test}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_add_up_to_100() {
        for text in ["70/15/15", "99.5/0.5/0", "100/0/0"] {
            assert_eq!(text.parse::<TimeSplit>().unwrap().to_string(), text);
        }
        assert_eq!("80/10/10".parse::<TimeSplit>().unwrap().shares(), [0.8, 0.1]);
        for text in ["", "70/30", "70/20/20", "0/50/50", "110/-5/-5", "a/b/c", "NaN/50/50", "70/15/15/0"] {
            let error = text.parse::<TimeSplit>().unwrap_err().to_string();
            assert!(error.contains("such as 70/15/15"), "{error}");
        }
    }
}
