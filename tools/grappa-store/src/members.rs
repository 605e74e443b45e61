//! Node types and relations that users name.

use anyhow::{Context, bail};
use grappa_console::printable;
use grappa_engine::Graph;

/// The number of the node type with this name.
pub fn node_type(graph: &Graph, name: &str) -> anyhow::Result<usize> {
    let types: Vec<_> = graph.manifest().node_types.iter().map(|entry| &*entry.name).collect();
    types.iter().position(|other| *other == name).with_context(|| {
        format!("{}: there is no node type {}; it has {}", graph.path().display(), printable(name), types.join(", "))
    })
}

/// The number of the relation with this name, with or without its types.
pub fn relation(graph: &Graph, name: &str) -> anyhow::Result<usize> {
    let (manifest, relations) = (graph.manifest(), relations(graph));
    let is_named = |number: &usize| relations[*number] == name || manifest.relations[*number].name == name;
    let named: Vec<usize> = (0..relations.len()).filter(is_named).collect();
    match named[..] {
        [one] => Ok(one),
        [first, ..] => bail!(
            "--relation {}: several relations have this name; give --relation {}",
            printable(name),
            relations[first]
        ),
        [] => {
            bail!("{}: there is no such relation; it has {}", graph.path().display(), relations.join(", "))
        }
    }
}

/// The names of all relations, with their types.
pub fn relations(graph: &Graph) -> Vec<String> {
    (0..graph.relations().len()).map(|number| graph.manifest().relation_name(number)).collect()
}
