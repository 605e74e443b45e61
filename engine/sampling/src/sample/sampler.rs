//! Samplers: fill minibatches hop by hop.

use std::{mem, ops::Range, slice};

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{
    apart::{Parts, SeedParts, TypeParts, check_seeds},
    fanouts::Fanouts,
    group::{Group, GroupScratch},
    minibatch::{Block, Minibatch},
    neighbors::{DrawnEdges, NeighborHop},
    random::{BatchKey, HopKey, HopKeys},
    relabel::{Relabel, RelabelTable},
    size::check_size,
    time::{HopLimits, TimeHops, TimeOptions, TimeStrategy},
    walks::{RandomWalks, WalkHop, WalkScratch},
};
use crate::{
    shape::{GraphShape, RelationEnds},
    view::{EdgeData, GraphLists, PartitionView, TimeLists, ViewLists, adjacency::AdjacencyLists},
};

/// How neighbors are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    method: Method,
    /// Whether a node draws only at the hop after the one that reached it.
    draws_once: bool,
    /// Whether blocks have the weights of their edges.
    keeps_weights: bool,
    /// Whether blocks have the ids of their edges.
    keeps_ids: bool,
    /// Whether blocks have the times of their edges.
    keeps_times: bool,
    /// How the time of a seed limits draws, if it does.
    times: Option<TimeOptions>,
}

#[derive(Debug, Clone, PartialEq)]
enum Method {
    /// `fanouts` has an entry for each relation, or one entry for all relations.
    Neighbors {
        fanouts: Vec<Fanouts>,
        replace: bool,
        by_weight: bool,
    },
    Walks(RandomWalks),
}

impl Sampler {
    /// Draws in-neighbors uniformly: without replacement, at most as many as the fanout; with replacement, exactly as
    /// many if there are any. A fanout of -1 keeps all in-edges in either case.
    pub fn uniform(fanouts: Fanouts, replace: bool) -> Self {
        Self::with_method(Method::Neighbors { fanouts: vec![fanouts], replace, by_weight: false })
    }

    /// Draws in-neighbors with probabilities proportional to edge weights; without replacement, among the remaining
    /// edges. Edges of weight 0 are never drawn, not even if the fanout is -1.
    pub fn by_weight(fanouts: Fanouts, replace: bool) -> Self {
        Self::with_method(Method::Neighbors { fanouts: vec![fanouts], replace, by_weight: true })
    }

    /// Takes the nodes that random walks visit most often. The edge weights of blocks are the numbers of visits.
    ///
    /// # Errors
    /// If a number of `walks` is 0, or the probability is not in 0 to 1.
    pub fn random_walks(walks: RandomWalks) -> Result<Self> {
        walks.check()?;
        Ok(Self::with_method(Method::Walks(walks)))
    }

    /// The same sampler with fanouts of each relation, in the order of relations.
    ///
    /// # Errors
    /// If relations differ in their number of hops.
    ///
    /// # Panics
    /// If there are none, or it takes random walks.
    pub fn with_relation_fanouts(self, of_relations: Vec<Fanouts>) -> Result<Self> {
        let hops = of_relations[0].hops();
        if let Some(other) = of_relations.iter().find(|fanouts| fanouts.hops() != hops) {
            return Err(Error::conflict(
                format!("one relation has fanouts for {hops} hops, another relation for {}", other.hops()),
                "give each relation the same number of fanouts; 0 draws none",
            ));
        }
        match self.method {
            Method::Neighbors { replace, by_weight, .. } => {
                Ok(Self { method: Method::Neighbors { fanouts: of_relations, replace, by_weight }, ..self })
            }
            Method::Walks(_) => panic!("random walks have no fanouts"),
        }
    }

    fn with_method(method: Method) -> Self {
        Self { method, draws_once: false, keeps_weights: false, keeps_ids: false, keeps_times: false, times: None }
    }

    /// The same sampler for minibatches as in PyTorch Geometric: a node draws in-neighbors only at the hop after the one that
    /// reached it, and has no edges in later blocks.
    ///
    /// # Panics
    /// If it takes random walks, which start at each destination of a hop.
    #[must_use]
    pub fn drawing_once(self) -> Self {
        Self { draws_once: true, ..self.drawing_edges() }
    }

    /// The same sampler, with [`Block::edge_weights`] of the store. Without lists of the whole graph in memory, sampling then reads the weights
    /// of whole adjacency lists.
    ///
    /// # Panics
    /// If it takes random walks: their edges have other weights.
    #[must_use]
    pub fn with_edge_weights(self) -> Self {
        Self { keeps_weights: true, ..self.drawing_edges() }
    }

    /// The same sampler, with [`Block::edge_ids`], by which edges have features.
    ///
    /// # Panics
    /// If it takes random walks, which have no edges.
    #[must_use]
    pub fn with_edge_ids(self) -> Self {
        Self { keeps_ids: true, ..self.drawing_edges() }
    }

    /// The same sampler, with [`Block::edge_times`].
    ///
    /// # Panics
    /// If it takes random walks, which have no edges, or has no [times](Sampler::with_times).
    #[must_use]
    pub fn with_edge_times(self) -> Self {
        assert!(self.times.is_some(), "a sampler without times");
        Self { keeps_times: true, ..self.drawing_edges() }
    }

    /// Whether edges at the very time of a seed are hidden.
    pub fn hides_equal(&self) -> bool {
        self.times.is_some_and(|options| !options.equal)
    }

    /// The same sampler for seeds with times: it draws from the edges that are within the limits of their time.
    ///
    /// # Errors
    /// If it draws by weight or takes random walks, the window is negative, or it draws the last edges with replacement.
    pub fn with_times(self, options: TimeOptions) -> Result<Self> {
        options.check()?;
        let conflict = |problem: &str, remedy: &str| Err(Error::conflict(problem, remedy));
        match &self.method {
            Method::Walks(_) => conflict("random walks do not know times", "sample neighbors"),
            Method::Neighbors { by_weight: true, .. } => {
                conflict("draws by edge weight do not know times", "sample uniformly, or without times")
            }
            Method::Neighbors { replace: true, .. } if options.strategy == TimeStrategy::Last => {
                conflict("the last edges are drawn once each, not with replacement", "omit one of both")
            }
            Method::Neighbors { .. } => Ok(Self { times: Some(options), ..self }),
        }
    }

    /// Whether seeds need times.
    pub fn needs_times(&self) -> bool {
        self.times.is_some()
    }

    fn drawing_edges(self) -> Self {
        let draws_edges = matches!(self.method, Method::Neighbors { .. });
        assert!(draws_edges, "random walks start at each destination, and have visits instead of edges");
        self
    }

    /// How many edges away from a seed nodes are expanded, plus one.
    pub(crate) fn edges_from_seeds(&self) -> usize {
        match &self.method {
            Method::Neighbors { fanouts, .. } => fanouts[0].hops(),
            Method::Walks(walks) => walks.hops * walks.steps as usize,
        }
    }

    /// The most in-neighbors that a node draws at once after `hops` hops or later. None is all.
    pub(crate) fn draws_after(&self, hops: usize) -> Option<u32> {
        match &self.method {
            Method::Neighbors { fanouts, .. } => {
                let of_hop = |hop| fanouts.iter().map(move |fanouts| fanouts.at(hop));
                let mut later = (hops..self.hops()).flat_map(of_hop);
                later.try_fold(0, |most: u32, fanout| Some(fanout?.max(most)))
            }
            Method::Walks(walks) => Some(walks.walks),
        }
    }

    /// Whether a node draws only at the hop after the one that reached it.
    pub(crate) fn draws_once(&self) -> bool {
        self.draws_once
    }

    /// Whether it takes random walks.
    pub(crate) fn takes_walks(&self) -> bool {
        matches!(self.method, Method::Walks(_))
    }

    /// Whether nodes have limits of their own: the times of the edges that reached them.
    pub(crate) fn limits_by_edge(&self) -> bool {
        self.times.is_some_and(|options| options.hops == TimeHops::Edge)
    }

    /// The number of hops. A minibatch has one block per hop.
    pub fn hops(&self) -> usize {
        match &self.method {
            Method::Neighbors { fanouts, .. } => fanouts[0].hops(),
            Method::Walks(walks) => walks.hops,
        }
    }

    /// What blocks have of edges, as far as views have it.
    pub(crate) fn block_data(&self) -> EdgeData {
        EdgeData { weights: self.keeps_weights, ids: self.keeps_ids, times: self.keeps_times }
    }

    /// What views must have of edges.
    pub fn edge_data(&self) -> EdgeData {
        EdgeData {
            weights: self.keeps_weights || self.draws_by_weight(),
            ids: self.keeps_ids,
            times: self.times.is_some(),
        }
    }

    /// Whether probabilities of in-neighbors are proportional to edge weights.
    pub(crate) fn draws_by_weight(&self) -> bool {
        matches!(self.method, Method::Neighbors { by_weight: true, .. })
    }

    /// Fills `out` with the minibatch of `seeds`. Its previous content is discarded.
    ///
    /// # Errors
    /// If the view does not own a seed, the edges and nodes of a block reach 2^32, the minibatch
    /// has more than 2^31 nodes, the sampler draws by weight and reads a weight that is negative or not finite, or a
    /// file of the store is damaged. The content of `out` is then undefined.
    ///
    /// # Panics
    /// If the sampler needs weights or ids of edges and the view has none.
    pub fn sample(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        seeds.iter().try_for_each(|seed| view.owned().check_seed(*seed, view.nodes()))?;
        let shape = GraphShape::untyped(view.nodes());
        let graph = GraphLists { shape: &shape, views: vec![view] };
        self.sample_types(&graph, slice::from_ref(&seeds), key, scratch, slice::from_mut(out))
    }

    /// Fills `out` with the minibatch of a seed at a time.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    ///
    /// # Panics
    /// As [`Sampler::sample`], or if the sampler has no [times](Sampler::with_times).
    pub fn sample_at(
        &self,
        view: &PartitionView,
        (seed, time): (NodeId, i64),
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        view.owned().check_seed(seed, view.nodes())?;
        let shape = GraphShape::untyped(view.nodes());
        let graph = GraphLists { shape: &shape, views: vec![view] };
        let mut parts = SeedParts::default();
        parts.begin(1);
        parts.push_seed(0, seed);
        parts.push_part(key, Some(time));
        self.sample_parts(&graph, &parts, scratch, slice::from_mut(out))
    }

    /// Fills `out` with the minibatch of each node type, as [`GraphShape`] says. `seeds` are of each type, and may be halo nodes: these have the
    /// edges that [`HaloLists`](crate::view::HaloLists) give them.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub(crate) fn sample_types<S: AsRef<[NodeId]>>(
        &self,
        graph: &GraphLists<'_>,
        seeds: &[S],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        assert!(!self.needs_times(), "a sampler with times samples parts");
        let GraphLists { shape, views } = graph;
        self.check_views(views);
        let Scratch { tables, hop: scratch, .. } = scratch;
        if tables.len() < out.len() {
            tables.resize_with(out.len(), RelabelTable::default);
        }
        for (node_type, (seeds, out)) in seeds.iter().zip(&mut *out).enumerate() {
            let (nodes, blocks) = (shape.nodes[node_type], self.hops() * shape.blocks_per_hop(node_type));
            begin((seeds.as_ref(), nodes), tables[node_type].table_for(nodes), blocks, &mut scratch.seeds, out)?;
        }
        let lists: Vec<ViewLists<'_>> = views.iter().map(|view| view.lists()).collect();
        scratch.reached.clear();
        scratch.reached.resize(out.len(), 0..0);
        for hop in 0..self.hops() {
            for (reached, minibatch) in scratch.reached.iter_mut().zip(&*out) {
                *reached = reached.end..minibatch.nodes.len();
            }
            for (number, lists) in lists.iter().enumerate() {
                let RelationEnds { source, destination } = shape.relations[number];
                let key = key.hop(hop).of_relation(number);
                let sampled = HopOfRelation { hop, number, source, destination, view: views[number] };
                let place = shape.block_place(number, hop);
                let mut block = mem::take(&mut out[destination].blocks[place]);
                let relabel = tables[source].table_for(shape.nodes[source]);
                let done = match lists {
                    ViewLists::Whole(lists) => self.sample_hop(sampled, key, lists, relabel, scratch, out, &mut block),
                    ViewLists::Partition(lists) => {
                        self.sample_hop(sampled, key, lists, relabel, scratch, out, &mut block)
                    }
                    ViewLists::Mapped(lists) => self.sample_hop(sampled, key, lists, relabel, scratch, out, &mut block),
                    ViewLists::Halo(lists) => self.sample_hop(sampled, key, lists, relabel, scratch, out, &mut block),
                    ViewLists::MappedHalo(lists) => {
                        self.sample_hop(sampled, key, lists, relabel, scratch, out, &mut block)
                    }
                };
                out[destination].blocks[place] = block;
                done?;
            }
            for (number, relation) in shape.relations.iter().enumerate() {
                let sources = out[relation.source].nodes.len();
                out[relation.destination].blocks[shape.block_place(number, hop)].sources = sources;
            }
        }
        Ok(())
    }

    /// Fills `out` with the minibatch of each node type of several parts that share no nodes, as [`Minibatch::join`] makes it of a minibatch
    /// of each part. Parts have a time if the sampler has times. A part alone is an ordinary minibatch.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub(crate) fn sample_parts(
        &self,
        graph: &GraphLists<'_>,
        seeds: &SeedParts,
        scratch: &mut Scratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let GraphLists { shape, views } = graph;
        self.check_views(views);
        let times = if self.needs_times() { seeds.len() } else { 0 };
        assert_eq!(seeds.times.len(), times, "parts have a time if the sampler has times");
        let Method::Neighbors { .. } = &self.method else { return self.join_walks(graph, seeds, scratch, out) };
        let Scratch { parts, hop: HopScratch { group, .. }, .. } = scratch;
        let hops = self.times.map_or(TimeHops::Seed, |options| options.hops);
        let blocks = |node_type| self.hops() * shape.blocks_per_hop(node_type);
        parts.begin(seeds, shape, blocks, hops == TimeHops::Edge, out)?;
        let lists: Vec<ViewLists<'_>> = views.iter().map(|view| view.lists()).collect();
        let times: Vec<Option<TimeLists<'_>>> = views.iter().map(|view| view.time_lists()).collect();
        for hop in 0..self.hops() {
            for (number, lists) in lists.iter().enumerate() {
                let RelationEnds { source, destination } = shape.relations[number];
                parts.begin_relation(seeds, hop, number);
                let Parts { types, keys, drawn, .. } = &mut *parts;
                let of_type = &types[destination];
                let first = if self.draws_once { of_type.level_start(hop) } else { 0 };
                let Minibatch { nodes, blocks, .. } = &mut out[destination];
                let TypeParts { parts: of_nodes, indices, limits, .. } = of_type;
                let destinations = Destinations { nodes, parts: of_nodes, indices, limits, first };
                let hop = RelationHop {
                    sampled: HopOfRelation { hop, number, source, destination, view: views[number] },
                    lists,
                    time_lists: times[number].as_ref(),
                    keys,
                    times: &seeds.times,
                };
                let block = &mut blocks[shape.block_place(number, hop.sampled.hop)];
                self.draw_relation(&hop, &destinations, group, &mut drawn[number], block)?;
            }
            parts.relabel(shape, hop, if self.draws_once { hop } else { 0 }, hops, out)?;
            if self.keeps_times {
                for (number, relation) in shape.relations.iter().enumerate() {
                    let block = &mut out[relation.destination].blocks[shape.block_place(number, hop)];
                    mem::swap(&mut block.edge_times, &mut parts.drawn[number].times);
                }
            }
        }
        parts.end(seeds.len(), out);
        Ok(())
    }

    /// # Panics
    /// If the views lack what the sampler needs of edges.
    fn check_views(&self, views: &[&PartitionView]) {
        let needed = self.edge_data();
        let has = |part: fn(EdgeData) -> bool| views.iter().any(|view| part(view.edge_data()));
        assert!(!needed.weights || has(|edges| edges.weights), "the sampler needs a view with edge weights");
        assert!(!needed.ids || has(|edges| edges.ids), "the sampler needs a view with ids of edges");
        assert!(!needed.times || has(|edges| edges.times), "the sampler needs a view with times of edges");
    }

    /// Samples in-neighbors by one relation at one hop.
    #[expect(clippy::too_many_arguments, reason = "they are all that a hop reads and writes")]
    fn sample_hop<A: AdjacencyLists>(
        &self,
        sampled: HopOfRelation<'_>,
        key: HopKey,
        lists: &A,
        relabel: &mut dyn Relabel,
        scratch: &mut HopScratch,
        types: &mut [Minibatch],
        block: &mut Block,
    ) -> Result<()> {
        let HopOfRelation { source, destination, .. } = sampled;
        let group = &mut Group::new(lists, None, &mut scratch.group);
        let Range { start: first, end: destinations } = scratch.reached[destination].clone();
        match &self.method {
            Method::Neighbors { .. } => {
                let first = if self.draws_once { first } else { 0 };
                let hop = self.neighbor_hop(sampled, HopKeys::Shared(key), None, first);
                hop.sample(group, relabel, types, destinations, block)
            }
            Method::Walks(walks) => {
                assert_eq!(source, destination, "random walks follow one relation of a type");
                let hop = WalkHop { key, walks };
                hop.sample(group, relabel, &mut scratch.walks, &mut types[source].nodes, block)
            }
        }
    }

    /// Draws in-neighbors by one relation at one hop, for destinations of several parts, in any order. Sources are not relabelled.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub(crate) fn draw_relation(
        &self,
        hop: &RelationHop<'_>,
        destinations: &Destinations<'_>,
        scratch: &mut GroupScratch,
        drawn: &mut DrawnEdges,
        block: &mut Block,
    ) -> Result<()> {
        match hop.lists {
            ViewLists::Whole(lists) => self.draw_lists(hop, lists, destinations, scratch, drawn, block),
            ViewLists::Partition(lists) => self.draw_lists(hop, lists, destinations, scratch, drawn, block),
            ViewLists::Mapped(lists) => self.draw_lists(hop, lists, destinations, scratch, drawn, block),
            ViewLists::Halo(lists) => self.draw_lists(hop, lists, destinations, scratch, drawn, block),
            ViewLists::MappedHalo(lists) => self.draw_lists(hop, lists, destinations, scratch, drawn, block),
        }
    }

    fn draw_lists<A: AdjacencyLists>(
        &self,
        &RelationHop { sampled, time_lists, keys, times, .. }: &RelationHop<'_>,
        lists: &A,
        &Destinations { nodes, parts, indices, limits, first }: &Destinations<'_>,
        scratch: &mut GroupScratch,
        drawn: &mut DrawnEdges,
        block: &mut Block,
    ) -> Result<()> {
        let keys = HopKeys::Apart { keys, parts, indices };
        let limits = self.times.map(|options| HopLimits { options, times, parts, limits });
        let hop = self.neighbor_hop(sampled, keys, limits, first);
        hop.draw_apart(&mut Group::new(lists, time_lists, scratch), nodes, drawn, block)
    }

    /// How neighbors are drawn by a relation at a hop. `first` is the first destination that draws.
    fn neighbor_hop<'a>(
        &self,
        HopOfRelation { hop, number, source, destination, view }: HopOfRelation<'a>,
        keys: HopKeys<'a>,
        limits: Option<HopLimits<'a>>,
        first: usize,
    ) -> NeighborHop<'a> {
        let Method::Neighbors { fanouts, replace, by_weight } = &self.method else {
            unreachable!("random walks have no fanouts")
        };
        let fanouts = if fanouts.len() == 1 { &fanouts[0] } else { &fanouts[number] };
        NeighborHop {
            keys,
            source,
            destination,
            fanout: fanouts.at(hop),
            replace: *replace,
            by_weight: *by_weight,
            keeps_weights: self.keeps_weights && view.edge_data().weights,
            keeps_ids: self.keeps_ids && view.edge_data().ids,
            limits,
            reads_times: self.keeps_times || limits.is_some_and(|limits| limits.options.hops == TimeHops::Edge),
            first,
            counted_sources: view.counted_sources(),
            ids: view.ids(),
        }
    }
}

/// A relation at a hop.
#[derive(Clone, Copy)]
pub(crate) struct HopOfRelation<'a> {
    pub hop: usize,
    /// The number of the relation.
    pub number: usize,
    /// The types that it joins.
    pub source: usize,
    pub destination: usize,
    pub view: &'a PartitionView,
}

/// What draws by a relation at a hop read.
pub(crate) struct RelationHop<'a> {
    pub sampled: HopOfRelation<'a>,
    /// The lists of the view, and their times, if they have some.
    pub lists: &'a ViewLists<'a>,
    pub time_lists: Option<&'a TimeLists<'a>>,
    /// The key of each part at this hop.
    pub keys: &'a [HopKey],
    /// The time of each part, if the sampler has times.
    pub times: &'a [i64],
}

/// The destinations of a hop, of several parts.
pub(crate) struct Destinations<'a> {
    pub nodes: &'a [NodeId],
    /// The part of each, and its index among the nodes of the part.
    pub parts: &'a [u32],
    pub indices: &'a [u32],
    /// The limit of each, if nodes have limits of their own.
    pub limits: &'a [i64],
    /// The first one that draws.
    pub first: usize,
}

/// Checks the seeds of a type, which has this number of nodes, and makes them the first nodes of its minibatch, which gets this number of empty blocks.
fn begin(
    (seeds, nodes): (&[NodeId], u64),
    relabel: &mut dyn Relabel,
    blocks: usize,
    indices: &mut Vec<u32>,
    out: &mut Minibatch,
) -> Result<()> {
    out.clear();
    out.blocks.resize_with(blocks, Block::default);
    out.seeds = seeds.len();
    check_seeds(seeds, nodes)?;
    check_size(0, seeds.len())?;
    relabel.begin();
    indices.clear();
    indices.resize(seeds.len(), 0);
    relabel.relabel(seeds, &mut out.nodes, indices);
    if out.nodes.len() < seeds.len() {
        // Some seeds are repeated. Each has its place, and is known by the first one.
        relabel.begin();
        out.nodes.clear();
        for (place, seed) in seeds.iter().enumerate() {
            relabel.relabel(slice::from_ref(seed), &mut out.nodes, &mut indices[..1]);
            if out.nodes.len() == place {
                out.nodes.push(*seed);
            }
        }
    }
    Ok(())
}

/// Reusable memory of a thread that samples. It may be used with any samplers and views in turn.
#[derive(Debug, Default)]
pub struct Scratch {
    /// One for each node type.
    pub(super) tables: Vec<RelabelTable>,
    hop: HopScratch,
    parts: Parts,
}

#[derive(Debug, Default)]
struct HopScratch {
    /// The local indices of the seeds.
    seeds: Vec<u32>,
    /// The nodes of each type that the last hop reached, as a range of their indices.
    reached: Vec<Range<usize>>,
    group: GroupScratch,
    walks: WalkScratch,
}

impl Scratch {
    /// Bytes of memory after a minibatch of `nodes` nodes, if it is otherwise like those that were sampled before.
    pub fn bytes(&self, nodes: usize) -> u64 {
        let HopScratch { seeds, group, walks, reached: _ } = &self.hop;
        // Lists that are taken whole are decoded into a buffer outside of the scratch.
        let decoded = group.sources.capacity() * size_of::<NodeId>();
        let hop = seeds.capacity() * size_of::<u32>() + decoded;
        let tables = self.tables.iter().map(|table| table.bytes(nodes + group.sources.capacity()));
        tables.sum::<u64>() + hop as u64 + group.bytes() + walks.bytes() + self.parts.bytes()
    }
}
