//! Minibatches a second: sampling alone, with features in memory, and out of core under a limit that counts the page cache.
//!
//! Two cores, R-MAT, 128 values a node, 5 % of the nodes as seeds, fanouts 15, 10, 5, batches of 1024 seeds: DGL's
//! minibatches, in which every node is expanded again at each hop. Out of core, the limit is below the size of the f32
//! features, and nothing is cached when a run begins.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use clap::Parser;
use grappa_benches::{
    cache,
    child::{self, Measured},
    disk::Disk,
    inputs,
    limit::MemoryLimit,
    programs,
    record::{Record, Table},
    stats::{median, range},
};
use grappa_console::ByteSize;

const QUESTION: &str = "How many minibatches a second come with their features, in memory, and out of core under a control group whose \
    limit counts the page cache? R-MAT, edge factor 16, 128 values a node, seeds 5 % of the nodes, fanouts 15,10,5, batches of 1024. \
    Medians; contenders take turns.";
const GET_PEER: &str = "see benches/README.md for how to install DGL, then `--peers-python peers/bin/python`";
const DIM: u32 = 128;

/// Measure the feature feed in memory and out of core
#[derive(Debug, Parser)]
struct Args {
    /// The graph has 2^SCALE nodes
    #[arg(long, default_value_t = 22)]
    scale: u32,
    /// A folder for stores and the peer's arrays, which are kept: 9 GB at scale 22
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Runs of each contender
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Batches of a run: an epoch has 205
    #[arg(long, default_value_t = 205)]
    batches: u64,
    /// Batches of a peer's run out of core
    #[arg(long, default_value_t = 5)]
    peer_batches: u64,
    /// The limit of memory, page cache included
    #[arg(long, default_value = "1.5GB")]
    limit: ByteSize,
    /// What of it Grappa is told to use; the rest is for the program itself and cached pages of the graph
    #[arg(long, default_value = "1.2GB")]
    memory: ByteSize,
    /// A Python that has DGL; without it the peer is left out
    #[arg(long, value_name = "PYTHON")]
    peers_python: Option<PathBuf>,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

/// Who feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// We, without features, with so many threads and the rows of the graph there.
    Sampling(u32, &'static str),
    /// GraphBolt, in memory, with so many threads and these features.
    Peer(u32, &'static str),
    /// We, all in memory.
    InMemory,
    /// We, features of that type, out of core.
    OutOfCore(&'static str),
    /// We, out of core, of several partitions.
    Partitions(u32),
    /// GraphBolt, with features that are mapped, out of core.
    GraphBolt,
}

struct Setup<'a> {
    args: &'a Args,
    programs: PathBuf,
    limit: Option<MemoryLimit>,
    seeds: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let programs = programs::build(&["grappa-gen", "grappa-store"])?;
    fs::create_dir_all(&args.work).with_context(|| format!("cannot create {}", args.work.display()))?;
    let command = programs::command_line("feed");
    let mut record = Record::new("The feature feed", QUESTION, &command, &args.work)?;
    let (limit, refusal) = match MemoryLimit::new(args.limit.0) {
        Ok(limit) => (Some(limit), None),
        Err(why) => (None, Some(why)),
    };
    let setup = Setup {
        args,
        programs,
        seeds: seeds(args)?,
        limit,
    };
    let mut contenders = Vec::new();
    for threads in [1, 2] {
        contenders.extend(["memory", "mapped"].map(|view| Contender::Sampling(threads, view)));
        if args.peers_python.is_some() {
            contenders.push(Contender::Peer(threads, "none"));
        }
    }
    contenders.push(Contender::InMemory);
    if args.peers_python.is_some() {
        contenders.push(Contender::Peer(2, "memory"));
    }
    if setup.limit.is_some() {
        contenders.extend(["f32", "f16", "int8"].map(Contender::OutOfCore));
        contenders.push(Contender::Partitions(16));
        if args.peers_python.is_some() {
            contenders.push(Contender::GraphBolt);
        }
    }
    for dtype in ["f32", "f16", "int8"] {
        setup.store(dtype)?;
    }
    let disk = Disk::measure(&largest(&setup.store("f32")?)?)?;
    let mut runs: Vec<Vec<Measured>> = contenders.iter().map(|_| Vec::new()).collect();
    for turn in 1..=args.runs {
        for (contender, runs) in contenders.iter().zip(&mut runs) {
            let measured = setup
                .run(*contender)
                .with_context(|| format!("measuring {}", contender.name()))?;
            let rate = measured.number("batches_per_second")?;
            eprintln!("run {turn}: {}: {rate:.2} batches/s", contender.name());
            runs.push(measured);
        }
    }
    record.add(setup.table(&contenders, &runs, &disk)?);
    if let Some(why) = refusal {
        record.add(format_args!("Left out: everything out of core: {why}"));
    } else if args.peers_python.is_none() {
        record.add(format_args!("Left out: GraphBolt: {GET_PEER}"));
    }
    record.add(format_args!(
        "The disk read {} a second front to back in this run. Limit {}, `--memory {}`. \"Disk\" is bytes read a second over that. Ours \
         includes filling the pool from nothing; opening the store and, in memory, loading it are not part of the rate. GraphBolt maps \
         the features with MADV_RANDOM, holds its graph in memory, samples and gathers with two threads, and runs {} batches.",
        ByteSize(disk.read as u64),
        args.limit,
        args.memory,
        args.peer_batches
    ));
    record.finish(args.record.as_deref())
}

impl Contender {
    fn name(self) -> String {
        match self {
            Self::Sampling(threads, view) => format!("sampling, rows {view}, {threads} thread(s)"),
            Self::Peer(threads, "none") => format!("sampling, {threads} thread(s): GraphBolt"),
            Self::Peer(threads, _) => format!("in memory, f32, {threads} threads: GraphBolt"),
            Self::InMemory => "in memory, f32, 2 threads".into(),
            Self::OutOfCore(dtype) => format!("out of core, {dtype}"),
            Self::Partitions(count) => format!("out of core, f32, {count} partitions, 64 seeds each"),
            Self::GraphBolt => "out of core, f32: GraphBolt".into(),
        }
    }

    fn is_ours(self) -> bool {
        !matches!(self, Self::GraphBolt | Self::Peer(..))
    }

    fn dtype(self) -> &'static str {
        match self {
            Self::OutOfCore(dtype) => dtype,
            _ => "f32",
        }
    }
}

impl Setup<'_> {
    /// The store with features of that type; made first if it is not there.
    fn store(&self, dtype: &str) -> Result<PathBuf> {
        let scale = self.args.scale.to_string();
        let store = self.args.work.join(format!("feed-{scale}-{dtype}.grappa"));
        if !store.exists() {
            let mut command = Command::new(self.programs.join("grappa-gen"));
            command.args(["rmat", "--scale", &scale, "--edge-factor", "16", "--seed", "1"]);
            command.args(["--feature-dim", &DIM.to_string(), "--feature-dtype", dtype, "--quiet"]);
            child::run(command.arg("--out").arg(&store))?;
        }
        Ok(store)
    }

    fn run(&self, contender: Contender) -> Result<Measured> {
        let store = self.store(contender.dtype())?;
        match contender {
            Contender::GraphBolt => return self.run_peer(&store, 2, "mapped", self.args.peer_batches),
            Contender::Peer(threads, features) => return self.run_peer(&store, threads, features, 50),
            // What is sampled from the mapping is to be in the page cache.
            Contender::Sampling(..) => {}
            _ => drop(cache::forget(&cache::files_below(&store)?)?),
        }
        let mut command = Command::new(self.programs.join("grappa-store"));
        command.arg("sample").arg(&store);
        command.args(["--fanouts", "15,10,5", "--json", "--seeds"]);
        command.arg(&self.seeds);
        if let Contender::Sampling(threads, view) = contender {
            command.args(["--batch", "1024", "--memory", "8GiB", "--no-features", "--view", view]);
            command.args([
                "--batches",
                &self.args.batches.to_string(),
                "--threads",
                &threads.to_string(),
            ]);
            return child::run(&mut command);
        }
        command.args(["--threads", "2"]);
        let batches = |batches: u64| ["--batches".to_owned(), batches.to_string()];
        match contender {
            Contender::InMemory => {
                command.args(["--batch", "1024", "--memory", "8GiB"]);
                command.args(batches(self.args.batches));
                return child::run(&mut command);
            }
            Contender::Partitions(count) => {
                command.args([
                    "--batch",
                    &(1024 / count).to_string(),
                    "--partitions",
                    &count.to_string(),
                ]);
                command.args(batches(self.args.batches * u64::from(count)));
            }
            _ => {
                command.args(["--batch", "1024"]);
                command.args(batches(self.args.batches));
            }
        }
        command.args(["--memory", &self.args.memory.0.to_string()]);
        self.limited(&command)
    }

    fn run_peer(&self, store: &Path, threads: u32, features: &str, batches: u64) -> Result<Measured> {
        let python = self.args.peers_python.as_ref().expect("who measures it has one");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/feed.py");
        let folder = self.args.work.join(format!("feed-{}-peer", self.args.scale));
        let python = |task: &str| {
            let mut command = Command::new(python);
            command.arg(&script).arg(task).arg(&folder);
            command
        };
        if !folder.join("features.npy").exists() {
            fs::create_dir_all(&folder)?;
            let mut export = Command::new(self.programs.join("grappa-store"));
            export.arg("export").arg(store).arg("--quiet");
            export.arg("--edges").arg(folder.join("edges.npy"));
            child::run(export.arg("--features").arg(folder.join("features.npy")))?;
            child::run(&mut python("prepare"))?;
        }
        let mut command = python("run");
        command.arg(&self.seeds);
        command.args([&batches.to_string(), &threads.to_string(), features]);
        if features != "mapped" {
            return child::run(&mut command);
        }
        cache::forget(&cache::files_below(&folder)?)?;
        self.limited(&command)
    }

    fn limited(&self, command: &Command) -> Result<Measured> {
        let limit = self.limit.as_ref().expect("who runs out of core has a limit");
        limit.reset()?;
        child::run(&mut limit.around(command))
    }

    fn table(&self, contenders: &[Contender], runs: &[Vec<Measured>], disk: &Disk) -> Result<Table> {
        let mut table = Table::new(&[
            "",
            "batches/s",
            "range",
            "M edges/s",
            "read, GB",
            "read/wanted",
            "disk",
            "peak RSS, MiB",
            "waited for sample / read / assemble, s",
        ]);
        for (contender, runs) in contenders.iter().zip(runs) {
            let all = |key: &str| runs.iter().map(|run| run.number(key)).collect::<Result<Vec<f64>>>();
            let rates = all("batches_per_second")?;
            let cell = |key: &str, unit: f64| Ok::<_, anyhow::Error>(format!("{:.2}", median(all(key)?) / unit));
            let is_ours = contender.is_ours();
            let ours = |cell: Result<String>| if is_ours { cell } else { Ok("-".into()) };
            let busy: Vec<f64> = if is_ours {
                let bytes = all("bytes_read")?;
                bytes
                    .iter()
                    .zip(all("seconds")?)
                    .map(|(bytes, seconds)| bytes / seconds)
                    .collect()
            } else {
                vec![0.0]
            };
            let stalls = || {
                let stall = |stage: &str| {
                    let seconds = runs
                        .iter()
                        .map(|run| Ok(run.json()?["stall_seconds"][stage].as_f64().unwrap_or(0.0)));
                    Ok::<_, anyhow::Error>(format!("{:.1}", median(seconds.collect::<Result<Vec<f64>>>()?)))
                };
                Ok(format!(
                    "{} / {} / {}",
                    stall("sample")?,
                    stall("read")?,
                    stall("assemble")?
                ))
            };
            table.row([
                contender.name(),
                format!("{:.2}", median(rates.clone())),
                range(rates),
                cell("sampled_edges_per_second", 1e6)?,
                ours(cell("bytes_read", 1e9))?,
                ours(cell("read_amplification", 1.0))?,
                ours(Ok(format!("{:.0} %", median(busy) / disk.read * 100.0)))?,
                format!(
                    "{:.0}",
                    median(runs.iter().map(|run| run.peak_rss_bytes as f64)) / f64::from(1 << 20)
                ),
                ours(stalls())?,
            ]);
        }
        Ok(table)
    }
}

/// The seeds of all contenders: every twentieth node in a random order of their ids, which is that of the store's seed.
fn seeds(args: &Args) -> Result<PathBuf> {
    let path = args.work.join(format!("feed-{}-seeds.txt", args.scale));
    let nodes = 1u64 << args.scale;
    // An odd factor makes a permutation of the ids.
    let ids: Vec<String> = (0..nodes / 20)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(inputs::SEED) % nodes).to_string())
        .collect();
    fs::write(&path, ids.join("\n")).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The largest file of a store.
fn largest(store: &Path) -> Result<PathBuf> {
    let files = cache::files_below(store)?;
    let sized = files.into_iter().map(|path| Ok((fs::metadata(&path)?.len(), path)));
    let sized = sized.collect::<Result<Vec<_>>>()?;
    let (_, path) = sized.into_iter().max().context("a store has files")?;
    Ok(path)
}
