//! The labels of nodes, as tensors for losses.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use grappa_formats::{
    NodeId,
    chunks::ChunkMap,
    manifest::{LabelKind, LabelSpec},
};
use grappa_io::map::Access;
use grappa_run::model::Task;
use grappa_storage::{MappedLabels, Store, StoreIds};
use tch::Tensor;

use crate::{Error, Result};

/// All labels of a chunk are read together if, on average, at least one byte in this number (8 pages) is used. A page fault for each page
/// would take long, because it waits behind the deep queue of reads of features.
const DENSE_BYTES: u64 = 8 * 4096;

/// The labels of a store, memory-mapped.
pub struct NodeLabels {
    /// By number; none for chunks that a slice lacks.
    chunks: Vec<Option<MappedLabels>>,
    map: ChunkMap,
    ids: Arc<StoreIds>,
    spec: LabelSpec,
    /// By chunk: whether its labels need not be read together, because they were, or because few of them are used.
    asked: Vec<AtomicBool>,
    are_dense: bool,
}

impl NodeLabels {
    /// The labels of the nodes of `store`.
    pub fn new(store: &Store) -> Result<Self> {
        let Some(spec) = store.manifest().labels else {
            return Err(Error::NoLabels(format!(
                "{}: nodes have no labels to learn; ingest them with --labels",
                store.path().display()
            )));
        };
        let used: u64 = store.manifest().splits.iter().map(|split| split.nodes).sum();
        let map = store.chunks().clone();
        let mut chunks: Vec<_> = (0..map.chunks()).map(|_| None).collect();
        for chunk in store.present_chunks() {
            chunks[chunk.0 as usize] = store.labels(chunk, Access::Random)?;
        }
        let bytes: u64 = chunks.iter().flatten().map(MappedLabels::bytes).sum();
        let are_dense = bytes / DENSE_BYTES <= used;
        Ok(Self {
            ids: store.ids().clone(),
            spec,
            asked: chunks.iter().map(|_| AtomicBool::new(!are_dense)).collect(),
            are_dense,
            chunks,
            map,
        })
    }

    /// An epoch begins. The system may have dropped labels from its cache since the last one.
    pub fn begin_epoch(&self) {
        for asked in &self.asked {
            asked.store(!self.are_dense, Ordering::Relaxed);
        }
    }

    /// The labels of a node's chunk, and the node's row in it.
    fn place(&self, node: NodeId) -> (&MappedLabels, u64) {
        let chunk = self.map.chunk_of(node);
        let labels = self.chunks[chunk.0 as usize].as_ref().expect("the store has the chunk");
        let asked = &self.asked[chunk.0 as usize];
        if !asked.load(Ordering::Relaxed) && !asked.swap(true, Ordering::Relaxed) {
            labels.read_ahead();
        }
        (labels, node.0 - self.map.range(chunk).start)
    }

    /// Kind and number of the labels.
    pub fn spec(&self) -> LabelSpec {
        self.spec
    }

    /// The task that the labels are for.
    pub fn task(&self) -> Task {
        Task::for_labels(self.spec.kind)
    }

    /// The class of a node; -1 if it has no label.
    pub fn class(&self, node: NodeId) -> Result<i64> {
        let (labels, row) = self.place(node);
        Ok(labels.single(row)?.map_or(-1, i64::from))
    }

    /// The value of each class or target of a node, NaN for one that is missing.
    pub fn values(&self, node: NodeId) -> Result<Vec<f32>> {
        let (labels, row) = self.place(node);
        Ok(labels.values(row)?.collect())
    }

    /// Calls `each` with every class that is known for the node, and whether the node is in it.
    pub fn for_each_class(&self, node: NodeId, mut each: impl FnMut(usize, bool)) -> Result<()> {
        match self.spec.kind {
            LabelKind::Single => {
                if let Ok(class) = usize::try_from(self.class(node)?) {
                    each(class, true);
                }
            }
            LabelKind::Multi => {
                let set = self.set(node)?.unwrap_or_default();
                set.iter().enumerate().for_each(|(class, &bit)| each(class, bit == 1));
            }
            LabelKind::Partial | LabelKind::Targets => {
                let values = self.values(node)?;
                let known = values.iter().enumerate().filter(|(_, value)| !value.is_nan());
                known.for_each(|(class, &value)| each(class, value == 1.0));
            }
        }
        Ok(())
    }

    /// For each class a byte, 1 if the node is in it; none if the node has no label.
    pub fn set(&self, node: NodeId) -> Result<Option<Vec<u8>>> {
        let (labels, row) = self.place(node);
        let set = labels.multi(row)?;
        Ok(set.map(|set| {
            let mut row = vec![0; self.spec.classes as usize];
            set.iter().for_each(|class| row[class as usize] = 1);
            row
        }))
    }

    fn unlabelled(&self, node: NodeId) -> Error {
        Error::NoLabels(format!(
            "{} is a training node without label: leave it out of --train, or label it",
            self.ids.name(node)
        ))
    }

    /// The labels of nodes, as [`Loss::losses`](crate::nn::Loss::losses) takes them.
    pub fn tensor(&self, nodes: &[NodeId]) -> Result<Tensor> {
        Ok(match self.spec.kind {
            LabelKind::Single => {
                let classes = nodes.iter().map(|&node| match self.class(node)? {
                    -1 => Err(self.unlabelled(node)),
                    class => Ok(class),
                });
                Tensor::from_slice(&classes.collect::<Result<Vec<i64>>>()?)
            }
            LabelKind::Multi => {
                let sets = nodes.iter().map(|&node| self.set(node)?.ok_or_else(|| self.unlabelled(node)));
                let sets = sets.collect::<Result<Vec<_>>>()?.concat();
                Tensor::from_slice(&sets).view([nodes.len() as i64, i64::from(self.spec.classes)])
            }
            LabelKind::Partial | LabelKind::Targets => {
                let mut all = Vec::with_capacity(nodes.len() * self.spec.classes as usize);
                for &node in nodes {
                    let values = self.values(node)?;
                    if values.iter().all(|value| value.is_nan()) {
                        return Err(self.unlabelled(node));
                    }
                    all.extend(values);
                }
                Tensor::from_slice(&all).view([nodes.len() as i64, i64::from(self.spec.classes)])
            }
        })
    }
}
