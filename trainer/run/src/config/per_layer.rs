//! A number for all layers, or one for each.

use std::{fmt, str::FromStr};

use crate::Error;

/// A number for all layers (`0.0005`), or one for each, from the first to the last (`0.0005,0`).
#[derive(Debug, Clone, PartialEq)]
pub struct PerLayer(Vec<f64>);

impl PerLayer {
    /// One number for each layer, or a single one for all.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "a number for the layers");
        Self(values.to_vec())
    }

    /// The numbers as they were given.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The number of a layer.
    ///
    /// # Panics
    /// If there is none for this layer; see [`check`](super::check).
    pub fn at_layer(&self, layer: usize) -> f64 {
        match self.0[..] {
            [value] => value,
            _ => self.0[layer],
        }
    }

    /// The number of all layers, if it is the same.
    pub fn uniform(&self) -> Option<f64> {
        self.0.iter().all(|value| *value == self.0[0]).then_some(self.0[0])
    }
}

impl Default for PerLayer {
    fn default() -> Self {
        Self(vec![0.0])
    }
}

impl FromStr for PerLayer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let values = (1..).zip(text.split(',')).map(|(layer, text)| {
            text.trim().parse().map_err(|_| {
                Error::Options(format!(
                    "value {layer} of the list is `{text}`; give a number, or one for each layer, such as 0.0005,0"
                ))
            })
        });
        values.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for PerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(f64::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_number_is_for_all_layers_and_a_list_is_read_from_the_first_layer() {
        let one: PerLayer = "5e-4".parse().unwrap();
        assert_eq!((one.at_layer(0), one.at_layer(7), one.uniform()), (5e-4, 5e-4, Some(5e-4)));
        let each: PerLayer = "0.0005, 0".parse().unwrap();
        assert_eq!((each.at_layer(0), each.at_layer(1), each.uniform()), (5e-4, 0.0, None));
        assert_eq!(each.to_string(), "0.0005,0");
        let error = "0.1,x".parse::<PerLayer>().unwrap_err().to_string();
        assert!(error.contains("value 2 of the list is `x`"), "{error}");
    }
}
