//! Values of options that are data in memory.

use std::{collections::HashMap, path::PathBuf};

use grappa_engine::ingest::{Input, MemoryInput};

/// The place of data among the options: the name of the option, and the index among its values.
pub type DataPlace = (String, usize);

/// The values of options that are data in memory, by their places.
#[derive(Default)]
pub(crate) struct Data(pub HashMap<DataPlace, MemoryInput>);

impl Data {
    /// The value of an option: its data, or else the file.
    pub fn input(&mut self, option: &str, path: Option<PathBuf>) -> Option<Input> {
        path.map(|path| self.value(option, 0, path))
    }

    /// The values of an option.
    pub fn inputs(&mut self, option: &str, paths: Vec<PathBuf>) -> Vec<Input> {
        (0..).zip(paths).map(|(index, path)| self.value(option, index, path)).collect()
    }

    fn value(&mut self, option: &str, index: usize, path: PathBuf) -> Input {
        self.0.remove(&(option.to_owned(), index)).map_or_else(|| path.into(), Input::from)
    }
}
