//! Fanouts: how many neighbors each hop samples.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};

/// The maximum number of in-neighbors per destination, hop by hop, **from the seeds outwards**. With `15,10,5` each
/// seed samples up to 15 in-neighbors, each node that was then reached up to 10, and the nodes that were reached last
/// up to 5.
///
/// PyG's `num_neighbors` has the same order. DGL writes the same sampler `[5, 10, 15]`: its `fanouts` follow the layers
/// of the model, and the first layer works on the hop furthest from the seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fanouts(Vec<Option<u32>>);

impl Fanouts {
    /// Up to `fanouts[h]` neighbors at hop `h`; -1 takes all, and 0 none.
    ///
    /// # Errors
    /// If there are no fanouts, or one is less than -1 or too large.
    pub fn new(fanouts: &[i64]) -> Result<Self> {
        if fanouts.is_empty() {
            return Err(Error::out_of_range("fanouts", "one for each hop, such as 15,10,5", "none"));
        }
        fanouts
            .iter()
            .enumerate()
            .map(|(hop, &fanout)| match u32::try_from(fanout) {
                _ if fanout == -1 => Ok(None),
                Ok(fanout) => Ok(Some(fanout)),
                Err(_) => Err(wrong(hop, 0, &fanout.to_string())),
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// The fanouts without the hop furthest from the seeds. None may be left.
    #[must_use]
    pub fn without_last(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// Each fanout times `factor`.
    #[must_use]
    pub fn times(&self, factor: u32) -> Self {
        let fanouts = self.0.iter();
        Self(fanouts.map(|fanout| fanout.map(|fanout| fanout.saturating_mul(factor))).collect())
    }

    /// The number of hops.
    pub fn hops(&self) -> usize {
        self.0.len()
    }

    /// The fanout of a hop, counted from 0 at the seeds; none if all neighbors are taken.
    ///
    /// # Panics
    /// If there is no such hop.
    pub fn at(&self, hop: usize) -> Option<u32> {
        self.0[hop]
    }
}

fn wrong(hop: usize, least: u32, found: &str) -> Error {
    Error::out_of_range(
        format!("fanout {} of the list", hop + 1),
        format!("a number from {least} to {}, or -1 for all neighbors", u32::MAX),
        found,
    )
}

impl FromStr for Fanouts {
    type Err = Error;

    /// Parses a list such as `15,10,5`. Programs train a layer for each hop, so 0 is an error.
    fn from_str(text: &str) -> Result<Self> {
        let fanouts = text
            .split(',')
            .enumerate()
            .map(|(hop, text)| match text.trim().parse::<i64>() {
                Ok(fanout) if fanout > 0 || fanout == -1 => Ok(fanout),
                Ok(fanout) => Err(wrong(hop, 1, &fanout.to_string())),
                Err(_) => Err(wrong(hop, 1, &format!("{text:?}"))),
            })
            .collect::<Result<Vec<_>>>()?;
        Self::new(&fanouts)
    }
}

impl fmt::Display for Fanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (hop, fanout) in self.0.iter().enumerate() {
            let comma = if hop > 0 { "," } else { "" };
            match fanout {
                Some(fanout) => write!(f, "{comma}{fanout}")?,
                None => write!(f, "{comma}-1")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_parse_and_display_from_the_seeds_outwards() {
        let fanouts: Fanouts = "15, 10,-1".parse().unwrap();
        assert_eq!((fanouts.at(0), fanouts.at(1), fanouts.at(2)), (Some(15), Some(10), None));
        assert_eq!(fanouts.hops(), 3);
        assert_eq!(fanouts.to_string(), "15,10,-1");
    }

    #[test]
    fn the_error_for_a_wrong_fanout_names_its_place() {
        for (text, place) in [
            ("0", "fanout 1 "),
            ("15,-2", "fanout 2 "),
            ("15,10,x", "fanout 3 "),
            ("15,,5", "fanout 2 "),
            ("4294967296", "fanout 1 "),
            ("", "fanout 1 "),
        ] {
            let error = text.parse::<Fanouts>().unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
        }
        assert!(Fanouts::new(&[]).unwrap_err().to_string().contains("15,10,5"));
        assert!(Fanouts::new(&[5, -2]).unwrap_err().to_string().contains("a number from 0 to 4294967295"));
    }
}
