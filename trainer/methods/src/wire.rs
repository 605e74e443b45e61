//! The way of states and their gradients between the partitions of several processes.
//!
//! It is an all-to-all of c10d's send and receive, as for gradients ([`ProcessGroup::all_to_all_values`]), and not Gloo's `alltoallv`: that one
//! cannot be abandoned when a rank has left, and posts sends before receives. Both sides know which values travel, so a message has values
//! and nothing else. Values for a partition of the same process do not leave it.

use std::sync::Arc;

use tch::{Device, Tensor};

use super::boundary::{Boundary, Channel};
use grappa_trainer::{Result, distributed::ProcessGroup};

/// Connects the partitions of several processes.
pub(crate) struct Wire {
    group: Arc<ProcessGroup>,
    /// The process of each partition.
    ranks: Vec<u32>,
}

impl Wire {
    pub(crate) fn new(group: Arc<ProcessGroup>, ranks: Vec<u32>) -> Self {
        Self { group, ranks }
    }

    /// Sends values of the states in [`Boundary::rows`], and returns those that arrive, for [`Boundary::arriving`]. `count` is the number of
    /// values of a channel. All processes must call it.
    pub(super) fn states(
        &self,
        values: &Tensor,
        boundary: &Boundary,
        count: impl Fn(&Channel) -> u64,
    ) -> Result<Tensor> {
        let (sent, arriving) = self.counts(boundary, count);
        self.pass(values, &sent, &arriving)
    }

    /// Sends values of the gradients of arrived states back, and returns those that arrive, for [`Boundary::rows`].
    pub(super) fn gradients(
        &self,
        values: &Tensor,
        boundary: &Boundary,
        count: impl Fn(&Channel) -> u64,
    ) -> Result<Tensor> {
        let (sent, arriving) = self.counts(boundary, count);
        self.pass(values, &arriving, &sent)
    }

    /// The numbers of values of states that go to each process, and that come from each.
    fn counts(&self, boundary: &Boundary, count: impl Fn(&Channel) -> u64) -> (Vec<i64>, Vec<i64>) {
        let none = vec![0; self.group.place().ranks as usize];
        let (mut sent, mut arriving) = (none.clone(), none);
        for channel in &boundary.channels {
            sent[self.ranks[channel.to as usize] as usize] += count(channel) as i64;
        }
        for channel in &boundary.arriving_channels {
            arriving[self.ranks[channel.from as usize] as usize] += count(channel) as i64;
        }
        (sent, arriving)
    }

    fn pass(&self, values: &Tensor, sent: &[i64], received: &[i64]) -> Result<Tensor> {
        let input = values.reshape([-1]).to_device(Device::Cpu).contiguous();
        let arrived = self.group.all_to_all_values(&input, sent, received)?;
        Ok(arrived.to_device(values.device()))
    }
}
