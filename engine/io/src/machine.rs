//! Memory, disk space and limits of the machine and the process.

use std::{fs, path::Path, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Peak resident memory of this process, in bytes. `None` if the kernel does not report it.
///
/// Mapped files count: for a reader of stores, it includes resident pages of the stores.
pub fn peak_rss_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Time since the start of this process, to 10 ms. `None` if the kernel does not report it.
pub fn process_age() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses, and may have some itself. The start is the 20th field after it.
    let start: f64 = stat[stat.rfind(')')? + 1..].split_whitespace().nth(19)?.parse().ok()?;
    let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let uptime = uptime.tv_sec as f64 + uptime.tv_nsec as f64 / 1e9;
    let age = uptime - start / rustix::param::clock_ticks_per_second() as f64;
    Some(Duration::from_secs_f64(age.max(0.0)))
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

/// The most that the page cache can hold for this process: the memory that is available, within the memory limits of its
/// control groups. `None` if the kernel does not report it.
pub fn cacheable_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(memory_limit_of_group);
    Some(limits.fold(free_memory_bytes()?, u64::min))
}

/// The memory limit of a line of `/proc/self/cgroup`, `number:controllers:path`: the least of the group and those around
/// it. In version 2 of control groups there are no controllers.
fn memory_limit_of_group(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, Path::new(parts.next()?));
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let groups = path.ancestors().filter_map(|group| group.strip_prefix("/").ok());
    // A group without a limit says `max`, or a number beyond any memory.
    let limit = |group| {
        let text = fs::read_to_string(Path::new(root).join(group).join(file)).ok()?;
        text.trim().parse().ok()
    };
    groups.filter_map(limit).min()
}

/// Bytes that this process may still write to the file system of `path`. `None` if that is unknown.
pub fn free_disk_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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
    fn a_process_ages() {
        let (begin, before) = (Instant::now(), process_age().expect("the kernel reports it"));
        std::thread::sleep(Duration::from_millis(200));
        let (passed, measured) = (begin.elapsed(), process_age().unwrap() - before);
        assert!(before < Duration::from_secs(3600), "{before:?}");
        assert!(
            measured.abs_diff(passed) < Duration::from_millis(25),
            "{measured:?} of {passed:?}"
        );
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
