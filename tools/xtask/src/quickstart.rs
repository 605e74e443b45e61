//! `cargo xtask quickstart`: trains a model on a real graph, for newcomers.
//!
//! Every command is printed before it runs, so that you can repeat it. All files are in `.data/quickstart`. A second quickstart uses
//! libtorch, the programs and Debian's graph again, and replaces the store and the run. Settings are small, for a result within a minute.
//! More epochs give a better model.

use std::{fs, path::PathBuf, thread, time::Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::{
    command::{BUILD, cargo, program, root, run, target_folder},
    data, setup,
};

/// The graph to train on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Dataset {
    /// Debian's packages if apt has their index on this machine, otherwise Cora
    #[default]
    Auto,
    /// Debian's packages, their dependencies and sections
    Debian,
    /// Papers, citations and subjects; in the repository
    Cora,
}

/// The profile of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Optimized, for users.
    Release,
    /// The profile of the tests, so that CI compiles nothing twice.
    Dev,
}

impl Profile {
    /// The folder of its programs in the target folder.
    pub fn folder(self) -> PathBuf {
        target_folder().join(match self {
            Self::Release => "release",
            Self::Dev => "debug",
        })
    }
}

const FOLDER: &str = ".data/quickstart";

pub fn quickstart(dataset: Dataset, profile: Profile) -> Result<()> {
    let started = Instant::now();
    let folder = root().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {FOLDER}"))?;

    heading("Set up and build: libtorch, and the programs");
    if root().join(".libtorch/torch").exists() {
        println!("libtorch is there, from an earlier setup.");
    }
    match profile {
        Profile::Release => build_release()?,
        Profile::Dev => {
            setup::setup(false)?;
            run(&mut cargo(&BUILD))?;
        }
    }
    let programs = Programs(profile.folder());
    for (name, kind) in [("graph.grappa", "store"), ("run", "run")] {
        if root().join(FOLDER).join(name).exists() {
            println!("{FOLDER}/{name} is the {kind} of an earlier quickstart, and is replaced.");
        }
    }
    let built = Instant::now();

    match dataset {
        Dataset::Debian => programs.debian()?,
        Dataset::Cora => programs.cora()?,
        Dataset::Auto => match data::machine_has_index() {
            Ok(()) => programs.debian()?,
            Err(why) => {
                eprintln!("{why:#}\nUsing Cora instead.");
                programs.cora()?;
            }
        },
    }

    println!(
        "\nDone in {:.0} s, and {:.0} s before that for setup and build.\n\
         Open {FOLDER}/run/report.html in a browser to see the report. The store is {FOLDER}/graph.grappa.\n\
         You can repeat the commands above in this folder. To call the programs by their names, as the README does:\n\n    \
         export PATH=\"{}:$PATH\"\n\n\
         `grappa-train --help` lists models and options. datasets.md lists larger graphs.",
        built.elapsed().as_secs_f64(),
        (built - started).as_secs_f64(),
        programs.0.display()
    );
    Ok(())
}

/// The programs that the quickstart runs.
const PROGRAMS: [&str; 6] = ["-p", "grappa-ingest", "-p", "grappa-store", "-p", "grappa-train"];

/// Packages that need no libtorch, and whose dependencies have the same features as in a build of [`PROGRAMS`], so that
/// nothing is compiled twice.
const WITHOUT_LIBTORCH: [&str; 2] = ["-p", "grappa-ingest"];

/// Fetches libtorch and builds the programs. pip mostly waits for the network, so that the processors compile meanwhile
/// whatever takes about as long.
fn build_release() -> Result<()> {
    let fetching = thread::spawn(|| setup::setup(false));
    let compiled = run(cargo(&["build", "--release"]).args(WITHOUT_LIBTORCH));
    fetching.join().expect("setup returns its errors")?;
    compiled?;
    run(cargo(&["build", "--release"]).args(PROGRAMS))
}

/// The folder with Grappa's programs.
struct Programs(PathBuf);

impl Programs {
    /// Predicts the sections of packages from the package archive's index.
    fn debian(&self) -> Result<()> {
        heading("A real graph: Debian's packages with dependencies, descriptions and sections");
        let folder = root().join(FOLDER).join("debian");
        match folder.exists() {
            true => println!("{FOLDER}/debian is the graph of an earlier quickstart. Remove it to make it anew."),
            false => run(data::script().arg("debian").arg(&folder).current_dir(root()))?,
        }

        heading("Ingest it into a compressed, checksummed store, within a memory budget");
        self.ingest(
            "--edges debian/edges.tsv --ids string --self-loops drop --undirected --dedup --features debian/features.npy \
             --labels debian/labels.npy --train debian/train.txt --val debian/val.txt --test debian/test.txt",
            "debian/",
            ".data/quickstart/debian/",
        )?;
        self.train("--layers 2 --epochs 8 --repartition-every 2 --class-names .data/quickstart/debian/classes.txt")?;

        heading("Predict the sections of a few packages");
        self.predict("apt,bash,vim,python3-numpy,fonts-dejavu")
    }

    /// Predicts the subjects of papers from the files of the repository.
    fn cora(&self) -> Result<()> {
        heading("Ingest a graph into a store: Cora, 2708 papers with citations, words and subjects");
        self.ingest(
            "--edges cora/edges.tsv --undirected --features cora/features.npz --labels cora/labels.npy --train cora/train.npy \
             --val cora/val.npy --test cora/test.npy --chunks 16",
            "cora/",
            "tests/data/cora/",
        )?;
        self.train("--layers 2 --hidden 64 --batch 12 --epochs 12 --repartition-every 3")?;

        heading("Predict the subjects of a few papers");
        self.predict("0,1000,2000")
    }

    /// Makes the store, verifies and describes it. In `options`, `short` stands for `folder`.
    fn ingest(&self, options: &str, short: &str, folder: &str) -> Result<()> {
        let options = options.replace(short, folder);
        self.run("ingest", &format!("{options} --memory 256MiB --out {FOLDER}/graph.grappa --force"))?;
        self.run("store", &format!("verify {FOLDER}/graph.grappa"))?;
        self.run("store", &format!("info {FOLDER}/graph.grappa"))
    }

    fn train(&self, options: &str) -> Result<()> {
        heading("Train GraphSAGE in 4 partitions that exchange gradients only");
        self.run(
            "train",
            &format!("{FOLDER}/graph.grappa --partitions 4 {options} --memory 1GiB --out {FOLDER}/run --force"),
        )
    }

    fn predict(&self, nodes: &str) -> Result<()> {
        self.run("train", &format!("predict {FOLDER}/run {FOLDER}/graph.grappa --nodes {nodes}"))
    }

    /// Runs one of the programs. Arguments contain no spaces.
    fn run(&self, name: &str, args: &str) -> Result<()> {
        run(program(self.0.join(format!("grappa-{name}"))).args(args.split_whitespace()))
    }
}

fn heading(text: &str) {
    println!("\n== {text}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::command::output;

    /// Each dependency of some packages, with its features.
    fn features(packages: &[&str]) -> BTreeSet<String> {
        let mut tree = cargo(&["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p} {f}"]);
        let text = output(tree.args(packages)).unwrap();
        let lines = text.lines().map(|line| line.trim_end_matches(" (*)").to_owned());
        lines.collect()
    }

    #[test]
    fn crates_compiled_during_the_download_are_not_compiled_again() {
        let [early, all] = [&WITHOUT_LIBTORCH[..], &PROGRAMS[..]].map(features);
        let again: Vec<_> = early.difference(&all).collect();
        assert!(again.is_empty(), "with other features: {again:?}");
    }
}
