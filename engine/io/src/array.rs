//! Arrays that change in place, in memory or in a scratch file.
//!
//! An array in a file is mapped: the page cache has as much of it as there is room for, and the kernel writes the rest to the disk. Its
//! resident pages count as memory of the process, so whoever changes many values releases them from time to time ([`Array::release`]).
//! Reading a value that is not in memory costs one random read of the disk; [`Array::read_ahead`] starts many of them at once.

#![expect(unsafe_code, reason = "mapping a file is unsafe because others may change it")]

use std::{
    fmt,
    fs::File,
    io,
    marker::PhantomData,
    ops::{Deref, DerefMut, Range},
    path::{Path, PathBuf},
};

use bytemuck::Pod;
use memmap2::{Advice, MmapMut, MmapOptions, UncheckedAdvice};

use crate::{Error, Result, unnamed::unnamed_file};

/// Bytes of a page, as a unit of reads.
pub const PAGE_BYTES: u64 = 4096;

/// Where arrays are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    Memory,
    /// In scratch files without a name, on the disk of this folder.
    Disk(PathBuf),
}

/// An array of values, which all bytes are valid for. Dereferences to them.
pub struct Array<T> {
    contents: Contents<T>,
}

enum Contents<T> {
    Memory(Vec<T>),
    File(MmapMut, PhantomData<T>),
}

impl<T: Pod> Array<T> {
    /// An array of zeros. Its disk space is reserved now, so that no later write finds the disk full.
    ///
    /// # Errors
    /// If the disk has no room for it, or the folder cannot be written to.
    pub fn zeros(len: usize, storage: &Storage) -> Result<Self> {
        let contents = match storage {
            Storage::Memory => Contents::Memory(vec![T::zeroed(); len]),
            Storage::Disk(_) if len == 0 => Contents::Memory(Vec::new()),
            Storage::Disk(folder) => Contents::File(map_scratch(folder, len, size_of::<T>())?, PhantomData),
        };
        Ok(Self { contents })
    }

    /// A copy of an array.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn copy_of(values: &[T], storage: &Storage) -> Result<Self> {
        let mut copy = Self::zeros(values.len(), storage)?;
        copy.copy_from_slice(values);
        Ok(copy)
    }

    /// The values as a vector, which is a copy if the array is in a file.
    pub fn into_vec(self) -> Vec<T> {
        match self.contents {
            Contents::Memory(values) => values,
            Contents::File(..) => self.to_vec(),
        }
    }

    /// Starts reads of a range of values into the page cache. In memory, it does nothing.
    pub fn read_ahead(&self, range: Range<usize>) {
        if let Contents::File(map, _) = &self.contents {
            let start = range.start * size_of::<T>() / PAGE_BYTES as usize * PAGE_BYTES as usize;
            let end = range.end * size_of::<T>();
            // Ignored: this only saves time.
            if let Err(error) = map.advise_range(Advice::WillNeed, start, end - start) {
                tracing::debug!("cannot read ahead: {error}");
            }
        }
    }

    /// Releases the pages of a file from the memory of the process. The page cache keeps what it has room for, and the file has the values.
    pub fn release(&self) {
        if let Contents::File(map, _) = &self.contents {
            // SAFETY: the mapping is shared, so its pages are pages of the file: dropping them from the process changes no value. (In private
            // memory, they would become zero.)
            let released = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
            // Ignored: this only saves memory.
            if let Err(error) = released {
                tracing::debug!("cannot release mapped pages: {error}");
            }
        }
    }

    /// Whether the array is in a file.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.contents, Contents::File(..))
    }
}

/// Maps a new scratch file of `len` values.
fn map_scratch(folder: &Path, len: usize, value_bytes: usize) -> Result<MmapMut> {
    let file = unnamed_file(folder)?;
    let bytes = len.checked_mul(value_bytes).ok_or(io::ErrorKind::FileTooLarge.into());
    let bytes = bytes.map_err(Error::io("create a scratch file in", folder))?;
    reserve(&file, bytes as u64).map_err(Error::io("reserve a scratch file in", folder))?;
    // SAFETY: the file has no name, and this is its only descriptor, so no other process changes or truncates it.
    let map = unsafe { MmapOptions::new().len(bytes).map_mut(&file) };
    let map = map.map_err(Error::io("map a scratch file in", folder))?;
    map.advise(Advice::Random).map_err(Error::io("advise on a scratch file in", folder))?;
    Ok(map)
}

/// Gives a file a length and the disk space for it.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::{fs::FallocateFlags, io::Errno};
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // The file system cannot reserve space: it gets a length only.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        reserved => Ok(reserved?),
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.contents {
            Contents::Memory(values) => values,
            Contents::File(map, _) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Pod> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.contents {
            Contents::Memory(values) => values,
            Contents::File(map, _) => bytemuck::cast_slice_mut(map),
        }
    }
}

impl<T: Pod> From<Vec<T>> for Array<T> {
    fn from(values: Vec<T>) -> Self {
        Self { contents: Contents::Memory(values) }
    }
}

impl<T: Pod + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, bytes) = match &self.contents {
            Contents::Memory(values) => ("memory", size_of_val(&values[..])),
            Contents::File(map, _) => ("file", map.len()),
        };
        write!(f, "Array({bytes} bytes in {place})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_in_a_file_keeps_its_values_when_its_pages_are_released() {
        let folder = tempfile::tempdir().unwrap();
        for storage in [Storage::Memory, Storage::Disk(folder.path().to_owned())] {
            let mut array = Array::<f32>::zeros(100_000, &storage).unwrap();
            assert!(array.iter().all(|&value| value == 0.0));
            assert_eq!(array.is_on_disk(), storage != Storage::Memory);
            for (place, value) in array.iter_mut().enumerate() {
                *value = place as f32;
            }
            array.release();
            array.read_ahead(99_000..100_000);
            assert!(array.iter().enumerate().all(|(place, &value)| value == place as f32), "{array:?}");
            let copy = Array::copy_of(&array, &storage).unwrap();
            assert!(copy == array);
            assert_eq!(copy.into_vec().len(), 100_000);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "scratch files have no name");
    }

    #[test]
    fn an_array_that_exceeds_the_disk_is_refused_when_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Disk(folder.path().to_owned());
        let error = Array::<u8>::zeros(1 << 50, &storage).unwrap_err().to_string();
        assert!(error.contains("reserve a scratch file in"), "{error}");
        let error = Array::<u64>::zeros(usize::MAX, &storage).unwrap_err().to_string();
        assert!(error.contains("create a scratch file in"), "{error}");
    }
}
