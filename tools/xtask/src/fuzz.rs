//! `cargo xtask fuzz`: runs the fuzz targets of tests/fuzz in libFuzzer, on stable Rust.
//!
//! Inputs that reach new code are kept in `target/fuzz/TARGET/corpus`; the next run starts with them. Inputs that break a
//! promise are saved beside the targets, and a test runs them from then on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{cargo, program, root, run, target_folder},
    setup,
};

/// What cargo-fuzz passes, but for the sanitizer of memory: counters of edges, and calls at comparisons, divisions and indices. These
/// flags replace the flags of .cargo/config.toml, so they repeat its processor.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-trace-divs \
                        -Cllvm-args=-sanitizer-coverage-trace-geps -Ctarget-cpu=x86-64-v3";

/// Build scripts and macros of the host link no libFuzzer, so programs with counters are built for a target by name.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// The longest input. Bugs need structure, not size, and short inputs run faster.
const INPUT_BYTES_MAX: u64 = 32 << 10;

/// Seconds for an input. A slow machine under load runs the slowest in a hundredth of it.
const INPUT_SECONDS_MAX: u64 = 20;

/// Fuzzes one target, or all, for `seconds` each, with counters of edges.
pub fn fuzz(target: Option<&str>, seconds: u64) -> Result<()> {
    let fuzzer = build_with_coverage()?;
    let targets = prepare(&fuzzer)?;
    if let Some(target) = target {
        ensure!(
            targets.iter().any(|name| name == target),
            "no target is called {target}; the targets are {}",
            targets.join(", ")
        );
        return fuzz_target(&fuzzer, target, seconds);
    }
    targets.iter().try_for_each(|target| fuzz_target(&fuzzer, target, seconds))
}

/// Runs one target for a moment, in a build without counters, to see that fuzzing works. To compile all once more, with counters, would
/// take minutes.
pub fn try_once() -> Result<()> {
    let fuzzer = build()?;
    prepare(&fuzzer)?;
    fuzz_target(&fuzzer, "checkpoint", 2)
}

fn work_folder() -> PathBuf {
    target_folder().join("fuzz")
}

/// Writes the seeds and words of all targets, and returns the names of the targets.
fn prepare(fuzzer: &Path) -> Result<Vec<String>> {
    let work = work_folder();
    run(program(fuzzer).env("GRAPPA_FUZZ_PREPARE", &work))?;
    let entries = fs::read_dir(&work).with_context(|| format!("cannot list {}", work.display()))?;
    let mut targets = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()?;
    targets.retain(|target| work.join(target).join("seeds").exists());
    targets.sort();
    Ok(targets)
}

fn fuzz_target(fuzzer: &Path, target: &str, seconds: u64) -> Result<()> {
    let work = work_folder().join(target);
    let words = work.join("words");
    let (corpus, found) = (work.join("corpus"), root().join("tests/fuzz/found").join(target));
    let had_found = found.exists();
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let ran = run(program(fuzzer)
        .env("GRAPPA_FUZZ_TARGET", target)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .args(words.exists().then(|| format!("-dict={}", words.display())))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-verbosity=0", "-print_final_stats=1"])
        .arg(&corpus)
        .arg(work.join("seeds"))
        .arg(&found));
    if !had_found && ran.is_ok() {
        fs::remove_dir(&found).with_context(|| format!("cannot remove {}", found.display()))?;
    }
    ran
}

/// Builds the fuzzer in the profile of the tests, without counters, and returns its path.
fn build() -> Result<PathBuf> {
    setup::setup(false)?;
    // The whole workspace, so that dependencies have the features of `cargo xtask test`.
    run(&mut cargo(&["build", "--workspace", "--features", "grappa-fuzz/libfuzzer", "--bin", "grappa-fuzz"]))?;
    Ok(target_folder().join("debug/grappa-fuzz"))
}

/// Builds the fuzzer and its dependencies with optimization, assertions and counters of edges, and returns its path.
fn build_with_coverage() -> Result<PathBuf> {
    let folder = target_folder().join("coverage");
    run(cargo(&["build", "--release", "--package", "grappa-fuzz", "--features", "libfuzzer"])
        .args(["--target", HOST])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"))?;
    Ok(folder.join(HOST).join("release/grappa-fuzz"))
}
