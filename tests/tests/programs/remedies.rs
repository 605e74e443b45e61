//! The commands that errors about input files print: each is run as it stands there, and its result is read.
//!
//! Commands of Python run in the Python of `GRAPPA_PYG_PYTHON`, which `cargo xtask` installs. A command whose programs
//! or modules are missing is a skipped part.

mod cases;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
};

use grappa_input::Conversion;

use crate::misread::{ExpectedGraph, IngestFolder};

/// A file that is refused with a command, and how the result is read:
/// `CONVERSION(PARAMETER) | MADE BY | NEEDS | REFUSED | READ | EDGES | FEATURES | LABELS`.
struct Case {
    conversion: Conversion,
    /// It takes the place of COLUMN, NAME or SPLIT in the command.
    parameter: &'static str,
    /// A line of Python, or of a shell after `$`, that writes the file.
    made_by: &'static str,
    /// Modules of Python, or programs after `$`, that making and converting take. NumPy is imported as `np`.
    needs: Vec<&'static str>,
    /// Options that are refused; their first file has the error. After `$grappa-ingest`, the program runs with them,
    /// and has the command in an error or a warning.
    refused: &'static str,
    /// Options that read the result. `e.txt` is an edge from 0 to 1, if `made_by` writes no other.
    read: &'static str,
    /// The edges are 0>1, 1>2 and 2>0 if the case has none.
    graph: ExpectedGraph,
}

impl Case {
    fn parse(line: &'static str) -> Self {
        let mut fields = line.split(" | ");
        let mut next = || fields.next().unwrap_or_default();
        let head = next();
        let (name, parameter) = head.split_once('(').unwrap_or((head, ")"));
        let (made_by, needs, refused, read) = (next(), next(), next(), next());
        let (edges, features, labels) = (next(), next(), next());
        let edges = if edges.is_empty() { "0>1&1>2&2>0" } else { edges };
        let conversion = Conversion::ALL.iter().find(|conversion| format!("{conversion:?}") == name);
        Self {
            conversion: *conversion.unwrap_or_else(|| panic!("there is no conversion {name}")),
            parameter: parameter.strip_suffix(')').unwrap_or_default(),
            made_by,
            needs: needs.split_whitespace().collect(),
            refused,
            read,
            graph: ExpectedGraph::new(edges, features, labels),
        }
    }
}

/// Runs a line as a user does who pastes it into a shell. `python3` is the Python of the tests.
fn paste(line: &str, folder: &Path) {
    let mut paths = vec![folder.join("bin")];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let ran = Command::new("sh")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", env::join_paths(paths).unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{line}\n{errors}");
}

/// Whether a module of Python, or a program after `$`, is there.
fn is_there(need: &str, python: &Path) -> bool {
    let mut command = Command::new(python);
    let find = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)";
    command.args(["-c", find, need]);
    if let Some(program) = need.strip_prefix('$') {
        command = Command::new("sh");
        command.args(["-c", &format!("command -v {program}")]);
    }
    command.output().is_ok_and(|ran| ran.status.success())
}

/// What ingest says about files of a folder: an error, or, after `$grappa-ingest`, the messages of the program.
fn message(folder: &IngestFolder, arguments: &str) -> String {
    let Some(arguments) = arguments.strip_prefix("$grappa-ingest ") else {
        return folder.expect_error(arguments, &[], arguments);
    };
    folder.run(&format!("ingest {arguments} --out first.grappa")).stderr
}

impl Case {
    /// The file that the message is about.
    fn file(&self, folder: &IngestFolder) -> PathBuf {
        match self.refused.strip_prefix("$grappa-ingest ") {
            None => folder.path(self.refused.split(' ').nth(1).unwrap()),
            Some(arguments) => match arguments.strip_prefix("--ogb ") {
                Some(dataset) => Path::new(dataset).join("split/time/split_dict.pt"),
                // A description of a graph names the file.
                None if arguments.starts_with("--gconstruct g.json") => "t.csv".into(),
                None if arguments.starts_with("--gconstruct") => "t.parquet".into(),
                None if arguments.starts_with("--graphbolt") => "pairs.csv".into(),
                None => arguments.split(' ').nth(1).unwrap().into(),
            },
        }
    }

    /// A folder for the file, in which `python3` is the Python of the tests.
    fn prepare(&self, python: &Path) -> IngestFolder {
        let folder = IngestFolder::new();
        folder.write("e.txt", "0 1");
        // A virtual environment is found from the program that is run, so a link to it would find none.
        folder.write("bin/python3", format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display()));
        paste("chmod +x bin/python3", folder.root());
        if let Some(line) = self.made_by.strip_prefix('$') {
            paste(line, folder.root());
        }
        folder
    }

    fn check(&self, folder: &IngestFolder) {
        let context = format!("{:?}: {}", self.conversion, self.made_by);
        let root = folder.root();
        let message = message(folder, self.refused);
        let command = self.conversion.command(&self.file(folder));
        let names = ["COLUMN", "NAME", "SPLIT", "/row/"].iter();
        let command = names.fold(command, |command, name| command.replace(name, self.parameter));
        let command = match self.conversion {
            Conversion::MergeText | Conversion::MergeParquet => format!("{command} {}", self.parameter),
            _ => command,
        };
        assert!(message.contains(&command), "{command}\nis not in\n{message}\n{context}");
        paste(&command, root);
        folder.expect(self.read, "", self.graph, &context);
    }
}

#[test]
fn every_command_that_an_error_prints_makes_a_file_that_is_read() {
    let Some(python) = env::var_os("GRAPPA_PYG_PYTHON").map(PathBuf::from) else {
        grappa_skip::skip!("GRAPPA_PYG_PYTHON names no Python");
    };
    let tables = [cases::ARRAYS, cases::FILES, cases::TEXT, cases::LAYOUTS];
    let mut cases: Vec<Case> = tables.into_iter().flatten().map(|line| Case::parse(line)).collect();
    for &conversion in Conversion::ALL {
        let is_run = cases.iter().any(|case| case.conversion == conversion);
        assert!(is_run, "no test runs the command {conversion:?}");
    }
    let needs: BTreeSet<&str> = cases.iter().flat_map(|case| &case.needs).copied().collect();
    let missing: BTreeSet<&str> = needs.into_iter().filter(|need| !is_there(need, &python)).collect();
    cases.retain(|case| {
        let need = case.needs.iter().find(|need| missing.contains(*need));
        if let Some(need) = need {
            grappa_skip::skip_part!("{:?} needs {need}", case.conversion);
        }
        need.is_none()
    });
    let folders: Vec<IngestFolder> = cases.iter().map(|case| case.prepare(&python)).collect();
    make_files(&cases, &folders, &python);
    // Python starts slowly, so several commands run at a time.
    let cases = Mutex::new(cases.iter().zip(&folders));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((case, folder)) = next_of(&cases) {
                    case.check(folder);
                }
            });
        }
    });
}

/// Makes the files of all cases in Python, in one process, because its modules are loaded slowly.
fn make_files(cases: &[Case], folders: &[IngestFolder], python: &Path) {
    let mut jobs = Vec::new();
    for (case, folder) in cases.iter().zip(folders) {
        if !case.made_by.starts_with('$') {
            let numpy = if case.needs.contains(&"numpy") { "import numpy as np" } else { "" };
            jobs.push((folder.root(), format!("{numpy}\n{}", case.made_by)));
        }
    }
    let script =
        "import json, os, sys\nfor folder, made_by in json.loads(sys.argv[1]): os.chdir(folder); exec(made_by, {})";
    let ran = Command::new(python).args(["-c", script, &serde_json::to_string(&jobs).unwrap()]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// The next item, for one of several threads.
fn next_of<T: Iterator>(items: &Mutex<T>) -> Option<T::Item> {
    items.lock().unwrap().next()
}

#[test]
fn ids_that_count_from_one_are_read_with_the_printed_options() {
    let files = "--edges e.txt --features x.csv";
    let graph = ExpectedGraph::new("1>2&2>3&3>1", "0.5 1.5 2.5", "");
    for arguments in [files, "--edges e.txt --nodes 3", "$grappa-ingest --edges e.txt"] {
        let folder = IngestFolder::new();
        folder.write("e.txt", "1 2\n2 3\n3 1\n");
        folder.write("x.csv", "0.5\n1.5\n2.5\n");
        let said = message(&folder, arguments);
        let (_, after) = said.split_once("read such ids with: ").expect(&said);
        let (command, options) = after.split_once(", and then ").unwrap();
        paste(command, folder.root());
        let words: Vec<&str> = options.split([' ', ',', '\n', ';']).take(4).collect();
        folder.expect(&format!("{files} {}", words.join(" ")), "", graph, arguments);
    }
}

/// Commands in the sources that are not among the conversions have no test.
#[test]
fn no_message_has_a_command_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![root.join("engine"), root.join("tools/grappa-ingest")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("conversions.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                for line in lines {
                    let is_command = COMMANDS.iter().any(|command| line.contains(command));
                    let path = path.display();
                    assert!(!is_command, "{path}: a command of a message belongs to the conversions: {line}");
                }
            }
        }
    }
}

/// Parts of commands.
const COMMANDS: [&str; 9] =
    ["python3 -c", "numpy.save", "np.save", "awk ", "iconv ", "tail -n", "grep -v", "bzip2 -", "gzip -"];
