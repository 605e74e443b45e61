//! Packages and their dependencies.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result, ensure};

use super::index::{self, Index, field};

/// A virtual name with more providers than this leads to none of them.
const PROVIDERS_MAX: usize = 4;

/// The fields of a package that the graph needs.
#[derive(Debug, Default)]
pub struct Package {
    pub name: String,
    /// Without the component, which may precede it.
    pub section: String,
    pub description: String,
    pub description_md5: String,
    pub tags: String,
    provides: String,
    /// Pre-Depends, Depends, Recommends, Suggests.
    wants: [String; 4],
}

/// All packages in the order of their names. The id of a package is its index.
pub struct Packages {
    list: Vec<Package>,
    ids: HashMap<String, u64>,
}

impl Packages {
    /// Reads the lists of packages. The first version of a package counts.
    pub fn read(index: &Index) -> Result<Self> {
        let mut found = BTreeMap::new();
        for path in &index.packages {
            index::entries(path, |entry| {
                let name = field(entry, "Package");
                ensure!(!name.is_empty(), "an entry that ends here has no field `Package`");
                found.entry(name.to_owned()).or_insert_with(|| Package::of(entry));
                Ok(())
            })?;
        }
        ensure!(
            !found.is_empty(),
            "the lists of packages are empty: run `apt-get update`"
        );
        let list: Vec<Package> = found.into_values().collect();
        let ids = (0..)
            .zip(&list)
            .map(|(id, package)| (package.name.clone(), id))
            .collect();
        Ok(Self { list, ids })
    }

    pub fn list(&self) -> &[Package] {
        &self.list
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The id of a package.
    pub fn id(&self, name: &str) -> Option<u64> {
        self.ids.get(name).copied()
    }

    /// The dependencies as edges, ascending, without self-loops and duplicates.
    pub fn edges(&self) -> Vec<(u64, u64)> {
        let mut providers: HashMap<&str, Vec<u64>> = HashMap::new();
        for (id, package) in (0..).zip(&self.list) {
            for name in names(&package.provides) {
                if !self.ids.contains_key(name) {
                    providers.entry(name).or_default().push(id);
                }
            }
        }
        let mut edges = BTreeSet::new();
        for (source, package) in (0..).zip(&self.list) {
            for name in package.wants.iter().flat_map(|field| names(field)) {
                let targets = match (self.ids.get(name), providers.get(name)) {
                    (Some(id), _) => std::slice::from_ref(id),
                    (None, Some(providers)) if providers.len() <= PROVIDERS_MAX => providers.as_slice(),
                    _ => &[],
                };
                edges.extend(
                    targets
                        .iter()
                        .filter(|&&target| target != source)
                        .map(|&target| (source, target)),
                );
            }
        }
        edges.into_iter().collect()
    }

    /// Writes edges by name. Packages without edges follow, each with a self-loop, so that they are in the file.
    pub fn write_named(&self, path: &Path, edges: &[(u64, u64)]) -> Result<()> {
        let mut alone = vec![true; self.list.len()];
        let name = |id: u64| &self.list[id as usize].name;
        write_text(path, |out| {
            for &(source, target) in edges {
                alone[source as usize] = false;
                alone[target as usize] = false;
                writeln!(out, "{}\t{}", name(source), name(target))?;
            }
            for (package, _) in self.list.iter().zip(alone).filter(|(_, alone)| *alone) {
                writeln!(out, "{0}\t{0}", package.name)?;
            }
            Ok(())
        })
    }

    /// Writes one line per package.
    pub fn write_names(&self, path: &Path) -> Result<()> {
        write_text(path, |out| {
            self.list
                .iter()
                .try_for_each(|package| writeln!(out, "{}", package.name))
        })
    }
}

impl Package {
    fn of(entry: &[(String, String)]) -> Self {
        let section = field(entry, "Section");
        let own = |name: &str| field(entry, name).to_owned();
        Self {
            name: own("Package"),
            section: section.rsplit('/').next().unwrap_or(section).to_owned(),
            description: own("Description"),
            description_md5: own("Description-md5"),
            tags: own("Tag"),
            provides: own("Provides"),
            wants: ["Pre-Depends", "Depends", "Recommends", "Suggests"].map(own),
        }
    }
}

/// The packages named in a field such as `a (>= 1) | b, c:any`.
fn names(field: &str) -> impl Iterator<Item = &str> {
    field.split([',', '|']).filter_map(|clause| {
        let clause = clause.trim_start();
        let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_part = |c: char| is_first(c) || matches!(c, '+' | '.' | '-');
        let end = clause.find(|c| !is_part(c)).unwrap_or(clause.len());
        clause.starts_with(is_first).then_some(&clause[..end])
    })
}

/// Writes a text file.
pub fn write_text(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let write = || {
        let mut out = BufWriter::new(File::create(path)?);
        fill(&mut out)?;
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_without_versions_and_architectures() {
        let found: Vec<&str> = names("libc6 (>= 2.34), a+b.c-1:any | b [amd64],\n c, (x), 0ad").collect();
        assert_eq!(found, ["libc6", "a+b.c-1", "b", "c", "0ad"]);
        assert_eq!(names("").count(), 0);
    }
}
