//! Encodes the adjacency lists of a chunk.

use grappa_formats::{
    ChunkId, ChunkSpan, EdgePart, NodeId,
    chunks::ChunkMap,
    container::FileKind,
    edge_rows::{EdgeRowsEncoder, EdgeRowsMeta, WEIGHT},
    features::FeatureLayout,
    manifest::ChunkEntry,
    rows::{LINE_BYTES, LINE_ROWS, RowCodec, RowsEncoder, choose_codec},
};
use grappa_io::{
    Result,
    container::{ContainerWriter, WrittenFile},
};

use super::{
    StoreFolder,
    list_files::{DRAIN_BYTES, ListFiles},
};
use crate::files;

/// Edges in the sample from which the codec of a chunk is chosen.
const SAMPLE_EDGES: usize = 1 << 15;
/// The chunks of the destinations and of the sources of edges. They are the same unless the two ends have different types.
#[derive(Debug, Clone, Copy)]
pub struct EndChunks<'a> {
    /// The chunks of destinations. Each has files of its own.
    pub destinations: &'a ChunkMap,
    /// The chunks of sources, in which edges are counted.
    pub sources: &'a ChunkMap,
}

impl<'a> From<&'a ChunkMap> for EndChunks<'a> {
    fn from(chunks: &'a ChunkMap) -> Self {
        Self { destinations: chunks, sources: chunks }
    }
}

/// Writes the adjacency lists of one chunk: the files `edges` and `degrees`, and `weights`, `edge-features`, `times` and `time-degrees` if
/// edges have them.
///
/// Adjacency lists are pushed in the order of their destinations and encoded at once. Memory: the sample from which the
/// codec is chosen, the directory of the lists ([`AdjacencyWriter::directory_bytes`]), and a buffer per file; with times, a second directory
/// and no sample.
pub struct AdjacencyWriter<'a> {
    sources: &'a ChunkMap,
    span: ChunkSpan,
    bucket_edges: Vec<u64>,
    encoder: Encoder,
    edges: ListFiles,
    times: Option<TimesWriter>,
    weights: Option<EdgeRowsWriter>,
    features: Option<EdgeRowsWriter>,
}

enum Encoder {
    /// Adjacency lists are kept until there are enough to choose a codec.
    Sampling(Sample),
    Chosen(Box<RowsEncoder>),
}

#[derive(Default)]
struct Sample {
    sources: Vec<u64>,
    /// The end of each adjacency list in `sources`.
    ends: Vec<usize>,
}

struct TimesWriter {
    encoder: RowsEncoder,
    files: ListFiles,
}

struct EdgeRowsWriter {
    kind: FileKind,
    file: ContainerWriter,
    encoder: EdgeRowsEncoder,
}

impl<'a> AdjacencyWriter<'a> {
    /// Bytes of memory for the directory of `lists` adjacency lists.
    pub fn directory_bytes(lists: u64) -> u64 {
        lists.div_ceil(LINE_ROWS) * LINE_BYTES as u64
    }

    /// Creates the files of `chunk`. Edges have a weight each if `weighted`, and a row of `features` if there is a layout.
    pub fn create(
        store: &StoreFolder,
        chunks: impl Into<EndChunks<'a>>,
        chunk: ChunkId,
        weighted: bool,
        features: Option<FeatureLayout>,
    ) -> Result<Self> {
        Self::create_part(store, chunks, chunk, EdgePart::Graph, weighted, features)
    }

    /// Creates the files of `chunk` for a part of the edges.
    pub fn create_part(
        store: &StoreFolder,
        chunks: impl Into<EndChunks<'a>>,
        chunk: ChunkId,
        part: EdgePart,
        weighted: bool,
        features: Option<FeatureLayout>,
    ) -> Result<Self> {
        let EndChunks { destinations, sources } = chunks.into();
        let folder = store.chunk(chunk)?;
        let file =
            |name: &str, kind, meta_bytes| ContainerWriter::create(&folder.join(part.file(name)), kind, meta_bytes);
        let edges = [("edges", FileKind::ROWS), ("degrees", FileKind::DEGREES)];
        let of_edges = |name, kind, layout| {
            Ok(EdgeRowsWriter {
                kind,
                file: file(name, kind, EdgeRowsMeta::bytes(kind))?,
                encoder: EdgeRowsEncoder::new(layout),
            })
        };
        let weights = weighted.then(|| of_edges("weights", FileKind::WEIGHTS, WEIGHT));
        let features = features.map(|layout| of_edges(files::EDGE_FEATURES, FileKind::EDGE_FEATURES, layout));
        let (weights, features) = (weights.transpose()?, features.transpose()?);
        Ok(Self {
            sources,
            span: ChunkSpan::for_chunk(destinations, chunk),
            bucket_edges: vec![0; sources.chunks() as usize],
            encoder: Encoder::Sampling(Sample::default()),
            edges: ListFiles::create(&folder, part, edges)?,
            times: None,
            weights,
            features,
        })
    }

    /// As [`AdjacencyWriter::create_part`], for edges with times. `positions` is the number of positions of the axis.
    pub fn create_timed(
        store: &StoreFolder,
        chunks: impl Into<EndChunks<'a>>,
        chunk: ChunkId,
        part: EdgePart,
        weighted: bool,
        features: Option<FeatureLayout>,
        positions: u64,
    ) -> Result<Self> {
        let untimed = Self::create_part(store, chunks, chunk, part, weighted, features)?;
        let span = untimed.span;
        let encoder = |codec, universe| {
            let mut encoder = RowsEncoder::new(codec, universe, span.first_node.0);
            encoder.reserve(span.rows);
            encoder
        };
        let files = [(files::TIMES, FileKind::TIMES), (files::TIME_DEGREES, FileKind::TIME_DEGREES)];
        let files = ListFiles::create(&store.chunk(chunk)?, part, files)?;
        Ok(Self {
            encoder: Encoder::Chosen(Box::new(encoder(RowCodec::ByTime, untimed.sources.nodes()))),
            times: Some(TimesWriter { encoder: encoder(RowCodec::EliasFano, positions), files }),
            ..untimed
        })
    }

    /// Whether edges have times.
    pub fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// Appends the adjacency list of the next node, whose edges have times: their positions, ascending, and as [`AdjacencyWriter::push`] says,
    /// but with sources in the order of (time, source).
    ///
    /// # Panics
    /// If there are not as many times, weights or rows as sources, or edges have no times.
    pub fn push_timed(&mut self, times: &[u64], sources: &[u64], weights: &[f32], features: &[u8]) -> Result<()> {
        assert_eq!(times.len(), sources.len(), "one time per edge");
        let TimesWriter { encoder, files } = self.times.as_mut().expect("edges have times");
        encoder.push(times);
        files.drain(encoder)?;
        self.push_list(sources, weights, features)
    }

    /// Appends the adjacency list of the next node: its sources, ascending, their weights if the graph is weighted, and their
    /// encoded rows if edges have features.
    ///
    /// # Panics
    /// If there are not as many weights or rows as sources, or edges have times.
    pub fn push(&mut self, sources: &[u64], weights: &[f32], features: &[u8]) -> Result<()> {
        assert!(self.times.is_none(), "edges have times");
        self.push_list(sources, weights, features)
    }

    fn push_list(&mut self, sources: &[u64], weights: &[f32], features: &[u8]) -> Result<()> {
        for &source in sources {
            self.bucket_edges[self.sources.chunk_of(NodeId(source)).0 as usize] += 1;
        }
        if let Some(writer) = &mut self.weights {
            assert_eq!(weights.len(), sources.len(), "one weight per edge");
            writer.encoder.push_list(weights);
            writer.drain()?;
        }
        if let Some(writer) = &mut self.features {
            let stride = writer.encoder.layout.stride as usize;
            assert_eq!(features.len(), sources.len() * stride, "one row per edge");
            writer.encoder.push_encoded(features);
            writer.drain()?;
        }
        match &mut self.encoder {
            Encoder::Chosen(encoder) => {
                encoder.push(sources);
                self.edges.drain(encoder)?;
            }
            Encoder::Sampling(sample) => {
                if (sample.sources.len() + sources.len()).max(sample.ends.len() + 1) >= SAMPLE_EDGES {
                    // The list that completes the sample may be as large as memory allows, so it is not copied.
                    self.choose(Some(sources));
                } else {
                    sample.sources.extend_from_slice(sources);
                    sample.ends.push(sample.sources.len());
                }
            }
        }
        Ok(())
    }

    /// Chooses the codec by the sample and its `last` list, and encodes them.
    fn choose(&mut self, last: Option<&[u64]>) {
        let Encoder::Sampling(sample) = &self.encoder else {
            return;
        };
        let first_node = self.span.first_node.0;
        let codec = choose_codec(self.sources.nodes(), (first_node..).zip(sample.lists().chain(last)));
        let mut encoder = RowsEncoder::new(codec, self.sources.nodes(), first_node);
        encoder.reserve(self.span.rows);
        sample.lists().chain(last).for_each(|list| encoder.push(list));
        self.encoder = Encoder::Chosen(Box::new(encoder));
    }

    /// Completes the files. They are not synced yet.
    ///
    /// # Panics
    /// If fewer adjacency lists were pushed than the chunk has nodes.
    pub fn finish(mut self) -> Result<(ChunkEntry, Vec<WrittenFile>)> {
        self.choose(None);
        let Encoder::Chosen(encoder) = self.encoder else { unreachable!("a codec was just chosen") };
        let (meta, files) = self.edges.finish(*encoder, self.span)?;
        let mut files = Vec::from(files);
        if let Some(TimesWriter { encoder, files: of_times }) = self.times {
            files.extend(of_times.finish(encoder, self.span)?.1);
        }
        for writer in self.weights.into_iter().chain(self.features) {
            files.push(writer.finish(self.span, meta.edges)?);
        }
        Ok((ChunkEntry::of_buckets(self.bucket_edges), files))
    }
}

impl EdgeRowsWriter {
    /// Writes the rows that are ready, if they are many.
    fn drain(&mut self) -> Result<()> {
        if self.encoder.ready.len() >= DRAIN_BYTES {
            self.file.write(&self.encoder.ready)?;
            self.encoder.ready.clear();
        }
        Ok(())
    }

    fn finish(mut self, span: ChunkSpan, edges: u64) -> Result<WrittenFile> {
        let layout = self.encoder.layout;
        self.file.write(&self.encoder.finish())?;
        self.file.finish(EdgeRowsMeta { span, edges, layout }.encode(self.kind))
    }
}

impl Sample {
    fn lists(&self) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.sources[start..end])
    }
}

#[cfg(test)]
mod tests {
    use grappa_formats::rows::RowsMeta;
    use grappa_io::container::ContainerFile;

    use super::*;

    #[test]
    fn exceptions_beyond_a_buffer_wait_on_disk_and_are_in_the_same_place() {
        const NODES: u64 = 60_000;
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = StoreFolder::begin(&folder.path().join("store.grappa"), None, false).unwrap();
        let chunks = ChunkMap::uniform(NODES, 1);
        // Gaps of about 7 bits take more than 255 bits together, and less than Elias-Fano.
        let list = |node: u64| -> Vec<u64> {
            let gaps = (0..45).map(|k| 1 + (node * 31 + k * 47) % 120);
            let sources = gaps.scan(node * 17 % 50_000, |source, gap| {
                *source += gap;
                Some(*source)
            });
            sources.collect()
        };
        let mut writer = AdjacencyWriter::create(&store, &chunks, ChunkId(0), false, None).unwrap();
        for node in 0..NODES {
            writer.push(&list(node), &[], &[]).unwrap();
            if let Encoder::Chosen(encoder) = &writer.encoder {
                assert!(encoder.exceptions_bytes() < DRAIN_BYTES);
            }
        }
        let (_, files) = writer.finish().unwrap();
        let degrees = ContainerFile::open(&files[0].path, FileKind::DEGREES).unwrap();
        let meta = RowsMeta::decode(&degrees.header().meta).unwrap();
        assert!(meta.exceptions * 6 > DRAIN_BYTES as u64, "{meta:?}");
        let mut whole = RowsEncoder::new(meta.codec, NODES, 0);
        (0..NODES).for_each(|node| whole.push(&list(node)));
        assert!(degrees.read_payload().unwrap() == whole.finish().degrees_payload);
    }
}
