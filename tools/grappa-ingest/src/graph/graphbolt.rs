//! `--graphbolt`: `metadata.yaml` of an OnDiskDataset of DGL's GraphBolt.
//!
//! Node types have numbers of nodes, and dense ids. Edges are CSV without a header, or `.npy` of shape (2, E). Features are `.npy` with a row
//! per node. A task on nodes has an array of nodes and one of labels for each split; they become a table in memory, as they are in GraphBolt.
//! A task on edges has arrays of pairs, of which the validation and test pairs are held out. All problems of a file are one error.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use arrow_array::{ArrayRef, Float64Array, UInt64Array};
use grappa_engine::ingest::{
    Conversion, EdgeFormat, EdgeSplit, HeaderLine, Input, LabelType, Numbers, RelationIngest, SplitFile, read_numbers,
};
use serde::Deserialize;

use super::{
    layout::{GraphLayout, edge_index, quoted, refuse, table_in_memory},
    line::{GraphLine, RelationKey},
};

/// The names that DGL gives to the type and relation of a graph without types.
const NODES: &str = "_N";
const EDGES: &str = "_N:_E:_N";
/// The file in a folder of a dataset.
const METADATA: &str = "metadata.yaml";

#[derive(Deserialize)]
struct Metadata {
    graph: Topology,
    #[serde(default)]
    feature_data: Vec<FeatureData>,
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Topology {
    nodes: Vec<Nodes>,
    edges: Vec<Edges>,
}

#[derive(Deserialize)]
struct Nodes {
    r#type: Option<String>,
    num: u64,
}

#[derive(Deserialize)]
struct Edges {
    r#type: Option<String>,
    format: String,
    path: String,
}

#[derive(Deserialize)]
struct FeatureData {
    domain: String,
    r#type: Option<String>,
    name: String,
    format: String,
    path: String,
}

#[derive(Deserialize)]
struct Task {
    #[serde(default)]
    train_set: Vec<ItemSet>,
    #[serde(default)]
    validation_set: Vec<ItemSet>,
    #[serde(default)]
    test_set: Vec<ItemSet>,
}

#[derive(Deserialize)]
struct ItemSet {
    r#type: Option<String>,
    data: Vec<Items>,
}

#[derive(Deserialize)]
struct Items {
    name: Option<String>,
    format: String,
    path: String,
}

/// Reads the metadata of a dataset: the file, or the folder that has it.
///
/// # Errors
/// If it is none, or has something that Grappa does not read. The error has all problems.
pub fn read(line: &GraphLine, path: &Path) -> Result<GraphLayout> {
    let path = if path.is_dir() { path.join(METADATA) } else { path.to_owned() };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let metadata: Metadata = serde_saphyr::from_str(&text)
        .with_context(|| format!("{}: this is no metadata of an OnDiskDataset of GraphBolt", path.display()))?;
    let mut reader = Reader { line, path: &path, problems: Vec::new(), layout: GraphLayout::default() };
    for nodes in &metadata.graph.nodes {
        reader.layout.nodes_mut(nodes.r#type.as_deref().unwrap_or(NODES)).number = Some(nodes.num);
    }
    if metadata.graph.edges.is_empty() {
        reader.problems.push("graph: there are no edges; add their files".to_owned());
    }
    for edges in &metadata.graph.edges {
        reader.add_edges(edges)?;
    }
    for feature in &metadata.feature_data {
        reader.add_feature(feature);
    }
    for task in &metadata.tasks {
        let sets = [("train", &task.train_set), ("val", &task.validation_set), ("test", &task.test_set)];
        reader.add_task(sets)?;
    }
    refuse(&path, &reader.problems)?;
    Ok(reader.layout)
}

/// The graph of a dataset, as far as it is read.
struct Reader<'a> {
    line: &'a GraphLine,
    path: &'a Path,
    problems: Vec<String>,
    layout: GraphLayout,
}

impl Reader<'_> {
    fn add_edges(&mut self, edges: &Edges) -> Result<()> {
        let name = edges.r#type.as_deref().unwrap_or(EDGES);
        let Some([source, relation, destination]) = key_of(name) else {
            self.problems.push(format!("graph: the edge type {name} is none; expected SOURCE:RELATION:DESTINATION"));
            return Ok(());
        };
        for end in [&source, &destination] {
            if !self.layout.has_type(end) {
                self.problems
                    .push(format!("graph: there is no node type {end}, which edges of {name} have; add it to nodes"));
            }
        }
        let Some(path) = self.file(&format!("edges of {name}"), &edges.path) else { return Ok(()) };
        let key = [&*source, &*relation, &*destination];
        let mut relation = RelationIngest::new(key, Vec::<Input>::new());
        match edges.format.as_str() {
            "csv" => {
                relation.edges.files.push(Input::from(path));
                // Pairs of tasks may be arrays, so the format of each file is found.
                relation.edges.form.header = HeaderLine::No;
            }
            "numpy" => {
                relation.edges.files.push(edge_index(&path)?);
                relation.edges.form.format = EdgeFormat::Npy;
            }
            format => {
                self.problems.push(format!("edges of {name}: the format {format} is not read; expected csv or numpy"))
            }
        }
        self.layout.relations.push(relation);
        Ok(())
    }

    fn add_feature(&mut self, feature: &FeatureData) {
        let is_edge = feature.domain == "edge";
        let of = feature.r#type.as_deref().unwrap_or(if is_edge { EDGES } else { NODES });
        let name = format!("feature {} of {of}", feature.name);
        let Some(path) = self.array(&name, &feature.format, &feature.path) else { return };
        if is_edge {
            let Some(relation) = self.relation_at(of) else {
                self.problems.push(format!("{name}: there are no such edges in graph; correct its type"));
                return;
            };
            if self.layout.relations[relation].edges.form.header == HeaderLine::No {
                let file = self.layout.relations[relation].edges.files[0].to_string();
                self.problems.push(format!(
                    "{name}: an array of edge features is for edges in an array; write the edges so, as in {}, and change their path and \
                     format",
                    Conversion::PairsToArray.command(Path::new(&file))
                ));
                return;
            }
        } else if !self.layout.has_type(of) {
            self.problems.push(format!("{name}: there is no such node type in graph; correct its type"));
            return;
        }
        let option = if is_edge { "edge-features" } else { "features" };
        let relation = of.split(':').nth(1).filter(|_| is_edge).unwrap_or(of);
        let is_given = self.line.values_for(option, &[of, relation]).next().is_some();
        let slot = match self.relation_at(of).filter(|_| is_edge) {
            Some(relation) => &mut self.layout.relations[relation].edges.form.features,
            None => &mut self.layout.nodes_mut(of).data.features,
        };
        match slot {
            Some(other) if !is_given => {
                let [first, second] = [other.to_string(), path.display().to_string()].map(|file| quoted(&file));
                let problem = format!(
                    "{name}: there is another feature; choose one, --{option} {of}={first}, or --{option} {of}={second}, or join their columns \
                     in one array"
                );
                self.problems.push(problem);
            }
            _ => *slot = Some(Input::from(path)),
        }
    }

    /// Adds the sets of a task for training, validation and test.
    fn add_task(&mut self, sets: [(&'static str, &Vec<ItemSet>); 3]) -> Result<()> {
        let mut types: Vec<&str> = Vec::new();
        for (_, items) in sets {
            for set in items {
                let is_of_pairs = set.data.iter().any(|items| items.name.as_deref() == Some("node_pairs"));
                let name = set.r#type.as_deref().unwrap_or(if is_of_pairs { EDGES } else { NODES });
                if !types.contains(&name) {
                    types.push(name);
                }
            }
        }
        for name in types {
            let is_of_type =
                |set: &&ItemSet| set.r#type.as_deref().map_or([NODES, EDGES].contains(&name), |other| other == name);
            let sets = sets.map(|(split, items)| (split, items.iter().find(is_of_type)));
            match self.relation_at(name) {
                Some(relation) => self.add_pairs(relation, name, sets)?,
                None if self.layout.has_type(name) => self.add_labels(name, sets)?,
                None => self.problems.push(format!("tasks: there is no node or edge type {name} in graph; correct it")),
            }
        }
        Ok(())
    }

    /// Holds the validation and test pairs of a relation out of the graph.
    fn add_pairs(&mut self, relation: usize, name: &str, sets: [(&'static str, Option<&ItemSet>); 3]) -> Result<()> {
        let mut held_out: [Vec<Input>; 2] = Default::default();
        for (into, (split, set)) in held_out.iter_mut().zip(&sets[1..]) {
            let Some(set) = set else { continue };
            if set.data.iter().any(|items| matches!(items.name.as_deref(), Some("labels" | "indexes"))) {
                tracing::warn!(
                    "{}: the {split} pairs of {name} have labels, so some are no edges, and all are left out; give --{split}-edges {name}=FILE \
                     with the edges",
                    self.path.display()
                );
                continue;
            }
            let Some(pairs) = items_of(set, &["seeds", "node_pairs"]) else { continue };
            if let Some(path) = self.array(&format!("{split} pairs of {name}"), &pairs.format, &pairs.path) {
                into.push(Input::from(path));
            }
        }
        let [val, test] = held_out;
        if !val.is_empty() || !test.is_empty() {
            self.layout.relations[relation].edges.split = Some(EdgeSplit::Files { val, test });
        }
        Ok(())
    }

    /// Adds the splits of a node type, and a table of their labels.
    fn add_labels(&mut self, name: &str, sets: [(&'static str, Option<&ItemSet>); 3]) -> Result<()> {
        if self.layout.nodes_mut(name).data.labels.is_some() || !self.layout.nodes_mut(name).splits.files.is_empty() {
            self.problems.push(format!("tasks: two of them have sets of {name}, and nodes have one label; leave one"));
            return Ok(());
        }
        let (mut ids, mut labels, mut are_floats) = (Vec::new(), Vec::new(), false);
        let mut first_file = None;
        for (split, set) in sets {
            let Some(set) = set else { continue };
            let Some(seeds) = items_of(set, &["seeds", "seed_nodes", "items"]) else {
                self.problems
                    .push(format!("tasks: the {split} set of {name} has no data of the name seeds; name it so"));
                continue;
            };
            let Some(path) = self.array(&format!("{split} seeds of {name}"), &seeds.format, &seeds.path) else {
                continue;
            };
            self.layout.nodes_mut(name).splits.files.push(SplitFile::new(split, &path));
            let Some(items) = items_of(set, &["labels"]) else { continue };
            let Some(file) = self.array(&format!("{split} labels of {name}"), &items.format, &items.path) else {
                continue;
            };
            let (seeds, own) = (read_numbers(&path)?, read_numbers(&file)?);
            if seeds.values.len() != own.values.len() {
                self.problems.push(format!(
                    "tasks: the {split} set of {name} has {} seeds and {} labels; give each seed one label",
                    seeds.values.len(),
                    own.values.len()
                ));
                continue;
            }
            ids.extend(seeds.values.iter().map(|&id| id as u64));
            are_floats |= own.are_floats && !are_classes(&own);
            labels.extend(own.values);
            first_file.get_or_insert(file);
        }
        if let Some(file) = first_file {
            let columns: Vec<(&str, ArrayRef)> =
                vec![("id", Arc::new(UInt64Array::from(ids))), ("label", Arc::new(Float64Array::from(labels)))];
            let data = &mut self.layout.nodes_mut(name).data;
            data.labels = Some(table_in_memory(&file, columns)?);
            data.label_type = if are_floats { LabelType::Float } else { LabelType::Classes };
        }
        Ok(())
    }

    fn relation_at(&self, name: &str) -> Option<usize> {
        let key = key_of(name)?;
        let is_key =
            |relation: &RelationIngest| [&relation.source, &relation.name, &relation.destination] == key.each_ref();
        self.layout.relations.iter().position(is_key)
    }

    /// An array. None after a problem.
    fn array(&mut self, name: &str, format: &str, path: &str) -> Option<PathBuf> {
        let path = self.file(name, path)?;
        match format {
            "numpy" => Some(path),
            "torch" => {
                self.problems.push(format!(
                    "{name}: the format torch is not read; convert the file, as in {}, and change its path and format",
                    Conversion::PyTorchToArrays.command(&path)
                ));
                None
            }
            _ => {
                self.problems.push(format!("{name}: the format {format} is not read; expected numpy"));
                None
            }
        }
    }

    /// A file of the dataset. None after a problem.
    fn file(&mut self, name: &str, path: &str) -> Option<PathBuf> {
        let file = self.path.parent().unwrap_or(Path::new("")).join(path);
        if !file.is_file() {
            self.problems.push(format!(
                "{name}: there is no file {}; correct its path, which is relative to {METADATA}",
                file.display()
            ));
            return None;
        }
        Some(file)
    }
}

/// The relation `SOURCE:NAME:DESTINATION`.
fn key_of(name: &str) -> Option<RelationKey> {
    let parts: Vec<String> = name.split(':').map(str::to_owned).collect();
    parts.try_into().ok()
}

fn items_of<'a>(set: &'a ItemSet, names: &[&str]) -> Option<&'a Items> {
    let has_name = |items: &&Items| items.name.as_deref().is_none_or(|name| names.contains(&name));
    set.data.iter().find(has_name)
}

/// Whether floats are numbers of classes, or missing.
fn are_classes(labels: &Numbers) -> bool {
    labels.values.iter().all(|value| value.is_nan() || value.fract() == 0.0)
}
