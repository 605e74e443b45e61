//! `cargo xtask data`: real graphs that any Debian machine can make from the index of its package archive.
//!
//! Both graphs depend on the index alone: the same files give the same bytes. Ids number packages in the order of their
//! names, so a package has the same id in both graphs. Everything is written to a temporary folder, which is renamed
//! when it is complete.

mod classes;
mod contents;
mod descriptions;
mod index;
mod npy;
mod packages;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

pub use self::index::Source;
use self::{classes::Classes, packages::Packages};

/// Files about packages have the same names in both graphs.
const NODES: &str = "nodes.txt";

#[derive(Debug, Subcommand)]
pub enum Graph {
    /// Debian's packages and their dependencies: 63 thousand nodes and 322 thousand edges (bookworm), with features
    ///
    /// An edge leads from a package to each package that it depends on, recommends or suggests; all alternatives count.
    /// A virtual name leads to its providers, if there are at most four. Features are a signed, hashed bag of the words
    /// and tags that describe a package, without its own name. The label is the section, if it has at least 50
    /// packages. The split is by a hash of the name.
    ///
    /// Writes, by integer id: edges.npy, features.npy, labels.npy, train.npy, val.npy, test.npy; by name: edges.tsv, in
    /// which packages without edges have a self-loop, and train.txt, val.txt, test.txt; the names in the order of ids:
    /// nodes.txt, classes.txt.
    Debian(Options),
    /// Debian's packages, their files, and folders: 8.0 million nodes and 15.3 million edges (bookworm)
    ///
    /// An edge leads from a package to each of its files, from a file to its folder, and from a folder to its parent.
    /// Files and folders are numbered after the packages, in the order of their paths. Only packages have labels and
    /// splits, as in the graph of packages.
    ///
    /// Writes edges.npy, labels.npy, train.npy, val.npy, test.npy, packages.txt, classes.txt, and features.npy if
    /// requested.
    DebianContents {
        #[command(flatten)]
        options: Options,
        /// Write features with this many values (f16): hashed words of the last part of a path, and of a package's
        /// description
        #[arg(long, value_name = "D", value_parser = clap::value_parser!(u16).range(1..))]
        dim: Option<u16>,
    },
}

#[derive(Debug, Args)]
pub struct Options {
    /// The folder to create
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    source: Source,
}

/// Makes the graph, and prints its counts and the command that ingests it.
pub fn data(graph: &Graph) -> Result<()> {
    match graph {
        Graph::Debian(options) => {
            debian(&options.out, &options.source)?;
            let folder = options.out.display();
            println!(
                "To make a store of it:\n    grappa-ingest --edges {folder}/edges.tsv --ids string --self-loops drop --undirected --dedup \\\n        \
                 --features {folder}/features.npy --labels {folder}/labels.npy --train {folder}/train.txt \\\n        \
                 --val {folder}/val.txt --test {folder}/test.txt --out debian.grappa"
            );
            Ok(())
        }
        Graph::DebianContents { options, dim } => debian_contents(&options.out, &options.source, dim.map(usize::from)),
    }
}

/// Makes the graph of packages in `out`, and prints its counts.
pub fn debian(out: &Path, source: &Source) -> Result<()> {
    let work = Work::begin(out)?;
    let index = source.index(&work.folder, false)?;
    let packages = Packages::read(&index)?;
    let classes = Classes::of(&packages);
    let edges = packages.edges();
    npy::write(
        &work.file("edges.npy"),
        npy::Element::I64,
        &[edges.len() as u64, 2],
        |out| {
            edges
                .iter()
                .try_for_each(|&(source, target)| out.ids(&[source, target]))
        },
    )?;
    let long = descriptions::long(&index)?;
    let features = descriptions::features(&packages, &long);
    let dim = descriptions::DIM as u64;
    npy::write(
        &work.file("features.npy"),
        npy::Element::F32,
        &[packages.len() as u64, dim],
        |out| out.f32s(&features),
    )?;
    classes.write(&work.folder, &packages, packages.len() as u64)?;
    packages.write_named(&work.file("edges.tsv"), &edges)?;
    classes.write_named_splits(&work.folder, &packages)?;
    packages.write_names(&work.file(NODES))?;
    work.finish()?;

    println!(
        "{}: {} packages, {} edges, {dim} values a package; {classes}",
        out.display(),
        packages.len(),
        edges.len(),
    );
    let described = packages
        .list()
        .iter()
        .filter(|package| long.contains_key(&package.description_md5))
        .count();
    if described == 0 {
        println!(
            "Features are of short descriptions and tags: the index has no long descriptions (`--fetch` has apt fetch one \
             that does)."
        );
    } else {
        println!("{described} packages have a long description.");
    }
    Ok(())
}

/// Makes the graph of files in `out`, with features if `dim` is given.
fn debian_contents(out: &Path, source: &Source, dim: Option<usize>) -> Result<()> {
    let work = Work::begin(out)?;
    let index = source.index(&work.folder, true)?;
    let packages = Packages::read(&index)?;
    let classes = Classes::of(&packages);
    let features = match dim {
        None => None,
        Some(dim) => {
            let words = descriptions::bags(&packages, &descriptions::long(&index)?);
            Some(contents::Features::create(&work.file("features.npy"), dim, &words)?)
        }
    };
    let tree = contents::write(&index, &packages, &work.file("edges.npy"), features)?;
    classes.write(&work.folder, &packages, tree.nodes)?;
    packages.write_names(&work.file("packages.txt"))?;
    work.finish()?;

    println!(
        "{}: {} nodes ({} packages, {} files, {} folders), {} edges; {classes}",
        out.display(),
        tree.nodes,
        packages.len(),
        tree.files,
        tree.folders,
        tree.edges,
    );
    if tree.unknown > 0 {
        println!(
            "{} times a file was said to be of a package that the index does not have.",
            tree.unknown
        );
    }
    let folder = out.display();
    println!(
        "To make a store of it:\n    grappa-ingest --edges {folder}/edges.npy --nodes {} --undirected --dedup --labels {folder}/labels.npy \\\n        \
         {}--train {folder}/train.npy --val {folder}/val.npy --test {folder}/test.npy --out debian-contents.grappa",
        tree.nodes,
        if dim.is_some() {
            format!("--features {folder}/features.npy ")
        } else {
            String::new()
        },
    );
    Ok(())
}

/// Checks that apt has an index on this machine for the graph of packages.
///
/// # Errors
/// The error names what is missing and the remedy.
pub fn machine_has_index() -> Result<()> {
    Source::default().of_machine().map(drop)
}

/// A folder with a temporary name.
struct Work {
    folder: PathBuf,
    out: PathBuf,
}

impl Work {
    fn begin(out: &Path) -> Result<Self> {
        ensure!(
            !out.exists(),
            "{} exists: remove it, or name another folder",
            out.display()
        );
        let mut folder = out.as_os_str().to_owned();
        folder.push(".partial");
        // apt resolves relative paths in its own folder.
        let folder = std::path::absolute(&folder).context("cannot tell the current folder")?;
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self {
            folder,
            out: out.to_owned(),
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn finish(&self) -> Result<()> {
        index::remove_fetched(&self.folder)?;
        fs::rename(&self.folder, &self.out)
            .with_context(|| format!("cannot rename {} to {}", self.folder.display(), self.out.display()))
    }
}

#[cfg(test)]
mod tests;
