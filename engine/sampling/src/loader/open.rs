//! Opens the views of partitions.

use std::{mem, sync::Arc};

use grappa_formats::{assignment::Assignment, manifest::FeatureSource, random};
use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
};
use grappa_storage::{MappedChunks, Store};
use roaring::RoaringTreemap;

use super::{Loader, LoaderOptions, Seeds};
use crate::{
    feed::Seeded,
    halo_neighbours::HaloNeighbours,
    partition::{Owned, SeedNodes},
    view::{Halo, HaloLists, PartitionView, Turns, ViewKind, ViewOptions, ViewSource, fits},
};

/// The sampled in-neighbours of halo nodes may take 1/LISTS_SHARE of the memory.
pub(super) const LISTS_SHARE: u64 = 4;

/// With [`ViewKind::Auto`], views that are in memory in turn may take these bytes of it: the rest is for feature rows.
pub fn adjacency_bytes_max(memory: u64, feature_bytes: u64) -> u64 {
    match feature_bytes {
        0 => memory / 8 * 7,
        _ => memory / 2,
    }
}

/// Bytes of the stored features of all nodes; 0 if features are computed or not loaded.
pub(super) fn feature_bytes(store: &Store, options: &LoaderOptions) -> u64 {
    match &store.manifest().features {
        Some(spec) if options.features && spec.source == FeatureSource::Stored => {
            store.present_nodes().saturating_mul(u64::from(spec.row_stride))
        }
        _ => 0,
    }
}

impl Loader {
    /// Gives the halo nodes of the open partitions sampled in-neighbours, as [`Halo::Neighbours`] does. `generation` is that of the
    /// assignment. To be called before the first batch of these partitions.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or `progress` asks to stop.
    pub fn sample_halo_neighbours(&mut self, generation: u64, progress: &dyn Progress) -> Result<()> {
        if self.options.sampler.edges_from_seeds() == 1 {
            // Only seeds are expanded.
            return Ok(());
        }
        let partitions: Vec<_> = self
            .parts
            .iter()
            .map(|part| (part.view.owned(), &*part.seeds))
            .collect();
        let lists = Arc::new(self.draw_halo_lists(generation, &partitions, progress)?);
        for part in &mut self.parts {
            match &mut part.view {
                ViewSource::Open(view) => {
                    let view = Arc::get_mut(view).expect("no batch has the view yet");
                    view.set_halo_lists(lists.clone());
                }
                ViewSource::InTurn(turns, _) => turns.set_halo_lists(lists.clone()),
            }
        }
        self.halo_lists = Some(lists);
        Ok(())
    }

    /// The number of partitions that take part in a step, of `partitions`.
    pub(super) fn concurrent(&self, partitions: usize) -> usize {
        self.options.concurrent.unwrap_or(partitions).max(1)
    }

    /// The views that are open all the time.
    pub(super) fn open_views(&self) -> impl Iterator<Item = &PartitionView> {
        self.parts.iter().filter_map(|part| match &part.view {
            ViewSource::Open(view) => Some(&**view),
            ViewSource::InTurn(..) => None,
        })
    }

    /// Opens the views of all partitions of `assignment`, with their seeds.
    pub(super) fn views(
        &mut self,
        assignment: &Assignment,
        seeds: &Seeds,
        progress: &dyn Progress,
    ) -> Result<Vec<Seeded>> {
        let split = match seeds {
            Seeds::All => None,
            Seeds::Nodes(nodes) => Some(nodes.clone()),
            Seeds::Split(name) => Some(Arc::new(self.split(name)?)),
        };
        let owned = Owned::all(assignment, &self.store);
        let seeds_of = |owned: &Owned| -> SeedNodes {
            match &split {
                None => owned.all_seeds(),
                Some(nodes) => owned.seeds(nodes),
            }
        };
        let seeds: Vec<SeedNodes> = owned.iter().map(seeds_of).collect();
        if seeds.iter().all(SeedNodes::is_empty) {
            return Err(Error::conflict(
                "there are no seeds: the split is empty, or none of its nodes is in a chunk of the store",
                "name another split, or the nodes",
            ));
        }
        if self.options.halo == Halo::Neighbours && owned.len() > 1 {
            let partitions: Vec<_> = owned.iter().zip(&seeds).collect();
            let lists = self.draw_halo_lists(assignment.generation(), &partitions, progress)?;
            self.halo_lists = Some(Arc::new(lists));
        }
        let seeds = seeds.into_iter().map(Arc::new).collect();
        self.open_as(owned, seeds, self.options.view, progress)
    }

    fn open_as(
        &self,
        owned: Vec<Owned>,
        seeds: Vec<Arc<SeedNodes>>,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<Seeded>> {
        let options = self.view_options(kind);
        let views: Vec<ViewSource> = if self.is_in_turn(&owned, &options)? {
            let concurrent = self.concurrent(owned.len());
            let count = owned.len();
            let turns = Arc::new(Turns::new(&self.store, owned, concurrent, options));
            (0..count)
                .map(|partition| ViewSource::InTurn(turns.clone(), partition))
                .collect()
        } else {
            let views = PartitionView::open_all(&self.store, owned, self.feature_bytes(), &options, progress)?;
            views.into_iter().map(ViewSource::Open).collect()
        };
        let parts = views.into_iter().zip(seeds);
        Ok(parts.map(|(view, seeds)| Seeded { view, seeds }).collect())
    }

    /// Whether views are in memory in turn.
    fn is_in_turn(&self, owned: &[Owned], options: &ViewOptions) -> Result<bool> {
        let concurrent = self.concurrent(owned.len());
        if concurrent >= owned.len() || !matches!(options.kind, ViewKind::Auto | ViewKind::InTurn) {
            return Ok(false);
        }
        let bytes = |owned| PartitionView::bytes_in_memory(&self.store, owned, options.halo, options.edge_weights);
        let all: u64 = owned.iter().map(bytes).sum();
        let in_turn = Turns::bytes_of(&self.store, owned, concurrent, options);
        match options.kind {
            ViewKind::Auto => {
                let features = self.feature_bytes();
                let all_fit = fits(all, features, options.memory);
                Ok(!all_fit && in_turn <= adjacency_bytes_max(options.memory, features))
            }
            _ if in_turn > options.memory => Err(Error::Budget {
                what: "the adjacency lists of the partitions of a step and of the next ones".into(),
                given: options.memory,
                least: in_turn,
                remedy: "or use more partitions",
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
        let neighbours = HaloNeighbours {
            chunks: &chunks,
            per_node: self.options.halo_neighbours,
            hops: self.options.sampler.edges_from_seeds(),
            seed: random::combine(random::hash(self.options.seed), generation),
            memory: self.options.memory / LISTS_SHARE,
            threads: self.options.threads,
        };
        neighbours.draw(partitions, progress)
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
        self.options.view == ViewKind::Auto && !self.parts.iter().all(is_mapped)
    }

    /// Maps the adjacency lists instead of holding them in memory. The seeds stay the same.
    pub(super) fn map_views(&mut self) -> Result<()> {
        let (owned, seeds): (Vec<_>, Vec<_>) = mem::take(&mut self.parts)
            .into_iter()
            .map(|part| (part.view.owned().clone(), part.seeds))
            .unzip();
        self.parts = self.open_as(owned, seeds, ViewKind::Mapped, &Silent)?;
        Ok(())
    }
}
