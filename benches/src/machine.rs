//! Description of the machine, for records.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

/// Processor, cores, memory, file system and kernel, in one line.
///
/// # Errors
/// If `/proc` is not there.
pub fn line(work: &Path) -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot tell the processor")?;
    let meminfo = fs::read_to_string("/proc/meminfo").context("cannot tell the memory")?;
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot tell the file system")?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot tell the kernel")?;
    let folder = fs::canonicalize(work).with_context(|| format!("cannot find {}", work.display()))?;
    Ok(format!(
        "{} ({}), {} cores, {:.0} GiB of memory, {} on disk, Linux {}",
        field(&cpuinfo, "model name").unwrap_or("unknown processor"),
        generation(&cpuinfo),
        std::thread::available_parallelism()?,
        kibibytes(field(&meminfo, "MemTotal")) / f64::from(1 << 20),
        file_system(&mounts, &folder).unwrap_or("unknown file system"),
        kernel.trim(),
    ))
}

/// Today's date, as `2026-01-31`.
///
/// # Errors
/// If there is no program `date`.
pub fn date() -> Result<String> {
    let output = Command::new("date").arg("+%F").output().context("cannot run `date`")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The load average of the last minute: processes that ran or were ready to.
///
/// # Errors
/// If `/proc` is not there.
pub fn load() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("cannot tell the load")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// Virtual machines often hide the name of the model, but not these numbers.
fn generation(cpuinfo: &str) -> String {
    let [family, model] = ["cpu family", "model"].map(|name| field(cpuinfo, name).unwrap_or("?"));
    format!("family {family} model {model}")
}

fn kibibytes(value: Option<&str>) -> f64 {
    value.and_then(|value| value.strip_suffix("kB")).and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

/// The type of the file system mounted closest above `folder`.
fn file_system<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.nth(1)?, words.next()?))
        })
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_what_is_known() {
        let line = line(Path::new(".")).unwrap();
        assert!(line.contains("cores") && line.contains("GiB") && line.contains("Linux"), "{line}");
    }

    #[test]
    fn the_closest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/data/x")), Some("xfs"));
        assert_eq!(file_system(mounts, Path::new("/database")), Some("ext4"));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field("model\t: 2\nmodel name\t: EPYC\n", "model name"), Some("EPYC"));
        assert_eq!(field("a: 1", "b"), None);
    }
}
