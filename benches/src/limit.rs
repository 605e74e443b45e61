//! A memory limit for a child process that includes its page cache.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::child::{self, Measured};

/// A control group with a memory limit, removed when dropped. The kernel also counts the page cache of files that the
/// child reads.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
}

/// Folder of control groups, and name of the file with the limit: version 1, then version 2.
const HIERARCHIES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

impl MemoryLimit {
    /// A group of `bytes`.
    ///
    /// # Errors
    /// If none can be made. That needs root and a writable control group file system.
    pub fn new(bytes: u64) -> Result<Self> {
        let mut refusals = Vec::new();
        for (root, limit) in HIERARCHIES {
            let group = Path::new(root).join(format!("grappa-bench-{}", std::process::id()));
            match fs::create_dir(&group) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                    refusals.push(format!("{}: {e}", group.display()));
                    continue;
                }
                _ => {}
            }
            let made = Self { group };
            match fs::write(made.group.join(limit), bytes.to_string()) {
                Ok(()) => return Ok(made),
                Err(e) => refusals.push(format!("{limit}: {e}")),
            }
        }
        bail!("no control group can be made to limit memory with: {}", refusals.join("; "))
    }

    /// Runs a program in the group, after resetting the group.
    ///
    /// # Errors
    /// If the kernel refuses, or the program fails.
    pub fn run(&self, command: &Command) -> Result<Measured> {
        child::run(&mut self.limited(command)?)
    }

    /// Resets the group, and returns the command that runs `command` in it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn limited(&self, command: &Command) -> Result<Command> {
        self.reset()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.group.join("cgroup.procs"));
        Ok(child::wrapped(shell, command))
    }

    /// Drops the group's cached pages and resets its peak memory.
    fn reset(&self) -> Result<()> {
        for (file, value) in [("memory.force_empty", "0"), ("memory.max_usage_in_bytes", "0")] {
            let path = self.group.join(file);
            if path.exists() {
                fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group that still has a process stays. The error can't be reported here.
        let _ = fs::remove_dir(&self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_takes_more_is_killed_and_one_that_takes_less_is_not() {
        let limit = match MemoryLimit::new(64 << 20) {
            Ok(limit) => limit,
            Err(why) => grappa_skip::skip!("{why}"),
        };
        let taking = |mebibytes: u32| {
            let script = format!("head -c {}M /dev/zero | tail | wc -c", mebibytes);
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]);
            limit.run(&shell).map(|child| child.stdout.trim().to_owned())
        };
        assert_eq!(taking(8).unwrap(), (8 << 20).to_string());
        // With swap, the child is slow but not killed.
        if fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1) {
            return grappa_skip::skip_part!("there is swap");
        }
        assert_ne!(taking(512).unwrap_or_default(), (512u32 << 20).to_string());
    }
}
