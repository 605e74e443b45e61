//! Estimates of `grappa-store plan`.

use anyhow::{Context, Result};
use grappa_benches::child::number;
use serde_json::Value;

use crate::numbers::Numbers;

#[derive(Debug)]
pub struct Plan(pub Value);

impl Plan {
    /// A number of the estimate.
    ///
    /// # Errors
    /// If it has none there.
    pub fn number(&self, path: &str) -> Result<f64> {
        number(&self.0, path).context("the plan")
    }

    /// Time and traffic of a stage of training.
    ///
    /// # Errors
    /// If the estimate lacks a number of it.
    pub fn stage(&self, name: &str) -> Result<Numbers> {
        Ok(Numbers {
            seconds: Some(self.number(&format!("train/{name}/seconds"))?),
            read: Some(self.number(&format!("train/{name}/bytes_read"))?),
            written: Some(self.number(&format!("train/{name}/bytes_written"))?),
            ..Numbers::default()
        })
    }
}
