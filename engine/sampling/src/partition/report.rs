//! What each partition sees, exactly, by the manifest alone.

use grappa_formats::{ChunkId, assignment::Assignment, manifest::Manifest};
use serde::Serialize;

/// What a partition owns and sees. The fields' names are those of the JSON objects that `grappa-store` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionReport {
    /// Which partition.
    pub partition: u32,
    /// The chunks of its base.
    pub base_chunks: Vec<u32>,
    /// The chunks of its variable part.
    pub variable_chunks: Vec<u32>,
    /// Nodes of both.
    pub nodes: u64,
    /// Edges between them.
    pub visible_edges: u64,
    /// Edges to them from other nodes.
    pub cut_edges: u64,
}

/// Describes every partition. Chunks that a slice lacks have nodes, and no edges.
///
/// Takes the time of the buckets that partitions see: microseconds for 64 chunks.
///
/// # Panics
/// If the assignment is of another number of chunks.
pub fn report(manifest: &Manifest, assignment: &Assignment) -> Vec<PartitionReport> {
    assert_eq!(
        assignment.chunks() as usize,
        manifest.chunks.len(),
        "the assignment is of other chunks"
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
    for chunk in 0..assignment.chunks() {
        let owners = assignment.owners(ChunkId(chunk));
        if let Some(base) = owners.base {
            partitions[base.0 as usize].base_chunks.push(chunk);
        }
        if let Some(variable) = owners.variable {
            partitions[variable.0 as usize].variable_chunks.push(chunk);
        }
    }
    for partition in &mut partitions {
        let owned = || partition.base_chunks.iter().chain(&partition.variable_chunks);
        let (mut nodes, mut edges, mut visible) = (0, 0, 0);
        for &i in owned() {
            let i = i as usize;
            nodes += manifest.chunk_starts[i + 1] - manifest.chunk_starts[i];
            edges += manifest.chunks[i].edges;
            let row = &manifest.chunks[i].bucket_edges;
            visible += owned().filter_map(|&j| row.get(j as usize)).sum::<u64>();
        }
        (partition.nodes, partition.visible_edges, partition.cut_edges) = (nodes, visible, edges - visible);
    }
    partitions
}
