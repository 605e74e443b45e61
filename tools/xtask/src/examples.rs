//! `cargo xtask examples`: runs the examples of the library, on Cora.

use std::path::Path;

use anyhow::Result;

use crate::{
    command::{cargo, program, root, run, target_folder},
    files::{fresh, remove},
};

/// Each example with its arguments, in an order in which the first makes the store for the others. They run in a folder of their own.
const EXAMPLES: [(&str, &[&str]); 2] = [("ingest", &["CORA", "cora.grappa"]), ("minibatches", &[])];

/// Builds them alone, without libtorch.
pub fn build() -> Result<()> {
    run(&mut cargo(&["build", "--examples"]))
}

/// Runs all of them, as they were built.
pub fn examples() -> Result<()> {
    let work = target_folder().join("examples");
    fresh(&work)?;
    let cora = root().join("tests/data/cora");
    for (name, arguments) in EXAMPLES {
        let arguments = arguments.iter().map(|argument| match *argument {
            "CORA" => cora.as_path(),
            other => Path::new(other),
        });
        run(program(target_folder().join("debug/examples").join(name)).args(arguments).current_dir(&work))?;
    }
    remove(&work)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_example_is_run() {
        let files = fs::read_dir(root().join("engine/examples")).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().path().file_stem().unwrap().to_owned()).collect();
        names.sort();
        let mut run = EXAMPLES.map(|(name, _)| name);
        run.sort_unstable();
        assert_eq!(names, run);
    }
}
