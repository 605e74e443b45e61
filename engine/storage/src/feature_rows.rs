//! Writes computed feature rows in the order of nodes, to one file per chunk.
//!
//! A file appears under its name when it is complete and synced. So a killed run continues after the last complete file
//! ([`FeatureRowsWriter::keep_finished`]).

use std::{collections::BTreeSet, ops::Range, path::Path};

use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    aggregates::AggregateFile,
    chunks::ChunkMap,
    container::FileKind,
    features::{FeatureLayout, FeaturesMeta},
    manifest::{FeatureDtype, FileEntry},
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, ContainerWriter},
    durable,
    ledger::Lease,
    progress::Progress,
};

use crate::{
    Store,
    files::{self, chunk_folder},
    writer::finished,
};

/// Number of feature rows that are encoded at once.
pub const ENCODE_ROWS: usize = 256;

/// Writes feature rows to the files of their chunks, one file after the other. They are called `chunk-<i>`.
pub struct FeatureRowsWriter<'a> {
    store: &'a Store,
    folder: &'a Path,
    layout: FeatureLayout,
    /// Of features that follow each row.
    features: Option<FeatureLayout>,
    current: Option<(ChunkSpan, ContainerWriter)>,
    done: Vec<AggregateFile>,
}

impl<'a> FeatureRowsWriter<'a> {
    /// A writer of a row for each node of `store`, to `folder`, which must exist.
    pub fn new(store: &'a Store, folder: &'a Path, layout: FeatureLayout) -> Self {
        Self { store, folder, layout, features: None, current: None, done: Vec::new() }
    }

    /// A writer of a row for each node, each with the features of its node, which are encoded as `features`.
    ///
    /// # Panics
    /// If features have another type or number of values than rows in `layout`.
    pub fn with_features(store: &'a Store, folder: &'a Path, layout: FeatureLayout, features: FeatureLayout) -> Self {
        assert_eq!((features.dtype, features.dim), (layout.dtype, layout.dim), "both rows are encoded alike");
        Self { features: Some(features), ..Self::new(store, folder, layout) }
    }

    /// The folder of the files.
    pub fn folder(&self) -> &Path {
        self.folder
    }

    /// Approximate bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        let beside = self.features.map_or(0, |features| u64::from(features.stride));
        Self::memory_of(self.layout) + ENCODE_ROWS as u64 * beside
    }

    /// The lease of its memory.
    pub fn lease(&self) -> Lease {
        Lease::new(
            "encoded rows",
            self.memory(),
            "some rows and the buffer of a file, 1 MiB: larger ones are not faster",
        )
    }

    /// Approximate bytes of memory that a writer of rows in `layout` takes.
    pub fn memory_of(layout: FeatureLayout) -> u64 {
        ENCODE_ROWS as u64 * u64::from(layout.stride) + (1 << 20)
    }

    /// The files of the chunks that are finished.
    pub fn finished(&self) -> &[AggregateFile] {
        &self.done
    }

    /// Keeps the files that an earlier run finished, from chunk 0 on, if their checksums are right. Returns the first node
    /// after them.
    pub fn keep_finished(&mut self, threads: usize, progress: &dyn Progress) -> Result<u64> {
        let chunks = self.store.chunks();
        let mut found = Vec::new();
        for chunk in (0..chunks.chunks()).map(ChunkId) {
            match open(self.folder, chunks, chunk) {
                Ok((file, meta)) if meta == self.meta(meta.span) => found.push((
                    FileEntry { path: chunk_folder(chunk), bytes: file.bytes(), digest: file.digest() },
                    FileKind::FEATURES,
                )),
                // The file has another type, is damaged, or does not exist. It is made again.
                Ok(_) | Err(Error::Format { .. } | Error::Input { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        let damaged: BTreeSet<String> =
            finished::to_rewrite(self.folder, &found, threads, progress)?.into_iter().collect();
        let sound = found.iter().take_while(|(file, _)| !damaged.contains(&file.path));
        self.done.extend(sound.map(|(file, _)| AggregateFile { bytes: file.bytes, digest: file.digest }));
        let next = ChunkId(self.done.len() as u32);
        Ok(match next.0 < chunks.chunks() {
            true => chunks.range(next).start,
            false => chunks.nodes(),
        })
    }

    /// Appends the feature rows of `nodes`, which must follow the last ones.
    ///
    /// # Errors
    /// If the stored type can't hold a value ([`Error::Unstorable`]), or a file can't be written.
    pub fn write(&mut self, nodes: Range<u64>, rows: &[f32]) -> Result<()> {
        self.write_with(nodes, rows, |_, _| unreachable!("rows have no features behind them"))
    }

    /// As [`write`](Self::write). `features` reads the encoded features of some nodes, if they follow the rows.
    ///
    /// # Errors
    /// Also if `features` fails.
    pub fn write_with(
        &mut self,
        nodes: Range<u64>,
        rows: &[f32],
        features: impl Fn(Range<u64>, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_storable(nodes.start, rows)?;
        let dim = self.layout.dim as usize;
        let stride = self.layout.stride as usize;
        let (mut bytes, mut beside) = (Vec::new(), Vec::new());
        let mut rest = rows;
        let mut node = nodes.start;
        while node < nodes.end {
            let (span, writer) = match &mut self.current {
                Some(current) => current,
                None => self.current.insert(self.begin()?),
            };
            let end = span.first_node.0 + span.rows;
            let count = ENCODE_ROWS.min((end.min(nodes.end) - node) as usize);
            let (now, later) = rest.split_at(count * dim);
            bytes.resize(count * stride, 0);
            match self.features {
                None => self.layout.encode_rows(now, &mut bytes),
                Some(layout) => {
                    let feature_stride = layout.stride as usize;
                    beside.resize(count * feature_stride, 0);
                    features(node..node + count as u64, &mut beside)?;
                    self.layout.encode_with_features(now, &beside, feature_stride, &mut bytes);
                }
            }
            writer.write(&bytes)?;
            rest = later;
            node += count as u64;
            if node == end {
                self.finish()?;
            }
        }
        Ok(())
    }

    /// Fails if the stored type can't hold a value of the rows from node `first` on: a number that overflows it, or NaN or infinity for
    /// int8.
    fn check_storable(&self, first: u64, values: &[f32]) -> Result<()> {
        if self.layout.unstorable(values) == 0 {
            return Ok(());
        }
        let Some(at) = values.iter().position(|&value| is_lost(self.layout.dtype, value)) else {
            return Ok(());
        };
        let (row, column) = (at / self.layout.dim as usize, at % self.layout.dim as usize);
        Err(Error::Unstorable {
            node: self.store.ids().name(NodeId(first + row as u64)),
            column,
            value: values[at],
            dtype: self.layout.dtype.name(),
            remedy: match is_lost(FeatureDtype::Bf16, values[at]) {
                false => "store the rows with --dtype bf16 or f32",
                true => "store the rows with --dtype f32",
            },
        })
    }

    /// Completes the folder after all feature rows were written. Writes the files of empty chunks at the end.
    pub fn complete(&mut self) -> Result<()> {
        while self.done.len() < self.store.chunks().chunks() as usize {
            let (span, writer) = self.begin()?;
            assert_eq!(span.rows, 0, "all feature rows were written");
            self.current = Some((span, writer));
            self.finish()?;
        }
        Ok(())
    }

    fn meta(&self, span: ChunkSpan) -> FeaturesMeta {
        FeaturesMeta { span, layout: self.layout, with_features: self.features.is_some() }
    }

    /// Begins the file of the next chunk.
    fn begin(&self) -> Result<(ChunkSpan, ContainerWriter)> {
        let chunk = ChunkId(self.done.len() as u32);
        let span = ChunkSpan::for_chunk(self.store.chunks(), chunk);
        let path = durable::temporary_name(&self.folder.join(chunk_folder(chunk)));
        let writer = ContainerWriter::create(&path, FileKind::FEATURES, FeaturesMeta::BYTES)?;
        Ok((span, writer))
    }

    /// Completes the current file.
    fn finish(&mut self) -> Result<()> {
        let (span, writer) = self.current.take().expect("a file was begun");
        let file = writer.finish(self.meta(span).encode())?;
        file.sync()?;
        durable::rename(&file.path, &self.folder.join(chunk_folder(span.chunk)))?;
        self.done.push(AggregateFile { bytes: file.bytes, digest: file.digest });
        Ok(())
    }
}

/// Opens the file of a chunk in `folder`, and checks that it belongs to the chunk.
pub fn open(folder: &Path, chunks: &ChunkMap, chunk: ChunkId) -> Result<(ContainerFile, FeaturesMeta)> {
    let path = folder.join(chunk_folder(chunk));
    let file = ContainerFile::open(&path, FileKind::FEATURES).map_err(files::missing)?;
    let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(&path))?;
    meta.span.expect(&ChunkSpan::for_chunk(chunks, chunk)).map_err(Error::format(&path))?;
    Ok((file, meta))
}

/// Whether a type can't hold a value. NaN and infinity are kept by all types but int8.
fn is_lost(dtype: FeatureDtype, value: f32) -> bool {
    let is_kept = !value.is_finite() && dtype != FeatureDtype::Int8;
    !is_kept && FeatureLayout::new(dtype, 1).unstorable(&[value]) > 0
}
