//! Summaries: the results that programs print at the end.

use std::time::Duration;

use grappa_io::{
    machine::peak_rss_bytes,
    size::{ByteSize, count, duration},
    text::printable,
};
use serde::Serialize;

/// The result of a run: a JSON object (by [`Serialize`]) and text.
pub trait Summary: Serialize {
    /// One or more lines, without a line feed at the end.
    fn text(&self) -> String;
}

/// The summary of `grappa-ingest` and `grappa-gen`. Field names are the keys of the JSON object.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Built {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Edges, as stored.
    pub edges: u64,
    /// Edges read from the input, or drawn by a generator.
    pub edges_read: u64,
    /// Bad lines or records that were skipped.
    pub rejected: u64,
    /// Wall time.
    pub seconds: f64,
    /// Edges read per second of wall time.
    pub edges_per_second: f64,
    /// Peak resident memory of the process; null if the kernel does not report it.
    pub peak_rss_bytes: Option<u64>,
    /// Bytes of all written files.
    pub bytes_on_disk: u64,
    /// Chunks of the store; 0 for an edge list.
    pub chunks: u64,
    /// Chunks that were made, of a slice; otherwise all.
    pub chunks_present: u64,
    /// Paths of the written files: the edges, and what nodes have. None of a store.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The store or file that was written. Only the text has it.
    #[serde(skip)]
    pub name: String,
}

impl Built {
    /// A summary with rate and peak memory. The caller fills in the zeros.
    pub fn new(name: impl Into<String>, elapsed: Duration, edges_read: u64) -> Self {
        let seconds = elapsed.as_secs_f64();
        Self {
            edges_read,
            seconds,
            edges_per_second: edges_read as f64 / seconds.max(1e-9),
            peak_rss_bytes: peak_rss_bytes(),
            name: name.into(),
            ..Self::default()
        }
    }
}

impl Summary for Built {
    fn text(&self) -> String {
        let mut line = format!("{}: {} nodes, {} edges", printable(&self.name), count(self.nodes), count(self.edges));
        if self.chunks > 0 {
            let slice_note = match self.chunks_present < self.chunks {
                true => format!("{} of ", self.chunks_present),
                false => String::new(),
            };
            line += &format!(" in {slice_note}{} chunk{}", self.chunks, if self.chunks == 1 { "" } else { "s" });
        }
        line += &format!(
            ", {} on disk; {} ({} edges/s",
            ByteSize(self.bytes_on_disk),
            duration(Duration::from_secs_f64(self.seconds)),
            count(self.edges_per_second as u64),
        );
        if let Some(bytes) = self.peak_rss_bytes {
            line += &format!(", peak memory {}", ByteSize(bytes));
        }
        line.push(')');
        if self.rejected > 0 {
            line += &format!("; {} rejected", count(self.rejected));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built() -> Built {
        Built {
            nodes: 2708,
            edges: 10_556,
            rejected: 3,
            bytes_on_disk: 1 << 20,
            chunks: 4,
            chunks_present: 4,
            peak_rss_bytes: Some(64 << 20),
            ..Built::new("cora.grappa", Duration::from_millis(500), 10_556)
        }
    }

    #[test]
    fn the_line_says_what_was_built_and_at_what_cost() {
        assert_eq!(
            built().text(),
            "cora.grappa: 2708 nodes, 10556 edges in 4 chunks, 1.0 MiB on disk; 0.50 s (21112 edges/s, peak memory 64.0 \
             MiB); 3 rejected"
        );
        let slice = Built { chunks_present: 2, ..built() };
        assert!(slice.text().contains("10556 edges in 2 of 4 chunks"), "{}", slice.text());
    }

    #[test]
    fn the_object_has_the_documented_keys_in_order() {
        assert_eq!(
            serde_json::to_string(&built()).unwrap(),
            r#"{"nodes":2708,"edges":10556,"edges_read":10556,"rejected":3,"seconds":0.5,"edges_per_second":21112.0,"peak_rss_bytes":67108864,"bytes_on_disk":1048576,"chunks":4,"chunks_present":4}"#
        );
    }
}
