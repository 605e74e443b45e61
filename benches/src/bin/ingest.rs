//! Ingest next to its peers: edges per second from `.npy` and from text, cold, and the memory it takes.
//!
//! All contenders read the same R-MAT graph and take turns, so that a slow minute of the machine meets all of them. The
//! input is not cached, as far as the system lets us see to that. Each contender is timed as is best for it: a Python
//! peer without the start of the interpreter and its imports, the others from start to exit; ours with all that makes a
//! store durable.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use grappa_benches::{
    cache,
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::{self, Input, InputFile},
    peers, programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
};
use grappa_console::ByteSize;

const QUESTION: &str = "How fast do edges become a store, from `.npy` and from text that is not cached, and in how much memory? \
    R-MAT, edge factor 16. Median of the runs; contenders take turns.";

const GET_PYTHON_PEERS: &str = "with Python 3.11, `python3 -m venv peers && peers/bin/pip install dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 \
    'numpy<2' scipy pandas pyyaml pydantic`, then `--peers-python peers/bin/python`";
const GET_WEBGRAPH: &str =
    "`cargo install webgraph-cli --version 0.5.0 --locked --root peers`, then `--webgraph peers/bin/webgraph`";

/// Measure grappa-ingest next to GraphBolt, SciPy, pandas and webgraph
#[derive(Debug, Parser)]
struct Args {
    /// The graph has 2^SCALE nodes
    #[arg(long, default_value_t = 22)]
    scale: u32,
    /// A folder for inputs (kept, and used again) and outputs (removed)
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Runs of each contender
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// What to read
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Form::Npy, Form::Tsv])]
    inputs: Vec<Form>,
    /// grappa-ingest's budget
    #[arg(long, default_value = "512MiB")]
    memory: ByteSize,
    /// Threads of whoever can be told
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A Python that has the Python peers; without it they are left out
    #[arg(long, value_name = "PYTHON")]
    peers_python: Option<PathBuf>,
    /// webgraph's command line program
    #[arg(long, value_name = "PROGRAM", default_value = "webgraph")]
    webgraph: PathBuf,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

/// A kind of edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Npy,
    Tsv,
}

/// Who makes a graph of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// We, told the number of nodes.
    Grappa,
    /// We, finding it.
    GrappaFindingNodes,
    GraphBolt,
    Scipy,
    WebGraph,
}

/// What all runs on one input share.
struct Setup<'a> {
    args: &'a Args,
    programs: &'a Path,
    form: Form,
    input: InputFile,
    edges: u64,
}

/// One run of one contender.
struct Run {
    measured: Measured,
    /// What it is timed at.
    seconds: f64,
    edges: u64,
    output_bytes: u64,
    cold: bool,
    version: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let programs = programs::build(&["grappa-ingest"])?;
    let command = programs::command_line("ingest");
    let mut record = Record::new("Ingest next to its peers", QUESTION, &command, &args.work)?;
    let edges = inputs::edges_in_npy(&Input::Npy.in_folder(&args.work, args.scale, 0)?.path)?;
    for &form in &args.inputs {
        let input = match form {
            Form::Npy => Input::Npy,
            Form::Tsv => Input::Tsv,
        };
        let setup = Setup {
            args,
            programs: &programs,
            form,
            input: input.in_folder(&args.work, args.scale, 0)?,
            edges,
        };
        setup.measure(&mut record)?;
    }
    record.add(
        "Seconds of Python peers leave out the interpreter's start and imports; their processor time and peak memory are those of \
         the whole process. Ours include all that makes a store durable. \"Edges\" are those in the result: some merge parallel \
         edges. Rates count the edges read.",
    );
    record.finish(args.record.as_deref())
}

impl Setup<'_> {
    fn measure(&self, record: &mut Record) -> Result<()> {
        let disk = Disk::measure(&self.input.path)?;
        let (contenders, skipped): (Vec<_>, Vec<_>) = Contender::of(self.form)
            .iter()
            .map(|&c| (c, c.missing(self)))
            .partition(|(_, why)| why.is_none());
        for &(contender, _) in &contenders {
            contender.prepare(self)?;
        }
        let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
        for turn in 1..=self.args.runs {
            for ((contender, _), runs) in contenders.iter().zip(&mut runs) {
                let name = contender.name(self.form);
                let run = contender.run(self).with_context(|| format!("measuring {name}"))?;
                eprintln!(
                    "run {turn}: {name}: {:.2} s, {}",
                    run.seconds,
                    ByteSize(run.measured.peak_rss_bytes)
                );
                runs.push(run);
            }
        }
        self.check(&runs)?;

        record.add(format_args!(
            "### From {}, scale {}: {} edges, {}",
            self.extension(),
            self.args.scale,
            self.edges,
            ByteSize(self.input.bytes)
        ));
        record.add(self.table(&contenders.iter().map(|&(c, _)| c).collect::<Vec<_>>(), &runs));
        let cold = runs.iter().flatten().all(|run| run.cold);
        record.add(if cold {
            "The input was not cached when a run began (checked by sampling its pages)."
        } else {
            "WARM: the input could not be removed from the page cache before every run."
        });
        for (contender, why) in skipped {
            record.add(format_args!(
                "Left out: {}: {}",
                contender.name(self.form),
                why.unwrap_or_default()
            ));
        }
        record.add(self.floor(&disk, &runs[0]));
        Ok(())
    }

    /// Who keeps parallel edges must have all; who merges them must agree with the others who do.
    fn check(&self, runs: &[Vec<Run>]) -> Result<()> {
        let mut merged = None;
        for run in runs.iter().flatten().filter(|run| run.edges != self.edges) {
            ensure!(
                run.edges < self.edges && *merged.get_or_insert(run.edges) == run.edges,
                "a result has {} edges, of {} read; {merged:?} are distinct",
                run.edges,
                self.edges
            );
        }
        Ok(())
    }

    fn table(&self, contenders: &[Contender], runs: &[Vec<Run>]) -> Table {
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
            let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
            let seconds = of(|run| run.seconds);
            let version = runs[0]
                .version
                .as_ref()
                .map_or(String::new(), |version| format!(" ({version})"));
            table.row([
                contender.name(self.form) + &version,
                format!("{seconds:.2}"),
                range(runs.iter().map(|run| run.seconds)),
                format!("{:.1}", self.edges as f64 / seconds / 1e6),
                format!("{:.2}", seconds / ours),
                format!("{:.2}", of(|run| run.measured.cpu.as_secs_f64())),
                mebibytes(of(|run| run.measured.peak_rss_bytes as f64)),
                mebibytes(runs[0].output_bytes as f64),
                runs[0].edges.to_string(),
            ]);
        }
        table
    }

    /// What the disk alone would take.
    fn floor(&self, disk: &Disk, ours: &[Run]) -> String {
        let (read, store) = (self.input.bytes, ours[0].output_bytes);
        let spill = 8 * self.edges;
        let rate = |seconds: f64| self.edges as f64 / seconds / 1e6;
        let (once, spilled) = (disk.seconds(read, store), disk.seconds(read + spill, store + spill));
        format!(
            "Floor: the disk read {:.2} GB/s and wrote {:.2} GB/s, sequentially, in this run. Reading {read} bytes and writing the \
             store's {store} takes {once:.2} s ({:.1} M edges/s); with 8 bytes an edge spilled, written to disk and read back, \
             {spilled:.2} s ({:.1} M edges/s). Where memory is left, the page cache spares some of the spill's.",
            disk.read / 1e9,
            disk.write / 1e9,
            rate(once),
            rate(spilled),
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

    /// Where a contender's result goes.
    fn out(&self) -> PathBuf {
        self.args.work.join("out")
    }

    fn graphbolt_folder(&self) -> PathBuf {
        self.input.path.with_extension(match self.form {
            Form::Npy => "npy.graphbolt",
            Form::Tsv => "tsv.graphbolt",
        })
    }

    fn python(&self, script: &str) -> Command {
        let python = self.args.peers_python.as_deref().unwrap_or(Path::new("python3"));
        peers::script(python, script, self.args.threads)
    }
}

impl Contender {
    /// Ours first: the others are compared with it.
    fn of(form: Form) -> &'static [Self] {
        match form {
            Form::Npy => &[Self::Grappa, Self::GrappaFindingNodes, Self::GraphBolt, Self::Scipy],
            Form::Tsv => &[
                Self::Grappa,
                Self::GrappaFindingNodes,
                Self::GraphBolt,
                Self::Scipy,
                Self::WebGraph,
            ],
        }
    }

    fn name(self, form: Form) -> String {
        match (self, form) {
            (Self::Grappa, _) => "grappa-ingest --nodes",
            (Self::GrappaFindingNodes, _) => "grappa-ingest",
            (Self::GraphBolt, Form::Npy) => "GraphBolt",
            (Self::GraphBolt, Form::Tsv) => "GraphBolt, CSV",
            (Self::Scipy, Form::Npy) => "SciPy, in memory",
            (Self::Scipy, Form::Tsv) => "pandas + SciPy, in memory",
            (Self::WebGraph, _) => "webgraph from arcs",
        }
        .to_owned()
    }

    /// Why it can't run here, and what would help.
    fn missing(self, setup: &Setup<'_>) -> Option<String> {
        let python = |modules: &str| {
            let mut command = Command::new(setup.args.peers_python.as_ref()?);
            command.args(["-W", "ignore", "-c", &format!("import {modules}")]);
            Some(command)
        };
        let (probe, remedy) = match self {
            Self::Grappa | Self::GrappaFindingNodes => return None,
            Self::GraphBolt => (python("dgl.graphbolt"), GET_PYTHON_PEERS),
            Self::Scipy => (python("scipy, pandas"), GET_PYTHON_PEERS),
            Self::WebGraph => {
                let mut command = Command::new(&setup.args.webgraph);
                command.arg("--version");
                (Some(command), GET_WEBGRAPH)
            }
        };
        let works = probe.is_some_and(|mut command| peers::check(&mut command).is_ok());
        (!works).then(|| format!("it is not installed; {remedy}"))
    }

    /// Makes what it needs and is not measured.
    fn prepare(self, setup: &Setup<'_>) -> Result<()> {
        let folder = setup.graphbolt_folder();
        if self == Self::GraphBolt && !folder.exists() {
            eprintln!("writing {}", folder.display());
            let mut command = setup.python("graphbolt.py");
            command
                .arg("prepare")
                .arg(&setup.input.path)
                .arg(setup.nodes())
                .arg(&folder);
            child::run(&mut command)?;
        }
        Ok(())
    }

    fn run(self, setup: &Setup<'_>) -> Result<Run> {
        self.remove_output(setup)?;
        let read = match self {
            Self::GraphBolt => cache::files_below(&setup.graphbolt_folder())?,
            _ => vec![setup.input.path.clone()],
        };
        let cold = cache::forget(&read)?;
        let measured = child::run(&mut self.command(setup)?)?;
        let run = Run {
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

    fn command(self, setup: &Setup<'_>) -> Result<Command> {
        let threads = setup.args.threads.to_string();
        Ok(match self {
            Self::Grappa | Self::GrappaFindingNodes => {
                let mut command = Command::new(setup.programs.join("grappa-ingest"));
                command
                    .arg("--edges")
                    .arg(&setup.input.path)
                    .arg("--out")
                    .arg(setup.out());
                command.args([
                    "--threads",
                    &threads,
                    "--memory",
                    &setup.args.memory.0.to_string(),
                    "--json",
                    "--quiet",
                ]);
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
                // It sorts in the folder for temporary files, which might be in memory.
                fs::create_dir(setup.out())?;
                let mut command = Command::new(&setup.args.webgraph);
                command.args(["from", "arcs", "--num-threads", &threads, "--num-nodes", &setup.nodes()]);
                command.arg(setup.out().join("graph")).env("TMPDIR", &setup.args.work);
                command.stdin(File::open(&setup.input.path)?);
                command
            }
        })
    }

    /// Where its result goes.
    fn output(self, setup: &Setup<'_>) -> PathBuf {
        match self {
            Self::GraphBolt => setup.graphbolt_folder().join("preprocessed"),
            _ => setup.out(),
        }
    }

    /// 0 of who writes nothing.
    fn output_bytes(self, setup: &Setup<'_>) -> Result<u64> {
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

    fn remove_output(self, setup: &Setup<'_>) -> Result<()> {
        folder::remove(&self.output(setup))
    }
}

/// The number of arcs that webgraph says it wrote.
fn arcs(properties: &Path) -> Result<u64> {
    let text = fs::read_to_string(properties).with_context(|| format!("cannot read {}", properties.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix("arcs="))
        .and_then(|arcs| arcs.trim().parse().ok())
        .with_context(|| format!("{} has no line `arcs=`", properties.display()))
}
