//! The assignments of a store. Each is a generation; the file `CURRENT` names the current one.

use std::{io, path::Path};

use grappa_formats::assignment::{Assignment, Current};
use grappa_io::{Error, Result, regular};

use crate::files;

/// Reads the current generation.
pub fn read_current(store: &Path) -> Result<u64> {
    let file = store.join(files::CURRENT);
    let bytes = regular::read(&file).map_err(files::missing)?;
    let current = Current::decode(&bytes).map_err(Error::format(file))?;
    Ok(current.generation)
}

/// Reads and fully checks the assignment of a generation. The store has `chunks` chunks.
pub fn read(store: &Path, generation: u64, chunks: u32) -> Result<Assignment> {
    let path = store.join(files::assignment(generation));
    let bytes = regular::read(&path)?;
    Assignment::decode(&bytes, generation, chunks)
        .and_then(|assignment| assignment.check_owners().map(|()| assignment))
        .map_err(Error::format(path))
}

/// Reads and fully checks the current assignment.
pub(crate) fn read_newest(store: &Path, chunks: u32) -> Result<Assignment> {
    newest(|| read_current(store), |generation| read(store, generation, chunks))
}

fn newest<T>(current: impl Fn() -> Result<u64>, read: impl Fn(u64) -> Result<T>) -> Result<T> {
    let mut generation = current()?;
    loop {
        let error = match read(generation) {
            Ok(assignment) => return Ok(assignment),
            Err(error) => error,
        };
        // A generation is kept until the second one after it is current. So if its file is gone, either the store was
        // repartitioned twice since `CURRENT` was read, and there is another generation to read, or the file is missing.
        let newest = if is_gone(&error) { current()? } else { generation };
        if newest == generation {
            return Err(files::missing(error));
        }
        generation = newest;
    }
}

/// Whether the error says that a file does not exist.
pub fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn gone(generation: u64) -> Error {
        Error::io("read", files::assignment(generation))(io::ErrorKind::NotFound.into())
    }

    /// `CURRENT` names 3, 5 and 7, one after the other, and a generation is removed two after it was current.
    #[test]
    fn a_generation_that_went_while_it_was_looked_for_is_not_missed() {
        let current = Cell::new(1);
        let next = || {
            current.set(current.get() + 2);
            Ok(current.get())
        };
        let read = |generation| {
            if generation < 7 { Err(gone(generation)) } else { Ok(generation) }
        };
        assert_eq!(newest(next, read).unwrap(), 7);
    }

    #[test]
    fn a_generation_that_counts_and_is_not_there_is_missing() {
        let error = newest(|| Ok(4), |generation| Err::<(), _>(gone(generation))).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("assignments/4") && error.contains("missing"), "{error}");
    }
}
