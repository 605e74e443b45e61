//! A loader, and the partitions that it opens: their views, and the sampled in-neighbors of their halo nodes.

use std::{mem, sync::Arc};

use grappa_formats::{NodeId, PartitionId, assignment::Assignment, random};
use grappa_io::{
    Error, Result,
    ledger::Lease,
    progress::{Progress, Silent},
};
use grappa_storage::{Graph, MappedChunks, Store};
use roaring::RoaringTreemap;

use super::options::{EDGE_FEATURES, LoaderOptions, Seeds};
use crate::{
    NodeSet,
    feed::{Feed, GraphEdgeFeatures, Part, Seeded},
    halo_neighbors::{HaloNeighbors, HaloRelation, PartitionNodes, halo_neighbors_auto},
    links::Positives,
    partition::{Owned, SeedNodes, groups},
    placement::{ListSizes, ListsBudget},
    policy::{LISTS, SWEEPS},
    sweep::{SweepOptions, Sweeps},
    view::{
        GraphHaloLists, GraphView, Halo, MappedMemory, PartitionView, TurnPlace, Turns, ViewKind, ViewOptions,
        ViewSource, owned_of_types, shape_of,
    },
};

/// Samples minibatches and delivers them with features, epoch after epoch.
///
/// ```no_run
/// use std::{path::Path, sync::Arc};
///
/// use grappa_sampling::Loader;
/// use grappa_storage::{Graph, MappedChunks, Store};
///
/// let store = Arc::new(Store::open(Path::new("graph.grappa"))?);
/// let mut loader = Loader::open(&store).fanouts([15, 10, 5]).batch(1024).memory(4 << 30).start()?;
/// for epoch in 0..3 {
///     for batch in loader.epoch(epoch)? {
///         let batch = batch?;
///         let (nodes, features) = (&batch.minibatch().nodes, batch.features().unwrap());
///         assert_eq!(nodes.len(), features.rows());
///     }
/// }
/// # Ok::<(), grappa_io::Error>(())
/// ```
pub struct Loader {
    pub(super) graph: Graph,
    /// The first node type, which is all of a graph without types.
    pub(super) store: Arc<Store>,
    pub(super) options: LoaderOptions,
    pub(super) open: OpenPartitions,
    /// A mapped view of the whole graph, for [`Loader::whole_graph_batches`] of several partitions.
    pub(super) whole: Option<ViewSource>,
    /// The feed of training. Evaluations use it if it is open.
    pub(super) feed: Option<Feed>,
    /// A feed that was opened for [`Loader::whole_graph_batches`]. Its memory is divided for their size, so training
    /// closes it.
    pub(super) evaluation: Option<Feed>,
}

/// The open partitions of a loader, as far as its worker serves them.
#[derive(Debug, Default)]
pub(super) struct OpenPartitions {
    pub parts: Vec<Part>,
    /// The sampled in-neighbors of halo nodes, if they have any.
    halo_lists: Option<GraphHaloLists>,
    /// The memory of all mapped files.
    mapped: Arc<MappedMemory>,
    /// The sweeps that sample minibatches, if they are swept.
    pub sweeps: Option<Arc<Sweeps>>,
    /// The features of edges, if batches have them.
    pub edge_features: Option<Arc<GraphEdgeFeatures>>,
}

impl Loader {
    /// A loader without partitions. [`Loader::partition`] opens some.
    pub fn new(store: &Arc<Store>, options: LoaderOptions) -> Self {
        Self::of_graph(&Graph::from_store(store), options)
    }

    /// As [`Loader::new`], for a graph with types. Seeds are [positions](grappa_storage::Positions), and each batch has a minibatch for
    /// each node type.
    pub fn of_graph(graph: &Graph, options: LoaderOptions) -> Self {
        Self {
            store: graph.node_types()[0].clone(),
            graph: graph.clone(),
            options,
            open: OpenPartitions::default(),
            whole: None,
            feed: None,
            evaluation: None,
        }
    }

    /// Opens the views of the partitions of `assignment` that this worker serves. The memory of the previous views is
    /// freed first.
    ///
    /// # Errors
    /// If the store lacks the split, there are no seeds and no list without any was given, the memory is too small, or `progress` asks
    /// to stop.
    pub fn partition(&mut self, assignment: &Assignment, seeds: &Seeds, progress: &dyn Progress) -> Result<()> {
        self.open = OpenPartitions::default();
        let (owned, seeds) = owned_and_seeds(&self.graph, &self.options, assignment, seeds)?;
        if self.options.edge_features {
            let bytes = self.options.edge_feature_bytes(&self.graph);
            self.open.edge_features = Some(Arc::new(GraphEdgeFeatures::open(&self.graph, bytes, &self.open.mapped)?));
        }
        if self.options.halo == Halo::Neighbors && seeds.len() > 1 {
            let partitions: Vec<_> = owned.iter().zip(seeds.iter().filter_map(PartSeeds::listed)).collect();
            let lists = self.draw_halo_lists(assignment.generation(), &partitions, progress)?;
            self.open.halo_lists = Some(lists);
        }
        if self.options.view == ViewKind::Sweep {
            self.open.sweeps = Some(Arc::new(self.new_sweeps(seeds.len())?));
        }
        self.open_parts(owned, seeds, self.options.view, progress)
    }

    /// The sweeps over the whole graph, which is `partitions` partitions.
    fn new_sweeps(&self, partitions: usize) -> Result<Sweeps> {
        let conflict = |problem: String, remedy: &str| Err(Error::conflict(problem, remedy));
        if partitions > 1 {
            return conflict(
                format!("sweeps sample the whole graph, not {partitions} partitions"),
                "sample one partition",
            );
        }
        if self.options.minibatches.sampler.takes_walks() {
            return conflict("sweeps draw neighbors, and do not take random walks".into(), "sample without sweeps");
        }
        let (folder, disk_bytes) = self.options.scratch.resolve()?;
        let memory_bytes = SWEEPS.bytes(self.options.memory);
        Ok(Sweeps::new(SweepOptions { folder, disk_bytes, memory_bytes, threads: self.options.threads }))
    }

    /// The sweeps that sample minibatches, if they are swept.
    pub fn sweeps(&self) -> Option<&Arc<Sweeps>> {
        self.open.sweeps.as_ref()
    }

    /// The open partitions that this worker serves, each with its view and its seeds.
    pub fn served(&self) -> impl Iterator<Item = &Seeded> {
        self.open.parts.iter().filter_map(Part::served)
    }

    /// Samples in-neighbors of the halo nodes of the open partitions that this worker serves, as [`Halo::Neighbors`]
    /// does. `generation` is the generation of the assignment. None if minibatches expand no halo nodes.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or `progress` asks to stop.
    pub fn sample_halo_neighbors(&self, generation: u64, progress: &dyn Progress) -> Result<Option<GraphHaloLists>> {
        if self.options.minibatches.sampler.edges_from_seeds() == 1 && self.options.minibatches.links.is_none() {
            // Only seeds are expanded, and the partition owns them.
            return Ok(None);
        }
        let partitions: Vec<_> = self.served().map(|part| (part.view.owned(), &*part.seeds)).collect();
        self.draw_halo_lists(generation, &partitions, progress).map(Some)
    }

    /// Gives the halo nodes of the open partitions the lists that [`Loader::sample_halo_neighbors`] made. To be called
    /// before the first batch of these partitions.
    pub fn set_halo_lists(&mut self, lists: GraphHaloLists) {
        for part in self.open.parts.iter_mut().filter_map(Part::served_mut) {
            match &mut part.view {
                ViewSource::Open(view) => {
                    let view = Arc::get_mut(view).expect("no batch has the view yet");
                    view.set_halo_lists(lists.relations[0].clone());
                }
                ViewSource::InTurn(turns, _) => turns.set_halo_lists(lists.relations[0].clone()),
                ViewSource::Graph(view) => {
                    let view = Arc::get_mut(view).expect("no batch has the view yet");
                    view.set_halo_lists(&lists);
                }
            }
        }
        self.open.halo_lists = Some(lists);
    }

    /// The sampled in-neighbors of the halo nodes of these partitions, if they have any.
    pub fn halo_lists(&self) -> Option<&GraphHaloLists> {
        self.open.halo_lists.as_ref()
    }

    /// Gives the open partitions that this worker serves their positives, in the order of partitions. `of_all` has the number of positives of
    /// each partition, also of other workers.
    ///
    /// # Panics
    /// If numbers disagree, or [`MinibatchOptions::links`](crate::feed::MinibatchOptions::links) is none.
    pub fn set_positives(&mut self, positives: Vec<Arc<Positives>>, of_all: &[u64]) {
        assert!(self.options.minibatches.links.is_some(), "minibatches are of links");
        assert_eq!(self.open.parts.len(), of_all.len(), "a number for each partition");
        let mut positives = positives.into_iter();
        for (part, &count) in self.open.parts.iter_mut().zip(of_all) {
            match part {
                Part::Elsewhere { seeds } => *seeds = count,
                Part::Served(part) => {
                    let of_part = positives.next().expect("each partition that is served has positives");
                    assert_eq!(of_part.len(), count, "positives of a partition");
                    part.positives = Some(of_part);
                }
            }
        }
    }

    /// Gives the open partition these seeds instead of those that it was opened with.
    ///
    /// # Panics
    /// If several partitions are open, or another worker serves the one.
    pub fn set_seeds(&mut self, seeds: SeedNodes) {
        self.only_part().seeds = Arc::new(seeds);
    }

    /// Lists the batches of the open partition: the end of each among its seeds or positives, in ascending order. None divides them as
    /// the options say.
    ///
    /// # Panics
    /// As [`Loader::set_seeds`].
    pub fn set_batches(&mut self, ends: Option<Vec<u64>>) {
        self.only_part().batches = ends.map(Arc::new);
    }

    fn only_part(&mut self) -> &mut Seeded {
        match &mut self.open.parts[..] {
            [Part::Served(part)] => part,
            parts => panic!("an order of {} partitions", parts.len()),
        }
    }

    /// Whether adjacency lists are in memory, and the options allow to map them.
    pub(super) fn may_map(&self) -> bool {
        self.options.view == ViewKind::Auto && self.served().any(|part| part.view.kind() != ViewKind::Mapped)
    }

    /// Maps the adjacency lists instead of holding them in memory. The seeds stay the same.
    pub(super) fn map(&mut self) -> Result<()> {
        let (mut owned, mut seeds, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        // Frees the views in memory before it opens others.
        for part in mem::take(&mut self.open.parts) {
            seeds.push(match part {
                Part::Elsewhere { seeds } => PartSeeds::Elsewhere(seeds),
                Part::Served(part) => {
                    owned.push(part.view.owned().clone());
                    orders.push((part.positives, part.batches, part.times));
                    PartSeeds::Served(part.seeds)
                }
            });
        }
        self.open_parts(owned, seeds, ViewKind::Mapped, &Silent)?;
        let served = self.open.parts.iter_mut().filter_map(Part::served_mut);
        served.zip(orders).for_each(|(part, order)| (part.positives, part.batches, part.times) = order);
        Ok(())
    }

    /// Opens views in memory or mapped.
    pub(super) fn open_views(
        &self,
        owned: Vec<Owned>,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<Arc<PartitionView>>> {
        let budget = self.lists_budget();
        let mapped_bytes_max = (kind == ViewKind::Mapped).then(|| budget.share());
        let options = ViewOptions { mapped_bytes_max, ..self.view_options() };
        let views = PartitionView::open_all(&self.store, owned, &options, &self.open.mapped, None, progress)?;
        if views.iter().map(|view| view.mapped_bytes()).sum::<u64>() <= budget.read_ahead_max() {
            views.iter().for_each(|view| view.read_ahead());
        }
        Ok(views)
    }

    /// Bytes of the mapped files of adjacency lists that are open all the time.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.opened().map(PartitionView::mapped_bytes).sum()
    }

    /// Bytes of memory that the adjacency lists of the partitions take at most, the lists of halo nodes, and the features of edges.
    pub fn adjacency_bytes(&self) -> u64 {
        self.adjacency_leases().iter().map(|lease| lease.bytes).sum()
    }

    /// The memory of the open partitions and of the feed, by consumer.
    pub fn leases(&self) -> Vec<Lease> {
        let mut leases = self.adjacency_leases().to_vec();
        leases.extend_from_slice(self.feed().map_or(&[], Feed::leases));
        leases
    }

    /// The memory of [`Loader::adjacency_bytes`], by consumer.
    fn adjacency_leases(&self) -> [Lease; 4] {
        let opened = || self.opened().map(PartitionView::bytes).sum();
        let views = match self.turns() {
            Some(turns) => Lease::new(
                LISTS.name,
                turns.bytes(),
                "lists of the partitions of a step and of the next step, loaded in turn because all of them do not fit",
            ),
            None if self.opened().any(|view| view.kind() == ViewKind::Mapped) => LISTS.lease_of(opened()),
            None => Lease::new(LISTS.name, opened(), "all lists of this process are in memory, because they fit"),
        };
        let edge_features = self.open.edge_features.as_ref().map_or(0, |edges| edges.bytes());
        let halo_lists = Lease::new(
            "in-neighbors of halo nodes",
            self.halo_list_bytes(),
            "in-neighbors that were sampled for this super-epoch; refused above 1/4 of the memory, as mapped lists are",
        );
        let sweeps = self.open.sweeps.as_ref().map_or(0, |sweeps| sweeps.memory_bytes());
        [views, halo_lists, SWEEPS.lease_of(sweeps), EDGE_FEATURES.lease_of(edge_features)]
    }

    /// Frees the views that are in memory in turn; the next epoch loads them again. Returns the bytes that adjacency
    /// lists still take.
    pub fn free_views_in_turn(&self) -> u64 {
        let bytes = self.adjacency_bytes();
        let Some(turns) = self.turns() else { return bytes };
        turns.free();
        bytes - turns.bytes()
    }

    /// The views that are in memory in turn, if they are.
    fn turns(&self) -> Option<&Arc<Turns>> {
        match &self.served().next()?.view {
            ViewSource::InTurn(turns, _) => Some(turns),
            ViewSource::Open(_) | ViewSource::Graph(_) => None,
        }
    }

    /// The views that are open all the time.
    fn opened(&self) -> impl Iterator<Item = &PartitionView> {
        self.served().flat_map(|part| match &part.view {
            ViewSource::Open(view) => vec![&**view],
            ViewSource::InTurn(..) => Vec::new(),
            ViewSource::Graph(view) => view.views().collect(),
        })
    }

    fn halo_list_bytes(&self) -> u64 {
        self.open.halo_lists.as_ref().map_or(0, |lists| lists.bytes())
    }

    /// The memory that views share with features.
    fn lists_budget(&self) -> ListsBudget {
        self.options.lists_budget(&self.graph).beside(self.halo_list_bytes())
    }

    fn view_options(&self) -> ViewOptions {
        ViewOptions {
            sources: None,
            source_times: None,
            halo: self.options.halo,
            // A store has one relation. A view of a graph has those of each.
            halo_lists: self.open.halo_lists.as_ref().map(|lists| lists.relations[0].clone()),
            edge_data: self.options.minibatches.sampler.edge_data(),
            mapped_bytes_max: None,
            threads: self.options.threads,
            engine: self.options.read_engine,
        }
    }

    /// Opens the views of the partitions that the worker serves, which own `owned`. `seeds` has the seeds of all
    /// partitions.
    fn open_parts(
        &mut self,
        owned: Vec<Owned>,
        seeds: Vec<PartSeeds>,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut views = self.view_sources(owned, seeds.len(), kind, progress)?.into_iter();
        let parts = seeds.into_iter().map(|seeds| match seeds {
            PartSeeds::Elsewhere(seeds) => Part::Elsewhere { seeds },
            PartSeeds::Served(seeds) => Part::Served(Seeded {
                view: views.next().expect("each partition that is served has a view"),
                seeds,
                times: None,
                batches: None,
                positives: None,
            }),
        });
        self.open.parts = parts.collect();
        Ok(())
    }

    /// The views of some of `count` partitions, where the budget has room for them.
    pub(super) fn view_sources(
        &self,
        owned: Vec<Owned>,
        count: usize,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<ViewSource>> {
        let groups = groups(&owned, count, self.options.concurrent(count));
        let bytes: &dyn Fn(&Owned) -> u64 = &|owned| self.options.list_bytes(&self.graph, owned);
        let sizes = ListSizes {
            all: owned.iter().map(bytes).sum(),
            two_groups: (groups.len() > 1).then(|| Turns::bytes_of(&groups, bytes)),
        };
        let place = self.lists_budget().place(kind, sizes)?;
        if self.graph.has_types() {
            return self.open_graph_views(owned, place, progress);
        }
        if place != ViewKind::InTurn {
            let views = self.open_views(owned, place, progress)?;
            return Ok(views.into_iter().map(ViewSource::Open).collect());
        }
        let places: Vec<TurnPlace> = (0..)
            .zip(&groups)
            .flat_map(|(group, partitions)| (0..partitions.len()).map(move |index| TurnPlace { group, index }))
            .collect();
        let turns = Arc::new(Turns::new(&self.store, groups, self.view_options()));
        Ok(places.into_iter().map(|place| ViewSource::InTurn(turns.clone(), place)).collect())
    }

    /// Opens views of a graph with types, in memory or mapped.
    fn open_graph_views(&self, owned: Vec<Owned>, place: ViewKind, progress: &dyn Progress) -> Result<Vec<ViewSource>> {
        let share = self.lists_budget().share() / owned.len().max(1) as u64;
        let options =
            ViewOptions { mapped_bytes_max: (place != ViewKind::Memory).then_some(share), ..self.view_options() };
        let views = owned.into_iter().map(|owned| {
            let mut view = GraphView::open(&self.graph, owned, &options, &self.open.mapped, progress)?;
            if let Some(lists) = &self.open.halo_lists {
                view.set_halo_lists(lists);
            }
            Ok(ViewSource::Graph(Arc::new(view)))
        });
        views.collect()
    }

    fn draw_halo_lists(
        &self,
        generation: u64,
        partitions: &[(&Owned, &SeedNodes)],
        progress: &dyn Progress,
    ) -> Result<GraphHaloLists> {
        let minibatches = &self.options.minibatches;
        if minibatches.sampler.draws_by_weight() {
            return Err(Error::conflict(
                "in-neighbors of halo nodes are sampled uniformly, and then not drawn by edge weight",
                "choose another halo mode, or sample uniformly",
            ));
        }
        let beyond = self.options.hops_of_ends();
        let partitions: Vec<PartitionNodes> = partitions
            .iter()
            .map(|(owned, seeds)| {
                let all = (beyond > 0).then(|| owned.all_nodes());
                partition_nodes(&self.graph, owned, all.as_ref().unwrap_or(seeds))
            })
            .collect();
        let memory = self.options.lists_budget(&self.graph).share();
        let relations = self.graph.relations();
        let sizes = self.options.halo_sizes(&self.graph);
        let chosen = halo_neighbors_auto(self.options.halo_draws(), &sizes, memory);
        let opened = relations.iter().map(|store| Ok((MappedChunks::open(store)?, store.first_edges())));
        let opened = opened.collect::<Result<Vec<_>>>()?;
        let shape = shape_of(&self.graph);
        let seed = random::combine(random::hash(minibatches.seed), generation);
        let drawn = shape.relations.iter().zip(&opened).zip(sizes).enumerate();
        let drawn = drawn.map(|(number, ((&ends, (chunks, first_edges)), sizes))| HaloRelation {
            ends,
            chunks,
            sizes,
            first_edges,
            per_node: match self.options.halo_neighbors {
                // A number for a node, which its relations divide.
                Some(count) => count.div_ceil(shape.blocks_per_hop(ends.destination) as u32),
                None => chosen,
            },
            seed: if number == 0 { seed } else { random::combine(seed, number as u64) },
        });
        let neighbors = HaloNeighbors {
            nodes: shape.nodes.clone(),
            relations: drawn.collect(),
            hops: minibatches.sampler.edges_from_seeds() + beyond,
            memory,
            threads: self.options.threads,
        };
        let lists = neighbors.draw(&partitions, progress);
        lists.map_err(Error::in_budget(self.options.memory, |least| LISTS.budget_of(least)))
    }
}

/// The nodes of each type that a partition owns, and the seeds among them.
fn partition_nodes(graph: &Graph, owned: &Owned, seeds: &SeedNodes) -> PartitionNodes {
    let positions = graph.positions();
    let of_type = |node_type: usize| {
        let range = positions.range(node_type);
        let of_type = seeds.iter().filter(|seed| range.contains(&seed.0));
        NodeSet::from_members(range.end - range.start, of_type.map(|seed| NodeId(seed.0 - range.start)))
    };
    PartitionNodes { owned: owned_of_types(graph, owned), seeds: (0..positions.types()).map(of_type).collect() }
}

/// The partitions of `assignment` that the worker serves, and the seeds of all partitions.
fn owned_and_seeds(
    graph: &Graph,
    options: &LoaderOptions,
    assignment: &Assignment,
    seeds: &Seeds,
) -> Result<(Vec<Owned>, Vec<PartSeeds>)> {
    let nodes = match seeds {
        Seeds::All | Seeds::List(_) => None,
        Seeds::Nodes(nodes) | Seeds::OfHost { nodes, .. } => Some(nodes.clone()),
        Seeds::Split(name) => Some(Arc::new(split(graph, name)?)),
    };
    let of_others = match seeds {
        Seeds::OfHost { of_partitions, .. } => Some(of_partitions),
        _ => None,
    };
    let (mut owned, mut of_parts) = (Vec::new(), Vec::new());
    let count = assignment.partitions() as usize;
    for partition in (0..assignment.partitions()).map(PartitionId) {
        let part = Owned::of_graph(assignment, graph, partition);
        if options.share.serves(partition, count, options.concurrent(count)) {
            let listed = seeds.of_partition(&part, nodes.as_deref());
            of_parts.push(PartSeeds::Served(Arc::new(listed)));
            owned.push(part);
        } else {
            of_parts.push(PartSeeds::Elsewhere(match (of_others, &nodes) {
                (Some(of_others), _) => of_others[partition.0 as usize],
                (None, Some(nodes)) => part.seed_count(nodes),
                (None, None) => seeds.of_partition(&part, None).len(),
            }));
        }
    }
    // A list without nodes is no mistake: its epochs have no batches.
    let may_be_empty = matches!(seeds, Seeds::List(list) if list.is_empty());
    if !may_be_empty && of_parts.iter().all(PartSeeds::is_empty) {
        return Err(Error::conflict(
            "there are no seeds: the split is empty, or none of its nodes is in a chunk of the store",
            "name another split, or the nodes",
        ));
    }
    Ok((owned, of_parts))
}

/// The positions of the nodes of a split, which may have nodes of several types.
fn split(graph: &Graph, name: &str) -> Result<RoaringTreemap> {
    let mut all: Option<RoaringTreemap> = None;
    for (node_type, store) in graph.node_types().iter().enumerate() {
        let Some(nodes) = store.split(name)? else { continue };
        match graph.positions().range(node_type).start {
            0 => all = Some(nodes),
            start => all.get_or_insert_default().extend(nodes.iter().map(|node| start + node)),
        }
    }
    all.ok_or_else(|| {
        let place = graph.node_types()[0].path();
        Error::missing(format!("split `{name}`"), place, "sample from all nodes, or name the nodes")
    })
}

/// The seeds of a partition, as far as this worker needs them.
enum PartSeeds {
    /// This worker serves it.
    Served(Arc<SeedNodes>),
    /// Another worker does. The number of its seeds.
    Elsewhere(u64),
}

impl PartSeeds {
    fn listed(&self) -> Option<&SeedNodes> {
        match self {
            Self::Served(seeds) => Some(seeds),
            Self::Elsewhere(_) => None,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Served(seeds) => seeds.is_empty(),
            Self::Elsewhere(seeds) => *seeds == 0,
        }
    }
}
