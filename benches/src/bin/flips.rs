//! What becomes of flipped bytes: in stores, runs and inputs, met by every program that reads them.
//!
//! A small graph is ingested, trained on, and exported from. Then, again and again, a byte of one file is flipped in a copy,
//! and a program is run on it. It is *found* if the program fails and *harmless* if its result is the one of the sound files:
//! the byte was of no use to it. It is *silent* if the program succeeds with another result, which must not happen where
//! there is a checksum. Plain text and `.npy` have none, and are counted apart.

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
    folder, programs,
    record::{Record, Table},
};
use grappa_tests::{archive::write_npz, files::copy_folder, graph::Graph, parquet::write_parquet, random::Random};
use serde_json::Value;

const QUESTION: &str = "Bytes are flipped in stores, runs and inputs, one at a time, and a program is run on each. How many are found (the \
    program fails), harmless (the result is the same), silent (the program succeeds with another result)?";

/// Count what becomes of flipped bytes
#[derive(Debug, Parser)]
struct Args {
    /// A folder for stores, runs and inputs, which is emptied first
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Flips in files with checksums
    #[arg(long, default_value_t = 2000)]
    flips: u64,
    /// Which bytes are flipped
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only readers with this in their names
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// Programs that are built already; by default they are built in release mode
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

/// What is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    /// A store: dense ids, features, labels, splits.
    Dense,
    /// A store: string ids in a given order, weights.
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
    thing: Thing,
    /// How many of so many flips it meets, next to the others: programs that start fast meet more.
    share: u64,
    /// Its arguments, and where its result is.
    command: fn(&Setup, &Path) -> Run,
}

/// A program to be run.
struct Run {
    command: Command,
    /// Files and folders that hold the result.
    results: Vec<PathBuf>,
}

/// What became of flips.
#[derive(Debug, Default)]
struct Count {
    found: u64,
    /// Of these, errors that name the file and an offset or line.
    named: u64,
    harmless: u64,
    silent: u64,
}

struct Setup {
    programs: PathBuf,
    work: PathBuf,
}

/// Readers of what has checksums.
const CHECKED: [Reader; 13] = [
    Reader {
        name: "store export, edges",
        thing: Thing::Dense,
        share: 4,
        command: |setup, store| setup.export(store, &["--edges"], "edges.tsv"),
    },
    Reader {
        name: "store export, edges, names and weights",
        thing: Thing::Named,
        share: 4,
        command: |setup, store| setup.export(store, &["--edges"], "edges.tsv"),
    },
    Reader {
        name: "store export, features",
        thing: Thing::Dense,
        share: 3,
        command: |setup, store| setup.export(store, &["--features"], "features.npy"),
    },
    Reader {
        name: "store export, labels",
        thing: Thing::Dense,
        share: 3,
        command: |setup, store| setup.export(store, &["--labels"], "labels.npy"),
    },
    Reader {
        name: "store export, split",
        thing: Thing::Dense,
        share: 2,
        command: |setup, store| setup.export(store, &["--split", "train"], "train.npy"),
    },
    Reader {
        name: "store preaggregate",
        thing: Thing::Dense,
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
        thing: Thing::Named,
        share: 3,
        command: |setup, store| setup.sample(store, "mapped"),
    },
    Reader {
        name: "train",
        thing: Thing::Dense,
        share: 3,
        command: |setup, store| setup.train(store, &[]),
    },
    Reader {
        name: "train, 2 partitions",
        thing: Thing::Dense,
        share: 3,
        command: |setup, store| setup.train(store, &["--partitions", "2"]),
    },
    Reader {
        name: "train predict, of a store",
        thing: Thing::Dense,
        share: 2,
        command: |setup, store| setup.predict(&setup.work.join("run"), store),
    },
    Reader {
        name: "train predict, of a run",
        thing: Thing::Run,
        share: 2,
        command: |setup, run| setup.predict(run, &setup.work.join("dense.grappa")),
    },
    Reader {
        name: "train --resume",
        thing: Thing::Run,
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
        thing: Thing::Input("edges.tsv.gz"),
        share: 3,
        command: |setup, input| setup.ingest(input, &[]),
    },
];

/// Readers of formats whose checksums, if any, are their own.
const FOREIGN: [Reader; 2] = [
    Reader {
        name: "ingest, .npz of features",
        thing: Thing::Input("features.npz"),
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
        thing: Thing::Input("edges.npz"),
        share: 3,
        command: |setup, input| setup.ingest(input, &[]),
    },
];

/// Readers of what has no checksums: not detectable.
const UNCHECKED: [Reader; 3] = [
    Reader {
        name: "ingest, .tsv",
        thing: Thing::Input("edges.tsv"),
        share: 1,
        command: |setup, input| setup.ingest(input, &[]),
    },
    Reader {
        name: "ingest, .npy",
        thing: Thing::Input("edges.npy"),
        share: 1,
        command: |setup, input| setup.ingest(input, &[]),
    },
    Reader {
        name: "ingest, Parquet without page checksums",
        thing: Thing::Input("edges.parquet"),
        share: 1,
        command: |setup, input| setup.ingest(input, &[]),
    },
];

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let programs = match &args.programs {
        Some(folder) => folder.clone(),
        None => programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?,
    };
    folder::remove(&args.work)?;
    let command = programs::command_line("flips");
    let mut record = Record::new("Flipped bytes", QUESTION, &command, &args.work)?;
    let setup = Setup {
        programs,
        work: args.work.clone(),
    };
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
            .filter(|reader| reader.name.contains(&args.only))
            .collect();
        let shares: u64 = readers.iter().map(|reader| reader.share).sum();
        let wanted = if title.starts_with("With") {
            args.flips
        } else {
            args.flips / 20
        };
        let mut table = Table::new(&[title, "flips", "found", "file and place named", "harmless", "silent"]);
        let mut total = Count::default();
        for reader in readers {
            let flips = (wanted * reader.share).div_ceil(shares);
            let count = setup.flip(reader, flips, args.seed, &mut silent)?;
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
        "A byte is harmless that the program does not read: of another file or column, of a block that no row of the result is in, \
         or of what the program writes anew. Resumed training passes over a damaged checkpoint, says so, and goes on from the one before.",
    );
    record.finish(args.record.as_deref())
}

impl Setup {
    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// Makes inputs, stores and a run.
    fn prepare(&self) -> Result<()> {
        let mut graph = Graph::random(5, 1200, 12_000, 9);
        // Who trains wants a label of each node.
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

        // Names in an order of their own, and weights.
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

    /// Where a thing is.
    fn place(&self, thing: Thing) -> PathBuf {
        self.work.join(match thing {
            Thing::Dense => "dense.grappa",
            Thing::Named => "named.grappa",
            Thing::Run => "run",
            Thing::Input(name) => name,
        })
    }

    /// Flips so many bytes of what a reader reads, one at a time, in each file as often.
    fn flip(&self, reader: &Reader, flips: u64, seed: u64, silent: &mut Vec<String>) -> Result<Count> {
        let original = self.place(reader.thing);
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

    /// Runs a reader on a copy of a thing, with a byte flipped; a hash of its result, and what it said.
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
            // A run that goes on leaves the checkpoint of its best epoch as it is, and whoever reads that checks it.
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

/// The bytes of a file that a result consists of. Of a checkpoint, those are the tensors: its header has the time it took.
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

/// What a summary of sampling says that does not depend on time.
fn sampled(stdout: &[u8]) -> String {
    let told: Value = serde_json::from_slice(stdout).unwrap_or_default();
    ["batches", "sampled_edges", "input_nodes"]
        .map(|key| told[key].to_string())
        .join(" ")
}

/// The files of a folder that have bytes, by their paths in it, or the one file, by an empty path; sorted.
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

/// A file of a folder; or the one file, whose path in itself is empty.
fn file_in(thing: &Path, file: &Path) -> PathBuf {
    if thing.is_dir() {
        thing.join(file)
    } else {
        thing.to_owned()
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
