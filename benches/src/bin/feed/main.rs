//! Minibatches per second: sampling alone, with features in memory, and out of core under a limit that includes the page cache.
//!
//! Two cores; R-MAT with 128 features per node; 5 % of the nodes as seeds; fanouts 15, 10, 5; batches of 1024 seeds. As in DGL,
//! every node is expanded again at each hop. Out of core, the limit is below the size of the f32 features, and nothing is cached
//! when a run begins. Peers are GraphBolt, DGL and PyG in memory, and GraphBolt out of core.

mod peer;
mod setup;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use grappa_benches::{
    bench::{self, Bench, Files},
    cache,
    child::{self, Measured},
    disk::Disk,
    inputs::scattered,
    limit::MemoryLimit,
    peers::Peer,
    programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
    turns::in_turns,
};
use grappa_console::ByteSize;

use self::{
    peer::{Checked, PeerRun},
    setup::{Args, FeedSetup},
};

/// A source of minibatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// Grappa without features: threads, and where the adjacency lists are.
    Sampling(usize, &'static str),
    /// Grappa, everything in memory.
    InMemory,
    /// Grappa out of core, with features of this type.
    OutOfCore(&'static str),
    /// Grappa out of core, with this number of partitions.
    Partitions(u32),
    /// Another library.
    Peer(PeerRun),
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "The feature feed";
    const QUESTION: &'static str = "How many minibatches a second come with their features, in memory, and out of core under a control group whose \
        limit counts the page cache? R-MAT, edge factor 16, 128 values a node, seeds 5 % of the nodes, fanouts 15,10,5, batches of 1024. \
        Medians; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen", "grappa-store"])?;
        let (limit, refusal) = match MemoryLimit::new(self.limit.0) {
            Ok(limit) => (Some(limit), None),
            Err(why) => (None, Some(why)),
        };
        let setup = FeedSetup { args: self, programs, seeds: seeds(self)?, limit };
        for dtype in ["f32", "f16", "int8"] {
            setup.store(dtype)?;
        }
        if self.prepare {
            record.discard();
            return Ok(());
        }
        let peers = Peer::ALL.map(|peer| Checked::new(peer, self.python(peer)));
        let contenders = setup.contenders(&peers);
        let disk = Disk::measure(&largest(&setup.store("f32")?)?)?;
        let runs = in_turns(
            &contenders,
            self.runs,
            |contender, _| setup.run(*contender),
            |run| match run.number("batches_per_second") {
                Ok(rate) => format!("{rate:.2} batches/s"),
                Err(error) => error.to_string(),
            },
        )?;
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
            "The disk read {} per second sequentially in this run. Limit {}, `--memory {}`. \"Disk\" is the read rate relative to that. Grappa's rates \
             include filling the empty pool, but not opening the store or, in memory, loading it. Peers hold the graph in memory; in memory they are \
             timed after three batches. DGL's sampler is used without its loader. PyG's sampler has one thread, so for two threads its loader has \
             two worker processes. PyG expands a node once, not at each hop, so its batches have fewer edges. Out of core, GraphBolt maps the \
             features with MADV_RANDOM, samples and gathers with two threads, and runs {} batches.",
            ByteSize(disk.read as u64),
            self.limit,
            self.memory,
            self.peer_batches
        ));
        Ok(())
    }
}

impl Args {
    fn python(&self, peer: Peer) -> Option<&Path> {
        peer.python(&self.peers_python, &self.pyg_python)
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
            Self::Sampling(threads, view) => write!(f, "sampling, adjacency lists {view}, {threads} thread(s)"),
            Self::InMemory => f.write_str("in memory, f32, 2 threads"),
            Self::OutOfCore(dtype) => write!(f, "out of core, {dtype}"),
            Self::Partitions(count) => write!(f, "out of core, f32, {count} partitions, 64 seeds each"),
            Self::Peer(run) => run.fmt(f),
        }
    }
}

fn able_peers(peers: &[Checked], threads: usize, features: &'static str) -> impl Iterator<Item = Contender> {
    let able = peers.iter().filter(|checked| checked.version.is_ok());
    able.map(move |&Checked { peer, .. }| Contender::Peer(PeerRun { peer, threads, features }))
}

impl FeedSetup<'_> {
    /// All contenders that can run here.
    fn contenders(&self, peers: &[Checked]) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for threads in [1, 2] {
            contenders.extend(["memory", "mapped"].map(|view| Contender::Sampling(threads, view)));
            contenders.extend(able_peers(peers, threads, "none"));
        }
        contenders.push(Contender::InMemory);
        contenders.extend(able_peers(peers, 2, "memory"));
        if self.limit.is_some() {
            contenders.extend(["f32", "f16", "int8"].map(Contender::OutOfCore));
            contenders.push(Contender::Partitions(16));
            let mapping = able_peers(peers, 2, "mapped");
            contenders.extend(
                mapping.filter(|contender| matches!(contender, Contender::Peer(run) if run.peer == Peer::GraphBolt)),
            );
        }
        contenders
    }

    fn run(&self, contender: Contender) -> Result<Measured> {
        let store = self.store(contender.dtype())?;
        match contender {
            Contender::Peer(run) => return run.run(self),
            // Mapped adjacency lists are sampled from the page cache, not from disk.
            Contender::Sampling(..) => {}
            _ => drop(cache::forget(&cache::files_below(&store)?)?),
        }
        let mut command = Command::new(self.programs.join("grappa-store"));
        command.arg("sample").arg(&store);
        command.args(["--fanouts", "15,10,5", "--json", "--seeds"]);
        command.arg(&self.seeds);
        if let Contender::Sampling(threads, view) = contender {
            command.args(["--batch", "1024", "--memory", &self.args.in_memory.0.to_string()]);
            command.args(["--no-features", "--view", view]);
            command.args(["--batches", &self.args.batches.to_string(), "--threads", &threads.to_string()]);
            return child::run(&mut command);
        }
        command.args(["--threads", "2"]);
        let mut batches = self.args.batches;
        match contender {
            Contender::InMemory => {
                command.args(["--batch", "1024", "--memory", &self.args.in_memory.0.to_string()]);
                return child::run(command.args(["--batches", &batches.to_string()]));
            }
            Contender::Partitions(count) => {
                command.args(["--batch", &(1024 / count).to_string(), "--partitions", &count.to_string()]);
                batches *= u64::from(count);
            }
            _ => drop(command.args(["--batch", "1024"])),
        }
        command.args(["--memory", &self.args.memory.0.to_string()]);
        command.args(["--batches", &batches.to_string()]);
        self.limited(&command)
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
            let rates = numbers(runs, "batches_per_second")?;
            let peak = mebibytes(median(runs.iter().map(|run| run.peak_rss_bytes as f64)));
            let edges = cell(runs, "sampled_edges_per_second", 1e6)?;
            let mut cells = vec![contender.to_string(), format!("{:.2}", median(rates.clone())), range(rates), edges];
            if contender.is_ours() {
                let bytes = numbers(runs, "bytes_read")?.into_iter().zip(numbers(runs, "seconds")?);
                let busy = median(bytes.map(|(bytes, seconds)| bytes / seconds)) / disk.read;
                cells.extend([
                    cell(runs, "bytes_read", 1e9)?,
                    cell(runs, "read_amplification", 1.0)?,
                    format!("{:.0} %", busy * 100.0),
                    peak,
                    stalls(runs)?,
                ]);
            } else {
                let none = "-".to_owned();
                cells.extend([none.clone(), none.clone(), none.clone(), peak, none]);
            }
            table.row(cells);
        }
        Ok(table)
    }
}

/// The seeds of all contenders: a pseudo-random twentieth of the nodes.
fn seeds(args: &Args) -> Result<PathBuf> {
    let path = args.files.work.join(format!("feed-{}-seeds.txt", args.scale));
    let nodes = 1u64 << args.scale;
    let ids: Vec<String> = (0..nodes / 20).map(|i| scattered(i, nodes).to_string()).collect();
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

fn numbers(runs: &[Measured], key: &str) -> Result<Vec<f64>> {
    runs.iter().map(|run| run.number(key)).collect()
}

/// The median of a number of the runs, in `unit`.
fn cell(runs: &[Measured], key: &str, unit: f64) -> Result<String> {
    Ok(format!("{:.2}", median(numbers(runs, key)?) / unit))
}

/// Medians of the seconds that runs waited for each stage.
fn stalls(runs: &[Measured]) -> Result<String> {
    let mut medians = Vec::new();
    for stage in ["sample", "read", "assemble"] {
        let seconds = runs.iter().map(|run| Ok(run.json()?["stall_seconds"][stage].as_f64().unwrap_or(0.0)));
        medians.push(format!("{:.1}", median(seconds.collect::<Result<Vec<f64>>>()?)));
    }
    Ok(medians.join(" / "))
}
