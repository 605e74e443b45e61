//! Input files of R-MAT graphs with the parameters of Graph500. They are written once and kept.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use grappa_formats::random::GOLDEN;
use grappa_ingestion::generate::{EdgeListFormat, write_edge_list, write_features};
use grappa_io::{npy, progress::Silent};
use grappa_synthetic::{Generator, Model, Recipe, Rmat};

use crate::{child, programs};

/// Edges per node.
pub const EDGE_FACTOR: f64 = 16.0;
/// Seed of the graph.
pub const SEED: u64 = 1;

/// A file of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// Edges as a NumPy array of int64, one row per edge.
    Npy,
    /// Edges as text, one line per edge.
    Tsv,
    /// Feature rows as a NumPy array of f32.
    Features,
}

/// An input on disk.
#[derive(Debug, Clone)]
pub struct InputFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Input {
    /// The name of the file for a graph of 2^`scale` nodes. `dim` is the number of features per node.
    fn file_name(self, scale: u32, dim: usize) -> String {
        match self {
            Self::Npy => format!("rmat-{scale}.npy"),
            Self::Tsv => format!("rmat-{scale}.tsv"),
            Self::Features => format!("rmat-{scale}.features-{dim}.npy"),
        }
    }

    /// The file for that graph in `work`. A child process writes it first if it does not exist.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn in_folder(self, work: &Path, scale: u32, dim: usize) -> Result<InputFile> {
        let path = work.join(self.file_name(scale, dim));
        if !path.exists() {
            eprintln!("writing {}", path.display());
            let kind = self.to_possible_value().expect("no kind is hidden");
            child::run(
                Command::new(programs::folder()?.join("inputs"))
                    .args([kind.get_name(), &scale.to_string(), &dim.to_string()])
                    .arg(work),
            )?;
        }
        let bytes = fs::metadata(&path).with_context(|| format!("cannot find {}", path.display()))?.len();
        Ok(InputFile { path, bytes })
    }

    /// Writes the file in this process. It appears when it is complete.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(self, work: &Path, scale: u32, dim: usize) -> Result<()> {
        let generator = Generator::new(Recipe::new(Model::Rmat(Rmat::graph500(scale, EDGE_FACTOR)), SEED))?;
        let path = work.join(self.file_name(scale, dim));
        match self {
            Self::Npy => drop(write_edge_list(&generator, &path, EdgeListFormat::Npy, &Silent)?),
            Self::Tsv => drop(write_edge_list(&generator, &path, EdgeListFormat::Tsv, &Silent)?),
            Self::Features => drop(write_features(&generator, dim, &path, &Silent)?),
        }
        Ok(())
    }
}

/// The `i`th of `nodes` nodes, a power of two, in an order that looks random. An odd factor permutes the ids.
pub fn scattered(i: u64, nodes: u64) -> u64 {
    i.wrapping_mul(GOLDEN).wrapping_add(SEED) % nodes
}

/// Writes an array of `count` int64 values, unless it exists.
///
/// # Errors
/// If it can't be written.
pub fn write_array(path: &Path, count: u64, value: impl Fn(u64) -> i64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let partial = path.with_extension("partial");
    write_values(&partial, count, value)
        .and_then(|()| fs::rename(partial, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn write_values(path: &Path, count: u64, value: impl Fn(u64) -> i64) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&npy::header("<i8", &[count]))?;
    for i in 0..count {
        out.write_all(&value(i).to_le_bytes())?;
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()
}

/// The number of edges in a file written as [`Input::Npy`].
///
/// # Errors
/// If there is no such file.
pub fn edges_in_npy(path: &Path) -> Result<u64> {
    let bytes = fs::metadata(path).with_context(|| format!("cannot find {}", path.display()))?.len();
    Ok((bytes - npy::HEADER_BYTES as u64) / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_array(&path, 2, |i| 1 - 2 * i as i64).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 128 + 16);
        assert_eq!(bytes[136..], (-1i64).to_le_bytes());
        write_array(&path, 1, |_| 2).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
