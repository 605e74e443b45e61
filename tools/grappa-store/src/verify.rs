//! `grappa-store verify`: the problems of a store.

use std::time::{Duration, Instant};

use anyhow::bail;
use grappa_console::{ByteSize, Console, Summary, duration, printable};
use grappa_engine::verify::{Problem, verify};
use serde::Serialize;

use crate::args;

#[derive(Serialize)]
struct Verified {
    ok: bool,
    files: u64,
    bytes: u64,
    problems: Vec<Problem>,
    seconds: f64,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::VerifyArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let report = verify(&options.store, options.threads.get()?, &console.bars())?;
    let problems = report.problems.len();
    let verified = Verified {
        ok: report.is_ok(),
        files: report.files,
        bytes: report.bytes,
        problems: report.problems,
        seconds: begin.elapsed().as_secs_f64(),
        store: options.store.display().to_string(),
    };
    // With --quiet, only problems are printed.
    if verified.ok {
        return console.finish(&verified);
    }
    console.answer(&verified)?;
    let s = if problems == 1 { "" } else { "s" };
    bail!("{}: {problems} problem{s} found", options.store.display());
}

impl Summary for Verified {
    fn text(&self) -> String {
        if self.ok {
            return format!(
                "{}: no problems; {} files, {} in {}",
                printable(&self.store),
                self.files,
                ByteSize(self.bytes),
                duration(Duration::from_secs_f64(self.seconds))
            );
        }
        let lines = self.problems.iter().map(|found| {
            let (file, description) = (printable(&found.file), printable(&found.description));
            format!("{file}: {}: {description}", found.offset)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
