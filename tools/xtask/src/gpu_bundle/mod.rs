//! `cargo xtask gpu-bundle`: a tarball with the CUDA tests, two benches and the programs that they run, which checks a GPU on a machine
//! without Rust. Users install the [wheel](crate::wheel).
//!
//! | in the tarball | |
//! |---|---|
//! | `bin` | the programs, and the script `gpu-check` |
//! | `libexec` | executables that scripts start: what links libtorch, test programs, benches |
//! | `share` | fixtures of the tests, scripts of the benches' peers, Cora, licenses of crates |
//!
//! Executables are stripped. Those that link libtorch lose their run path, which is a folder of this machine; `libexec/with-libtorch`
//! finds libtorch at run time, through Python. glibc and libstdc++ must be at least those whose symbols the executables use. README.md
//! of the tarball names these versions.

mod check;

use std::{
    fs::{self, File},
    path::{self, Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{BUILD, artifacts, cargo, output, program, root, run, target_folder},
    elf::{Needs, copy_stripped},
    files::{copy, remove, write},
    licenses,
    quickstart::Profile,
    setup,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A tarball of release builds is smaller.
const BYTES_MAX: u64 = 60 << 20;

/// An executable of the tarball.
struct Executable {
    /// Its target in Cargo.
    target: &'static str,
    /// Whether it is the target's test program.
    is_test: bool,
    /// Its path in the tarball.
    path: &'static str,
}

const fn executable(target: &'static str, is_test: bool, path: &'static str) -> Executable {
    Executable { target, is_test, path }
}

const EXECUTABLES: [Executable; 9] = [
    executable("grappa-gen", false, "bin/grappa-gen"),
    executable("grappa-ingest", false, "bin/grappa-ingest"),
    executable("grappa-store", false, "bin/grappa-store"),
    executable("grappa-train", false, "libexec/grappa-train"),
    executable("feed", false, "libexec/feed"),
    executable("training", false, "libexec/training"),
    executable("inputs", false, "libexec/inputs"),
    executable("grappa_trainer", true, "libexec/test-units"),
    executable("train", true, "libexec/test-training"),
];

/// Builds the test programs with the trainer's tests that use CUDA. The second package turns on features that it shares with
/// programs, so that nothing is compiled twice.
const TESTS_BUILD: &[&str] =
    &["test", "--no-run", "--release", "--package=grappa-trainer", "--package=grappa-console", "--lib", "--test=train"];

/// The packages of the executables.
const PACKAGES: [&str; 5] = ["grappa-gen", "grappa-ingest", "grappa-store", "grappa-train", "grappa-benches"];

/// Files of the checkout, or folders of files, and their places in the tarball.
const FILES: [(&str, &str); 8] = [
    ("LICENSE", "LICENSE"),
    ("tools/xtask/gpu-bundle/grappa-train", "bin/grappa-train"),
    ("tools/xtask/gpu-bundle/gpu-check", "bin/gpu-check"),
    ("tools/xtask/gpu-bundle/with-libtorch", "libexec/with-libtorch"),
    ("python/grappa/programs.py", "libexec/find-libtorch.py"),
    ("trainer/tests/fixtures", "share/fixtures"),
    ("benches/peers", "share/peers"),
    ("tests/data/cora", "share/cora"),
];

/// Makes the tarball in the folder `out`, by default `target/gpu-bundle`. Then tries it if `checked`.
pub fn gpu_bundle(out: Option<&Path>, profile: Profile, checked: bool) -> Result<()> {
    ensure!(cfg!(all(target_arch = "x86_64", target_os = "linux")), "a tarball for x86-64 Linux is made there");
    let libtorch = setup::setup(false)?;
    let work = target_folder().join("gpu-bundle");
    let out = path::absolute(out.unwrap_or(&work)).context("the folder of the tarball has no path")?;
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;

    // Nobody takes a tarball of slow executables for the other.
    let suffix = match profile {
        Profile::Dev => "-dev",
        Profile::Release => "",
    };
    let name = format!("grappa-gpu-{VERSION}-x86_64-linux{suffix}");
    let needs = stage(profile, &work.join(&name))?;
    let tarball = pack(&work, &name, &out)?;
    let bytes = fs::metadata(&tarball)?.len();
    println!(
        "{} ({:.1} MiB; needs glibc {}, libstdc++ GLIBCXX_{})",
        tarball.display(),
        bytes as f64 / f64::from(1 << 20),
        needs.glibc,
        needs.libstdcxx
    );
    ensure!(profile != Profile::Release || bytes < BYTES_MAX, "the tarball has {bytes} bytes, more than {BYTES_MAX}");
    if checked {
        check::check(&tarball, &name, &libtorch)?;
    }
    Ok(())
}

/// Makes the folder `staged` with everything that the tarball contains. Returns what the executables need.
fn stage(profile: Profile, staged: &Path) -> Result<Needs> {
    remove(staged)?;
    let needs = stage_executables(profile, staged)?;
    for (from, to) in FILES {
        copy(&root().join(from), &staged.join(to))?;
    }
    licenses::write_licenses(&PACKAGES, &staged.join("share/licenses"))?;
    let readme = include_str!("../../gpu-bundle/README.md")
        .replace("{version}", VERSION)
        .replace("{glibc}", &needs.glibc.to_string())
        .replace("{libstdcxx}", &needs.libstdcxx.to_string());
    write(&staged.join("README.md"), &readme)?;
    Ok(needs)
}

/// Builds the executables and puts them below `staged`: stripped, without run paths. Returns what all of them need.
fn stage_executables(profile: Profile, staged: &Path) -> Result<Needs> {
    let built = match profile {
        Profile::Dev => artifacts(&mut cargo(&BUILD))?,
        Profile::Release => {
            let mut programs = cargo(&["build", "--release"]);
            programs.args(PACKAGES.map(|package| format!("--package={package}")));
            let bins = EXECUTABLES.iter().filter(|executable| !executable.is_test);
            programs.args(bins.map(|executable| format!("--bin={}", executable.target)));
            let mut built = artifacts(&mut programs)?;
            built.extend(artifacts(&mut cargo(TESTS_BUILD))?);
            built
        }
    };
    let mut needs = Needs::default();
    for wanted in &EXECUTABLES {
        let found = built
            .iter()
            .find(|built| built.target == wanted.target && built.is_test == wanted.is_test)
            .with_context(|| format!("Cargo built no executable of the target `{}`", wanted.target))?;
        needs.add(&copy_stripped(&found.executable, &staged.join(wanted.path))?);
    }
    Ok(needs)
}

/// Packs the folder `name` in `folder` into a tarball in `out`. The same files give the same bytes.
fn pack(folder: &Path, name: &str, out: &Path) -> Result<PathBuf> {
    let [tarball, partial] = ["tar.gz", "tar.gz.partial"].map(|extension| out.join(format!("{name}.{extension}")));
    let committed =
        output(program("git").args(["log", "-1", "--format=%ct"])).context("cannot tell the date of the commit")?;
    run(program("tar")
        .args(["--create", "--gzip", "--sort=name", "--mode=u=rwX,go=rX", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{committed}"))
        .arg("--file")
        .arg(&partial)
        .arg("--directory")
        .arg(folder)
        .arg(name))?;
    File::open(&partial)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&partial, &tarball))
        .and_then(|()| File::open(out)?.sync_all())
        .with_context(|| format!("cannot write {}", tarball.display()))?;
    Ok(tarball)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source files with tests that are skipped without CUDA, and what gpu-check runs them by: the test program, and a filter.
    const CUDA_TESTS: [(&str, &str, &str); 4] = [
        ("trainer/src/nn/tests/mod.rs", "test-units", "nn::"),
        ("trainer/src/runtime.rs", "test-units", "runtime::"),
        ("trainer/src/shim/cuda.rs", "test-units", "shim::"),
        ("trainer/tests/train/main.rs", "test-training", "cuda"),
    ];

    #[test]
    fn all_cuda_tests_are_in_the_tarball() {
        let files = output(program("git").args(["grep", "--files-with-matches", concat!("!(\"CU", "DA: ")])).unwrap();
        let skipping: Vec<&str> = files.lines().filter(|file| !file.starts_with("tests/skip/")).collect();
        assert_eq!(skipping, CUDA_TESTS.map(|(file, ..)| file));
        let script = include_str!("../../gpu-bundle/gpu-check");
        let tests = script.lines().find(|line| line.starts_with("TESTS = ")).unwrap();
        for (_, test_program, filter) in CUDA_TESTS {
            let filters = tests.split_once(&format!("\"{test_program}\": [")).unwrap().1;
            let filters = filters.split_once(']').unwrap().0;
            assert!(filters.contains(&format!("\"{filter}\"")), "{filter} in {tests}");
        }
    }
}
