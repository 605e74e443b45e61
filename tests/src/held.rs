//! Programs that are held before a change of the file system, while a test looks at what they left or sends a signal.
//!
//! This uses the engine's fault injection (`GRAPPA_HOLD_AT`), which only builds with debug assertions have. A test then
//! depends on no time: it starts the program, waits until it is held, acts, and lets it continue or kills it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::Ran;

/// If a held program is not released within this time, the test has a bug.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether the programs under test can be held.
pub const IS_POSSIBLE: bool = cfg!(debug_assertions);

/// The reason for which a test is skipped if they cannot.
pub const WHY_NOT: &str = "release builds inject no faults";

/// A program with one thread that waits before a change of the file system. Dropped, it is killed.
#[derive(Debug)]
pub struct Held {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// Text read from stderr so far.
    read: String,
    /// The files by which the program and the test talk.
    folder: TempDir,
}

impl Held {
    /// Starts a program and waits until it is about to make a change, such as `create chunk-1/edges`: an action and the
    /// end of a path.
    ///
    /// # Panics
    /// If the program ends before that, or is a release build.
    #[track_caller]
    pub fn before(change: &str, command: &mut Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("GRAPPA_HOLD_AT", change);
        command.env("GRAPPA_HOLD", folder.path().join("hold"));
        command.env("GRAPPA_KILL_LOG", folder.path().join("log"));
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut held = Self { child, stderr, read: String::new(), folder };
        wait_until(&format!("{change} in {command:?}"), || {
            if held.hold().exists() {
                return true;
            }
            if let Some(status) = held.child.try_wait().expect("a child can be waited for") {
                held.read_stderr();
                // The last thing that a program did may be to be held.
                panic!("{command:?} ended before {change}: {status}: {}", held.read);
            }
            false
        });
        held
    }

    fn hold(&self) -> PathBuf {
        self.folder.path().join("hold")
    }

    /// The id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. Threads that are not held may handle it.
    ///
    /// # Panics
    /// If the process cannot get signals.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child can be sent a signal");
    }

    /// Waits until the program prints a line to stderr, and returns the line.
    ///
    /// # Panics
    /// If stderr is not text.
    pub fn line(&mut self) -> String {
        let begin = self.read.len();
        self.stderr.read_line(&mut self.read).expect("programs speak UTF-8");
        self.read[begin..].to_owned()
    }

    /// Lets the program make the change and continue.
    ///
    /// # Panics
    /// If it was released before.
    pub fn release(&self) {
        fs::remove_file(self.hold()).expect("the program is held");
    }

    /// Waits until the program ends by itself.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn wait(mut self) -> Ran {
        self.read_stderr();
        let status = self.child.wait().expect("a child can be waited for");
        Ran { code: status.code(), stdout: String::new(), stderr: std::mem::take(&mut self.read) }
    }

    /// Whether the program has ended.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// The changes that the program made so far, as `ACTION PATH`, with the one that it is held before.
    ///
    /// # Panics
    /// If the list cannot be read.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("log")).expect("programs list their changes");
        let change = |line: &str| line.split_once(' ').expect("a number is first").1.to_owned();
        text.lines().map(change).collect()
    }

    /// Kills the program, and returns whether that was before its end. It is, unless the program was released.
    ///
    /// # Panics
    /// If the program failed by itself.
    pub fn kill(&mut self) -> bool {
        kill(&mut self.child)
    }

    /// Reads stderr until the program closes it.
    fn read_stderr(&mut self) {
        self.stderr.read_to_string(&mut self.read).expect("programs speak UTF-8");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Both fail if it has ended, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a program, and returns whether that was before its end.
///
/// # Panics
/// If the program failed by itself.
pub fn kill(child: &mut Child) -> bool {
    child.kill().expect("a child can be killed");
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success() || status.code().is_none(), "it failed by itself: {status}");
    !status.success()
}

/// Waits until something is true.
///
/// # Panics
/// If that takes minutes.
pub fn wait_until(condition: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {condition}");
        thread::sleep(Duration::from_millis(1));
    }
}
