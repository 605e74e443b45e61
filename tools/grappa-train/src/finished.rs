//! The answer to `--resume` of a run that is finished.

use std::path::Path;

use grappa_console::{Summary, printable};
use grappa_run::finished::FinishedRun;
use serde::Serialize;

/// A finished run. As JSON, it is the result of the run.
#[derive(Serialize)]
pub struct Finished {
    #[serde(flatten)]
    run: FinishedRun,
    #[serde(skip)]
    folder: String,
}

impl Finished {
    pub fn new(run: FinishedRun, folder: &Path) -> Self {
        Self { run, folder: folder.display().to_string() }
    }
}

impl Summary for Finished {
    fn text(&self) -> String {
        let FinishedRun { epochs, epochs_max, .. } = self.run;
        let (ended, remedy) = match self.run.early_stopping {
            Some(patience) => (format!(", ended by --early-stopping {patience}"), "a larger --early-stopping, or 0"),
            None => (String::new(), "a larger --epochs"),
        };
        format!(
            "{}: the run is finished ({epochs} of {epochs_max} epochs{ended}), and its files are unchanged; to continue it, give {remedy}",
            printable(&self.folder)
        )
    }
}
