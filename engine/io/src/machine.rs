//! What the machine offers and what the process took of it.

use std::{fs, path::Path};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most memory this process has had resident, in bytes; `None` where the kernel does not tell.
///
/// Mapped files count, so for a reader of stores it includes the pages of the stores.
pub fn peak_rss_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The line `name   12345 kB`; the kernel's kB is 1024 bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Lets this process open as many files as it may: raises its soft limit to the hard one. A store has some files a chunk,
/// and the usual soft limit of 1024 is for programs that wait for descriptors with `select`, which none of ours does.
pub fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Who may not raise it can still open as many as before.
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
}

/// How much memory the system could give to programs or to its cache of files, in bytes; `None` where the kernel does not
/// tell.
pub fn free_memory_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// How many bytes this process may still write to the disk that `path` is on; `None` where that can't be told.
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
    fn a_file_takes_its_bytes_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let free = free_disk_bytes(folder.path()).expect("the folder is there");
        assert!(free > 0);
        assert_eq!(free_disk_bytes(&folder.path().join("nothing")), None);
    }

    #[test]
    fn peak_memory_of_this_process_is_known_and_at_least_what_it_holds() {
        let held = vec![1_u8; 32 << 20];
        assert!(held.iter().all(|&byte| byte == 1));
        assert!(peak_rss_bytes().expect("the kernel tells") >= 32 << 20);
    }
}
