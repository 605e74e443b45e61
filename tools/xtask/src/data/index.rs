//! The index of a package archive: lists of packages, their descriptions, and their files.
//!
//! It is the index that apt has on this machine, or one that apt fetches into a folder of ours, which needs no root, or
//! files that the user names. apt can keep it compressed in several ways; `apt-helper`, a part of apt, reads all of
//! them.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::command::{output, run};

const APT_HELPER: &str = "/usr/lib/apt/apt-helper";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Makes apt fetch the list of all files, which it does not do by default.
const CONTENTS_TARGET: &str = r#"
Acquire::IndexTargets::deb::Contents-deb {
    MetaKey "$(COMPONENT)/Contents-$(ARCHITECTURE)";
    ShortDescription "Contents";
    Description "$(RELEASE) $(ARCHITECTURE) Contents";
    flatMetaKey "Contents-$(ARCHITECTURE)";
    flatDescription "Contents";
    PDiffs "false";
    KeepCompressed "true";
    DefaultEnabled "true";
    Identifier "Contents-deb";
};
"#;

/// Source of the index. By default it is the index of apt on this machine.
#[derive(Debug, Default, Args)]
pub struct Source {
    /// Files of the index: Packages, Translation-en, Contents-ARCH, as apt or a mirror names them
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["fetch", "mirror", "suite", "component", "arch"])]
    index: Vec<PathBuf>,
    /// Let apt fetch a new and complete index, with long descriptions; apt's own index stays as it is
    #[arg(long)]
    fetch: bool,
    /// Fetch from this mirror [default: apt's]
    #[arg(long, value_name = "URI")]
    mirror: Option<String>,
    /// The release [default: apt's release with the longest list of packages]
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
    /// The component of the archive
    #[arg(long, value_name = "NAME", default_value = "main")]
    component: Option<String>,
    /// The architecture [default: this machine's]
    #[arg(long, value_name = "NAME")]
    arch: Option<String>,
}

/// The files of an index.
#[derive(Debug, Default)]
pub struct Index {
    pub packages: Vec<PathBuf>,
    pub translations: Vec<PathBuf>,
    pub contents: Vec<PathBuf>,
}

/// A file that apt has, with apt's description of it.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    component: String,
    release: String,
    codename: String,
    suite: String,
    architecture: String,
    mirror: String,
    kind: String,
    path: PathBuf,
    /// Length of the file.
    bytes: u64,
}

const TARGET_FORMAT: &str =
    "$(COMPONENT)|$(RELEASE)|$(CODENAME)|$(SUITE)|$(ARCHITECTURE)|$(REPO_URI)|$(CREATED_BY)|$(FILENAME)";

impl Source {
    /// These files.
    #[cfg(test)]
    pub fn of_files(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            index: files.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Finds the index, with lists of files if needed. Fetched files go below `work`.
    pub fn index(&self, work: &Path, with_contents: bool) -> Result<Index> {
        let index = if !self.index.is_empty() {
            Index::of_files(&self.index)?
        } else if self.fetch || self.mirror.is_some() {
            self.fetched(work, with_contents)?
        } else {
            self.of_machine()?
        };
        ensure!(
            !with_contents || !index.contents.is_empty(),
            "the index has no lists of files (Contents): apt fetches them only if it is told to; add --fetch, or name them \
             with --index"
        );
        Ok(index)
    }

    /// The files of one release that apt has on this machine.
    pub fn of_machine(&self) -> Result<Index> {
        let targets = targets()?;
        let Some(main) = self.main_target(&targets) else {
            bail!(
                "this machine has no package index of `{}`: run `apt-get update`, or have one fetched with --fetch --mirror URI \
                 --suite NAME; the quickstart can do with another graph (--dataset cora)",
                self.component()
            );
        };
        let same = |target: &&Target| {
            (&target.mirror, &target.release, &target.component) == (&main.mirror, &main.release, &main.component)
        };
        // A release can have several architectures. Packages for all of them are in each list.
        let of_architecture = |target: &&Target| target.kind != "Packages" || target.architecture == main.architecture;
        let paths = targets
            .iter()
            .filter(same)
            .filter(of_architecture)
            .map(|target| &target.path);
        Index::of_files(&paths.cloned().collect::<Vec<_>>())
    }

    /// The longest list of packages, which selects the index. Lists of updates and third parties are shorter.
    fn main_target<'a>(&self, targets: &'a [Target]) -> Option<&'a Target> {
        let fits =
            |wanted: &Option<String>, found: &[&String]| wanted.as_ref().is_none_or(|wanted| found.contains(&wanted));
        let candidates = targets.iter().filter(|target| {
            target.kind == "Packages"
                && target.component == self.component()
                && fits(&self.suite, &[&target.release, &target.codename, &target.suite])
                && fits(&self.arch, &[&target.architecture])
        });
        // The first of equal ones.
        candidates.rev().max_by_key(|target| target.bytes)
    }

    fn component(&self) -> &str {
        self.component.as_deref().unwrap_or("main")
    }

    /// Lets apt fetch the index into a folder of ours.
    fn fetched(&self, work: &Path, with_contents: bool) -> Result<Index> {
        let of_machine = targets()?;
        let default = self.main_target(&of_machine).or(of_machine.first());
        let known = |given: &Option<String>, machine: fn(&Target) -> &String, option: &str| {
            given
                .clone()
                .or_else(|| default.map(|target| machine(target).clone()))
                .with_context(|| {
                    format!(
                        "apt has no index to tell the {option} from: run `apt-get update`, or name it with --{option}"
                    )
                })
        };
        let mirror = known(&self.mirror, |target| &target.mirror, "mirror")?;
        let suite = known(&self.suite, |target| &target.release, "suite")?;
        let arch = match &self.arch {
            Some(arch) => arch.clone(),
            None => output(Command::new("dpkg").arg("--print-architecture")).context("name one with --arch")?,
        };

        let state = work.join(FETCHED);
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = state.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let signed_by = if Path::new(KEYRING).exists() {
            format!(" signed-by={KEYRING}")
        } else {
            String::new()
        };
        let source = format!("deb [arch={arch}{signed_by}] {mirror} {suite} {}\n", self.component());
        fs::write(state.join("sources.list"), source).context("cannot write apt's list of sources")?;
        // Long descriptions, which images often leave out, and no files that are not needed.
        let mut config =
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\nAcquire::Languages \"en\";\n".to_owned();
        // Otherwise an unreachable mirror is only a warning.
        config += "APT::Update::Error-Mode \"any\";\n";
        if with_contents {
            config += CONTENTS_TARGET;
        }
        fs::write(state.join("apt.conf"), config).context("cannot write apt's configuration")?;

        let options = [
            ("Dir::State::Lists", state.join("lists").into_os_string()),
            ("Dir::Cache", state.join("cache").into_os_string()),
            ("Dir::Etc::SourceList", state.join("sources.list").into_os_string()),
            ("Dir::Etc::SourceParts", "/dev/null".into()),
            ("Acquire::Languages", "en".into()),
            ("APT::Architecture", arch.into()),
        ];
        let options: Vec<OsString> = options
            .into_iter()
            .flat_map(|(key, value)| {
                let mut assignment = OsString::from(format!("{key}="));
                assignment.push(value);
                ["-o".into(), assignment]
            })
            .collect();
        let config = ("APT_CONFIG", state.join("apt.conf"));
        let mut update = Command::new("apt-get");
        update
            .args(["update", "--quiet=2"])
            .args(&options)
            .env(config.0, &config.1);
        run(&mut update).with_context(|| format!("apt could not fetch the index of {suite} from {mirror}"))?;
        let mut files = Vec::new();
        for entry in fs::read_dir(state.join("lists")).context("cannot list what apt fetched")? {
            let path = entry?.path();
            if Kind::of(&path).is_some() {
                files.push(path);
            }
        }
        files.sort();
        Index::of_files(&files)
    }
}

/// The working folder of apt, below ours.
const FETCHED: &str = "apt";

/// Removes fetched files, if any.
pub fn remove_fetched(work: &Path) -> Result<()> {
    match fs::remove_dir_all(work.join(FETCHED)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("cannot remove what apt fetched"),
        _ => Ok(()),
    }
}

/// The files that apt has, in the order of its sources; none without apt.
fn targets() -> Result<Vec<Target>> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", TARGET_FORMAT]);
    match command.stderr(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(parse_targets(&String::from_utf8_lossy(&output.stdout), |path| {
            fs::metadata(path).ok().map(|file| file.len())
        })),
        Ok(output) => bail!(
            "apt does not tell which index it has: `apt-get indextargets` failed ({})",
            output.status
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot start apt-get"),
    }
}

/// Parses apt's description of its files. Leaves out files that do not exist.
fn parse_targets(text: &str, bytes: impl Fn(&Path) -> Option<u64>) -> Vec<Target> {
    let target = |line: &str| {
        let mut fields = line.splitn(8, '|').map(str::to_owned);
        let mut target = Target {
            component: fields.next()?,
            release: fields.next()?,
            codename: fields.next()?,
            suite: fields.next()?,
            architecture: fields.next()?,
            mirror: fields.next()?,
            kind: fields.next()?,
            path: fields.next()?.into(),
            bytes: 0,
        };
        target.bytes = bytes(&target.path)?;
        Some(target)
    };
    text.lines().filter_map(target).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Packages,
    Translation,
    Contents,
}

impl Kind {
    /// The kind of a file by its name, as mirrors and apt form it; `None` for other files.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy();
        // apt puts the source of a file before its name.
        let name = name.rsplit('_').next()?;
        let is = |prefix: &str| name.starts_with(prefix);
        if is("Packages") {
            Some(Self::Packages)
        } else if is("Translation-en") {
            Some(Self::Translation)
        } else if is("Contents-") {
            Some(Self::Contents)
        } else {
            None
        }
    }
}

impl Index {
    fn of_files(files: &[PathBuf]) -> Result<Self> {
        let mut index = Self::default();
        for path in files {
            match Kind::of(path) {
                Some(Kind::Packages) => index.packages.push(path.clone()),
                Some(Kind::Translation) => index.translations.push(path.clone()),
                Some(Kind::Contents) => index.contents.push(path.clone()),
                // apt has files of other kinds. A file that the user names must be usable.
                None => {}
            }
        }
        ensure!(
            !index.packages.is_empty(),
            "none of the files is a list of packages: its name is to start with `Packages`, or to end as apt has it \
             (..._Packages)"
        );
        Ok(index)
    }
}

/// Calls `line` with each line of a file, without its line feed.
pub fn lines(path: &Path, mut line: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let is_plain = !path.extension().is_some_and(|extension| {
        ["gz", "xz", "bz2", "lz4", "zst", "lzma"].contains(&extension.to_string_lossy().as_ref())
    });
    if is_plain {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        return each_line(file, path, &mut line);
    }
    let mut child = Command::new(APT_HELPER)
        .arg("cat-file")
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!(
                "cannot start {APT_HELPER}, which unpacks {}: unpack it first",
                path.display()
            )
        })?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let result = each_line(stdout, path, &mut line);
    let status = child.wait()?;
    result?;
    ensure!(status.success(), "apt-helper cannot read {} ({status})", path.display());
    Ok(())
}

fn each_line(file: impl Read, path: &Path, line: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut bytes = Vec::new();
    for number in 1u64.. {
        bytes.clear();
        let count = reader
            .read_until(b'\n', &mut bytes)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if count == 0 {
            break;
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        line(text).with_context(|| format!("{}, line {number}", path.display()))?;
    }
    Ok(())
}

/// Calls `entry` with each entry of a control file: names and values of fields. Continued lines follow after a line
/// feed.
pub fn entries(path: &Path, mut entry: impl FnMut(&[(String, String)]) -> Result<()>) -> Result<()> {
    let mut fields: Vec<(String, String)> = Vec::new();
    lines(path, |line| {
        let text = String::from_utf8_lossy(line);
        if text.is_empty() {
            let ended = std::mem::take(&mut fields);
            return if ended.is_empty() { Ok(()) } else { entry(&ended) };
        }
        if text.starts_with([' ', '\t']) {
            let Some((_, value)) = fields.last_mut() else {
                bail!("expected `Field: value`, found a line that goes on with nothing: {text:?}");
            };
            value.push('\n');
            value.push_str(&text);
            return Ok(());
        }
        let Some((name, value)) = text.split_once(':') else {
            bail!("expected `Field: value`, found {text:?}");
        };
        fields.push((name.to_owned(), value.trim().to_owned()));
        Ok(())
    })?;
    if fields.is_empty() { Ok(()) } else { entry(&fields) }
}

/// The value of a field of an entry; empty if the field is missing.
pub fn field<'a>(entry: &'a [(String, String)], name: &str) -> &'a str {
    entry.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "\
main|node|node|node|amd64|http://n/|Packages|7/n_main_binary-amd64_Packages
main|bookworm|bookworm|oldstable|amd64|http://a/debian/|Packages|50/a_main_binary-amd64_Packages.lz4
main|bookworm|bookworm|oldstable||http://a/debian/|Translations|90/a_main_i18n_Translation-en.lz4
main|bookworm|bookworm|oldstable|arm64|http://a/debian/|Packages|50/a_main_binary-arm64_Packages.lz4
main|trixie|trixie|stable|amd64|http://a/debian/|Packages|40/b_main_binary-amd64_Packages
main|sid|sid|unstable|amd64|http://a/debian/|Packages|gone/c_main_binary-amd64_Packages
contrib|bookworm|bookworm|oldstable|amd64|http://a/debian/|Packages|60/a_contrib_binary-amd64_Packages";

    /// The file selected from those above, each as long as its folder says.
    fn chosen(source: Source) -> Option<String> {
        let bytes = |path: &Path| path.parent()?.to_str()?.parse().ok();
        let targets = parse_targets(TARGETS, bytes);
        source
            .main_target(&targets)
            .map(|target| target.path.display().to_string())
    }

    #[test]
    fn the_longest_list_of_packages_that_fits_is_chosen() {
        let some = |text: &str| Some(text.to_owned());
        let source = |suite: Option<&str>, arch: Option<&str>, component: Option<&str>| Source {
            suite: suite.map(str::to_owned),
            arch: arch.map(str::to_owned),
            component: component.map(str::to_owned),
            ..Source::default()
        };
        assert_eq!(
            chosen(source(None, None, None)),
            some("50/a_main_binary-amd64_Packages.lz4")
        );
        for suite in ["stable", "trixie"] {
            assert_eq!(
                chosen(source(Some(suite), None, None)),
                some("40/b_main_binary-amd64_Packages")
            );
        }
        assert_eq!(
            chosen(source(None, Some("arm64"), None)),
            some("50/a_main_binary-arm64_Packages.lz4")
        );
        assert_eq!(chosen(source(None, Some("arm64"), Some("contrib"))), None);
        assert_eq!(chosen(source(Some("sid"), None, None)), None);
    }

    #[test]
    fn files_are_told_apart_by_their_names() {
        for (name, kind) in [
            ("Packages", Some(Kind::Packages)),
            ("Packages.xz", Some(Kind::Packages)),
            (
                "deb.debian.org_debian_dists_bookworm_main_binary-amd64_Packages.lz4",
                Some(Kind::Packages),
            ),
            (
                "deb.debian.org_debian_dists_bookworm_main_i18n_Translation-en",
                Some(Kind::Translation),
            ),
            ("a_main_i18n_Translation-de", None),
            ("Contents-amd64.gz", Some(Kind::Contents)),
            ("a_main_dep11_Components-amd64.yml.gz", None),
            ("a_InRelease", None),
        ] {
            assert_eq!(Kind::of(Path::new(name)), kind, "{name}");
        }
        let error = Index::of_files(&["InRelease".into()]).unwrap_err().to_string();
        assert!(error.contains("Packages"), "{error}");
    }

    #[test]
    fn entries_have_fields_and_lines_that_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Packages");
        fs::write(&path, "A: 1\nB:  2 \n more\n\n\nA: 3").unwrap();
        let mut found = Vec::new();
        entries(&path, |entry| {
            found.push((field(entry, "A").to_owned(), field(entry, "B").to_owned()));
            Ok(())
        })
        .unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(found, [pair("1", "2\n more"), pair("3", "")]);

        fs::write(&path, "A: 1\nno field\n").unwrap();
        let error = format!("{:#}", entries(&path, |_| Ok(())).unwrap_err());
        assert!(error.contains("line 2") && error.contains("no field"), "{error}");
    }
}
