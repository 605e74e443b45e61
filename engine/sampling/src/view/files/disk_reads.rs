//! Tells whether mapped adjacency lists come from the disk or from the page cache.
//!
//! A list that is not in the page cache costs a page fault, and a thread waits for one page fault after the other. If
//! reads are started for a whole group of lists first, they are under way together. To start them takes system calls,
//! which are wasted on lists that are cached. So threads count the page faults that read a disk. After some, reads are
//! started for the next groups. Then a few groups do without, in case that everything is cached by now.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU32, Ordering},
};

use grappa_io::map::FaultMeter;

/// Number of groups between two looks at the number of page faults. A look is a system call.
const GROUPS_PER_LOOK: u32 = 4;
/// Reads are started after this number of page faults between two looks.
const FAULTS: u64 = 4 * GROUPS_PER_LOOK as u64;
/// The number of groups for which they are started.
const GROUPS_WITH_READS: u32 = 256 * GROUPS_PER_LOOK;

/// Whether the next groups of lists come from the disk. Shared by threads.
#[derive(Debug, Default)]
pub(super) struct DiskReads {
    /// The number of groups for which reads are still to be started.
    left: AtomicU32,
}

/// Page faults and groups since the last look, of one thread.
#[derive(Debug)]
pub(in crate::view) struct GroupsSeen {
    faults: FaultMeter,
    /// Groups without reads since the faults were counted; 0 if there were other groups in between.
    groups: Cell<u32>,
}

impl GroupsSeen {
    pub(in crate::view) fn start() -> Self {
        Self { faults: FaultMeter::start(), groups: Cell::new(0) }
    }
}

impl DiskReads {
    /// Whether to start reads for the lists of the next group. Each thread calls it once per group.
    #[inline]
    pub(super) fn are_next(&self, seen: &GroupsSeen) -> bool {
        // Threads may overwrite each other's number, which costs or saves the reads of a few groups.
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            seen.groups.set(0);
            return true;
        }
        let groups = seen.groups.get();
        if groups > 0 && groups < GROUPS_PER_LOOK {
            seen.groups.set(groups + 1);
            return false;
        }
        let faults = seen.faults.disk_reads();
        let from_disk = groups == GROUPS_PER_LOOK && faults >= FAULTS;
        if from_disk {
            self.left.store(GROUPS_WITH_READS, Ordering::Relaxed);
        }
        seen.groups.set(1);
        from_disk
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use grappa_io::map::{Access, Mapping};
    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[test]
    fn reads_are_started_after_page_faults_and_tried_without_after_a_while() {
        const PAGE: usize = 4096;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 64 * PAGE]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let mapping = Mapping::new(&file, &path, Access::Random).unwrap();
        let (disk, seen) = (DiskReads::default(), GroupsSeen::start());
        assert!((0..100).all(|_| !disk.are_next(&seen)), "nothing was read yet");

        let faults = FaultMeter::start();
        assert!(mapping.chunks(PAGE).all(|page| page[0] == 7));
        if faults.disk_reads() < 32 {
            grappa_skip::skip!("temporary files cannot be dropped from the page cache");
        }
        let first = (0..100).position(|_| disk.are_next(&seen)).unwrap() as u32;
        assert!(first <= GROUPS_PER_LOOK, "after {first} groups");
        assert!((0..GROUPS_WITH_READS).all(|_| disk.are_next(&seen)));
        assert!((0..100).all(|_| !disk.are_next(&seen)), "everything is cached by now");
    }
}
