//! `cargo xtask wheel`: the wheel with the Python package, whose module contains all programs but `grappa-train`, and with that program. It is
//! installed into a fresh environment and tested there.
//!
//! Cargo builds both as it builds everything else, so that CI compiles nothing twice. maturin would compile
//! the module alone, with other features of its dependencies; it writes the metadata. Executables are stripped. `grappa-train` has
//! no run path: `grappa/programs.py` starts it with the libtorch of PyTorch. The tag of the platform follows from the symbols that all of
//! them need of glibc; a wheel for older systems must be built on one.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{BUILD, cargo, output, program, root, run, target_folder},
    data,
    elf::{Needs, copy_stripped},
    extras,
    files::{copy, fresh, remove},
    licenses,
    quickstart::Profile,
    setup,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A wheel of release builds is smaller.
const BYTES_MAX: u64 = 18_000_000;

/// The program with an executable of its own, because it links libtorch; and its package.
const TRAINER: &str = "grappa-train";

/// The programs in the Python module.
const PROGRAMS: [&str; 3] = ["grappa-ingest", "grappa-gen", "grappa-store"];

/// The package of the Python module.
const MODULE: &str = "grappa-python";

/// The examples of the package with their arguments, small enough for CI.
const EXAMPLES: [(&str, &[&str]); 4] =
    [("sage_cora.py", &[]), ("inference.py", &[]), (DEBIAN, &["debian"]), ("out_of_core.py", &[])];
/// It needs tables from apt's index.
const DEBIAN: &str = "gat_debian.py";
/// A test of the package runs it with torchrun.
#[cfg(test)]
const TESTED: &str = "ddp_partitions.py";

/// Builds the wheel. Tests it in an environment that has only what it needs, and then with the PyTorch Geometric of [`extras`], if
/// that is installed. Returns the wheel.
pub fn wheel(profile: Profile) -> Result<PathBuf> {
    let libtorch = setup::setup(false)?;
    let folder = target_folder().join("wheel");
    match profile {
        Profile::Dev => run(&mut cargo(&BUILD))?,
        Profile::Release => run(&mut cargo(&["build", "--release", "--package", MODULE, "--package", TRAINER]))?,
    }
    let (package, needs) = stage(profile)?;
    let wheel = pack(&folder, &package, &needs)?;
    let bytes = fs::metadata(&wheel)?.len();
    ensure!(profile != Profile::Release || bytes <= BYTES_MAX, "the wheel has {bytes} bytes, more than {BYTES_MAX}");

    let venv = folder.join("venv");
    remove(&venv)?;
    let python = setup::python_of(&venv)?;
    run(setup::pip(&python).arg(&wheel).arg("pytest"))?;
    check_types(&folder, &python)?;
    start_programs(&venv.join("bin"), &folder, &libtorch)?;
    test(&python, &[])?;
    match extras::pyg_python() {
        Some(pyg) => {
            let packages = [site_packages(&python)?];
            test(&pyg, &packages)?;
            examples(&pyg, &packages)?;
        }
        None => eprintln!(
            "no PyTorch Geometric: the tests that need it and the examples were skipped (`cargo xtask setup --tests` installs it)"
        ),
    }
    println!("{} ({:.1} MB)", wheel.display(), bytes as f64 / 1e6);
    Ok(wheel)
}

/// A folder that Python imports the package from, with the last build of the workspace.
pub fn package() -> Result<PathBuf> {
    Ok(stage(Profile::Dev)?.0)
}

/// Makes that folder from a build. Returns what its executables need, too.
fn stage(profile: Profile) -> Result<(PathBuf, Needs)> {
    let built = profile.folder();
    let packages = target_folder().join("wheel/package");
    remove(&packages)?;
    let package = packages.join("grappa");
    copy(&root().join("python/grappa"), &package)?;
    let mut needs = copy_stripped(&built.join("lib_grappa.so"), &package.join("_grappa.abi3.so"))
        .context("the module is missing: build the workspace first")?;
    needs.add(&copy_stripped(&built.join(TRAINER), &package.join("_programs").join(TRAINER))?);
    Ok((packages, needs))
}

/// Packs the staged folder into a wheel, which has metadata and licenses too.
fn pack(folder: &Path, packages: &Path, needs: &Needs) -> Result<PathBuf> {
    let (tools, wheels) = (setup::python_of(&folder.join("tools"))?, folder.join("dist"));
    run(setup::pip(&tools).args(["maturin>=1.16,<2", "wheel>=0.45,<1", "mypy>=2.4,<3"]))?;
    let tag = format!("manylinux_{}", needs.glibc.to_string().replace('.', "_"));
    run(program(&tools)
        .args(["-m", "maturin", "pep517", "write-dist-info", "--auditwheel", "skip", "--interpreter"])
        .arg(&tools)
        .args(["--compatibility", &tag, "--metadata-directory"])
        .arg(packages)
        .current_dir(root().join("python")))?;
    let metadata = packages.join(format!("grappa-{VERSION}.dist-info"));
    let described = fs::read_to_string(metadata.join("WHEEL")).context("maturin wrote no metadata")?;
    ensure!(described.contains(&tag) || described.contains("linux_x86_64"), "expected a tag of Linux in {described}");
    // maturin knows the platform only after it has compiled.
    fs::write(metadata.join("WHEEL"), described.replace("-linux_x86_64", &format!("-{tag}_x86_64")))?;
    copy(&root().join("LICENSE"), &metadata.join("licenses/LICENSE"))?;
    licenses::write_licenses(&[TRAINER, MODULE], &metadata.join("licenses/crates"))?;

    fresh(&wheels)?;
    run(program(&tools).args(["-m", "wheel", "pack"]).arg(packages).arg("--dest-dir").arg(&wheels))?;
    let mut found = fs::read_dir(&wheels)?.map(|entry| entry.map(|entry| entry.path()));
    found.next().context("no wheel was packed")?.map_err(Into::into)
}

/// Checks the types of the package, with the packages of an environment, and a program that uses it.
fn check_types(folder: &Path, python: &Path) -> Result<()> {
    let tools = setup::python_of(&folder.join("tools"))?;
    let user: &[&str] = &["--strict", "--follow-imports=silent", "tests/typed_user.py"];
    for checked in [&["--package", "grappa"], user] {
        run(program(&tools)
            .args(["-m", "mypy", "--cache-dir"])
            .arg(folder.join("mypy"))
            .arg("--python-executable")
            .arg(python)
            .args(checked)
            .current_dir(root().join("python")))?;
    }
    Ok(())
}

/// Starts each program of an environment that has no PyTorch. `grappa-train` says what it lacks, and starts with a PyTorch beside.
fn start_programs(bin: &Path, folder: &Path, libtorch: &Path) -> Result<()> {
    let start = |name: &str| {
        let mut command = Command::new(bin.join(name));
        // As in a user's shell, not as in a checkout.
        command.current_dir(folder).env_remove("LD_LIBRARY_PATH").env_remove("PYTHONPATH").arg("--version");
        command
    };
    for name in PROGRAMS {
        let shown = output(&mut start(name))?;
        ensure!(shown == format!("{name} {VERSION}"), "expected the version of {name}, found {shown:?}");
    }
    let failed = start(TRAINER).output().context("cannot start grappa-train")?;
    let told = String::from_utf8_lossy(&failed.stderr);
    ensure!(
        failed.status.code() == Some(1) && told.contains("has no PyTorch") && told.contains("grappa[train]"),
        "expected that grappa-train misses PyTorch, found {}: {told}",
        failed.status
    );
    let beside = folder.join("torch");
    fresh(&beside)?;
    symlink(fs::canonicalize(libtorch)?, beside.join("torch"))?;
    run(start(TRAINER).env("PYTHONPATH", &beside))
}

/// Runs the tests of the package. Python imports from `packages`, too.
fn test(python: &Path, packages: &[PathBuf]) -> Result<()> {
    let mut tests = program(python);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]);
    tests.env("PYTHONPATH", env::join_paths(packages)?);
    run(&mut tests)
}

/// Runs the examples of the package in a folder of their own.
fn examples(python: &Path, packages: &[PathBuf]) -> Result<()> {
    let work = target_folder().join("wheel/examples");
    fresh(&work)?;
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
        run(example.env("PYTHONPATH", env::join_paths(packages)?).current_dir(&work))?;
    }
    remove(&work)
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
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut run: Vec<_> = EXAMPLES.iter().map(|(name, _)| *name).chain([TESTED]).collect();
        run.sort_unstable();
        assert_eq!(names, run);
    }
}
