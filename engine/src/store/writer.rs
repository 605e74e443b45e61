//! Writing a store: a folder that grows under a temporary name and gets its own when it is complete.
//!
//! ```text
//! NAME.grappa.partial/     while it grows
//!     chunk-<i>/...        complete files, synced one by one
//!     scratch/...          spill files
//!     manifest             last
//! NAME.grappa/             after one rename
//! ```
//!
//! Whoever dies before the rename leaves a folder that no program takes for a store, and an existing store is never
//! touched.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use crossbeam::channel::{self, Receiver};
use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    assignment::{Assignment, Current},
    chunks::ChunkMap,
    container::FileKind,
    manifest::{ChunkEntry, FileEntry, Manifest},
    rows::{RowsEncoder, RowsMeta, choose_codec},
    weights::{WeightsEncoder, WeightsMeta},
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{
    Error, Result,
    io::{
        container::{ContainerWriter, WrittenFile},
        durable,
    },
    workers,
};

/// Edges that are looked at before a chunk's row codec is chosen.
const SAMPLE_EDGES: usize = 1 << 15;
/// Encoded bytes that are kept before they go to the file.
const DRAIN_BYTES: usize = 256 << 10;

/// Chunks whose files may wait to be synced.
const SYNC_QUEUE: usize = 8;
/// Threads that sync files. They wait for the disk, and together they wait for fewer commits of the file system.
const SYNC_THREADS: usize = 8;

/// The folder of a store that is being written.
#[derive(Debug, Clone)]
pub struct StoreFolder {
    store: PathBuf,
    partial: PathBuf,
    scratch: PathBuf,
}

/// What became of a folder left by an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// There was none.
    Fresh,
    /// It was there and is to be resumed.
    Resumed,
}

impl StoreFolder {
    /// Makes the folder in which the store `store` grows. Scratch files go below `tmp`, or into the folder itself.
    ///
    /// Fails if `store` exists, or if an earlier run left a folder and `resume` does not ask for it.
    pub fn begin(store: &Path, tmp: Option<&Path>, resume: bool) -> Result<(Self, Begun)> {
        let partial = with_suffix(store, ".partial");
        if store.symlink_metadata().is_ok() {
            let what = "cannot create the store: something with this name exists; remove it or choose another --out";
            return Err(Error::input(store, crate::Position::Whole, what));
        }
        let begun = match fs::create_dir(&partial) {
            Ok(()) => Begun::Fresh,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && resume => Begun::Resumed,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let what = "an earlier run left this unfinished store; continue it with --resume, or remove it";
                return Err(Error::input(&partial, crate::Position::Whole, what));
            }
            Err(e) => return Err(Error::io("create the folder", &partial)(e)),
        };
        let scratch = match tmp {
            // Two stores of one name in different folders must not share scratch files.
            Some(tmp) => tmp.join(format!("grappa-scratch-{:016x}", name_hash(&partial)?)),
            None => partial.join("scratch"),
        };
        if let Err(e) = fs::create_dir_all(&scratch) {
            if begun == Begun::Fresh {
                // Nothing is in it yet, and a wrong --tmp is no reason to leave it.
                remove_all(&partial)?;
            }
            return Err(Error::io("create the folder", &scratch)(e));
        }
        Ok((
            Self {
                store: store.to_owned(),
                partial,
                scratch,
            },
            begun,
        ))
    }

    /// What becomes of the folder when making the store has failed with `error`, and what the user is told.
    pub fn failed(&self, begun: Begun, error: Error) -> Error {
        match error {
            Error::Io { .. } => Error::Interrupted {
                partial: self.partial.clone(),
                source: Box::new(error),
            },
            // What is wrong with the input or the options stays wrong: there is nothing to resume.
            _ if begun == Begun::Fresh => {
                self.abandon();
                error
            }
            _ => error,
        }
    }

    /// Removes the unfinished store, as far as that can be done.
    fn abandon(&self) {
        // Whoever calls this has an error to tell that matters more than what is left lying about.
        for folder in [&self.scratch, &self.partial] {
            if let Err(error) = remove_all(folder) {
                tracing::warn!("{error}");
            }
        }
    }

    /// The folder in which the store grows.
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// An empty folder for scratch files, which is removed with the others at the end. What an earlier run left there
    /// is removed.
    pub fn scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.join(name);
        remove_all(&folder)?;
        fs::create_dir_all(&folder).map_err(Error::io("create the folder", &folder))?;
        Ok(folder)
    }

    /// The folder for scratch files that survive a crash.
    pub fn lasting_scratch(&self) -> &Path {
        &self.scratch
    }

    /// The folder of a chunk, which is created if need be.
    pub fn chunk(&self, chunk: ChunkId) -> Result<PathBuf> {
        self.folder(&chunk_folder(chunk))
    }

    /// A folder of the store, which is created if need be.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.partial.join(name);
        fs::create_dir_all(&folder).map_err(Error::io("create the folder", &folder))?;
        Ok(folder)
    }

    /// The manifest's entry for a file of this store.
    pub fn entry(&self, file: &WrittenFile) -> FileEntry {
        let path = file
            .path
            .strip_prefix(&self.partial)
            .expect("files of a store are inside it");
        let path = path.to_str().expect("names inside a store are ASCII").to_owned();
        FileEntry {
            path,
            bytes: file.bytes,
            digest: file.digest,
        }
    }

    /// Writes and syncs a small container file; returns its entry.
    pub fn write_file(&self, path: &str, (bytes, digest): (Vec<u8>, u64)) -> Result<FileEntry> {
        durable::write_file(&self.partial.join(path), &bytes)?;
        Ok(FileEntry {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            digest,
        })
    }

    /// Writes the files of `chunks`, on `threads` threads, while others sync them and then report each chunk
    /// to `done`, with what `write` returned for it and the manifest's entries of its files.
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
        std::thread::scope(|scope| {
            let syncers: Vec<_> = (0..SYNC_THREADS)
                .map(|_| {
                    let to_sync = to_sync.clone();
                    scope.spawn(|| sync_all(to_sync))
                })
                .collect();
            drop(to_sync);
            let result = workers::for_each(threads, chunks, |chunk| {
                // If a syncer failed, its error is the one to tell; this one only ends the work.
                let gone = || Error::Options("files could not be synced".into());
                if failed.load(Ordering::Relaxed) {
                    return Err(gone());
                }
                let (result, files) = write(chunk)?;
                written.send((chunk, result, files)).map_err(|_| gone())
            });
            drop(written);
            let synced: Vec<Result<()>> = syncers
                .into_iter()
                .map(|syncer| syncer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            synced.into_iter().collect::<Result<()>>().and(result)
        })
    }

    /// Completes the store: the first assignment, the manifest, the removal of everything else, and the rename.
    ///
    /// Every file that the manifest names must be synced. Returns the length of all files. If it is interrupted it can
    /// be done again, from the journal or, once that is gone, from the manifest.
    pub fn commit(&self, manifest: &Manifest, journal: &Path) -> Result<u64> {
        manifest.check().expect("what was written makes a valid manifest");
        let assignment = Assignment::whole(manifest.chunks.len() as u32);
        self.folder("assignments")?;
        let (bytes, _) = assignment.encode();
        durable::write_file(&self.partial.join("assignments/0"), &bytes)?;
        let current = Current {
            generation: assignment.generation(),
        }
        .encode();
        durable::write_file(&self.partial.join("assignments/CURRENT"), current.as_bytes())?;

        let encoded = manifest.encode();
        durable::write_file(&self.partial.join("manifest"), &encoded)?;
        remove_all(&self.scratch)?;
        match fs::remove_file(journal) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", journal)(e)),
            _ => {}
        }
        for entry in fs::read_dir(&self.partial).map_err(Error::io("list", &self.partial))? {
            let path = entry.map_err(Error::io("list", &self.partial))?.path();
            if path.is_dir() {
                durable::sync_folder(&path)?;
            }
        }
        durable::sync_folder(&self.partial)?;
        renameat_with(CWD, &self.partial, CWD, &self.store, RenameFlags::NOREPLACE)
            .map_err(io::Error::from)
            .map_err(Error::io("give its name to the finished store", &self.store))?;
        durable::sync_folder(durable::parent(&self.store))?;
        let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        Ok(files + encoded.len() as u64 + bytes.len() as u64 + current.len() as u64)
    }
}

/// Fails unless a run that is to go on in `folder` has the options of the run that began there: name and value of each
/// that the store depends on.
pub fn same_options(folder: &Path, before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in now {
        let earlier = before.get(name).map_or("not given", |v| v.as_str());
        if earlier != value {
            return Err(Error::Options(format!(
                "cannot resume {}: the run that began it had {name} = {earlier}, this one has {value}; give the same \
                 options, or remove that folder and start again",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Name of the folder of a chunk.
pub fn chunk_folder(chunk: ChunkId) -> String {
    format!("chunk-{chunk}")
}

/// `path` with something appended to its last name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    // `out/` and `out` are the same store.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}

fn name_hash(path: &Path) -> Result<u64> {
    let whole = std::path::absolute(path).map_err(Error::io("resolve", path))?;
    Ok(xxhash_rust::xxh3::xxh3_64(whole.as_os_str().as_encoded_bytes()))
}

fn remove_all(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Writes the rows of one chunk: `edges`, `degrees` and, if the graph is weighted, `weights`.
///
/// Rows come in order and are encoded as they come. Memory: the sample from which the codec is chosen, the row
/// directory (some ten bits a row), and a buffer per file.
pub struct ChunkRowsWriter<'a> {
    chunks: &'a ChunkMap,
    span: ChunkSpan,
    bucket_edges: Vec<u64>,
    encoder: Encoder,
    edges: ContainerWriter,
    degrees: ContainerWriter,
    weights: Option<WeightsWriter>,
}

enum Encoder {
    /// Rows kept until there are enough to choose a codec by.
    Sampling(Sample),
    Chosen(Box<RowsEncoder>),
}

#[derive(Default)]
struct Sample {
    sources: Vec<u64>,
    /// Where each row ends in `sources`.
    ends: Vec<usize>,
}

struct WeightsWriter {
    file: ContainerWriter,
    encoder: WeightsEncoder,
}

impl<'a> ChunkRowsWriter<'a> {
    /// Begins the files of `chunk`.
    pub fn create(store: &StoreFolder, chunks: &'a ChunkMap, chunk: ChunkId, weighted: bool) -> Result<Self> {
        let folder = store.chunk(chunk)?;
        let file = |name: &str, kind, meta_bytes| ContainerWriter::create(&folder.join(name), kind, meta_bytes, 64);
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

    /// Appends the next row: its sources ascending, and a weight for each if the graph is weighted.
    pub fn push(&mut self, sources: &[u64], weights: &[f32]) -> Result<()> {
        for &source in sources {
            self.bucket_edges[self.chunks.chunk_of(NodeId(source)).0 as usize] += 1;
        }
        if let Some(writer) = &mut self.weights {
            assert_eq!(weights.len(), sources.len(), "a weight for each edge");
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

    /// Ends the sampling: chooses the codec and encodes the sample.
    fn choose(&mut self) {
        let Encoder::Sampling(sample) = &self.encoder else {
            return;
        };
        let first_node = self.span.first_node.0;
        let codec = choose_codec(self.chunks.nodes(), (first_node..).zip(sample.rows()));
        let mut encoder = RowsEncoder::new(codec, self.chunks.nodes(), first_node);
        sample.rows().for_each(|row| encoder.push(row));
        self.encoder = Encoder::Chosen(Box::new(encoder));
    }

    /// Completes the files. They are not synced yet.
    ///
    /// # Panics
    /// If there were fewer rows than nodes in the chunk.
    pub fn finish(mut self) -> Result<(ChunkEntry, Vec<WrittenFile>)> {
        self.choose();
        let Encoder::Chosen(encoder) = self.encoder else {
            unreachable!("a codec was just chosen")
        };
        let tail = encoder.finish();
        assert_eq!(
            tail.meta.rows, self.span.rows,
            "a row for each node of chunk {}",
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
        Ok((
            ChunkEntry {
                present: true,
                edges: tail.meta.edges,
                bucket_edges: self.bucket_edges,
            },
            files,
        ))
    }
}

impl Sample {
    fn rows(&self) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.sources[start..end])
    }
}
