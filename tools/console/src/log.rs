//! The log file of one of several processes that work together.
//!
//! Their lines on the console would mix, so each process also has a file of its own, and its errors on the console begin with its name.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

use grappa_io::{durable, machine::process_age};

static LOG: Mutex<Option<Log>> = Mutex::new(None);

struct Log {
    /// None until the file is open.
    file: Option<File>,
    /// The name of the process.
    name: String,
    /// Whether warnings go to the file only.
    is_quiet: bool,
}

/// From now on, errors and warnings on the console begin with `name`. With `is_quiet`, warnings are for the log file only.
pub fn name_process(name: &str, is_quiet: bool) {
    *lock() = Some(Log { file: None, name: name.to_owned(), is_quiet });
}

/// Also appends all that goes to the log, and errors, to a file.
///
/// # Errors
/// If the file cannot be opened, or is a link or a special file.
pub fn open_file(path: &Path) -> grappa_io::Result<()> {
    let file = durable::open_to_append(path)?;
    if let Some(log) = &mut *lock() {
        log.file = Some(file);
    }
    Ok(())
}

/// The name of this process, if it is one of several.
pub(crate) fn process_name() -> Option<String> {
    lock().as_ref().map(|log| log.name.clone())
}

/// Appends a line to the log file, if there is one.
pub fn line(text: &str) {
    if let Some(log) = &mut *lock() {
        log.append(text);
    }
}

/// Appends a line to the log file. Returns it as the console shows it; none if only the file does.
pub(crate) fn shown(text: &str, is_error: bool) -> Option<String> {
    match &mut *lock() {
        None => Some(text.to_owned()),
        Some(log) => {
            log.append(text);
            (is_error || !log.is_quiet).then(|| format!("{}: {text}", log.name))
        }
    }
}

impl Log {
    /// The time since the start of the process, and the line. A log that cannot be written is no reason to stop.
    fn append(&mut self, text: &str) {
        if let Some(file) = &mut self.file {
            let seconds = process_age().unwrap_or_default().as_secs_f64();
            let _ = writeln!(file, "{seconds:10.3} {text}");
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}
