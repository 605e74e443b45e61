//! `cargo xtask docs`: runs the commands of the README and of the other pages, as a reader pastes them.
//!
//! Each page has a folder of its own below `target/docs`, with the files of the repository that its commands name. The programs are on the
//! PATH. Each block of commands runs twice in a row, because readers repeat commands.
//!
//! A block that cannot run here comes after a line `<!-- not run: REASON -->`, which holds until the next heading or `<!-- run -->`. Rendered
//! pages do not show it. `<!-- run once: REASON -->` is for a block that the page itself says to run only once. What did not run is listed.

mod blocks;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use self::blocks::{Block, Language, Runs, blocks};
use crate::{
    command::{program, root, run, target_folder},
    extras,
    files::{copy, remove},
    wheel,
};

/// What commands of pages read.
const FILES: [&str; 1] = ["tests/data/cora"];

/// Runs the cell on stdin as often as its argument says, each time without the names of the time before.
const CELLS: &str = "import sys\ncell = compile(sys.stdin.read(), 'cell', 'exec')\nfor _ in range(int(sys.argv[1])): exec(cell, {'__name__': '__main__'})";

/// Runs the commands of all pages with the programs in the folder `profile` of the target folder.
pub fn docs(profile: &str) -> Result<()> {
    let begin = Instant::now();
    let work = target_folder().join("docs");
    remove(&work)?;
    let place = ProgramFolders {
        programs: target_folder().join(profile),
        python: extras::pyg_python(),
        packages: wheel::package()?,
    };
    let mut skipped = Vec::new();
    for page in pages()? {
        let folder = work.join(page.replace('/', "-"));
        let text = fs::read_to_string(root().join(&page)).with_context(|| format!("cannot read {page}"))?;
        for block in blocks(&text) {
            let at = format!("{page}:{}", block.line);
            match &block.runs {
                Runs::Not(reason) => skipped.push(format!("{at}: {reason}")),
                _ if block.needs_python() && place.python.is_none() => {
                    skipped.push(format!("{at}: there is no Python with PyTorch Geometric"));
                }
                Runs::Once | Runs::Twice => place.run(&folder, &at, &block)?,
            }
        }
    }
    println!("\nNot run:");
    skipped.iter().for_each(|block| println!("  {block}"));
    println!("The commands of the pages ran in {:.0} s", begin.elapsed().as_secs_f64());
    remove(&work)
}

/// The pages that have commands for users.
fn pages() -> Result<Vec<String>> {
    let folder = root().join("docs");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut pages = vec!["README.md".to_owned(), "datasets.md".to_owned()];
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        pages.extend(name.ends_with(".md").then(|| format!("docs/{name}")));
    }
    pages.sort();
    Ok(pages)
}

/// Where commands find programs.
struct ProgramFolders {
    programs: PathBuf,
    /// A Python with PyTorch Geometric.
    python: Option<PathBuf>,
    /// The folder of the Python package.
    packages: PathBuf,
}

impl ProgramFolders {
    /// Runs a block in the folder of its page, which the first one makes.
    fn run(&self, folder: &Path, at: &str, block: &Block) -> Result<()> {
        if !folder.exists() {
            for file in FILES {
                copy(&root().join(file), &folder.join(file))?;
            }
        }
        println!("\n{at}\n{}", block.text.trim_end());
        let times = if block.runs == Runs::Once { 1 } else { 2 };
        // A reader repeats a cell of a notebook in one process, and importing PyTorch Geometric takes longer than most cells.
        let processes = if block.language == Language::Python { 1 } else { times };
        for process in 1..=processes {
            let begin = Instant::now();
            self.start(folder, block, times / processes)
                .with_context(|| format!("{at}, process {process} of {processes}"))?;
            println!("[{} run(s): {:.1} s]", times / processes, begin.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Starts a process that runs a block so many times.
    fn start(&self, folder: &Path, block: &Block, times: usize) -> Result<()> {
        let mut interpreter = match (block.language, &self.python) {
            (Language::Python, Some(python)) => {
                let mut interpreter = program(python);
                interpreter.args(["-c", CELLS, &times.to_string()]);
                interpreter
            }
            (Language::Python, None) => bail!("no Python"),
            (Language::Shell, _) => {
                let mut interpreter = program("bash");
                interpreter.args(["-eu", "-o", "pipefail", "-s"]);
                interpreter
            }
        };
        let mut path = vec![self.programs.clone()];
        if let Some(folder) = self.python.as_deref().and_then(Path::parent).filter(|_| block.needs_python()) {
            path.push(folder.to_owned());
            interpreter.env("PYTHONPATH", &self.packages);
        }
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path = std::env::join_paths(path).context("the PATH cannot be extended")?;
        let mut child = interpreter
            .current_dir(folder)
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start it")?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let text = block.text.clone();
        let written = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let ended = child.wait_with_output().context("cannot wait for it")?;
        // A script that fails leaves the rest of itself unread.
        let _ = written.join();
        ensure!(
            ended.status.success(),
            "failed ({}):\n{}{}",
            ended.status,
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr)
        );
        Ok(())
    }
}

/// Builds the programs, as CI has them.
pub fn build() -> Result<()> {
    run(&mut crate::command::cargo(&crate::command::BUILD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_that_is_skipped_says_why_and_most_of_the_readme_runs() {
        for page in pages().unwrap() {
            let text = fs::read_to_string(root().join(&page)).unwrap();
            let blocks = blocks(&text);
            let reasons = blocks.iter().filter_map(|block| match &block.runs {
                Runs::Not(reason) => Some(reason),
                Runs::Once | Runs::Twice => None,
            });
            assert!(reasons.clone().all(|reason| reason.len() > 3), "{page}");
            if page == "README.md" {
                assert!(reasons.count() * 3 < blocks.len(), "{page}");
            }
        }
    }
}
