//! `cargo xtask quickstart`: a synthetic graph and a real one, each into a store that is verified and described.
//!
//! Everything it makes is in `.data/quickstart`, which it makes anew.

use std::{fs, io::ErrorKind, time::Instant};

use anyhow::{Context, Result};

use crate::command::{cargo, program, root, run};

pub fn quickstart() -> Result<()> {
    let started = Instant::now();
    let folder = root().join(".data/quickstart");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("cannot remove .data/quickstart");
        }
        _ => {}
    }
    fs::create_dir_all(&folder).context("cannot create .data/quickstart")?;

    run(&mut cargo(&[
        "build",
        "--release",
        "-p",
        "grappa-gen",
        "-p",
        "grappa-ingest",
        "-p",
        "grappa-store",
    ]))?;

    heading("A synthetic graph: R-MAT of 2^18 nodes and about 4 million edges");
    grappa(
        "gen",
        "rmat --scale 18 --edge-factor 16 --seed 1 --out .data/quickstart/rmat.grappa",
    )?;
    grappa("store", "verify .data/quickstart/rmat.grappa")?;
    grappa("store", "info .data/quickstart/rmat.grappa")?;

    heading("A real graph: Cora, 2708 papers and their citations, features, subjects and splits");
    grappa(
        "ingest",
        "--edges tests/data/cora/edges.tsv --undirected --features tests/data/cora/features.npz \
         --labels tests/data/cora/labels.npy --train tests/data/cora/train.npy --val tests/data/cora/val.npy \
         --test tests/data/cora/test.npy --memory 256MiB --out .data/quickstart/cora.grappa",
    )?;
    grappa("store", "verify .data/quickstart/cora.grappa")?;
    grappa("store", "info .data/quickstart/cora.grappa")?;

    println!(
        "\nDone in {:.0} s. The stores are in .data/quickstart; datasets.md has larger graphs.",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn heading(text: &str) {
    println!("\n== {text}");
}

/// Runs one of the programs. None of the arguments has a space in it.
fn grappa(name: &str, args: &str) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir));
    run(program(target.join(format!("release/grappa-{name}"))).args(args.split_whitespace()))
}
