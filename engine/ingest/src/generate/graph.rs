//! Generates a graph with types: each node type and each relation as a member, like a store.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf};

use grappa_formats::{
    graph::{GraphManifest, NodeTypeEntry, RelationEntry},
    manifest::Manifest,
};
use grappa_io::{Result, durable::Destination, journal::Journal, progress::Progress};
use grappa_storage::{
    files, read_manifest_of_member,
    writer::{JOURNAL, StoreFolder},
};
use grappa_synthetic::GraphRecipe;

use super::store::{FeatureOptions, Generation, GenerationRecord, Member, NodeLayout, StoreOptions, resume_generation};

/// Options of [`generate_graph`].
#[derive(Debug, Clone)]
pub struct GraphOptions {
    /// The graph.
    pub recipe: GraphRecipe,
    /// The graph to write.
    pub out: PathBuf,
    /// Whether the nodes of each type are permuted at random. Otherwise a node is its label.
    pub random_permutation: bool,
    /// The features of each node type, in the order of the recipe. Types after the last have none.
    pub features: Vec<Option<FeatureOptions>>,
    /// Memory budget in bytes.
    pub memory: u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Whether to continue an unfinished run.
    pub resume: bool,
    /// Whether an existing graph of this name is replaced, when the new one is complete.
    pub replace: bool,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

/// Result of [`generate_graph`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedGraph {
    /// Names and numbers of nodes of the node types.
    pub node_types: Vec<(String, u64)>,
    /// Names (`source:name:destination`) and numbers of edges of the relations.
    pub relations: Vec<(String, u64)>,
    /// Total length of the graph's files in bytes.
    pub bytes_on_disk: u64,
}

impl GraphOptions {
    /// Options for the graph of `recipe` at `out`, with defaults as [`StoreOptions::new`].
    pub fn new(recipe: GraphRecipe, out: impl Into<PathBuf>) -> Self {
        Self {
            recipe,
            out: out.into(),
            random_permutation: true,
            features: Vec::new(),
            memory: 2 << 30,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            resume: false,
            replace: false,
            writer: concat!("grappa-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// The options of a node type, as of a store without edges.
    fn node_type(&self, number: usize) -> StoreOptions {
        let recipe = self.recipe.node_type(number);
        StoreOptions { features: self.features.get(number).cloned().flatten(), ..self.member(recipe) }
    }

    /// The options of a member.
    fn member(&self, recipe: grappa_synthetic::Recipe) -> StoreOptions {
        StoreOptions {
            random_permutation: self.random_permutation,
            memory: self.memory,
            threads: self.threads,
            writer: self.writer.clone(),
            ..StoreOptions::new(recipe, self.out.clone())
        }
    }

    /// Everything that the graph depends on.
    fn fingerprint(&self) -> BTreeMap<String, String> {
        let features = self.features.iter().enumerate().filter_map(|(number, features)| {
            let FeatureOptions { dim, dtype, source } = features.as_ref()?;
            Some((format!("features of node type {number}"), format!("{dim} {} {source:?}", dtype.name())))
        });
        let values = [
            ("graph", self.recipe.to_json()),
            ("--assign", if self.random_permutation { "random" } else { "range" }.to_owned()),
            ("version", self.writer.clone()),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(features).collect()
    }
}

/// Generates the graph of a recipe. A killed run continues with the member that it was writing, if `options.resume`.
///
/// # Errors
/// As [`generate_store`](super::store::generate_store), of any member.
pub fn generate_graph(options: &GraphOptions, progress: &dyn Progress) -> Result<GeneratedGraph> {
    options.recipe.check()?;
    let out = Destination { path: &options.out, replaces: options.replace };
    let (folder, begun) = StoreFolder::begin(out, None, options.resume)?;
    begin_journal(options, &folder)
        .and_then(|()| write_members(options, &folder, progress))
        .map_err(|error| folder.failed(begun, error))
}

/// Begins the journal of the graph, or compares the options with those of the earlier run.
fn begin_journal(options: &GraphOptions, folder: &StoreFolder) -> Result<()> {
    let path = folder.path().join(JOURNAL);
    let fingerprint = options.fingerprint();
    if path.exists() {
        return resume_generation(folder.path(), &fingerprint).map(drop);
    }
    if folder.committing_graph()?.is_some() {
        return Ok(());
    }
    Journal::create(&path)?.append(&GenerationRecord::Started(fingerprint))
}

/// Writes all members that are not complete, and completes the graph.
fn write_members(options: &GraphOptions, folder: &StoreFolder, progress: &dyn Progress) -> Result<GeneratedGraph> {
    let recipe = &options.recipe;
    let mut bytes_on_disk = 0;
    let mut write = |name: String, store: &StoreOptions, member: Member| -> Result<Manifest> {
        if folder.complete_member(&name, options.threads, progress)?.is_none() {
            Generation::new(store, member, progress)?.finish(&folder.member(&name)?)?;
        }
        let manifest = read_manifest_of_member(&folder.path().join(name))?;
        bytes_on_disk += manifest.files.iter().map(|file| file.bytes).sum::<u64>() + manifest.encode().len() as u64;
        Ok(manifest)
    };
    let (mut node_types, mut layouts) = (Vec::new(), Vec::new());
    for (number, entry) in recipe.node_types.iter().enumerate() {
        let store = options.node_type(number);
        let manifest = write(files::node_type_folder(number), &store, Member::NodeType)?;
        node_types.push(NodeTypeEntry { name: entry.name.clone(), digest: manifest.digest() });
        layouts.push(NodeLayout::new(&store)?);
    }
    let (mut relations, mut edges) = (Vec::new(), Vec::new());
    for (number, relation) in recipe.relation_members()?.into_iter().enumerate() {
        let [sources, destinations] =
            [relation.source, relation.destination].map(|node_type| layouts[node_type as usize].clone());
        let store = options.member(relation.recipe);
        let member = Member::Relation { sources, destinations };
        let manifest = write(files::relation_folder(number), &store, member)?;
        edges.push(manifest.edges);
        relations.push(RelationEntry {
            source: relation.source,
            name: relation.name,
            destination: relation.destination,
            reverse_of: relation.reverse_of,
            digest: manifest.digest(),
        });
    }
    let manifest = GraphManifest { writer: options.writer.clone(), node_types, relations, generator: recipe.to_json() };
    bytes_on_disk += folder.commit_graph(&manifest)?;
    Ok(GeneratedGraph {
        node_types: recipe.node_types.iter().map(|entry| (entry.name.clone(), entry.nodes)).collect(),
        relations: edges.into_iter().enumerate().map(|(at, edges)| (manifest.relation_name(at), edges)).collect(),
        bytes_on_disk,
    })
}
