//! The paths that code names: `use` trees, and paths in expressions, types and patterns.

use std::collections::BTreeSet;

use syn::{ItemUse, UseTree, Visibility, visit::Visit};

/// A name that a module imports.
pub struct Import {
    /// The name in the module; none for all names of `path`.
    pub name: Option<String>,
    pub path: Vec<String>,
    /// Whether the module passes it on to others: `pub use`, with any visibility.
    pub is_reexport: bool,
}

/// Adds each name of a `use` line.
pub fn imports_of(line: &ItemUse, found: &mut Vec<Import>) {
    let is_reexport = !matches!(line.vis, Visibility::Inherited);
    add_tree(&line.tree, &[], is_reexport, found);
}

fn add_tree(tree: &UseTree, prefix: &[String], is_reexport: bool, found: &mut Vec<Import>) {
    let (name, last) = match tree {
        UseTree::Path(tree) => {
            return add_tree(&tree.tree, &[prefix, &[tree.ident.to_string()]].concat(), is_reexport, found);
        }
        UseTree::Group(group) => {
            return group.items.iter().for_each(|tree| add_tree(tree, prefix, is_reexport, found));
        }
        UseTree::Name(tree) if tree.ident == "self" => (prefix.last().cloned(), None),
        UseTree::Name(tree) => (Some(tree.ident.to_string()), Some(tree.ident.to_string())),
        UseTree::Rename(tree) => (Some(tree.rename.to_string()), Some(tree.ident.to_string())),
        UseTree::Glob(_) => (None, None),
    };
    found.push(Import { name, path: prefix.iter().cloned().chain(last).collect(), is_reexport });
}

/// Collects paths of several segments, and imports inside functions. Arguments of macros are not read.
#[derive(Default)]
pub struct PathCollector {
    pub paths: BTreeSet<Vec<String>>,
    pub imports: Vec<Import>,
}

impl Visit<'_> for PathCollector {
    fn visit_path(&mut self, path: &syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, line: &ItemUse) {
        imports_of(line, &mut self.imports);
    }
}
