//! The time of an all-reduce between processes of this host, next to the same call from PyTorch.
//!
//! The program starts itself as ranks, as `grappa-train --workers` does.

use std::{
    env, fmt,
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    machine, peers,
    record::{Record, Table},
    stats::{median, range},
    turns::in_turns,
};
use grappa_trainer::distributed::{Hello, Place, StoreServer, Waits, join};
use tch::{Device, Kind, Tensor};

/// Calls before those that are measured.
const WARM_UP: usize = 10;

/// Measure the all-reduce of gradients
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// Bytes of the tensor
    #[arg(long, value_delimiter = ',', default_values_t = [64 << 10, 4 << 20])]
    bytes: Vec<u64>,
    /// Numbers of processes
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4])]
    ranks: Vec<u32>,
    /// Measured calls of a run
    #[arg(long, default_value_t = 200)]
    calls: usize,
    /// Runs of each contender
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// A Python with PyTorch
    #[arg(long, value_name = "PYTHON")]
    python: Option<PathBuf>,
}

fn main() -> ExitCode {
    match Place::from_environment() {
        Ok(Some(place)) => match as_rank(place) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        },
        _ => bench::main::<Args>(),
    }
}

/// Rank 0 prints the median time of a call.
fn as_rank(place: Place) -> Result<()> {
    tch::set_num_threads(1);
    let args = Args::parse();
    let is_first = place.rank == 0;
    let hello = Hello { same: Vec::new() };
    let ranks = f64::from(place.ranks);
    let group = join(place, hello, Waits::of(Duration::from_secs(60)), || false)?;
    let tensor = Tensor::ones([args.bytes[0] as i64 / 4], (Kind::Float, Device::Cpu));
    let mut milliseconds = Vec::new();
    for call in 0..WARM_UP + args.calls {
        let _ = tensor.shallow_clone().fill_(1.0);
        let begin = Instant::now();
        group.all_reduce(&tensor)?;
        if call >= WARM_UP {
            milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    ensure!(tensor.double_value(&[-1]) == ranks, "a wrong sum");
    group.finish()?;
    if is_first {
        println!("{}", median(milliseconds));
    }
    Ok(())
}

/// One row of the table.
struct Contender {
    is_peer: bool,
    ranks: u32,
    bytes: u64,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_peer { "PyTorch" } else { "Grappa" };
        write!(f, "{name}, {} processes, {} KiB", self.ranks, self.bytes >> 10)
    }
}

impl Args {
    /// Milliseconds of a call.
    fn run(&self, contender: &Contender) -> Result<f64> {
        match &self.python {
            Some(python) if contender.is_peer => self.peer(python, contender),
            _ => self.own(contender),
        }
    }

    fn own(&self, contender: &Contender) -> Result<f64> {
        let store = StoreServer::start()?;
        let start = |rank: u32| -> Result<Child> {
            let mut command = Command::new(env::current_exe()?);
            command
                .args(["--work", "."])
                .args([
                    "--bytes",
                    &contender.bytes.to_string(),
                    "--calls",
                    &self.calls.to_string(),
                ])
                .envs(store.variables(rank, contender.ranks))
                .env("GLOO_SOCKET_IFNAME", "lo")
                .stdout(Stdio::piped());
            Ok(command.spawn()?)
        };
        let children: Vec<Child> = (0..contender.ranks).map(start).collect::<Result<_>>()?;
        let mut printed = String::new();
        for child in children {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "a rank failed: {}", output.status);
            printed += &String::from_utf8_lossy(&output.stdout);
        }
        printed.trim().parse().with_context(|| format!("not a time: {printed}"))
    }

    fn peer(&self, python: &std::path::Path, contender: &Contender) -> Result<f64> {
        let mut script = peers::script(python, "allreduce.py", 1);
        script.args([
            "--ranks",
            &contender.ranks.to_string(),
            "--bytes",
            &contender.bytes.to_string(),
        ]);
        script.args(["--calls", &self.calls.to_string(), "--warm-up", &WARM_UP.to_string()]);
        let printed = peers::check(&mut script).map_err(anyhow::Error::msg)?;
        let value: serde_json::Value = serde_json::from_str(printed.trim())?;
        value["ms"].as_f64().context("no time")
    }
}

impl Bench for Args {
    const TITLE: &'static str = "All-reduce between local processes";
    const QUESTION: &'static str = "How long does the exchange of a step take between processes of one host, next to the same call from PyTorch? Both use \
        PyTorch's Gloo backend over the loopback interface; each process has one thread. The median of the calls of a run.";
    const PACKAGE: &'static str = "grappa-trainer-benches";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let mut contenders = Vec::new();
        for &ranks in &self.ranks {
            for &bytes in &self.bytes {
                for is_peer in [false, true] {
                    if !is_peer || self.python.is_some() {
                        contenders.push(Contender { is_peer, ranks, bytes });
                    }
                }
            }
        }
        let runs = in_turns(
            &contenders,
            self.runs,
            |contender, _| self.run(contender),
            |ms| format!("{ms:.3} ms"),
        )?;
        let mut table = Table::new(&["contender", "ms", "range", "sent by each process, KiB"]);
        for (contender, runs) in contenders.iter().zip(&runs) {
            let sent = 2 * u64::from(contender.ranks - 1) * contender.bytes / u64::from(contender.ranks);
            table.row([
                contender.to_string(),
                format!("{:.2}", median(runs.iter().copied())),
                range(runs.iter().copied()),
                (sent >> 10).to_string(),
            ]);
        }
        record.add(table);
        if self.python.is_none() {
            record.add("PyTorch was left out: no --python.");
        }
        record.add(format!("Load average after the runs: {}.", machine::load()?.trim()));
        Ok(())
    }
}
