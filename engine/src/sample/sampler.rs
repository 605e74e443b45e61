//! Samplers.

use grappa_formats::NodeId;

use super::{
    fanouts::Fanouts,
    minibatch::{Block, Minibatch},
    neighbours::{Group, Hop},
    random::BatchKey,
    relabel::{Direct, Hashed, PLACES_MAX, Relabel},
};
use crate::{
    Error, Result,
    view::{
        PartitionView,
        rows::{CsrPlace, Rows, RowsIn},
    },
};

/// The most nodes of a graph for which an entry each is faster than hashing: the table is then 8 MiB, which is among what
/// a core has for itself and its share of what all have together.
const DIRECT_NODES_MAX: u64 = 1 << 21;

/// How neighbours are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampler {
    fanouts: Fanouts,
    replace: bool,
}

impl Sampler {
    /// In-neighbours are drawn uniformly: without replacement, up to a fanout of them; or with replacement, as many as
    /// that, of any that there are. (Where the fanout is -1, all are kept, in either case.)
    pub fn uniform(fanouts: Fanouts, replace: bool) -> Self {
        Self { fanouts, replace }
    }

    /// Number of hops, which is that of a minibatch's blocks.
    pub fn hops(&self) -> usize {
        self.fanouts.hops()
    }

    /// Fills `out` with the minibatch of `seeds`, whatever it held before.
    ///
    /// # Errors
    /// If a seed is not a node that the view owns, or comes twice; or if the minibatch has 2^32 edges in a block, or 2^31
    /// nodes. `out` is then of no use.
    pub fn sample(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        let Scratch { hashed, direct, csr } = scratch;
        if view.nodes() > DIRECT_NODES_MAX {
            return self.sample_with(view, seeds, key, hashed, csr, out);
        }
        let direct = match direct {
            Some(direct) if direct.nodes() == view.nodes() => direct,
            _ => direct.insert(Direct::new(view.nodes())),
        };
        self.sample_with(view, seeds, key, direct, csr, out)
    }

    fn sample_with<L: Relabel>(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        relabel: &mut L,
        csr: &mut Group<CsrPlace>,
        out: &mut Minibatch,
    ) -> Result<()> {
        relabel.begin();
        begin(view, seeds, relabel, self.hops(), out)?;
        match view.rows() {
            RowsIn::Narrow(rows) => self.sample_rows(&rows, key, relabel, csr, out),
            RowsIn::Wide(rows) => self.sample_rows(&rows, key, relabel, csr, out),
        }
    }

    fn sample_rows<R: Rows, L: Relabel>(
        &self,
        rows: &R,
        key: BatchKey,
        relabel: &mut L,
        group: &mut Group<R::Place>,
        out: &mut Minibatch,
    ) -> Result<()> {
        let Minibatch { nodes, blocks, .. } = out;
        for (number, block) in blocks.iter_mut().enumerate() {
            let hop = Hop {
                key: key.hop(number),
                fanout: self.fanouts.at(number),
                replace: self.replace,
            };
            hop.sample(rows, relabel, group, nodes, block)?;
        }
        Ok(())
    }
}

/// Checks the seeds and makes them the first nodes.
fn begin<L: Relabel>(
    view: &PartitionView,
    seeds: &[NodeId],
    relabel: &mut L,
    hops: usize,
    out: &mut Minibatch,
) -> Result<()> {
    out.clear();
    out.blocks.resize_with(hops, Block::default);
    out.seeds = seeds.len();
    if let Some(seed) = seeds.iter().find(|seed| seed.0 >= view.nodes()) {
        return Err(Error::Options(format!(
            "seed {seed} is not a node of the graph, which has {}; seeds are nodes of the store, not external ids",
            view.nodes()
        )));
    }
    if seeds.len() >= PLACES_MAX {
        return Err(too_large("seeds", seeds.len(), PLACES_MAX));
    }
    let mut places = vec![0; seeds.len()];
    relabel.relabel(seeds, &mut out.nodes, &mut places);
    if out.nodes.len() < seeds.len() {
        let second = (0..).zip(&places).position(|(seed, &place): (u32, _)| place < seed);
        let second = second.expect("a seed has the place of an earlier one");
        return Err(Error::Options(format!(
            "seed {} is number {} and number {second} of the batch; a batch has each seed once",
            seeds[second], places[second]
        )));
    }
    Ok(())
}

/// A minibatch is larger than its numbers can say.
pub(super) fn too_large(what: &str, found: usize, end: usize) -> Error {
    Error::Options(format!(
        "a minibatch of {found} {what}, which must be fewer than {end}; sample with smaller fanouts or batches"
    ))
}

/// Memory that a thread samples with, reused from batch to batch. Any sampler and any view may be used with it, in turn.
#[derive(Debug, Default)]
pub struct Scratch {
    hashed: Hashed,
    direct: Option<Direct>,
    csr: Group<CsrPlace>,
}
