//! Generates a graph with types: each node type and each relation as a member, like a store.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    ops::RangeInclusive,
    path::PathBuf,
};

use grappa_formats::{
    features::FeatureLayout,
    graph::{GraphManifest, NodeTypeEntry, RelationEntry},
    manifest::FeatureSource,
};
use grappa_io::{Error, Result, durable::Destination, journal::Journal, progress::Progress};
use grappa_storage::{
    files, read_manifest_of_member,
    writer::{JOURNAL, StoreFolder},
};
use grappa_synthetic::{GraphRecipe, Recipe, RelationMember};

use super::store::{
    FeatureOptions, Generation, GenerationRecord, Member, NodeLayout, StoreOptions, chosen_chunks, resume_generation,
};

/// Options of [`generate_graph`].
#[derive(Debug, Clone)]
pub struct GraphOptions {
    /// The graph.
    pub recipe: GraphRecipe,
    /// The graph to write.
    pub out: PathBuf,
    /// Whether the nodes of each type are permuted at random. Otherwise a node is its label.
    pub random_permutation: bool,
    /// The chunks to generate. Chunks are numbered over all types, the first type first. `None` generates all. An edge is in the chunk of
    /// its destination.
    pub only_chunks: Option<Vec<RangeInclusive<u32>>>,
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
            only_chunks: None,
            features: Vec::new(),
            memory: 2 << 30,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            resume: false,
            replace: false,
            writer: concat!("grappa-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Bytes that the graph takes on disk at least: its stored features, and a byte for each edge. Edges take more. For some of its
    /// chunks, 0.
    pub fn least_bytes(&self) -> u64 {
        if self.only_chunks.is_some() {
            return 0;
        }
        let types = self.recipe.node_types.iter().zip(&self.features).filter_map(|(node_type, features)| {
            let features = features.as_ref().filter(|features| features.source == FeatureSource::Stored)?;
            let stride = FeatureLayout::new(features.dtype, features.dim).stride;
            Some(node_type.nodes.saturating_mul(stride.into()))
        });
        let relations = self.recipe.relations.iter();
        let edges = relations.map(|relation| relation.edges * if relation.reverse.is_some() { 2 } else { 1 });
        types.chain(edges).fold(0, u64::saturating_add)
    }

    /// The options of a node type, as of a store without edges.
    fn node_type(&self, number: usize) -> StoreOptions {
        let recipe = self.recipe.node_type(number);
        StoreOptions { features: self.features.get(number).cloned().flatten(), ..self.member(recipe) }
    }

    /// The options of a member.
    fn member(&self, recipe: Recipe) -> StoreOptions {
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
            ("--only-chunks", self.only_chunks.as_ref().map_or_else(|| "all".to_owned(), |only| format!("{only:?}"))),
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

/// A member of the graph to generate.
struct PlannedMember {
    folder: String,
    options: StoreOptions,
    member: Member,
    chunks: BTreeSet<u32>,
}

/// The node types, then the relations.
fn members(options: &GraphOptions) -> Result<(Vec<PlannedMember>, Vec<RelationMember>)> {
    let types: Vec<StoreOptions> =
        (0..options.recipe.node_types.len()).map(|number| options.node_type(number)).collect();
    let layouts = types.iter().map(NodeLayout::new).collect::<Result<Vec<_>>>()?;
    let chosen = chunks_of_types(options, &layouts)?;
    let members = types.into_iter().zip(&chosen).enumerate().map(|(number, (store, chunks))| PlannedMember {
        folder: files::node_type_folder(number),
        options: store,
        member: Member::NodeType,
        chunks: chunks.clone(),
    });
    let mut members: Vec<PlannedMember> = members.collect();
    let relations = options.recipe.relation_members()?;
    members.extend(relations.iter().enumerate().map(|(number, relation)| {
        let [sources, destinations] =
            [relation.source, relation.destination].map(|node_type| layouts[node_type as usize].clone());
        PlannedMember {
            folder: files::relation_folder(number),
            options: options.member(relation.recipe.clone()),
            member: Member::Relation { sources, destinations },
            chunks: chosen[relation.destination as usize].clone(),
        }
    }));
    Ok((members, relations))
}

/// The chunks of each type to generate.
fn chunks_of_types(options: &GraphOptions, layouts: &[NodeLayout]) -> Result<Vec<BTreeSet<u32>>> {
    let all: u32 = layouts.iter().map(NodeLayout::chunks).sum();
    let chosen = chosen_chunks(options.only_chunks.as_deref(), all, "")?;
    let mut first = 0;
    let of_types = layouts.iter().map(|layout| {
        let range = first..first + layout.chunks();
        first = range.end;
        chosen.range(range.clone()).map(|chunk| chunk - range.start).collect()
    });
    Ok(of_types.collect())
}

/// Fails if the memory is too small for a member, with the memory that suffices for all.
fn check_memory(members: &[PlannedMember], progress: &dyn Progress) -> Result<()> {
    let mut largest: Option<(u64, Error)> = None;
    for planned in members {
        match Generation::new(&planned.options, planned.member.clone(), planned.chunks.clone(), progress).map(drop) {
            Err(error @ Error::Budget { least, .. }) => {
                if largest.as_ref().is_none_or(|(other, _)| least > *other) {
                    largest = Some((least, error));
                }
            }
            checked => checked?,
        }
    }
    largest.map_or(Ok(()), |(_, error)| Err(error))
}

/// Writes all members that are not complete, and completes the graph.
fn write_members(options: &GraphOptions, folder: &StoreFolder, progress: &dyn Progress) -> Result<GeneratedGraph> {
    let recipe = &options.recipe;
    let (members, relations) = members(options)?;
    check_memory(&members, progress)?;
    let (mut manifests, mut bytes_on_disk) = (Vec::new(), 0);
    for planned in members {
        let name = &planned.folder;
        if folder.complete_member(name, options.threads, progress)?.is_none() {
            Generation::new(&planned.options, planned.member, planned.chunks, progress)?
                .finish(&folder.member(name)?)?;
        }
        let manifest = read_manifest_of_member(&folder.path().join(name))?;
        let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        bytes_on_disk += files + manifest.encode().len() as u64;
        manifests.push(manifest);
    }
    let (of_types, of_relations) = manifests.split_at(recipe.node_types.len());
    let node_types = recipe.node_types.iter().zip(of_types);
    let node_types =
        node_types.map(|(entry, member)| NodeTypeEntry { name: entry.name.clone(), digest: member.digest() });
    let entries = relations.into_iter().zip(of_relations).map(|(relation, member)| RelationEntry {
        source: relation.source,
        name: relation.name,
        destination: relation.destination,
        reverse_of: relation.reverse_of,
        digest: member.digest(),
    });
    let manifest = GraphManifest {
        writer: options.writer.clone(),
        node_types: node_types.collect(),
        relations: entries.collect(),
        generator: recipe.to_json(),
    };
    bytes_on_disk += folder.commit_graph(&manifest)?;
    let edges = of_relations.iter().enumerate();
    Ok(GeneratedGraph {
        node_types: recipe.node_types.iter().map(|entry| (entry.name.clone(), entry.nodes)).collect(),
        relations: edges.map(|(number, member)| (manifest.relation_name(number), member.edges)).collect(),
        bytes_on_disk,
    })
}
