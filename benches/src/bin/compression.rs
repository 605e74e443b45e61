//! Savings and costs of compressed gradients: runs of `grappa-train` with several processes, each on a host of its own.
//!
//! Hosts are network namespaces whose links have the bandwidth of a real network, and its delay if one is given. Where the system does not
//! permit namespaces, processes talk over the loopback interface, and the time for the bytes of a step is computed and added; a delay is
//! then an error.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    folder, job, machine,
    network::{Links, Network},
    programs,
    record::{Record, Table},
    stats::{mean, median},
    turns::in_turns,
};
use serde_json::Value;

/// Measure compressed gradients
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// A store with labels
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Methods of compression; top-k with its rate, such as top-k=0.01 or top-k=0.01..0.5
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "METHOD",
        default_value = "none,bf16,int8,lossless,top-k=0.05,top-k=0.01,top-k=0.01..0.5"
    )]
    methods: Vec<String>,
    /// Numbers of processes
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4], value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Bandwidths of the hosts' links in Mbit/s; 0: no limit
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1000, 100])]
    megabits: Vec<u32>,
    /// Milliseconds that packets take from host to host
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay_ms: u32,
    /// Hidden dimension of the model
    #[arg(long, value_name = "N", default_value_t = 256)]
    hidden: usize,
    /// Number of partitions; all of them make a step
    #[arg(long, value_name = "K", default_value_t = 16)]
    partitions: u32,
    /// Epochs
    #[arg(long, default_value_t = 20)]
    epochs: u64,
    /// Runs of each contender, with other seeds
    #[arg(long, default_value_t = 3)]
    runs: u32,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

/// One row of the table.
struct Contender<'a> {
    method: &'a str,
    ranks: u32,
    links: Links,
}

impl fmt::Display for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, ranks, links } = self;
        match links.megabits {
            None => write!(f, "{method}, {ranks} processes, no limit")?,
            Some(megabits) => write!(f, "{method}, {ranks} processes, {megabits} Mbit/s")?,
        }
        match links.delay.as_millis() {
            0 => Ok(()),
            delay => write!(f, ", {delay} ms"),
        }
    }
}

/// The figures of a run.
struct Figures {
    bytes_per_step: f64,
    exchange_ms: f64,
    step_ms: f64,
    accuracy: f64,
}

impl Args {
    /// Trains with the processes of a contender. Without namespaces, adds the time of the link.
    fn run(&self, contender: &Contender<'_>, seed: u32, has_hosts: bool) -> Result<Figures> {
        let out = self.files.work.join("compression.run");
        folder::remove(&out)?;
        let network = match has_hosts {
            true => Some(Network::new(contender.ranks, contender.links)?),
            false => None,
        };
        let program = programs::build(&["grappa-train"])?.join("grappa-train");
        job::run(network.as_ref(), contender.ranks, &self.files.work, |_| {
            let mut command = Command::new(&program);
            self.options(&mut command, contender, seed, &out);
            command
        })?;
        let mut figures = figures(&out)?;
        folder::remove(&out)?;
        if let Some(megabits) = contender.links.megabits.filter(|_| !has_hosts) {
            let link_ms = figures.bytes_per_step * 8.0 / (f64::from(megabits) * 1e3);
            figures.exchange_ms += link_ms;
            figures.step_ms += link_ms;
        }
        Ok(figures)
    }

    fn options(&self, command: &mut Command, contender: &Contender<'_>, seed: u32, out: &Path) {
        let (method, rate) = match contender.method.split_once('=') {
            Some((method, rate)) => (method, Some(rate)),
            None => (contender.method, None),
        };
        command
            .arg(&self.store)
            .args(["--threads", "1", "--quiet", "--compress", method]);
        if let Some(rate) = rate {
            command.args(["--compress-rate", rate]);
        }
        let numbers = [
            ("--hidden", self.hidden.to_string()),
            ("--partitions", self.partitions.to_string()),
            ("--epochs", self.epochs.to_string()),
            ("--seed", seed.to_string()),
        ];
        for (option, value) in numbers {
            command.args([option, &value]);
        }
        command.arg("--out").arg(out);
    }
}

/// The figures of the run in a folder: means over its steps, and the accuracy of its best epoch.
fn figures(out: &Path) -> Result<Figures> {
    let path = out.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let epochs: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<std::result::Result<_, _>>()?;
    let steps = epochs
        .last()
        .and_then(|epoch| epoch["step"].as_f64())
        .context("no epochs")?;
    let stages = ["sample", "read", "assemble", "forward", "backward", "exchange"];
    let seconds = |stage: &str| -> f64 {
        let of_epoch = |epoch: &Value| epoch["seconds_by_stage"][stage].as_f64().unwrap_or(0.0);
        epochs.iter().map(of_epoch).sum()
    };
    let sent: f64 = epochs.iter().filter_map(|epoch| epoch["bytes_sent"].as_f64()).sum();
    let summary: Value = serde_json::from_str(&fs::read_to_string(out.join("summary.json"))?)?;
    Ok(Figures {
        bytes_per_step: sent / steps,
        exchange_ms: 1e3 * seconds("exchange") / steps,
        step_ms: 1e3 * stages.map(seconds).iter().sum::<f64>() / steps,
        accuracy: summary["test_accuracy"]
            .as_f64()
            .context("the store has no test nodes")?,
    })
}

impl Bench for Args {
    const TITLE: &'static str = "Compressed gradients";
    const QUESTION: &'static str = "What does each way to compress gradients save, and what does it cost? Processes that train together, with a thread \
        each, over links of a given bandwidth: bytes that each process sends per step, milliseconds of the exchange with encoding and \
        decoding, and of the whole step (medians of the runs), and test accuracy in %, at the best validation (mean of the runs).";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let delay = Duration::from_millis(self.delay_ms.into());
        let links = Links {
            megabits: Some(1000),
            delay,
        };
        let refused = Network::new(2, links).err();
        ensure!(
            delay.is_zero() || refused.is_none(),
            "this machine does not permit links with a delay: {}",
            refused.as_ref().map_or_else(String::new, |why| format!("{why:#}"))
        );
        let mut contenders = Vec::new();
        for &megabits in &self.megabits {
            let megabits = (megabits > 0).then_some(megabits);
            let links = Links { megabits, delay };
            for &ranks in &self.ranks {
                let of_method = |method| Contender { method, ranks, links };
                contenders.extend(self.methods.iter().map(|method| of_method(method.as_str())));
            }
        }
        let runs = in_turns(
            &contenders,
            self.runs,
            |contender, turn| self.run(contender, turn, refused.is_none()),
            |figures| format!("{:.2} ms per step", figures.step_ms),
        )?;
        let mut table = Table::new(&["contender", "KiB per step", "exchange, ms", "step, ms", "accuracy"]);
        for (contender, runs) in contenders.iter().zip(&runs) {
            let of = |figure: fn(&Figures) -> f64| -> Vec<f64> { runs.iter().map(figure).collect() };
            table.row([
                contender.to_string(),
                format!("{:.1}", median(of(|run| run.bytes_per_step)) / 1024.0),
                format!("{:.2}", median(of(|run| run.exchange_ms))),
                format!("{:.2}", median(of(|run| run.step_ms))),
                format!("{:.2}", 100.0 * mean(&of(|run| run.accuracy))),
            ]);
        }
        record.add(table);
        record.add(match refused {
            None if delay.is_zero() => "Hosts are network namespaces, and tc limits their links.".to_owned(),
            None => "Hosts are network namespaces. A program passes packets on over links of the given bandwidth and delay.".to_owned(),
            Some(reason) => format!(
                "No network namespaces with limits here ({reason:#}): processes talked over the loopback interface, and the time of a \
                 step's bytes on the link was added."
            ),
        });
        record.add(format!("Load average after the runs: {}.", machine::load()?.trim()));
        Ok(())
    }
}
