//! Memory that several processes of one machine share: an unnamed file in memory, which the others open through `/proc`. It goes away with
//! the last process that has it.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
};

use rustix::fs::{MemfdFlags, OFlags, fstat, memfd_create, open};

use crate::{Error, Result, arena::Arena};

/// Memory that other processes can open by its name, as long as this exists.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    bytes: u64,
}

/// Where other processes find shared memory: the process that made it, its descriptor there, and the device and the inode of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedName(pub [u64; 4]);

fn refused(bytes: u64, source: io::Error) -> Error {
    Error::Memory { bytes, purpose: "memory that processes share", source }
}

impl SharedMemory {
    /// Makes `bytes` of zeros. They take no physical memory until they are touched.
    ///
    /// # Errors
    /// If the kernel refuses the memory.
    pub fn create(bytes: u64) -> Result<Self> {
        let file: File = memfd_create(c"grappa", MemfdFlags::CLOEXEC)
            .map(OwnedFd::into)
            .map_err(|error| refused(bytes, error.into()))?;
        file.set_len(bytes).map_err(|error| refused(bytes, error))?;
        Ok(Self { file, bytes })
    }

    /// The name for other processes.
    ///
    /// # Errors
    /// If the system does not tell the inode.
    pub fn name(&self) -> Result<SharedName> {
        let descriptor = self.file.as_raw_fd();
        let (process, descriptor) = (u64::from(std::process::id()), descriptor as u64);
        let stat =
            fstat(&self.file).map_err(|error| Error::io("inspect", path_of(process, descriptor))(error.into()))?;
        Ok(SharedName([process, descriptor, stat.st_dev, stat.st_ino]))
    }

    /// Opens the `bytes` that another process made.
    ///
    /// # Errors
    /// If that process cannot be seen from here, has ended, or belongs to another user.
    pub fn open(name: SharedName, bytes: u64) -> Result<Self> {
        let SharedName([process, descriptor, device, inode]) = name;
        let path = path_of(process, descriptor);
        // A process that got the number of one that ended may have anything there.
        let file = open(&path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, rustix::fs::Mode::empty());
        let failed = |source| Error::io("open the memory of another process", &path)(source);
        let file: File = file.map(OwnedFd::into).map_err(|error| failed(error.into()))?;
        let stat = fstat(&file).map_err(|error| failed(error.into()))?;
        if (stat.st_dev, stat.st_ino, stat.st_size as u64) != (device, inode, bytes) {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(Self { file, bytes })
    }

    /// Maps the memory.
    ///
    /// # Errors
    /// If the kernel refuses the address space.
    pub fn arena(&self) -> Result<Arena> {
        Arena::shared(&self.file, self.bytes)
    }
}

fn path_of(process: u64, descriptor: u64) -> PathBuf {
    format!("/proc/{process}/fd/{descriptor}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = (5 << 20) + 3;

    #[test]
    fn what_one_writes_the_other_reads() {
        let made = SharedMemory::create(BYTES).unwrap();
        let opened = SharedMemory::open(made.name().unwrap(), BYTES).unwrap();
        let (mut one, mut other) = (made.arena().unwrap(), opened.arena().unwrap());
        one[..3].copy_from_slice(&[1, 2, 3]);
        other[BYTES as usize - 1] = 4;
        assert_eq!(other[..4], [1, 2, 3, 0]);
        assert_eq!(one[BYTES as usize - 1], 4);
        assert_eq!(one.len() as u64, BYTES);
        // It stays as long as one of them has it.
        drop((made, one));
        assert_eq!(other[..3], [1, 2, 3]);
    }

    #[test]
    fn another_file_is_not_opened() {
        let made = SharedMemory::create(BYTES).unwrap();
        let SharedName([process, descriptor, device, inode]) = made.name().unwrap();
        let wrong = [
            ([process, descriptor, device, inode + 1], BYTES),
            ([process, descriptor, device + 1, inode], BYTES),
            ([process, descriptor, device, inode], BYTES + 1),
            ([process, 1 << 30, device, inode], BYTES),
            ([0, descriptor, device, inode], BYTES),
        ];
        for (name, bytes) in wrong {
            let error = SharedMemory::open(SharedName(name), bytes).unwrap_err().to_string();
            assert!(error.contains("memory of another process"), "{error}");
        }
    }

    #[test]
    fn no_bytes_are_no_problem() {
        let made = SharedMemory::create(0).unwrap();
        assert!(made.arena().unwrap().is_empty());
    }
}
