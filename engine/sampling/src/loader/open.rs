//! The partitions that are open: their views, and the sampled in-neighbors of their halo nodes.

use std::{mem, sync::Arc};

use grappa_formats::{PartitionId, assignment::Assignment, random};
use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
};
use grappa_storage::{MappedChunks, Store};
use roaring::RoaringTreemap;

use super::options::{LoaderOptions, Seeds};
use crate::{
    feed::{Part, Seeded},
    halo_neighbors::HaloNeighbors,
    links::Positives,
    partition::{Owned, SeedNodes, groups},
    placement::{ListSizes, ListsBudget},
    policy::LISTS_SHARE,
    view::{
        EdgeFeatures, Halo, HaloLists, MappedMemory, PartitionView, TurnPlace, Turns, ViewKind, ViewOptions, ViewSource,
    },
};

/// The open partitions of a loader, as far as its worker serves them.
#[derive(Debug, Default)]
pub(super) struct OpenPartitions {
    pub parts: Vec<Part>,
    /// The sampled in-neighbors of halo nodes, if they have any.
    pub halo_lists: Option<Arc<HaloLists>>,
    /// The memory of all mapped files.
    mapped: Arc<MappedMemory>,
    /// The features of edges, if batches have them.
    pub edge_features: Option<Arc<EdgeFeatures>>,
}

impl OpenPartitions {
    /// Opens the views of the partitions of `assignment` that the worker serves, with their seeds.
    pub fn open(
        store: &Arc<Store>,
        options: &LoaderOptions,
        assignment: &Assignment,
        seeds: &Seeds,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (owned, seeds) = owned_and_seeds(store, options, assignment, seeds)?;
        let mut open = Self::default();
        if options.edge_features {
            let edges = EdgeFeatures::open(store, options.edge_feature_bytes(store), &open.mapped)?;
            open.edge_features = Some(Arc::new(edges));
        }
        if options.halo == Halo::Neighbors && seeds.len() > 1 {
            let partitions: Vec<_> = owned.iter().zip(seeds.iter().filter_map(PartSeeds::listed)).collect();
            let lists = draw_halo_lists(store, options, assignment.generation(), &partitions, progress)?;
            open.halo_lists = Some(Arc::new(lists));
        }
        open.open_parts(store, options, owned, seeds, options.view, progress)?;
        Ok(open)
    }

    /// The open partitions that the worker serves.
    pub fn served(&self) -> impl Iterator<Item = &Seeded> {
        self.parts.iter().filter_map(Part::served)
    }

    /// See [`Loader::sample_halo_neighbors`](super::Loader::sample_halo_neighbors).
    pub fn sample_halo_neighbors(
        &self,
        store: &Store,
        options: &LoaderOptions,
        generation: u64,
        progress: &dyn Progress,
    ) -> Result<Option<HaloLists>> {
        if options.minibatches.sampler.edges_from_seeds() == 1 && options.minibatches.links.is_none() {
            // Only seeds are expanded, and the partition owns them.
            return Ok(None);
        }
        let partitions = self.served().map(|part| (part.view.owned(), &*part.seeds));
        let partitions: Vec<_> = partitions.collect();
        draw_halo_lists(store, options, generation, &partitions, progress).map(Some)
    }

    /// See [`Loader::set_halo_lists`](super::Loader::set_halo_lists).
    pub fn set_halo_lists(&mut self, lists: HaloLists) {
        let lists = Arc::new(lists);
        for part in &mut self.parts {
            let Part::Served(part) = part else { continue };
            match &mut part.view {
                ViewSource::Open(view) => {
                    let view = Arc::get_mut(view).expect("no batch has the view yet");
                    view.set_halo_lists(lists.clone());
                }
                ViewSource::InTurn(turns, _) => turns.set_halo_lists(lists.clone()),
            }
        }
        self.halo_lists = Some(lists);
    }

    /// Whether adjacency lists are in memory, and the options allow to map them.
    pub fn may_map(&self, options: &LoaderOptions) -> bool {
        options.view == ViewKind::Auto && self.served().any(|part| part.view.kind() != ViewKind::Mapped)
    }

    /// Maps the adjacency lists instead of holding them in memory. The seeds stay the same.
    pub fn map(&mut self, store: &Arc<Store>, options: &LoaderOptions) -> Result<()> {
        let (mut owned, mut seeds, mut positives) = (Vec::new(), Vec::new(), Vec::new());
        // Frees the views in memory before it opens others.
        for part in mem::take(&mut self.parts) {
            seeds.push(match part {
                Part::Elsewhere { seeds } => PartSeeds::Elsewhere(seeds),
                Part::Served(part) => {
                    owned.push(part.view.owned().clone());
                    positives.push(part.positives);
                    PartSeeds::Served(part.seeds)
                }
            });
        }
        self.open_parts(store, options, owned, seeds, ViewKind::Mapped, &Silent)?;
        let served = self.parts.iter_mut().filter_map(Part::served_mut);
        served.zip(positives).for_each(|(part, of_part)| part.positives = of_part);
        Ok(())
    }

    /// See [`Loader::set_positives`](super::Loader::set_positives).
    pub fn set_positives(&mut self, positives: Vec<Arc<Positives>>, of_all: &[u64]) {
        assert_eq!(self.parts.len(), of_all.len(), "a number for each partition");
        let mut positives = positives.into_iter();
        for (part, &count) in self.parts.iter_mut().zip(of_all) {
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

    /// Opens views in memory or mapped.
    pub fn open_views(
        &self,
        store: &Store,
        options: &LoaderOptions,
        owned: Vec<Owned>,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<Arc<PartitionView>>> {
        let budget = self.budget(store, options);
        let view_options = ViewOptions {
            mapped_bytes_max: (kind == ViewKind::Mapped).then(|| budget.share()),
            ..self.view_options(options)
        };
        let views = PartitionView::open_all(store, owned, &view_options, &self.mapped, None, progress)?;
        if views.iter().map(|view| view.mapped_bytes()).sum::<u64>() <= budget.read_ahead_max() {
            views.iter().for_each(|view| view.read_ahead());
        }
        Ok(views)
    }

    /// Bytes of the mapped files of adjacency lists that are open all the time.
    pub fn mapped_bytes(&self) -> u64 {
        self.opened().map(PartitionView::mapped_bytes).sum()
    }

    /// Bytes of memory that the adjacency lists of the partitions take at most, the lists of halo nodes, and the features of edges.
    pub fn bytes(&self) -> u64 {
        let views = match self.turns() {
            Some(turns) => turns.bytes(),
            None => self.opened().map(PartitionView::bytes).sum(),
        };
        let edge_features = self.edge_features.as_ref().map_or(0, |edges| edges.bytes());
        views + self.halo_list_bytes() + edge_features
    }

    /// The views that are in memory in turn, if they are.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        match &self.served().next()?.view {
            ViewSource::InTurn(turns, _) => Some(turns),
            ViewSource::Open(_) => None,
        }
    }

    /// The views that are open all the time.
    fn opened(&self) -> impl Iterator<Item = &PartitionView> {
        self.served().filter_map(|part| match &part.view {
            ViewSource::Open(view) => Some(&**view),
            ViewSource::InTurn(..) => None,
        })
    }

    fn halo_list_bytes(&self) -> u64 {
        self.halo_lists.as_ref().map_or(0, |lists| lists.bytes())
    }

    /// The memory that views share with features.
    fn budget(&self, store: &Store, options: &LoaderOptions) -> ListsBudget {
        options.lists_budget(store).beside(self.halo_list_bytes())
    }

    fn view_options(&self, options: &LoaderOptions) -> ViewOptions {
        ViewOptions {
            halo: options.halo,
            halo_lists: self.halo_lists.clone(),
            edge_data: options.minibatches.sampler.edge_data(),
            mapped_bytes_max: None,
            threads: options.threads,
            engine: options.read_engine,
        }
    }

    /// Opens the views of the partitions that the worker serves, which own `owned`. `seeds` has the seeds of all
    /// partitions.
    fn open_parts(
        &mut self,
        store: &Arc<Store>,
        options: &LoaderOptions,
        owned: Vec<Owned>,
        seeds: Vec<PartSeeds>,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<()> {
        let views = self.view_sources(store, options, owned, seeds.len(), kind, progress)?;
        let mut views = views.into_iter();
        let parts = seeds.into_iter().map(|seeds| match seeds {
            PartSeeds::Elsewhere(seeds) => Part::Elsewhere { seeds },
            PartSeeds::Served(seeds) => Part::Served(Seeded {
                view: views.next().expect("each partition that is served has a view"),
                seeds,
                positives: None,
            }),
        });
        self.parts = parts.collect();
        Ok(())
    }

    /// The views of some of `count` partitions, where the budget has room for them.
    fn view_sources(
        &self,
        store: &Arc<Store>,
        options: &LoaderOptions,
        owned: Vec<Owned>,
        count: usize,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<ViewSource>> {
        let groups = groups(&owned, count, options.concurrent(count));
        let bytes: &dyn Fn(&Owned) -> u64 = &|owned| {
            PartitionView::bytes_in_memory(store, owned, options.halo, options.minibatches.sampler.edge_data())
        };
        let sizes = ListSizes {
            all: owned.iter().map(bytes).sum(),
            two_groups: (groups.len() > 1).then(|| Turns::bytes_of(&groups, bytes)),
        };
        let place = self.budget(store, options).place(kind, sizes)?;
        if place != ViewKind::InTurn {
            let views = self.open_views(store, options, owned, place, progress)?;
            return Ok(views.into_iter().map(ViewSource::Open).collect());
        }
        let places: Vec<TurnPlace> = (0..)
            .zip(&groups)
            .flat_map(|(group, partitions)| (0..partitions.len()).map(move |index| TurnPlace { group, index }))
            .collect();
        let turns = Arc::new(Turns::new(store, groups, self.view_options(options)));
        let in_turn = places.into_iter().map(|place| ViewSource::InTurn(turns.clone(), place));
        Ok(in_turn.collect())
    }
}

/// The partitions of `assignment` that the worker serves, and the seeds of all partitions.
fn owned_and_seeds(
    store: &Store,
    options: &LoaderOptions,
    assignment: &Assignment,
    seeds: &Seeds,
) -> Result<(Vec<Owned>, Vec<PartSeeds>)> {
    let nodes = match seeds {
        Seeds::All | Seeds::List(_) => None,
        Seeds::Nodes(nodes) | Seeds::OfHost { nodes, .. } => Some(nodes.clone()),
        Seeds::Split(name) => Some(Arc::new(split(store, name)?)),
    };
    let of_others = match seeds {
        Seeds::OfHost { of_partitions, .. } => Some(of_partitions),
        _ => None,
    };
    let (mut owned, mut of_parts) = (Vec::new(), Vec::new());
    let count = assignment.partitions() as usize;
    for partition in (0..assignment.partitions()).map(PartitionId) {
        let of = Owned::of(assignment, store, partition);
        if options.share.serves(partition, count, options.concurrent(count)) {
            let listed = seeds.of_partition(&of, nodes.as_deref());
            of_parts.push(PartSeeds::Served(Arc::new(listed)));
            owned.push(of);
        } else {
            of_parts.push(PartSeeds::Elsewhere(match (of_others, &nodes) {
                (Some(of_others), _) => of_others[partition.0 as usize],
                (None, Some(nodes)) => of.seed_count(nodes),
                (None, None) => seeds.of_partition(&of, None).len(),
            }));
        }
    }
    if of_parts.iter().all(PartSeeds::is_empty) {
        return Err(Error::conflict(
            "there are no seeds: the split is empty, or none of its nodes is in a chunk of the store",
            "name another split, or the nodes",
        ));
    }
    Ok((owned, of_parts))
}

fn split(store: &Store, name: &str) -> Result<RoaringTreemap> {
    store.split(name)?.ok_or_else(|| {
        Error::missing(format!("split `{name}`"), store.path(), "sample from all nodes, or name the nodes")
    })
}

fn draw_halo_lists(
    store: &Store,
    options: &LoaderOptions,
    generation: u64,
    partitions: &[(&Owned, &SeedNodes)],
    progress: &dyn Progress,
) -> Result<HaloLists> {
    if options.minibatches.sampler.draws_by_weight() {
        return Err(Error::conflict(
            "in-neighbors of halo nodes are sampled uniformly, and then not drawn by edge weight",
            "choose another halo mode, or sample uniformly",
        ));
    }
    let chunks = MappedChunks::open(store)?;
    // The ends of links are owned nodes and their in-neighbors.
    let ends: Vec<(&Owned, SeedNodes)> = match options.minibatches.links {
        Some(_) => partitions.iter().map(|&(owned, _)| (owned, owned.all_nodes())).collect(),
        None => Vec::new(),
    };
    let ends: Vec<(&Owned, &SeedNodes)> = ends.iter().map(|(owned, nodes)| (*owned, nodes)).collect();
    let (partitions, beyond) = if ends.is_empty() { (partitions, 0) } else { (&ends[..], 1) };
    let neighbors = HaloNeighbors {
        chunks: &chunks,
        edge_data: options.minibatches.sampler.edge_data(),
        first_edges: &store.first_edges(),
        per_node: options.halo_neighbors,
        hops: options.minibatches.sampler.edges_from_seeds() + beyond,
        seed: random::combine(random::hash(options.minibatches.seed), generation),
        memory: options.lists_budget(store).share(),
        threads: options.threads,
    };
    let lists = neighbors.draw(partitions, progress);
    lists.map_err(Error::in_budget(options.memory, |least: u64| least.saturating_mul(LISTS_SHARE)))
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
