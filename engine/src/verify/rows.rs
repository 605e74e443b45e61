//! Checks adjacency lists: decodes them, counts edges, and compares them with the edge options in the manifest.

use grappa_formats::{
    ChunkSpan, EdgePart, FormatError, NodeId,
    chunks::ChunkMap,
    edge_rows::{EdgeRows, EdgeRowsMeta},
    manifest::{Manifest, SelfLoops},
    rows::{ChunkDegrees, RowCodec, RowSizes, Rows, RowsMeta, RowsPart},
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
};
use grappa_storage::{Store, expect_adjacency, files};

use super::{
    check::{RELEASE_BYTES, StoreCheck},
    in_payload::in_payload,
    times::{CheckedTimes, TimesFiles},
};

/// Edges between two reports of progress.
const PROGRESS_EDGES: u64 = 1 << 18;

/// Checks the in-degrees of a chunk that a slice lacks.
pub(super) fn halo_degrees(manifest: &Manifest, span: ChunkSpan, file: &ContainerFile) -> Result<()> {
    let meta = RowsMeta::decode(&file.header().meta).map_err(Error::format(file.path()))?;
    expect_adjacency(&meta, span, manifest.nodes).map_err(Error::format(file.path()))?;
    let map = MappedPayload::new(file, Access::Sequential)?;
    let sizes = RowSizes::from_meta(&meta);
    let degrees = ChunkDegrees::new(&meta, &sizes, map.unchecked()).map_err(Error::format(file.path()))?;
    degrees.check().map_err(|error| in_payload(file, &error))
}

/// The number of self-loops in the adjacency list of a node.
fn loops(node: u64, sources: &[u64]) -> usize {
    sources.iter().filter(|&&source| source == node).count()
}

/// The adjacency lists of a chunk whose checksums are right.
pub(super) struct RowsCheck<'a> {
    pub check: &'a StoreCheck<'a>,
    pub manifest: &'a Manifest,
    /// The chunks of the nodes from which edges come.
    pub sources: &'a ChunkMap,
    pub span: ChunkSpan,
    /// The part of the edges whose lists these are.
    pub part: EdgePart,
}

impl RowsCheck<'_> {
    /// Checks the adjacency lists, and the files with a row for each edge.
    pub fn run(
        &self,
        edges: &ContainerFile,
        degrees: &ContainerFile,
        times: Option<TimesFiles<'_>>,
        edge_values: &[&ContainerFile],
    ) {
        if let Err(error) = self.rows(edges, degrees, times, edge_values) {
            // The error names the file that it is about.
            let name = match &error {
                Error::Format { path, .. } | Error::Io { path, .. } | Error::Input { path, .. } => path.file_name(),
                _ => None,
            };
            let name = name.map_or_else(|| self.part.file("edges"), |name| name.to_string_lossy().into_owned());
            self.check.failed(&files::of_chunk(self.span.chunk, &name), error);
        }
    }

    fn rows(
        &self,
        edges: &ContainerFile,
        degrees: &ContainerFile,
        times: Option<TimesFiles<'_>>,
        edge_values: &[&ContainerFile],
    ) -> Result<()> {
        let meta = RowsMeta::decode(&edges.header().meta).map_err(Error::format(edges.path()))?;
        expect_adjacency(&meta, self.span, self.sources.nodes()).map_err(Error::format(edges.path()))?;
        if degrees.header().meta != edges.header().meta {
            let problem = "the file describes other rows than the chunk's `edges`";
            return Err(Error::format(degrees.path())(FormatError::invalid(64, problem)));
        }
        if (meta.codec == RowCodec::ByTime) != self.manifest.is_timed() {
            let problem = "lists are in the order of time if edges have times, and only then";
            return Err(Error::format(edges.path())(FormatError::invalid(64, problem)));
        }
        let entry = &self.manifest.chunks[self.span.chunk.0 as usize];
        if self.part == EdgePart::Graph && meta.edges != entry.edges {
            let problem = format!("{} edges, but the manifest says {}", meta.edges, entry.edges);
            return Err(Error::format(edges.path())(FormatError::invalid(96, problem)));
        }
        let edges_map = MappedPayload::new(edges, Access::Sequential)?;
        let degrees_map = MappedPayload::new(degrees, Access::Sequential)?;
        let sizes = RowSizes::from_meta(&meta);
        let rows = Rows::new(&meta, &sizes, edges_map.unchecked(), degrees_map.unchecked())
            .map_err(Error::format(edges.path()))?;

        let times = times.map(|files| files.check(self.span)).transpose()?;
        let lists_of_times = times.as_ref().map(CheckedTimes::rows).transpose()?;
        let (mut positions, mut wrong_times) = (Vec::new(), None);
        let mut bucket_edges = vec![0u64; self.sources.chunks() as usize];
        let mut wrong_row = None;
        let (mut released, mut reported) = (0, 0);
        let mut edges_seen = 0;
        let checked = rows.check(|row, sources| {
            self.count(sources, &mut bucket_edges);
            if wrong_row.is_none() {
                wrong_row = self.wrong_row(row, sources).map(|problem| (row, problem));
            }
            if let (Some(times), Some(lists), None) = (&times, &lists_of_times, &wrong_times) {
                wrong_times = times.problem(lists, row, sources, &mut positions);
            }
            edges_seen += sources.len() as u64;
            if edges_seen - reported >= PROGRESS_EDGES {
                self.check.progress.advance(0, edges_seen - reported);
                reported = edges_seen;
            }
            let at = rows.locate(row).extent().start;
            if at - released >= RELEASE_BYTES {
                edges_map.release(0..at);
                degrees_map.release(0..rows.directory_line(row).start as u64);
                released = at;
            }
        });
        self.check.progress.advance(0, edges_seen - reported);
        checked.map_err(|problem| {
            let file = match problem.part {
                RowsPart::Edges => edges,
                RowsPart::Degrees => degrees,
            };
            in_payload(file, &problem.error)
        })?;
        if let Some(error) = wrong_times {
            return Err(error);
        }
        if let Some((row, problem)) = wrong_row {
            let offset = edges.header().payload_offset + rows.locate(row).extent().start;
            return Err(Error::format(edges.path())(FormatError::invalid(offset, problem)));
        }
        if self.part == EdgePart::Graph && bucket_edges != entry.bucket_edges {
            let differs = bucket_edges.iter().zip(&entry.bucket_edges).position(|(a, b)| a != b);
            let j = differs.expect("as many buckets as chunks");
            let problem = format!(
                "{} edges come from chunk {j}, but the manifest says {}",
                bucket_edges[j], entry.bucket_edges[j]
            );
            return Err(Error::format(edges.path())(FormatError::invalid(64, problem)));
        }
        edge_values.iter().try_for_each(|file| self.edge_rows(&rows, file))
    }

    /// Adds the sources of an adjacency list to the edge counts of their chunks.
    fn count(&self, sources: &[u64], bucket_edges: &mut [u64]) {
        let mut rest = sources;
        while let Some(&first) = rest.first() {
            let chunk = self.sources.chunk_of(NodeId(first));
            let range = self.sources.range(chunk);
            let here = rest.iter().take_while(|source| range.contains(source)).count();
            bucket_edges[chunk.0 as usize] += here as u64;
            rest = &rest[here..];
        }
    }

    /// The problem of an adjacency list, if there is one, given the edge options of the store.
    fn wrong_row(&self, row: u64, sources: &[u64]) -> Option<String> {
        let options = self.manifest.edge_options;
        let node = self.span.first_node.0 + row;
        if options.dedup && sources.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some(format!(
                "{} has parallel edges, but the manifest says that they were merged",
                self.name(node)
            ));
        }
        if self.part != EdgePart::Graph {
            if options.undirected && sources.iter().any(|&source| source > node) {
                return Some(format!(
                    "{} has an edge for {} from a later node, but each edge is listed once, at the later node",
                    self.name(node),
                    self.part
                ));
            }
            return (options.self_loops != SelfLoops::Keep && loops(node, sources) != 0).then(|| {
                let name = self.name(node);
                format!("{name} has a self-loop among the edges for {}, where none can be", self.part)
            });
        }
        match options.self_loops {
            SelfLoops::Keep => None,
            SelfLoops::Drop => (loops(node, sources) != 0).then(|| {
                let name = self.name(node);
                format!("{name} has a self-loop, but the manifest says that they were dropped")
            }),
            SelfLoops::Add => {
                let loops = loops(node, sources);
                (loops != 1).then(|| format!("{} has {loops} self-loops, not one", self.name(node)))
            }
        }
    }

    /// The node by the id of the user's files, or by its internal number if the store is too damaged to tell.
    fn name(&self, node: u64) -> String {
        match Store::open(self.check.root) {
            Ok(store) => store.ids().name(NodeId(node)),
            Err(_) => format!("the node with the internal number {node}"),
        }
    }

    /// Checks a file with a row for each edge: weights, or features.
    fn edge_rows(&self, rows: &Rows<'_>, file: &ContainerFile) -> Result<()> {
        let meta = EdgeRowsMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&self.span).map_err(Error::format(file.path()))?;
        let mapped = MappedPayload::new(file, Access::Sequential)?;
        let edge_values = EdgeRows::new(mapped.header(), mapped.unchecked()).map_err(Error::format(file.path()))?;
        let degrees = rows.range(0..rows.meta.rows).map(|row| row.degree());
        edge_values.check(degrees).map_err(Error::format(file.path()))
    }
}
