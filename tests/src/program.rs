//! Runs the programs as users do.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use rustix::process::Pid;
use serde_json::Value;

/// The tested programs. `grappa-train` is not one of them, because it needs libtorch.
const PROGRAMS: [&str; 3] = ["grappa-gen", "grappa-ingest", "grappa-store"];

/// Set by `cargo xtask test`, which builds the programs before.
const BUILT: &str = "GRAPPA_PROGRAMS_BUILT";

/// The path of a program. The first call in a process lets Cargo build all programs, because `cargo test` builds only
/// those of the tested package.
pub fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    assert!(PROGRAMS.contains(&name), "{name} is none of the programs");
    FOLDER.get_or_init(build).join(name)
}

fn build() -> PathBuf {
    // target/debug/deps/crash-0123456789abcdef, or target/debug/faults
    let test = std::env::current_exe().expect("a test knows its own file");
    let mut folder = test.parent().expect("a file is in a folder").to_owned();
    if folder.ends_with("deps") {
        folder.pop();
    }
    if std::env::var_os(BUILT).is_some() {
        return folder;
    }
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") => "dev",
        Some(other) => other,
        None => panic!("cannot tell the profile from {}", test.display()),
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // With tests, whose features crates already have that were built for this one.
        .args(["build", "--quiet", "--bins", "--tests", "--profile", profile, "--target-dir"])
        .arg(folder.parent().expect("a profile's folder is in the target folder"));
    for program in PROGRAMS {
        cargo.args(["--package", program]);
    }
    let output = cargo.output().expect("Cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Ran {
    /// Checks that it succeeded.
    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self
    }

    /// Checks that it failed with exit code 1 and one line on stderr that starts with `error: ` and contains each of
    /// `parts`.
    #[track_caller]
    pub fn failure(self, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        let line = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(line.starts_with("error: ") && !line.contains('\n'), "not one line: {}", self.stderr);
        for part in parts {
            assert!(line.contains(part), "expected {part:?} in: {line}");
        }
        self
    }

    /// Checks for wrong usage: exit code 2, and a usage message that contains each of `parts`.
    #[track_caller]
    pub fn misuse(self, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(2), "{}{}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "expected {part:?} in: {}", self.stderr);
        }
        self
    }

    /// The one JSON object that it printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout);
        let value: Value = value.unwrap_or_else(|e| panic!("{e}: {}{}", self.stdout, self.stderr));
        assert!(value.is_object(), "{value}");
        value
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("programs speak UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("programs speak UTF-8"),
        }
    }
}

/// Commands that take several arguments from one text.
pub trait CommandWords {
    /// Adds the words of a text as arguments.
    fn words(&mut self, text: &str) -> &mut Self;
}

impl CommandWords for Command {
    fn words(&mut self, text: &str) -> &mut Self {
        self.args(text.split_whitespace())
    }
}

/// The command of a program, without arguments, to be run or spawned.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    command.stdin(Stdio::null());
    // A reader of the tests' output has no use for the backtrace of a panic that a test provokes.
    command.env_remove("RUST_BACKTRACE");
    command
}

/// The command of a line such as `store info graph.grappa`, for `grappa-store info graph.grappa`, in a folder.
pub fn line(folder: &Path, line: &str) -> Command {
    let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
    let mut command = command(&format!("grappa-{name}"));
    command.current_dir(folder).words(arguments);
    command
}

/// The same command, with the default effect of SIGINT. Shells start background processes with SIGINT ignored, and
/// programs keep it so.
pub fn interruptible(command: &Command) -> Command {
    let mut default = Command::new("env");
    default.arg("--default-signal=INT,HUP");
    started_by(default, command)
}

/// The same command, whose files have at most `kib` KiB. It stands in for a full disk: it needs no privileges, and its
/// errors occur at the same places.
pub fn with_short_files(command: &Command, kib: u32) -> Command {
    /// The unit of a shell's `ulimit -f`, in bytes.
    const FILE_BLOCK: u32 = 512;
    let mut shell = Command::new("sh");
    let script = format!("ulimit -f {}; exec \"$@\"", kib * 1024 / FILE_BLOCK);
    shell.args(["-c", &script, "sh"]);
    started_by(shell, command)
}

/// `starter`, with a command as its last arguments.
pub fn started_by(mut starter: Command, command: &Command) -> Command {
    starter.arg(command.get_program()).args(command.get_args());
    starter.stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => starter.env(name, value),
            None => starter.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        starter.current_dir(folder);
    }
    starter
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ran {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}")).into()
}

/// `grappa-ingest --edges EDGES --out OUT`.
pub fn ingest(edges: &Path, out: &Path) -> Command {
    let mut command = command("grappa-ingest");
    command.arg("--edges").arg(edges).arg("--out").arg(out);
    command
}

/// The process of a rank that a launcher started in `folder`, whose path has no links.
pub fn process_of_rank(rank: u32, folder: &Path) -> Option<Pid> {
    let variable = format!("RANK={rank}");
    let mut processes = fs::read_dir("/proc").ok()?.flatten();
    processes.find_map(|process| {
        let number: i32 = process.file_name().to_str()?.parse().ok()?;
        let is_here = fs::read_link(process.path().join("cwd")).is_ok_and(|at| at == folder);
        let environment = fs::read(process.path().join("environ")).ok()?;
        let is_rank = environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes());
        Pid::from_raw(number).filter(|_| is_here && is_rank)
    })
}
