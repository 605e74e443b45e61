//! Warnings and failures as data, for a program that started this one.
//!
//! The environment variable `GRAPPA_REPORTS` names a file. Every process appends its warnings and its failure to it, one JSON object per line, instead of
//! printing the warnings.

use std::{
    env,
    fs::File,
    io::{self, Write},
    sync::LazyLock,
};

use serde::Serialize;

use crate::{Failure, log};

static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = env::var_os("GRAPPA_REPORTS").filter(|path| !path.is_empty())?;
    // Without the file, warnings and failures are lines on stderr.
    File::options().append(true).open(path).ok()
});

/// A line of the file.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Report<'a> {
    Warning(&'a str),
    Failure(&'a Failure),
}

/// Whether another program reads the warnings of this one.
pub(crate) fn is_open() -> bool {
    FILE.is_some()
}

/// Reports the failure of this process.
pub fn failure(failure: &Failure) {
    append(&Report::Failure(failure));
}

/// In one call, because several processes append to the file.
fn append(report: &Report<'_>) {
    if let Some(mut file) = FILE.as_ref() {
        let line = serde_json::to_string(report).expect("texts become JSON");
        // The starting program sees the exit code, and stderr has the message.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// The destination of warnings.
#[derive(Default)]
pub(crate) struct Warnings;

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The log writes each event in one call.
        if let Some(text) = log::shown(String::from_utf8_lossy(bytes).trim(), false) {
            append(&Report::Warning(&text));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
