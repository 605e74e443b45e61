//! Runs a program and measures its time and memory.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use wait4::Wait4;

/// Time, memory and output of a finished program.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Wall time from start to end.
    pub wall: Duration,
    /// Processor time, user and system, of the program and its children.
    pub cpu: Duration,
    /// Peak resident memory in bytes, of the program or the largest of its children.
    pub peak_rss_bytes: u64,
    /// Its standard output.
    pub stdout: String,
}

/// Runs a program to its end. Its standard error is inherited.
///
/// # Errors
/// If it can't be started or fails.
pub fn run(command: &mut Command) -> Result<Measured> {
    let mut started = Started::new(command)?;
    started.read_output()?;
    started.finish()
}

/// A program that runs.
#[derive(Debug)]
pub struct Started {
    name: String,
    begin: Instant,
    child: Child,
    stdout: Vec<u8>,
}

impl Started {
    /// Starts a program. Its standard error is inherited.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn new(command: &mut Command) -> Result<Self> {
        let name = format!("{command:?}");
        let begin = Instant::now();
        let child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, begin, child, stdout: Vec::new() })
    }

    /// The id of its process, which is its own until [`Started::finish`].
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads its standard output until it closes it, which is when it ends.
    ///
    /// # Errors
    /// If a read fails.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn read_output(&mut self) -> Result<()> {
        let mut stdout = self.child.stdout.take().expect("stdout is piped, and read once");
        stdout.read_to_end(&mut self.stdout).with_context(|| format!("cannot read the output of {}", self.name))?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it fails.
    pub fn finish(self) -> Result<Measured> {
        let Self { name, begin, child, stdout } = self;
        let ended = child.wait4().with_context(|| format!("cannot wait for {name}"))?;
        let wall = begin.elapsed();
        let stdout = String::from_utf8_lossy(&stdout).into_owned();
        if !ended.status.success() {
            bail!("{name} failed ({}); it printed: {stdout}", ended.status);
        }
        Ok(Measured { wall, cpu: ended.rusage.utime + ended.rusage.stime, peak_rss_bytes: ended.rusage.maxrss, stdout })
    }
}

impl Measured {
    /// The JSON object on the last line of stdout.
    ///
    /// # Errors
    /// If the last line is not JSON.
    pub fn json(&self) -> Result<Value> {
        let line = self.stdout.trim_end().lines().next_back().unwrap_or_default();
        serde_json::from_str(line).with_context(|| format!("expected a JSON object at the end, found {line:?}"))
    }

    /// A number in that object.
    ///
    /// # Errors
    /// If the object lacks it.
    pub fn number(&self, key: &str) -> Result<f64> {
        number(&self.json()?, key)
    }

    /// A count in that object.
    ///
    /// # Errors
    /// If the object lacks it.
    pub fn count(&self, key: &str) -> Result<u64> {
        let object = self.json()?;
        object[key].as_u64().with_context(|| format!("expected a whole number `{key}` in {object}"))
    }
}

/// A number in a JSON object, at a path of keys such as `seconds_by_stage/open`.
///
/// # Errors
/// If the object lacks it.
pub fn number(object: &Value, path: &str) -> Result<f64> {
    let number = object.pointer(&format!("/{path}")).and_then(Value::as_f64);
    number.with_context(|| format!("expected a number `{path}` in {object}"))
}

/// `wrapper` with `command` as its last arguments, and with the environment of `command`.
pub fn wrapped(mut wrapper: Command, command: &Command) -> Command {
    wrapper.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapper.env(name, value),
            None => wrapper.env_remove(name),
        };
    }
    wrapper
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Measured> {
        run(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn time_and_memory_are_those_of_this_child() {
        let large = shell("head -c 50000000 /dev/zero | tr '\\0' 'x' | sort | wc -c").unwrap();
        let small = shell("sleep 0.05").unwrap();
        assert!(large.peak_rss_bytes > 50_000_000, "{}", large.peak_rss_bytes);
        assert!(small.peak_rss_bytes < 50_000_000, "{}", small.peak_rss_bytes);
        assert!(small.wall >= Duration::from_millis(50));
        assert!(small.cpu < small.wall);
    }

    #[test]
    fn the_last_line_is_the_result() {
        let measured = shell("echo reading; echo '{\"edges\": 12, \"seconds\": 0.5}'").unwrap();
        assert_eq!(measured.count("edges").unwrap(), 12);
        assert_eq!(measured.number("seconds").unwrap(), 0.5);
        assert!(measured.count("seconds").is_err());
    }

    #[test]
    fn a_failure_is_an_error_with_what_was_said() {
        let error = shell("echo broken; exit 3").unwrap_err().to_string();
        assert!(error.contains("broken") && error.contains('3'), "{error}");
    }
}
