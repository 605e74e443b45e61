//! How much of some mappings is resident.
//!
//! Nothing tells that of some mappings at a price that sampling could pay. But pages come by page faults, which the system
//! counts for each thread, and after some the memory of the whole process that shows files can be asked for: what it has grown
//! by since nothing of these mappings was resident is theirs. (How much a fault brings is not known: 64 KiB around the page
//! that was touched, or 2 MiB where the page cache has the file in such pieces.)

use std::{
    cell::Cell,
    fs::File,
    mem::MaybeUninit,
    os::unix::fs::FileExt,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Bytes of some mappings that may be resident.
#[derive(Debug, Default)]
pub struct ResidentLimit {
    limit: AtomicU64,
    bytes: AtomicU64,
    /// What the process had of files when these mappings had nothing resident.
    before: AtomicU64,
    /// Held while pages are given back.
    release: Mutex<()>,
    releasing: AtomicBool,
}

/// The page faults of a thread. Not to be taken to another.
#[derive(Debug)]
pub struct FaultMeter(Cell<u64>);

impl ResidentLimit {
    /// Adds a mapping of so many `bytes`, of which no page is resident, for which `limit` bytes more may be.
    pub fn add(&self, bytes: u64, limit: u64) {
        self.before.store(resident_file_bytes().unwrap_or(0), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.limit.fetch_add(limit.min(bytes), Ordering::Relaxed);
    }

    /// To be called by each thread that reads the mappings, now and then: calls `release` to give all their pages back if more
    /// is resident than may be. What is read between two calls comes on top.
    pub fn keep(&self, meter: &FaultMeter, release: impl FnOnce()) {
        let limit = self.limit.load(Ordering::Relaxed);
        if self.bytes.load(Ordering::Relaxed) <= limit || !meter.has_faulted() {
            return;
        }
        // Threads wait for the one that gives pages back: what they read meanwhile would seem to be of other files.
        if self.releasing.load(Ordering::Acquire) || self.is_exceeded(limit) {
            let _lock = self.release.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_exceeded(limit) {
                self.releasing.store(true, Ordering::Release);
                release();
                if let Some(before) = resident_file_bytes() {
                    self.before.store(before, Ordering::Relaxed);
                }
                self.releasing.store(false, Ordering::Release);
            }
        }
    }

    fn is_exceeded(&self, limit: u64) -> bool {
        let before = self.before.load(Ordering::Relaxed);
        resident_file_bytes().is_some_and(|now| now.saturating_sub(before) > limit)
    }
}

impl FaultMeter {
    /// Counts from now on.
    pub fn start() -> Self {
        Self(Cell::new(faults_of_thread()))
    }

    /// Whether there were any since it was last asked.
    fn has_faulted(&self) -> bool {
        let now = faults_of_thread();
        now != self.0.replace(now)
    }
}

fn faults_of_thread() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it points to a rusage, of which zeros are one if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_minflt + usage.ru_majflt) as u64
}

/// Bytes of files that the process has mapped and resident; none where the system does not tell.
fn resident_file_bytes() -> Option<u64> {
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    let file = STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()?;
    let mut text = [0; 128];
    let length = file.read_at(&mut text, 0).ok()?;
    let pages = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(2)?;
    Some(pages.parse::<u64>().ok()? * page_bytes())
}

fn page_bytes() -> u64 {
    // SAFETY: it takes a number and returns one.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::map::{Access, Mapping, tests::resident_bytes};

    const BYTES: u64 = 64 << 20;
    /// What is read between calls, and what a fault may bring around it, at both ends.
    const PIECE: u64 = 1 << 20;
    const AROUND: u64 = 4 << 20;

    #[test]
    fn no_more_is_resident_than_the_limit_and_what_is_read_between_calls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![7; BYTES as usize]).unwrap();
        for limit in [16 << 20, BYTES] {
            let mapping = Mapping::new(&File::open(&path).unwrap(), &path, Access::Random).unwrap();
            let resident = ResidentLimit::default();
            resident.add(BYTES, limit);
            let meter = FaultMeter::start();
            let (mut peak, mut releases) = (0, 0);
            for bytes in mapping.chunks(PIECE as usize) {
                resident.keep(&meter, || {
                    mapping.release_all();
                    releases += 1;
                });
                assert!(bytes.iter().all(|&byte| byte == 7));
                peak = peak.max(resident_bytes(&mapping));
            }
            match limit {
                BYTES => assert_eq!((peak, releases), (BYTES, 0)),
                _ => {
                    assert!(peak <= limit + PIECE + AROUND, "{peak} bytes of {limit}");
                    assert!((2..=8).contains(&releases), "{releases} releases");
                }
            }
        }
    }
}
