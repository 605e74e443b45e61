//! The exchange of gradients with other ranks, and the residuals that compression leaves.
//!
//! Each rank has its own residual: what it has not sent of its gradients so far. Rank 0 collects them for a checkpoint. When a run stops,
//! connections between ranks may be in the middle of a step, so the others leave theirs in the store.
//!
//! A run that continues with as many ranks gives each its residual. Otherwise rank 0 gets their sum, because only the sum of residuals
//! counts in the end.

use std::{path::Path, sync::Arc};

use grappa_run::{
    checkpoint::{Checkpoint, NamedTensor},
    codecs::top_k,
    config::{Compress, Compression},
};

use tch::Tensor;

use super::{AllReduce, Compressed, Encoded, Exchange, InProcess, LossWeights, Summed, Unsent};
use crate::train::{ranks::Processes, tensors::of_another_model};
use crate::{Result, distributed::ProcessGroup};

/// Under this name a rank leaves its residual for rank 0 when it stops.
const RESIDUAL: &str = "residual";

/// The residuals of the ranks other than 0.
struct CollectedResiduals {
    /// Finished optimizer steps at that time.
    step: u64,
    /// By rank, from rank 1.
    others: Vec<Vec<f32>>,
}

/// The exchange of gradients with other ranks. The residual of this rank is a part of the state of the run.
pub(crate) struct GradientExchange {
    exchange: Box<dyn Exchange>,
    /// The part of its gradients that this rank has not sent so far, if it leaves any.
    residual: Unsent,
    /// On rank 0, the residuals of the other ranks when they were last collected.
    collected: Option<CollectedResiduals>,
}

impl GradientExchange {
    /// An exchange of gradients of `parameters` values.
    pub fn new(group: Option<&Arc<ProcessGroup>>, compression: Compression, parameters: usize) -> Self {
        let Compression { encoding, rate, machines } = compression;
        let exchange: Box<dyn Exchange> = match (group, machines) {
            (None, Some(machines)) => Box::new(Encoded::new(encoding, rate, machines)),
            (None, None) => Box::new(InProcess),
            (Some(group), _) if encoding == Compress::None => Box::new(AllReduce(group.clone())),
            (Some(group), _) => Box::new(Compressed::new(encoding, rate, group.clone())),
        };
        Self { residual: exchange.has_feedback().then(|| vec![0.0; parameters]), exchange, collected: None }
    }

    /// Replaces a gradient by the sum over all ranks ([`Exchange::sum`]).
    pub fn sum(&mut self, gradient: &Tensor, weights: LossWeights, done: f64) -> Result<Summed> {
        self.exchange.sum(gradient, weights, done, &mut self.residual)
    }

    /// On rank 0, collects the residuals of all ranks if a checkpoint is due, which only rank 0 knows. All ranks call it, between two
    /// steps.
    pub fn collect(&mut self, processes: &Processes, step: u64, is_due: bool) -> Result<()> {
        let (Some(group), Some(own)) = (&processes.group, self.residual.as_deref()) else {
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
            self.collected =
                Some(CollectedResiduals { step, others: received[1..].iter().map(|bytes| floats(bytes)).collect() });
        }
        Ok(())
    }

    /// Leaves the residual of this rank for rank 0, which stops too.
    pub fn leave(&self, processes: &Processes, step: u64) {
        if let (Some(group), Some(own)) = (&processes.group, self.residual.as_deref()) {
            let message = [&step.to_le_bytes()[..], bytemuck::cast_slice(own)].concat();
            group.leave_bytes_behind(RESIDUAL, &message);
        }
    }

    /// On rank 0, takes the residuals that the others leave when they stop. False if one of them is missing, or stopped elsewhere.
    pub fn collect_left(&mut self, processes: &Processes, step: u64) -> bool {
        let (Some(group), Some(own)) = (&processes.group, self.residual.as_deref()) else {
            return true;
        };
        if self.collected.as_ref().is_some_and(|collected| collected.step == step) {
            return true;
        }
        if group.failure().is_some() {
            return false;
        }
        let left = group.left_bytes_behind(RESIDUAL).into_iter();
        let others: Option<Vec<Vec<f32>>> = left.map(|left| left_at(&left?, step, size_of_val(own))).collect();
        self.collected = others.map(|others| CollectedResiduals { step, others });
        self.collected.is_some()
    }

    /// The residuals of all ranks for a checkpoint, by rank; empty if there are none.
    ///
    /// # Panics
    /// If the residuals of the other ranks were not collected since the last step.
    pub fn residuals(&self, processes: &Processes, step: u64) -> Vec<NamedTensor> {
        let Some(own) = self.residual.as_deref() else {
            return Vec::new();
        };
        let others: &[Vec<f32>] = match &self.collected {
            Some(collected) if collected.step == step => &collected.others,
            _ => &[],
        };
        assert_eq!(1 + others.len(), processes.count() as usize, "residuals of all ranks");
        let all = std::iter::once(own).chain(others.iter().map(Vec::as_slice));
        all.enumerate()
            .map(|(rank, residual)| NamedTensor::from_f32(rank.to_string(), &[residual.len()], residual))
            .collect()
    }

    /// Gives this rank its residual of `parameters` values in a checkpoint, which was read from `path`.
    pub fn restore(
        &mut self,
        processes: &Processes,
        path: &Path,
        checkpoint: &Checkpoint,
        parameters: usize,
    ) -> Result<()> {
        let residuals = &checkpoint.residuals;
        if residuals.len() == processes.count() as usize {
            let own = residual_of(residuals, processes.rank() as usize, parameters, path)?;
            self.residual = Some(own);
        } else if processes.rank() == 0 && !residuals.is_empty() {
            let mut sum = residual_of(residuals, 0, parameters, path)?;
            for rank in 1..residuals.len() {
                let other = residual_of(residuals, rank, parameters, path)?;
                sum.iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
            }
            self.residual = Some(sum);
        }
        Ok(())
    }
}

/// Warnings about a compression that saves nothing with this number of ranks.
pub(crate) fn warnings(compression: Compression, ranks: u32, parameters: usize) -> Vec<String> {
    let Compression { encoding, rate, machines } = compression;
    let mut warnings = Vec::new();
    if encoding != Compress::None && ranks == 1 && machines.is_none() {
        warnings.push(format!("--compress {encoding} has no effect with one process, which sends no gradients"));
    }
    if encoding == Compress::TopK {
        let whole = AllReduce::sent_bytes(4 * parameters as u64, ranks.into());
        let count = top_k::count(rate.last(), parameters);
        let sent = u64::from(ranks - 1) * top_k::encoded_bytes(count, parameters) as u64;
        if sent > whole {
            warnings.push(format!(
                "with --compress-rate {rate} and {ranks} processes, each sends more than without compression at the end of the run: use \
                 a smaller rate, or --compress int8"
            ));
        }
    }
    warnings
}

/// The residual of a rank in a checkpoint.
fn residual_of(residuals: &[NamedTensor], rank: usize, parameters: usize, path: &Path) -> Result<Vec<f32>> {
    let named = residuals.iter().find(|residual| residual.name == rank.to_string());
    let values = named.and_then(NamedTensor::to_f32);
    values
        .filter(|values| values.len() == parameters)
        .ok_or_else(|| of_another_model(path, format!("there is no residual {rank} of {parameters} values")))
}

/// The residual of `bytes` that a rank left, if it stopped at this step.
fn left_at(left: &[u8], step: u64, bytes: usize) -> Option<Vec<f32>> {
    let (left_step, residual) = left.split_first_chunk()?;
    (u64::from_le_bytes(*left_step) == step && residual.len() == bytes).then(|| floats(residual))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks();
    values.iter().map(|&value| f32::from_le_bytes(value)).collect()
}
