//! Memory, disk space and limits of the machine and the process.

use std::{fs, path::Path};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Peak resident memory of this process, in bytes. `None` if the kernel does not report it.
///
/// Mapped files count: for a reader of stores, it includes resident pages of the stores.
pub fn peak_rss_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The line `name   12345 kB`; the kernel's kB is 1024 bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Raises the soft limit of open files to the hard limit. A store has several files per chunk. The usual soft limit of
/// 1024 is for programs that wait with `select`; Grappa does not.
pub fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // If it cannot be raised, the old limit stays in force.
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
}

/// Memory that is available to programs and the page cache, in bytes. `None` if the kernel does not report it.
pub fn free_memory_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Bytes that this process may still write to the file system of `path`. `None` if that is unknown.
pub fn free_disk_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read_in_bytes() {
        assert_eq!(
            kibibytes("VmPeak:\t  9000 kB\nVmHWM:\t    2048 kB\n", "VmHWM:"),
            Some(2 * 1024 * 1024)
        );
        assert_eq!(kibibytes("VmHWM:\tlots\n", "VmHWM:"), None);
        assert_eq!(kibibytes("", "VmHWM:"), None);
    }

    #[test]
    fn free_disk_space_is_known_for_existing_folders() {
        let folder = tempfile::tempdir().unwrap();
        let free = free_disk_bytes(folder.path()).expect("the folder exists");
        assert!(free > 0);
        assert_eq!(free_disk_bytes(&folder.path().join("nothing")), None);
    }

    #[test]
    fn peak_memory_of_this_process_is_at_least_its_allocations() {
        let held = vec![1_u8; 32 << 20];
        assert!(held.iter().all(|&byte| byte == 1));
        assert!(peak_rss_bytes().expect("the kernel reports it") >= 32 << 20);
    }
}
