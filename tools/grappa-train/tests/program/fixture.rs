//! Folders in which `grappa-train` runs, and what its runs leave there.

use std::{
    fs,
    net::TcpListener,
    ops::Deref,
    path::Path,
    process::{Child, Command, Stdio},
};

use grappa_tests::{
    folder::ProgramFolder,
    held::wait_until,
    program::{CommandWords, Ran, run},
};
use serde_json::Value;

/// A folder for a store and runs. Names are relative to it.
pub struct TrainFolder(ProgramFolder);

impl Deref for TrainFolder {
    type Target = ProgramFolder;

    fn deref(&self) -> &ProgramFolder {
        &self.0
    }
}

impl TrainFolder {
    /// A folder with a store of eight chunks.
    pub fn new() -> Self {
        Self::with("sbm --nodes 2000 --feature-dim 8 --chunks 8")
    }

    /// A folder with the store `graph.grappa`, which `grappa-gen` makes with these options.
    pub fn with(options: &str) -> Self {
        let folder = Self::empty();
        folder.generate("graph.grappa", options);
        folder
    }

    pub fn empty() -> Self {
        Self(ProgramFolder::new())
    }

    /// An empty folder on a disk.
    pub fn on_disk() -> Self {
        Self(ProgramFolder::on_disk())
    }

    /// Makes another store.
    pub fn generate(&self, store: &str, options: &str) {
        run(self.command(&format!("gen {options} --quiet --out")).arg(store)).success();
    }

    /// `grappa-train` with these arguments.
    pub fn program(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        command.current_dir(self.root()).words(arguments).stdin(Stdio::null());
        for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
            command.env_remove(variable);
        }
        command
    }

    /// `grappa-train graph.grappa` with options, on one thread.
    pub fn train_command(&self, options: &str) -> Command {
        self.program(&format!("graph.grappa --threads 1 {options}"))
    }

    /// [`Self::train_command`] without output but errors.
    pub fn train(&self, options: &str) -> Command {
        self.train_command(&format!("{options} --quiet"))
    }

    /// Runs [`Self::train_command`], which must succeed.
    #[track_caller]
    pub fn trained(&self, options: &str) -> Ran {
        run(&mut self.train_command(options)).success()
    }

    /// Rank `rank` of `ranks`, as a launcher starts it.
    pub fn rank(&self, place: [u16; 3], options: &str) -> Child {
        start_as(place, &mut self.train(options))
    }

    /// Starts two ranks with these options.
    pub fn two_ranks(&self, options: &str) -> [Child; 2] {
        let port = port();
        [0, 1].map(|number| self.rank([number, 2, port], options))
    }

    /// The records of a run's epochs.
    pub fn metrics(&self, run: &str) -> Vec<Value> {
        metrics(&self.path(run))
    }

    pub fn summary(&self, run: &str) -> Value {
        serde_json::from_str(&self.read(&format!("{run}/summary.json"))).unwrap()
    }

    pub fn wait_for_epochs(&self, run: &str, epochs: usize) {
        wait_until("an epoch", || self.metrics(run).len() >= epochs);
    }

    /// The losses of two runs are equal up to the order of sums, and so are counts.
    #[track_caller]
    pub fn assert_same_losses(&self, one: &str, other: &str, context: &str) {
        let (one, other) = (self.metrics(one), self.metrics(other));
        assert_eq!(one.len(), other.len(), "{context}");
        assert!(!one.is_empty(), "{context}");
        for (one, other) in one.iter().zip(&other) {
            for key in ["step", "sampled_edges", "gradient_bytes", "halo_bytes", "generation", "evaluated"] {
                assert_eq!(one[key], other[key], "{context}: {key}");
            }
            for key in ["loss", "val_loss", "coverage_mean", "train_accuracy"] {
                assert_close(&one[key], &other[key], &format!("{context}: {key}"));
            }
        }
    }
}

/// Two numbers are equal up to the order of sums.
#[track_caller]
pub fn assert_close(one: &Value, other: &Value, context: &str) {
    let [one, other] = [one, other].map(|value| value.as_f64().unwrap());
    assert!((one - other).abs() < 1e-3 * one.abs(), "{context} is {other} and not {one}");
}

pub fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.collect()
}

/// Starts a command as rank `rank` of `ranks`.
pub fn start_as([rank, ranks, port]: [u16; 3], command: &mut Command) -> Child {
    command
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("GLOO_SOCKET_IFNAME", "lo");
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A port that was free just now.
pub fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

pub fn end(child: Child) -> Ran {
    Ran::from(child.wait_with_output().unwrap())
}

/// Ranks end with an error, whose text has these parts. Ranks write more than one line.
#[track_caller]
pub fn assert_failed(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for part in parts {
        assert!(ran.stderr.contains(part), "{part} in {}", ran.stderr);
    }
}
