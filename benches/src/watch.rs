//! Watches a child process, and notes when it writes each line of its output.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::child::Measured;

/// Time between two looks at the file.
const PERIOD: Duration = Duration::from_millis(2);

/// A JSON object, and the time from the start of the process until it was written.
pub type TimedLine = (Duration, Value);

/// Runs a program with `run` and watches `file`, to which it appends JSON objects, one per line. The file need not exist before.
///
/// # Errors
/// If the program fails, or a line is not JSON.
pub fn lines_of(
    command: &mut Command,
    file: &Path,
    run: impl FnOnce(&mut Command) -> Result<Measured>,
) -> Result<(Measured, Vec<TimedLine>)> {
    let ended = AtomicBool::new(false);
    let begin = Instant::now();
    thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(file, begin, &ended));
        let measured = run(command);
        ended.store(true, Ordering::Release);
        let lines = watcher.join().expect("the watcher does not panic");
        let measured = measured?;
        let lines = lines?.into_iter().map(|(at, line)| {
            let value = serde_json::from_str(&line);
            let value = value.with_context(|| format!("expected JSON in {}: {line}", file.display()))?;
            Ok((at, value))
        });
        Ok((measured, lines.collect::<Result<_>>()?))
    })
}

/// The lines that are appended to a file until `ended`.
fn watch(path: &Path, begin: Instant, ended: &AtomicBool) -> Result<Vec<(Duration, String)>> {
    let cannot_read = format!("cannot read {}", path.display());
    let (mut lines, mut rest, mut read) = (Vec::new(), String::new(), 0);
    loop {
        // Whatever is written before the process ends is seen by the look after it.
        let is_last = ended.load(Ordering::Acquire);
        if let Ok(mut file) = File::open(path) {
            file.seek(SeekFrom::Start(read)).with_context(|| cannot_read.clone())?;
            read += file.read_to_string(&mut rest).with_context(|| cannot_read.clone())? as u64;
            let now = begin.elapsed();
            while let Some(end) = rest.find('\n') {
                lines.push((now, rest[..end].to_owned()));
                rest.drain(..=end);
            }
        }
        if is_last {
            return Ok(lines);
        }
        thread::sleep(PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;

    #[test]
    fn lines_are_timed_when_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        let script = "echo 1 >> $0; sleep 0.2; printf 2 >> $0; sleep 0.1; echo 3 >> $0; echo 4 >> $0";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&file);
        let (measured, lines) = lines_of(&mut command, &file, child::run).unwrap();
        let values: Vec<_> = lines.iter().map(|(_, value)| value.as_u64().unwrap()).collect();
        assert_eq!(values, [1, 23, 4]);
        assert!(lines[1].0 - lines[0].0 >= Duration::from_millis(290), "{lines:?}");
        assert!(measured.wall >= lines[2].0 - Duration::from_millis(50));
    }

    #[test]
    fn a_failure_of_the_program_is_an_error() {
        let file = Path::new("/no/such/file");
        let mut command = Command::new("false");
        assert!(lines_of(&mut command, file, child::run).is_err());
    }
}
