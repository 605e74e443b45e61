//! Pairs that the user lists: hard negatives, and candidates of evaluations.

use std::path::Path;

use grappa_engine::{node_list::read_nodes, pair_list::read_pairs};
use grappa_formats::{EdgePart, NodeId, random};
use grappa_io::{Error as EngineError, Position, ledger::MemoryShare};
use grappa_sampling::{
    NodeSet,
    links::{KnownEdges, ListedPairs, Positives},
};
use grappa_storage::{Relation, Store};

use crate::{Error, Result};

/// Hard negatives before their reverses are added.
const READ_NEGATIVES: MemoryShare =
    MemoryShare::one("hard negatives as they were read", 2, "an undirected graph adds the reverse of each");

/// Reads hard negatives. In an undirected graph, a pair is for both of its nodes. Takes a lookup of an adjacency list for each pair, in the
/// order of the lists.
///
/// # Errors
/// If the file cannot be read, has no pairs, has a pair that is an edge of the graph or a node with itself, or needs more than `memory`
/// bytes.
pub fn hard_negatives(relation: Relation<'_>, path: &Path, memory: u64) -> Result<ListedPairs> {
    let store = relation.edges;
    let mut pairs = read(store, path, READ_NEGATIVES.bytes(memory))?;
    check_no_edges(relation, path, &pairs)?;
    if store.manifest().edge_options.undirected {
        let reverses: Vec<_> = pairs.iter().map(|&(source, destination)| (destination, source)).collect();
        pairs.extend(reverses);
    }
    Ok(ListedPairs::new(pairs).or_uniform())
}

/// Reads the candidates of edges that are held out.
///
/// # Errors
/// If the file cannot be read, has no pairs, or needs more than `memory` bytes.
pub fn candidates(store: &Store, path: &Path, memory: u64) -> Result<ListedPairs> {
    Ok(ListedPairs::new(read(store, path, memory)?))
}

/// Reads the nodes that destinations are among.
///
/// # Errors
/// If the file cannot be read, has no nodes, or needs more than `memory` bytes.
pub fn destinations(store: &Store, path: &Path, memory: u64) -> Result<NodeSet> {
    let nodes = read_nodes(store, path)?;
    if nodes.is_empty() {
        let problem = "no nodes: list the id of a destination in each line";
        return Err(EngineError::input(path, Position::Whole, problem).into());
    }
    let all = store.manifest().nodes;
    let bytes = size_of_val(&nodes[..]) as u64 + NodeSet::bytes_of_members(all, nodes.len() as u64);
    if bytes > memory {
        return Err(Error::Engine(EngineError::Budget {
            operation: format!("the {} nodes of {}", nodes.len(), path.display()),
            given: memory,
            least: bytes,
            remedy: "raise --memory, or list fewer nodes",
        }));
    }
    Ok(NodeSet::from_members(all, nodes))
}

/// The edges of a part in the direction in which `candidates` lists pairs of their source. An edge `may_reverse` if an undirected graph
/// stores it in any of its directions.
///
/// # Errors
/// If nothing is listed for an edge.
pub fn directed(
    store: &Store,
    part: EdgePart,
    edges: Positives,
    (candidates, path): (&ListedPairs, &Path),
    may_reverse: bool,
) -> Result<Positives> {
    let (mut directed, mut missing) = (Vec::with_capacity(edges.edges().len()), Vec::new());
    for &(source, destination) in edges.edges() {
        if !candidates.pairs_of_source(source).is_empty() {
            directed.push((source, destination));
        } else if may_reverse && !candidates.pairs_of_source(destination).is_empty() {
            directed.push((destination, source));
        } else {
            missing.push(source);
        }
    }
    match missing.first() {
        None => Ok(Positives::list(directed)),
        Some(&source) => {
            let problem = format!(
                "no candidates for {} of {} edges for {part}, such as an edge of {}: list a pair of the source of each edge that is held \
                 out, or use --candidates 100",
                missing.len(),
                edges.len(),
                store.source_ids().name(source)
            );
            Err(EngineError::input(path, Position::Whole, problem).into())
        }
    }
}

/// A number that differs if pairs do.
pub fn digest(listed: &ListedPairs) -> u64 {
    let numbers = listed.all().iter().flat_map(|pair| [pair.0.0, pair.1.0]);
    numbers.fold(listed.all().len() as u64, random::combine)
}

/// The pairs of a file, in order.
fn read(store: &Store, path: &Path, memory: u64) -> Result<Vec<(NodeId, NodeId)>> {
    let pairs = read_pairs(store, path)?;
    if pairs.is_empty() {
        let problem = "no pairs: list a source and a destination in each line";
        return Err(EngineError::input(path, Position::Whole, problem).into());
    }
    let bytes = (pairs.len() * size_of::<(NodeId, NodeId)>()) as u64;
    if bytes > memory {
        return Err(Error::Engine(EngineError::Budget {
            operation: format!("the {} pairs of {}", pairs.len(), path.display()),
            given: memory,
            least: bytes,
            remedy: "raise --memory, or list fewer pairs",
        }));
    }
    Ok(pairs)
}

/// Refuses negatives that are edges of the graph. Training does not know the edges that are held out.
fn check_no_edges(relation: Relation<'_>, path: &Path, pairs: &[(NodeId, NodeId)]) -> Result<()> {
    let store = relation.edges;
    let is_itself = |source, destination| relation.joins_one_type() && source == destination;
    let known = KnownEdges::new(store, &[EdgePart::Graph], Vec::new())?;
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_unstable_by_key(|&number| (pairs[number].1, pairs[number].0));
    let mut first: Option<usize> = None;
    for number in order {
        let (source, destination) = pairs[number];
        if first.is_none_or(|first| number < first)
            && (is_itself(source, destination) || known.contains(store, source, destination)?)
        {
            first = Some(number);
        }
    }
    let Some(number) = first else { return Ok(()) };
    let (source, destination) = pairs[number];
    let is_itself = is_itself(source, destination);
    let (source, destination) = (store.source_ids().name(source), store.ids().name(destination));
    let problem = match is_itself {
        true => format!("{source} with itself, which is never a negative: remove the pair"),
        false => format!("the graph has an edge from {source} to {destination}, so it is no negative: remove the pair"),
    };
    Err(EngineError::input(path, Position::Row(number as u64), problem).into())
}
