//! The partitions of a super-epoch: their assignment, their views, and the feed of their minibatches.

use std::{num::NonZeroUsize, sync::Arc};

use grappa_formats::{ChunkId, PartitionId, assignment::Assignment};
use grappa_io::progress::Progress;
use grappa_run::{config::HaloMode, folder::ASSIGNMENTS, model::Precision};
use grappa_sampling::{
    feed::{Feed, FeedOptions, OutputDtype, PartitionBatches, Seeded},
    partition::{self, Owned, RepartitionOptions, assign},
    view::{Halo, PartitionView, ViewKind, ViewOptions},
};

use super::Trainer;
use crate::{Error, Result};

impl Trainer {
    /// Assigns chunks to the partitions of a super-epoch and opens their views, unless they are open.
    pub(super) fn open_partitions(&mut self, super_epoch: u64, progress: &dyn Progress) -> Result<()> {
        if self.super_epoch == Some(super_epoch) {
            return Ok(());
        }
        let assignment = self.assignment(super_epoch)?;
        let halo = match self.config.halo {
            HaloMode::Features => Halo::Features,
            HaloMode::Stop | HaloMode::History | HaloMode::Aggregates => Halo::Stop,
            HaloMode::None => Halo::None,
        };
        // Later super-epochs use what the last evaluation left.
        if self.historical.is_none() && self.super_epoch.is_none() {
            self.refresh_historical(progress)?;
        }
        // Frees the views of the last super-epoch before it opens the next.
        self.partitions.clear();
        let owned: Vec<Owned> = (0..assignment.partitions())
            .map(|partition| Owned::of(&assignment, self.store.chunks(), PartitionId(partition)))
            .collect();
        let options = ViewOptions {
            halo,
            weights: false,
            kind: ViewKind::Auto,
            memory: self.config.memory.0,
            threads: self.config.threads(),
            engine: self.config.read_engine.into(),
        };
        let views = PartitionView::open_all(&self.store, owned, self.feature_bytes(), &options)?;
        let seeded = |view: Arc<PartitionView>| Seeded {
            seeds: view.owned().seeds(self.splits.train()).into(),
            view,
        };
        self.partitions = views.into_iter().map(seeded).collect();
        self.generation = assignment.generation();
        self.super_epoch = Some(super_epoch);
        Ok(())
    }

    /// The assignment of a super-epoch, a function of the configuration and the store.
    ///
    /// With more than one partition it is also written to the run's folder, for readers who want to know what each
    /// partition saw. The store is not written to: it may be read-only, and other runs may use it.
    fn assignment(&mut self, super_epoch: u64) -> Result<Assignment> {
        if self.config.partitions == 1 {
            return Ok(Assignment::whole(self.store.chunks().chunks()));
        }
        let options = RepartitionOptions {
            partitions: self.config.partitions,
            schedule: self.config.schedule,
            seed: self.config.seed,
            super_epoch: Some(super_epoch),
        };
        let assignment = assign(self.store.path(), self.store.manifest(), &options, super_epoch + 1)?;
        match partition::keep(&self.folder.join(ASSIGNMENTS), &assignment).map_err(Error::from) {
            Err(error) if error.is_disk_full() => self.warnings.push(format!(
                "the assignment of chunks to partitions was not saved: {error}; training continues"
            )),
            kept => kept?,
        }
        Ok(assignment)
    }

    /// Opens the feed of a super-epoch. It gets the memory that the views leave.
    pub(super) fn open_feed(&self, batches: &Arc<PartitionBatches>) -> Result<Feed> {
        let views: u64 = self.partitions.iter().map(|part| part.view.bytes()).sum();
        let chunks: Vec<ChunkId> = self.store.present_chunks().collect();
        let options = FeedOptions {
            memory_bytes: self.config.memory.0.saturating_sub(views),
            rows_bytes: views,
            mapped_bytes: self.partitions.iter().map(|part| part.view.mapped_bytes()).sum(),
            threads: self.config.threads(),
            lookahead: self.config.lookahead.value().map(NonZeroUsize::get),
            engine: self.config.read_engine.into(),
            aggregates: self.aggregates,
            register: self.loader.memory(),
            output: match self.config.precision {
                Precision::F32 => OutputDtype::F32,
                Precision::Bf16 => OutputDtype::Bf16,
            },
            ..FeedOptions::default()
        };
        Ok(Feed::open(&self.store, &chunks, &**batches, &options)?)
    }
}
