//! The triples of a graph.
//!
//! A graph with few relations has a relation for each; with many, it has one relation, whose edges have a type. Both are read as one stream
//! of triples. The source of an edge is the head.

use std::path::Path;

use grappa_formats::EdgePart;
use grappa_io::progress::{Progress, check_stopped};
use grappa_storage::{Graph, Store};

use crate::{Error, Result};

/// Adjacency lists whose pages stay in memory while triples are read.
const RELEASE_ROWS: u64 = 1 << 16;

/// A triple. Entities and relations are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Triple {
    /// The source of the edge.
    pub head: u32,
    /// The relation.
    pub relation: u32,
    /// The destination of the edge.
    pub tail: u32,
}

impl Triple {
    /// Head, relation and tail.
    pub fn numbers(self) -> [u32; 3] {
        [self.head, self.relation, self.tail]
    }

    /// The triple of a head, a relation and a tail.
    pub fn from_numbers([head, relation, tail]: [u32; 3]) -> Self {
        Self { head, relation, tail }
    }
}

/// A graph as a set of triples.
#[derive(Debug)]
pub struct Triples {
    graph: Graph,
    /// Names of the relations.
    names: Vec<String>,
    /// The place of the relation among the features of an edge, if relations are types of edges.
    column: Option<usize>,
    counts: [u64; 3],
}

impl Triples {
    /// Checks that the graph has entities of one type, and held-out triples.
    ///
    /// # Errors
    /// The message says what the graph lacks and how to ingest it.
    pub fn open(graph: Graph) -> Result<Self> {
        let path = graph.path().to_owned();
        if !graph.is_whole() {
            return Err(lacks(
                &path,
                "the store is a slice of its graph, and negatives are of all entities: give it the whole store",
            ));
        }
        if graph.node_types().len() > 1 {
            let types: Vec<_> = graph.manifest().node_types.iter().map(|node_type| node_type.name.as_str()).collect();
            return Err(lacks(
                &path,
                format!(
                    "--layers 0 learns rows of one type of entities, and the graph has {} ({}): ingest it with --triples",
                    types.len(),
                    types.join(", ")
                ),
            ));
        }
        let entities = graph.node_types()[0].manifest().nodes;
        if u32::try_from(entities).is_err() {
            return Err(lacks(
                &path,
                format!("--layers 0 trains at most {} entities, and the graph has {entities}", u32::MAX),
            ));
        }
        if graph.relations().iter().any(|relation| relation.manifest().edge_options.undirected) {
            return Err(lacks(
                &path,
                "its edges are undirected, and a triple has a head and a tail: ingest it without --undirected",
            ));
        }
        let types = match graph.has_types() {
            true => None,
            false => graph.relations()[0].edge_types()?,
        };
        let (column, names) = match types {
            Some((column, mut names)) => {
                // The number after the last name is a value that the names lack.
                names.push("other".to_owned());
                (Some(column), names)
            }
            None => (None, graph.manifest().relations.iter().map(|relation| relation.name.clone()).collect()),
        };
        let mut counts = [0; 3];
        for (part, count) in EdgePart::ALL.into_iter().zip(&mut counts) {
            for store in graph.relations() {
                if part == EdgePart::Graph || store.manifest().held_out().contains(&part) {
                    *count += store.part_edges(part)?;
                }
            }
        }
        if counts[0] == 0 {
            return Err(lacks(&path, "the graph has no triples to train on"));
        }
        if counts[1..] == [0, 0] {
            let problem =
                "no triples are held out, so that nothing can be ranked: ingest it with --val-edges or --test-edges";
            return Err(lacks(&path, problem));
        }
        Ok(Self { graph, names, column, counts })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The entities, with their ids.
    pub fn entities(&self) -> &Store {
        &self.graph.node_types()[0]
    }

    /// Number of entities.
    pub fn entity_count(&self) -> usize {
        self.entities().manifest().nodes as usize
    }

    /// Names of the relations.
    pub fn relations(&self) -> &[String] {
        &self.names
    }

    /// Number of triples of a part.
    pub fn count(&self, part: EdgePart) -> u64 {
        self.counts[EdgePart::ALL.iter().position(|&other| other == part).expect("all parts are listed")]
    }

    /// Calls `each` with all triples of a part, in the order of the graph.
    ///
    /// # Errors
    /// If a file is damaged, or `progress` asks to stop.
    pub fn for_each(
        &self,
        part: EdgePart,
        progress: &dyn Progress,
        mut each: impl FnMut(Triple) -> Result<()>,
    ) -> Result<()> {
        if self.count(part) == 0 {
            return Ok(());
        }
        let (mut sources, mut values) = (Vec::new(), Vec::new());
        for (number, store) in (0..).zip(self.graph.relations()) {
            if part != EdgePart::Graph && !store.manifest().held_out().contains(&part) {
                continue;
            }
            for chunk in store.present_chunks() {
                let chunk = store.part_in_order(part, chunk)?;
                let (rows, features) = (chunk.rows(), chunk.edge_features());
                let first = chunk.span().first_node.0;
                let width = features.as_ref().map_or(0, |features| features.meta().layout.dim as usize);
                let mut edges = 0;
                for row in 0..rows.rows() {
                    if row % RELEASE_ROWS == 0 {
                        check_stopped(progress)?;
                        chunk.release_rows(row.saturating_sub(RELEASE_ROWS)..row);
                    }
                    sources.clear();
                    rows.row(row)?.decode_into(&mut sources);
                    let end = edges + sources.len() as u64;
                    if let (Some(features), Some(_)) = (&features, self.column) {
                        values.resize(sources.len() * width, 0.0f32);
                        features.copy(edges..end, &mut values)?;
                    }
                    edges = end;
                    for (index, source) in sources.iter().enumerate() {
                        let relation = self.column.map_or(number, |column| values[index * width + column] as u32);
                        each(Triple { head: *source as u32, relation, tail: (first + row) as u32 })?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn lacks(path: &Path, problem: impl AsRef<str>) -> Error {
    Error::WrongStore(format!("{}: {}", path.display(), problem.as_ref()))
}
