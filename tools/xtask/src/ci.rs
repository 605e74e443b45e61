//! `cargo xtask ci`: everything that CI runs, the same way on a laptop.
//!
//! Everything is built in the profile of the tests with the same features, so each crate is compiled once. Meanwhile
//! the extras that some tests need are downloaded.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    benches,
    command::{BUILD, cargo, output, run},
    docs, examples, extras, fuzz, gpu_bundle, lint,
    quickstart::{self, Dataset, Profile},
    setup, test, wheel,
};

/// Runs all checks, and the tests if `with_tests`.
pub fn ci(with_tests: bool) -> Result<()> {
    let mut stages = Stages::default();
    let fetching = thread::spawn(extras::install);
    stages.run("text", lint::text)?;
    stages.run("without libtorch", check_without_libtorch)?;
    stages.run("fetch", || {
        fetching.join().expect("what fails is reported, not panicked over");
        setup::setup(false).map(drop)
    })?;
    stages.run("build", || run(&mut cargo(&BUILD)))?;
    stages.run("lint", lint::code)?;
    stages.run("benches", benches::benches)?;
    stages.run("examples", examples::examples)?;
    stages.run("quickstart", || quickstart::quickstart(Dataset::Auto, Profile::Dev))?;
    // A second time, over what the first left.
    stages.run("quickstart", || quickstart::quickstart(Dataset::Cora, Profile::Dev))?;
    stages.run("docs", || docs::docs("debug"))?;
    stages.run("wheel", || wheel::wheel(Profile::Dev).map(drop))?;
    stages.run("gpu bundle", || gpu_bundle::gpu_bundle(None, Profile::Dev, true))?;
    stages.run("fuzz", fuzz::try_once)?;
    if !with_tests {
        println!("{}", stages.shown());
        return Ok(());
    }
    // The tests run last, because their last line is the result of everything.
    test::test(|taken| {
        stages.0.push(("test", taken));
        stages.shown()
    })
}

/// Packages that search for libtorch or Python when they are built.
const SEARCHING: [&str; 3] = ["torch-sys", "pyo3-ffi", "pyo3-build-config"];

/// Runs when crates are compiled. Its features select what it can parse, not the code that macros generate.
const MACRO_PARSER: &str = "syn ";

/// Checks that a plain `cargo build` or `cargo test` needs neither libtorch nor Python. It compiles the default members, and
/// the build of the workspace compiles the same crates. So two facts suffice: no dependency searches for libtorch or Python,
/// and each dependency has the features that the build of the workspace gives it. Compiling the default members once more would
/// take minutes, because Python's macros change the features of `syn`, on which half of all dependencies depend.
fn check_without_libtorch() -> Result<()> {
    let (plain, workspace) = (packages(&[])?, packages(&["--workspace"])?);
    for name in SEARCHING {
        let found =
            |packages: &BTreeSet<String>| packages.iter().any(|package| package.starts_with(&format!("{name} ")));
        ensure!(found(&workspace), "expected {name} among the dependencies of the workspace; correct SEARCHING");
        ensure!(
            !found(&plain),
            "a plain `cargo build` needs {name}; remove its crate from default-members in Cargo.toml"
        );
    }
    let other: Vec<_> = plain.difference(&workspace).filter(|package| !package.starts_with(MACRO_PARSER)).collect();
    ensure!(
        other.is_empty(),
        "a plain `cargo build` compiles these packages with other features than the build of the workspace: {other:?}; set their \
         features in [workspace.dependencies] of Cargo.toml"
    );
    Ok(())
}

/// Each dependency of a selection of packages, with its version and features.
fn packages(selection: &[&str]) -> Result<BTreeSet<String>> {
    let mut tree = cargo(&["tree", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p} {f}"]);
    let text = output(tree.args(selection))?;
    Ok(text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

/// The finished stages and their times.
#[derive(Default)]
struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    fn run(&mut self, name: &'static str, stage: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n== {name}");
        let begin = Instant::now();
        stage().with_context(|| format!("in the stage `{name}`"))?;
        println!("{name} took {:.0} s", begin.elapsed().as_secs_f64());
        self.0.push((name, begin.elapsed()));
        Ok(())
    }

    fn shown(&self) -> String {
        let total: Duration = self.0.iter().map(|(_, taken)| taken).sum();
        let stages: Vec<String> =
            self.0.iter().map(|(name, taken)| format!("{name} {:.0} s", taken.as_secs_f64())).collect();
        format!("\n{:.1} minutes: {}\n", total.as_secs_f64() / 60.0, stages.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_say_what_they_took_and_which_one_failed() {
        let mut stages = Stages::default();
        stages.run("first", || Ok(())).unwrap();
        let error = stages.run("second", || anyhow::bail!("broken")).unwrap_err();
        assert_eq!(format!("{error:#}"), "in the stage `second`: broken");
        stages.0 = vec![("first", Duration::from_secs(90)), ("third", Duration::from_secs(30))];
        assert_eq!(stages.shown(), "\n2.0 minutes: first 90 s, third 30 s\n");
    }
}
