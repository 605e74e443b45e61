//! Graphs as plain files: one of edges, and NumPy arrays of what nodes have, named after it.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};
use grappa_console::{Bars, Built};
use grappa_engine::{
    generate::{
        Generator, Split, check_features_memory, print_edge_list, write_classes, write_edge_list, write_features,
        write_split,
    },
    io::durable::Destination,
};

use crate::args::FileOptions;

pub fn print(options: &FileOptions, bars: &Bars) -> Result<()> {
    let generator = Generator::new(options.recipe.clone())?;
    let mut out = grappa_console::stdout();
    pool(options)?.install(|| print_edge_list(&generator, &mut out, bars))?;
    out.flush().context("cannot write to stdout")
}

fn pool(options: &FileOptions) -> Result<rayon::ThreadPool> {
    grappa_engine::io::check_threads(options.threads)?;
    rayon::ThreadPoolBuilder::new().num_threads(options.threads).build().context("cannot start threads")
}

/// Contents of a file of node data.
#[derive(Clone, Copy)]
enum NodeFile {
    Features(usize),
    Classes,
    Split(Split),
}

/// Writes all files, or none, for a program that began at `begin`. If files are replaced, each is when its new content is complete.
pub fn write(options: &FileOptions, begin: Instant, bars: &Bars) -> Result<Built> {
    let generator = Generator::new(options.recipe.clone())?;
    let mut node_files = Vec::new();
    node_files.extend(options.feature_dim.map(|dim| NodeFile::Features(dim as usize)));
    if generator.classes() > 0 {
        node_files.push(NodeFile::Classes);
        // A list without ids is no input of ingest.
        let splits = [Split::Train, Split::Val, Split::Test]
            .into_iter()
            .filter(|split| (0..generator.nodes()).any(|label| generator.split(label) == Some(*split)));
        node_files.extend(splits.map(NodeFile::Split));
    }
    let node_files: Vec<_> = node_files.into_iter().map(|file| (file, file.path(&options.edges))).collect();
    // Checked before the work, which may take hours.
    let mut paths = node_files.iter().map(|(_, path)| path).chain([&options.edges]);
    paths.try_for_each(|path| options.destination(path).check())?;

    let pool = pool(options)?;
    let mut finished = Vec::new();
    let made = pool.install(|| {
        if let Some(dim) = options.feature_dim {
            let remedy = "raise --memory, or give fewer --classes or a smaller --feature-dim";
            check_features_memory(&generator, dim as usize, options.memory, remedy)?;
        }
        let written = write_edge_list(&generator, options.destination(&options.edges), options.format, bars)?;
        finished.push(&options.edges);
        let mut bytes = written.bytes;
        for (file, path) in &node_files {
            bytes += file.write(&generator, options.destination(path), bars)?;
            finished.push(path);
        }
        Ok(Built {
            nodes: generator.nodes(),
            edges: written.edges,
            bytes_on_disk: bytes,
            files: finished.iter().map(|path| path.display().to_string()).collect(),
            ..Built::new(options.edges.display().to_string(), begin.elapsed(), written.edges)
        })
    });
    if made.is_err() && !options.replace {
        // Only the files of this run, because another process may write the same graph. A failed removal would hide the error.
        for path in finished {
            let _ = std::fs::remove_file(path);
        }
    }
    made
}

impl FileOptions {
    fn destination<'a>(&self, path: &'a Path) -> Destination<'a> {
        Destination { path, replaces: self.replace }
    }
}

impl NodeFile {
    fn path(self, edges: &Path) -> PathBuf {
        let name = match self {
            Self::Features(_) => "features",
            Self::Classes => "labels",
            Self::Split(split) => split.name(),
        };
        edges.with_extension(format!("{name}.npy"))
    }

    fn write(self, generator: &Generator, out: Destination<'_>, bars: &Bars) -> Result<u64> {
        Ok(match self {
            Self::Features(dim) => write_features(generator, dim, out, bars)?,
            Self::Classes => write_classes(generator, out, bars)?,
            Self::Split(split) => write_split(generator, split, out, bars)?,
        })
    }
}
