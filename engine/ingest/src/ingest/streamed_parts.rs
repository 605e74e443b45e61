//! Parts of neighboring nodes, which a streaming partitioner chooses.
//!
//! ```text
//! write a store in the scratch folder: nodes by dense id, both directions of each edge      neighbor_store
//! repeat: for each node in turn, choose the part with most of its neighbors that has room   StreamedParts::place
//! write the part of each node, for `permutation`
//! ```
//!
//! Later rounds improve the parts of earlier ones: all neighbors of a node have a part then (Nishimura and Ugander, "Restreaming graph
//! partitioning", KDD 2013). Memory: four bytes a node, and mapped adjacency lists. Disk: the adjacency lists, about two bytes for each
//! direction of an edge.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use bytemuck::cast_slice;
use grappa_formats::{
    ChunkId,
    manifest::{EdgeOptions, ExternalIds},
};
use grappa_io::{
    Result,
    durable::{self, Temporary},
    npy,
    progress::check_stopped,
};
use grappa_storage::{
    Store,
    writer::{StoreFolder, partial_folder},
};

use crate::ingest::{
    commit::manifest_of_edges,
    edge_ingest::{EdgeIngest, EdgeReader, EndNodes},
    edge_values::EdgeValues,
    edges::{self, ends::EdgeEnds, input_edges::InputEdges},
    job::IngestJob,
    journal::{IngestJournal, Scan},
    node_ids::{GraphIds, check_table},
    node_ingest::Partitioner,
    options::WRITER,
    plan,
};

/// Rounds over all nodes. The share of cut edges hardly falls in later ones.
const ROUNDS: u32 = 10;
/// The largest part, relative to an even share.
const IMBALANCE_MAX: f64 = 1.05;
/// Fennel's exponent of the cost of a part's size (Tsourakakis et al., WSDM 2014, section 4).
const FENNEL_GAMMA: f64 = 1.5;
/// Nodes of a chunk of the store with both directions. Small graphs have few files to sync.
const CHUNK_NODES: u64 = 1 << 18;
/// The part of a node that has none yet.
const NO_PART: u32 = u32::MAX;

/// The ids of a graph whose nodes lie in the order of parts that `partitioner` finds, unless an earlier run has.
pub fn open_ids(job: &IngestJob<'_>, scan: Scan, partitioner: Partitioner, parts: u32) -> Result<GraphIds> {
    check_table(job, scan.nodes)?;
    let path = folder(job).join("parts.npy");
    if job.journal.part_sizes().is_none() {
        write(job, scan, partitioner, parts, &path)?;
    }
    let ids = GraphIds::of_parts(job, scan.nodes, &path)?;
    durable::remove_folder(&folder(job))?;
    Ok(ids)
}

/// Writes the part of each node to `path`, in the order of dense ids.
fn write(job: &IngestJob<'_>, scan: Scan, partitioner: Partitioner, parts: u32, path: &Path) -> Result<()> {
    let store = neighbor_store(job, scan)?;
    let (nodes, edges) = (store.manifest().nodes, store.manifest().edges / 2);
    let mut streamed = StreamedParts::new(nodes, edges, partitioner, parts);
    job.progress.stage("dividing the nodes into parts", None);
    let mut cut = 0;
    for _ in 0..ROUNDS {
        cut = streamed.round(&store, job)?;
    }
    tracing::info!("{:.2} % of the edges are between parts", 50.0 * cut as f64 / edges.max(1) as f64);
    let file = Temporary::replace(path)?;
    file.write_all(&npy::header("<u4", &[nodes]))?;
    file.write_all(cast_slice(&streamed.part_of))?;
    file.finish()
}

/// The folder of the parts, and of the store from which they are found.
fn folder(job: &IngestJob<'_>) -> PathBuf {
    job.store.lasting_scratch().join("parts")
}

/// The graph with both directions of each edge, as a store of its own. A run that is resumed keeps it if it is complete.
fn neighbor_store(job: &IngestJob<'_>, scan: Scan) -> Result<Store> {
    let path = folder(job).join("neighbors.grappa");
    if path.exists() {
        return Store::open(&path);
    }
    let options = EdgeOptions { undirected: true, dedup: true, ..EdgeOptions::default() };
    let edges = EdgeIngest { options, split: None, ..job.edges.clone() };
    durable::create_folder(&folder(job))?;
    durable::remove_folder(&partial_folder(&path))?;
    let (store, _) = StoreFolder::begin(path.as_path(), None, false)?;
    let journal = IngestJournal::create(store.path(), BTreeMap::new(), job.budget.block_bytes)?;
    let ends = EndNodes::both(job.nodes, Some(scan.nodes));
    let reader = EdgeReader { input: &edges, ends };
    let source = reader.open(job.budget.block_bytes)?;
    let chunks = plan::chunk_map(scan.nodes, Some(scan.nodes.div_ceil(CHUNK_NODES).max(1) as u32))?;
    let mut ids = GraphIds::in_order(job, chunks)?;
    // The store has dense ids only.
    ids.spec.external = ExternalIds::Dense;
    let nested = IngestJob { edges: &edges, store: &store, journal, ..*job };
    let directory_bytes = plan::directory_memory(&ids.chunks, 1, &nested.budget)?;
    let values = EdgeValues::none();
    let input = InputEdges { reader, source: &source, values: &values, edges: scan.edges, is_reversed: false };
    edges::write(&nested, &input, &mut EdgeEnds::of_one_type(&mut ids), directory_bytes)?;
    store.commit(&manifest_of_edges(&nested, &ids, WRITER))?;
    Store::open(&path)
}

/// The parts of nodes so far.
struct StreamedParts {
    /// The part of each node, or [`NO_PART`].
    part_of: Vec<u32>,
    /// Number of nodes of each part.
    sizes: Vec<u64>,
    /// The parts by size.
    by_size: BTreeSet<(u64, u32)>,
    /// The size that no part exceeds.
    size_max: u64,
    partitioner: Partitioner,
    /// Fennel's weight of the cost of sizes, sqrt(parts) x edges / nodes^1.5.
    alpha: f64,
    /// Number of neighbors of the current node in each part. Zero between nodes.
    neighbors: Vec<u32>,
}

impl StreamedParts {
    fn new(nodes: u64, edges: u64, partitioner: Partitioner, parts: u32) -> Self {
        let even = nodes as f64 / f64::from(parts);
        Self {
            part_of: vec![NO_PART; nodes as usize],
            sizes: vec![0; parts as usize],
            by_size: (0..parts).map(|part| (0, part)).collect(),
            size_max: (even * IMBALANCE_MAX).ceil() as u64,
            partitioner,
            alpha: f64::from(parts).sqrt() * edges as f64 / (nodes as f64).powf(FENNEL_GAMMA),
            neighbors: vec![0; parts as usize],
        }
    }

    /// Places each node, in the order of the store. Returns the number of edges, in both directions, whose ends had other parts.
    fn round(&mut self, store: &Store, job: &IngestJob<'_>) -> Result<u64> {
        let (mut list, mut cut) = (Vec::new(), 0);
        for chunk in 0..store.chunks().chunks() {
            check_stopped(job.progress)?;
            let chunk = store.chunk_in_order(ChunkId(chunk))?;
            let rows = chunk.rows();
            let first = chunk.span().first_node.0;
            for (node, row) in (first..).zip(rows.range(0..rows.rows())) {
                list.clear();
                row?.decode_into(&mut list);
                cut += self.place(node, &list);
            }
        }
        Ok(cut)
    }

    /// Moves a node to the best part: a part with neighbors, or the smallest one. Returns the number of its neighbors in other parts.
    fn place(&mut self, node: u64, list: &[u64]) -> u64 {
        let before = self.part_of[node as usize];
        if before != NO_PART {
            self.resize(before, -1);
        }
        let mut found: Vec<u32> = Vec::new();
        for &neighbor in list {
            let part = self.part_of[neighbor as usize];
            if part == NO_PART || neighbor == node {
                continue;
            }
            if self.neighbors[part as usize] == 0 {
                found.push(part);
            }
            self.neighbors[part as usize] += 1;
        }
        let &(_, smallest) = self.by_size.first().expect("there are parts");
        let candidates =
            found.iter().copied().filter(|part| self.sizes[*part as usize] < self.size_max).chain([smallest]);
        let best = candidates.max_by(|&a, &b| {
            let (size_a, size_b) = (self.sizes[a as usize], self.sizes[b as usize]);
            self.score(a).total_cmp(&self.score(b)).then(size_b.cmp(&size_a)).then(b.cmp(&a))
        });
        let best = best.expect("there is the smallest part");
        self.part_of[node as usize] = best;
        self.resize(best, 1);
        let cut = list.len() as u64 - u64::from(self.neighbors[best as usize]);
        for part in found {
            self.neighbors[part as usize] = 0;
        }
        cut
    }

    /// How well the current node suits a part.
    fn score(&self, part: u32) -> f64 {
        let neighbors = f64::from(self.neighbors[part as usize]);
        let size = self.sizes[part as usize] as f64;
        match self.partitioner {
            Partitioner::Ldg => neighbors * (1.0 - size / self.size_max as f64),
            Partitioner::Fennel => neighbors - self.alpha * FENNEL_GAMMA * size.powf(FENNEL_GAMMA - 1.0),
        }
    }

    fn resize(&mut self, part: u32, by: i64) {
        let size = &mut self.sizes[part as usize];
        self.by_size.remove(&(*size, part));
        *size = size.wrapping_add_signed(by);
        self.by_size.insert((*size, part));
    }
}
