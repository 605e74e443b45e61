//! `cargo xtask ci`: everything that CI runs, the same way on a laptop.
//!
//! Everything is built in the profile of the tests with the same features, so each crate is compiled once. Meanwhile
//! the extras that some tests need are downloaded.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    benches,
    command::{BUILD, cargo, run, target_folder},
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

/// Checks that a plain `cargo build` or `cargo test` needs neither libtorch nor Python.
fn check_without_libtorch() -> Result<()> {
    let mut path = vec![without_python()?];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path).context("the PATH cannot be extended")?;
    run(cargo(&["check", "--bins", "--tests"]).env("PATH", path).env("LIBTORCH", "nowhere"))
}

/// A folder with a Python that always fails.
fn without_python() -> Result<PathBuf> {
    let folder = target_folder().join("without-python");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for name in ["python", "python3"] {
        let path = folder.join(name);
        fs::write(&path, "#!/bin/sh\necho 'this must do without Python' >&2\nexit 1\n")
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(folder)
}

/// The finished stages and their times.
#[derive(Default)]
struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    fn run(&mut self, name: &'static str, stage: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n== {name}");
        let begin = Instant::now();
        stage().with_context(|| format!("in the stage `{name}`"))?;
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
