//! Training on several hosts, next to DistDGL: bytes that a host sends per step, and seconds per epoch.
//!
//! Hosts are network namespaces whose links have the bandwidth of a real network, and its delay if one is given. They share the processors
//! and the disk of this machine. Each host of Grappa has the whole store. DistDGL divides the graph and its features among the hosts, with
//! METIS, and fetches what a minibatch lacks. Both train the same model with the same fanouts, batches and learning rate. Preparation does
//! not count: the store is ingested and pre-aggregated, and the graph is divided.

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
    child::{number, wrapped},
    dataset::{Dataset, Graphs, Task},
    folder, job, machine,
    network::{self, Links, Network},
    peers, programs,
    record::{Record, Table},
    stats::median,
    training,
    turns::in_turns,
};
use grappa_console::ByteSize;
use serde_json::{Value, json};

/// Seeds of a rank in each step.
const BATCH: u32 = 1024;

/// Measure training on several hosts
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The folder with the datasets, a folder each
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"))]
    data: PathBuf,
    /// Graphs to train on
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Dataset::DebianBookworm, Dataset::Rmat])]
    datasets: Vec<Dataset>,
    /// Generated graphs have 2^SCALE nodes
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Number of hosts, with a rank each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    hosts: u32,
    /// Bandwidths of the hosts' links in Mbit/s; 0: no limit
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 100])]
    megabits: Vec<u32>,
    /// Milliseconds that packets take from host to host
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay_ms: u32,
    /// Grappa's methods of compression; top-k with its rate, such as top-k=0.01 or top-k=0.01..0.5
    #[arg(long, value_delimiter = ',', value_name = "METHOD", default_value = "none")]
    compress: Vec<String>,
    /// Epochs of a run, instead of the dataset's; at least 2, because the first is not timed
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    epochs: Option<u32>,
    /// Runs of each contender; each has another seed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads of each host
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Grappa's memory budget, of each host
    #[arg(long, default_value = "3GiB")]
    memory: ByteSize,
    /// A Python with DGL; without it DistDGL is left out
    #[arg(long, value_name = "PYTHON")]
    dgl_python: Option<PathBuf>,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

/// A program on links.
struct Contender {
    program: Program,
    links: Links,
}

#[derive(Clone, PartialEq, Eq)]
enum Program {
    /// Grappa with a method of compression.
    Ours(String),
    DistDgl,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Program::Ours(method) if method == "none" => f.write_str("Grappa"),
            Program::Ours(method) => write!(f, "Grappa, {method}"),
            Program::DistDgl => f.write_str("DistDGL"),
        }?;
        match self.links.megabits {
            None => f.write_str(", no limit"),
            Some(megabits) => write!(f, ", {megabits} Mbit/s"),
        }
    }
}

struct HostsRun {
    /// Of the host that sends most.
    bytes_per_step: f64,
    steps_per_epoch: f64,
    /// Without evaluation; median of the epochs after the first.
    seconds_per_epoch: f64,
    /// Of the exchange of gradients, with encoding and decoding, per step. Grappa alone tells it.
    exchange_ms: Option<f64>,
    test_accuracy: f64,
}

/// Inputs of the runs on one graph.
struct HostsSetup<'a> {
    args: &'a Args,
    task: Task,
    programs: &'a Path,
    store: PathBuf,
    /// The folder of the graph that DistDGL divided, and the Python that runs it.
    peer: Option<(&'a Path, PathBuf)>,
}

impl Bench for Args {
    const TITLE: &'static str = "Several hosts";
    const QUESTION: &'static str = "How many bytes does a host send in each step, and how long does an epoch take, next to DistDGL, which fetches the \
        features of other hosts' nodes for each minibatch? GraphSAGE-mean, hidden 128, dropout 0.5, Adam, 1024 seeds per host and step. \
        Medians; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        if let Err(why) = Network::new(self.hosts, self.links(None)) {
            record
                .add(format_args!("Nothing was measured: this machine does not permit network namespaces ({why:#})."));
            return Ok(());
        }
        let programs = programs::build(&["grappa-gen", "grappa-ingest", "grappa-store", "grappa-train"])?;
        let graphs = Graphs { programs: &programs, work: &self.files.work, data: &self.data, scale: self.scale };
        let peer = self.peer();
        for &dataset in &self.datasets {
            match graphs.store(dataset)? {
                Some(store) => {
                    self.measure_on(dataset, store, &graphs, peer.as_ref().ok().map(|(python, _)| *python), record)?
                }
                None => record.add(format_args!(
                    "Left out: {dataset}: there is no {} (--data).",
                    self.data.join(dataset.name()).display()
                )),
            }
        }
        record.add(match peer {
            Ok((_, version)) => format!("Peer: {version}."),
            Err(why) => format!("Left out: DistDGL ({why})."),
        });
        record.add(
            "MB count the host that sends most, counted at its interface: with Grappa all bytes of the run, with its start and its \
             evaluation, divided by the steps; with DistDGL the bytes of the epochs. Seconds are the medians of the epochs after the first, \
             without evaluation. Grappa's test accuracy is from an exact evaluation, DistDGL's from sampled neighbors; both score the \
             model of the last epoch.",
        );
        Ok(())
    }
}

impl Args {
    fn links(&self, megabits: Option<u32>) -> Links {
        Links { megabits, delay: Duration::from_millis(self.delay_ms.into()) }
    }

    /// The Python of the peer and its versions, or why it cannot run.
    fn peer(&self) -> Result<(&Path, String), String> {
        let python = self.dgl_python.as_deref();
        let python = python.ok_or("--dgl-python; benches/README.md says how to install it")?;
        let said = peers::check(peers::script(python, "distdgl.py", 1).arg("check"))?;
        Ok((python, said.lines().next_back().unwrap_or_default().to_owned()))
    }

    fn measure_on(
        &self,
        dataset: Dataset,
        store: PathBuf,
        graphs: &Graphs<'_>,
        python: Option<&Path>,
        record: &mut Record,
    ) -> Result<()> {
        let task = Task { epochs: self.epochs.unwrap_or(dataset.task().epochs), ..dataset.task() };
        ensure!(!task.fanouts.is_empty(), "{dataset} is trained on the whole graph, which has no minibatches");
        training::preaggregate(graphs.programs, &store, task.aggregates(), false)?;
        let peer = match python {
            Some(python) => Some((python, self.divided(dataset, &store, graphs, python)?)),
            None => None,
        };
        let mut contenders = Vec::new();
        for &megabits in &self.megabits {
            let links = self.links((megabits > 0).then_some(megabits));
            let ours = self.compress.iter().map(|method| Program::Ours(method.clone()));
            let peers = peer.iter().map(|_| Program::DistDgl);
            contenders.extend(ours.chain(peers).map(|program| Contender { program, links }));
        }
        let setup = HostsSetup { args: self, task, programs: graphs.programs, store, peer };
        let load = machine::load()?;
        let runs = in_turns(
            &contenders,
            self.runs,
            |contender, turn| setup.run(contender, turn),
            |ran| format!("{:.2} s an epoch, {:.2} MB a step", ran.seconds_per_epoch, ran.bytes_per_step / 1e6),
        )?;
        record.add(format_args!(
            "### {dataset}, {} hosts\n\n{} layers, fanouts {:?}, learning rate {}, {} epochs.\n\n{}",
            self.hosts,
            task.layers,
            task.fanouts,
            task.lr,
            task.epochs,
            table(&contenders, &runs)
        ));
        record.add(format_args!("Load {load} before and {} after.", machine::load()?.trim()));
        Ok(())
    }

    /// The folder of the graph in as many parts as there are hosts.
    fn divided(&self, dataset: Dataset, store: &Path, graphs: &Graphs<'_>, python: &Path) -> Result<PathBuf> {
        let arrays = graphs.arrays(dataset, store, python)?;
        let parts = arrays.with_extension(format!("{}-parts", self.hosts));
        if parts.exists() {
            return Ok(parts);
        }
        eprintln!("making {}", parts.display());
        let partial = parts.with_extension("partial");
        folder::remove(&partial)?;
        let mut divide = peers::script(python, "distdgl.py", self.threads);
        divide.arg("divide").arg(&arrays).arg(self.hosts.to_string());
        let output = divide.args(["metis".as_ref(), partial.as_os_str()]).output()?;
        ensure!(
            output.status.success(),
            "DistDGL could not divide the graph: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::rename(&partial, &parts).with_context(|| format!("cannot rename {}", partial.display()))?;
        Ok(parts)
    }
}

fn table(contenders: &[Contender], runs: &[Vec<HostsRun>]) -> Table {
    let columns = ["", "MB sent a step", "ms a step", "exchange, ms", "s an epoch", "over", "test, %"];
    let mut table = Table::new(&columns);
    for (contender, ran) in contenders.iter().zip(runs) {
        let exchange: Option<Vec<f64>> = ran.iter().map(|run| run.exchange_ms).collect();
        let seconds = median(ran.iter().map(|run| run.seconds_per_epoch));
        let peer = contenders
            .iter()
            .position(|other| other.links.megabits == contender.links.megabits && other.program == Program::DistDgl);
        let over = peer.map(|peer| seconds / median(runs[peer].iter().map(|run| run.seconds_per_epoch)));
        table.row([
            contender.to_string(),
            format!("{:.3}", median(ran.iter().map(|run| run.bytes_per_step / 1e6))),
            format!("{:.0}", median(ran.iter().map(|run| 1e3 * run.seconds_per_epoch / run.steps_per_epoch))),
            exchange.map_or("-".to_owned(), |exchange| format!("{:.2}", median(exchange))),
            format!("{seconds:.2}"),
            over.map_or("-".to_owned(), |over| format!("{over:.2}")),
            format!("{:.1}", median(ran.iter().map(|run| 100.0 * run.test_accuracy))),
        ]);
    }
    table
}

impl HostsSetup<'_> {
    fn run(&self, contender: &Contender, seed: u32) -> Result<HostsRun> {
        let network = Network::new(self.args.hosts, contender.links)?;
        match (&contender.program, &self.peer) {
            (Program::DistDgl, Some((python, parts))) => self.run_peer(&network, python, parts, seed),
            (Program::DistDgl, None) => unreachable!("a peer that is not installed is no contender"),
            (Program::Ours(method), _) => self.run_ours(&network, method, seed),
        }
    }

    fn run_ours(&self, network: &Network, method: &str, seed: u32) -> Result<HostsRun> {
        let work = &self.args.files.work;
        let out = work.join("hosts-run");
        folder::remove(&out)?;
        let task = self.task;
        let (method, rate) = match method.split_once('=') {
            Some((method, rate)) => (method, Some(rate)),
            None => (method, None),
        };
        job::run(Some(network), self.args.hosts, work, |_| {
            let mut command = Command::new(self.programs.join("grappa-train"));
            command.arg(&self.store).arg("--out").arg(&out).arg("--quiet");
            let fanouts: Vec<String> = task.fanouts.iter().map(ToString::to_string).collect();
            for (option, value) in [
                ("--model", task.model.to_owned()),
                ("--layers", task.layers.to_string()),
                ("--hidden", task.hidden.to_string()),
                // DistDGL's example has none.
                ("--norm", "none".to_owned()),
                ("--fanouts", fanouts.join(",")),
                ("--batch", BATCH.to_string()),
                ("--lr", task.lr.to_string()),
                ("--epochs", task.epochs.to_string()),
                ("--eval-every", task.epochs.to_string()),
                ("--seed", seed.to_string()),
                ("--threads", self.args.threads.to_string()),
                ("--memory", self.args.memory.0.to_string()),
                ("--evaluate", "exact".to_owned()),
                ("--compress", method.to_owned()),
            ] {
                command.args([option, &value]);
            }
            if let Some(rate) = rate {
                command.args(["--compress-rate", rate]);
            }
            command
        })?;
        let sent = network.sent_bytes()?.into_iter().max().unwrap_or(0) as f64;
        let epochs = training::epochs_of(&out)?;
        let summary: Value = serde_json::from_str(&read(&out.join("summary.json"))?)?;
        folder::remove(&out)?;
        let steps = number(epochs.last().context("the run has no epochs")?, "step")?;
        let seconds: Vec<f64> = epochs[1..].iter().map(training::seconds_of).collect::<Result<_>>()?;
        let exchange: f64 = epochs.iter().filter_map(|epoch| epoch["seconds_by_stage"]["exchange"].as_f64()).sum();
        Ok(HostsRun {
            bytes_per_step: sent / steps,
            steps_per_epoch: steps / epochs.len() as f64,
            seconds_per_epoch: median(seconds),
            exchange_ms: Some(1e3 * exchange / steps),
            test_accuracy: number(&summary, "test_accuracy")?,
        })
    }

    fn run_peer(&self, network: &Network, python: &Path, parts: &Path, seed: u32) -> Result<HostsRun> {
        let work = &self.args.files.work;
        let addresses: Vec<String> = (0..self.args.hosts).map(network::address).collect();
        let settings = json!({
            "addresses": addresses,
            "port": job::free_port()?,
            "layers": self.task.layers,
            "hidden": self.task.hidden,
            "fanouts": self.task.fanouts,
            "batch": BATCH,
            "lr": self.task.lr,
            "epochs": self.task.epochs,
            "threads": self.args.threads,
            "seed": seed,
        });
        let figures: Vec<PathBuf> =
            (0..self.args.hosts).map(|rank| work.join(format!("hosts-peer-{rank}.json"))).collect();
        job::run(Some(network), self.args.hosts, work, |rank| {
            let script = peers::script(python, "distdgl.py", self.args.threads);
            // Each host needs shared memory of its own, where servers and trainers meet by name.
            let mut command = Command::new("sh");
            command.args(["-c", "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"", "sh"]);
            let mut command = wrapped(command, &script);
            command.arg("host").arg(parts).arg(settings.to_string()).arg(&figures[rank as usize]);
            command
        })?;
        let mut hosts = Vec::new();
        for path in &figures {
            let text = read(path)?;
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
            hosts.push(serde_json::from_str::<Value>(&text)?);
        }
        let steps: f64 = of_epochs(&hosts[0], "steps")?.iter().sum();
        let sent: Vec<f64> =
            hosts.iter().map(|host| Ok(of_epochs(host, "bytes")?.iter().sum())).collect::<Result<_>>()?;
        Ok(HostsRun {
            bytes_per_step: sent.into_iter().fold(0.0, f64::max) / steps,
            steps_per_epoch: steps / f64::from(self.task.epochs),
            seconds_per_epoch: median(of_epochs(&hosts[0], "seconds")?[1..].iter().copied()),
            exchange_ms: None,
            test_accuracy: number(&hosts[0], "test_accuracy")?,
        })
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A number of each epoch that DistDGL's script printed.
fn of_epochs(host: &Value, key: &str) -> Result<Vec<f64>> {
    let epochs = host["epochs"].as_array().context("the script told no epochs")?;
    epochs.iter().map(|epoch| number(epoch, key)).collect()
}
