//! `cargo xtask test`: runs all tests of the workspace. They are built together, because Cargo compiles shared
//! dependencies again for each selection of packages.
//!
//! Rust's harness cannot skip a test at run time, so tests that cannot run append to a file (tests/skip). They are
//! subtracted from the passed tests and listed with their reasons. The last line has the counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fmt::Write,
    fs,
    io::ErrorKind,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    command::{cargo, run, run_with_lines, target_folder},
    extras, setup,
};

/// Names the file that skipped tests append to.
const SKIPS: &str = "GRAPPA_SKIPS";

/// Builds the tests and the programs that they run. Benches are left out; features are as in [`crate::command::BUILD`].
const TEST_BUILD: [&str; 11] = [
    "build",
    "--workspace",
    "--tests",
    "--bin",
    "grappa-gen",
    "--bin",
    "grappa-ingest",
    "--bin",
    "grappa-store",
    "--bin",
    "grappa-train",
];

/// Test programs print how long each test ran. The harness on stable Rust does so if this variable is set for test programs alone: set for
/// Cargo, it would compile dependencies again.
const TEST_PROGRAMS: [&str; 10] = [
    "--lib",
    "--bins",
    "--tests",
    "--examples",
    "--config",
    "target.'cfg(all())'.runner=['env', 'RUSTC_BOOTSTRAP=1']",
    "--",
    "-Z",
    "unstable-options",
    "--report-time",
];

/// Number of slow tests that are listed.
const SLOWEST: usize = 20;

/// Tells the end-to-end tests that the programs are built.
const BUILT: &str = "GRAPPA_PROGRAMS_BUILT";

/// Runs all tests. Prints `before`, called with their time, before their result.
pub fn test(before: impl FnOnce(Duration) -> String) -> Result<()> {
    let begin = Instant::now();
    let libtorch = setup::setup(false)?;
    let skips = target_folder().join("skips");
    match fs::remove_file(&skips) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", skips.display()));
        }
        _ => {}
    }

    run(&mut cargo(&TEST_BUILD))?;

    // Programs have a run path. Documentation tests can't have one.
    let mut library_path = OsString::from(libtorch.join("lib"));
    if let Some(more) = env::var_os("LD_LIBRARY_PATH") {
        library_path.push(":");
        library_path.push(more);
    }
    let with_environment = |arguments: &[&str]| {
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", &library_path)
            .env(SKIPS, &skips)
            .env(BUILT, "1")
            // Tests and their programs run beside each other. Threads of libtorch that spin while they wait take the processors from
            // the others: training tests took twice the processor time.
            .env("OMP_WAIT_POLICY", "passive");
        // On a single processor the harness runs tests on the main thread, which is not named after the test.
        if thread::available_parallelism().is_ok_and(|threads| threads.get() == 1) {
            command.env("RUST_TEST_THREADS", "2");
        }
        if let Some(python) = extras::pyg_python() {
            command.env(extras::PYG_PYTHON, python);
        }
        command
    };

    let mut count = Count::default();
    let programs = run_with_lines(&mut with_environment(&TEST_PROGRAMS), |line| count.add(line));
    count.end();
    let documentation = run_with_lines(&mut with_environment(&["--doc"]), |line| count.add(line));
    count.end();
    let result = programs.and(documentation);
    let skips = Skips::read(&skips)?;
    if count.is_empty() {
        result?;
        bail!("no test ran");
    }
    print!("{}\n{}{}", before(begin.elapsed()), count.slowest(), summary(&count, &skips));
    result
}

/// The skipped tests with reasons; the last line has the counts of all test programs.
fn summary(count: &Count, skips: &Skips) -> String {
    let mut text = String::new();
    for (title, skipped) in [("Skipped", &skips.whole), ("Passed without a part", &skips.part)] {
        if skipped.is_empty() {
            continue;
        }
        writeln!(text, "{title}:").expect("a string takes all");
        for (test, reasons) in skipped {
            let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
            writeln!(text, "    {test}: {}", reasons.join("; ")).expect("a string takes all");
        }
    }
    let skipped = skips.whole.len() as u64;
    let passed = count.passed.saturating_sub(skipped);
    let skipped = skipped + count.ignored;
    writeln!(text, "{passed} passed, {} failed, {skipped} skipped", count.failed).expect("a string takes all");
    text
}

/// The results of test programs, from their output.
#[derive(Debug, Default, PartialEq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// The program that runs, from `running 12 tests` until its result.
    running: Option<Running>,
    /// Seconds and name of each test that printed its time.
    times: Vec<(f64, String)>,
}

#[derive(Debug, Default, PartialEq)]
struct Running {
    tests: u64,
    passed: u64,
}

impl Count {
    /// Takes a line of output. Lines such as `test result: ok. 12 passed; 0 failed; 0 ignored; ...` are added up; the others tell how far a
    /// program came.
    fn add(&mut self, line: &str) {
        if let Some((tests, _)) = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test")) {
            self.end();
            self.running = Some(Running { tests: tests.parse().unwrap_or(0), passed: 0 });
        } else if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... ")) {
            let (outcome, time) = outcome.split_once(" <").unwrap_or((outcome, ""));
            if let (Some(running), "ok") = (&mut self.running, outcome) {
                running.passed += 1;
            }
            if let Ok(seconds) = time.trim_end_matches("s>").parse() {
                self.times.push((seconds, name.to_owned()));
            }
        } else if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|result| result.split_once(". "))
        {
            self.running = None;
            for count in counts.split("; ") {
                match count.split_once(' ') {
                    Some((n, "passed")) => self.passed += n.parse().unwrap_or(0),
                    Some((n, "failed")) => self.failed += n.parse().unwrap_or(0),
                    Some((n, "ignored")) => self.ignored += n.parse().unwrap_or(0),
                    _ => {}
                }
            }
        }
    }

    /// Ends the program that runs. One that died gave no result: what it had not passed counts as failed.
    fn end(&mut self) {
        if let Some(Running { tests, passed }) = self.running.take() {
            self.passed += passed;
            self.failed += tests.saturating_sub(passed).max(1);
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The slowest tests with their seconds, a line each.
    fn slowest(&mut self) -> String {
        self.times.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let all: f64 = self.times.iter().map(|(seconds, _)| seconds).sum();
        let mut text = format!("Slowest of {} tests ({all:.0} s in sum):\n", self.times.len());
        for (seconds, name) in self.times.iter().take(SLOWEST) {
            writeln!(text, "    {seconds:.1} s {name}").expect("a string takes all");
        }
        text
    }
}

/// Tests by package and name, with the reasons of each.
#[derive(Debug, Default)]
struct Skips {
    whole: BTreeMap<String, BTreeSet<String>>,
    part: BTreeMap<String, BTreeSet<String>>,
}

impl Skips {
    /// Reads the file that tests append to; empty if it does not exist.
    fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Parses lines with the extent, the package, the test and the reason.
    fn parse(text: &str) -> Result<Self> {
        let mut skips = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.splitn(4, '\t').collect();
            let (extent, test, reason) = match fields[..] {
                [extent, package, test, reason] => (extent, format!("{package} {test}"), reason),
                _ => bail!("expected four fields in the list of skipped tests, found `{line}`"),
            };
            let tests = match extent {
                "whole" => &mut skips.whole,
                "part" => &mut skips.part,
                _ => bail!("expected `whole` or `part` in the list of skipped tests, found `{line}`"),
            };
            tests.entry(test).or_default().insert(reason.to_owned());
        }
        // A test that is skipped as a whole has not passed.
        let whole = &skips.whole;
        skips.part.retain(|test, _| !whole.contains_key(test));
        Ok(skips)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: [&str; 3] = [
        "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        "test a::b ... ok",
        "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s",
    ];

    fn count() -> Count {
        let mut count = Count::default();
        RESULTS.iter().for_each(|line| count.add(line));
        count
    }

    #[test]
    fn results_of_several_test_programs_are_added_up() {
        let text = summary(&count(), &Skips::default());
        assert_eq!(text, "15 passed, 2 failed, 1 skipped\n");
    }

    #[test]
    fn tests_of_a_program_that_died_have_failed() {
        let mut count = count();
        let died = ["running 4 tests", "test a ... ok", "test b ... FAILED", "test c ... ok"];
        died.iter().for_each(|line| count.add(line));
        let next = ["running 1 test", "test d ... ok", RESULTS[0]];
        next.iter().for_each(|line| count.add(line));
        ["running 1 test", "test e ... ok"].iter().for_each(|line| count.add(line));
        count.end();
        assert_eq!(summary(&count, &Skips::default()), "30 passed, 5 failed, 1 skipped\n");
    }

    #[test]
    fn slow_tests_are_listed_by_their_times() {
        let mut count = Count::default();
        ["running 3 tests", "test a ... ok <0.102s>", "test b ... FAILED <2.04s>", "test c ... ok <11.3s>"]
            .iter()
            .for_each(|line| count.add(line));
        assert_eq!(count.slowest(), "Slowest of 3 tests (13 s in sum):\n    11.3 s c\n    2.0 s b\n    0.1 s a\n");
        count.end();
        assert_eq!((count.passed, count.failed), (2, 1));
    }

    #[test]
    fn a_skipped_test_has_not_passed_and_is_listed_with_its_reasons() {
        let skips = Skips::parse(
            "part\ta\tx::y\tCUDA: no driver\n\
             whole\ta\tx::z\tno browser\n\
             part\ta\tx::y\tCUDA: no driver\n\
             part\ta\tx::y\tno io_uring\n\
             part\ta\tx::z\tno io_uring\n\
             whole\tb\tx::z\tno\tbrowser\n",
        )
        .unwrap();
        assert_eq!(
            summary(&count(), &skips),
            "Skipped:\n    a x::z: no browser\n    b x::z: no\tbrowser\n\
             Passed without a part:\n    a x::y: CUDA: no driver; no io_uring\n\
             13 passed, 2 failed, 3 skipped\n"
        );
        Skips::parse("whole\ta\n").unwrap_err();
        Skips::parse("some\ta\tb\tc\n").unwrap_err();
    }
}
