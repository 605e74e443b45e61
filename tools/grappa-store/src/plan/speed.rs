//! The speed that a plan assumes.

use anyhow::Context;
use grappa_console::Console;
use grappa_engine::{
    io::regular,
    plan::{Rates, measure::measure},
};

use crate::args::PlanArgs;

/// Size limit of the file of rates, which has a few numbers.
const RATES_BYTES_MAX: u64 = 1 << 20;

/// Speed of the machine: measured, given or assumed.
pub struct Speed {
    pub rates: Rates,
    /// Bytes per second.
    pub disk_bandwidth: u64,
    pub threads: usize,
}

impl Speed {
    /// The speed that options give, else the one that is measured, else an assumption.
    ///
    /// # Errors
    /// If the file of rates cannot be read, or nothing can be measured.
    pub fn from_options(options: &PlanArgs, console: &Console) -> anyhow::Result<Self> {
        let mut rates: Rates = match &options.estimate.rates {
            Some(path) => {
                let text = regular::read_text(path, RATES_BYTES_MAX)?;
                serde_json::from_str(&text)
                    .with_context(|| format!("{} is not a JSON object of rates", path.display()))?
            }
            None => Rates::default(),
        };
        let threads = options.threads.get()?;
        let mut disk_bandwidth = options.estimate.disk_bandwidth.0;
        if let Some(folder) = &options.estimate.measure {
            let bars = console.bars();
            let measured = measure(folder, threads, &bars);
            drop(bars);
            let measured = measured.context("cannot measure")?;
            rates.train = measured.rates;
            // Training mostly reads.
            disk_bandwidth = measured.disk_read as u64;
        }
        Ok(Self { rates, disk_bandwidth, threads })
    }
}
