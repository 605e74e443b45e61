//! Writes and syncs chunks in parallel.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crossbeam::channel::{self, Receiver};
use grappa_formats::{ChunkId, manifest::FileEntry};
use grappa_io::{Error, Result, container::WrittenFile, durable, workers};

use super::StoreFolder;

/// The maximum number of chunks whose files wait to be synced.
const SYNC_QUEUE: usize = 8;
/// Threads that sync files. They wait for the disk. Several at once wait less, because a file system commits the changes of
/// all of them together.
const SYNC_THREADS: usize = 8;

impl StoreFolder {
    /// Calls `write` for each of `chunks`, on `threads` threads. Other threads sync the files and then call `done` with the
    /// result of `write` and the manifest's entries of the files.
    pub fn write_chunks<T: Send>(
        &self,
        threads: usize,
        chunks: &[ChunkId],
        write: impl Fn(ChunkId) -> Result<(T, Vec<WrittenFile>)> + Sync,
        done: impl Fn(ChunkId, T, Vec<FileEntry>) -> Result<()> + Sync,
    ) -> Result<()> {
        let (written, to_sync) = channel::bounded(SYNC_QUEUE);
        let failed = AtomicBool::new(false);
        let sync_all = |to_sync: Receiver<(ChunkId, T, Vec<WrittenFile>)>| -> Result<()> {
            for (chunk, result, files) in to_sync {
                files.iter().try_for_each(WrittenFile::sync)?;
                durable::sync_folder(&self.chunk(chunk)?)?;
                done(chunk, result, files.iter().map(|file| self.entry(file)).collect())?;
            }
            Ok(())
        };
        let sync_all = |to_sync| sync_all(to_sync).inspect_err(|_| failed.store(true, Ordering::Relaxed));
        thread::scope(|scope| {
            let syncers: Vec<_> = (0..SYNC_THREADS)
                .map(|_| {
                    let to_sync = to_sync.clone();
                    workers::spawn(scope, || sync_all(to_sync))
                })
                .collect::<Result<_>>()?;
            drop(to_sync);
            let result = workers::for_each(threads, chunks, |chunk| {
                // If a syncer failed, its error is returned below. This one only ends the work.
                if failed.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                let (result, files) = write(chunk)?;
                written.send((chunk, result, files)).map_err(|_| Error::Stopped)
            });
            drop(written);
            let synced: Vec<Result<()>> = syncers.into_iter().map(workers::join).collect();
            synced.into_iter().collect::<Result<()>>().and(result)
        })
    }
}
