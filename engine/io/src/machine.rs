//! Memory, disk space and limits of the machine and the process.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

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
    let raised = Rlimit { current: maximum, maximum };
    // If it cannot be raised, the old limit stays in force.
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
}

/// Memory that this process can still take, in bytes: what the machine has available, within the limits of its control groups (the
/// limits of a container or a job) and of its addresses (`ulimit -v`). `None` if the kernel does not report it.
pub fn free_memory_bytes() -> Option<u64> {
    let free = groups().into_iter().filter_map(|group| group.free_bytes()).chain(free_addresses_bytes());
    Some(free.fold(available_bytes()?, u64::min))
}

/// The addresses that this process can still use, in bytes. `None` if they are not limited.
fn free_addresses_bytes() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let used = kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")?;
    Some(limit.saturating_sub(used))
}

/// The most memory that the processes of a machine or container can have together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Bytes of the machine's memory.
    OfMachine(u64),
    /// Bytes that a control group, which a container or job has, may take. They are fewer than the machine has.
    OfGroup(u64),
}

/// The most memory that this process can have together with others of its machine or container. `None` if the kernel does not report it.
pub fn memory_limit() -> Option<MemoryLimit> {
    let machine = kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let limits = groups().into_iter().filter_map(|group| group.limit_bytes());
    let group_limit = limits.filter(|&limit| limit < machine).min();
    Some(group_limit.map_or(MemoryLimit::OfMachine(machine), MemoryLimit::OfGroup))
}

/// The most that the page cache can hold for this process: the memory that is available, within the memory limits of its
/// control groups. `None` if the kernel does not report it.
pub fn cacheable_bytes() -> Option<u64> {
    let limits = groups().into_iter().filter_map(|group| group.limit_bytes());
    Some(limits.fold(available_bytes()?, u64::min))
}

fn available_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// A control group that may limit memory.
struct MemoryGroup {
    folder: PathBuf,
    files: &'static GroupFiles,
}

/// The files of a control group.
struct GroupFiles {
    limit: &'static str,
    used: &'static str,
    /// The lines of `memory.stat` about pages of files, which the kernel drops when memory is needed.
    cached: [&'static str; 2],
}

const VERSION_1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file ", "total_active_file "],
};
const VERSION_2: GroupFiles =
    GroupFiles { limit: "memory.max", used: "memory.current", cached: ["inactive_file ", "active_file "] };

impl MemoryGroup {
    /// A group without a limit says `max`, or a number beyond any memory.
    fn limit_bytes(&self) -> Option<u64> {
        self.number(self.files.limit)
    }

    /// What its processes may still take. None without a limit.
    fn free_bytes(&self) -> Option<u64> {
        let limit = self.limit_bytes()?;
        let used = self.number(self.files.used)?;
        let statistics = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let cached: u64 = self
            .files
            .cached
            .iter()
            .filter_map(|name| statistics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()))
            .sum();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

/// The control groups of this process, and those around them.
fn groups() -> Vec<MemoryGroup> {
    let lines = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    lines.lines().flat_map(groups_of).collect()
}

/// The groups of a line of `/proc/self/cgroup`, `number:controllers:path`. In version 2 of control groups there are no controllers.
fn groups_of(line: &str) -> Vec<MemoryGroup> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (root, files) = match controllers {
        "" => ("/sys/fs/cgroup", &VERSION_2),
        _ if controllers.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", &VERSION_1),
        _ => return Vec::new(),
    };
    let groups = Path::new(path).ancestors();
    let groups = groups.filter_map(|group| group.strip_prefix("/").ok());
    groups.map(|group| MemoryGroup { folder: Path::new(root).join(group), files }).collect()
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
        assert_eq!(kibibytes("VmPeak:\t  9000 kB\nVmHWM:\t    2048 kB\n", "VmHWM:"), Some(2 * 1024 * 1024));
        assert_eq!(kibibytes("VmHWM:\tlots\n", "VmHWM:"), None);
        assert_eq!(kibibytes("", "VmHWM:"), None);
    }

    #[test]
    fn a_process_ages() {
        let (begin, before) = (Instant::now(), process_age().expect("the kernel reports it"));
        std::thread::sleep(Duration::from_millis(200));
        let (passed, measured) = (begin.elapsed(), process_age().unwrap() - before);
        assert!(before < Duration::from_secs(3600), "{before:?}");
        assert!(measured.abs_diff(passed) < Duration::from_millis(25), "{measured:?} of {passed:?}");
    }

    #[test]
    fn free_disk_space_is_known_for_existing_folders() {
        let folder = tempfile::tempdir().unwrap();
        let free = free_disk_bytes(folder.path()).expect("the folder exists");
        assert!(free > 0);
        assert_eq!(free_disk_bytes(&folder.path().join("nothing")), None);
    }

    #[test]
    fn a_control_group_leaves_its_limit_without_what_it_uses_besides_cached_files() {
        for (files, other) in [(&VERSION_1, "inactive_file 7"), (&VERSION_2, "anon 7")] {
            let folder = tempfile::tempdir().unwrap();
            let group = MemoryGroup { folder: folder.path().to_owned(), files };
            let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(group.free_bytes(), None);
            write(files.used, "700\n");
            write("memory.stat", &format!("{other}\n{}200\n{}100\n", files.cached[0], files.cached[1]));
            write(files.limit, "max\n");
            assert_eq!(group.free_bytes(), None);
            write(files.limit, "1000\n");
            assert_eq!((group.limit_bytes(), group.free_bytes()), (Some(1000), Some(600)));
            write(files.limit, "300\n");
            assert_eq!(group.free_bytes(), Some(0));
        }
    }

    #[test]
    fn peak_memory_of_this_process_is_at_least_its_allocations() {
        let buffer = vec![1_u8; 32 << 20];
        assert!(buffer.iter().all(|&byte| byte == 1));
        assert!(peak_rss_bytes().expect("the kernel reports it") >= 32 << 20);
    }
}
