//! The partitions of a super-epoch.

use grappa_formats::assignment::Assignment;
use grappa_io::progress::Progress;
use grappa_run::{config::HaloMode, folder::ASSIGNMENTS, stages::Stage};
use grappa_sampling::{
    Seeds,
    partition::{self, RepartitionOptions},
};

use super::Trainer;
use crate::{Error, Result};

impl Trainer {
    /// Assigns chunks to the partitions of a super-epoch and opens the views of those that this process serves, unless they are open.
    pub(super) fn open_partitions(&mut self, super_epoch: u64, progress: &dyn Progress) -> Result<()> {
        if self.super_epoch == Some(super_epoch) {
            return Ok(());
        }
        // A single partition is the whole graph in every super-epoch.
        if self.super_epoch.is_some() && self.config.partitions() == 1 {
            self.super_epoch = Some(super_epoch);
            return Ok(());
        }
        let assignment = self.assignment(super_epoch)?;
        // The rows of other halo nodes, which the new views need the memory of.
        (self.historical, self.historical_origin) = (None, None);
        self.epoch_work = None;
        self.repeated = None;
        let seeds = Seeds::OfHost {
            nodes: self.splits.train().clone(),
            of_partitions: self.hosts.seeds(&assignment),
        };
        self.loader.partition(&assignment, &seeds, progress)?;
        let stage = self.clock.enter(Stage::History);
        self.refresh_plan = self.plan_refreshes(progress)?;
        self.expand_halo_nodes(&assignment, progress)?;
        self.halo_bytes += self.bytes_of_halo_lists();
        self.clock.enter(stage);
        self.generation = assignment.generation();
        self.super_epoch = Some(super_epoch);
        Ok(())
    }

    /// With `--halo auto`, gives halo nodes sampled in-neighbors if historical embeddings cannot be used, cost too much, or
    /// cost accuracy.
    fn expand_halo_nodes(&mut self, assignment: &Assignment, progress: &dyn Progress) -> Result<()> {
        let is_left = self.config.halo == HaloMode::Auto && self.config.partitions() > 1 && self.refresh_plan.is_none();
        if !is_left {
            return Ok(());
        }
        let lists = self.loader.sample_halo_neighbors(assignment.generation(), progress);
        // All processes treat halo nodes in the same way.
        match self.agree(lists.map_err(Error::from), progress) {
            Err(error) if error.is_budget() => {
                if self.super_epoch.is_none() {
                    self.warnings.push(format!(
                        "nodes of other partitions have no neighbors, so accuracy can be several points lower: {error}"
                    ));
                }
                Ok(())
            }
            lists => {
                if let Some(lists) = lists? {
                    self.loader.set_halo_lists(lists);
                    // Minibatches have more edges now.
                    self.epoch_work = None;
                }
                Ok(())
            }
        }
    }

    /// Bytes of the sampled in-neighbors that the partitions of this process got: lists of node ids, and the features of in-neighbors.
    fn bytes_of_halo_lists(&self) -> u64 {
        /// A node id on disk has 40 bits.
        const ID_BYTES: u64 = 5;
        let Some(lists) = self.loader.halo_lists() else {
            return 0;
        };
        let features = self.store.manifest().features.as_ref();
        let row_bytes = features.map_or(0, |features| u64::from(features.row_stride));
        lists.given().listed * ID_BYTES + lists.given().rows * row_bytes
    }

    /// The assignment of a super-epoch, a function of the configuration and the store.
    ///
    /// With more than one partition it is also written to the run's folder, for readers who want to know what each
    /// partition saw. The store is not written to: it may be read-only, and other runs may use it.
    fn assignment(&mut self, super_epoch: u64) -> Result<Assignment> {
        if self.config.partitions() == 1 && self.hosts.count() == 1 {
            return Ok(Assignment::whole(self.store.chunks().chunks()));
        }
        let options = RepartitionOptions {
            partitions: self.config.partitions(),
            schedule: self.config.schedule,
            seed: self.config.seed,
            super_epoch: Some(super_epoch),
        };
        let assignment = self.hosts.assign(&options, self.config.concurrent(), super_epoch + 1)?;
        if !self.is_first() {
            // Rank 0 writes the same.
            return Ok(assignment);
        }
        match partition::keep(&self.folder.join(ASSIGNMENTS), &assignment).map_err(Error::from) {
            Err(error) if error.is_disk_full() => self.warnings.push(format!(
                "the assignment of chunks to partitions was not saved: {error}; training continues"
            )),
            kept => kept?,
        }
        Ok(assignment)
    }
}
