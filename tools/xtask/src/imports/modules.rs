//! The modules of a crate, with what each defines, re-exports and refers to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use syn::{Attribute, Item, ItemMod, visit::Visit};

use super::paths::{Import, PathCollector, imports_of};

/// Names from the root of the crate to a module: empty for the root.
pub type ModulePath = Vec<String>;

/// A crate, without its tests.
pub struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// A module. One that is written inside another one has the file of that one.
#[derive(Default)]
struct Module {
    /// Relative to the root of the repository.
    file: PathBuf,
    /// Items that it defines, apart from modules.
    items: BTreeSet<String>,
    /// Names that it imports or re-exports.
    imports: Vec<Import>,
    /// Paths in its code that have several segments.
    paths: BTreeSet<Vec<String>>,
}

/// Re-exports that lead to each other would be followed forever.
const REEXPORTS_MAX: usize = 16;

impl Crate {
    /// Reads the crate whose root is `file`, relative to `folder`.
    ///
    /// # Errors
    /// If a file cannot be read or is not Rust.
    pub fn read(folder: &Path, file: &Path) -> Result<Self> {
        let mut found = Self { modules: BTreeMap::new() };
        let children = file.parent().unwrap_or(Path::new("")).to_owned();
        found.read_file(folder, file, &children, Vec::new())?;
        Ok(found)
    }

    fn read_file(&mut self, folder: &Path, file: &Path, children: &Path, path: ModulePath) -> Result<()> {
        let text = fs::read_to_string(folder.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{} is not Rust", file.display()))?;
        self.read_items(folder, file, children, path, &parsed.items)
    }

    /// `children` is the folder with the files of modules that `items` declare.
    fn read_items(
        &mut self,
        folder: &Path,
        file: &Path,
        children: &Path,
        path: ModulePath,
        items: &[Item],
    ) -> Result<()> {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items.iter().filter(|item| !is_test(attributes_of(item))) {
            match item {
                Item::Use(import) => imports_of(import, &mut module.imports),
                Item::Mod(child) => self.read_child(folder, file, children, &path, child)?,
                item => {
                    module.items.extend(name_of(item));
                    let mut collector = PathCollector::default();
                    collector.visit_item(item);
                    module.paths.append(&mut collector.paths);
                    module.imports.append(&mut collector.imports);
                }
            }
        }
        self.modules.insert(path, module);
        Ok(())
    }

    fn read_child(
        &mut self,
        folder: &Path,
        file: &Path,
        children: &Path,
        parent: &[String],
        child: &ItemMod,
    ) -> Result<()> {
        let name = child.ident.to_string();
        let path = [parent, std::slice::from_ref(&name)].concat();
        let own = children.join(&name);
        if let Some((_, items)) = &child.content {
            return self.read_items(folder, file, &own, path, items);
        }
        let files = [own.with_extension("rs"), own.join("mod.rs")];
        match files.iter().find(|file| folder.join(file).is_file()) {
            Some(file) => self.read_file(folder, file, &own, path),
            // Build scripts write it, or an attribute names another path.
            None => Ok(()),
        }
    }

    /// Each file with the files that it imports from, relative to the repository. A name that a file only re-exports is not its
    /// import.
    pub fn imports(&self) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
        let mut found: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        for (path, module) in &self.modules {
            let imports = module.imports.iter().filter(|import| !import.is_reexport);
            let files = imports
                .map(|import| &import.path)
                .chain(&module.paths)
                .filter_map(|name| self.file_of(path, name, REEXPORTS_MAX));
            let own = found.entry(module.file.clone()).or_default();
            own.extend(files.filter(|file| *file != module.file).map(Path::to_owned));
        }
        found
    }

    /// The file that defines `name`, as `module` sees it. None for other crates, and for a module that only declares and
    /// re-exports: its users name the items, too.
    fn file_of(&self, module: &[String], name: &[String], reexports_max: usize) -> Option<&Path> {
        let (mut at, rest) = self.start_of(module, name)?;
        for (index, segment) in rest.iter().enumerate() {
            let child = [at.as_slice(), std::slice::from_ref(segment)].concat();
            if self.modules.contains_key(&child) {
                at = child;
                continue;
            }
            let here = &self.modules[&at];
            if here.items.contains(segment) {
                return Some(&here.file);
            }
            let further = reexports_max.checked_sub(1)?;
            return here.imports.iter().find_map(|import| {
                let target = match import.name.as_deref() {
                    Some(imported) if imported == segment => [&import.path, &rest[index + 1..]].concat(),
                    Some(_) => return None,
                    None => [&import.path, &rest[index..]].concat(),
                };
                self.file_of(&at, &target, further)
            });
        }
        let end = &self.modules[&at];
        (!end.items.is_empty()).then_some(end.file.as_path())
    }

    /// The module where a path starts, and the rest of the path.
    fn start_of<'a>(&self, module: &[String], name: &'a [String]) -> Option<(ModulePath, &'a [String])> {
        let supers = name.iter().take_while(|segment| *segment == "super").count();
        match name.first()?.as_str() {
            "crate" => Some((Vec::new(), &name[1..])),
            "self" => Some((module.to_vec(), &name[1..])),
            "super" => Some((module[..module.len().checked_sub(supers)?].to_vec(), &name[supers..])),
            first => {
                let here = self.modules.get(module)?;
                let is_own = here.items.contains(first)
                    || self.modules.contains_key(&[module, &[first.to_owned()]].concat())
                    || here
                        .imports
                        .iter()
                        .any(|import| import.name.as_deref() == Some(first) && import.path[0] != first);
                is_own.then(|| (module.to_vec(), name))
            }
        }
    }
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
