//! `--ogb` and `--igb`: datasets with several node types.
//!
//! ogbn-mag has text for each type and relation ([`ogb::discover_types`]). MAG240M, and the heterogeneous datasets of IGB, have arrays:
//!
//! ```text
//! processed/TYPE/node_feat.npy          a row per node
//! processed/TYPE/node_label.npy         MAG240M, NaN: no label; in IGB node_label_19.npy and node_label_2K.npy
//! processed/SOURCE___NAME___DESTINATION/edge_index.npy     MAG240M: (2, E); in IGB two underscores, and (E, 2)
//! ```
//!
//! A type without features has the nodes of its edges.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use grappa_engine::ingest::{
    Conversion, EdgeFormat, HeaderLine, Input, RelationIngest, SplitFile,
    ogb::{self, OgbTypes},
    shape_of,
};

use super::{
    layout::{GraphLayout, edge_index, quoted},
    line::GraphLine,
};

/// Reads a folder of `--ogb`.
///
/// # Errors
/// If files are missing.
pub fn read(line: &GraphLine, folder: &Path) -> Result<GraphLayout> {
    if !folder.join("raw").is_dir() {
        return arrays(line, folder, "___");
    }
    let OgbTypes { node_types, relations } = ogb::discover_types(folder)?;
    let mut layout = GraphLayout::default();
    for node_type in node_types {
        let nodes = layout.nodes_mut(&node_type.name);
        nodes.number = Some(node_type.nodes);
        nodes.data.features = node_type.features.map(Input::from);
        nodes.data.labels = node_type.labels.map(Input::from);
        let splits = ["train", "val", "test"].into_iter().zip(node_type.splits);
        nodes.splits.files = splits.filter_map(|(name, file)| Some(SplitFile::new(name, file?))).collect();
    }
    for (key, file) in relations {
        let mut relation = RelationIngest::new(key.each_ref().map(String::as_str), [file]);
        relation.edges.form.format = EdgeFormat::Csv;
        relation.edges.form.header = HeaderLine::No;
        layout.relations.push(relation);
    }
    Ok(layout)
}

/// Reads a folder of arrays. `between` separates the parts of the name of a relation.
///
/// # Errors
/// If files are missing.
pub fn arrays(line: &GraphLine, folder: &Path, between: &str) -> Result<GraphLayout> {
    let processed = folder.join("processed");
    let entries = fs::read_dir(&processed).with_context(|| {
        format!("{}: expected the folder processed in it, with a folder for each type and relation", folder.display())
    })?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    let mut layout = GraphLayout::default();
    for path in &paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parts: Vec<&str> = name.split(between).collect();
        match *parts.as_slice() {
            [name] => add_nodes(line, path, name, &mut layout)?,
            [source, name, destination] => {
                let edges = path.join("edge_index.npy");
                ensure!(edges.is_file(), "{}: expected edge_index.npy in this folder of a relation", path.display());
                let mut relation = RelationIngest::new([source, name, destination], [edge_array(&edges, between)?]);
                relation.edges.form.format = EdgeFormat::Npy;
                layout.relations.push(relation);
            }
            _ => bail!(
                "{}: expected TYPE, or SOURCE{between}NAME{between}DESTINATION; move this folder elsewhere",
                path.display()
            ),
        }
    }
    ensure!(
        !layout.relations.is_empty(),
        "{}: there is no folder SOURCE{between}NAME{between}DESTINATION with edge_index.npy",
        processed.display()
    );
    let ends = layout.relations.iter().flat_map(|relation| [relation.source.clone(), relation.destination.clone()]);
    for end in ends.collect::<Vec<_>>() {
        layout.nodes_mut(&end);
    }
    let splits = folder.join("split_dict.pt");
    if splits.is_file() {
        let lists = ["train", "valid"].map(|name| quoted(&folder.join(format!("{name}.csv")).display().to_string()));
        let [train, val] = lists;
        tracing::warn!(
            "{}: this split is a PyTorch file, and left out; write its lists, as in {}, and give --train paper={train} --val paper={val}",
            splits.display(),
            Conversion::OgbSplitToText.command(&splits)
        );
    }
    Ok(layout)
}

/// The edges of IGB are pairs. Those of MAG240M are sources and destinations, though there may be two.
fn edge_array(path: &Path, between: &str) -> Result<Input> {
    match between {
        "___" => edge_index(path),
        _ => Ok(Input::from(path)),
    }
}

fn add_nodes(line: &GraphLine, folder: &Path, name: &str, layout: &mut GraphLayout) -> Result<()> {
    let files = |stem: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(std::result::Result::ok);
        let is_it = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(stem) && file.ends_with(".npy")
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_it).collect();
        files.sort();
        files
    };
    let labels = files("node_label");
    let chosen = match labels.as_slice() {
        [] => None,
        [labels] => Some(labels.clone()),
        _ if line.values_for("labels", &[name]).next().is_some() => None,
        several => {
            let options = several.iter().map(|file| format!("--labels {name}={}", quoted(&file.display().to_string())));
            bail!(
                "{}: there are several arrays of labels; give {}",
                folder.display(),
                options.collect::<Vec<_>>().join(", or ")
            );
        }
    };
    let nodes = layout.nodes_mut(name);
    nodes.data.labels = chosen.map(Input::from);
    if let Some(features) = files("node_feat").first() {
        nodes.number = shape_of(features)?.first().copied();
        nodes.data.features = Some(Input::from(features));
    }
    Ok(())
}
