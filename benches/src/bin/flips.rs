//! The outcome of flipped bytes in stores, runs and inputs, for every program that reads them.
//!
//! A small graph is ingested, trained on and exported. Then a byte of one file is flipped in a copy, and a program is run on it,
//! many times. The flip is *found* if the program fails, and *harmless* if the result equals that of the sound files, because the
//! program does not use the byte. It is *silent* if the program succeeds with another result. That must not happen to data with a
//! checksum. Plain text and `.npy` have none, and are counted separately.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use flate2::{Compression, write::GzEncoder};
use grappa_benches::{
    bench::{self, Bench, Files},
    folder, programs,
    record::{Record, Table},
};
use grappa_tests::{archive::write_npz, files::copy_folder, graph::Graph, parquet::write_parquet, random::Random};
use serde_json::Value;

/// Flip bytes of files, and count which flips are found
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// Flips in files with checksums
    #[arg(long, default_value_t = 2000)]
    flips: u64,
    /// Selects the bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only readers whose name contains this
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// The folder of programs that are already built; by default they are built in release mode
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// The data that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// A store: dense ids, features, labels, splits.
    Dense,
    /// A store: string ids in a given order, edge weights.
    Named,
    /// The run.
    Run,
    /// A file of input.
    Input(&'static str),
}

/// A program that reads it.
#[derive(Debug, Clone, Copy)]
struct Reader {
    name: &'static str,
    data: Data,
    /// Its share of the flips, relative to the other readers. Programs that start fast get more.
    share: u64,
    /// Its command, and where its result is.
    command: fn(&Setup, &Path) -> Run,
}

/// A program to be run.
struct Run {
    command: Command,
    /// Files and folders that hold the result.
    results: Vec<PathBuf>,
}

/// Outcomes of flips.
#[derive(Debug, Default)]
struct Count {
    found: u64,
    /// The part of `found` whose errors name the file and an offset or line.
    named: u64,
    harmless: u64,
    silent: u64,
}

struct Setup {
    programs: PathBuf,
    work: PathBuf,
}

/// Readers of data with checksums.
const CHECKED: [Reader; 13] = [
    Reader {
        name: "store export, edges",
        data: Data::Dense,
        share: 4,
        command: |setup, store| setup.export(store, &["--edges"], "edges.tsv"),
    },
    Reader {
        name: "store export, edges, names and weights",
        data: Data::Named,
        share: 4,
        command: |setup, store| setup.export(store, &["--edges"], "edges.tsv"),
    },
    Reader {
        name: "store export, features",
        data: Data::Dense,
        share: 3,
        command: |setup, store| setup.export(store, &["--features"], "features.npy"),
    },
    Reader {
        name: "store export, labels",
        data: Data::Dense,
        share: 3,
        command: |setup, store| setup.export(store, &["--labels"], "labels.npy"),
    },
    Reader {
        name: "store export, split",
        data: Data::Dense,
        share: 2,
        command: |setup, store| setup.export(store, &["--split", "train"], "train.npy"),
    },
    Reader {
        name: "store preaggregate",
        data: Data::Dense,
        share: 3,
        command: |setup, store| {
            let mut command = setup.program("grappa-store");
            command
                .arg("preaggregate")
                .arg(store)
                .args(["--kind", "mean", "--replace", "--quiet"]);
            Run {
                command,
                results: vec![store.join("aggregates")],
            }
        },
    },
    Reader {
        name: "store sample, mapped",
        data: Data::Named,
        share: 3,
        command: |setup, store| setup.sample(store, "mapped"),
    },
    Reader {
        name: "train",
        data: Data::Dense,
        share: 3,
        command: |setup, store| setup.train(store, &[]),
    },
    Reader {
        name: "train, 2 partitions",
        data: Data::Dense,
        share: 3,
        command: |setup, store| setup.train(store, &["--partitions", "2"]),
    },
    Reader {
        name: "train predict, of a store",
        data: Data::Dense,
        share: 2,
        command: |setup, store| setup.predict(&setup.work.join("run"), store),
    },
    Reader {
        name: "train predict, of a run",
        data: Data::Run,
        share: 2,
        command: |setup, run| setup.predict(run, &setup.work.join("dense.grappa")),
    },
    Reader {
        name: "train --resume",
        data: Data::Run,
        share: 2,
        command: |setup, run| {
            let mut command = setup.program("grappa-train");
            command
                .arg(setup.work.join("dense.grappa"))
                .args(["--resume", "--quiet", "--epochs", "4", "--out"]);
            Run {
                command: with(command, run),
                results: vec![run.join("checkpoints")],
            }
        },
    },
    Reader {
        name: "ingest, .tsv.gz",
        data: Data::Input("edges.tsv.gz"),
        share: 3,
        command: |setup, input| setup.ingest(input, &[]),
    },
];

/// Readers of foreign formats, which have checksums of their own.
const FOREIGN: [Reader; 2] = [
    Reader {
        name: "ingest, .npz of features",
        data: Data::Input("features.npz"),
        share: 3,
        command: |setup, input| {
            let edges = setup.work.join("edges.tsv");
            let mut run = setup.ingest(&edges, &["--features"]);
            run.command.arg(input);
            run
        },
    },
    Reader {
        name: "ingest, .npz of edges",
        data: Data::Input("edges.npz"),
        share: 3,
        command: |setup, input| setup.ingest(input, &[]),
    },
];

/// Readers of data without checksums: flips are not detectable.
const UNCHECKED: [Reader; 3] = [
    Reader {
        name: "ingest, .tsv",
        data: Data::Input("edges.tsv"),
        share: 1,
        command: |setup, input| setup.ingest(input, &[]),
    },
    Reader {
        name: "ingest, .npy",
        data: Data::Input("edges.npy"),
        share: 1,
        command: |setup, input| setup.ingest(input, &[]),
    },
    Reader {
        name: "ingest, Parquet without page checksums",
        data: Data::Input("edges.parquet"),
        share: 1,
        command: |setup, input| setup.ingest(input, &[]),
    },
];

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Flipped bytes";
    const QUESTION: &'static str = "Bytes are flipped in stores, runs and inputs, one at a time, and a program is run on each. How many are found (the \
        program fails), harmless (the result is the same), silent (the program succeeds with another result)?";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = match &self.programs {
            Some(folder) => folder.clone(),
            None => programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?,
        };
        let work = self.files.work.join("flips");
        folder::remove(&work)?;
        fs::create_dir(&work).with_context(|| format!("cannot create {}", work.display()))?;
        let setup = Setup { programs, work };
        setup.prepare()?;
        let mut silent = Vec::new();
        for (title, readers) in [
            ("With checksums", CHECKED.iter().chain(&FOREIGN).collect::<Vec<_>>()),
            (
                "Not detectable: these formats have no checksums",
                UNCHECKED.iter().collect(),
            ),
        ] {
            let readers: Vec<&Reader> = readers
                .into_iter()
                .filter(|reader| reader.name.contains(&self.only))
                .collect();
            let shares: u64 = readers.iter().map(|reader| reader.share).sum();
            let wanted = if title.starts_with("With") {
                self.flips
            } else {
                self.flips / 20
            };
            let mut table = Table::new(&[title, "flips", "found", "file and place named", "harmless", "silent"]);
            let mut total = Count::default();
            for reader in readers {
                let flips = (wanted * reader.share).div_ceil(shares);
                let count = setup.flip(reader, flips, self.seed, &mut silent)?;
                table.row(count.cells(reader.name));
                total.add(&count);
            }
            table.row(total.cells("all"));
            record.add(table);
        }
        if !silent.is_empty() {
            record.add(format_args!("Silent:\n\n{}", silent.join("\n")));
        }
        record.add(
            "A flip is harmless if the program does not read the byte: it is in another file or column, in a block without rows of the result, \
             or in data that the program rewrites. Resumed training skips a damaged checkpoint with a warning and continues from the one before.",
        );
        Ok(())
    }
}

impl Setup {
    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// Makes inputs, stores and a run.
    fn prepare(&self) -> Result<()> {
        let mut graph = Graph::random(5, 1200, 12_000, 9);
        // Training needs a label for each node.
        graph.labels.iter_mut().for_each(|label| *label = (*label).max(0));
        let files = graph.write(&self.work);
        let text = graph.text('\t');
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes())?;
        fs::write(self.work.join("edges.tsv.gz"), gzip.finish()?)?;
        let edges = graph.edges.iter().flat_map(|&(source, target)| [source, target]);
        let array = grappa_tests::npy::Npy::new(&[graph.edges.len(), 2], edges);
        array.write(&self.work.join("edges.npy"));
        write_npz(&self.work.join("edges.npz"), &[("edges", array)]);
        write_npz(&self.work.join("features.npz"), &[("features", graph.features_npy())]);
        write_parquet(&self.work.join("edges.parquet"), &graph.edges, None);

        let dense = self.work.join("dense.grappa");
        let mut ingest = self.program("grappa-ingest");
        ingest.arg("--edges").arg(&files.edges).arg("--out").arg(&dense);
        ingest.args(["--chunks", "3", "--nodes", "1200", "--quiet"]);
        succeed(files.node_arguments(&mut ingest))?;

        // String ids in a given order, and edge weights.
        let named = self.work.join("named.tsv");
        let line = |(k, (source, target)): (usize, &(u64, u64))| format!("node {source}\tnode {target}\t{}\n", k % 7);
        fs::write(&named, graph.edges.iter().enumerate().map(line).collect::<String>())?;
        let mut ids: Vec<String> = graph
            .edges
            .iter()
            .flat_map(|&(a, b)| [format!("{a}"), format!("{b}")])
            .collect();
        ids.sort();
        ids.dedup();
        let parts = self.work.join("parts.txt");
        fs::write(
            &parts,
            (0..ids.len()).map(|rank| format!("{}\n", rank % 3)).collect::<String>(),
        )?;
        let mut ingest = self.program("grappa-ingest");
        ingest
            .arg("--edges")
            .arg(&named)
            .arg("--out")
            .arg(self.work.join("named.grappa"));
        ingest.args(["--ids", "string", "--format", "tsv", "--chunks", "3", "--quiet"]);
        succeed(ingest.arg("--assign").arg(format!("file:{}", parts.display())))?;

        let mut train = self.train(&dense, &[]);
        succeed(&mut train.command)?;
        fs::rename(train.results[0].parent().context("a run")?, self.work.join("run"))?;
        Ok(())
    }

    fn ingest(&self, edges: &Path, more: &[&str]) -> Run {
        let out = self.work.join("out").join("made.grappa");
        let mut command = self.program("grappa-ingest");
        command.arg("--edges").arg(edges).arg("--out").arg(&out);
        command.args(["--chunks", "3", "--nodes", "1200", "--quiet"]);
        command.args(more);
        Run {
            command,
            results: vec![out],
        }
    }

    fn export(&self, store: &Path, what: &[&str], name: &str) -> Run {
        let out = self.work.join("out").join(name);
        let mut command = self.program("grappa-store");
        command.arg("export").arg(store).args(what);
        Run {
            command: with(command, &out),
            results: vec![out],
        }
    }

    fn sample(&self, store: &Path, view: &str) -> Run {
        let mut command = self.program("grappa-store");
        command
            .arg("sample")
            .arg(store)
            .args(["--seeds", "all", "--batch", "100", "--fanouts", "5,5"]);
        command.args(["--batches", "12", "--view", view, "--no-features", "--json"]);
        Run {
            command,
            results: vec![],
        }
    }

    fn train(&self, store: &Path, more: &[&str]) -> Run {
        let out = self.work.join("out").join("run");
        let mut command = self.program("grappa-train");
        command
            .arg(store)
            .args(["--layers", "2", "--hidden", "8", "--fanouts", "4,4", "--batch", "128"]);
        command
            .args(["--epochs", "2", "--threads", "2", "--memory", "1GiB", "--quiet"])
            .args(more);
        command.arg("--out");
        Run {
            command: with(command, &out),
            results: vec![out.join("checkpoints")],
        }
    }

    fn predict(&self, run: &Path, store: &Path) -> Run {
        let out = self.work.join("out").join("logits.npy");
        let mut command = self.program("grappa-train");
        command
            .arg("predict")
            .arg(run)
            .arg(store)
            .args(["--logits", "--quiet", "--out"]);
        Run {
            command: with(command, &out),
            results: vec![out],
        }
    }

    /// The path of the data.
    fn path(&self, data: Data) -> PathBuf {
        self.work.join(match data {
            Data::Dense => "dense.grappa",
            Data::Named => "named.grappa",
            Data::Run => "run",
            Data::Input(name) => name,
        })
    }

    /// Flips bytes in the reader's data, one at a time, `flips` in total, equally often in each file.
    fn flip(&self, reader: &Reader, flips: u64, seed: u64, silent: &mut Vec<String>) -> Result<Count> {
        let original = self.path(reader.data);
        let name = reader
            .name
            .as_bytes()
            .iter()
            .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        let mut random = Random::new(name);
        let files = files_below(&original)?;
        let (sound, output) = self.outcome(reader, &original, None)?;
        if !output.status.success() {
            bail!(
                "{} fails on sound files: {}",
                reader.name,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let mut count = Count::default();
        for flip in 0..flips {
            let file = &files[(flip % files.len() as u64) as usize];
            let length = fs::metadata(file_in(&original, file))?.len();
            let (offset, mask) = (random.below(length), 1 + random.below(255) as u8);
            let (result, output) = self.outcome(reader, &original, Some((file, offset, mask)))?;
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            if !output.status.success() {
                count.found += 1;
                let name = file.file_name().unwrap_or(original.file_name().unwrap_or_default());
                let has_place = ["offset", "row", "line", "member", "CRC", "checksum"]
                    .iter()
                    .any(|word| message.contains(word));
                count.named += u64::from(has_place && message.contains(&*name.to_string_lossy()));
            } else if result == sound {
                count.harmless += 1;
            } else {
                count.silent += 1;
                silent.push(format!(
                    "- {}: {} at {offset} ^ {mask:#04x}",
                    reader.name,
                    file.display()
                ));
            }
        }
        Ok(count)
    }

    /// Runs a reader on a copy of its data with one byte flipped. Returns a hash of the result, and the output.
    fn outcome(&self, reader: &Reader, original: &Path, flip: Option<(&PathBuf, u64, u8)>) -> Result<(u64, Output)> {
        let out = self.work.join("out");
        folder::remove(&out)?;
        let copy = out.join("copy").join(original.file_name().context("a name")?);
        fs::create_dir_all(out.join("copy"))?;
        if original.is_dir() {
            copy_folder(original, &copy);
        } else {
            fs::copy(original, &copy)?;
        }
        if let Some((file, offset, mask)) = flip {
            let file = File::options().read(true).write(true).open(file_in(&copy, file))?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset)?;
            file.write_all_at(&[byte[0] ^ mask], offset)?;
        }
        let Run { mut command, results } = (reader.command)(self, &copy);
        let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
        let mut hash = DefaultHasher::new();
        if results.is_empty() {
            sampled(&output.stdout).hash(&mut hash);
        }
        for result in results.iter().filter(|result| result.exists()) {
            // A resumed run keeps the checkpoint of its best epoch. Readers of that checkpoint verify it.
            let is_kept = |file: &PathBuf| file.to_string_lossy().starts_with("best-");
            for file in files_below(result)?.into_iter().filter(|file| !is_kept(file)) {
                file.hash(&mut hash);
                contents(&file_in(result, &file))?.hash(&mut hash);
            }
        }
        Ok((hash.finish(), output))
    }
}

/// A command with one more argument.
fn with(mut command: Command, argument: &Path) -> Command {
    command.arg(argument);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The bytes of a result file that must not change. For a checkpoint these are the tensors, because its header has timings.
fn contents(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if path.extension().is_some_and(|extension| extension == "safetensors")
        && let Some(length) = bytes.first_chunk()
    {
        let header = 8 + u64::from_le_bytes(*length) as usize;
        return Ok(bytes.get(header..).unwrap_or_default().to_vec());
    }
    Ok(bytes)
}

/// The parts of a summary of sampling that do not depend on time.
fn sampled(stdout: &[u8]) -> String {
    let told: Value = serde_json::from_slice(stdout).unwrap_or_default();
    ["batches", "sampled_edges", "input_nodes"]
        .map(|key| told[key].to_string())
        .join(" ")
}

/// The relative paths of the nonempty files in a folder, sorted; for a file, one empty path.
fn files_below(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![PathBuf::new()]);
    }
    let files = grappa_tests::files::files_of(path).into_iter();
    Ok(files
        .filter(|(_, bytes)| !bytes.is_empty())
        .map(|(path, _)| path)
        .collect())
}

/// A file of a folder; or the file itself, whose relative path is empty.
fn file_in(data: &Path, file: &Path) -> PathBuf {
    if data.is_dir() {
        data.join(file)
    } else {
        data.to_owned()
    }
}

impl Count {
    fn add(&mut self, other: &Self) {
        self.found += other.found;
        self.named += other.named;
        self.harmless += other.harmless;
        self.silent += other.silent;
    }

    fn cells(&self, name: &str) -> [String; 6] {
        let flips = self.found + self.harmless + self.silent;
        [
            name.to_owned(),
            flips.to_string(),
            self.found.to_string(),
            self.named.to_string(),
            self.harmless.to_string(),
            self.silent.to_string(),
        ]
    }
}
