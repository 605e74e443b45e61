//! `cargo xtask tidy`: checks that compilers and linters don't do.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    command::{output, program, root},
    imports, layers,
};

/// The largest file that belongs in the repository.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The page that names tests for each promise.
const PROMISES: &str = "docs/reliability.md";

/// Text that code and pages must not contain, and the reason. The patterns are split, so that this file does not
/// contain them.
const FORBIDDEN: [(&str, &str); 8] = [
    (concat!("TO", "DO"), "do it, or file an issue"),
    (concat!("FIX", "ME"), "fix it, or file an issue"),
    (concat!("#[ig", "nore"), "a test that does not run protects nothing"),
    (concat!("#[al", "low"), "use #[expect(..., reason = \"...\")]"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/t", "mp/"), "a path of one machine"),
];

pub fn tidy() -> Result<()> {
    let files = tracked_files()?;
    let mut problems = Vec::new();
    for file in &files {
        check_file(file, &mut problems)?;
    }
    check_formats(&files, &mut problems)?;
    check_promises(&files, &mut problems)?;
    layers::check(&mut problems)?;
    imports::check(&files, &mut problems)?;
    if problems.is_empty() {
        eprintln!("tidy: {} files", files.len());
        return Ok(());
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    bail!("{} place(s) to tidy", problems.len());
}

/// The files of the repository, relative to its root. Untracked files count, ignored files do not.
fn tracked_files() -> Result<Vec<PathBuf>> {
    let list = output(program("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]))
        .context("cannot list the files of this checkout")?;
    let files: BTreeSet<PathBuf> = list.lines().map(PathBuf::from).collect();
    // Git also lists deleted files until the deletion is committed.
    Ok(files.into_iter().filter(|file| root().join(file).is_file()).collect())
}

fn check_file(file: &Path, problems: &mut Vec<String>) -> Result<()> {
    let path = root().join(file);
    let bytes = fs::metadata(&path)?.len();
    if bytes > FILE_BYTES_MAX {
        problems.push(format!("{}: {bytes} bytes, more than {FILE_BYTES_MAX}", file.display()));
        return Ok(());
    }
    // A file that is not text is data.
    let Ok(text) = String::from_utf8(fs::read(&path)?) else {
        return Ok(());
    };
    let extension = file.extension().and_then(|extension| extension.to_str());
    if matches!(extension, Some("rs" | "md" | "toml" | "py" | "cpp" | "h") | None) {
        check_forbidden(file, &text, problems);
    }
    if extension == Some("md") {
        check_links(file, &text, problems);
        if file.starts_with("benches/record") && !file.ends_with("README.md") {
            check_record(file, &text, problems);
        }
    }
    Ok(())
}

fn check_forbidden(file: &Path, text: &str, problems: &mut Vec<String>) {
    for (number, line) in (1..).zip(text.lines()) {
        for (pattern, why) in FORBIDDEN {
            if line.match_indices(pattern).any(|(at, _)| starts_a_word(line, at)) {
                problems.push(format!("{}:{number}: `{pattern}`: {why}", file.display()));
            }
        }
    }
}

/// Whether a word or path starts at `at`, instead of continuing a longer one such as `target/tmp/`.
fn starts_a_word(line: &str, at: usize) -> bool {
    line[..at]
        .chars()
        .next_back()
        .is_none_or(|before| !before.is_alphanumeric() && !matches!(before, '_' | '-' | '.' | '}' | '>'))
}

/// Checks that every relative link leads to a file or folder.
fn check_links(file: &Path, text: &str, problems: &mut Vec<String>) {
    let folder = root().join(file.parent().unwrap_or(Path::new("")));
    for (number, line) in (1..).zip(text.lines()) {
        for target in link_targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !path.is_empty() && !folder.join(path).exists() {
                problems.push(format!("{}:{number}: the link to `{target}` leads nowhere", file.display()));
            }
        }
    }
}

/// The targets of `[text](target)`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Checks that a record has a date and a machine.
fn check_record(file: &Path, text: &str, problems: &mut Vec<String>) {
    if !text.lines().any(has_date) {
        problems.push(format!("{}: names no date (2026-01-31)", file.display()));
    }
    if !text.to_lowercase().contains("machine:") {
        problems.push(format!("{}: has no line `Machine: ...`", file.display()));
    }
}

fn has_date(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_digit() && c != '-').any(|word| {
        let parts: Vec<&str> = word.split('-').collect();
        parts.iter().all(|part| !part.is_empty()) && parts.iter().map(|part| part.len()).eq([4, 2, 2])
    })
}

/// Checks that every kind of file has a page in the spec and a golden file.
fn check_formats(files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
    let source = root().join("formats/src/container.rs");
    let kinds = file_kinds(&fs::read_to_string(source)?);
    if kinds.is_empty() {
        problems.push("formats/src/container.rs: no kinds of files found".to_owned());
    }

    let mut spec = String::new();
    let mut golden = BTreeSet::new();
    for file in files {
        if file.starts_with("formats/spec") {
            spec += &fs::read_to_string(root().join(file))?;
        } else if file.starts_with("formats/tests/golden") {
            // Magic, then the kind: see formats/spec.
            if let Some(kind) = fs::read(root().join(file))?.get(8..12) {
                golden.insert(kind.to_vec());
            }
        }
    }
    for kind in kinds {
        if !spec.contains(&format!("`{kind}`")) {
            problems.push(format!("formats/spec: no page describes the kind `{kind}`"));
        }
        if !golden.contains(kind.as_bytes()) {
            problems.push(format!("formats/tests/golden: no file of kind `{kind}`"));
        }
    }
    Ok(())
}

/// Checks that every promise of `docs/reliability.md` names tests that exist.
fn check_promises(files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
    let mut tests = BTreeSet::new();
    for file in files {
        if file.extension().is_some_and(|extension| extension == "rs") {
            tests.extend(test_names(&fs::read_to_string(root().join(file))?));
        }
    }
    let page = fs::read_to_string(root().join(PROMISES)).with_context(|| format!("cannot read {PROMISES}"))?;
    check_promised_tests(&page, &tests, problems);
    Ok(())
}

fn check_promised_tests(page: &str, tests: &BTreeSet<String>, problems: &mut Vec<String>) {
    // Each table has a header, a rule, and rows with promises.
    let rows = (1..).zip(page.lines()).filter(|(_, line)| line.starts_with("| "));
    for (number, row) in rows.filter(|(_, line)| !line.starts_with("| promise |")) {
        let column = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = column.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            problems.push(format!("{PROMISES}:{number}: the promise names no test"));
        }
        for name in names.into_iter().filter(|name| !tests.contains(*name)) {
            problems.push(format!("{PROMISES}:{number}: there is no test `{name}`"));
        }
    }
}

/// The names of the functions after `#[test]` in a Rust file.
fn test_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut after_test = false;
    for line in source.lines().map(str::trim) {
        match line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
            Some((name, _)) if after_test => {
                names.push(name.to_owned());
                after_test = false;
            }
            Some(_) => after_test = false,
            None => after_test |= line == "#[test]",
        }
    }
    names
}

/// The four letters of each `pub const NAME: Self = Self(*b"NAME");`.
fn file_kinds(source: &str) -> Vec<String> {
    source
        .lines()
        .filter_map(|line| line.trim().split_once(": Self = Self(*b\""))
        .filter_map(|(_, rest)| rest.split_once('"'))
        .map(|(kind, _)| kind.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(check: impl FnOnce(&mut Vec<String>)) -> Vec<String> {
        let mut problems = Vec::new();
        check(&mut problems);
        problems
    }

    #[test]
    fn leftovers_and_paths_of_one_machine_are_found() {
        let file = Path::new("a.rs");
        for (pattern, _) in FORBIDDEN {
            let text = format!("fine\n// {pattern}x\n");
            let problems = problems_of(|problems| check_forbidden(file, &text, problems));
            assert_eq!(problems.len(), 1, "{pattern}");
            assert!(problems[0].starts_with("a.rs:2: "), "{}", problems[0]);
        }
    }

    #[test]
    fn paths_inside_the_checkout_are_no_machines() {
        let text = format!("target{}x {{dir}}{}y", FORBIDDEN[7].0, FORBIDDEN[5].0);
        assert!(problems_of(|problems| check_forbidden(Path::new("a.md"), &text, problems)).is_empty());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](Cargo.toml) [b](https://example.org/x) [c](#here) [d](Cargo.toml#x)\n[e](no/such.md)";
        let problems = problems_of(|problems| check_links(Path::new("README.md"), text, problems));
        assert_eq!(problems, ["README.md:2: the link to `no/such.md` leads nowhere"]);
    }

    #[test]
    fn a_record_needs_date_and_machine() {
        let check = |text: &str| problems_of(|problems| check_record(Path::new("r.md"), text, problems)).len();
        assert_eq!(check("Date: 2026-01-31\nMachine: two cores"), 0);
        assert_eq!(check("Machine: two cores, 12-34-56"), 1);
        assert_eq!(check("measured"), 2);
    }

    #[test]
    fn a_promise_needs_a_test_that_exists() {
        let tests = BTreeSet::from(["a_test".to_owned()]);
        let page = "| promise | tests |\n|---|---|\n| one | `a_test` |\n| two | none |\n| three | `a_test`, `gone` |\n";
        let problems = problems_of(|problems| check_promised_tests(page, &tests, problems));
        assert_eq!(
            problems,
            ["docs/reliability.md:4: the promise names no test", "docs/reliability.md:5: there is no test `gone`"]
        );
    }

    #[test]
    fn names_of_tests_are_read_from_the_source() {
        let source = "#[test]\n#[cfg(unix)]\nfn a_test() {}\nfn helper(x: u8) {}\n    #[test]\n    fn another() {\n";
        assert_eq!(test_names(source), ["a_test", "another"]);
    }

    #[test]
    fn kinds_are_read_from_the_source() {
        let source = "    pub const ROWS: Self = Self(*b\"ROWS\");\n    pub const X: u32 = 1;\n";
        assert_eq!(file_kinds(source), ["ROWS"]);
    }
}
