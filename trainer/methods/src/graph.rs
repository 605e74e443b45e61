//! The whole graph in memory, divided into partitions.

use grappa_formats::{NodeId, random};
use grappa_io::{progress::Progress, size::ByteSize};
use grappa_sampling::sample;
use grappa_trainer::{
    Error, Result,
    nn::{Block, Names},
    train::{FullGraphInputs, key},
};
use tch::{Device, Tensor};

use super::{
    boundary::Boundary,
    config::{Method, MethodConfig},
    gern::PathGraphs,
    lists::Lists,
    owners::Owners,
};

/// Bytes of an edge of the graph: its source in an adjacency list.
const LISTED_EDGE_BYTES: u64 = 4;
/// Bytes of an edge of this process: its source in the block, in its transposed form, and as a tensor.
const EDGE_BYTES: u64 = 12;
/// The state of a layer, its aggregate, the rows before the nonlinearity, and their gradients.
const ROWS_OF_LAYER: u64 = 6;

/// A graph whose partitions train together.
pub(crate) struct PartitionedGraph {
    /// The node of each state. With a vertex cut, a node has a state in each partition with edges to or from it.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) boundary: Boundary,
    /// The row of each copy that is sent, int64 of `[copies]`.
    pub(crate) sent_rows: Tensor,
    /// The edges: from states, and after them from arriving copies, to states. With edge masks, one block for each.
    pub(crate) blocks: Vec<Block>,
    /// Instead of blocks, a path through the graph in each epoch.
    pub(crate) paths: Option<PathGraphs>,
    /// Names of states and of arriving copies, for dropout.
    pub(crate) names: Names,
    /// The states of training nodes, int64 of `[seeds]`.
    pub(crate) seeds: Tensor,
    pub(crate) seed_nodes: Vec<NodeId>,
    /// What the losses of the seeds are multiplied by, f32 of `[seeds]`. The factors of a node's states add up to 1.
    pub(crate) factors: Vec<f32>,
    /// Number of edges between partitions.
    pub(crate) cut_edges: u64,
}

impl PartitionedGraph {
    /// Divides the graph of a store, and takes the partitions of this process.
    ///
    /// # Errors
    /// If the store is a slice, memory is too small, or adjacency lists are damaged.
    pub(crate) fn new(
        options: &MethodConfig,
        inputs: &FullGraphInputs<'_>,
        owners: &Owners,
        progress: &dyn Progress,
    ) -> Result<Self> {
        check(options.method, inputs, owners)?;
        let lists = Lists::read(inputs, progress)?;
        let nodes = owners.by_node.len();
        match options.method {
            Method::CoFree => Self::vertex_cut(options, inputs, &lists, &owners.by_node),
            Method::Isolated => Self::edge_cut(inputs, &lists, owners, false),
            Method::Llcg => Self::edge_cut(inputs, &lists, &Owners::one(nodes), false),
            Method::Gern => {
                let mut graph = Self::edge_cut(inputs, &lists, &Owners::one(nodes), false)?;
                graph.blocks.clear();
                graph.paths = Some(PathGraphs::new(nodes, lists.edges(), inputs.config.seed));
                Ok(graph)
            }
            _ => Self::edge_cut(inputs, &lists, owners, true),
        }
    }

    /// The partitions apart from each other: the nodes of each, and the edges between them.
    ///
    /// # Errors
    /// If adjacency lists are damaged.
    pub(crate) fn parts(inputs: &FullGraphInputs<'_>, owners: &Owners, progress: &dyn Progress) -> Result<Vec<Self>> {
        let lists = Lists::read(inputs, progress)?;
        let (owners, members) = (&owners.by_node, owners.members());
        let mut rows = vec![0u32; owners.len()];
        for members in &members {
            (0..).zip(members).for_each(|(row, &node)| rows[node as usize] = row);
        }
        let placed_members = members.iter().zip(0..).map(|(members, partition)| {
            let mut edges = sample::Block { destinations: members.len(), offsets: vec![0], ..sample::Block::default() };
            for &node in members {
                let inside = lists.list_of(node).iter().filter(|source| owners[**source as usize] == partition);
                edges.indices.extend(inside.map(|source| rows[*source as usize]));
                edges.offsets.push(edges.indices.len() as u32);
            }
            let seeds: Vec<u32> = (0..)
                .zip(members)
                .filter(|(_, node)| inputs.train.contains(u64::from(**node)))
                .map(|(row, _)| row)
                .collect();
            let nodes = members.iter().map(|&node| NodeId(node.into())).collect();
            let factors = vec![1.0; seeds.len()];
            Self::of_rows(inputs, nodes, Boundary::default(), vec![edges], seeds, factors)
        });
        placed_members.collect()
    }

    /// The nodes of this process's partitions, each with its in-edges. `has_copies`: whether partitions get copies of the sources that they
    /// lack; otherwise these edges are missing.
    fn edge_cut(inputs: &FullGraphInputs<'_>, lists: &Lists, owners: &Owners, has_copies: bool) -> Result<Self> {
        let mut rows = vec![u32::MAX; owners.by_node.len()];
        let mut nodes: Vec<NodeId> = Vec::new();
        for (node, &partition) in (0..).zip(&owners.by_node) {
            if owners.has(partition) {
                rows[node as usize] = nodes.len() as u32;
                nodes.push(NodeId(node));
            }
        }
        let mut boundary = match has_copies {
            true => Boundary::new(lists, owners, &rows),
            false => Boundary::default(),
        };
        row_number(nodes.len() + boundary.arriving.len())?;
        let mut edges = sample::Block { destinations: nodes.len(), offsets: vec![0], ..sample::Block::default() };
        for node in &nodes {
            let partition = owners.by_node[node.0 as usize];
            let sources = lists.list_of(node.0 as u32).iter().copied();
            edges.indices.extend(sources.filter(|&source| has_copies || owners.by_node[source as usize] == partition));
            edges.offsets.push(edges.indices.len() as u32);
        }
        // The place of the copy of each node in the partition whose edges are numbered.
        let mut copy_of = vec![u32::MAX; owners.by_node.len()];
        for (partition, members) in (0..).zip(&owners.members()).filter(|(owner, _)| owners.has(*owner)) {
            for channel in boundary.arriving_channels.iter().filter(|channel| channel.to == partition) {
                for copy in channel.copies.clone() {
                    copy_of[boundary.arriving[copy].0 as usize] = copy as u32;
                }
            }
            for &node in members {
                let row = rows[node as usize] as usize;
                let weight = 1.0 / lists.list_of(node).len().max(1) as f32;
                for index in &mut edges.indices[edges.offsets[row] as usize..edges.offsets[row + 1] as usize] {
                    let source = *index as usize;
                    if owners.by_node[source] == partition {
                        *index = rows[source];
                    } else {
                        boundary.weights[copy_of[source] as usize] += weight;
                        *index = nodes.len() as u32 + copy_of[source];
                    }
                }
            }
        }
        let own = (0..).zip(&nodes).filter(|(_, node)| inputs.train.contains(node.0));
        let seeds: Vec<u32> = own.map(|(row, _)| row).collect();
        let factors = vec![1.0; seeds.len()];
        Self::of_rows(inputs, nodes, boundary, vec![edges], seeds, factors)
    }

    /// Each edge in one partition: the partition of its source or of its destination, at random. A node has a state in each partition of its edges,
    /// and in its own if it has none.
    fn vertex_cut(options: &MethodConfig, inputs: &FullGraphInputs<'_>, lists: &Lists, owners: &[u32]) -> Result<Self> {
        let seed = inputs.config.seed;
        let cut = key([seed, 0x76_65_72_74]);
        let mut placed: Vec<(u32, u32, u32)> = Vec::with_capacity(lists.sources.len());
        for node in 0..owners.len() as u32 {
            for &source in lists.list_of(node) {
                let pair = (u64::from(node.min(source)) << 32) | u64::from(node.max(source));
                // An edge and its reverse are in the same partition.
                let end = if random::combine(cut, pair) & 1 == 0 { node.min(source) } else { node.max(source) };
                placed.push((owners[end as usize], node, source));
            }
        }
        placed.sort_unstable();
        // The states: by partition, then by node.
        let mut states: Vec<(u32, u32)> = placed.iter().flat_map(|&(owner, a, b)| [(owner, a), (owner, b)]).collect();
        states.extend((0..).zip(owners).map(|(node, &owner)| (owner, node)));
        states.sort_unstable();
        states.dedup();
        let row_of = |partition, node| states.binary_search(&(partition, node)).expect("it is a state") as u32;
        row_number(states.len())?;
        let masks = options.edge_masks.max(1);
        let mut blocks = Vec::new();
        for mask in 0..masks {
            let dropped = key([seed, 0x6d_61_73_6b, mask.into()]);
            let is_dropped = |index: usize| {
                options.edge_masks > 0 && unit(random::combine(dropped, index as u64)) < options.edge_dropout
            };
            let mut edges = sample::Block {
                destinations: states.len(),
                offsets: vec![0; states.len() + 1],
                ..sample::Block::default()
            };
            for (index, &(partition, node, source)) in placed.iter().enumerate() {
                if !is_dropped(index) {
                    // Placed edges are sorted as states are.
                    edges.indices.push(row_of(partition, source));
                    edges.offsets[row_of(partition, node) as usize + 1] += 1;
                }
            }
            for row in 0..states.len() {
                edges.offsets[row + 1] += edges.offsets[row];
            }
            blocks.push(edges);
        }
        // The share of a node's in-edges at each state. A node without in-edges has its loss in its own partition.
        let mut degrees = vec![0u32; states.len()];
        placed.iter().for_each(|&(partition, node, _)| degrees[row_of(partition, node) as usize] += 1);
        let (mut seeds, mut factors) = (Vec::new(), Vec::new());
        for (row, &(partition, node)) in (0..).zip(&states) {
            let factor = match lists.list_of(node).len() {
                0 => f32::from(u8::from(owners[node as usize] == partition)),
                degree => degrees[row as usize] as f32 / degree as f32,
            };
            if factor > 0.0 && inputs.train.contains(node.into()) {
                seeds.push(row);
                factors.push(factor);
            }
        }
        let nodes = states.iter().map(|&(_, node)| NodeId(node.into())).collect();
        Self::of_rows(inputs, nodes, Boundary::default(), blocks, seeds, factors)
    }

    fn of_rows(
        inputs: &FullGraphInputs<'_>,
        nodes: Vec<NodeId>,
        boundary: Boundary,
        blocks: Vec<sample::Block>,
        seeds: Vec<u32>,
        factors: Vec<f32>,
    ) -> Result<Self> {
        let device = inputs.device;
        let is_cut = |source: &&u32| **source as usize >= nodes.len();
        let cut_edges = blocks[0].indices.iter().filter(is_cut).count() as u64;
        let sources: Vec<NodeId> = nodes.iter().chain(&boundary.arriving).copied().collect();
        let degrees = inputs.degrees(&sources)?;
        let blocks = blocks.into_iter().map(|edges| {
            let edges = sample::Block { sources: sources.len(), global: degrees[..nodes.len()].to_vec(), ..edges };
            Block::new(&edges, device).with_source_degrees(&degrees)
        });
        let seed_nodes = seeds.iter().map(|&row| nodes[row as usize]).collect();
        Ok(Self {
            blocks: blocks.collect(),
            paths: None,
            names: Names::of_rows(names(&nodes), boundary.arriving.iter().map(|node| node.0)),
            sent_rows: rows_tensor(&boundary.rows, device),
            seeds: rows_tensor(&seeds, device),
            seed_nodes,
            factors,
            cut_edges,
            boundary,
            nodes,
        })
    }
}

/// Names of rows. States of the same node in several partitions have different dropout.
fn names(nodes: &[NodeId]) -> Vec<u64> {
    let is_once = nodes.is_sorted_by(|a, b| a < b);
    let key_of_row = |(row, node): (u64, &NodeId)| if is_once { node.0 } else { random::combine(node.0, row) };
    (0..).zip(nodes).map(key_of_row).collect()
}

/// A uniform number as a fraction from 0 to below 1.
fn unit(uniform: u64) -> f64 {
    (uniform >> 11) as f64 / (1u64 << 53) as f64
}

fn rows_tensor(rows: &[u32], device: Device) -> Tensor {
    let rows: Vec<i64> = rows.iter().map(|&row| row.into()).collect();
    Tensor::from_slice(&rows).to_device(device)
}

fn row_number(row: usize) -> Result<u32> {
    match u32::try_from(row) {
        Ok(row) if row < u32::MAX => Ok(row),
        _ => Err(Error::TooLarge(
            "the graph with the copies of boundary nodes has more than 2^32 - 1 rows: use `--method grappa`".into(),
        )),
    }
}

/// Refuses slices, and graphs whose states exceed the memory of this process.
fn check(method: Method, inputs: &FullGraphInputs<'_>, owners: &Owners) -> Result<()> {
    let (config, manifest) = (inputs.config, inputs.store.manifest());
    if !manifest.is_whole() {
        return Err(Error::Options(format!(
            "--method {method} takes all edges, and {} is a slice: train on the whole store, or use `--method grappa`",
            inputs.store.path().display()
        )));
    }
    let model = inputs.model.options();
    let hidden = (config.layers as u64 - 1) * model.hidden as u64;
    let values = model.inputs as u64 + ROWS_OF_LAYER * (hidden + model.outputs as u64);
    let chunks = manifest.chunk_starts.windows(2).zip(&manifest.chunks);
    let own = chunks.filter(|(bounds, _)| {
        let owner = owners.by_node.get(bounds[0] as usize);
        owner.is_some_and(|&partition| owners.has(partition))
    });
    let (nodes, edges) =
        own.fold((0, 0), |(nodes, edges), (bounds, chunk)| (nodes + bounds[1] - bounds[0], edges + chunk.edges));
    // In the worst case, each partition but its own needs a copy of a node, and there are no more copies than edges.
    let copies = (manifest.nodes * owners.own_partitions() - nodes).min(edges);
    let needed =
        manifest.edges * LISTED_EDGE_BYTES + edges * EDGE_BYTES + (nodes + copies) * values * size_of::<f32>() as u64;
    if manifest.edges >= u64::from(u32::MAX) || needed > config.memory.0 {
        return Err(Error::TooLarge(format!(
            "--method {method} keeps the states of all nodes and of their copies, about {} for {nodes} nodes, {edges} edges and {} \
             partitions of this process, and --memory is {}: raise it, use a smaller --hidden, or `--method grappa`",
            ByteSize(needed),
            owners.own_partitions(),
            config.memory
        )));
    }
    Ok(())
}
