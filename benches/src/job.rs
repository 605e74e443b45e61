//! Jobs of several processes that train together, the *ranks*, each on a host of its own.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::network::{self, INTERFACE, Network};

/// How often a job looks whether a rank has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// Runs a job to its end. `command` gives the command of a rank; the job adds the variables that torchrun sets. With a network, rank N
/// runs on host N; without one, all run here. What a rank prints goes to the file `rank-N.log` in `logs`.
///
/// # Errors
/// If a rank can't be started or fails. The others are killed then. The error has the end of the rank's log.
pub fn run(network: Option<&Network>, ranks: u32, logs: &Path, command: impl Fn(u32) -> Command) -> Result<()> {
    let (address, interface) = match network {
        Some(_) => (network::address(0), INTERFACE),
        None => ("127.0.0.1".to_owned(), "lo"),
    };
    let port = free_port()?.to_string();
    let mut job = Job { ranks: Vec::new() };
    for rank in 0..ranks {
        let log = logs.join(format!("rank-{rank}.log"));
        let log = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = command(rank);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("MASTER_ADDR", &address).env("MASTER_PORT", &port);
        command.env("GLOO_SOCKET_IFNAME", interface);
        if let Some(network) = network {
            command = network.on(rank, &command);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        job.ranks.push(child);
    }
    job.wait(logs)
}

/// A port that no process of this machine uses.
///
/// # Errors
/// If the system gives none.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Processes that are killed when it is dropped before they end.
struct Job {
    ranks: Vec<Child>,
}

impl Job {
    fn wait(mut self, logs: &Path) -> Result<()> {
        loop {
            let ended: Vec<Option<ExitStatus>> =
                self.ranks.iter_mut().map(Child::try_wait).collect::<Result<_, _>>()?;
            if let Some(rank) = ended.iter().position(|status| status.is_some_and(|status| !status.success())) {
                let log = fs::read_to_string(logs.join(format!("rank-{rank}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(20)..].join("\n");
                bail!("rank {rank} failed; it printed at last: {last}");
            }
            if ended.iter().all(Option::is_some) {
                return Ok(());
            }
            thread::sleep(PATIENCE);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            // It may have ended, which is what is wanted.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(ranks: u32, script: &str) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        run(None, ranks, folder.path(), |_| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        })?;
        Ok(fs::read_to_string(folder.path().join(format!("rank-{}.log", ranks - 1))).unwrap())
    }

    #[test]
    fn each_rank_has_the_variables_of_torchrun() {
        let printed = shell(3, "echo $RANK of $WORLD_SIZE; echo at $MASTER_ADDR >&2").unwrap();
        assert_eq!(printed, "2 of 3\nat 127.0.0.1\n");
    }

    #[test]
    fn a_rank_that_fails_ends_the_job_with_its_last_words() {
        let begin = std::time::Instant::now();
        let error = shell(2, "[ $RANK = 0 ] && exec sleep 60; echo no features; exit 3").unwrap_err();
        assert_eq!(error.to_string(), "rank 1 failed; it printed at last: no features");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
