//! The writers of a chunk's edges: of the graph, and of each part that is held out of it.

use std::sync::atomic::{AtomicBool, Ordering};

use grappa_formats::{ChunkId, EdgePart, NodeId, features::FeatureLayout, manifest::ChunkEntry};
use grappa_io::{Result, container::WrittenFile};
use grappa_storage::writer::{AdjacencyWriter, EndChunks};

use crate::ingest::{
    edge_split::{EdgeSplit, KeyParts},
    job::IngestJob,
};

/// Writes the adjacency lists of a chunk, and lists of the same form for the edges that are held out.
pub struct PartWriters<'a> {
    pub graph: AdjacencyWriter<'a>,
    held_out: Option<HeldOut<'a>>,
}

struct HeldOut<'a> {
    split: &'a EdgeSplit,
    /// Whether each edge is there in both directions. Then a held-out edge is listed once: at the end with the larger number.
    undirected: bool,
    /// Bytes of the features of an edge; 0 without.
    stride: usize,
    parts: Vec<PartWriter<'a>>,
    /// Set if the graph loses edges because they are also held out.
    has_dropped: &'a AtomicBool,
}

/// The edges of a part, of one adjacency list at a time.
struct PartWriter<'a> {
    part: EdgePart,
    writer: AdjacencyWriter<'a>,
    sources: Vec<u64>,
    times: Vec<u64>,
    weights: Vec<f32>,
    features: Vec<u8>,
}

impl<'a> PartWriters<'a> {
    /// Creates the files of `chunk`. Edges have times if there are `positions` on an axis of time.
    pub fn create(
        job: &'a IngestJob<'_>,
        chunks: EndChunks<'a>,
        chunk: ChunkId,
        weighted: bool,
        features: Option<FeatureLayout>,
        positions: Option<u64>,
        has_dropped: &'a AtomicBool,
    ) -> Result<Self> {
        let create = |part| match positions {
            Some(positions) => {
                AdjacencyWriter::create_timed(job.store, chunks, chunk, part, weighted, features, positions)
            }
            None => AdjacencyWriter::create_part(job.store, chunks, chunk, part, weighted, features),
        };
        let graph = create(EdgePart::Graph)?;
        let held_out = job.edges.split.as_ref().map(|split| {
            let parts = split.held_out().into_iter().map(|part| {
                let (sources, times, weights) = (Vec::new(), Vec::new(), Vec::new());
                Ok(PartWriter { part, writer: create(part)?, sources, times, weights, features: Vec::new() })
            });
            Ok(HeldOut {
                split,
                undirected: job.edges.options.undirected,
                stride: features.map_or(0, |layout| layout.stride as usize),
                parts: parts.collect::<Result<_>>()?,
                has_dropped,
            })
        });
        Ok(Self { graph, held_out: held_out.transpose()? })
    }

    /// Takes the edges that are held out from the next node's list, and appends them to the lists of their parts.
    pub fn push_held_out(
        &mut self,
        target: NodeId,
        sources: &mut Vec<u64>,
        times: &mut Vec<u64>,
        weights: &mut Vec<f32>,
        features: &mut Vec<u8>,
    ) -> Result<()> {
        match &mut self.held_out {
            Some(held_out) => held_out.push(target, sources, times, weights, features),
            None => Ok(()),
        }
    }

    /// As [`AdjacencyWriter::finish`]. The entry is of the graph.
    pub fn finish(self) -> Result<(ChunkEntry, Vec<WrittenFile>)> {
        let (entry, mut files) = self.graph.finish()?;
        for part in self.held_out.into_iter().flat_map(|held_out| held_out.parts) {
            files.extend(part.writer.finish()?.1);
        }
        Ok((entry, files))
    }
}

/// Appends the list of the next node, with the times of its edges if they have times.
pub fn push_list(
    writer: &mut AdjacencyWriter<'_>,
    sources: &[u64],
    times: &[u64],
    weights: &[f32],
    features: &[u8],
) -> Result<()> {
    match writer.is_timed() {
        true => writer.push_timed(times, sources, weights, features),
        false => writer.push(sources, weights, features),
    }
}

impl HeldOut<'_> {
    fn push(
        &mut self,
        target: NodeId,
        sources: &mut Vec<u64>,
        times: &mut Vec<u64>,
        weights: &mut Vec<f32>,
        features: &mut Vec<u8>,
    ) -> Result<()> {
        let (mut kept_edges, stride) = (0, self.stride);
        for at in 0..sources.len() {
            let (weight, time) = (weights.get(at).copied(), times.get(at).copied());
            let (source, part) = match self.split {
                EdgeSplit::Random(random) => (sources[at], random.part_of(sources[at], target.0)),
                EdgeSplit::Files { .. } | EdgeSplit::Column { .. } => KeyParts::divide(sources[at]),
            };
            if part == EdgePart::Graph && !matches!(self.split, EdgeSplit::Random(_)) {
                // The parts of an edge ascend, and the graph is the first one. Edges at other times are other edges.
                let end = time.map_or(sources.len(), |time| at + times[at..].partition_point(|&other| other <= time));
                let edges = sources[at..end].partition_point(|&joined| KeyParts::divide(joined).0 <= source);
                if KeyParts::divide(sources[at + edges - 1]).1 != EdgePart::Graph {
                    self.has_dropped.store(true, Ordering::Relaxed);
                    continue;
                }
            }
            if part == EdgePart::Graph {
                sources[kept_edges] = source;
                if let Some(weight) = weight {
                    weights[kept_edges] = weight;
                }
                if let Some(time) = time {
                    times[kept_edges] = time;
                }
                features.copy_within(at * stride..(at + 1) * stride, kept_edges * stride);
                kept_edges += 1;
            } else if (!self.undirected || source <= target.0)
                && let Some(writer) = self.parts.iter_mut().find(|writer| writer.part == part)
            {
                writer.sources.push(source);
                writer.times.extend(time);
                writer.weights.extend(weight);
                writer.features.extend_from_slice(&features[at * stride..(at + 1) * stride]);
            }
        }
        sources.truncate(kept_edges);
        times.truncate(kept_edges);
        weights.truncate(kept_edges);
        features.truncate(kept_edges * stride);
        for PartWriter { writer, sources, times, weights, features, .. } in &mut self.parts {
            push_list(writer, sources, times, weights, features)?;
            sources.clear();
            times.clear();
            weights.clear();
            features.clear();
        }
        Ok(())
    }
}
