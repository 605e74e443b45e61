//! Peak memory of programs that read a store: each at several budgets and dimensions, and each model.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use grappa_benches::{
    bench::{Bench, Files, MEMORY_SLACK_BYTES},
    child::{self, Measured},
    folder, programs,
    record::{Record, Table, mebibytes},
    stores,
};
use grappa_console::ByteSize;
use grappa_run::model::LayerKind;

/// Nodes of the graph that shows what a program takes without one. Its features take 4 MiB with rows of 4096 values.
const TINY_SCALE: u32 = 8;
const EDGE_FACTOR: f64 = 8.0;
/// The largest graph, whatever the dimension.
const SCALE_MAX: u32 = 22;

/// Measure the peak memory of programs that read a store
#[derive(Debug, Parser)]
pub struct Args {
    #[command(flatten)]
    files: Files,
    /// Budgets of each program
    #[arg(long, value_delimiter = ',', default_values = ["64MiB", "256MiB", "1GiB"])]
    budgets: Vec<ByteSize>,
    /// Values of a feature row
    #[arg(long, value_delimiter = ',', default_values_t = [16, 512, 4096])]
    dims: Vec<u32>,
    /// Budgets of training and prediction with each model
    #[arg(long, value_delimiter = ',', default_values = ["64MiB", "512MiB"])]
    model_budgets: Vec<ByteSize>,
    /// Values of a feature row for each model
    #[arg(long, default_value_t = 128)]
    model_dim: u32,
    /// Bytes of the features of a graph; graphs have at most 2^22 nodes
    #[arg(long, default_value = "1GiB")]
    features: ByteSize,
    /// Threads of each program
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measure only programs with this text in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// A program, and the part of it that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Preaggregate,
    FastRp,
    ExportFeatures,
    ExportEdges,
    Sample,
    Train(LayerKind),
    Predict(LayerKind),
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preaggregate => f.write_str("preaggregate"),
            Self::FastRp => f.write_str("add-features fastrp"),
            Self::ExportFeatures => f.write_str("export --features"),
            Self::ExportEdges => f.write_str("export --edges"),
            Self::Sample => f.write_str("sample"),
            Self::Train(model) => write!(f, "train {model}"),
            Self::Predict(model) => write!(f, "predict {model}"),
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
struct Cell {
    program: Program,
    dim: u32,
    budget: u64,
}

/// How a program ended.
enum Ended {
    Done(Measured),
    /// It refused the budget and named this one.
    Refused(u64),
}

/// A measured cell.
struct Used {
    /// The budget that it ran with, and whether it had refused a smaller one.
    budget: u64,
    is_raised: bool,
    measured: Measured,
    /// Peak memory on a tiny graph: the model, and libtorch. 0 for programs without a model.
    tiny: u64,
}

impl Used {
    fn beyond(&self) -> i64 {
        self.measured.peak_rss_bytes as i64 - self.tiny as i64 - self.budget as i64
    }
}

impl Bench for Args {
    const TITLE: &'static str = "The memory of programs";
    const QUESTION: &'static str = "By how much does the peak memory of programs that read a store exceed their budget, with graphs and features \
        many times larger, narrow and wide rows, and each model? R-MAT, edge factor 8, features of f32. Models of 2 layers, hidden 128, 4 heads; \
        training has minibatches of 256 seeds with 5 neighbors each and an exact evaluation. One run each.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen", "grappa-store", "grappa-train"])?;
        let mut table = Table::new(&[
            "program",
            "values of a row",
            "budget, MiB",
            "raised to, MiB",
            "peak RSS, MiB",
            "of a tiny graph, MiB",
            "minus both, MiB",
            "s",
        ]);
        let mut worst = i64::MIN;
        for cell in self.cells() {
            let used = self
                .used(&programs, cell)
                .with_context(|| format!("{} with {} values in {}", cell.program, cell.dim, ByteSize(cell.budget)))?;
            worst = worst.max(used.beyond());
            let cells = cells(cell, &used);
            eprintln!("{}", cells.join(" | "));
            table.row(cells);
        }
        record.add(table);
        record.add(format_args!(
            "A program that refused the budget ran with the one that it named. For programs with a model, the peak on a graph of {} nodes is \
             subtracted: libtorch and the model. Allowed are {} beyond the budget: {}.",
            1 << TINY_SCALE,
            ByteSize(MEMORY_SLACK_BYTES),
            if worst <= MEMORY_SLACK_BYTES as i64 { "kept" } else { "NOT KEPT" },
        ));
        Ok(())
    }
}

impl Args {
    /// The cells of each program at all dimensions and budgets, then the cells of each model.
    fn cells(&self) -> Vec<Cell> {
        let sage = LayerKind::Sage;
        let each = [
            Program::Preaggregate,
            Program::FastRp,
            Program::ExportFeatures,
            Program::ExportEdges,
            Program::Sample,
            Program::Train(sage),
            Program::Predict(sage),
        ];
        let mut cells = Vec::new();
        for program in each {
            // Edges do not depend on features.
            let dims = if program == Program::ExportEdges {
                &self.dims[..1]
            } else {
                &self.dims[..]
            };
            cells.extend(of_program(program, dims, &self.budgets));
        }
        for program in [Program::Train, Program::Predict] {
            for &model in LayerKind::ALL {
                cells.extend(of_program(program(model), &[self.model_dim], &self.model_budgets));
            }
        }
        cells.retain(|cell| cell.program.to_string().contains(&self.only));
        cells
    }

    /// Measures a cell, at the least budget that its program takes if it refuses the cell's.
    fn used(&self, programs: &Path, cell: Cell) -> Result<Used> {
        let store = self.store(programs, cell.program, cell.dim, self.scale(cell.dim))?;
        let (tiny, run) = match cell.program {
            Program::Train(model) | Program::Predict(model) => self.of_tiny(programs, cell, model)?,
            _ => (0, PathBuf::new()),
        };
        let mut budget = cell.budget;
        let mut ended = self.ended(programs, Cell { budget, ..cell }, &store, &run)?;
        let is_raised = matches!(ended, Ended::Refused(_));
        if let Ended::Refused(least) = ended {
            budget = least;
            ended = self.ended(programs, Cell { budget, ..cell }, &store, &run)?;
        }
        match ended {
            Ended::Done(measured) => Ok(Used {
                budget,
                is_raised,
                measured,
                tiny,
            }),
            Ended::Refused(least) => Err(anyhow!(
                "{} was named as sufficient and then refused: {} is needed",
                ByteSize(budget),
                ByteSize(least)
            )),
        }
    }

    /// The peak memory of a program with a model on a tiny graph, and the folder of a run of the model there.
    fn of_tiny(&self, programs: &Path, cell: Cell, model: LayerKind) -> Result<(u64, PathBuf)> {
        let store = self.store(programs, cell.program, cell.dim, TINY_SCALE)?;
        let run = self.files.work.join("tiny.run");
        folder::remove(&run)?;
        let mut train = self.train(programs, &store, model, &run);
        let trained = child::run(train.args(["--memory", "1GiB"]))?;
        let measured = match cell.program {
            Program::Predict(_) => {
                let budget = 1 << 30;
                match self.ended(programs, Cell { budget, ..cell }, &store, &run)? {
                    Ended::Done(measured) => measured,
                    Ended::Refused(_) => return Err(anyhow!("1 GiB was refused for a tiny graph")),
                }
            }
            _ => trained,
        };
        Ok((measured.peak_rss_bytes, run))
    }

    /// The scale of a graph whose features take the bytes that were asked for.
    fn scale(&self, dim: u32) -> u32 {
        (self.features.0 / (4 * u64::from(dim))).max(1).ilog2().min(SCALE_MAX)
    }

    /// A store for a program. Those without features are made anew each time, because programs add features to them.
    fn store(&self, programs: &Path, program: Program, dim: u32, scale: u32) -> Result<PathBuf> {
        let mut command = stores::rmat(programs, scale, EDGE_FACTOR);
        let name = match program {
            Program::FastRp => "no-features.grappa".to_owned(),
            _ => format!("{dim}-of-{scale}.grappa"),
        };
        let path = self.files.work.join(name);
        if program == Program::FastRp {
            folder::remove(&path)?;
        } else {
            command.args([
                "--feature-dim",
                &dim.to_string(),
                "--classes",
                "16",
                "--train-fraction",
                "0.02",
            ]);
        }
        stores::make_once(&path, command)?;
        Ok(path)
    }

    fn train(&self, programs: &Path, store: &Path, model: LayerKind, out: &Path) -> Command {
        let mut command = Command::new(programs.join("grappa-train"));
        command.arg(store).arg("--out").arg(out);
        command.args([
            "--model",
            model.name(),
            "--layers",
            "2",
            "--hidden",
            "128",
            "--fanouts",
            "5,5",
        ]);
        command.args(["--batch", "256", "--epochs", "1", "--json", "--device", "cpu"]);
        command.args(["--threads", &self.threads.to_string()]);
        command
    }

    /// Runs the program of a cell on a store. `run` is a run of the model that predicts.
    fn ended(&self, programs: &Path, cell: Cell, store: &Path, run: &Path) -> Result<Ended> {
        let out = self.files.work.join("out");
        let file = out.join("out.npy");
        folder::remove(&out)?;
        fs::create_dir(&out)?;
        let mut command = Command::new(programs.join("grappa-store"));
        match cell.program {
            Program::Preaggregate => command
                .arg("preaggregate")
                .arg(store)
                .args(["--kind", "mean", "--replace"]),
            Program::FastRp => {
                command
                    .arg("add-features")
                    .arg(store)
                    .args(["--kind", "fastrp", "--hops", "2"]);
                command.args(["--dim", &cell.dim.to_string()])
            }
            Program::ExportFeatures => command.arg("export").arg(store).arg("--features").arg(&file),
            Program::ExportEdges => command.arg("export").arg(store).arg("--edges").arg(out.join("out.tsv")),
            Program::Sample => {
                command
                    .arg("sample")
                    .arg(store)
                    .args(["--fanouts", "10,5", "--batch", "256", "--batches", "50"])
            }
            Program::Train(model) => {
                command = self.train(programs, store, model, &out.join("run"));
                &mut command
            }
            Program::Predict(_) => {
                command = Command::new(programs.join("grappa-train"));
                command
                    .arg("predict")
                    .arg(run)
                    .arg(store)
                    .arg("--logits")
                    .arg("--out")
                    .arg(&file);
                command.args(["--device", "cpu"])
            }
        };
        command.args(["--memory", &cell.budget.to_string()]);
        if !matches!(cell.program, Program::Train(_)) {
            command.args(["--threads", &self.threads.to_string(), "--json"]);
        }
        let told = self.files.work.join("stderr.txt");
        command.stderr(File::create(&told)?);
        let ended = child::run(&mut command);
        folder::remove(&out)?;
        match ended {
            Ok(measured) => Ok(Ended::Done(measured)),
            Err(error) => {
                let told = fs::read_to_string(&told)?;
                named(&told).map(Ended::Refused).ok_or_else(|| error.context(told))
            }
        }
    }
}

/// A program at each dimension and each budget.
fn of_program<'a>(program: Program, dims: &'a [u32], budgets: &'a [ByteSize]) -> impl Iterator<Item = Cell> + 'a {
    dims.iter().flat_map(move |&dim| {
        budgets.iter().map(move |budget| Cell {
            program,
            dim,
            budget: budget.0,
        })
    })
}

/// The budget that an error names as sufficient.
fn named(told: &str) -> Option<u64> {
    let (_, after) = told.split_once("at least ")?;
    let (size, _) = after.split_once(" is needed")?;
    let size: ByteSize = size.parse().ok()?;
    Some(size.0)
}

fn cells(cell: Cell, used: &Used) -> [String; 8] {
    [
        cell.program.to_string(),
        cell.dim.to_string(),
        mebibytes(cell.budget as f64),
        if used.is_raised {
            mebibytes(used.budget as f64)
        } else {
            String::new()
        },
        mebibytes(used.measured.peak_rss_bytes as f64),
        if used.tiny > 0 {
            mebibytes(used.tiny as f64)
        } else {
            String::new()
        },
        format!("{:+.0}", used.beyond() as f64 / f64::from(1 << 20)),
        format!("{:.1}", used.measured.wall.as_secs_f64()),
    ]
}
