//! The files of a table in the folder of a run: parts, and generations of each.
//!
//! A part of a table has the rows whose number has the same remainder by the number of parts. A new version of a part is a new file, and a
//! file that a checkpoint refers to stays until that checkpoint is removed. So a checkpoint lists one generation for each part, and a kill
//! at any point loses nothing that a checkpoint has.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, durable};
use grappa_run::{Error, Result, checkpoint::RunState};

use super::{
    RowOptimizer, Rows, RowsHeader,
    file::{read_rows, read_values, sync, write_rows},
};

/// The shape of a table in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableShape {
    /// Rows of the table.
    pub rows: u64,
    /// Values of a row.
    pub dim: usize,
    /// Number of parts.
    pub parts: u32,
    /// Digest of the owner of the table: see [`RowsHeader::key`].
    pub key: u64,
}

impl TableShape {
    /// Rows of a part.
    pub fn rows_of(&self, part: u32) -> usize {
        (self.rows + u64::from(self.parts - 1 - part)) as usize / self.parts as usize
    }

    fn header(&self, part: u32) -> RowsHeader {
        RowsHeader {
            dim: self.dim as u32,
            rows: self.rows_of(part) as u64,
            first: part.into(),
            distance: self.parts.into(),
            key: self.key,
        }
    }
}

/// The generations of a table.
#[derive(Debug)]
pub struct Generations {
    folder: PathBuf,
    shape: TableShape,
    /// The newest generation of each part; 0 if it was never written.
    current: Vec<u64>,
    /// Part and generation of the files that checkpoints refer to.
    kept: BTreeSet<(u32, u64)>,
    /// Files that may not be on disk yet.
    unsynced: BTreeSet<(u32, u64)>,
}

/// The counter of the state of a run that has the generation of a part.
fn counter(part: u32) -> String {
    format!("rows.{part}")
}

impl Generations {
    /// The folder of tables in the folder of a run.
    pub fn folder(run: &Path) -> PathBuf {
        run.join("rows")
    }

    /// A table whose files are in `folder`. `state` has its generations, if there is a checkpoint.
    ///
    /// # Errors
    /// If the folder cannot be created, or the checkpoint has no generations of this number of parts.
    pub fn open(folder: &Path, shape: TableShape, state: Option<&RunState>) -> Result<Self> {
        durable::create_folder(folder)?;
        let current = match state {
            Some(state) => Self::noted(folder, state, shape.parts)?,
            None => vec![0; shape.parts as usize],
        };
        let (kept, unsynced) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { folder: folder.to_owned(), shape, current, kept, unsynced })
    }

    /// The table of a checkpoint, for reading.
    ///
    /// # Errors
    /// If the checkpoint has no generations of this number of parts.
    pub fn look(folder: &Path, shape: TableShape, state: &RunState) -> Result<Self> {
        let current = Self::noted(folder, state, shape.parts)?;
        let (kept, unsynced) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { folder: folder.to_owned(), shape, current, kept, unsynced })
    }

    fn noted(folder: &Path, state: &RunState, parts: u32) -> Result<Vec<u64>> {
        let noted = (0..parts).map(|part| state.counters.get(&counter(part)).copied()).collect::<Option<_>>();
        noted.ok_or_else(|| {
            let problem = format!("the checkpoint does not have the rows of {parts} partition(s); start a new run");
            Error::run_file(folder, problem)
        })
    }

    /// The shape of the table.
    pub fn shape(&self) -> TableShape {
        self.shape
    }

    /// Whether the part was written.
    pub fn has(&self, part: u32) -> bool {
        self.current[part as usize] > 0
    }

    fn path(&self, part: u32, generation: u64) -> PathBuf {
        self.folder.join(format!("entities-{part:05}-{generation:08}"))
    }

    /// The newest generation of a part. None if it was never written.
    pub fn newest(&self, part: u32) -> Option<Generation> {
        Some(self.current[part as usize])
            .filter(|&generation| generation > 0)
            .map(|generation| self.of(part, generation))
    }

    /// Reads the values of a part.
    ///
    /// # Errors
    /// As [`read_rows`].
    pub fn read_values(&self, part: u32, values: &mut Vec<f32>) -> Result<()> {
        read_values(&self.path(part, self.current[part as usize]), self.shape.header(part), values)
    }

    /// The file and the header of the next generation of a part, which becomes the current one with [`Generations::advance`].
    pub fn next(&self, part: u32) -> Generation {
        self.of(part, self.current[part as usize] + 1)
    }

    fn of(&self, part: u32, generation: u64) -> Generation {
        Generation { part, generation, path: self.path(part, generation), header: self.shape.header(part) }
    }

    /// Replaces the current generation of a part by `written`, and removes the old generation unless a checkpoint refers to it.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn advance(&mut self, written: &Generation) -> Result<()> {
        let Generation { part, generation, .. } = *written;
        let before = std::mem::replace(&mut self.current[part as usize], generation);
        self.unsynced.insert((part, generation));
        if before > 0 && !self.kept.contains(&(part, before)) {
            self.unsynced.remove(&(part, before));
            durable::remove_file(&self.path(part, before))?;
        }
        Ok(())
    }

    /// Syncs the current generations, and notes them in the state of a checkpoint. [`Generations::keep`] without this state removes them.
    ///
    /// # Errors
    /// If files cannot be synced.
    pub fn note(&mut self, state: &mut RunState) -> Result<()> {
        for &(part, generation) in &self.unsynced {
            sync(&self.path(part, generation))?;
        }
        if !self.unsynced.is_empty() {
            durable::sync_folder(&self.folder)?;
        }
        self.unsynced.clear();
        for (part, &generation) in (0..).zip(&self.current) {
            state.counters.insert(counter(part), generation);
            self.kept.insert((part, generation));
        }
        Ok(())
    }

    /// Removes all files except the current generations and the generations that checkpoints refer to.
    ///
    /// # Errors
    /// If files cannot be listed or removed.
    pub fn keep<'a>(&mut self, states: impl Iterator<Item = &'a RunState>) -> Result<()> {
        self.kept.clear();
        for state in states {
            let parts = 0..self.shape.parts;
            let noted = parts.filter_map(|part| Some((part, *state.counters.get(&counter(part))?)));
            self.kept.extend(noted);
        }
        let current = (0..).zip(self.current.iter().copied());
        let needed: BTreeSet<PathBuf> =
            self.kept.iter().copied().chain(current).map(|(part, generation)| self.path(part, generation)).collect();
        for entry in fs::read_dir(&self.folder).map_err(EngineError::io("read", &self.folder))? {
            let path = entry.map_err(EngineError::io("read", &self.folder))?.path();
            if !needed.contains(&path) {
                durable::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// A generation of a part of a table.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The part.
    pub part: u32,
    generation: u64,
    path: PathBuf,
    header: RowsHeader,
}

impl Generation {
    /// Reads it with the state of its optimizer.
    ///
    /// # Errors
    /// As [`read_rows`].
    pub fn read(&self, optimizer: RowOptimizer) -> Result<Rows> {
        read_rows(&self.path, self.header, optimizer)
    }

    /// Writes it. When this returns, it may still be in the system's cache.
    ///
    /// # Errors
    /// If the file cannot be written, for example because the disk is full.
    pub fn write(&self, rows: &Rows) -> Result<()> {
        write_rows(&self.path, self.header, rows)
    }
}
