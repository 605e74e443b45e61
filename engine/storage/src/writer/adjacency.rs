//! Encodes the adjacency lists of a chunk.

use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    chunks::ChunkMap,
    container::FileKind,
    manifest::ChunkEntry,
    rows::{LINE_BYTES, LINE_ROWS, RowsEncoder, RowsMeta, choose_codec},
    weights::{WeightsEncoder, WeightsMeta},
};
use grappa_io::{
    Result,
    container::{ContainerWriter, WrittenFile},
};

use super::StoreFolder;

/// Edges in the sample from which the codec of a chunk is chosen.
const SAMPLE_EDGES: usize = 1 << 15;
/// Encoded bytes per write.
const DRAIN_BYTES: usize = 256 << 10;

/// Writes the adjacency lists of one chunk: the files `edges`, `degrees` and, if the graph is weighted, `weights`.
///
/// Adjacency lists are pushed in the order of their destinations and encoded at once. Memory: the sample from which the
/// codec is chosen, the directory of the lists ([`AdjacencyWriter::directory_bytes`]), and a buffer per file.
pub struct AdjacencyWriter<'a> {
    chunks: &'a ChunkMap,
    span: ChunkSpan,
    bucket_edges: Vec<u64>,
    encoder: Encoder,
    edges: ContainerWriter,
    degrees: ContainerWriter,
    weights: Option<WeightsWriter>,
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

struct WeightsWriter {
    file: ContainerWriter,
    encoder: WeightsEncoder,
}

impl<'a> AdjacencyWriter<'a> {
    /// Bytes of memory for the directory of `lists` adjacency lists. A list of 255 or more sources takes 6 bytes more.
    pub fn directory_bytes(lists: u64) -> u64 {
        lists.div_ceil(LINE_ROWS) * LINE_BYTES as u64
    }

    /// Creates the files of `chunk`.
    pub fn create(store: &StoreFolder, chunks: &'a ChunkMap, chunk: ChunkId, weighted: bool) -> Result<Self> {
        let folder = store.chunk(chunk)?;
        let file = |name: &str, kind, meta_bytes| ContainerWriter::create(&folder.join(name), kind, meta_bytes);
        let weights = match weighted {
            true => {
                let file = file("weights", FileKind::WEIGHTS, WeightsMeta::BYTES)?;
                Some(WeightsWriter {
                    file,
                    encoder: WeightsEncoder::default(),
                })
            }
            false => None,
        };
        Ok(Self {
            chunks,
            span: ChunkSpan::of(chunks, chunk),
            bucket_edges: vec![0; chunks.chunks() as usize],
            encoder: Encoder::Sampling(Sample::default()),
            edges: file("edges", FileKind::ROWS, RowsMeta::BYTES)?,
            degrees: file("degrees", FileKind::DEGREES, RowsMeta::BYTES)?,
            weights,
        })
    }

    /// Appends the adjacency list of the next node: its sources, ascending, and their weights if the graph is weighted.
    pub fn push(&mut self, sources: &[u64], weights: &[f32]) -> Result<()> {
        for &source in sources {
            self.bucket_edges[self.chunks.chunk_of(NodeId(source)).0 as usize] += 1;
        }
        if let Some(writer) = &mut self.weights {
            assert_eq!(weights.len(), sources.len(), "one weight per edge");
            writer.encoder.push_row(weights);
            if writer.encoder.ready_bytes() >= DRAIN_BYTES {
                writer.file.write(&writer.encoder.take_bytes())?;
            }
        }
        match &mut self.encoder {
            Encoder::Chosen(encoder) => {
                encoder.push(sources);
                if encoder.finished_bytes() >= DRAIN_BYTES {
                    self.edges.write(&encoder.take_bytes())?;
                }
            }
            Encoder::Sampling(sample) => {
                sample.sources.extend_from_slice(sources);
                sample.ends.push(sample.sources.len());
                if sample.sources.len().max(sample.ends.len()) >= SAMPLE_EDGES {
                    self.choose();
                }
            }
        }
        Ok(())
    }

    /// Chooses the codec by the sample, and encodes the sample.
    fn choose(&mut self) {
        let Encoder::Sampling(sample) = &self.encoder else {
            return;
        };
        let first_node = self.span.first_node.0;
        let codec = choose_codec(self.chunks.nodes(), (first_node..).zip(sample.lists()));
        let mut encoder = RowsEncoder::new(codec, self.chunks.nodes(), first_node);
        encoder.reserve(self.span.rows);
        sample.lists().for_each(|list| encoder.push(list));
        self.encoder = Encoder::Chosen(Box::new(encoder));
    }

    /// Completes the files. They are not synced yet.
    ///
    /// # Panics
    /// If fewer adjacency lists were pushed than the chunk has nodes.
    pub fn finish(mut self) -> Result<(ChunkEntry, Vec<WrittenFile>)> {
        self.choose();
        let Encoder::Chosen(encoder) = self.encoder else {
            unreachable!("a codec was just chosen")
        };
        let tail = encoder.finish();
        assert_eq!(
            tail.meta.rows, self.span.rows,
            "one adjacency list per node of chunk {}",
            self.span.chunk
        );
        self.edges.write(&tail.edges_payload_rest)?;
        self.degrees.write(&tail.degrees_payload)?;
        let mut files = vec![
            self.degrees.finish(tail.meta.encode())?,
            self.edges.finish(tail.meta.encode())?,
        ];
        if let Some(mut writer) = self.weights {
            writer.file.write(&writer.encoder.finish())?;
            let meta = WeightsMeta {
                span: self.span,
                edges: tail.meta.edges,
            };
            files.push(writer.file.finish(meta.encode())?);
        }
        Ok((ChunkEntry::of_buckets(self.bucket_edges), files))
    }
}

impl Sample {
    fn lists(&self) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.sources[start..end])
    }
}
