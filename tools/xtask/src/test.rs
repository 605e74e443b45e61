//! `cargo xtask test`: all tests of the workspace in one run of Cargo, so that nothing is compiled twice.

use std::{env, ffi::OsString};

use anyhow::Result;

use crate::{
    command::{cargo, run_with_lines},
    setup,
};

pub fn test() -> Result<()> {
    let libtorch = setup::setup(false)?;

    // Programs carry a run path; documentation tests can't.
    let mut library_path = OsString::from(libtorch.join("lib"));
    if let Some(more) = env::var_os("LD_LIBRARY_PATH") {
        library_path.push(":");
        library_path.push(more);
    }

    let mut total = Count::default();
    let result = run_with_lines(
        cargo(&["test", "--workspace", "--no-fail-fast"]).env("LD_LIBRARY_PATH", library_path),
        |line| total.add(line),
    );
    // One figure for all of the test programs.
    println!("\n{} passed, {} failed", total.passed, total.failed);
    result
}

#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
}

impl Count {
    /// Adds up lines such as `test result: ok. 12 passed; 0 failed; 0 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|result| result.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count.split_once(' ') {
                Some((n, "passed")) => self.passed += n.parse().unwrap_or(0),
                Some((n, "failed")) => self.failed += n.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_test_programs_are_added_up() {
        let mut total = Count::default();
        for line in [
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test a::b ... ok",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ] {
            total.add(line);
        }
        assert_eq!((total.passed, total.failed), (15, 2));
    }
}
