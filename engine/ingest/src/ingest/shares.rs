//! A random split, as the user gives it.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};

/// Bytes of memory per bit of a split's bitmap: the set, its encoding, and the encoding in a file buffer.
const SPLIT_COST: u64 = 3;
/// Units of a percent.
const UNITS: u32 = 10_000;
/// Digits after the decimal point of a share.
const DECIMALS: usize = UNITS.ilog10() as usize;
/// Units of all nodes.
const WHOLE: u32 = 100 * UNITS;

/// How to split nodes at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomSplit {
    /// The share of each split. If there are labels, of the labelled nodes.
    pub shares: Shares,
    /// Seed of the draw.
    pub seed: u64,
    /// Whether each class is split in these shares. Otherwise all nodes together are.
    pub stratify: bool,
}

impl RandomSplit {
    /// Bytes of memory that a split of a graph with `nodes` nodes takes, without its histograms.
    pub fn memory(nodes: u64) -> u64 {
        nodes.div_ceil(8) * SPLIT_COST
    }

    /// The split as the manifest's `writer` records it.
    pub fn describe(&self) -> String {
        let stratified = if self.stratify { ", stratified" } else { "" };
        format!("{}, seed {}{stratified}", self.shares, self.seed)
    }
}

/// Shares of the nodes for `train`, `val` and `test`, such as `60/20/20`. They add up to at most 100 percent, and the first
/// is not 0. The other nodes are in no split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares([u32; 3]);

impl Shares {
    /// The number of nodes of each split, of `nodes` nodes. The bounds between splits are rounded to the nearest node.
    pub fn divide(&self, nodes: u64) -> [u64; 3] {
        let [train, val, test] = self.0.map(u128::from);
        let whole = u128::from(WHOLE);
        let bounds = [train, train + val, train + val + test];
        let [train, both, all] = bounds.map(|units| ((u128::from(nodes) * units * 2 + whole) / (2 * whole)) as u64);
        [train, both - train, all - both]
    }

    /// Whether they add up to 100 percent, so that every node is in a split.
    pub fn are_whole(&self) -> bool {
        self.0.iter().sum::<u32>() == WHOLE
    }

    /// The shares as fractions of 1.
    pub fn fractions(&self) -> [f64; 3] {
        self.0.map(|units| f64::from(units) / f64::from(WHOLE))
    }
}

impl FromStr for Shares {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Option<Vec<u32>> = text.split('/').map(units).collect();
        let parts: Option<[u32; 3]> = parts.and_then(|parts| parts.try_into().ok());
        let parts = parts.ok_or_else(|| {
            let form = "TRAIN/VAL/TEST in percent, such as 60/20/20";
            Error::out_of_range("shares", form, format!("{text:?}"))
        })?;
        let sum = parts.iter().sum();
        // A sum of 1 means fractions.
        if sum > WHOLE || sum == UNITS {
            let remedy = near(parts).map_or_else(|| "60/20/20, for example".to_owned(), |shares| shares.to_string());
            return Err(Error::conflict(
                format!("the shares add up to {} percent, expected at most 100", shown(sum)),
                format!("give {remedy}"),
            ));
        }
        if parts[0] == 0 {
            return Err(Error::conflict("the share of train is 0", "give a larger one, or omit the split"));
        }
        Ok(Self(parts))
    }
}

/// The shares that the user probably meant: fractions instead of percent, or another last share.
fn near(parts: [u32; 3]) -> Option<Shares> {
    let [train, val, _] = parts;
    if parts.iter().sum::<u32>() == UNITS {
        return Some(Shares(parts.map(|units| units * 100)));
    }
    (train > 0 && train + val <= WHOLE).then(|| Shares([train, val, WHOLE - train - val]))
}

/// A number of percent, in units. At most 100.
fn units(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if ![whole, decimals].iter().all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        || decimals.len() > DECIMALS
    {
        return None;
    }
    let whole: u32 = whole.parse().ok().filter(|&whole| whole <= 100)?;
    let decimals: u32 = format!("{decimals:0<DECIMALS$}").parse().ok()?;
    Some(whole * UNITS + decimals).filter(|&units| units <= WHOLE)
}

fn shown(units: u32) -> String {
    let text = format!("{}.{:0DECIMALS$}", units / UNITS, units % UNITS);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [train, val, test] = self.0.map(shown);
        write!(f, "{train}/{val}/{test}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<Shares>().unwrap_err().to_string()
    }

    #[test]
    fn shares_are_percent_with_up_to_four_decimals() {
        for text in ["60/20/20", "0.5/0.5/99", "100/0/0", "33.3333/33.3333/33.3334", "10/1/2", "1/0/0.5"] {
            assert_eq!(text.parse::<Shares>().unwrap().to_string(), text);
        }
        assert_eq!("60.00/20.0/20".parse::<Shares>().unwrap().to_string(), "60/20/20");
        for text in [
            "",
            "60",
            "60/40",
            "60/20/10/10",
            "60/20/x",
            "-60/80/80",
            "60/20/20.",
            "60/20/20.00001",
            "101/0/0",
            "60/ 20/20",
        ] {
            assert!(refusal(text).contains("expected TRAIN/VAL/TEST in percent, such as 60/20/20"), "{text}");
        }
        assert!(refusal("0/50/50").contains("the share of train is 0"));
    }

    #[test]
    fn larger_sums_and_fractions_are_refused_with_shares_that_would_do() {
        for (text, sum, remedy) in [
            ("60/20/30", "110", "60/20/20"),
            ("0.6/0.2/0.2", "1", "60/20/20"),
            ("60.5/20/20", "100.5", "60.5/20/19.5"),
            ("90/90/90", "270", "60/20/20, for example"),
        ] {
            let expected = format!("the shares add up to {sum} percent, expected at most 100; give {remedy}");
            assert_eq!(refusal(text), expected);
        }
    }

    #[test]
    fn splits_have_their_share_within_one_node() {
        let shares: Shares = "60/20/20".parse().unwrap();
        for (nodes, expected) in [
            (0, [0, 0, 0]),
            (1, [1, 0, 0]),
            (2, [1, 1, 0]),
            (3, [2, 0, 1]),
            (10, [6, 2, 2]),
            (1 << 40, [659_706_976_666, 219_902_325_555, 219_902_325_555]),
        ] {
            assert_eq!(shares.divide(nodes), expected, "{nodes}");
        }
        // The rest is in no split.
        let shares: Shares = "10/1/2".parse().unwrap();
        for (nodes, expected) in [(0, [0, 0, 0]), (100, [10, 1, 2]), (1000, [100, 10, 20]), (7, [1, 0, 0])] {
            assert_eq!(shares.divide(nodes), expected, "{nodes}");
        }
    }
}
