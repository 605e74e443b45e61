//! Ranks that join beside programs that are silent, slow, strange or stopped.

use std::{
    fmt,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use grappa_benches::record::{Record, Table};
use grappa_tests::{files::memory_folder, random::Random};
use rustix::process::{Pid, Signal, kill_process};

use crate::trial::{self, Trial};

const QUESTION: &str = "Do ranks that join end within their timeouts, whatever the programs do that they meet, and do they say why? Two ranks \
                        with --join-timeout 5 and --timeout 5. A case is in time if each rank that is not stopped itself ends within both, \
                        and 5 s to start and to end. It names the cause if one of them prints a text about this kind of peer; beside \
                        strangers that connect to rank 0, training has to succeed.";

/// `--join-timeout` and `--timeout`, in seconds.
const TIMEOUT: u64 = 5;
/// Time in which a rank that joins has to end.
const IN_TIME: Duration = Duration::from_secs(TIMEOUT + TIMEOUT + 5);
/// A rank that takes longer hangs, and is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at processes.
const POLL: Duration = Duration::from_millis(10);
/// Time between two bytes of a slow peer.
const SLOW: Duration = Duration::from_secs(1);

/// Number of cases.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Cases, divided among the kinds of peers
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Selects the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a rank meets.
#[derive(Debug, Clone, Copy)]
enum Peer {
    /// Its port accepts connections and says nothing.
    Silent,
    /// The same, in place of torchrun.
    SilentTorchrun,
    /// It sends the greeting, one byte a second.
    Slow,
    /// It answers with garbage.
    Garbage,
    /// It closes connections.
    Closes,
    /// Rank 0, stopped before rank 1 comes.
    StoppedFirst,
    /// Rank 0 or 1, stopped within a second of its start.
    Stopped,
    /// A program that sends garbage to rank 0, as fast as it can.
    Scanner,
    /// 200 connections to rank 0 that say nothing.
    SilentClients,
    /// A rank with another secret.
    OtherSecret,
}

impl Peer {
    const ALL: [Self; 10] = [
        Self::Silent,
        Self::SilentTorchrun,
        Self::Slow,
        Self::Garbage,
        Self::Closes,
        Self::StoppedFirst,
        Self::Stopped,
        Self::Scanner,
        Self::SilentClients,
        Self::OtherSecret,
    ];

    /// Whether ranks can train beside it.
    fn is_harmless(self) -> bool {
        matches!(self, Self::Scanner | Self::SilentClients)
    }

    /// A part of an error that names the cause.
    fn cause(self) -> &'static str {
        match self {
            Self::Silent | Self::Slow | Self::StoppedFirst => "got no answer from",
            Self::SilentTorchrun => "torchrun is stopped",
            Self::Garbage | Self::Closes => "met a stranger at",
            // Depending on the moment: it came, or it did not.
            Self::Stopped => "rank ",
            Self::OtherSecret => "have different secrets",
            Self::Scanner | Self::SilentClients => "",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "silent port",
            Self::SilentTorchrun => "silent port in place of torchrun",
            Self::Slow => "slow port, a byte a second",
            Self::Garbage => "port that answers garbage",
            Self::Closes => "port that closes connections",
            Self::StoppedFirst => "rank 0, stopped before it answers",
            Self::Stopped => "rank 0 or 1, stopped at a random moment",
            Self::Scanner => "garbage at the port of rank 0",
            Self::SilentClients => "200 silent connections to rank 0",
            Self::OtherSecret => "rank with another secret",
        })
    }
}

/// The end of the ranks of a case.
struct Outcome {
    took: Duration,
    names_cause: bool,
    stderr: String,
}

#[derive(Default)]
struct Counts {
    cases: u64,
    in_time: u64,
    named: u64,
    longest: Duration,
}

pub fn run(args: &Args, record: Option<&Path>) -> Result<()> {
    let folder = memory_folder();
    let trial = Trial::new(folder.path())?;
    let mut random = Random::new(args.seed);
    let mut counts = Peer::ALL.map(|_| Counts::default());
    for case in 0..args.cases {
        let kind = (case % Peer::ALL.len() as u64) as usize;
        let peer = Peer::ALL[kind];
        let outcome = trial.meet(peer, &mut random)?;
        let counts = &mut counts[kind];
        counts.cases += 1;
        counts.in_time += u64::from(outcome.took <= IN_TIME);
        counts.named += u64::from(outcome.names_cause);
        counts.longest = counts.longest.max(outcome.took);
        if outcome.took > IN_TIME || !outcome.names_cause {
            eprintln!("{peer}: {:.1} s: {}", outcome.took.as_secs_f64(), outcome.stderr);
        }
    }
    let mut table = Table::new(&["peer", "cases", "in time", "cause named, or trained", "longest s"]);
    for (peer, counts) in Peer::ALL.iter().zip(&counts).filter(|(_, counts)| counts.cases > 0) {
        table.row([
            peer.to_string(),
            counts.cases.to_string(),
            counts.in_time.to_string(),
            counts.named.to_string(),
            format!("{:.1}", counts.longest.as_secs_f64()),
        ]);
    }
    let line = format!(
        "cargo run -p grappa-benches --bin faults -- peers --cases {} --seed {}",
        args.cases, args.seed
    );
    let mut page = Record::new("Peers of ranks that join", QUESTION, &line, &trial.folder)?;
    page.add(table);
    page.finish(record)?;
    let right: u64 = counts.iter().map(|counts| counts.in_time.min(counts.named)).sum();
    match args.cases - right {
        0 => Ok(()),
        wrong => bail!("{wrong} of {} went wrong", args.cases),
    }
}

/// A program that ranks meet, until this is dropped.
struct Stranger {
    is_over: Arc<AtomicBool>,
    port: u16,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

impl Stranger {
    /// Serves connections with `answer`.
    fn serving(answer: fn(TcpStream)) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten().take_while(|_| !ends.load(Relaxed)) {
                thread::spawn(move || answer(stream));
            }
        });
        Ok(Self { is_over, port })
    }

    /// Calls `molest` with the connections so far, again and again.
    fn visiting(port: u16, molest: fn(u16, &mut Vec<TcpStream>)) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        thread::spawn(move || {
            let mut connections = Vec::new();
            while !ends.load(Relaxed) {
                molest(port, &mut connections);
            }
        });
        Self { is_over, port }
    }
}

fn stay_silent(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

fn answer_slowly(mut stream: TcpStream) {
    for byte in b"grappa-store 1\r\n" {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        thread::sleep(SLOW);
    }
}

fn answer_garbage(mut stream: TcpStream) {
    let _ = stream.write_all(&[0xA5; 4096]);
    stay_silent(stream);
}

fn send_garbage(port: u16, _: &mut Vec<TcpStream>) {
    match TcpStream::connect(("127.0.0.1", port)) {
        Ok(mut stream) => {
            let _ = stream.write_all(&[0xA5; 64]);
        }
        Err(_) => thread::sleep(POLL),
    }
}

fn connect_silently(port: u16, connections: &mut Vec<TcpStream>) {
    match TcpStream::connect(("127.0.0.1", port)) {
        Ok(stream) if connections.len() < 200 => connections.push(stream),
        _ => thread::sleep(POLL),
    }
}

impl Trial {
    fn rank(&self, rank: u32, port: u16, variables: &[(&str, &str)]) -> Result<Child> {
        let timeout = TIMEOUT.to_string();
        trial::spawn(
            self.command()
                .args(["--epochs", "1", "--join-timeout", &timeout, "--timeout", &timeout])
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "2")
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .env("GLOO_SOCKET_IFNAME", "lo")
                .envs(variables.iter().copied())
                .stderr(Stdio::piped()),
        )
    }

    /// Lets rank 1 join a stranger in place of rank 0.
    fn join(&self, peer: Peer, stranger: &Stranger, variables: &[(&str, &str)]) -> Result<Outcome> {
        end(peer, vec![self.rank(1, stranger.port, variables)?], None)
    }

    /// Lets ranks join beside a peer.
    fn meet(&self, peer: Peer, random: &mut Random) -> Result<Outcome> {
        let run = self.run_folder();
        if run.exists() {
            std::fs::remove_dir_all(run)?;
        }
        let none: &[(&str, &str)] = &[];
        let port = free_port()?;
        let secrets = [("GRAPPA_SECRET", "0123456789abcdef")];
        let torchrun = [("TORCHELASTIC_USE_AGENT_STORE", "True")];
        match peer {
            Peer::Silent => self.join(peer, &Stranger::serving(stay_silent)?, none),
            Peer::SilentTorchrun => self.join(peer, &Stranger::serving(stay_silent)?, &torchrun),
            Peer::Slow => self.join(peer, &Stranger::serving(answer_slowly)?, none),
            Peer::Garbage => self.join(peer, &Stranger::serving(answer_garbage)?, none),
            Peer::Closes => self.join(peer, &Stranger::serving(drop)?, none),
            Peer::StoppedFirst => {
                let first = self.rank(0, port, none)?;
                wait_for_port(port)?;
                kill_process(Pid::from_child(&first), Signal::STOP)?;
                end(peer, vec![self.rank(1, port, none)?], Some(first))
            }
            Peer::Stopped => {
                let mut ranks = vec![self.rank(0, port, none)?, self.rank(1, port, none)?];
                thread::sleep(Duration::from_secs_f64(random.unit()));
                let stopped = random.below(2) as usize;
                kill_process(Pid::from_child(&ranks[stopped]), Signal::STOP)?;
                let stopped = ranks.swap_remove(stopped);
                end(peer, ranks, Some(stopped))
            }
            Peer::Scanner | Peer::SilentClients => {
                let molest = match peer {
                    Peer::Scanner => send_garbage,
                    _ => connect_silently,
                };
                let _stranger = Stranger::visiting(port, molest);
                end(peer, vec![self.rank(0, port, none)?, self.rank(1, port, none)?], None)
            }
            Peer::OtherSecret => end(
                peer,
                vec![self.rank(0, port, &secrets)?, self.rank(1, port, none)?],
                None,
            ),
        }
    }
}

/// Waits for ranks, and kills `stopped` then.
fn end(peer: Peer, mut ranks: Vec<Child>, stopped: Option<Child>) -> Result<Outcome> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let mut running = 0;
        for rank in &mut ranks {
            running += u32::from(rank.try_wait()?.is_none());
        }
        if running == 0 {
            break;
        }
        thread::sleep(POLL);
    }
    let took = begin.elapsed();
    if let Some(mut stopped) = stopped {
        stopped.kill()?;
        stopped.wait()?;
    }
    let (mut stderr, mut all_succeeded) = (String::new(), true);
    for mut rank in ranks {
        // It may have ended.
        let _ = rank.kill();
        let output = rank.wait_with_output()?;
        all_succeeded &= output.status.success();
        stderr += &String::from_utf8_lossy(&output.stderr);
    }
    let names_cause = match peer.is_harmless() {
        true => all_succeeded,
        // Without an error the stop came after the end of training.
        false => stderr.contains(peer.cause()) || matches!(peer, Peer::Stopped) && all_succeeded,
    };
    Ok(Outcome {
        took,
        names_cause,
        stderr,
    })
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn wait_for_port(port: u16) -> Result<()> {
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(begin.elapsed() < PATIENCE, "rank 0 never listens");
        thread::sleep(POLL);
    }
    Ok(())
}
