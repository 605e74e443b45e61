//! Grappa's programs, built as users build them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// Set by `cargo xtask benches`, which runs each bench at a tiny size to see that it works.
const TRIAL: &str = "GRAPPA_BENCH_TRIAL";

/// Whether this is a trial. Its programs need not be optimized; its figures mean nothing and are not recorded.
pub fn is_trial() -> bool {
    env::var_os(TRIAL).is_some()
}

/// Names the folder of an unpacked `cargo xtask gpu-bundle`, whose programs and peers are used instead of the checkout's.
const BUNDLE: &str = "GRAPPA_BUNDLE";

/// That folder, if there is one.
pub fn bundle() -> Option<PathBuf> {
    env::var_os(BUNDLE).map(PathBuf::from)
}

/// Builds the packages `names` in release mode and returns the folder of their programs. In a trial they exist already,
/// beside this program; in an unpacked `cargo xtask gpu-bundle` too.
///
/// # Errors
/// If this program was not built in release mode, or cargo fails.
pub fn build(names: &[&str]) -> Result<PathBuf> {
    if let Some(bundle) = bundle() {
        return Ok(bundle.join("bin"));
    }
    if is_trial() {
        return folder();
    }
    if cfg!(debug_assertions) {
        bail!("measure with optimized programs: cargo run --release");
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet"]);
    for name in names {
        command.args(["-p", name]);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let status = command.current_dir(workspace).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo could not build {}", names.join(", "));
    }
    folder()
}

/// The folder of this program, and of all others of the workspace.
///
/// # Errors
/// If the system does not name this program.
pub fn folder() -> Result<PathBuf> {
    let this = env::current_exe().context("cannot find this program")?;
    Ok(this.parent().expect("a program is in a folder").to_owned())
}

/// The command that started this program, as a person would type it. Folders of this machine are left out.
///
/// # Errors
/// If the system does not name this program.
pub fn command_line() -> Result<String> {
    let this = env::current_exe().context("cannot find this program")?;
    let bin = this.file_name().unwrap_or_default().to_string_lossy();
    let arguments: Vec<String> = env::args()
        .skip(1)
        .map(|argument| {
            if Path::new(&argument).is_absolute() {
                let name = Path::new(&argument).file_name().unwrap_or_default().to_string_lossy().into_owned();
                format!(".../{name}")
            } else {
                argument
            }
        })
        .collect();
    let program = match bundle() {
        Some(_) => format!("libexec/{bin}"),
        None => format!("cargo run --release -p grappa-benches --bin {bin} --"),
    };
    let command = format!("{program} {}", arguments.join(" "));
    Ok(command.trim_end().to_owned())
}
