//! Peers that make minibatches with `benches/peers/feed.py`.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use grappa_benches::{
    cache,
    child::{self, Measured},
    peers::{self, Peer},
};
use serde_json::Value;

use crate::setup::FeedSetup;

/// Batches of a run in memory. Rates are steady after few batches, and peers are slow.
const BATCHES_IN_MEMORY: u64 = 30;

/// Whether a peer can run here.
pub struct Checked {
    pub peer: Peer,
    /// Its version, or why it can't run, with a remedy.
    pub version: Result<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRun {
    pub peer: Peer,
    pub threads: usize,
    /// Where the features are: `none`, `memory` or `mapped`.
    pub features: &'static str,
}

impl Checked {
    /// Tries a peer on a tiny graph.
    pub fn new(peer: Peer, python: Option<&Path>) -> Self {
        let checked = match python {
            None => Err("no Python with it was given".to_owned()),
            Some(python) => peers::check(peers::script(python, "feed.py", 1).args(["check", peer.name()])),
        };
        let remedy = match peer {
            Peer::GraphBolt | Peer::Dgl => {
                "see benches/README.md for how to install DGL, then `--peers-python peers/bin/python`"
            }
            Peer::Pyg => {
                "see benches/README.md for how to install PyG with pyg-lib or torch-sparse, then `--pyg-python pyg/bin/python`"
            }
        };
        let version = checked.map_err(|why| format!("{why}; {remedy}")).map(|stdout| {
            let told: Value = serde_json::from_str(&stdout).unwrap_or_default();
            told["version"].as_str().unwrap_or_default().to_owned()
        });
        Self { peer, version }
    }
}

impl fmt::Display for PeerRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, threads, .. } = self;
        match self.features {
            "none" => write!(f, "sampling, {threads} thread(s): {peer}"),
            "memory" => write!(f, "in memory, f32, {threads} threads: {peer}"),
            _ => write!(f, "out of core, f32: {peer}"),
        }
    }
}

impl PeerRun {
    /// Measures it. Mapped features are read within the limit, from a cold page cache.
    pub fn run(self, setup: &FeedSetup) -> Result<Measured> {
        let folder = self.arrays(setup)?;
        let is_mapped = self.features == "mapped";
        let batches = if is_mapped { setup.args.peer_batches } else { BATCHES_IN_MEMORY };
        let mut command = self.script(setup);
        command.args(["run", self.peer.name()]).arg(&folder).arg(&setup.seeds);
        command.args([&batches.to_string(), &self.threads.to_string(), self.features]);
        if !is_mapped {
            return child::run(&mut command);
        }
        cache::forget(&cache::files_below(&folder)?)?;
        setup.limited(&command)
    }

    /// The graph's arrays, for all peers; made first if they do not exist.
    fn arrays(self, setup: &FeedSetup) -> Result<PathBuf> {
        let folder = setup.args.files.work.join(format!("feed-{}-peer", setup.args.scale));
        if !folder.join("indptr.npy").exists() {
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
            let mut export = Command::new(setup.programs.join("grappa-store"));
            export.arg("export").arg(setup.store("f32")?).arg("--quiet");
            export.arg("--edges").arg(folder.join("edges.npy"));
            child::run(export.arg("--features").arg(folder.join("features.npy")))?;
            child::run(self.script(setup).arg("prepare").arg(&folder))?;
        }
        Ok(folder)
    }

    fn script(self, setup: &FeedSetup) -> Command {
        let python = setup.args.python(self.peer).expect("a peer is a contender only if it has a Python");
        peers::script(python, "feed.py", self.threads)
    }
}
