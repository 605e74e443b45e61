//! `cargo xtask wheel`: the Python package as a wheel, which is installed into a fresh environment and tested there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{output, program, run, target_folder},
    extras,
    quickstart::Profile,
    setup,
};

/// Builds the wheel, tests it without PyTorch, and then with the PyTorch Geometric of [`extras`], if that is installed. Returns the
/// wheel.
pub fn wheel(profile: Profile) -> Result<PathBuf> {
    let folder = target_folder().join("wheel");
    let wheel = build(&folder, profile)?;
    let venv = folder.join("venv");
    if venv.exists() {
        fs::remove_dir_all(&venv).context("cannot remove the environment of an earlier wheel")?;
    }
    let python = setup::python_of(&venv)?;
    run(setup::pip(&python).arg(&wheel).arg("pytest"))?;
    test(&python, None)?;
    match extras::pyg_python() {
        Some(with_pyg) => test(&with_pyg, Some(&site_packages(&python)?))?,
        None => eprintln!(
            "no PyTorch Geometric: the tests that need it were skipped (`cargo xtask setup --tests` installs it)"
        ),
    }
    println!("the wheel is {}", wheel.display());
    Ok(wheel)
}

fn build(folder: &Path, profile: Profile) -> Result<PathBuf> {
    let (tools, wheels) = (setup::python_of(&folder.join("tools"))?, folder.join("dist"));
    run(setup::pip(&tools).arg("maturin>=1.16,<2"))?;
    if wheels.exists() {
        fs::remove_dir_all(&wheels).context("cannot remove an earlier wheel")?;
    }
    let mut maturin = program(&tools);
    maturin.args([
        "-m",
        "maturin",
        "build",
        "--quiet",
        "--manifest-path",
        "python/Cargo.toml",
    ]);
    maturin.args(["--profile", profile.name(), "--out"]).arg(&wheels);
    // Libraries of the C runtime only: nothing to bundle.
    maturin
        .args(["--auditwheel", "skip", "--target-dir"])
        .arg(target_folder());
    run(&mut maturin)?;
    let mut found = fs::read_dir(&wheels)?.map(|entry| entry.map(|entry| entry.path()));
    let wheel = found.next().context("maturin wrote no wheel")??;
    ensure!(
        found.next().is_none(),
        "maturin wrote several wheels to {}",
        wheels.display()
    );
    Ok(wheel)
}

/// Runs the tests of the package. `packages` is a folder that Python also imports from.
fn test(python: &Path, packages: Option<&Path>) -> Result<()> {
    let mut tests = program(python);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(packages) = packages {
        tests.env("PYTHONPATH", packages);
    }
    run(&mut tests)
}

fn site_packages(python: &Path) -> Result<PathBuf> {
    let script = "import sysconfig; print(sysconfig.get_path('platlib'))";
    Ok(output(program(python).args(["-c", script]))?.into())
}
