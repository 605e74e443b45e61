//! Writing a store: a folder that grows under a temporary name and gets its own when it is complete.
//!
//! ```text
//! NAME.grappa.partial/     while it grows; locked by the process that writes it
//!     journal              what is finished
//!     chunk-<i>/...        complete files, synced one by one
//!     scratch/...          spill files; with --tmp they are in a folder below that,
//!     scratch-folder       and this file says which
//!     manifest             last: from now on the store is being committed
//! NAME.grappa/             after one rename
//! ```
//!
//! Whoever dies before the rename leaves a folder that no program takes for a store, and an existing store is never
//! touched.
//!
//! A commit may be interrupted and done again. Once the manifest has its name, all other files of the store are complete and
//! on disk, and no scratch file is needed any more: a resumed run that finds a manifest does the commit again, and nothing
//! else ([`StoreFolder::committing`]). Before, the journal says what is finished.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::Read,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
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
use grappa_io::{
    Error, Position, Result,
    container::{ContainerWriter, WrittenFile},
    durable::{self, FolderLock, Patience, TEMPORARY},
    journal::Journal,
    regular, workers,
};
use rustix::process::geteuid;

use crate::files;

/// Name of the journal in the folder of an unfinished store.
pub const JOURNAL: &str = "journal";
/// Name of the folder for scratch files in the folder of an unfinished store.
const SCRATCH: &str = "scratch";
/// Name of the file that says where scratch files are, if they are not in the folder of the unfinished store.
const SCRATCH_FOLDER: &str = "scratch-folder";

/// Edges that are looked at before a chunk's row codec is chosen.
const SAMPLE_EDGES: usize = 1 << 15;
/// Encoded bytes that are kept before they go to the file.
const DRAIN_BYTES: usize = 256 << 10;

/// How often a folder in which nothing has begun is looked at again, and how long is waited in between.
const EMPTY_LOOKS: u32 = 20;
const EMPTY_LOOK: Duration = Duration::from_millis(10);

/// Chunks whose files may wait to be synced.
const SYNC_QUEUE: usize = 8;
/// Threads that sync files. They wait for the disk, and together they wait for fewer commits of the file system.
const SYNC_THREADS: usize = 8;

/// The folder of a store that is being written. No other process writes there while a clone of this lives.
#[derive(Debug, Clone)]
pub struct StoreFolder {
    store: PathBuf,
    partial: PathBuf,
    scratch: PathBuf,
    _lock: Arc<FolderLock>,
}

/// Whether the run that made the folder of an unfinished store has noted nothing yet.
fn nothing_begun(partial: &Path) -> Result<bool> {
    Ok(!partial.join(files::MANIFEST).exists() && Journal::is_empty(&partial.join(JOURNAL))?)
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
    /// A folder that an earlier run left is resumed if `resume` asks for it. If that run had not begun anything, it is emptied.
    ///
    /// # Errors
    /// If `store` exists, another process is making it, or an earlier run left a folder and `resume` does not ask for it.
    pub fn begin(store: &Path, tmp: Option<&Path>, resume: bool) -> Result<(Self, Begun)> {
        let partial = partial_folder(store);
        let mut looks = 0;
        let (lock, begun) = loop {
            if store.symlink_metadata().is_ok() {
                let what =
                    "cannot create the store: something with this name exists; remove it or choose another --out";
                return Err(Error::input(store, Position::Whole, what));
            }
            let begun = match durable::create_new_folder(&partial)? {
                true => Begun::Fresh,
                false => Begun::Resumed,
            };
            // Whoever made the folder, or wants to resume, expects it to be free.
            let patience = match begun == Begun::Fresh || resume {
                true => Patience::Moment,
                false => Patience::None,
            };
            // The process that had it may have finished the store, or given up: then everything is to be looked at anew.
            let Some(lock) = FolderLock::of(&partial, patience)? else {
                continue;
            };
            if store.symlink_metadata().is_ok() {
                if begun == Begun::Fresh {
                    durable::remove_folder(&partial)?;
                }
                continue;
            }
            // Whoever makes the folder locks it a moment later. A process that comes in between must not take it for one
            // that an earlier run left.
            if begun == Begun::Resumed && !resume && looks < EMPTY_LOOKS && nothing_begun(&partial)? {
                looks += 1;
                drop(lock);
                thread::sleep(EMPTY_LOOK);
                continue;
            }
            break (lock, begun);
        };
        if begun == Begun::Resumed && !resume {
            let what = "an earlier run left this unfinished store; continue it with --resume, or remove it";
            return Err(Error::input(&partial, Position::Whole, what));
        }
        if nothing_begun(&partial)? {
            // What is there may be of a run with other options: nothing of it may get into the store.
            clear(&partial)?;
        }
        let scratch = match scratch_folder(&partial, tmp) {
            Err(error) if begun == Begun::Fresh => {
                // Nothing is in it yet, and a wrong --tmp is no reason to leave it.
                durable::remove_folder(&partial)?;
                return Err(error);
            }
            scratch => scratch?,
        };
        let folder = Self {
            store: store.to_owned(),
            partial,
            scratch,
            _lock: Arc::new(lock),
        };
        Ok((folder, begun))
    }

    /// The manifest of a run that died while it committed. There is nothing to do but [`StoreFolder::commit`] it again.
    ///
    /// # Errors
    /// If the manifest can't be read or is damaged.
    pub fn committing(&self) -> Result<Option<Manifest>> {
        let path = self.partial.join(files::MANIFEST);
        regular::read_if_there(&path)?
            .map(|bytes| Manifest::decode(&bytes).map_err(Error::format(path)))
            .transpose()
    }

    /// What becomes of the folder when making the store has failed with `error`, and what the user is told.
    pub fn failed(&self, begun: Begun, error: Error) -> Error {
        match error {
            Error::Io { .. } | Error::Memory { .. } | Error::Thread { .. } => Error::Interrupted {
                partial: self.partial.clone(),
                source: Box::new(error),
            },
            // What is wrong with the input or the options stays wrong: there is nothing to resume.
            _ if begun == Begun::Fresh => {
                // The error matters more than what is left lying about.
                if let Err(left) = self.abandon() {
                    tracing::warn!("{left}");
                }
                error
            }
            _ => error,
        }
    }

    /// Removes the unfinished store.
    fn abandon(&self) -> Result<()> {
        // The journal first: if the removal is interrupted, nobody believes what is left.
        durable::remove_file(&self.partial.join(JOURNAL))?;
        durable::remove_folder(&self.scratch)?;
        durable::remove_folder(&self.partial)
    }

    /// The folder in which the store grows.
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// An empty folder for scratch files, which is removed with the others at the end. What an earlier run left there
    /// is removed.
    pub fn scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.join(name);
        durable::remove_folder(&folder)?;
        durable::create_folder(&folder)?;
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
        durable::create_folder(&folder)?;
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
        thread::scope(|scope| {
            let syncers: Vec<_> = (0..SYNC_THREADS)
                .map(|_| {
                    let to_sync = to_sync.clone();
                    workers::spawn(scope, || sync_all(to_sync))
                })
                .collect::<Result<_>>()?;
            drop(to_sync);
            let result = workers::for_each(threads, chunks, |chunk| {
                // If a syncer failed, its error is the one to tell; this one only ends the work.
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

    /// Completes the store: the first assignment, the manifest, the removal of everything else, and the rename.
    ///
    /// Every file that the manifest names must be synced. Returns the length of all files. If it is interrupted, it can be done
    /// again: until the manifest has its name, from the journal; after that, from the manifest.
    ///
    /// # Errors
    /// If a file is not the one that the manifest names, or the folder can't be written to.
    pub fn commit(&self, manifest: &Manifest) -> Result<u64> {
        manifest.check().expect("what was written makes a valid manifest");
        // Only headers are read, so this costs little, and a folder that is no store never gets the name of one.
        for file in &manifest.files {
            files::open(&self.partial, file)?;
        }
        let assignment = Assignment::whole(manifest.chunks.len() as u32);
        self.folder(files::ASSIGNMENTS)?;
        let (bytes, _) = assignment.encode();
        durable::write_file(&self.partial.join(files::assignment(0)), &bytes)?;
        let current = Current {
            generation: assignment.generation(),
        }
        .encode();
        durable::write_file(&self.partial.join(files::CURRENT), current.as_bytes())?;

        let encoded = manifest.encode();
        durable::write_file(&self.partial.join(files::MANIFEST), &encoded)?;
        durable::remove_folder(&self.scratch)?;
        durable::remove_file(&self.partial.join(SCRATCH_FOLDER))?;
        durable::remove_file(&self.partial.join(JOURNAL))?;
        for entry in fs::read_dir(&self.partial).map_err(Error::io("list", &self.partial))? {
            let path = entry.map_err(Error::io("list", &self.partial))?.path();
            if path.is_dir() {
                durable::sync_folder(&path)?;
            }
        }
        durable::sync_folder(&self.partial)?;
        durable::rename_new(&self.partial, &self.store)?;
        let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        Ok(files + encoded.len() as u64 + bytes.len() as u64 + current.len() as u64)
    }
}

/// Removes what is in the folder of an unfinished store that has neither manifest nor journal: left by a run that was killed
/// while it began, or while it removed what it had made.
fn clear(partial: &Path) -> Result<()> {
    let is_ours = |name: &str| {
        let name = name.strip_suffix(TEMPORARY).unwrap_or(name);
        let is_known = ["ids", "splits", files::ASSIGNMENTS, SCRATCH, SCRATCH_FOLDER, JOURNAL].contains(&name);
        is_known || name.starts_with("chunk-")
    };
    for entry in fs::read_dir(partial).map_err(Error::io("list", partial))? {
        let name = entry.map_err(Error::io("list", partial))?.file_name();
        if !name.to_str().is_some_and(is_ours) {
            let what =
                "this is in the folder of an unfinished store, but no part of one; move it, or choose another --out";
            return Err(Error::input(partial.join(name), Position::Whole, what));
        }
    }
    if let Some(scratch) = read_scratch_folder(partial)?.filter(|scratch| is_private(scratch)) {
        durable::remove_folder(&scratch)?;
    }
    durable::empty_folder(partial)
}

/// Makes the folder for scratch files, or finds the one that an earlier run made.
///
/// A folder for all users, such as /tmp, is no safe place for a name that others can guess. So below `tmp` the name is
/// random, it is noted in the folder of the unfinished store before it is used, and a folder is used, and later removed, only if
/// nobody but this user can write to it.
fn scratch_folder(partial: &Path, tmp: Option<&Path>) -> Result<PathBuf> {
    let noted = read_scratch_folder(partial)?;
    let scratch = match (noted, tmp) {
        (Some(scratch), _) => scratch,
        (None, Some(tmp)) => {
            durable::create_folder(tmp)?;
            let tmp = std::path::absolute(tmp).map_err(Error::io("resolve", tmp))?;
            let scratch = tmp.join(format!("grappa-scratch-{:016x}", random()?));
            durable::write_file(&partial.join(SCRATCH_FOLDER), scratch.as_os_str().as_bytes())?;
            scratch
        }
        (None, None) => {
            let scratch = partial.join(SCRATCH);
            durable::create_folder(&scratch)?;
            return Ok(scratch);
        }
    };
    if !durable::create_private_folder(&scratch)? && !is_private(&scratch) {
        let what = format!(
            "expected the folder for scratch files that the run of {} made, found something that other users can change; \
             remove that unfinished store, and start again",
            partial.display()
        );
        return Err(Error::input(scratch, Position::Whole, what));
    }
    Ok(scratch)
}

/// Where scratch files are, if they are not in the folder of the unfinished store.
fn read_scratch_folder(partial: &Path) -> Result<Option<PathBuf>> {
    let path = partial.join(SCRATCH_FOLDER);
    Ok(regular::read_if_there(&path)?.map(|bytes| OsString::from_vec(bytes).into()))
}

/// Whether this is a folder, and not a link to one, that only this user can look into.
fn is_private(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0)
}

/// A number that nobody can guess.
fn random() -> Result<u64> {
    let (source, mut bytes) = ("/dev/urandom", [0; 8]);
    fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::io("draw a name from", source))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Fails unless a run that is to go on in `folder` has the options of the run that began there: name and value of each
/// that the store depends on.
pub fn same_options(folder: &Path, before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in now {
        let earlier = before.get(name).map_or("not given", |v| v.as_str());
        if earlier != value {
            return Err(Error::conflict(
                format!(
                    "cannot resume {}: the run that began it had {name} = {earlier}, this one has {value}",
                    folder.display()
                ),
                "give the same options, or remove that folder and start again",
            ));
        }
    }
    Ok(())
}

/// That a journal does not begin with the options of its run.
pub fn not_begun(journal: &Path) -> Error {
    let what = "the journal does not begin as one of this program does; remove this unfinished store and start again";
    Error::input(journal, Position::Whole, what)
}

/// Name of the folder of a chunk.
pub fn chunk_folder(chunk: ChunkId) -> String {
    format!("chunk-{chunk}")
}

/// The folder in which the store `store` grows, until it is complete.
pub fn partial_folder(store: &Path) -> PathBuf {
    with_suffix(store, ".partial")
}

/// `path` with something appended to its last name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    // `out/` and `out` are the same store.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
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
