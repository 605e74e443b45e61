//! Rows of values that are computed in the order of nodes, on their way to a file for each chunk.
//!
//! A file appears under its name when it is complete and synced, so a run that was killed is continued after the last of
//! them: [`FeatureRowsWriter::keep_finished`].

use std::{ops::Range, path::Path};

use grappa_formats::{
    ChunkId, ChunkSpan,
    chunks::ChunkMap,
    container::FileKind,
    features::{FeatureLayout, FeaturesMeta},
    manifest::FeatureDtype,
};
use grappa_io::{
    Error, Position, Result,
    container::{ContainerFile, ContainerWriter},
    durable,
};

use crate::{files, writer::chunk_folder};

/// Rows that are encoded at a time.
pub const ENCODE_ROWS: usize = 256;

/// Writes rows to the files of their chunks, one after the other: `chunk-<i>` in a folder.
pub struct FeatureRowsWriter<'a> {
    chunks: &'a ChunkMap,
    folder: &'a Path,
    layout: FeatureLayout,
    current: Option<(ChunkSpan, ContainerWriter)>,
    done: Vec<Finished>,
}

/// A complete file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Length in bytes.
    pub bytes: u64,
    /// The digest in its header.
    pub digest: u64,
}

impl<'a> FeatureRowsWriter<'a> {
    /// Will write files to `folder`, which exists.
    pub fn new(chunks: &'a ChunkMap, folder: &'a Path, layout: FeatureLayout) -> Self {
        Self {
            chunks,
            folder,
            layout,
            current: None,
            done: Vec::new(),
        }
    }

    /// Where files are written.
    pub fn folder(&self) -> &Path {
        self.folder
    }

    /// What it holds in memory, about.
    pub fn memory(&self) -> u64 {
        ENCODE_ROWS as u64 * u64::from(self.layout.stride) + (1 << 20)
    }

    /// The chunks that are finished.
    pub fn finished(&self) -> &[Finished] {
        &self.done
    }

    /// Takes over the chunks from 0 on that an earlier run finished, and says which node comes after them.
    pub fn keep_finished(&mut self) -> Result<u64> {
        for chunk in (0..self.chunks.chunks()).map(ChunkId) {
            match open(self.folder, self.chunks, chunk) {
                Ok((file, layout)) if layout == self.layout => self.done.push(Finished {
                    bytes: file.bytes(),
                    digest: file.digest(),
                }),
                // Of another dtype, damaged or not there: it is made again.
                Ok(_) | Err(Error::Format { .. } | Error::Input { .. }) => return Ok(self.chunks.range(chunk).start),
                Err(error) => return Err(error),
            }
        }
        Ok(self.chunks.nodes())
    }

    /// Appends the rows of `nodes`, which follow those before.
    pub fn write(&mut self, nodes: Range<u64>, rows: &[f32]) -> Result<()> {
        self.check_storable(rows)?;
        let dim = self.layout.dim as usize;
        let stride = self.layout.stride as usize;
        let mut bytes = Vec::new();
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
            self.layout.encode_rows(now, &mut bytes);
            writer.write(&bytes)?;
            rest = later;
            node += count as u64;
            if node == end {
                self.finish()?;
            }
        }
        Ok(())
    }

    /// Fails if values would come back as others: numbers that overflow the type, and, where the type has neither, NaN and
    /// infinities.
    fn check_storable(&self, values: &[f32]) -> Result<()> {
        let unstorable = self.layout.unstorable(values);
        let kept = match self.layout.dtype {
            FeatureDtype::Int8 => 0,
            _ if unstorable > 0 => values.iter().filter(|value| !value.is_finite()).count(),
            _ => 0,
        };
        if unstorable == kept {
            return Ok(());
        }
        let what = format!(
            "a row has values that {} can't hold: they are too large, or not finite; store it as f32 (--dtype f32)",
            self.layout.dtype.name()
        );
        Err(Error::input(self.folder, Position::Whole, what))
    }

    /// Completes the folder when all rows were written: makes the files of chunks at the end that have none.
    pub fn complete(&mut self) -> Result<()> {
        while self.done.len() < self.chunks.chunks() as usize {
            let (span, writer) = self.begin()?;
            assert_eq!(span.rows, 0, "all rows were written");
            self.current = Some((span, writer));
            self.finish()?;
        }
        Ok(())
    }

    /// Begins the file of the next chunk.
    fn begin(&self) -> Result<(ChunkSpan, ContainerWriter)> {
        let chunk = ChunkId(self.done.len() as u32);
        let span = ChunkSpan::of(self.chunks, chunk);
        let path = durable::temporary_name(&self.folder.join(chunk_folder(chunk)));
        let writer = ContainerWriter::create(&path, FileKind::FEATURES, FeaturesMeta::BYTES)?;
        Ok((span, writer))
    }

    /// Completes the file that is being written.
    fn finish(&mut self) -> Result<()> {
        let (span, writer) = self.current.take().expect("a file was begun");
        let meta = FeaturesMeta {
            span,
            layout: self.layout,
        };
        let file = writer.finish(meta.encode())?;
        file.sync()?;
        durable::rename(&file.path, &self.folder.join(chunk_folder(span.chunk)))?;
        self.done.push(Finished {
            bytes: file.bytes,
            digest: file.digest,
        });
        Ok(())
    }
}

/// Opens the file of a chunk in a folder, and checks that it is that chunk's.
pub fn open(folder: &Path, chunks: &ChunkMap, chunk: ChunkId) -> Result<(ContainerFile, FeatureLayout)> {
    let path = folder.join(chunk_folder(chunk));
    let file = ContainerFile::open(&path, FileKind::FEATURES).map_err(files::missing)?;
    let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(&path))?;
    meta.span
        .expect(&ChunkSpan::of(chunks, chunk))
        .map_err(Error::format(&path))?;
    Ok((file, meta.layout))
}
