//! Optional dependencies of tests: PyTorch Geometric and a browser. Tests that need them are skipped without them.
//!
//! CI installs both. On a laptop, `cargo xtask setup --tests` does.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    command::{output, program, root, run},
    setup,
};

/// Names a Python with PyTorch Geometric.
pub const PYG_PYTHON: &str = "GRAPPA_PYG_PYTHON";

/// The packages that load exported models and compare them, and that write and convert the files of other programs.
const PYG_PACKAGES: [&str; 12] = [
    "torch_geometric==2.8.0",
    "safetensors",
    "numpy",
    "fastavro",
    "h5py",
    "networkx",
    "openpyxl",
    "pandas",
    "polars",
    "pyarrow",
    "pydot",
    "scipy",
];

/// The path of Debian's package.
const BROWSER: &str = "/usr/bin/chromium";

/// Installs missing extras, and prints those that can't be installed.
pub fn install() {
    for (name, installed) in [("PyTorch Geometric", install_pyg()), ("Chromium", install_browser())] {
        if let Err(error) = installed {
            eprintln!("{name} is missing, so its tests will be skipped: {error:#}");
        }
    }
}

/// A Python with PyTorch Geometric: the one that the user names, the one that xtask installed, or the machine's.
pub fn pyg_python() -> Option<PathBuf> {
    if let Some(own) = env::var_os(PYG_PYTHON) {
        return Some(own.into());
    }
    let candidates = [venv().join("bin/python3"), PathBuf::from("python3")];
    candidates.into_iter().find(|python| has_pyg(python))
}

fn venv() -> PathBuf {
    root().join(".libtorch/venv")
}

/// Imports take seconds, so the first check only looks for the package.
fn has_pyg(python: &Path) -> bool {
    const CHECKS: [&str; 2] = [
        "import importlib.util as u, sys; sys.exit(u.find_spec('torch_geometric') is None)",
        "import torch_geometric, safetensors, numpy",
    ];
    CHECKS.iter().all(|script| output(program(python).args(["-c", script])).is_ok())
}

fn install_pyg() -> Result<()> {
    if pyg_python().is_some() {
        return Ok(());
    }
    let venv = venv();
    setup::install(&venv)?;
    run(setup::pip(&venv.join("bin/python3")).args(PYG_PACKAGES))
}

fn install_browser() -> Result<()> {
    if Path::new(BROWSER).exists() {
        return Ok(());
    }
    output(program("apt-get").arg("--version")).context("there is no apt-get to install it with")?;
    run(program("apt-get").args(["update", "--quiet"]))?;
    run(program("apt-get").args(["install", "--yes", "--quiet", "--no-install-recommends", "chromium"]))?;
    if !Path::new(BROWSER).exists() {
        bail!("its package has no {BROWSER}");
    }
    Ok(())
}
