//! The nodes and edges that each partition sees: exact counts, from the manifest alone.

use grappa_formats::{ChunkId, assignment::Assignment, manifest::Manifest};
use serde::Serialize;

/// The chunks, nodes and edges of a partition. Field names are keys of the JSON output of `grappa-store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionReport {
    /// The id of the partition.
    pub partition: u32,
    /// The chunks of its base.
    pub base_chunks: Vec<u32>,
    /// The chunks of its variable part.
    pub variable_chunks: Vec<u32>,
    /// Number of owned nodes.
    pub nodes: u64,
    /// Number of edges between owned nodes.
    pub visible_edges: u64,
    /// Number of edges from other nodes to owned ones.
    pub cut_edges: u64,
}

/// Describes every partition. No partition owns chunks that a slice lacks.
///
/// Takes time proportional to the number of buckets that partitions see: microseconds for 64 chunks.
///
/// # Panics
/// If the assignment has a different number of chunks than the manifest.
pub fn report(manifest: &Manifest, assignment: &Assignment) -> Vec<PartitionReport> {
    assert_eq!(
        assignment.chunks() as usize,
        manifest.chunks.len(),
        "the assignment does not match the chunks of the store"
    );
    let mut partitions: Vec<_> = (0..assignment.partitions())
        .map(|partition| PartitionReport {
            partition,
            base_chunks: Vec::new(),
            variable_chunks: Vec::new(),
            nodes: 0,
            visible_edges: 0,
            cut_edges: 0,
        })
        .collect();
    for chunk in (0..assignment.chunks()).filter(|&chunk| manifest.chunks[chunk as usize].present) {
        let owners = assignment.owners(ChunkId(chunk));
        if let Some(base) = owners.base {
            partitions[base.0 as usize].base_chunks.push(chunk);
        }
        if let Some(variable) = owners.variable {
            partitions[variable.0 as usize].variable_chunks.push(chunk);
        }
    }
    for partition in &mut partitions {
        let owned = partition.base_chunks.iter().chain(&partition.variable_chunks);
        let (mut nodes, mut edges, mut visible) = (0, 0, 0);
        for &i in owned.clone() {
            let i = i as usize;
            nodes += manifest.chunk_starts[i + 1] - manifest.chunk_starts[i];
            edges += manifest.chunks[i].edges;
            let buckets = &manifest.chunks[i].bucket_edges;
            visible += owned.clone().filter_map(|&j| buckets.get(j as usize)).sum::<u64>();
        }
        (partition.nodes, partition.visible_edges, partition.cut_edges) = (nodes, visible, edges - visible);
    }
    partitions
}
