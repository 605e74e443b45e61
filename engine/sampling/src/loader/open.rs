//! Opens the views of partitions.

use std::{mem, sync::Arc};

use grappa_formats::{PartitionId, assignment::Assignment, random};
use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
};
use grappa_storage::{MappedChunks, Store};
use roaring::RoaringTreemap;

use super::{Loader, LoaderOptions, Seeds};
use crate::{
    feed::{Part, Seeded},
    halo_neighbors::HaloNeighbors,
    partition::{Owned, SeedNodes},
    policy::{HALO_LISTS_SHARE, lists_fit, lists_in_turn_max},
    view::{Halo, HaloLists, PartitionView, TurnPlace, Turns, ViewKind, ViewOptions, ViewSource},
};

/// Bytes of the stored features of all nodes; 0 if features are computed or not loaded.
pub(super) fn feature_bytes(store: &Store, options: &LoaderOptions) -> u64 {
    match store.manifest().stored_features() {
        Some(spec) if options.features => store.feature_nodes().saturating_mul(u64::from(spec.row_stride)),
        _ => 0,
    }
}

impl Loader {
    /// Samples in-neighbors of the halo nodes of the open partitions that this worker serves, as [`Halo::Neighbors`] does. `generation`
    /// is that of the assignment. None if minibatches expand no halo nodes.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or `progress` asks to stop.
    pub fn sample_halo_neighbors(&self, generation: u64, progress: &dyn Progress) -> Result<Option<HaloLists>> {
        if self.options.sampler.edges_from_seeds() == 1 {
            // Only seeds are expanded.
            return Ok(None);
        }
        let partitions = self.served().map(|part| (part.view.owned(), &*part.seeds));
        let lists = self.draw_halo_lists(generation, &partitions.collect::<Vec<_>>(), progress)?;
        Ok(Some(lists))
    }

    /// Gives the halo nodes of the open partitions the lists that [`Loader::sample_halo_neighbors`] made. To be called before the first
    /// batch of these partitions.
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

    /// The number of partitions that take part in a step, of `partitions`.
    pub(super) fn concurrent(&self, partitions: usize) -> usize {
        self.options.concurrent.unwrap_or(partitions).max(1)
    }

    /// The views that are open all the time.
    pub(super) fn open_views(&self) -> impl Iterator<Item = &PartitionView> {
        self.served().filter_map(|part| match &part.view {
            ViewSource::Open(view) => Some(&**view),
            ViewSource::InTurn(..) => None,
        })
    }

    /// Opens the views of the partitions of `assignment` that this worker serves, with their seeds.
    pub(super) fn views(
        &mut self,
        assignment: &Assignment,
        seeds: &Seeds,
        progress: &dyn Progress,
    ) -> Result<Vec<Part>> {
        let split = match seeds {
            Seeds::All | Seeds::List(_) => None,
            Seeds::Nodes(nodes) | Seeds::OfHost { nodes, .. } => Some(nodes.clone()),
            Seeds::Split(name) => Some(Arc::new(self.split(name)?)),
        };
        let of_others = match seeds {
            Seeds::OfHost { of_partitions, .. } => Some(of_partitions),
            _ => None,
        };
        let (mut owned, mut of_parts) = (Vec::new(), Vec::new());
        let count = assignment.partitions() as usize;
        for partition in (0..assignment.partitions()).map(PartitionId) {
            let of = Owned::of(assignment, &self.store, partition);
            if self.options.share.serves(partition, count, self.concurrent(count)) {
                let listed = seeds.of_partition(&of, split.as_deref());
                of_parts.push(PartSeeds::Served(Arc::new(listed)));
                owned.push(of);
            } else {
                of_parts.push(PartSeeds::Elsewhere(match (of_others, &split) {
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
        if self.options.halo == Halo::Neighbors && count > 1 {
            let partitions: Vec<_> = owned
                .iter()
                .zip(of_parts.iter().filter_map(PartSeeds::listed))
                .collect();
            let lists = self.draw_halo_lists(assignment.generation(), &partitions, progress)?;
            self.halo_lists = Some(Arc::new(lists));
        }
        self.open_as(owned, of_parts, self.options.view, progress)
    }

    /// Opens the views of the partitions that this worker serves, which own `owned`. `seeds` are those of all partitions.
    fn open_as(
        &self,
        owned: Vec<Owned>,
        seeds: Vec<PartSeeds>,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<Part>> {
        let mut views = self.views_of(owned, seeds.len(), kind, progress)?.into_iter();
        let part = |seeds| match seeds {
            PartSeeds::Elsewhere(seeds) => Part::Elsewhere { seeds },
            PartSeeds::Served(seeds) => Part::Served(Seeded {
                view: views.next().expect("each partition that is served has a view"),
                seeds,
            }),
        };
        Ok(seeds.into_iter().map(part).collect())
    }

    /// Opens the views of some of `count` partitions.
    fn views_of(
        &self,
        owned: Vec<Owned>,
        count: usize,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<ViewSource>> {
        let options = self.view_options(kind);
        let groups = groups(&owned, count, self.concurrent(count));
        if !self.is_in_turn(&groups, &options)? {
            let views = PartitionView::open_all(&self.store, owned, self.feature_bytes(), &options, progress)?;
            return Ok(views.into_iter().map(ViewSource::Open).collect());
        }
        let places = groups.iter().enumerate().flat_map(|(group, partitions)| {
            let indices = 0..partitions.len();
            indices.map(move |index| TurnPlace { group, index })
        });
        let places: Vec<TurnPlace> = places.collect();
        let turns = Arc::new(Turns::new(&self.store, groups, options));
        let view = |place| ViewSource::InTurn(turns.clone(), place);
        Ok(places.into_iter().map(view).collect())
    }

    /// Whether the views of groups of partitions are in memory in turn.
    fn is_in_turn(&self, groups: &[Vec<Owned>], options: &ViewOptions) -> Result<bool> {
        if groups.len() == 1 || !matches!(options.kind, ViewKind::Auto | ViewKind::InTurn) {
            return Ok(false);
        }
        let bytes = |owned| PartitionView::bytes_in_memory(&self.store, owned, options.halo, options.edge_weights);
        let all: u64 = groups.iter().flatten().map(bytes).sum();
        let in_turn = Turns::bytes_of(&self.store, groups, options);
        match options.kind {
            ViewKind::Auto => {
                let features = self.feature_bytes();
                let all_fit = lists_fit(all, features, options.memory);
                Ok(!all_fit && in_turn <= lists_in_turn_max(options.memory, features))
            }
            _ if in_turn > options.memory => Err(Error::Budget {
                what: "the adjacency lists of the partitions of a step and of the next ones".into(),
                given: options.memory,
                least: in_turn,
                remedy: "raise --memory, or use more partitions",
            }),
            _ => Ok(true),
        }
    }

    fn draw_halo_lists(
        &self,
        generation: u64,
        partitions: &[(&Owned, &SeedNodes)],
        progress: &dyn Progress,
    ) -> Result<HaloLists> {
        if self.options.sampler.needs_edge_weights() {
            return Err(Error::conflict(
                "sampled in-neighbors of halo nodes have no edge weights",
                "choose another halo mode, or sample uniformly",
            ));
        }
        let chunks = MappedChunks::open(&self.store)?;
        let neighbors = HaloNeighbors {
            chunks: &chunks,
            per_node: self.options.halo_neighbors,
            hops: self.options.sampler.edges_from_seeds(),
            seed: random::combine(random::hash(self.options.seed), generation),
            memory: self.options.memory / HALO_LISTS_SHARE,
            threads: self.options.threads,
        };
        let whole = |least: u64| least.saturating_mul(HALO_LISTS_SHARE);
        neighbors
            .draw(partitions, progress)
            .map_err(Error::in_budget(self.options.memory, whole))
    }

    fn split(&self, name: &str) -> Result<RoaringTreemap> {
        self.store.split(name)?.ok_or_else(|| {
            Error::missing(
                format!("split `{name}`"),
                self.store.path(),
                "sample from all nodes, or name the nodes",
            )
        })
    }

    pub(super) fn view_options(&self, kind: ViewKind) -> ViewOptions {
        let halo_bytes = self.halo_lists.as_ref().map_or(0, |lists| lists.bytes());
        ViewOptions {
            halo: self.options.halo,
            halo_lists: self.halo_lists.clone(),
            edge_weights: self.options.sampler.needs_edge_weights(),
            kind,
            memory: self.options.memory.saturating_sub(halo_bytes),
            threads: self.options.threads,
            engine: self.options.read_engine,
        }
    }

    /// Whether adjacency lists are in memory, and the options allow to map them.
    pub(super) fn may_map(&self) -> bool {
        let is_mapped = |part: &Seeded| part.view.kind() == ViewKind::Mapped;
        self.options.view == ViewKind::Auto && !self.served().all(is_mapped)
    }

    /// Maps the adjacency lists instead of holding them in memory. The seeds stay the same.
    pub(super) fn map_views(&mut self) -> Result<()> {
        let mut owned = Vec::new();
        let mut seeds_of = |part| match part {
            Part::Elsewhere { seeds } => PartSeeds::Elsewhere(seeds),
            Part::Served(part) => {
                owned.push(part.view.owned().clone());
                PartSeeds::Served(part.seeds)
            }
        };
        // Frees the views in memory before it opens others.
        let seeds = mem::take(&mut self.parts).into_iter().map(&mut seeds_of).collect();
        self.parts = self.open_as(owned, seeds, ViewKind::Mapped, &Silent)?;
        Ok(())
    }
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

/// The groups of `concurrent` partitions, each with those of its partitions that are among `owned`. There are `count` partitions in all.
pub(super) fn groups<'a>(
    owned: impl IntoIterator<Item = &'a Owned>,
    count: usize,
    concurrent: usize,
) -> Vec<Vec<Owned>> {
    let mut groups = vec![Vec::new(); count.div_ceil(concurrent)];
    for partition in owned {
        groups[partition.partition().0 as usize / concurrent].push(partition.clone());
    }
    groups
}
