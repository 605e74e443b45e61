//! The commands that errors about input files print: each is run as it stands there, and its result is read.
//!
//! Commands of Python run in the Python of `GRAPPA_PYG_PYTHON`, which `cargo xtask` installs. A command whose programs or modules
//! are missing is a skipped part.

mod arrays;
mod files;
mod text;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
};

use grappa_input::Conversion;
use grappa_tests::{
    files::memory_folder,
    program::{self, program},
};

use crate::misread::{Graph, Run};

/// A file that is refused with a command, and how the result is read.
struct Case {
    conversion: Conversion,
    /// What takes the place of COLUMN, NAME or SPLIT in the command.
    parameter: &'static str,
    /// A line of Python, or of a shell after `$`, that writes the file.
    made_by: &'static str,
    /// Modules of Python, or programs after `$`, that making and converting take.
    needs: &'static [&'static str],
    /// Options that are refused; the first file of theirs has the error. After `$grappa-ingest`, the program runs with them, and says
    /// the command in an error or a warning.
    refused: &'static str,
    /// Options that read the result.
    read: &'static str,
    graph: Graph,
}

const EDGES: &str = "0>1&1>2&2>0";

/// Edges 0-1-2-0 in a file that is refused as `--edges`.
const fn edges(
    conversion: Conversion,
    made_by: &'static str,
    needs: &'static [&'static str],
    refused: &'static str,
    read: &'static str,
) -> Case {
    of(conversion, made_by, needs, refused, read, EDGES)
}

const fn of(
    conversion: Conversion,
    made_by: &'static str,
    needs: &'static [&'static str],
    refused: &'static str,
    read: &'static str,
    edges: &'static str,
) -> Case {
    Case {
        conversion,
        parameter: "",
        made_by,
        needs,
        refused,
        read,
        graph: Graph {
            edges,
            features: "",
            labels: "",
        },
    }
}

impl Case {
    const fn with(mut self, parameter: &'static str) -> Self {
        self.parameter = parameter;
        self
    }

    const fn features(mut self, features: &'static str) -> Self {
        self.graph.features = features;
        self
    }

    const fn labels(mut self, labels: &'static str) -> Self {
        self.graph.labels = labels;
        self
    }
}

/// All cases.
fn all() -> impl Iterator<Item = &'static Case> {
    [arrays::ARRAYS, files::FILES, text::TEXT].into_iter().flatten()
}

/// The Python that runs the commands.
fn python() -> Option<PathBuf> {
    env::var_os("GRAPPA_PYG_PYTHON").map(PathBuf::from)
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

/// The programs and modules that cases need and that are missing.
fn missing(python: &Path) -> BTreeSet<&'static str> {
    let is_there = |need: &str| {
        let mut command = match need.strip_prefix('$') {
            Some(program) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("command -v {program}")]);
                command
            }
            None => {
                let mut command = Command::new(python);
                let find = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)";
                command.args(["-c", find, need]);
                command
            }
        };
        command.output().is_ok_and(|ran| ran.status.success())
    };
    let needs: BTreeSet<&str> = all().flat_map(|case| case.needs).copied().collect();
    needs.into_iter().filter(|need| !is_there(need)).collect()
}

impl Case {
    /// What is said about the file, and the file.
    fn message(&self, run: &Run, context: &str) -> (String, PathBuf) {
        let Some(arguments) = self.refused.strip_prefix("$grappa-ingest ") else {
            let file = self.refused.split(' ').nth(1).unwrap();
            let error = run.ingest(self.refused).expect_err(context);
            return (error, run.folder.path().join(file));
        };
        let mut command = Command::new(program("grappa-ingest"));
        command.current_dir(run.folder.path()).args(arguments.split(' '));
        let said = program::run(command.args(["--out", "first.grappa"])).stderr;
        let file = match arguments.strip_prefix("--ogb ") {
            Some(dataset) => Path::new(dataset).join("split/time/split_dict.pt"),
            None => arguments.split(' ').nth(1).unwrap().into(),
        };
        (said, file)
    }

    fn check(&self, python: &Path) {
        let context = format!("{:?}: {}", self.conversion, self.made_by);
        let run = Run {
            folder: memory_folder(),
        };
        let folder = run.folder.path();
        fs::create_dir(folder.join("bin")).unwrap();
        // A virtual environment is found from the program that is run, so a link to it would find none.
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display());
        fs::write(folder.join("bin/python3"), script).unwrap();
        paste("chmod +x bin/python3", folder);
        match self.made_by.strip_prefix('$') {
            Some(line) => paste(line, folder),
            None => {
                fs::write(folder.join("make.py"), self.made_by).unwrap();
                paste("python3 make.py", folder);
            }
        }
        let (message, file) = self.message(&run, &context);
        let command = self.conversion.command(&file);
        let command = ["COLUMN", "NAME", "SPLIT", "/row/"]
            .iter()
            .fold(command, |command, name| command.replace(name, self.parameter));
        assert!(message.contains(&command), "{command}\nis not in\n{message}\n{context}");
        paste(&command, folder);
        run.expect(self.read, "", self.graph, &context);
    }
}

#[test]
fn every_command_that_an_error_prints_makes_a_file_that_is_read() {
    let Some(python) = python() else {
        grappa_skip::skip!("GRAPPA_PYG_PYTHON names no Python");
    };
    for &conversion in Conversion::ALL {
        assert!(
            all().any(|case| case.conversion == conversion),
            "no test runs the command {conversion:?}"
        );
    }
    let missing = missing(&python);
    let is_missing = |need: &&&str| missing.contains(*need);
    for case in all() {
        if let Some(need) = case.needs.iter().find(is_missing) {
            grappa_skip::skip_part!("{:?} needs {need}", case.conversion);
        }
    }
    let cases = all().filter(|case| case.needs.iter().all(|need| !missing.contains(need)));
    let cases = Mutex::new(cases);
    // Python starts slowly, so several cases run at a time.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let next = || cases.lock().unwrap().next();
                while let Some(case) = next() {
                    case.check(&python);
                }
            });
        }
    });
}

#[test]
fn ids_that_count_from_one_are_read_with_the_printed_options() {
    let (edges, features) = ("1 2\n2 3\n3 1\n", "0.5\n1.5\n2.5\n");
    let files = "--edges e.txt --features x.csv";
    let graph = Graph {
        edges: "1>2&2>3&3>1",
        features: "0.5 1.5 2.5",
        labels: "",
    };
    for refused in [files, "--edges e.txt --nodes 3", "$grappa-ingest --edges e.txt"] {
        let run = Run {
            folder: memory_folder(),
        };
        fs::write(run.folder.path().join("e.txt"), edges).unwrap();
        fs::write(run.folder.path().join("x.csv"), features).unwrap();
        let said = match refused.strip_prefix("$grappa-ingest ") {
            None => run.ingest(refused).unwrap_err(),
            Some(arguments) => {
                let mut command = Command::new(program("grappa-ingest"));
                command.current_dir(run.folder.path()).args(arguments.split(' '));
                program::run(command.args(["--out", "first.grappa"])).success().stderr
            }
        };
        let (_, after) = said.split_once("read such ids with: ").expect(&said);
        let (command, options) = after.split_once(", and then ").unwrap();
        paste(command, run.folder.path());
        let words: Vec<&str> = options.split([' ', ',', '\n', ';']).take(4).collect();
        run.expect(&format!("{files} {}", words.join(" ")), "", graph, refused);
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
                    for command in [
                        "python3 -c",
                        "numpy.save",
                        "np.save",
                        "awk ",
                        "iconv ",
                        "tail -n",
                        "grep -v",
                        "bzip2 -",
                        "gzip -",
                    ] {
                        assert!(
                            !line.contains(command),
                            "{}: a command of a message belongs to the conversions: {line}",
                            path.display()
                        );
                    }
                }
            }
        }
    }
}
