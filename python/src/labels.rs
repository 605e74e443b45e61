//! The labels of nodes, as arrays.

use grappa_engine::{
    NodeId, Result, Store,
    formats::manifest::LabelKind,
    io::{heap, map::Access},
    store::MappedLabels,
};

use crate::{array::Array, nodes::reserved};

/// The purpose of the memory, in errors.
const LABELS: &str = "labels";

/// How many labels ahead are prefetched: a label is used a few nanoseconds after the one before.
const AHEAD: usize = 16;

/// The mapped labels of a store.
pub struct Labels {
    /// By number of the chunk; none for chunks that a slice lacks.
    chunks: Vec<Option<MappedLabels>>,
    kind: LabelKind,
    classes: usize,
}

impl Labels {
    /// The labels of `store`. None if it has none.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(store: &Store) -> Result<Option<Self>> {
        let Some(spec) = store.manifest().labels else { return Ok(None) };
        let mut chunks: Vec<_> = (0..store.chunks().chunks()).map(|_| None).collect();
        for chunk in store.present_chunks() {
            chunks[chunk.0 as usize] = store.labels(chunk, Access::Random)?;
        }
        Ok(Some(Self { chunks, kind: spec.kind, classes: spec.classes as usize }))
    }

    /// A class per node, or -1; or a row of 0 and 1 per node for sets of classes, and zeros for nodes without labels; or f32, NaN where
    /// they are missing: a number per node for one target, and else a row of them.
    pub fn read(&self, store: &Store, nodes: &[NodeId]) -> Result<Array> {
        match self.kind {
            LabelKind::Single => {
                let mut classes = reserved(nodes.len(), LABELS)?;
                for place in self.places(store, nodes) {
                    classes.push(match place {
                        Some((labels, row)) => labels.single(row)?.map_or(-1, i64::from),
                        None => -1,
                    });
                }
                Ok(Array::vector(classes))
            }
            LabelKind::Multi => {
                let mut sets = heap::zeroed::<u8>(nodes.len().saturating_mul(self.classes), LABELS)?;
                for (place, out) in self.places(store, nodes).zip(sets.chunks_exact_mut(self.classes)) {
                    if let Some((labels, row)) = place
                        && let Some(set) = labels.multi(row)?
                    {
                        set.iter().for_each(|class| out[class as usize] = 1);
                    }
                }
                Ok(Array::new(sets, &[nodes.len(), self.classes]))
            }
            LabelKind::Partial | LabelKind::Targets => {
                let mut values = reserved(nodes.len().saturating_mul(self.classes), LABELS)?;
                for place in self.places(store, nodes) {
                    match place {
                        Some((labels, row)) => values.extend(labels.values(row)?),
                        None => values.resize(values.len() + self.classes, f32::NAN),
                    }
                }
                Ok(match (self.kind, self.classes) {
                    (LabelKind::Targets, 1) => Array::vector(values),
                    _ => Array::new(values, &[nodes.len(), self.classes]),
                })
            }
        }
    }

    /// The places of nodes, prefetched.
    fn places<'a>(
        &'a self,
        store: &'a Store,
        nodes: &'a [NodeId],
    ) -> impl Iterator<Item = Option<(&'a MappedLabels, u64)>> {
        nodes.iter().enumerate().map(move |(at, &node)| {
            if let Some(&later) = nodes.get(at + AHEAD)
                && let Some((labels, row)) = self.place(store, later)
            {
                labels.prefetch(row);
            }
            self.place(store, node)
        })
    }

    /// The labels of a node's chunk, and the node's row in it. None if the store is a slice without the chunk.
    fn place(&self, store: &Store, node: NodeId) -> Option<(&MappedLabels, u64)> {
        let chunk = store.chunks().chunk_of(node);
        let labels = self.chunks[chunk.0 as usize].as_ref()?;
        Some((labels, node.0 - store.chunks().range(chunk).start))
    }
}
