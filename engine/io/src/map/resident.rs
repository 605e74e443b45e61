//! A limit on the resident memory of mappings.
//!
//! The kernel does not report the resident bytes of some mappings cheaply enough for sampling. But pages arrive by page
//! faults, and the kernel counts these per thread. So after faults, a thread reads the resident file memory of the
//! whole process. Its growth since these mappings had no resident pages is attributed to them. (The size of a fault is
//! unknown: 64 KiB around the touched page, or 2 MiB if the page cache has the file in such pieces.)

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

/// Limit on the resident bytes of some mappings.
#[derive(Debug, Default)]
pub struct ResidentLimit {
    limit: AtomicU64,
    bytes: AtomicU64,
    /// Resident file memory of the process when these mappings had no resident pages.
    before: AtomicU64,
    /// Held while pages are released.
    release: Mutex<()>,
    releasing: AtomicBool,
}

/// Counts page faults of a thread. Use it only in the thread that made it.
#[derive(Debug)]
pub struct FaultMeter {
    /// All faults up to the last call of [`FaultMeter::has_faulted`].
    all: Cell<u64>,
    /// Faults that read a disk, up to the last call of [`FaultMeter::disk_reads`].
    disk_reads: Cell<u64>,
}

impl ResidentLimit {
    /// Adds a mapping of `bytes` without resident pages, and raises the limit by `limit` bytes.
    pub fn add(&self, bytes: u64, limit: u64) {
        self.before.store(resident_file_bytes().unwrap_or(0), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.limit.fetch_add(limit.min(bytes), Ordering::Relaxed);
    }

    /// Each thread that reads the mappings calls this regularly. It calls `release` to release all their pages if the
    /// limit is exceeded. Bytes read between two calls come on top of the limit.
    pub fn keep(&self, meter: &FaultMeter, release: impl FnOnce()) {
        let limit = self.limit.load(Ordering::Relaxed);
        if self.bytes.load(Ordering::Relaxed) <= limit || !meter.has_faulted() {
            return;
        }
        // Threads wait for the one that releases pages. Otherwise their reads would be attributed to other files.
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
    /// Starts to count.
    pub fn start() -> Self {
        let (all, disk_reads) = faults_of_thread();
        Self { all: Cell::new(all), disk_reads: Cell::new(disk_reads) }
    }

    /// Whether there were page faults since the last call.
    fn has_faulted(&self) -> bool {
        let (now, _) = faults_of_thread();
        now != self.all.replace(now)
    }

    /// The number of page faults since the last call for which the thread waited for a disk.
    pub fn disk_reads(&self) -> u64 {
        let (_, now) = faults_of_thread();
        now - self.disk_reads.replace(now)
    }
}

/// The page faults of a thread since it started: all, and those that read a disk.
fn faults_of_thread() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it points to a rusage; all zeros are a valid one if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    ((usage.ru_minflt + usage.ru_majflt) as u64, usage.ru_majflt as u64)
}

/// Resident bytes of files that the process has mapped. None if the system does not report it.
fn resident_file_bytes() -> Option<u64> {
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    let file = STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()?;
    let mut text = [0; 128];
    let length = file.read_at(&mut text, 0).ok()?;
    let pages = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(2)?;
    Some(pages.parse::<u64>().ok()? * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::map::{Access, Mapping, tests::resident_bytes};

    const BYTES: u64 = 64 << 20;
    /// Bytes read between two calls, and bytes that faults may add around them, at both ends.
    const PIECE: u64 = 1 << 20;
    const AROUND: u64 = 4 << 20;

    #[test]
    fn resident_bytes_stay_within_the_limit_and_the_bytes_read_between_calls() {
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
