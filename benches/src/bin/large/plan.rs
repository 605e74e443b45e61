//! Estimates of `grappa-store plan`.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::numbers::Numbers;

/// An estimate, as JSON.
#[derive(Debug)]
pub struct Plan(pub Value);

impl Plan {
    /// A number of the estimate.
    ///
    /// # Errors
    /// If it has none there.
    pub fn number(&self, pointer: &str) -> Result<f64> {
        self.0
            .pointer(pointer)
            .and_then(Value::as_f64)
            .with_context(|| format!("the plan has no number {pointer}: {}", self.0))
    }

    /// Time and traffic of a stage of training.
    ///
    /// # Errors
    /// If the estimate lacks a number of it.
    pub fn stage(&self, name: &str) -> Result<Numbers> {
        Ok(Numbers {
            seconds: Some(self.number(&format!("/train/{name}/seconds"))?),
            read: Some(self.number(&format!("/train/{name}/bytes_read"))?),
            written: Some(self.number(&format!("/train/{name}/bytes_written"))?),
            ..Numbers::default()
        })
    }
}
