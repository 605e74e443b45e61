//! The in-degrees of halo nodes: the file `degrees` of chunks that a slice lacks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    ChunkId,
    container::FileKind,
    manifest::FileEntry,
    rows::{DegreesEncoder, LINE_BYTES, LINE_ROWS, RowCodec, RowsMeta},
};
use grappa_io::{
    Error, Result,
    container::{ContainerWriter, WrittenFile},
    journal::Journal,
    progress::{Progress, check_stopped},
};
use grappa_storage::{Store, files, writer::StoreFolder};

use super::record::{RELEASE_ROWS, Record};

/// In-degrees that the store has in another form than a slice: at the start of adjacency lists in gap code.
pub(super) struct HaloDegrees<'a> {
    pub store: &'a Store,
    pub chunks: BTreeSet<u32>,
    pub threads: usize,
    pub progress: &'a dyn Progress,
}

impl HaloDegrees<'_> {
    /// Whether the in-degrees of a chunk of `store` must be written anew. None if the store lacks them.
    pub fn must_write(store: &Store, chunk: ChunkId) -> Result<Option<bool>> {
        let entry = &store.manifest().chunks[chunk.0 as usize];
        if !entry.present && !entry.halo_degrees {
            return Ok(None);
        }
        let file = store.file(&files::of_chunk(chunk, "degrees"))?;
        let meta = RowsMeta::decode(&file.header().meta).map_err(Error::format(file.path()))?;
        Ok(Some(meta.codec != RowCodec::EliasFano))
    }

    fn bytes_of(&self, chunk: u32) -> u64 {
        let nodes = self.store.chunks().len(ChunkId(chunk));
        nodes.div_ceil(LINE_ROWS) * LINE_BYTES as u64
    }

    /// About how many bytes the files take.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|&chunk| self.bytes_of(chunk)).sum()
    }

    /// Writes the files that are not in `done`. Returns all.
    pub fn write(
        &self,
        folder: &StoreFolder,
        journal: &Journal,
        done: BTreeMap<u32, FileEntry>,
    ) -> Result<BTreeMap<u32, FileEntry>> {
        let missing = self.chunks.iter().filter(|&chunk| !done.contains_key(chunk));
        let missing: Vec<ChunkId> = missing.copied().map(ChunkId).collect();
        if missing.is_empty() {
            return Ok(done);
        }
        let bytes = missing.iter().map(|chunk| self.bytes_of(chunk.0)).sum();
        self.progress.stage("writing in-degrees", Some(bytes));
        let done = Mutex::new(done);
        folder.write_chunks(
            self.threads,
            &missing,
            |chunk| Ok(((), vec![self.chunk(folder, chunk)?])),
            |chunk, (), files| {
                let [file] = <[FileEntry; 1]>::try_from(files).expect("one file was written");
                journal.append(&Record::Degrees(chunk.0, file.clone()))?;
                done.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk.0, file);
                Ok(())
            },
        )?;
        Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn chunk(&self, folder: &StoreFolder, chunk: ChunkId) -> Result<WrittenFile> {
        let (map, files) = (self.store.chunks(), self.store.chunk_in_order(chunk)?);
        let rows = files.rows();
        let path = folder.chunk(chunk)?.join("degrees");
        let mut writer = ContainerWriter::create(&path, FileKind::DEGREES, RowsMeta::BYTES)?;
        let mut encoder = DegreesEncoder::new(map.nodes(), map.range(chunk).start);
        encoder.reserve(rows.rows());
        for start in (0..rows.rows()).step_by(RELEASE_ROWS as usize) {
            let end = rows.rows().min(start + RELEASE_ROWS);
            rows.degrees(start..end).try_for_each(|degree| {
                encoder.push(degree?);
                Ok(())
            })?;
            files.release_rows(start..end);
            let lines = (end - start).div_ceil(LINE_ROWS);
            self.progress.advance(lines * LINE_BYTES as u64, 0);
            check_stopped(self.progress)?;
        }
        let (payload, meta) = encoder.finish();
        writer.write(&payload)?;
        writer.finish(meta.encode())
    }
}
