//! Training with several processes: starting them, and the part of each.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use grappa_console::{log, printable, signals};
use grappa_run::folder::{CONFIG, RunFolder, config_of, log_of_rank};
use grappa_trainer::{
    Error,
    distributed::{LAUNCHER, Place, ProcessGroup, StoreServer, Waits},
};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

/// Workers may take so much longer than `--timeout` to end after one of them did not succeed.
const GRACE: Duration = Duration::from_secs(5);

/// The heading of options about several processes in the help.
pub const PROCESSES: &str = "Processes";

/// The processes that train together.
#[derive(Debug, Args)]
pub struct Workers {
    /// Number of processes to start on this host; each trains a share of the partitions of each step
    ///
    /// For several hosts, start one process per GPU or host with torchrun, SLURM or Kubernetes, and leave this out: a process joins the
    /// others if RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set. --memory is for each process, and --threads auto
    /// divides the processors of a host among its processes.
    #[arg(long, help_heading = PROCESSES, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// Seconds without a sign of life after which a process is missing, and training ends
    #[arg(
        long,
        help_heading = PROCESSES,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    timeout: u64,
    /// Seconds to wait for all processes at the start; more where a launcher delays restarts, as Kubernetes does [default: --timeout]
    #[arg(long, help_heading = PROCESSES, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    join_timeout: Option<u64>,
}

/// The role of a process.
pub enum Role {
    /// It trains alone.
    Alone,
    /// It starts this number of others, which train.
    Launcher(u32),
    /// It trains with others.
    Rank(Place),
}

impl Workers {
    /// The role of this process.
    pub fn role(&self) -> anyhow::Result<Role> {
        let place = Place::from_environment()?;
        match (self.workers, place) {
            (Some(workers), Some(place)) if workers != place.ranks => bail!(
                "--workers is {workers}, and WORLD_SIZE is {}: a launcher has already started the processes, so leave out --workers",
                place.ranks
            ),
            (_, Some(place)) => Ok(Role::Rank(place)),
            (None | Some(1), None) => Ok(Role::Alone),
            (Some(workers), None) => Ok(Role::Launcher(workers)),
        }
    }

    /// The number of processes that a launcher of this program started. None if another launcher did, whatever the user gave.
    pub fn launched(&self) -> Option<u32> {
        launcher().and(self.workers)
    }

    /// Time without a sign of life after which a rank is missing.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// How long ranks wait for each other.
    pub fn waits(&self) -> Waits {
        Waits { join: self.join_timeout.map_or(self.timeout(), Duration::from_secs), silence: self.timeout() }
    }
}

/// Starts `workers` processes with the command line of this one, and waits for them. If one does not succeed, the others end by themselves
/// within `timeout`.
pub fn launch(workers: u32, timeout: Duration) -> anyhow::Result<()> {
    let store = StoreServer::start()?;
    let program = env::current_exe().context("cannot find this program to start it again")?;
    let running = Running::default();
    signals::stops_by_itself("stopping the workers");
    let ended = running.clone();
    signals::at_second(move || ended.kill());
    for rank in 0..workers {
        match start(&program, store.variables(rank, workers)) {
            Ok(child) => running.lock().push((rank, child)),
            Err(error) => {
                store.announce(rank, &format!("could not be started: {error}"));
                running.wait(&store, timeout);
                return Err(error).with_context(|| format!("cannot start worker {rank}"));
            }
        }
    }
    let Some(FailedWorkers { rank, status, killed }) = running.wait(&store, timeout) else { return Ok(()) };
    let message = match stopped_by(status) {
        _ if signals::stop_requested() => "the workers have ended".to_owned(),
        Some(signal) => {
            signals::stopped_elsewhere(signal);
            format!("worker {rank} was asked to stop")
        }
        None => format!("worker {rank} {}", describe(status)),
    };
    let late = killed.iter().map(|rank| format!("; worker {rank} did not end with the others, and was killed"));
    Err(anyhow!("{message}{}", late.collect::<String>()))
}

/// Starts a worker with the command line of this process.
fn start(
    program: &Path,
    variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(env::args_os().skip(1))
        .stdin(Stdio::null())
        // The terminal's Ctrl-C is for the launcher, which passes it on.
        .process_group(0)
        .envs(variables)
        .env_remove("TORCHELASTIC_USE_AGENT_STORE")
        .env_remove("TORCHELASTIC_RESTART_COUNT");
    if env::var_os("GLOO_SOCKET_IFNAME").is_none() {
        command.env("GLOO_SOCKET_IFNAME", "lo");
    }
    command.spawn()
}

/// The process that started this one with [`launch`].
fn launcher() -> Option<Pid> {
    Pid::from_raw(env::var(LAUNCHER).ok()?.parse().ok()?)
}

/// Calls `join`, in which this process waits for the others, and ends with the launcher until it returns. Later, a rank notices by itself
/// that the store of the launcher is gone.
pub fn while_launcher_lives<T>(join: impl FnOnce() -> T) -> anyhow::Result<T> {
    let Some(launcher) = launcher() else { return Ok(join()) };
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the launcher")?;
    if getppid() != Some(launcher) {
        bail!("the process that started this one has ended");
    }
    let joined = join();
    set_parent_process_death_signal(None).context("cannot follow the launcher")?;
    Ok(joined)
}

/// The workers that have not ended: their ranks and processes.
#[derive(Debug, Clone, Default)]
struct Running(Arc<Mutex<Vec<(u32, Child)>>>);

/// Workers that did not succeed.
#[derive(Debug)]
struct FailedWorkers {
    /// The first of them; one that was asked to stop, if there is one.
    rank: u32,
    status: ExitStatus,
    /// Those that did not end by themselves.
    killed: Vec<u32>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Vec<(u32, Child)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of all. Returns those that did not succeed.
    fn wait(&self, store: &StoreServer, timeout: Duration) -> Option<FailedWorkers> {
        let (mut failed, mut failed_at, mut passed_on) = (None::<(u32, ExitStatus)>, None, false);
        let mut killed = Vec::new();
        loop {
            let mut running = self.lock();
            running.retain_mut(|(rank, child)| match child.try_wait() {
                Ok(Some(status)) if status.success() => false,
                Ok(Some(status)) => {
                    if status.signal().is_some() {
                        store.announce(*rank, &describe(status));
                    }
                    if failed.is_none_or(|(_, first)| stopped_by(first).is_none() && stopped_by(status).is_some()) {
                        failed = Some((*rank, status));
                    }
                    failed_at.get_or_insert_with(Instant::now);
                    false
                }
                Ok(None) => true,
                // It is not a child of this process any more.
                Err(_) => false,
            });
            if running.is_empty() {
                return failed.map(|(rank, status)| FailedWorkers { rank, status, killed });
            }
            if let Some(signal) = signals::received().filter(|_| !passed_on) {
                let signal = if signal == Signal::INT.as_raw() { Signal::INT } else { Signal::TERM };
                for (_, child) in &*running {
                    // It may have ended by itself, or have been stopped.
                    let _ = kill_process(Pid::from_child(child), signal);
                    let _ = kill_process(Pid::from_child(child), Signal::CONT);
                }
                passed_on = true;
            }
            let is_late = failed_at.is_some_and(|at: Instant| at.elapsed() > timeout + GRACE);
            if is_late && killed.is_empty() {
                killed.extend(running.iter().map(|(rank, _)| *rank));
            }
            drop(running);
            if is_late {
                self.kill();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(&self) {
        for (_, child) in &mut *self.lock() {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }
}

/// The signal after which a program of ours ended by itself.
fn stopped_by(status: ExitStatus) -> Option<i32> {
    let signal = status.code()?.checked_sub(128)?;
    [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw).contains(&signal).then_some(signal)
}

/// How a process ended, as the rest of a sentence.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (_, Some(signal)) if signal == Signal::KILL.as_raw() => {
            format!("was killed by signal {signal}, which Linux also does to a process when memory is exhausted")
        }
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

/// Passes the folder of the run from rank 0, which opens it, to the others, and opens the log of this rank in it. All ranks have agreed
/// on the options with this digest. `out` is the folder that this rank was given.
pub fn share_folder(
    group: &ProcessGroup,
    digest: u64,
    out: Option<&Path>,
    open: impl FnOnce() -> anyhow::Result<RunFolder>,
) -> anyhow::Result<(PathBuf, Option<RunFolder>)> {
    let mut opened = None;
    let name = group.share("run folder", || {
        let folder = opened.insert(open().map_err(for_all)?);
        let path = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
        Ok(path.into_os_string().into_vec())
    })?;
    let path = PathBuf::from(OsString::from_vec(name));
    if opened.is_none() {
        wait_to_see(group, &path, digest)?;
    }
    log::open_file(&path.join(log_of_rank(group.place().rank)))?;
    if let Some(own) = out.filter(|_| opened.is_none())
        && own.canonicalize().ok() != path.canonicalize().ok()
    {
        tracing::warn!(
            "--out {} of rank {} has no effect: all ranks write to the folder of rank 0, {}",
            printable(&own.to_string_lossy()),
            group.place().rank,
            printable(&path.to_string_lossy())
        );
    }
    Ok((path, opened))
}

/// An error that the other ranks get to read. The context is part of the text.
pub fn for_all(error: anyhow::Error) -> Error {
    Error::Distributed(grappa_console::one_line(&error))
}

/// Waits until this rank sees the run that rank 0 has opened.
fn wait_to_see(group: &ProcessGroup, path: &Path, digest: u64) -> anyhow::Result<()> {
    /// A network file system may show a new folder a little later.
    const TRIES: u32 = 50;
    for _ in 0..TRIES {
        if path.join(CONFIG).exists() && config_of(path)?.digest() == digest {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    bail!(
        "rank {} does not see the run of rank 0 in {}: the folder of a run must be on a file system that all hosts share; give one with \
         --out",
        group.place().rank,
        printable(&String::from_utf8_lossy(path.as_os_str().as_bytes()))
    )
}

/// Ends the part of this rank: waits for the others after success, tells them after an error.
pub fn end<T>(group: &Arc<ProcessGroup>, result: grappa_trainer::Result<T>) -> grappa_trainer::Result<T> {
    let result = result.and_then(|value| group.finish().map(|()| value));
    match result {
        Ok(value) => {
            log::line("finished");
            Ok(value)
        }
        Err(error) => {
            group.announce(error.is_stopped(), &reason(&error));
            // What another rank did is the cause, also of a stop.
            let cause = group.failure();
            group.leave();
            Err(cause.filter(|_| error.is_stopped()).unwrap_or(error))
        }
    }
}

/// Why this rank ends, as the rest of a sentence.
fn reason(error: &Error) -> String {
    if error.is_stopped() { "was asked to stop".to_owned() } else { format!("ended with an error: {error}") }
}
