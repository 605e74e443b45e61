//! Minibatches a second: sampling alone, with features in memory, and out of core under a limit that counts the page cache.
//!
//! Two cores, R-MAT, 128 values a node, 5 % of the nodes as seeds, fanouts 15, 10, 5, batches of 1024 seeds: DGL's
//! minibatches, in which every node is expanded again at each hop. Out of core, the limit is below the size of the f32
//! features, and nothing is cached when a run begins. Peers are GraphBolt, DGL and PyG in memory, and GraphBolt out of core.

mod peer;

use std::{
    fmt, fs,
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
    record::{Record, Table, mebibytes},
    stats::{median, range},
    turns::in_turns,
};
use grappa_console::ByteSize;

use self::peer::{Checked, Peer, PeerRun};

const QUESTION: &str = "How many minibatches a second come with their features, in memory, and out of core under a control group whose \
    limit counts the page cache? R-MAT, edge factor 16, 128 values a node, seeds 5 % of the nodes, fanouts 15,10,5, batches of 1024. \
    Medians; contenders take turns.";
const DIM: u32 = 128;

/// Measure the feature feed in memory and out of core
#[derive(Debug, Parser)]
struct Args {
    /// The graph has 2^SCALE nodes
    #[arg(long, default_value_t = 22)]
    scale: u32,
    /// A folder for stores and the peers' arrays, which are kept: 9 GB at scale 22
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
    /// A Python that has DGL with GraphBolt; without it they are left out
    #[arg(long, value_name = "PYTHON")]
    peers_python: Option<PathBuf>,
    /// A Python that has PyG, with pyg-lib or torch-sparse; without it PyG is left out
    #[arg(long, value_name = "PYTHON")]
    pyg_python: Option<PathBuf>,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

/// Who feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// We, without features, with so many threads and the rows of the graph there.
    Sampling(usize, &'static str),
    /// We, all in memory.
    InMemory,
    /// We, features of that type, out of core.
    OutOfCore(&'static str),
    /// We, out of core, of several partitions.
    Partitions(u32),
    Peer(PeerRun),
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
    let peers = Peer::ALL.map(|peer| peer.check(args.python(peer)));
    let contenders = setup.contenders(&peers);
    for dtype in ["f32", "f16", "int8"] {
        setup.store(dtype)?;
    }
    let disk = Disk::measure(&largest(&setup.store("f32")?)?)?;
    let told = |run: &Measured| {
        run.number("batches_per_second")
            .map_or_else(|e| e.to_string(), |rate| format!("{rate:.2} batches/s"))
    };
    let runs = in_turns(&contenders, args.runs, |contender| setup.run(*contender), told)?;
    record.add(setup.table(&contenders, &runs, &disk)?);
    if let Some(why) = refusal {
        record.add(format_args!("Left out: everything out of core: {why}"));
    }
    for Checked { peer, version } in &peers {
        match version {
            Ok(version) => record.add(format_args!("{peer}: {version}.")),
            Err(why) => record.add(format_args!("Left out: {peer}: {why}.")),
        }
    }
    record.add(format_args!(
        "The disk read {} a second front to back in this run. Limit {}, `--memory {}`. \"Disk\" is bytes read a second over that. Ours \
         includes filling the pool from nothing; opening the store and, in memory, loading it are not part of the rate. Peers hold the graph \
         in memory, and in memory are timed after three batches. DGL's sampler is used without its loader. PyG's has one thread, so for two \
         its loader has two worker processes; it expands a node once, not at each hop, so its batches have fewer edges. Out of core, \
         GraphBolt maps the features with MADV_RANDOM, samples and gathers with two threads, and runs {} batches.",
        ByteSize(disk.read as u64),
        args.limit,
        args.memory,
        args.peer_batches
    ));
    record.finish(args.record.as_deref())
}

impl Args {
    fn python(&self, peer: Peer) -> Option<&Path> {
        match peer {
            Peer::GraphBolt | Peer::Dgl => self.peers_python.as_deref(),
            Peer::Pyg => self.pyg_python.as_deref(),
        }
    }
}

impl Contender {
    fn is_ours(self) -> bool {
        !matches!(self, Self::Peer(_))
    }

    fn dtype(self) -> &'static str {
        match self {
            Self::OutOfCore(dtype) => dtype,
            _ => "f32",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sampling(threads, view) => write!(f, "sampling, rows {view}, {threads} thread(s)"),
            Self::InMemory => f.write_str("in memory, f32, 2 threads"),
            Self::OutOfCore(dtype) => write!(f, "out of core, {dtype}"),
            Self::Partitions(count) => write!(f, "out of core, f32, {count} partitions, 64 seeds each"),
            Self::Peer(run) => run.fmt(f),
        }
    }
}

impl Setup<'_> {
    /// All that can run here, peers next to us.
    fn contenders(&self, peers: &[Checked]) -> Vec<Contender> {
        let peers = |threads, features| {
            let able = peers.iter().filter(|checked| checked.version.is_ok());
            able.map(move |&Checked { peer, .. }| {
                Contender::Peer(PeerRun {
                    peer,
                    threads,
                    features,
                })
            })
        };
        let mut contenders = Vec::new();
        for threads in [1, 2] {
            contenders.extend(["memory", "mapped"].map(|view| Contender::Sampling(threads, view)));
            contenders.extend(peers(threads, "none"));
        }
        contenders.push(Contender::InMemory);
        contenders.extend(peers(2, "memory"));
        if self.limit.is_some() {
            contenders.extend(["f32", "f16", "int8"].map(Contender::OutOfCore));
            contenders.push(Contender::Partitions(16));
            let mapping =
                |contender: &Contender| matches!(contender, Contender::Peer(run) if run.peer == Peer::GraphBolt);
            contenders.extend(peers(2, "mapped").filter(mapping));
        }
        contenders
    }

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
            Contender::Peer(run) => return run.run(self),
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

    fn limited(&self, command: &Command) -> Result<Measured> {
        self.limit
            .as_ref()
            .expect("who runs out of core has a limit")
            .run(command)
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
                contender.to_string(),
                format!("{:.2}", median(rates.clone())),
                range(rates),
                cell("sampled_edges_per_second", 1e6)?,
                ours(cell("bytes_read", 1e9))?,
                ours(cell("read_amplification", 1.0))?,
                ours(Ok(format!("{:.0} %", median(busy) / disk.read * 100.0)))?,
                mebibytes(median(runs.iter().map(|run| run.peak_rss_bytes as f64))),
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
