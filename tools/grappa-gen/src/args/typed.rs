//! The command line of a graph with types.

use std::{num::NonZeroUsize, ops::RangeInclusive, path::PathBuf, str::FromStr};

use anyhow::{Result, anyhow, bail, ensure};
use clap::{Args, builder::TypedValueParser};
use grappa_console::{
    ByteSize,
    options::{choices, chunk_range, dtypes},
};
use grappa_engine::generate::{
    Degrees, FeatureDtype, FeatureOptions, FeatureSource, GraphOptions, GraphRecipe, NodeTypeRecipe, Recipe,
    RelationRecipe, SplitShares,
};

use super::shared::{EDGES, FEATURES, GRAPH, MODEL, OUTPUT, RESOURCES, Splits, assignments, feature_sources};

/// The options of `grappa-gen typed`.
#[derive(Debug, Args)]
pub struct TypedArgs {
    /// Node types and relations like those of a known kind of graph; --total-edges is their size
    #[arg(long, help_heading = GRAPH, value_name = "PRESET", requires = "total_edges", conflicts_with_all = ["nodes", "edges"], value_parser = presets())]
    preset: Option<Preset>,
    /// Edges of all relations of the preset, without reverse relations
    #[arg(long, help_heading = GRAPH, value_name = "N", requires = "preset")]
    total_edges: Option<u64>,
    /// A node type and its number of nodes, such as paper=700000
    #[arg(long, help_heading = GRAPH, value_name = "TYPE=N", required_unless_present = "preset")]
    nodes: Vec<Named<u64>>,
    /// A relation between two types and its number of edges, such as author:writes:paper=7000000
    #[arg(long, help_heading = GRAPH, value_name = "A:R:B=N", required_unless_present = "preset")]
    edges: Vec<Named<u64>>,
    /// Give each relation R a reverse relation rev_R with the same edges in the other direction
    #[arg(long, help_heading = EDGES)]
    reverse: bool,
    /// Degrees at both ends of relations: for all, or for one, as in writes=even
    ///
    /// skewed: a power law with exponent 3, where 1 % of the nodes have 10 % of the edges. even: as even as whole numbers allow.
    #[arg(long, help_heading = MODEL, value_name = "DEGREES", default_value = "skewed")]
    degrees: Vec<String>,
    /// Classes of a node type, such as paper=349; its nodes then have labels and splits, and features with a mean for each class
    #[arg(long, help_heading = MODEL, value_name = "TYPE=K")]
    classes: Vec<Named<u32>>,
    /// Features of a node type, such as paper=128 [default: no features]
    #[arg(long, help_heading = FEATURES, value_name = "TYPE=D")]
    feature_dim: Vec<Named<u32>>,
    /// Type of a stored feature value; procedural features are f32
    #[arg(long, help_heading = FEATURES, default_value = "f32", value_parser = dtypes(), requires = "feature_dim")]
    feature_dtype: FeatureDtype,
    /// Whether the store contains the features
    #[arg(long, help_heading = FEATURES, default_value = "stored", value_parser = feature_sources(), requires = "feature_dim")]
    features: FeatureSource,
    #[command(flatten)]
    splits: Splits,
    /// Seed of the graph and of the random node permutations
    #[arg(long, help_heading = GRAPH, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder to write; it must not exist, unless --force is given
    #[arg(long, help_heading = OUTPUT, value_name = "PATH")]
    out: PathBuf,
    /// Replace the graph of --out when the new one is complete
    #[arg(long, help_heading = OUTPUT)]
    force: bool,
    /// Generate only these chunks, such as 0,5-7 [default: all]
    ///
    /// Chunks are numbered over all node types, the first type first; `grappa-store info` shows how many a type has. They have exactly the
    /// edges that they have in the whole graph: an edge is in the chunk of its destination.
    #[arg(long, help_heading = OUTPUT, value_name = "LIST", value_delimiter = ',', value_parser = chunk_range)]
    only_chunks: Option<Vec<RangeInclusive<u32>>>,
    /// Assignment of the nodes of a type to chunks
    #[arg(id = "assign", long = "assign", help_heading = OUTPUT, value_name = "ASSIGN", default_value = "random", action = clap::ArgAction::Set, value_parser = assignments())]
    random_permutation: bool,
    /// Continue a run that was stopped or killed, with the same options
    #[arg(long, help_heading = OUTPUT)]
    resume: bool,
    /// Memory limit, such as 512MiB or 2GiB
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "2GiB")]
    memory: ByteSize,
    /// Number of worker threads [default: one per processor]
    #[arg(long, help_heading = RESOURCES, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

/// The number of a node type or relation: `NAME=NUMBER`.
#[derive(Debug, Clone)]
struct Named<N> {
    name: String,
    number: N,
}

impl<N: FromStr> FromStr for Named<N> {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let parts = value.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, number) = parts.ok_or("expected a name and a number, such as paper=1000")?;
        let number = number.parse().map_err(|_| format!("{number:?} is no number in range"))?;
        Ok(Self { name: name.to_owned(), number })
    }
}

/// A known kind of graph: the share of the edges of each relation, and the nodes of each type per edge of the graph.
#[derive(Debug, Clone, Copy)]
struct Preset {
    nodes: &'static [(&'static str, f64)],
    relations: &'static [(&'static str, f64)],
}

/// As ogbn-mag: 21 million edges between papers, authors, institutions and fields of study.
const MAG: Preset = Preset {
    nodes: &[("paper", 0.035), ("author", 0.054), ("institution", 0.0004), ("field_of_study", 0.003)],
    relations: &[
        ("author:writes:paper", 0.34),
        ("paper:cites:paper", 0.26),
        ("author:affiliated_with:institution", 0.05),
        ("paper:has_topic:field_of_study", 0.35),
    ],
};
/// A shop: orders have a user and a few items, items a seller, and users look at many items. Numbers are chosen, not measured.
const SHOP: Preset = Preset {
    nodes: &[("user", 0.04), ("item", 0.01), ("order", 0.1), ("seller", 0.0005)],
    relations: &[
        ("user:places:order", 0.1),
        ("order:contains:item", 0.29),
        ("user:views:item", 0.6),
        ("seller:offers:item", 0.01),
    ],
};

fn presets() -> impl TypedValueParser<Value = Preset> {
    choices([
        ("mag", "Papers, authors, institutions and fields of study, in the proportions of ogbn-mag", MAG),
        ("shop", "Users, items, orders and sellers", SHOP),
    ])
}

impl Preset {
    /// Node types and relations of a graph with about `edges` edges.
    fn sized(&self, edges: u64) -> (Vec<Named<u64>>, Vec<Named<u64>>) {
        let sized = |shares: &[(&str, f64)]| {
            let numbers = shares.iter().map(|&(name, share)| (name, ((edges as f64 * share) as u64).max(1)));
            numbers.map(|(name, number)| Named { name: name.to_owned(), number }).collect()
        };
        (sized(self.nodes), sized(self.relations))
    }
}

impl TypedArgs {
    /// The job that the options describe.
    pub fn options(&self) -> Result<GraphOptions> {
        let (nodes, edges) = match (self.preset, self.total_edges) {
            (Some(preset), Some(total)) => preset.sized(total),
            _ => (self.nodes.clone(), self.edges.clone()),
        };
        let recipe = self.recipe(&nodes, &edges)?;
        recipe.check()?;
        let features = nodes.iter().map(|node_type| {
            let dim = number_of(&self.feature_dim, &node_type.name)?;
            Some(FeatureOptions::new(dim, self.feature_dtype, self.features.clone()))
        });
        let is_computed = self.features == FeatureSource::Procedural;
        ensure!(
            !is_computed || self.feature_dtype == FeatureDtype::F32,
            "--features procedural computes 32-bit floats, so --feature-dtype has no effect: leave it out, or use --features stored"
        );
        let threads = self.threads.map_or_else(std::thread::available_parallelism, Ok)?;
        Ok(GraphOptions {
            features: features.collect(),
            random_permutation: self.random_permutation,
            only_chunks: self.only_chunks.clone(),
            memory: self.memory.0,
            threads: threads.get(),
            resume: self.resume,
            replace: self.force,
            writer: concat!("grappa-gen ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..GraphOptions::new(recipe, &self.out)
        })
    }

    fn recipe(&self, nodes: &[Named<u64>], edges: &[Named<u64>]) -> Result<GraphRecipe> {
        let names: Vec<&str> = nodes.iter().map(|node_type| node_type.name.as_str()).collect();
        for (option, named) in [("feature-dim", &self.feature_dim), ("classes", &self.classes)] {
            if let Some(other) = named.iter().find(|named| !names.contains(&named.name.as_str())) {
                let (name, number) = (&other.name, other.number);
                bail!("--{option} {name}={number}: there is no node type {name}; there are {}", names.join(", "));
            }
        }
        ensure!(
            !self.classes.is_empty() || self.splits.shares() == SplitShares::default(),
            "nodes without classes have no splits: use --classes, or leave out the fractions"
        );
        let splits = Recipe::splits_of(self.splits.shares());
        let node_types = nodes.iter().map(|node_type| {
            let classes = number_of(&self.classes, &node_type.name).unwrap_or(0);
            NodeTypeRecipe {
                name: node_type.name.clone(),
                nodes: node_type.number,
                classes,
                splits: splits.filter(|_| classes > 0),
            }
        });
        let relations = edges.iter().map(|relation| {
            let parts: Vec<&str> = relation.name.split(':').collect();
            let &[source, name, destination] = parts.as_slice() else {
                bail!(
                    "--edges {}={}: name the types and the relation, as in author:writes:paper={}",
                    relation.name,
                    relation.number,
                    relation.number
                );
            };
            let number = |end: &str| {
                names.iter().position(|name| *name == end).ok_or_else(|| {
                    let (name, number) = (&relation.name, relation.number);
                    anyhow!("--edges {name}={number}: there is no node type {end}; give --nodes {end}=N")
                })
            };
            Ok(RelationRecipe {
                source: number(source)? as u32,
                name: name.to_owned(),
                destination: number(destination)? as u32,
                edges: relation.number,
                degrees: self.degrees(&relation.name, name)?,
                reverse: self.reverse.then(|| format!("rev_{name}")),
            })
        });
        let recipe = GraphRecipe {
            version: Recipe::VERSION,
            seed: self.seed,
            node_types: node_types.collect(),
            relations: relations.collect::<Result<_>>()?,
        };
        let is_named = |scope: &str| {
            edges.iter().any(|relation| scope == relation.name || relation.name.split(':').nth(1) == Some(scope))
        };
        let scopes = self.degrees.iter().filter_map(|value| Some(value.split_once('=')?.0));
        if let Some(unknown) = scopes.into_iter().find(|scope| !is_named(scope)) {
            bail!("--degrees {unknown}=..: there is no relation {unknown}");
        }
        Ok(recipe)
    }

    /// The degrees of a relation: those given for it, or else for all.
    fn degrees(&self, full_name: &str, name: &str) -> Result<Degrees> {
        let mut degrees = Degrees::Skewed;
        let own = self.degrees.iter().filter_map(|value| value.split_once('='));
        let own = own.filter(|(scope, _)| *scope == full_name || *scope == name).map(|(_, value)| value);
        let all = self.degrees.iter().filter(|value| !value.contains('=')).map(String::as_str);
        for value in all.chain(own) {
            degrees = match value {
                "even" => Degrees::Even,
                "skewed" => Degrees::Skewed,
                _ => bail!("--degrees {value}: choose even or skewed, alone or for a relation, as in {name}=even"),
            };
        }
        Ok(degrees)
    }
}

/// The number that is given for a name. The last one counts.
fn number_of<N: Copy>(named: &[Named<N>], name: &str) -> Option<N> {
    named.iter().rev().find(|named| named.name == name).map(|named| named.number)
}
