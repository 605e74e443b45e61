//! Counts and names skipped tests, and writes tables of cases.
//!
//! Rust's test harness cannot skip a test at run time: a test that returns early counts as passed, and its output is
//! captured. A test that cannot run calls [`skip!`]. That writes a line to the terminal, which is not captured, and
//! appends a record to the file named by [`FILE`]. `cargo xtask test` sets that variable, subtracts the skipped tests
//! from the passed ones, and lists them with their reasons.
//!
//! ```no_run
//! # fn open_device() -> Result<(), String> { Err("no driver".into()) }
//! fn a_gpu_computes_the_same() {
//!     let device = match open_device() {
//!         Ok(device) => device,
//!         Err(why) => grappa_skip::skip!("CUDA: {why}"),
//!     };
//! }
//! ```
//!
//! A test that can run, but without some devices, engines or inputs, calls [`skip_part!`] for each of them.
//!
//! A record is a line of four tab-separated fields: `whole` or `part`, the package, the test, the reason. It is
//! appended with one write, because test programs have many threads.

#![forbid(unsafe_code)]

use std::{fs::OpenOptions, io::Write, thread};

/// The environment variable that names the file of records.
pub const FILE: &str = "GRAPPA_SKIPS";

/// Records that this test cannot run, and returns from it. Its arguments are the reason, as for `format!`. Call it in
/// the test function itself, not in a helper.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::record("whole", env!("CARGO_PKG_NAME"), &$crate::test_name!(), &format!($($reason)+));
        return
    }};
}

/// Records that a part of this test cannot run. Its arguments are the reason, as for `format!`. The test continues.
#[macro_export]
macro_rules! skip_part {
    ($($reason:tt)+) => {
        $crate::record("part", env!("CARGO_PKG_NAME"), &$crate::test_name!(), &format!($($reason)+))
    };
}

/// An array of tuples, one a line: `cases![1, "one"; 2, "two";]`. Rustfmt would give each element of a long tuple its own line, and leaves
/// such a table as it is.
#[macro_export]
macro_rules! cases {
    ($($($cell:expr),+;)+) => {
        [$(($($cell),+)),+]
    };
}

/// The path of the running test.
#[doc(hidden)]
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        $crate::running_test(std::any::type_name_of_val(&here))
    }};
}

/// The running test. The harness names the thread after it. If the test has no thread of its own, it is the function
/// around the macro, which contains `here`.
#[doc(hidden)]
pub fn running_test(here: &str) -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => {
            let function = here.trim_end_matches("::here");
            let function = function.split("::{{closure}}").next().unwrap_or(function);
            // The harness's names begin after the crate's.
            function.split_once("::").map_or(function, |(_, path)| path).to_owned()
        }
    }
}

/// Writes the line and the record.
///
/// # Panics
///
/// If either cannot be written, because an unreported skip looks like a pass.
#[doc(hidden)]
pub fn record(extent: &str, package: &str, test: &str, reason: &str) {
    let reason = reason.replace(['\t', '\n'], " ");
    let verdict = match extent {
        "part" => "SKIPPED IN PART",
        _ => "SKIPPED",
    };
    // `eprintln!` would be captured.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "{verdict} {test}: {reason}").expect("stderr can be written to");
    if let Some(path) = std::env::var_os(FILE) {
        let line = format!("{extent}\t{package}\t{test}\t{reason}\n");
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot append to {}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    const CHILD: &str = "GRAPPA_SKIP_CHILD";

    /// Skips itself when it is started again with a file for records.
    #[test]
    fn a_skipped_test_is_recorded_and_goes_no_further() {
        if std::env::var_os(CHILD).is_some() {
            skip_part!("a part:\t{}", 1);
            if true {
                skip!("all of it:\n{}", 2);
            }
            unreachable!("a skipped test has ended");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        let name = "tests::a_skipped_test_is_recorded_and_goes_no_further";
        for threads in ["1", "2"] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--test-threads", threads])
                .env(CHILD, "")
                .env(FILE, &file)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(stderr, format!("SKIPPED IN PART {name}: a part: 1\nSKIPPED {name}: all of it: 2\n"));
        }
        let records = "part\tgrappa-skip\tNAME\ta part: 1\nwhole\tgrappa-skip\tNAME\tall of it: 2\n";
        assert_eq!(fs::read_to_string(file).unwrap(), records.repeat(2).replace("NAME", name));
    }
}
