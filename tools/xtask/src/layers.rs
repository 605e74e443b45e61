//! The layers of the workspace: which crate may depend on which, and which module of a crate may import from which.
//!
//! Cargo forbids cycles between crates, but not a new dependency; within a crate nothing forbids a cycle. So both are listed
//! here, and `cargo xtask tidy` compares them with the code. A new line is a change of the design.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::command::root;

/// A crate of the workspace.
struct Layer {
    folder: &'static str,
    /// The crates of the workspace that it may depend on, apart from tests.
    dependencies: &'static [&'static str],
    /// Its modules. Each may import only from those before it.
    modules: &'static [&'static str],
}

const LAYERS: [Layer; 13] = [
    Layer {
        folder: "formats",
        dependencies: &[],
        modules: &[
            "error",
            "id",
            "random",
            "container",
            "bytes",
            "dtype",
            "chunks",
            "span",
            "permutation",
            "permutation_table",
            "rows",
            "weights",
            "dictionary",
            "features",
            "labels",
            "splits",
            "aggregates",
            "assignment",
            "schema",
            "manifest",
        ],
    },
    Layer {
        folder: "engine/io",
        dependencies: &["grappa-formats"],
        modules: &[
            "text",
            "size",
            "error",
            "progress",
            "machine",
            "workers",
            "memory",
            "sort",
            "prefetch",
            "heap",
            "unnamed",
            "regular",
            "durable",
            "journal",
            "identity",
            "map",
            "populate",
            "arena",
            "shared",
            "direct",
            "slots",
            "npy",
            "container",
            "read",
            "blocks",
        ],
    },
    Layer {
        folder: "engine/input",
        dependencies: &["grappa-formats", "grappa-io"],
        modules: &[
            "messages",
            "conversions",
            "file",
            "folder",
            "gzip",
            "crc",
            "extent",
            "kinds",
            "separator",
            "line_reader",
            "npy",
            "zip",
            "sparse",
            "parquet",
            "columns",
            "table",
            "reading",
            "edges",
            "nodes",
            "ogb",
        ],
    },
    Layer {
        folder: "engine/synthetic",
        dependencies: &["grappa-formats", "grappa-io"],
        modules: &[
            "random",
            "lists",
            "poisson",
            "patterns",
            "rmat",
            "block",
            "recipe",
            "features",
            "generator",
        ],
    },
    Layer {
        folder: "engine/storage",
        dependencies: &["grappa-formats", "grappa-io"],
        modules: &[
            "permutation",
            "checked",
            "features",
            "files",
            "writer",
            "assignments",
            "ids",
            "open",
            "chunk",
            "columns",
            "mapped",
            "neighbors",
            "feature_rows",
            "aggregates",
        ],
    },
    Layer {
        folder: "engine/ingest",
        dependencies: &[
            "grappa-formats",
            "grappa-input",
            "grappa-io",
            "grappa-storage",
            "grappa-synthetic",
        ],
        modules: &["in_order", "ids", "ingest", "generate"],
    },
    Layer {
        folder: "engine/sampling",
        dependencies: &["grappa-formats", "grappa-io", "grappa-storage", "grappa-synthetic"],
        modules: &[
            "names",
            "node_set",
            "partition",
            "policy",
            "view",
            "placement",
            "sample",
            "in_neighbors",
            "halo_neighbors",
            "feed",
            "loader",
        ],
    },
    Layer {
        folder: "engine",
        dependencies: &[
            "grappa-ingestion",
            "grappa-formats",
            "grappa-input",
            "grappa-io",
            "grappa-sampling",
            "grappa-storage",
            "grappa-synthetic",
        ],
        modules: &[
            "store",
            "ingest",
            "generate",
            "sample",
            "node_list",
            "aggregate",
            "derive",
            "export",
            "info",
            "place",
            "plan",
            "verify",
        ],
    },
    Layer {
        folder: "trainer/scores",
        dependencies: &["grappa-formats"],
        modules: &["auc", "loss", "words"],
    },
    Layer {
        folder: "trainer/codecs",
        dependencies: &[],
        modules: &["malformed", "bf16", "int8", "lossless", "indices", "top_k"],
    },
    Layer {
        folder: "trainer/run",
        dependencies: &["grappa-formats", "grappa-io", "grappa-sampling", "grappa-scores"],
        modules: &[
            "error",
            "serde_text",
            "option_value",
            "names",
            "percent",
            "stages",
            "checksum_line",
            "model",
            "class_names",
            "schema",
            "early_stopping",
            "config",
            "learning_rate",
            "scores",
            "journal",
            "own_folder",
            "checkpoint",
            "summary",
            "folder",
            "finished",
            "background",
        ],
    },
    Layer {
        folder: "trainer/report",
        dependencies: &["grappa-io", "grappa-run"],
        modules: &[
            "facts",
            "html",
            "scale",
            "series",
            "plot",
            "tables",
            "charts",
            "classes",
            "tiles",
            "compare",
            "run_report",
        ],
    },
    Layer {
        folder: "trainer",
        dependencies: &[
            "grappa-codecs",
            "grappa-engine",
            "grappa-formats",
            "grappa-io",
            "grappa-report",
            "grappa-run",
            "grappa-sampling",
            "grappa-storage",
        ],
        modules: &[
            "error",
            "shim",
            "runtime",
            "distributed",
            "kernels",
            "nn",
            "train",
            "predict",
            "export",
        ],
    },
];

/// Adds what contradicts the table.
pub fn check(files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
    for layer in &LAYERS {
        layer.check_dependencies(problems)?;
        layer.check_modules(files, problems)?;
    }
    Ok(())
}

impl Layer {
    fn check_dependencies(&self, problems: &mut Vec<String>) -> Result<()> {
        let path = Path::new(self.folder).join("Cargo.toml");
        let text = fs::read_to_string(root().join(&path)).with_context(|| format!("cannot read {}", path.display()))?;
        for name in dependencies(&text).filter(|name| !self.dependencies.contains(name)) {
            problems.push(format!(
                "{}: the layers do not let this crate depend on {name} (tools/xtask/src/layers.rs)",
                path.display()
            ));
        }
        Ok(())
    }

    fn check_modules(&self, files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
        let source = Path::new(self.folder).join("src");
        let reexports = reexports(&fs::read_to_string(root().join(&source).join("lib.rs"))?);
        for file in files {
            let Ok(relative) = file.strip_prefix(&source) else {
                continue;
            };
            let module = module_of(relative);
            let is_test = module.iter().any(|part| part.contains("tests"));
            if is_test || module.is_empty() || relative.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let rank = |name: &str| self.modules.iter().position(|module| *module == name);
            let Some(own) = rank(&module[0]) else {
                problems.push(format!(
                    "{}: the module `{}` has no place in tools/xtask/src/layers.rs",
                    file.display(),
                    module[0]
                ));
                continue;
            };
            let text = fs::read_to_string(root().join(file))?;
            for import in imports(&text, &module) {
                let import = reexports.get(&import).unwrap_or(&import);
                if rank(import).is_some_and(|other| other > own) {
                    problems.push(format!(
                        "{}: `{}` imports from `{import}`, which is a layer above it (tools/xtask/src/layers.rs)",
                        file.display(),
                        module[0]
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The crates of the workspace under `[dependencies]` of a Cargo.toml.
fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| name.starts_with("grappa-"))
}

/// The path of the module in a file, relative to the crate: empty for `lib.rs`.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> = file
        .with_extension("")
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => name.to_str().map(str::to_owned),
            _ => None,
        })
        .collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// The module that each name comes from which `lib.rs` re-exports.
fn reexports(lib: &str) -> BTreeMap<String, String> {
    lib.split("pub use ")
        .skip(1)
        .flat_map(paths)
        .filter_map(|path| Some((path.last()?.clone(), path.iter().find(|part| *part != "self")?.clone())))
        .collect()
}

/// The modules at the root of the crate from which the code of `module` imports. What follows `mod tests {` is a test.
fn imports(text: &str, module: &[String]) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .take_while(|line| !line.starts_with("mod tests {"))
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(" ");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            found.extend(first_names(&code[at + "crate::".len()..]));
        }
    }
    // As many times `super::` as the module is deep lead to the root.
    let to_root = "super::".repeat(module.len());
    for (at, _) in code.match_indices(&to_root) {
        if !code[..at].ends_with("super::") {
            found.extend(first_names(&code[at + to_root.len()..]));
        }
    }
    found
}

/// The first name of each path of the use tree at the start of `text`: `a` and `b` of `{a::{c, d}, b}`.
fn first_names(text: &str) -> impl Iterator<Item = String> {
    paths(text).into_iter().filter_map(|path| path.into_iter().next())
}

/// The paths of the use tree at the start of `text`: `a::c`, `a::d` and `b` of `{a::{c as x, d}, b}`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let (mut found, mut open, mut path, mut name) = (Vec::new(), Vec::new(), Vec::new(), String::new());
    let end_name = |name: &mut String| -> Option<String> {
        let first = name.split_whitespace().next().map(str::to_owned);
        name.clear();
        first
    };
    for c in text.chars().chain([';']) {
        match c {
            '{' => open.push(path.clone()),
            ':' => path.extend(end_name(&mut name)),
            c if c.is_alphanumeric() || c == '_' || (c.is_whitespace() && !open.is_empty()) => name.push(c),
            // A path ends at a comma, at a closing brace, and at the first other character behind the tree.
            _ => {
                found.extend(end_name(&mut name).map(|last| [path.clone(), vec![last]].concat()));
                if c == '}' {
                    open.pop();
                }
                let Some(outer) = open.last() else {
                    break;
                };
                path.clone_from(outer);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|part| (*part).to_owned()).collect();
        imports(text, &module).into_iter().collect()
    }

    #[test]
    fn imports_are_found_in_trees_paths_and_through_super() {
        let text = "use crate::{a::{b, c}, d};\nuse super::super::{e::f, g};\nfn x() { crate::h::i() }\n";
        assert_eq!(imported(text, &["feed", "pool"]), ["a", "d", "e", "g", "h"]);
        assert_eq!(imported("use super::{a::b};", &["feed", "pool"]), [""; 0]);
        assert_eq!(imported("use super::a;", &["feed"]), ["a"]);
    }

    #[test]
    fn comments_tests_and_other_crates_are_no_imports() {
        let text = "// crate::a\nuse other_crate::b;\nmod tests {\n    use crate::c;\n}\n";
        assert_eq!(imported(text, &["feed"]), [""; 0]);
    }

    #[test]
    fn names_are_traced_to_the_modules_that_lib_reexports_them_from() {
        let lib = "mod a;\npub use a::{B as X, c};\npub use self::{\n    d::E,\n    f::{G, h},\n};\n";
        let found: Vec<(String, String)> = reexports(lib).into_iter().collect();
        let of = |name: &str, module: &str| (name.to_owned(), module.to_owned());
        assert_eq!(
            found,
            [of("B", "a"), of("E", "d"), of("G", "f"), of("c", "a"), of("h", "f")]
        );
    }

    #[test]
    fn dependencies_of_tests_do_not_count() {
        let text = "[dependencies]\nbytes.workspace = true\ngrappa-io.workspace = true\n\n[dev-dependencies]\ngrappa-skip.workspace = true\n";
        assert_eq!(dependencies(text).collect::<Vec<_>>(), ["grappa-io"]);
    }

    #[test]
    fn an_import_from_a_layer_above_is_a_problem() {
        let folder = "formats";
        let layer = Layer {
            folder,
            dependencies: &[],
            modules: &["container", "bytes"],
        };
        let mut problems = Vec::new();
        layer
            .check_modules(&[PathBuf::from("formats/src/bytes.rs")], &mut problems)
            .unwrap();
        assert_eq!(problems, [""; 0]);
        let turned = Layer {
            modules: &["bytes", "container"],
            ..layer
        };
        turned
            .check_modules(&[PathBuf::from("formats/src/bytes.rs")], &mut problems)
            .unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
