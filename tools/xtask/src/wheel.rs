//! `cargo xtask wheel`: the Python package as a wheel, which is installed into a fresh environment and tested there. CI tests the
//! package with the library that it built for the other tests, because a wheel is compiled with other features.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{output, program, root, run, target_folder},
    data, extras,
    quickstart::Profile,
    setup,
};

/// The examples of the package with their arguments, small enough for CI.
const EXAMPLES: [(&str, &[&str]); 4] = [
    ("sage_cora.py", &[]),
    ("inference.py", &[]),
    (DEBIAN, &["debian"]),
    ("out_of_core.py", &[]),
];
/// It needs tables from apt's index.
const DEBIAN: &str = "gat_debian.py";
/// A test of the package runs it with torchrun.
#[cfg(test)]
const TESTED: &str = "ddp_partitions.py";

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
    test(&python, &[])?;
    test_with_pyg(&[site_packages(&python)?])?;
    println!("the wheel is {}", wheel.display());
    Ok(wheel)
}

/// Tests the package with the library of the last build of the workspace, with and without PyTorch Geometric.
pub fn test_build() -> Result<()> {
    let packages = package()?;
    let python = setup::python_of(&target_folder().join("wheel/tests"))?;
    run(setup::pip(&python).args(["numpy", "pytest"]))?;
    test(&python, std::slice::from_ref(&packages))?;
    test_with_pyg(&[packages, site_packages(&python)?])
}

/// A folder that Python imports the package from, with the library of the last build of the workspace.
pub fn package() -> Result<PathBuf> {
    let packages = target_folder().join("wheel/package");
    let package = packages.join("grappa");
    fs::create_dir_all(&package).context("cannot create the folder of the package")?;
    for entry in fs::read_dir(root().join("python/grappa"))? {
        let file = entry?.path();
        if file.is_file() {
            fs::copy(&file, package.join(file.file_name().expect("a file has a name")))?;
        }
    }
    let library = target_folder().join("debug/lib_grappa.so");
    fs::copy(&library, package.join("_grappa.abi3.so"))
        .with_context(|| format!("{} is missing: build the workspace first", library.display()))?;
    Ok(packages)
}

fn test_with_pyg(packages: &[PathBuf]) -> Result<()> {
    match extras::pyg_python() {
        Some(python) => {
            test(&python, packages)?;
            examples(&python, packages)
        }
        None => {
            eprintln!(
                "no PyTorch Geometric: the tests that need it and the examples were skipped (`cargo xtask setup --tests` \
                 installs it)"
            );
            Ok(())
        }
    }
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

/// Runs the tests of the package. Python imports from `packages`, too.
fn test(python: &Path, packages: &[PathBuf]) -> Result<()> {
    let mut tests = program(python);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("PYTHONPATH", env::join_paths(packages)?);
    run(&mut tests)
}

/// Runs the examples of the package in a folder of their own.
fn examples(python: &Path, packages: &[PathBuf]) -> Result<()> {
    let work = target_folder().join("wheel/examples");
    if work.exists() {
        fs::remove_dir_all(&work).context("cannot remove the folder of earlier examples")?;
    }
    fs::create_dir_all(&work).context("cannot create a folder for the examples")?;
    let has_debian = match data::machine_has_index() {
        Ok(()) => run(data::script().args(["debian", "debian"]).current_dir(&work)).map(|()| true)?,
        Err(why) => {
            eprintln!("{DEBIAN} was skipped: {why:#}");
            false
        }
    };
    for (name, arguments) in EXAMPLES {
        if name == DEBIAN && !has_debian {
            continue;
        }
        let mut example = program(python);
        example.arg(root().join("python/examples").join(name)).args(arguments);
        example.env("PYTHONDONTWRITEBYTECODE", "1");
        run(example.env("PYTHONPATH", env::join_paths(packages)?).current_dir(&work))?;
    }
    fs::remove_dir_all(&work).context("cannot remove the folder of the examples")
}

fn site_packages(python: &Path) -> Result<PathBuf> {
    let script = "import sysconfig; print(sysconfig.get_path('platlib'))";
    Ok(output(program(python).args(["-c", script]))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_of_the_package_is_run() {
        let files = fs::read_dir(root().join("python/examples")).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut run: Vec<_> = EXAMPLES.iter().map(|(name, _)| *name).chain([TESTED]).collect();
        run.sort_unstable();
        assert_eq!(names, run);
    }
}
