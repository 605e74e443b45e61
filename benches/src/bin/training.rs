//! Seconds for 50 training steps in memory, next to DGL, GraphBolt and PyG.
//!
//! Two threads; GraphSAGE with means, or other models, of 3 layers, hidden dimension 128; R-MAT with 128 features per node; fanouts 15, 10, 5; batches
//! of 1024 seeds. Grappa is measured in the second of two epochs over all seeds, so one-time loading does not count. Peers run 50
//! batches after three to warm up. Evaluation is not measured. With `--device cuda`, models of all contenders are on the GPU; the graph
//! and its features stay in the machine's memory.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use grappa_benches::{
    bench::{self, Bench, Files},
    child,
    labelled::Labelled,
    machine,
    peers::{self, Peer},
    programs,
    record::{Record, Table},
    stats::{median, range},
    training::{self, STAGES},
    turns::in_turns,
};
use grappa_console::ByteSize;
use grappa_formats::aggregates::AggregateKind;

const BATCH: u64 = 1024;
const BATCHES: u64 = 50;
const MODELS: [&str; 5] = ["sage", "gcn", "gin", "gat", "gatv2"];

/// Measure training in memory
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The graph has 2^SCALE nodes and takes 8 GB of disk at scale 22
    #[arg(long, default_value_t = 22, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Runs of each contender
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads of each contender
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Memory budget of Grappa. Everything must fit
    #[arg(long, default_value = "12GiB")]
    memory: ByteSize,
    /// Models; those other than sage are trained with a sampled first hop and in f32
    #[arg(long, value_delimiter = ',', default_values = ["sage"], value_parser = MODELS)]
    models: Vec<String>,
    /// Device of all models
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,
    /// Make the inputs and measure nothing
    #[arg(long)]
    prepare: bool,
    /// Only contenders whose name contains this
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// A Python with DGL and GraphBolt; without it they are left out
    #[arg(long, value_name = "PYTHON")]
    dgl_python: Option<PathBuf>,
    /// A Python with PyG and pyg-lib or torch-sparse; without it PyG is left out
    #[arg(long, value_name = "PYTHON")]
    pyg_python: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    Cpu,
    Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contender<'a> {
    model: &'a str,
    program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Ours { first_hop: &'static str, precision: &'static str },
    Peer(Peer),
}

struct StepsRun {
    /// For 50 batches.
    seconds: f64,
    /// Grappa only: the time of each stage, for the same batches.
    stages: Option<String>,
    peak_rss_bytes: u64,
}

struct TrainingSetup<'a> {
    args: &'a Args,
    programs: PathBuf,
    graph: Labelled,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Training in memory";
    const QUESTION: &'static str = "How long do 50 steps of training take, from seeds to changed parameters, everything in memory? Three layers of \
        GraphSAGE-mean or of another model, hidden 128, attention with 4 heads of 32, 32 classes, dropout 0.5, Adam, R-MAT of edge factor 16, 128 features of f32, fanouts 15,10,5, batches of \
        1024. Medians; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?;
        let setup = TrainingSetup {
            args: self,
            graph: Labelled::in_folder(&self.files.work, self.scale, &programs)?,
            programs,
        };
        if self.prepare {
            record.discard();
            return Ok(());
        }
        let peers = [Peer::Dgl, Peer::GraphBolt, Peer::Pyg].map(|peer| (peer, self.check(peer)));
        let contenders: Vec<Contender> = Contender::all(&self.models, &peers)
            .into_iter()
            .filter(|contender| contender.to_string().contains(&self.only))
            .collect();
        if contenders.iter().any(|contender| contender.to_string().contains("preaggregated")) {
            training::preaggregate(&setup.programs, &setup.graph.store, AggregateKind::Mean, false)?;
        }
        let load = machine::load()?;
        let runs = in_turns(
            &contenders,
            self.runs,
            |contender, _| setup.run(*contender),
            |ran| format!("{:.2} s", ran.seconds),
        )?;
        record.add(table(&contenders, &runs));
        for (peer, checked) in &peers {
            match checked {
                Ok(version) => record.add(format_args!("{peer}: {version}.")),
                Err(why) => record.add(format_args!("Left out: {peer}: {why}.")),
            }
        }
        record.add(format_args!(
            "Grappa's figures are of the second epoch, over all {} seeds, scaled to {BATCHES} steps. Its stages are the time that the training loop \
             spent on each or waited for it. \"Over\" is the ratio to the fastest peer with the same model. Models are on the device `{}`; contenders have {} threads. Load {load} before and {} \
             after.",
            setup.graph.seed_count,
            self.device,
            self.threads,
            machine::load()?
        ));
        Ok(())
    }
}

impl Args {
    fn python(&self, peer: Peer) -> Option<&Path> {
        peer.python(&self.dgl_python, &self.pyg_python)
    }

    /// Tries a peer on a tiny graph. Returns its version, or why it can't run, with a remedy.
    fn check(&self, peer: Peer) -> Result<String, String> {
        let option = if peer == Peer::Pyg { "--pyg-python" } else { "--dgl-python" };
        let checked = match self.python(peer) {
            None => Err("no Python with it was given".to_owned()),
            Some(python) => {
                let mut command = peers::script(python, "training.py", 1);
                peers::check(command.args(["check", peer.name(), &self.device.to_string(), &self.models.join(",")]))
            }
        };
        match checked {
            Ok(told) => Ok(told.lines().next_back().unwrap_or_default().to_owned()),
            Err(why) => Err(format!("{why}; benches/README.md says how to install it, {option} names its Python")),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        })
    }
}

/// The median time of the runs.
fn seconds(runs: &[StepsRun]) -> f64 {
    median(runs.iter().map(|run| run.seconds))
}

fn table(contenders: &[Contender], runs: &[Vec<StepsRun>]) -> Table {
    let mut table = Table::new(&["", "s for 50 batches", "range", "over", "peak RSS, GiB", STAGES]);
    for (contender, of_contender) in contenders.iter().zip(runs) {
        let peers = contenders.iter().zip(runs).filter(|(other, _)| other.is_peer_with(contender.model));
        let fastest = peers.map(|(_, runs)| seconds(runs)).min_by(f64::total_cmp);
        let runs = of_contender;
        table.row([
            contender.to_string(),
            format!("{:.2}", seconds(runs)),
            range(runs.iter().map(|run| run.seconds)),
            fastest.map_or("-".to_owned(), |fastest| format!("{:.2}", seconds(runs) / fastest)),
            format!("{:.1}", median(runs.iter().map(|run| run.peak_rss_bytes as f64)) / f64::from(1 << 30)),
            runs[0].stages.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

impl<'a> Contender<'a> {
    /// All contenders that can run here.
    fn all(models: &'a [String], peers: &[(Peer, Result<String, String>)]) -> Vec<Self> {
        const OURS: [(&str, &str); 4] =
            [("sampled", "f32"), ("preaggregated", "f32"), ("sampled", "bf16"), ("preaggregated", "bf16")];
        let mut contenders = Vec::new();
        for model in models {
            let ours = if model == "sage" { &OURS[..] } else { &OURS[..1] };
            let ours = ours.iter().map(|&(first_hop, precision)| Program::Ours { first_hop, precision });
            let able = peers.iter().filter(|(_, checked)| checked.is_ok());
            let programs = ours.chain(able.map(|&(peer, _)| Program::Peer(peer)));
            contenders.extend(programs.map(|program| Self { model, program }));
        }
        contenders
    }

    fn is_peer_with(&self, model: &str) -> bool {
        self.model == model && matches!(self.program, Program::Peer(_))
    }
}

impl fmt::Display for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.model, self.program)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours { first_hop, precision } => write!(f, "first hop {first_hop}, {precision}"),
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}

impl TrainingSetup<'_> {
    fn run(&self, contender: Contender<'_>) -> Result<StepsRun> {
        match contender.program {
            Program::Ours { first_hop, precision } => self.run_ours(contender.model, first_hop, precision),
            Program::Peer(peer) => self.run_peer(contender.model, peer),
        }
    }

    fn run_ours(&self, model: &str, first_hop: &str, precision: &str) -> Result<StepsRun> {
        let mut command = training::model(&self.programs, &self.graph.store, model, training::HIDDEN);
        // The peers have none.
        command.args(["--norm", "none"]);
        command.args(["--batch", &BATCH.to_string(), "--memory", &self.args.memory.0.to_string()]);
        command.args(["--device", &self.args.device.to_string()]);
        command.args(["--first-hop", first_hop, "--precision", precision]);
        command.args(["--epochs", "2", "--eval-every", "2"]);
        command.args(["--threads", &self.args.threads.to_string()]);
        let trained = training::train(command, &self.args.files.work.join("training-run"), None)?;
        let batches = self.graph.seed_count as f64 / BATCH as f64;
        let scale = BATCHES as f64 / batches;
        let stages = trained.stages().map(|seconds| format!("{:.2}", seconds * scale));
        Ok(StepsRun {
            seconds: trained.seconds * scale,
            stages: Some(stages.join(" / ")),
            peak_rss_bytes: trained.measured.peak_rss_bytes,
        })
    }

    fn run_peer(&self, model: &str, peer: Peer) -> Result<StepsRun> {
        let python = self.args.python(peer).expect("a peer is a contender only if it has a Python");
        let mut command = peers::script(python, "training.py", self.args.threads as usize);
        command.args(["run", peer.name(), &self.args.device.to_string(), model]);
        let graph = &self.graph;
        command.args([&graph.edges, &graph.features, &graph.labels, &graph.seeds]);
        command.args([BATCHES.to_string(), self.args.threads.to_string()]);
        let measured = child::run(&mut command)?;
        Ok(StepsRun { seconds: measured.number("seconds")?, stages: None, peak_rss_bytes: measured.peak_rss_bytes })
    }
}
