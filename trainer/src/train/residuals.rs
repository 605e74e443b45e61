//! The residuals of compressed gradients, as part of the state of a run.
//!
//! Each rank has its own residual: what it has not sent of its gradients so far. Rank 0 collects them for a checkpoint. When a run stops,
//! connections between ranks may be in the middle of a step, so the others leave theirs in the store.
//!
//! A run that continues with as many ranks gives each its residual. Otherwise rank 0 gets their sum, because only the sum of residuals
//! counts in the end.

use std::path::Path;

use grappa_codecs::top_k;
use grappa_run::{
    checkpoint::{Checkpoint, NamedTensor},
    config::Compress,
};

use super::{Trainer, exchange::AllReduce};
use crate::{Error, Result};

/// Under this name a rank leaves its residual for rank 0 when it stops.
const RESIDUAL: &str = "residual";

/// The residuals of the ranks other than 0.
pub(super) struct CollectedResiduals {
    /// Finished optimizer steps at that time.
    step: u64,
    /// By rank, from rank 1.
    others: Vec<Vec<f32>>,
}

impl Trainer {
    /// Warns about a compression that saves nothing with this number of ranks.
    pub(super) fn warn_about_compression(&mut self, ranks: u32) {
        let compress = self.config.compress;
        if compress != Compress::None && ranks == 1 {
            self.warnings.push(format!(
                "--compress {compress} has no effect with one process, which sends no gradients"
            ));
        }
        if compress == Compress::TopK {
            let parameters = self.model.parameters().count();
            let rate = self.config.compress_rate();
            let whole = AllReduce::sent_bytes(4 * parameters as u64, ranks.into());
            let count = top_k::count(rate.last(), parameters);
            let sent = u64::from(ranks - 1) * top_k::encoded_bytes(count, parameters) as u64;
            if sent > whole {
                self.warnings.push(format!(
                    "with --compress-rate {rate} and {ranks} processes, each sends more than without compression at the end of the run: use \
                     a smaller rate, or --compress int8"
                ));
            }
        }
    }

    /// On rank 0, collects the residuals of all ranks if a checkpoint is due, which only rank 0 knows. All ranks call it, between two steps.
    pub(super) fn collect_residuals(&mut self, is_due: bool) -> Result<()> {
        let (Some(group), Some(own)) = (&self.group, self.exchange.residual()) else {
            return Ok(());
        };
        let place = group.place();
        if !group.share("checkpoint", || Ok(is_due))? {
            return Ok(());
        }
        let bytes: &[u8] = bytemuck::cast_slice(own);
        let (mut messages, mut lengths) = (vec![&[][..]; place.ranks as usize], vec![0; place.ranks as usize]);
        match group.is_first() {
            true => lengths[1..].fill(bytes.len()),
            false => messages[0] = bytes,
        }
        let received = group.all_to_all(&messages, Some(&lengths))?;
        if group.is_first() {
            self.collected = Some(CollectedResiduals {
                step: self.step,
                others: received[1..].iter().map(|bytes| floats(bytes)).collect(),
            });
        }
        Ok(())
    }

    /// Leaves the residual of this rank for rank 0, which stops too.
    pub(super) fn leave_residual(&self) {
        if let (Some(group), Some(own)) = (&self.group, self.exchange.residual()) {
            let message = [&self.step.to_le_bytes()[..], bytemuck::cast_slice(own)].concat();
            group.leave_bytes_behind(RESIDUAL, &message);
        }
    }

    /// On rank 0, takes the residuals that the others leave when they stop. False if one of them is missing, or stopped elsewhere.
    pub(super) fn collect_left_residuals(&mut self) -> bool {
        let (Some(group), Some(own)) = (&self.group, self.exchange.residual()) else {
            return true;
        };
        if self
            .collected
            .as_ref()
            .is_some_and(|collected| collected.step == self.step)
        {
            return true;
        }
        if group.failure().is_some() {
            return false;
        }
        let of_step = |left: Option<Vec<u8>>| {
            let left = left?;
            let (step, bytes) = left.split_first_chunk()?;
            let is_whole = u64::from_le_bytes(*step) == self.step && bytes.len() == size_of_val(own);
            is_whole.then(|| floats(bytes))
        };
        let others: Option<Vec<Vec<f32>>> = group.left_bytes_behind(RESIDUAL).into_iter().map(of_step).collect();
        self.collected = others.map(|others| CollectedResiduals {
            step: self.step,
            others,
        });
        self.collected.is_some()
    }

    /// The residuals of all ranks for a checkpoint, by rank; empty if there are none.
    ///
    /// # Panics
    /// If those of the other ranks were not collected since the last step.
    pub(super) fn residuals(&self) -> Vec<NamedTensor> {
        let Some(own) = self.exchange.residual() else {
            return Vec::new();
        };
        let named =
            |(rank, residual): (usize, &[f32])| NamedTensor::from_f32(rank.to_string(), &[residual.len()], residual);
        let others: &[Vec<f32>] = match &self.collected {
            Some(collected) if collected.step == self.step => &collected.others,
            _ => &[],
        };
        let (_, ranks) = self.rank();
        assert_eq!(1 + others.len(), ranks as usize, "residuals of all ranks");
        let all = std::iter::once(own).chain(others.iter().map(Vec::as_slice));
        all.enumerate().map(named).collect()
    }

    /// Gives this rank its residual of a checkpoint, which was read from `path`.
    pub(super) fn restore_residual(&mut self, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        let (rank, ranks) = self.rank();
        let residuals = &checkpoint.residuals;
        let parameters = self.model.parameters().count();
        let values = |number: usize| {
            let named = residuals.iter().find(|residual| residual.name == number.to_string());
            let values = named
                .and_then(NamedTensor::to_f32)
                .filter(|values| values.len() == parameters);
            values.ok_or_else(|| {
                let what = format!(
                    "there is no residual {number} of {parameters} values: the checkpoint belongs to another model"
                );
                Error::run_file(path, what)
            })
        };
        if residuals.len() == ranks as usize {
            self.exchange.set_residual(values(rank as usize)?);
            return Ok(());
        }
        if rank == 0 && !residuals.is_empty() {
            let mut sum = values(0)?;
            for number in 1..residuals.len() {
                sum.iter_mut()
                    .zip(values(number)?)
                    .for_each(|(sum, value)| *sum += value);
            }
            self.exchange.set_residual(sum);
        }
        Ok(())
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("bytes of a value"));
    bytes.chunks_exact(size_of::<f32>()).map(value).collect()
}
