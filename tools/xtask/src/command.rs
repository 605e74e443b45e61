//! Runs programs in the root of the checkout, and prints each command line first.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// The root of the checkout.
pub fn root() -> PathBuf {
    // The path of tools/xtask at compile time.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("xtask is two folders deep").to_owned()
}

/// Cargo's target folder.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Builds everything in the profile of the tests. Tasks that need a part of it build everything too: with another
/// selection of packages, Cargo would compile most dependencies again with other features.
pub const BUILD: [&str; 3] = ["build", "--workspace", "--all-targets"];

/// The Cargo that runs this task.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = program(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(args);
    command
}

/// A program that runs in the root of the checkout. Python keeps its bytecode in the target folder, even where the environment forbids
/// to write it: that saves half of each import of PyTorch Geometric, and there are dozens.
pub fn program(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command.env_remove("PYTHONDONTWRITEBYTECODE").env("PYTHONPYCACHEPREFIX", target_folder().join("bytecode"));
    command
}

/// Runs `command`, and fails if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command.status().with_context(|| cannot_start(command))?;
    ensure!(status.success(), "`{}` failed ({status})", shown(command));
    Ok(())
}

/// Runs `command`, and fails if it fails. Prints each line of its stdout and passes it to `line`.
pub fn run_with_lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<()> {
    announce(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| cannot_start(command))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    for text in BufReader::new(stdout).lines() {
        let text = text.context("reading what it prints")?;
        println!("{text}");
        line(&text);
    }
    let status = child.wait()?;
    ensure!(status.success(), "`{}` failed ({status})", shown(command));
    Ok(())
}

/// The standard output of `command` without trailing white space. An error contains its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| cannot_start(command))?;
    ensure!(
        output.status.success(),
        "`{}` failed ({}): {}",
        shown(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let stdout = String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no UTF-8", shown(command)))?;
    Ok(stdout.trim_end().to_owned())
}

/// An executable that Cargo built.
pub struct Artifact {
    /// The name of its target: a crate's name for the test program of a library.
    pub target: String,
    /// Whether it is the test program of the target.
    pub is_test: bool,
    pub executable: PathBuf,
}

/// Runs a `cargo build` or `cargo test --no-run` and returns the executables that it built, now or before.
pub fn artifacts(build: &mut Command) -> Result<Vec<Artifact>> {
    build.arg("--message-format=json-render-diagnostics");
    announce(build);
    let output = build.stderr(Stdio::inherit()).output().with_context(|| cannot_start(build))?;
    ensure!(output.status.success(), "`{}` failed ({})", shown(build), output.status);
    let mut artifacts = Vec::new();
    for line in output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("Cargo printed no JSON")?;
        if let (Some(target), Some(executable)) = (message["target"]["name"].as_str(), message["executable"].as_str()) {
            artifacts.push(Artifact {
                target: target.to_owned(),
                is_test: message["profile"]["test"] == true,
                executable: executable.into(),
            });
        }
    }
    Ok(artifacts)
}

fn announce(command: &Command) {
    eprintln!("$ {}", shown(command));
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", command.get_program().display())
}

/// The command line as typed in the root of the checkout.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = match program.strip_prefix(root()) {
        Ok(inside) => inside.display().to_string(),
        Err(_) => program.file_name().unwrap_or_default().display().to_string(),
    };
    let inside = format!("{}/", root().display());
    let words = command.get_args().map(|arg| {
        let arg = arg.to_string_lossy().replace(&inside, "");
        if arg.contains(char::is_whitespace) { format!("'{arg}'") } else { arg }
    });
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}
