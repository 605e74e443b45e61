//! Ingest next to its peers: edges per second from `.npy` and from text, cold, and peak memory.
//!
//! All contenders read the same R-MAT graph and take turns, so that a slow minute of the machine affects all of them. The input is
//! not cached, as far as the system allows. Python peers are timed without the start of the interpreter and imports, the others from
//! start to exit. Grappa's time includes all syncs.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use grappa_benches::{
    bench::{self, Bench, Budget, Files},
    cache,
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::{self, Input, InputFile},
    peers, programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
    turns::in_turns,
};
use grappa_console::ByteSize;

const GET_PYTHON_PEERS: &str = "with Python 3.11, `python3 -m venv peers && peers/bin/pip install dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 \
    'numpy<2' scipy pandas pyyaml pydantic`, then `--peers-python peers/bin/python`";
const GET_WEBGRAPH: &str =
    "`cargo install webgraph-cli --version 0.5.0 --locked --root peers`, then `--webgraph peers/bin/webgraph`";

/// Measure grappa-ingest next to GraphBolt, SciPy, pandas and webgraph
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    budget: Budget,
    /// The graph has 2^SCALE nodes
    #[arg(long, default_value_t = 22)]
    scale: u32,
    /// Runs of each contender
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Forms of the input
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Form::Npy, Form::Tsv])]
    inputs: Vec<Form>,
    /// A Python with the Python peers; without it they are left out
    #[arg(long, value_name = "PYTHON")]
    peers_python: Option<PathBuf>,
    /// The program of webgraph-cli
    #[arg(long, value_name = "PROGRAM", default_value = "webgraph")]
    webgraph: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Npy,
    Tsv,
}

/// A program that makes a graph of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// grappa-ingest, told the number of nodes.
    Grappa,
    /// grappa-ingest, which has to find it.
    GrappaFindingNodes,
    GraphBolt,
    Scipy,
    WebGraph,
}

#[derive(Debug, Clone, Copy)]
struct Contender {
    program: Program,
    form: Form,
}

/// Shared by all runs on one input.
struct IngestSetup<'a> {
    args: &'a Args,
    programs: &'a Path,
    form: Form,
    input: InputFile,
    edges: u64,
}

struct IngestRun {
    measured: Measured,
    /// As the contender is timed.
    seconds: f64,
    edges: u64,
    output_bytes: u64,
    cold: bool,
    version: Option<String>,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Ingest next to its peers";
    const QUESTION: &'static str = "How fast do edges become a store, from `.npy` and from text that is not cached, and in how much memory? \
        R-MAT, edge factor 16. Median of the runs; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-ingest"])?;
        let edges = inputs::edges_in_npy(&Input::Npy.in_folder(&self.files.work, self.scale, 0)?.path)?;
        for &form in &self.inputs {
            let input = match form {
                Form::Npy => Input::Npy,
                Form::Tsv => Input::Tsv,
            };
            let setup = IngestSetup {
                args: self,
                programs: &programs,
                form,
                input: input.in_folder(&self.files.work, self.scale, 0)?,
                edges,
            };
            setup.measure(record)?;
        }
        record.add(
            "Seconds of Python peers exclude the start of the interpreter and imports; their processor time and peak memory count \
             the whole process. Grappa's seconds include all syncs. \"Edges\" are those in the result: some contenders merge parallel \
             edges. Rates count the edges read.",
        );
        Ok(())
    }
}

impl IngestSetup<'_> {
    /// The command that imports modules with the peers' Python, if one is named.
    fn import(&self, modules: &str) -> Option<Command> {
        let mut command = Command::new(self.args.peers_python.as_ref()?);
        command.args(["-W", "ignore", "-c", &format!("import {modules}")]);
        Some(command)
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let disk = Disk::measure(&self.input.path)?;
        let (mut contenders, mut missing) = (Vec::new(), Vec::new());
        for contender in Contender::all(self.form) {
            match contender.program.missing(self) {
                None => contenders.push(contender),
                Some(why) => missing.push((contender, why)),
            }
        }
        for contender in &contenders {
            contender.program.prepare(self)?;
        }
        let runs = in_turns(
            &contenders,
            self.args.runs,
            |contender, _| contender.program.run(self),
            |run| format!("{:.2} s, {}", run.seconds, ByteSize(run.measured.peak_rss_bytes)),
        )?;
        self.check(&runs)?;

        record.add(format_args!(
            "### From {}, scale {}: {} edges, {}",
            self.extension(),
            self.args.scale,
            self.edges,
            ByteSize(self.input.bytes)
        ));
        record.add(self.table(&contenders, &runs));
        let cold = runs.iter().flatten().all(|run| run.cold);
        record.add(if cold {
            "The input was not cached when a run began (checked by sampling its pages)."
        } else {
            "WARM: the input could not be removed from the page cache before every run."
        });
        for (contender, why) in missing {
            record.add(format_args!("Left out: {contender}: {why}"));
        }
        record.add(self.floor(&disk, &runs[0]));
        Ok(())
    }

    /// A contender that keeps parallel edges must have all edges. Those that merge them must agree on the number.
    fn check(&self, runs: &[Vec<IngestRun>]) -> Result<()> {
        let mut merged = None;
        for run in runs.iter().flatten().filter(|run| run.edges != self.edges) {
            ensure!(
                run.edges < self.edges && *merged.get_or_insert(run.edges) == run.edges,
                "expected {} edges, or as many distinct ones as the other contenders ({merged:?}), found {}",
                self.edges,
                run.edges
            );
        }
        Ok(())
    }

    fn table(&self, contenders: &[Contender], runs: &[Vec<IngestRun>]) -> Table {
        let mut table = Table::new(&[
            "contender",
            "s",
            "range",
            "M edges/s",
            "ours is faster by",
            "cpu s",
            "peak RSS, MiB",
            "output, MiB",
            "edges",
        ]);
        let ours = median(runs[0].iter().map(|run| run.seconds));
        for (contender, runs) in contenders.iter().zip(runs) {
            let seconds = median(runs.iter().map(|run| run.seconds));
            let version = runs[0].version.as_ref().map_or(String::new(), |version| format!(" ({version})"));
            table.row([
                format!("{contender}{version}"),
                format!("{seconds:.2}"),
                range(runs.iter().map(|run| run.seconds)),
                format!("{:.1}", self.edges as f64 / seconds / 1e6),
                format!("{:.2}", seconds / ours),
                format!("{:.2}", median(runs.iter().map(|run| run.measured.cpu.as_secs_f64()))),
                mebibytes(median(runs.iter().map(|run| run.measured.peak_rss_bytes as f64))),
                mebibytes(runs[0].output_bytes as f64),
                runs[0].edges.to_string(),
            ]);
        }
        table
    }

    /// The time that the disk alone would take.
    fn floor(&self, disk: &Disk, ours: &[IngestRun]) -> String {
        let (read, store) = (self.input.bytes, ours[0].output_bytes);
        let spill = 8 * self.edges;
        let (once, spilled) = (disk.seconds(read, store), disk.seconds(read + spill, store + spill));
        format!(
            "Floor: the disk read {:.2} GB/s and wrote {:.2} GB/s, sequentially, in this run. Reading {read} bytes and writing the \
             store's {store} takes {once:.2} s ({:.1} M edges/s). With 8 bytes per edge spilled, written to disk and read back, it takes \
             {spilled:.2} s ({:.1} M edges/s). If memory is free, the page cache saves some of the spill.",
            disk.read / 1e9,
            disk.write / 1e9,
            self.edges as f64 / once / 1e6,
            self.edges as f64 / spilled / 1e6,
        )
    }

    fn nodes(&self) -> String {
        (1_u64 << self.args.scale).to_string()
    }

    fn extension(&self) -> &'static str {
        match self.form {
            Form::Npy => "`.npy`",
            Form::Tsv => "text",
        }
    }

    fn out(&self) -> PathBuf {
        self.args.files.work.join("out")
    }

    fn graphbolt_folder(&self) -> PathBuf {
        self.input.path.with_extension(match self.form {
            Form::Npy => "npy.graphbolt",
            Form::Tsv => "tsv.graphbolt",
        })
    }

    fn python(&self, script: &str) -> Command {
        let python = self.args.peers_python.as_deref().unwrap_or(Path::new("python3"));
        peers::script(python, script, self.args.budget.threads)
    }
}

impl Contender {
    /// All for one form. Grappa is first: the others are compared with it.
    fn all(form: Form) -> impl Iterator<Item = Self> {
        let of_all = [Program::Grappa, Program::GrappaFindingNodes, Program::GraphBolt, Program::Scipy];
        let of_text = (form == Form::Tsv).then_some(Program::WebGraph);
        of_all.into_iter().chain(of_text).map(move |program| Self { program, form })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.program, self.form) {
            (Program::Grappa, _) => "grappa-ingest --nodes",
            (Program::GrappaFindingNodes, _) => "grappa-ingest",
            (Program::GraphBolt, Form::Npy) => "GraphBolt",
            (Program::GraphBolt, Form::Tsv) => "GraphBolt, CSV",
            (Program::Scipy, Form::Npy) => "SciPy, in memory",
            (Program::Scipy, Form::Tsv) => "pandas + SciPy, in memory",
            (Program::WebGraph, _) => "webgraph from arcs",
        })
    }
}

impl Program {
    /// Why it can't run here, with a remedy.
    fn missing(self, setup: &IngestSetup<'_>) -> Option<String> {
        let (probe, remedy) = match self {
            Self::Grappa | Self::GrappaFindingNodes => return None,
            Self::GraphBolt => (setup.import("dgl.graphbolt"), GET_PYTHON_PEERS),
            Self::Scipy => (setup.import("scipy, pandas"), GET_PYTHON_PEERS),
            Self::WebGraph => {
                let mut command = Command::new(&setup.args.webgraph);
                command.arg("--version");
                (Some(command), GET_WEBGRAPH)
            }
        };
        let works = probe.is_some_and(|mut command| peers::check(&mut command).is_ok());
        (!works).then(|| format!("it is not installed; {remedy}"))
    }

    /// Makes inputs of its own, which is not measured.
    fn prepare(self, setup: &IngestSetup<'_>) -> Result<()> {
        let folder = setup.graphbolt_folder();
        if self == Self::GraphBolt && !folder.exists() {
            eprintln!("writing {}", folder.display());
            let mut command = setup.python("graphbolt.py");
            command.arg("prepare").arg(&setup.input.path).arg(setup.nodes()).arg(&folder);
            child::run(&mut command)?;
        }
        Ok(())
    }

    fn run(self, setup: &IngestSetup<'_>) -> Result<IngestRun> {
        self.remove_output(setup)?;
        let read = match self {
            Self::GraphBolt => cache::files_below(&setup.graphbolt_folder())?,
            _ => vec![setup.input.path.clone()],
        };
        let cold = cache::forget(&read)?;
        let measured = child::run(&mut self.command(setup)?)?;
        let run = IngestRun {
            seconds: match self {
                Self::GraphBolt | Self::Scipy => measured.number("seconds")?,
                _ => measured.wall.as_secs_f64(),
            },
            edges: match self {
                Self::WebGraph => arcs(&setup.out().join("graph.properties"))?,
                _ => measured.count("edges")?,
            },
            version: match self {
                Self::GraphBolt | Self::Scipy => measured.json()?["version"].as_str().map(str::to_owned),
                _ => None,
            },
            output_bytes: self.output_bytes(setup)?,
            cold,
            measured,
        };
        self.remove_output(setup)?;
        Ok(run)
    }

    fn command(self, setup: &IngestSetup<'_>) -> Result<Command> {
        let threads = setup.args.budget.threads.to_string();
        Ok(match self {
            Self::Grappa | Self::GrappaFindingNodes => {
                let mut command = Command::new(setup.programs.join("grappa-ingest"));
                command.arg("--edges").arg(&setup.input.path);
                command.arg("--out").arg(setup.out()).args(["--json", "--quiet"]);
                setup.args.budget.apply(&mut command);
                if self == Self::Grappa {
                    command.args(["--nodes", &setup.nodes()]);
                }
                command
            }
            Self::GraphBolt => {
                let mut command = setup.python("graphbolt.py");
                command.arg("ingest").arg(setup.graphbolt_folder());
                command
            }
            Self::Scipy => {
                let mut command = setup.python("in_memory.py");
                command.arg(&setup.input.path).arg(setup.nodes());
                command
            }
            Self::WebGraph => {
                // It sorts in the folder for temporary files, which is in memory on some machines.
                fs::create_dir(setup.out())?;
                let mut command = Command::new(&setup.args.webgraph);
                command.args(["from", "arcs", "--num-threads", &threads, "--num-nodes", &setup.nodes()]);
                command.arg(setup.out().join("graph")).env("TMPDIR", &setup.args.files.work);
                command.stdin(File::open(&setup.input.path)?);
                command
            }
        })
    }

    fn output(self, setup: &IngestSetup<'_>) -> PathBuf {
        match self {
            Self::GraphBolt => setup.graphbolt_folder().join("preprocessed"),
            _ => setup.out(),
        }
    }

    /// 0 if it writes nothing.
    fn output_bytes(self, setup: &IngestSetup<'_>) -> Result<u64> {
        let output = self.output(setup);
        if !output.exists() {
            return Ok(0);
        }
        let files = cache::files_below(&output)?;
        let mut bytes = 0;
        for file in files {
            bytes += fs::metadata(&file)?.len();
        }
        Ok(bytes)
    }

    fn remove_output(self, setup: &IngestSetup<'_>) -> Result<()> {
        folder::remove(&self.output(setup))
    }
}

/// The number of arcs in the properties that webgraph wrote.
fn arcs(properties: &Path) -> Result<u64> {
    let text = fs::read_to_string(properties).with_context(|| format!("cannot read {}", properties.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix("arcs="))
        .and_then(|arcs| arcs.trim().parse().ok())
        .with_context(|| format!("{} has no line `arcs=`", properties.display()))
}
