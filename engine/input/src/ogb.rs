//! Unpacked folders of the node property prediction datasets of the Open Graph Benchmark (Hu et al., "Open Graph Benchmark:
//! Datasets for Machine Learning on Graphs", NeurIPS 2020).
//!
//! ```text
//! raw/edge.csv.gz            "source,target" per line         raw/data.npz        edge_index [2, E], node_feat [N, D],
//! raw/num-node-list.csv.gz   N                                                    num_nodes_list [1]
//! raw/node-feat.csv.gz       D numbers per line           or  raw/node-label.npz  node_label [N, 1], NaN: no label
//! raw/node-label.csv.gz      one class, or K zeros and ones, per line
//! split/NAME/{train,valid,test}.csv.gz     one node per line
//! ```
//!
//! A dataset with several node types, such as ogbn-mag, has a folder for each type and relation ([`discover_types`]):
//!
//! ```text
//! raw/num-node-dict.csv.gz                          names of the types, then their numbers of nodes
//! raw/relations/SOURCE___NAME___DESTINATION/edge.csv.gz
//! raw/node-feat/TYPE/node-feat.csv.gz
//! raw/node-label/TYPE/node-label.csv.gz
//! split/NAME/TYPE/{train,valid,test}.csv.gz
//! ```
//!
//! OGB's loader adds the reverse of each edge if the dataset sets `add_inverse_edge`. Grappa has `--undirected` for that.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use crate::{conversions::Conversion, file::InputFile, line_reader::Lines, messages::shown, zip::Npz};

/// The files of a dataset. Each is opened like any other file: the readers of archives find their arrays by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OgbLayout {
    /// For [`EdgeSource`](super::EdgeSource).
    pub edges: Vec<PathBuf>,
    /// Number of nodes. It may exceed the largest id in an edge.
    pub nodes: Option<u64>,
    /// The file that says the number of nodes.
    pub nodes_file: Option<PathBuf>,
    /// For [`MatrixSource`](super::MatrixSource).
    pub features: Option<PathBuf>,
    /// For [`LabelSource`](super::LabelSource).
    pub labels: Option<PathBuf>,
    /// Training nodes, for [`SplitSource`](super::SplitSource).
    pub train: Option<PathBuf>,
    /// Validation nodes.
    pub valid: Option<PathBuf>,
    /// Test nodes.
    pub test: Option<PathBuf>,
}

/// Whether OGB's loader adds the reverse of each edge to this dataset (`add_inverse_edge` in OGB's table of datasets), by the name of the
/// folder.
pub fn is_undirected(folder: &Path) -> bool {
    // Paths such as `.` have no name.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = folder.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
    matches!(name.as_str(), "ogbn_products" | "products" | "ogbn_proteins" | "proteins")
}

/// A dataset with several node types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OgbTypes {
    /// The node types, in the order of `num-node-dict`.
    pub node_types: Vec<OgbNodeType>,
    /// The relations by name: source, name and destination, and the file with the edges.
    pub relations: Vec<([String; 3], PathBuf)>,
}

/// A node type of a dataset, with the files that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OgbNodeType {
    /// Its name.
    pub name: String,
    /// Number of nodes.
    pub nodes: u64,
    /// For [`MatrixSource`](super::MatrixSource).
    pub features: Option<PathBuf>,
    /// For [`LabelSource`](super::LabelSource).
    pub labels: Option<PathBuf>,
    /// Training, validation and test nodes.
    pub splits: [Option<PathBuf>; 3],
}

/// Whether a dataset has several node types: in text, or in arrays that are in `processed`, without `raw`.
pub fn has_types(folder: &Path) -> bool {
    let raw = folder.join("raw");
    text_file(&raw, "triplet-type-list").is_some()
        || raw.join("relations").is_dir()
        || folder.join("processed").is_dir() && !raw.is_dir()
}

/// Finds the files of a dataset with several node types.
///
/// # Errors
/// If files are missing, or lists of a split.
pub fn discover_types(folder: &Path) -> Result<OgbTypes> {
    let raw = folder.join("raw");
    let missing = |name: &str| {
        let problem =
            format!("expected raw/{name} in this folder, as in an unpacked dataset of the Open Graph Benchmark");
        Error::input(folder, Position::Whole, problem)
    };
    let numbers = text_file(&raw, "num-node-dict").ok_or_else(|| missing("num-node-dict.csv.gz"))?;
    let mut relations = Vec::new();
    for path in folders_in(&raw.join("relations"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let parts: Vec<&str> = name.split("___").collect();
        let &[source, relation, destination] = parts.as_slice() else {
            let problem = "expected SOURCE___NAME___DESTINATION, the name of a relation; move this folder elsewhere";
            return Err(Error::input(path, Position::Whole, problem));
        };
        let edges = text_file(&path, "edge").ok_or_else(|| missing(&format!("relations/{name}/edge.csv.gz")))?;
        relations.push(([source, relation, destination].map(str::to_owned), edges));
    }
    if relations.is_empty() {
        return Err(missing("relations/SOURCE___NAME___DESTINATION"));
    }
    let split_folders = folders_in(&folder.join("split"))?;
    if split_folders.len() > 1 {
        let names = split_folders.iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy());
        let names = names.collect::<Vec<_>>().join(", ");
        let problem = format!("there are several splits ({names}); leave one in this folder");
        return Err(Error::input(folder.join("split"), Position::Whole, problem));
    }
    let mut node_types = Vec::new();
    for (name, nodes) in numbers_of_types(&numbers)? {
        let in_type = |kind: &str| text_file(&raw.join(kind).join(&name), kind);
        let mut splits = [None, None, None];
        if let Some(folder) = split_folders.first().map(|folder| folder.join(&name)).filter(|folder| folder.is_dir()) {
            splits = ["train", "valid", "test"].map(|name| text_file(&folder, name));
            whole_split(&folder, &splits)?;
        }
        let (features, labels) = (in_type("node-feat"), in_type("node-label"));
        node_types.push(OgbNodeType { name, nodes, features, labels, splits });
    }
    Ok(OgbTypes { node_types, relations })
}

/// The folders in a folder, by name. None if it does not exist.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read the folder", folder))? {
        folders.push(entry.map_err(Error::io("read the folder", folder))?.path());
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

/// The numbers of nodes of all types: a line of names, then a line of numbers.
fn numbers_of_types(path: &Path) -> Result<Vec<(String, u64)>> {
    let mut lines = Lines::of_file(&InputFile::open(path)?)?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    while let Some(line) = lines.next_line()? {
        let text = String::from_utf8_lossy(&line.bytes);
        if !text.trim().is_empty() {
            rows.push(text.trim().split(',').map(str::to_owned).collect());
        }
    }
    let problem = "expected a line with the names of node types, and a line with their numbers of nodes";
    let problem = || Error::input(path, Position::Whole, problem);
    let [names, numbers] = &rows[..] else { return Err(problem()) };
    if names.len() != numbers.len() {
        return Err(problem());
    }
    let numbers =
        names.iter().zip(numbers).map(|(name, number)| Ok((name.clone(), number.parse().map_err(|_| problem())?)));
    numbers.collect()
}

/// Finds a dataset's files in `folder`, with its split if `with_split`.
pub fn discover(folder: &Path, with_split: bool) -> Result<OgbLayout> {
    fs::read_dir(folder).map_err(Error::io("read the folder", folder))?;
    let raw = folder.join("raw");
    let archive = raw.join("data.npz");
    let [train, valid, test] = match with_split {
        true => splits(&folder.join("split"))?,
        false => [None, None, None],
    };
    if archive.is_file() {
        let file = InputFile::open(&archive)?;
        let arrays = Npz::open(&file)?;
        let nodes = nodes_in(&arrays)?;
        return Ok(OgbLayout {
            nodes,
            nodes_file: nodes.map(|_| archive.clone()),
            features: arrays.contains("node_feat").then(|| archive.clone()),
            edges: vec![archive],
            labels: Some(raw.join("node-label.npz")).filter(|path| path.is_file()),
            train,
            valid,
            test,
        });
    }
    let Some(edges) = text_file(&raw, "edge") else {
        let problem = if has_types(folder) {
            "this dataset has several types of nodes and edges, so it is a graph and no store; read it with `discover_types`"
        } else {
            "expected raw/edge.csv.gz or raw/data.npz in this folder, as in an unpacked node property prediction dataset \
             of the Open Graph Benchmark; name other files with --edges"
        };
        return Err(Error::input(folder, Position::Whole, problem));
    };
    let nodes_file = text_file(&raw, "num-node-list");
    Ok(OgbLayout {
        edges: vec![edges],
        nodes: nodes_file.as_deref().map(nodes_of).transpose()?,
        nodes_file,
        features: text_file(&raw, "node-feat"),
        labels: text_file(&raw, "node-label"),
        train,
        valid,
        test,
    })
}

/// The file `NAME.csv.gz` or `NAME.csv`, if it exists.
fn text_file(folder: &Path, name: &str) -> Option<PathBuf> {
    ["csv.gz", "csv"]
        .map(|extension| folder.join(format!("{name}.{extension}")))
        .into_iter()
        .find(|path| path.is_file())
}

/// The three lists of the dataset's only split.
fn splits(folder: &Path) -> Result<[Option<PathBuf>; 3]> {
    if !folder.is_dir() {
        return Ok([None, None, None]);
    }
    let (mut found, mut pickled) = (Vec::new(), None);
    for entry in fs::read_dir(folder).map_err(Error::io("read the folder", folder))? {
        let path = entry.map_err(Error::io("read the folder", folder))?.path();
        let lists = ["train", "valid", "test"].map(|name| text_file(&path, name));
        if lists.iter().any(Option::is_some) {
            found.push((path, lists));
        } else {
            pickled = Some(path.join("split_dict.pt")).filter(|file| file.is_file()).or(pickled);
        }
    }
    found.sort();
    match (&found[..], pickled) {
        ([], None) => Ok([None, None, None]),
        ([], Some(file)) => {
            let problem = format!(
                "this split is a PyTorch file; write its lists as text beside it: {}; or draw another split with --split",
                Conversion::OgbSplitToText.command(&file)
            );
            Err(Error::input(file, Position::Whole, problem))
        }
        ([(path, lists)], _) => {
            whole_split(path, lists)?;
            Ok(lists.clone())
        }
        (several, _) => {
            let names = several.iter().map(|(path, _)| path.file_name().unwrap_or_default().to_string_lossy());
            let problem = format!(
                "there are several splits ({}); leave one in this folder, or name the files with --edges, --train, --val and --test",
                names.collect::<Vec<_>>().join(", ")
            );
            Err(Error::input(folder, Position::Whole, problem))
        }
    }
}

/// Fails if a list of a split is missing: its file may be there under another name, and its nodes would be left out.
fn whole_split(folder: &Path, lists: &[Option<PathBuf>; 3]) -> Result<()> {
    let missing: Vec<_> = ["train.csv.gz", "valid.csv.gz", "test.csv.gz"]
        .into_iter()
        .zip(lists)
        .filter_map(|(name, list)| list.is_none().then_some(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "expected the lists train.csv.gz, valid.csv.gz and test.csv.gz (or .csv), but {} is missing; rename or add it, or name \
         the files with --edges, --train, --val and --test",
        missing.join(" and ")
    );
    Err(Error::input(folder, Position::Whole, problem))
}

/// The one number in `num-node-list`.
fn nodes_of(path: &Path) -> Result<u64> {
    let file = InputFile::open(path)?;
    let mut lines = Lines::of_file(&file)?;
    let mut numbers = Vec::new();
    while numbers.len() < 2
        && let Some(line) = lines.next_line()?
    {
        let text = String::from_utf8_lossy(&line.bytes);
        if text.trim().is_empty() {
            continue;
        }
        numbers.push(text.trim().parse().map_err(|_| {
            Error::input(
                path,
                Position::Line(line.number),
                format!("expected a number of nodes, found {}", shown(&line.bytes)),
            )
        })?);
    }
    match numbers[..] {
        [nodes] => Ok(nodes),
        _ => Err(several_graphs(path)),
    }
}

fn nodes_in(archive: &Npz) -> Result<Option<u64>> {
    if !archive.contains("num_nodes_list") {
        return Ok(None);
    }
    let array = archive.array("num_nodes_list")?;
    if array.element != ElementType::I64 || array.shape.iter().product::<u64>() != 1 {
        return Err(several_graphs(array.extent.file.path()));
    }
    let mut bytes = [0; 8];
    let reader = array.reader();
    reader.read(0, &mut bytes)?;
    reader.check()?;
    Ok(Some(u64::from_le_bytes(bytes)))
}

fn several_graphs(path: &Path) -> Error {
    Error::input(
        path,
        Position::Whole,
        "expected the number of nodes of one graph; Grappa does not read datasets of several graphs (graph property \
         prediction)",
    )
}
