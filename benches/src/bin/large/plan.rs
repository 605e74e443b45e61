//! Estimates of `grappa-store plan`.

use anyhow::{Context, Result};
use grappa_benches::child;
use serde_json::Value;

use crate::{Stand, numbers::Numbers};

/// An estimate, as JSON.
#[derive(Debug)]
pub struct Plan(Value);

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

impl Stand<'_> {
    /// Runs `grappa-store plan` with these options and the measured bandwidth.
    pub fn plan(&self, options: &[String]) -> Result<Plan> {
        let mut command = self.program("grappa-store");
        command.args(["--json", "--quiet", "plan"]).args(options);
        command.args(["--disk-bandwidth", &(self.disk.read as u64).to_string()]);
        Ok(Plan(child::run(&mut command)?.json()?))
    }

    /// The budget, as an option of all programs.
    pub fn memory_option(&self) -> String {
        format!("--memory={}", self.graph.memory(self.args))
    }
}
