//! Executables in ELF: the libraries that they need at run time, and their run path.

use std::{fmt, fs, path::Path};

use anyhow::{Context, Result};
use object::{
    LittleEndian as LE,
    elf::{DT_RPATH, DT_RUNPATH, FileHeader64},
    read::elf::{Dyn as _, FileHeader as _, SectionHeader as _},
};

use crate::{
    command::{program, run},
    files::make_parent,
};

type Header = FileHeader64<LE>;

/// A version such as 2.34; compares by its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// The version in the name of a symbol version, such as `GLIBC_2.34`. None if the name has another prefix or is private.
    fn after(prefix: &str, name: &str) -> Option<Self> {
        let numbers = name.strip_prefix(prefix)?.split('.').map(|number| number.parse().ok());
        numbers.collect::<Option<_>>().map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// The oldest libraries of the system that executables run with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// glibc's version.
    pub glibc: Version,
    /// libstdc++'s, as its symbols state it: 3.4.26 for `GLIBCXX_3.4.26`.
    pub libstdcxx: Version,
}

impl Needs {
    /// Makes these the needs of other executables too.
    pub fn add(&mut self, other: &Self) {
        self.glibc = self.glibc.clone().max(other.glibc.clone());
        self.libstdcxx = self.libstdcxx.clone().max(other.libstdcxx.clone());
    }
}

/// Copies an executable or a library without its symbols and its run path, which is a folder of this machine. Returns what it needs.
pub fn copy_stripped(from: &Path, to: &Path) -> Result<Needs> {
    make_parent(to)?;
    run(program("strip").arg("-o").arg(to).arg(from))?;
    let mut bytes = fs::read(to).with_context(|| format!("cannot read {}", to.display()))?;
    clear_run_path(&mut bytes).with_context(|| to.display().to_string())?;
    let needs = needs(&bytes).with_context(|| to.display().to_string())?;
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(needs)
}

/// The versions of libraries that an executable needs, from its imported symbols.
fn needs(bytes: &[u8]) -> Result<Needs> {
    let header = Header::parse(bytes)?;
    let sections = header.sections(LE, bytes)?;
    let mut needs = Needs::default();
    let Some((mut libraries, link)) = sections.gnu_verneed(LE, bytes)? else {
        return Ok(needs);
    };
    let strings = sections.strings(LE, bytes, link)?;
    while let Some((_, mut versions)) = libraries.next()? {
        while let Some(version) = versions.next()? {
            let name = String::from_utf8_lossy(version.name(LE, strings)?);
            needs.add(&Needs {
                glibc: Version::after("GLIBC_", &name).unwrap_or_default(),
                libstdcxx: Version::after("GLIBCXX_", &name).unwrap_or_default(),
            });
        }
    }
    Ok(needs)
}

/// Makes the run path of an executable the empty string, which the dynamic loader ignores.
fn clear_run_path(bytes: &mut [u8]) -> Result<()> {
    for place in run_paths(bytes)? {
        // The first string of a string table is empty.
        bytes[place..place + 8].fill(0);
    }
    Ok(())
}

/// Where the offsets of run paths in the string table are in the file.
fn run_paths(bytes: &[u8]) -> Result<Vec<usize>> {
    const ENTRY_BYTES: usize = 16;
    const TAG_BYTES: usize = 8;
    let header = Header::parse(bytes)?;
    let sections = header.sections(LE, bytes)?;
    let mut places = Vec::new();
    for section in sections.iter() {
        let Some((entries, _)) = section.dynamic(LE, bytes)? else {
            continue;
        };
        let start = usize::try_from(section.sh_offset(LE)).context("an offset larger than the memory")?;
        for (index, entry) in entries.iter().enumerate() {
            if matches!(entry.d_tag(LE), DT_RPATH | DT_RUNPATH) {
                places.push(start + ENTRY_BYTES * index + TAG_BYTES);
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process::Command};

    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let glibc = |name| Version::after("GLIBC_", name);
        assert!(glibc("GLIBC_2.4") < glibc("GLIBC_2.34"));
        assert_eq!(glibc("GLIBC_2.34").unwrap().to_string(), "2.34");
        assert_eq!(glibc("GLIBC_PRIVATE"), None);
        assert_eq!(glibc("GLIBCXX_3.4.26"), None);
    }

    #[test]
    fn this_program_needs_a_glibc_and_no_libstdcxx() {
        let bytes = fs::read(env::current_exe().unwrap()).unwrap();
        let needs = needs(&bytes).unwrap();
        assert!(needs.glibc > Version(vec![2]), "{needs:?}");
        assert_eq!(needs.libstdcxx, Version::default());
    }

    #[test]
    fn an_executable_without_its_run_path_runs() {
        let folder = tempfile::tempdir().unwrap();
        let [source, program] = ["main.rs", "program"].map(|name| folder.path().join(name));
        fs::write(&source, "fn main() {}").unwrap();
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let built = Command::new(rustc)
            .arg(&source)
            .args(["-C", "link-arg=-Wl,-rpath,/a/folder"])
            .arg("-o")
            .arg(&program)
            .status();
        assert!(built.unwrap().success());
        let mut bytes = fs::read(&program).unwrap();
        assert_eq!(run_paths(&bytes).unwrap().len(), 1);
        clear_run_path(&mut bytes).unwrap();
        fs::write(&program, bytes).unwrap();
        assert!(Command::new(&program).status().unwrap().success());
        let told = Command::new("readelf").arg("-d").arg(&program).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(!told.contains("/a/folder"), "{told}");
    }
}
