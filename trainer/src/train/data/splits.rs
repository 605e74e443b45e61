//! Training, validation and test nodes.

use std::{ops::Range, sync::Arc};

use grappa_formats::{
    ChunkId, NodeId,
    manifest::{LabelKind, LabelSpec},
};
use grappa_kernels::for_each;
use grappa_run::scores::{Judged, Labels, ScoreReport, Scores, TargetScale, is_undecided};
use grappa_sampling::{NodeSet, partition::Share};
use grappa_storage::Graph;
use roaring::RoaringTreemap;
use tch::Tensor;

use super::labels::NodeLabels;
use crate::train::{
    ranks::{Processes, TRAIN},
    tensors::host_values,
};
use crate::{Error, Result};

/// Nodes that a thread judges at a time.
const JUDGED: usize = 512;
/// Indices of the splits that are scored.
pub(crate) const VAL: usize = 0;
pub(crate) const TEST: usize = 1;

/// The splits of a store, as far as its host trains their nodes.
#[derive(Debug, Clone, Default)]
pub struct Splits {
    nodes: [Arc<RoaringTreemap>; 3],
    /// Number of nodes of each on all hosts.
    of_all: [u64; 3],
}

impl Splits {
    /// Reads the splits of a type. The validation and test splits may be empty. On several hosts they have only nodes of the chunks that the host
    /// of this process trains, and all ranks must call this.
    pub(crate) fn open(graph: &Graph, target: usize, processes: &Processes) -> Result<Self> {
        let nodes = [
            trained_nodes(graph, target, TRAIN, processes)?,
            trained_nodes(graph, target, "val", processes)?,
            trained_nodes(graph, target, "test", processes)?,
        ];
        let host_nodes = nodes.each_ref().map(|nodes| nodes.len());
        let splits = Self { of_all: processes.sum_of_hosts(host_nodes)?, nodes };
        if splits.of_all[0] == 0 {
            return Err(Error::NoLabels(format!(
                "{}: there are no nodes to train on; ingest them with --train, or with --split 60/20/20",
                graph.node_types()[target].path().display()
            )));
        }
        Ok(splits)
    }

    /// Number of training, validation and test nodes on all hosts.
    pub fn of_all(&self) -> [u64; 3] {
        self.of_all
    }

    /// The validation and the test nodes that one of several workers scores: consecutive ones, the same number as the others.
    pub fn scored_by(&self, share: Share) -> [Arc<RoaringTreemap>; 2] {
        [self.val(), self.test()].map(|nodes| {
            let range = share.range(nodes.len());
            if range == (0..nodes.len()) {
                return nodes.clone();
            }
            let mut part = RoaringTreemap::clone(nodes);
            // There is no node at the end of the last range.
            if let Some(end) = nodes.select(range.end) {
                part.remove_range(end..);
            }
            match nodes.select(range.start).filter(|_| !range.is_empty()) {
                Some(first) => part.remove_range(..first),
                None => part.remove_range(..),
            };
            Arc::new(part)
        })
    }

    /// The training nodes.
    pub fn train(&self) -> &Arc<RoaringTreemap> {
        &self.nodes[0]
    }

    /// The validation nodes.
    pub fn val(&self) -> &Arc<RoaringTreemap> {
        &self.nodes[1]
    }

    /// The test nodes.
    pub fn test(&self) -> &Arc<RoaringTreemap> {
        &self.nodes[2]
    }
}

/// The nodes of a split of a type in the chunks that the host of this process trains.
fn trained_nodes(graph: &Graph, target: usize, split: &str, processes: &Processes) -> Result<Arc<RoaringTreemap>> {
    let store = &graph.node_types()[target];
    let mut nodes = store.split(split)?.unwrap_or_default();
    // Processes number the chunks of all types.
    let numbers = graph.positions().chunks_of(target).map(ChunkId);
    for (chunk, number) in (0..).map(ChunkId).zip(numbers) {
        if !processes.trains(number) {
            nodes.remove_range(store.chunks().range(chunk));
        }
    }
    Ok(Arc::new(nodes))
}

/// Scores of the nodes of some splits.
pub struct SplitScores<'a> {
    splits: Vec<ScoresOfSplit<'a>>,
    spec: LabelSpec,
}

/// A node, its logits, and its class.
type LabelledRow<'a> = (NodeId, &'a [f32], i64);

/// Scores of the nodes of a split.
struct ScoresOfSplit<'a> {
    nodes: &'a RoaringTreemap,
    scores: Scores,
    /// The first labelled node that has a NaN logit.
    first_undecided: Option<NodeId>,
}

impl<'a> SplitScores<'a> {
    /// Empty scores of each of `splits`. `ranked` adds the areas under the ROC and the precision-recall curve. `scale` is the scale of
    /// targets, if labels are targets.
    ///
    /// # Panics
    /// If labels are targets and `scale` is none, or it is of other targets.
    pub fn new(
        splits: impl IntoIterator<Item = &'a RoaringTreemap>,
        spec: LabelSpec,
        ranked: bool,
        scale: Option<&TargetScale>,
    ) -> Self {
        let scores = match spec.kind {
            LabelKind::Targets => Scores::of_targets(spec, scale.expect("targets have a scale").clone()),
            LabelKind::Single | LabelKind::Multi | LabelKind::Partial => Scores::new(spec, ranked),
        };
        let splits =
            splits.into_iter().map(|nodes| ScoresOfSplit { nodes, scores: scores.clone(), first_undecided: None });
        Self { splits: splits.collect(), spec }
    }

    /// Adds the logits of ascending nodes. Nodes that are in none of the splits do not count.
    pub fn add(&mut self, nodes: &[NodeId], logits: &Tensor, labels: &NodeLabels) -> Result<()> {
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else {
            return Ok(());
        };
        let classes = self.spec.classes as usize;
        let logits = host_values(logits);
        let logits: Vec<&[f32]> = logits.chunks_exact(classes).collect();
        for split in &mut self.splits {
            let mut members = split.nodes.iter();
            members.advance_to(first.0);
            let members = members.take_while(|node| *node <= last.0).map(NodeId);
            let rows = members.filter_map(|node| Some((node, logits[nodes.binary_search(&node).ok()?])));
            match self.spec.kind {
                LabelKind::Single => {
                    let rows = rows.map(|(node, row)| Ok((node, row, labels.class(node)?)));
                    let rows = rows.collect::<Result<Vec<_>>>()?;
                    let mut judged = vec![Judged::default(); rows.len()];
                    let parts = rows.chunks(JUDGED).zip(judged.chunks_mut(JUDGED)).collect();
                    for_each(parts, |(rows, judged): (&[LabelledRow<'_>], &mut [Judged])| {
                        for (&(_, row, class), judged) in rows.iter().zip(judged) {
                            *judged = Judged::from_logits(row, class);
                        }
                    });
                    for (&(node, ..), judged) in rows.iter().zip(judged) {
                        split.note(node, judged.is_undecided());
                        split.scores.add_judged(judged);
                    }
                }
                LabelKind::Multi => {
                    for (node, row) in rows {
                        let set = labels.set(node)?;
                        split.note(node, set.is_some() && is_undecided(row));
                        split.scores.add(row, Labels::Sets(&bits(self.spec, set)));
                    }
                }
                LabelKind::Partial | LabelKind::Targets => {
                    for (node, row) in rows {
                        let values = labels.values(node)?;
                        let has_label = !values.iter().all(|value| value.is_nan());
                        split.note(node, has_label && is_undecided(row));
                        split.scores.add(row, Labels::Values(&values));
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives the logits of the nodes at ranges of positions among the `wanted` ones, and adds them.
    pub fn receiver<'s>(
        &'s mut self,
        wanted: &'s NodeSet,
        labels: &'s NodeLabels,
    ) -> impl FnMut(Range<u64>, &Tensor) -> Result<()> + use<'s, 'a> {
        let mut nodes = Vec::new();
        move |positions, logits| {
            nodes.clear();
            wanted.nodes_at(positions, &mut nodes);
            self.add(&nodes, logits, labels)
        }
    }

    /// The scores as words, for [`SplitScores::merge_words`] on another rank.
    pub fn as_words(&mut self) -> Vec<u32> {
        let mut words = Vec::new();
        for split in &mut self.splits {
            let split_words = split.scores.as_words();
            // No node has the largest number.
            let first = split.first_undecided.map_or(u64::MAX, |node| node.0);
            words.extend([first as u32, (first >> 32) as u32]);
            words.push(u32::try_from(split_words.len()).expect("memory holds fewer"));
            words.extend(split_words);
        }
        words
    }

    /// Adds the scores of another rank, of the same splits.
    ///
    /// # Panics
    /// If they are of others.
    pub fn merge_words(&mut self, mut words: &[u32]) {
        for split in &mut self.splits {
            let (&[low, high, length], rest) = words.split_first_chunk().expect("words of the same splits");
            let first = u64::from(low) | u64::from(high) << 32;
            split.note(NodeId(first), first != u64::MAX);
            let (split_words, rest) = rest.split_at(length as usize);
            split.scores.merge_words(split_words);
            words = rest;
        }
    }

    /// The scores of each split, in their order.
    pub fn reports(self) -> Vec<ScoreReport> {
        self.splits.into_iter().map(ScoresOfSplit::report).collect()
    }
}

impl ScoresOfSplit<'_> {
    /// Notes a labelled node, if it has a NaN logit.
    fn note(&mut self, node: NodeId, is_undecided: bool) {
        if is_undecided && self.first_undecided.is_none_or(|first| node < first) {
            self.first_undecided = Some(node);
        }
    }

    fn report(self) -> ScoreReport {
        ScoreReport { first_undecided: self.first_undecided.map(|node| node.0), ..self.scores.report() }
    }
}

/// A set of classes as [`Labels::Sets`] has it.
fn bits(spec: LabelSpec, set: Option<Vec<u8>>) -> Vec<u8> {
    let mut bits = vec![0; spec.row_bytes() as usize];
    let Some(set) = set else { return bits };
    // The last bit says that there is a label.
    for (i, _) in set.iter().chain([&1]).enumerate().filter(|(_, bit)| **bit == 1) {
        bits[i / 8] |= 1 << (i % 8);
    }
    bits
}
