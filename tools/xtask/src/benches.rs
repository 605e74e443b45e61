//! `cargo xtask benches`: runs every bench once, at a tiny size, to see that it works. The figures mean nothing.
//!
//! Benches are built in the profile of the tests, so nothing is compiled twice.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    command::{BUILD, cargo, program, root, run, target_folder},
    files::{fresh, remove},
    setup,
};

/// Tells benches to use the programs beside them, which are not release builds.
const TRIAL: &str = "GRAPPA_BENCH_TRIAL";

/// Each program with the options of a short run. WORK is a folder for its files.
const PROGRAMS: [(&str, &str); 8] = [
    ("inputs", "npy 8 4 WORK"),
    ("ingest", "--scale 10 --runs 1 --work WORK"),
    ("store", "--scales 10 --scale 12 --runs 1 --opens 1 --work WORK"),
    ("feed", "--scale 12 --runs 1 --batches 2 --peer-batches 1 --work WORK"),
    ("time_to_accuracy", "--datasets cora,rmat,sbm --scale 12 --limit 1GiB --epochs 2 --turns 1 --work WORK"),
    ("training", "--scale 12 --runs 1 --work WORK"),
    ("large", "--scale 20 --sbm-scale 20 --procedural-scale 20 --slice-scale 29 --batches 500 --work WORK"),
    (
        "hosts",
        "--datasets rmat --scale 12 --hosts 2 --megabits 0 --compress none,top-k=0.1 --epochs 2 --runs 1 --memory 256MiB --work WORK",
    ),
];

/// The benches in Python, likewise. PROGRAMS is the folder of the programs.
const SCRIPTS: [(&str, &str); 4] = [
    (
        "accuracy.py",
        "--stores WORK --programs PROGRAMS --datasets cora --layers 2 --seeds 1 --partitions 1,2 --halo stop --first-hop sampled --epochs 1 \
         --work WORK",
    ),
    ("faults.py", "workers --kills 2 --programs PROGRAMS"),
    ("faults.py", "peers --cases 2 --programs PROGRAMS"),
    (
        "knowledge.py",
        "cold --entities 20000 --triples 20000 --batch 512 --memory 24MiB --work WORK/knowledge --programs PROGRAMS",
    ),
];

/// The benches that `cargo bench` runs.
const BENCHES: [(&str, &str); 3] = [("distances", "--tiny"), ("step", "--tiny"), ("top_k", "--tiny")];

pub fn benches() -> Result<()> {
    let libtorch = setup::setup(false)?;
    run(&mut cargo(&BUILD))?;

    let work = target_folder().join("benches");
    fresh(&work)?;
    ingest_cora(&work.join("cora.grappa"))?;
    let programs = target_folder().join("debug");
    let trials = PROGRAMS.iter().map(|(name, args)| (program(programs.join(name)), *args));
    let scripts = SCRIPTS.iter().map(|(name, args)| (script(name), *args));
    for (mut command, args) in trials.chain(scripts) {
        let args = args.replace("WORK", &work.display().to_string());
        let args = args.replace("PROGRAMS", &programs.display().to_string());
        run(command.args(args.split_whitespace()).env(TRIAL, "1"))?;
    }
    for (bench, args) in BENCHES {
        let mut command = cargo(&["test", "--workspace", "--bench", bench, "--", args]);
        run(command.env("LD_LIBRARY_PATH", libtorch.join("lib")))?;
    }
    remove(&work)
}

fn script(name: &str) -> Command {
    let mut command = program("python3");
    command.arg(root().join("benches").join(name));
    command
}

fn ingest_cora(store: &Path) -> Result<()> {
    let cora = root().join("tests/data/cora");
    run(program(target_folder().join("debug/grappa-ingest"))
        .arg("--undirected")
        .arg("--edges")
        .arg(cora.join("edges.tsv"))
        .arg("--features")
        .arg(cora.join("features.npz"))
        .arg("--labels")
        .arg(cora.join("labels.npy"))
        .arg("--train")
        .arg(cora.join("train.npy"))
        .arg("--val")
        .arg(cora.join("val.npy"))
        .arg("--test")
        .arg(cora.join("test.npy"))
        .args(["--chunks", "8", "--quiet", "--out"])
        .arg(store))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    /// The names of the programs in a source folder.
    fn programs_in(folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
        names.collect()
    }

    #[test]
    fn every_bench_is_tried() {
        assert_eq!(programs_in("benches/src/bin"), PROGRAMS.map(|(name, _)| name.to_owned()).into());
        let benches = ["trainer/benches", "trainer/knowledge/benches"].map(programs_in);
        assert_eq!(
            benches.into_iter().flatten().collect::<BTreeSet<_>>(),
            BENCHES.map(|(name, _)| name.to_owned()).into()
        );
    }
}
