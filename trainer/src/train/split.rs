//! Training, validation and test nodes.

use std::{ops::Range, sync::Arc};

use grappa_formats::{
    NodeId,
    manifest::{LabelKind, LabelSpec},
};
use grappa_run::scores::{Labels, ScoreReport, Scores};
use grappa_storage::Store;
use roaring::RoaringTreemap;
use tch::Tensor;

use super::{inference::values, labels::NodeLabels};
use crate::{Error, Result};

/// The splits of a store.
#[derive(Debug, Clone)]
pub struct Splits([Arc<RoaringTreemap>; 3]);

impl Splits {
    /// Reads the splits. The validation and test splits may be empty.
    ///
    /// # Errors
    /// If there are no training nodes.
    pub fn open(store: &Store) -> Result<Self> {
        let split = |name| Ok::<_, grappa_io::Error>(Arc::new(store.split(name)?.unwrap_or_default()));
        let splits = Self([split("train")?, split("val")?, split("test")?]);
        if splits.train().is_empty() {
            return Err(Error::Options(format!(
                "{}: there are no nodes to train on; ingest them with --train",
                store.path().display()
            )));
        }
        Ok(splits)
    }

    /// The training nodes.
    pub fn train(&self) -> &Arc<RoaringTreemap> {
        &self.0[0]
    }
}

/// Scores of each split.
pub struct SplitScores<'a> {
    splits: &'a Splits,
    spec: LabelSpec,
    scores: [Scores; 3],
}

impl<'a> SplitScores<'a> {
    pub fn new(splits: &'a Splits, spec: LabelSpec, ranked: bool) -> Self {
        Self {
            splits,
            spec,
            scores: [(); 3].map(|()| Scores::new(spec, ranked)),
        }
    }

    /// Adds the logits of a range of nodes.
    pub fn add(&mut self, nodes: Range<u64>, logits: &Tensor, labels: &NodeLabels) -> Result<()> {
        let classes = self.spec.classes as usize;
        let logits = values(logits);
        for (split, scores) in self.splits.0.iter().zip(&mut self.scores) {
            let (mut rows, mut singles, mut sets) = (Vec::new(), Vec::new(), Vec::new());
            let mut members = split.iter();
            members.advance_to(nodes.start);
            for node in members.take_while(|node| *node < nodes.end) {
                let at = (node - nodes.start) as usize * classes;
                rows.extend_from_slice(&logits[at..at + classes]);
                match self.spec.kind {
                    LabelKind::Single => singles.push(labels.class(NodeId(node))?),
                    LabelKind::Multi => {
                        let set = labels.set(NodeId(node))?;
                        let start = sets.len();
                        sets.resize(start + self.spec.row_bytes() as usize, 0);
                        if let Some(set) = set {
                            let bits = set.iter().map(|&bit| bit == 1).chain([true]);
                            for (i, _) in bits.enumerate().filter(|(_, bit)| *bit) {
                                sets[start + i / 8] |= 1 << (i % 8);
                            }
                        }
                    }
                }
            }
            scores.add(
                &rows,
                match self.spec.kind {
                    LabelKind::Single => Labels::Classes(&singles),
                    LabelKind::Multi => Labels::Sets(&sets),
                },
            );
        }
        Ok(())
    }

    /// The scores of train, val and test.
    pub fn reports(self) -> [ScoreReport; 3] {
        self.scores.map(Scores::report)
    }
}
