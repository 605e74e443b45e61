//! Peers in Python: their scripts, and whether they can run here.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The command that runs a script of `benches/peers` with so many threads, and without its warnings.
pub fn script(python: &Path, name: &str, threads: usize) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-W", "ignore"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name))
        // What libraries read when they are loaded; before that, no script can tell them.
        .env("OMP_NUM_THREADS", threads.to_string());
    command
}

/// Runs what tells whether a peer is there, and returns what it wrote to stdout.
///
/// # Errors
/// If it can't be started or fails: why, as the last line that it wrote to stderr, which is where Python names the error.
pub fn check(command: &mut Command) -> Result<String, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| output.status.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, String> {
        check(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn who_fails_says_why_last() {
        assert_eq!(shell("echo 3.11").unwrap(), "3.11\n");
        let traceback = "printf 'Traceback:\\n  line 1\\nImportError: no dgl\\n\\n' >&2; exit 1";
        assert_eq!(shell(traceback).unwrap_err(), "ImportError: no dgl");
        assert!(shell("exit 3").unwrap_err().contains('3'));
        let none = check(&mut Command::new("/no/such/python")).unwrap_err();
        assert!(none.contains("/no/such/python"), "{none}");
    }
}
