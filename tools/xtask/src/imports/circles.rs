//! Circles in the graph of imports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

use super::modules::Crate;

/// Each file or folder with the others that it imports from.
type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Files that import from each other, directly or through others of them; or modules with all files below them.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle(Imports);

/// The circles of files, and then the circles of modules that no circle of files shows. Each file is in at most one.
pub fn of_crate(krate: &Crate) -> Vec<Circle> {
    let imports = krate.imports();
    let files = circles(&imports);
    let modules = (1..)
        .map(|depth| between_modules(&imports, depth))
        .take_while(|imports| !imports.is_empty())
        .flat_map(|imports| circles(&imports))
        .filter(|circle| !files.iter().any(|other| circle.covers(other)));
    let modules: Vec<Circle> = modules.collect();
    files.into_iter().chain(modules).collect()
}

/// Imports between modules of the same parent, `depth` names below the root of the crate. What a module imports is what all
/// files in its folder import.
fn between_modules(imports: &Imports, depth: usize) -> Imports {
    let mut found = Imports::new();
    for (file, others) in imports {
        let Some(module) = module_at(file, depth) else {
            continue;
        };
        let modules = others.iter().filter_map(|other| module_at(other, depth));
        found
            .entry(module.clone())
            .or_default()
            .extend(modules.filter(|other| *other != module && other.parent() == module.parent()));
    }
    found
}

/// The module of a file, `depth` names below the folder `src`. None if the file is less deep.
fn module_at(file: &Path, depth: usize) -> Option<PathBuf> {
    let parts: Vec<_> = file.iter().collect();
    let root = parts.iter().position(|part| *part == "src")? + 1;
    let module: PathBuf = parts.get(..root + depth)?.iter().collect();
    let name = module.file_stem()?;
    (!["mod", "lib", "main"].iter().any(|root| name == *root)).then(|| module.with_extension(""))
}

fn circles(imports: &Imports) -> Vec<Circle> {
    let reached: Imports = imports.keys().map(|file| (file.clone(), reached_from(file, imports))).collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, others) in &reached {
        if !others.contains(file) || seen.contains(file) {
            continue;
        }
        let members: BTreeSet<PathBuf> =
            others.iter().filter(|other| reached[*other].contains(file)).cloned().collect();
        let circle = members.iter().map(|member| {
            let inside = imports[member].intersection(&members).cloned().collect();
            (member.clone(), inside)
        });
        found.push(Circle(circle.collect()));
        seen.extend(members);
    }
    found
}

/// All files that `file` imports from, directly or through others.
fn reached_from(file: &Path, imports: &Imports) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(next) = open.pop() {
        for other in imports.get(next).into_iter().flatten() {
            if reached.insert(other.clone()) {
                open.push(other);
            }
        }
    }
    reached
}

impl Circle {
    /// Whether each of these modules has a file of the other circle.
    fn covers(&self, files: &Circle) -> bool {
        self.0.keys().all(|module| files.0.keys().any(|file| file.with_extension("").starts_with(module)))
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files or modules import from each other:", self.0.len())?;
        for (file, imports) in &self.0 {
            let imports: Vec<String> = imports.iter().map(|import| import.display().to_string()).collect();
            write!(f, "\n    {} from {}", file.display(), imports.join(", "))?;
        }
        Ok(())
    }
}
