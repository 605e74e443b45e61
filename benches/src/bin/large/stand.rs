//! How programs are measured on a graph.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use grappa_benches::{
    cache,
    child::{self, Measured},
    disk::Disk,
    disk_use::{self, DiskUse},
    limit::MemoryLimit,
    programs,
};
use grappa_console::ByteSize;

use crate::{graph::Graph, options::Args, plan::Plan};

/// Bytes of the file that the disk's bandwidth is measured with.
const PROBE_BYTES: usize = 1 << 30;
const TRIAL_PROBE_BYTES: usize = 16 << 20;

/// A graph, and how programs are measured on it.
pub struct Stand<'a> {
    pub args: &'a Args,
    pub graph: Graph,
    pub programs: &'a Path,
    pub disk: Disk,
    pub limit: Option<MemoryLimit>,
    /// Why there is no limit although there should be one.
    unlimited: Option<String>,
}

impl<'a> Stand<'a> {
    pub fn new(args: &'a Args, graph: Graph, programs: &'a Path) -> Result<Self> {
        let limit = graph.limit(args).map(MemoryLimit::new).transpose();
        let (limit, unlimited) = match limit {
            Ok(limit) => (limit, None),
            Err(why) => (None, Some(format!("{why:#}"))),
        };
        Ok(Self { args, graph, programs, disk: bandwidth(&args.files.work)?, limit, unlimited })
    }

    /// The graph, its budget and limit, and the disk.
    pub fn described(&self) -> String {
        let limit = match (&self.unlimited, self.graph.limit(self.args)) {
            (Some(why), _) => format!("no memory limit ({why})"),
            (None, Some(limit)) => format!("a memory limit of {}, page cache included", ByteSize(limit)),
            (None, None) => "no memory limit".to_owned(),
        };
        format!(
            "**{}**: `--memory {}`, {limit}. The disk reads {}/s and writes {}/s.",
            self.name(),
            ByteSize(self.graph.memory(self.args)),
            ByteSize(self.disk.read as u64),
            ByteSize(self.disk.write as u64)
        )
    }

    /// Runs a program with a cold cache, in the limit if there is one.
    pub fn run_cold(&self, command: Command) -> Result<(Measured, DiskUse)> {
        let store = self.store();
        if store.exists() {
            cache::forget(&cache::files_below(&store)?)?;
        }
        let mut command = match &self.limit {
            Some(limit) => limit.limited(&command)?,
            None => command,
        };
        disk_use::run(&mut command, &self.args.files.work)
    }

    /// Runs `grappa-store plan` with these options and the measured bandwidth.
    pub fn plan(&self, options: &[String]) -> Result<Plan> {
        let mut command = self.program("grappa-store");
        command.args(["--json", "--quiet", "plan"]).args(options);
        command.args(["--disk-bandwidth", &(self.disk.read as u64).to_string()]);
        Ok(Plan(child::run(&mut command)?.json()?))
    }

    /// The budget, as an option of all programs.
    pub fn memory_option(&self) -> String {
        format!("--memory={}", self.graph.memory(self.args))
    }

    pub fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    pub fn store(&self) -> PathBuf {
        self.args.files.work.join("large.grappa")
    }

    pub fn name(&self) -> String {
        self.graph.name(self.args)
    }
}

fn bandwidth(work: &Path) -> Result<Disk> {
    let path = work.join("large.probe");
    let bytes = if programs::is_trial() { TRIAL_PROBE_BYTES } else { PROBE_BYTES };
    let block = vec![1; 1 << 20];
    let mut file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    for _ in 0..bytes / block.len() {
        file.write_all(&block).with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.sync_all()?;
    let disk = Disk::measure(&path);
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    disk
}
