//! Makes a slice of a store: a store with some of its chunks.
//!
//! ```text
//! NAME.partial/ while it grows, as for any new store        grappa_storage::writer
//! for each file of the chunks and of the ids, on all threads:
//!     link it, or copy it if that is not possible
//!     compare it with its checksums, and record it in the journal
//! splits with the nodes of the chunks, manifest, rename
//! ```
//!
//! The files of a store never change, so stores can share them: hard links take no space and no time, and either store can be
//! removed. Between file systems they are copied. Every file is read once for the comparison. The slice has the node ids of the whole
//! store. Pre-aggregated features and assignments stay behind, because they are of the whole graph.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    ops::RangeInclusive,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use grappa_formats::{
    ChunkId,
    manifest::{ChunkEntry, FileEntry, Manifest, SplitEntry},
    splits,
};
use grappa_io::{
    Error, Position, Result,
    durable::{self, Temporary},
    journal::Journal,
    machine::free_disk_bytes,
    progress::Progress,
    regular,
    size::ByteSize,
    text, workers,
};
use grappa_storage::{
    Store,
    aggregates::manifest_digest,
    files,
    writer::{JOURNAL, StoreFolder, not_begun, same_options},
};
use serde::{Deserialize, Serialize};

/// Bytes that are copied between two reports of progress.
const COPY_BYTES: u64 = 64 << 20;

/// Options of [`place`].
#[derive(Debug, Clone)]
pub struct PlaceOptions {
    /// The chunks of the slice.
    pub chunks: Vec<RangeInclusive<u32>>,
    /// The store to make.
    pub out: PathBuf,
    /// Whether to copy files even where they can be linked.
    pub copy: bool,
    /// Number of threads.
    pub threads: usize,
    /// Whether to continue an unfinished run.
    pub resume: bool,
}

/// Result of [`place`]. Field names are keys of the JSON output of `grappa-store place`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// Number of nodes of the graph.
    pub nodes: u64,
    /// Number of nodes of the slice's chunks.
    pub nodes_present: u64,
    /// Number of edges of the slice.
    pub edges: u64,
    /// Number of chunks of the graph.
    pub chunks: u32,
    /// Number of chunks of the slice.
    pub chunks_present: u32,
    /// Files that are hard links to those of the store.
    pub files_linked: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Total length of the slice's files in bytes, shared ones included.
    pub bytes: u64,
}

/// One line of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    /// The run began, with these options.
    Started(BTreeMap<String, String>),
    /// The file with this path is there, and its checksums are right.
    File(String),
}

/// Makes a store of some chunks of `store`.
///
/// # Errors
/// If the store lacks a chunk, `out` exists, the disk is too small, or a file cannot be read or written or is damaged. After an I/O
/// error the unfinished store stays, and a run with `options.resume` continues it.
pub fn place(store: &Store, options: &PlaceOptions, progress: &dyn Progress) -> Result<Placed> {
    let job = Job::new(store, options, progress)?;
    if options.out.symlink_metadata().is_ok() {
        let what = "cannot create the store: something with this name exists; remove it or choose another --to";
        return Err(Error::input(&options.out, Position::Whole, what));
    }
    job.check_disk()?;
    let (folder, begun) = StoreFolder::begin(&options.out, None, options.resume)?;
    job.run(&folder).map_err(|error| folder.failed(begun, error))
}

struct Job<'a> {
    store: &'a Store,
    options: &'a PlaceOptions,
    progress: &'a dyn Progress,
    /// The manifest of the slice, but for the splits.
    manifest: Manifest,
    /// The files that the slice shares with the store.
    shared: Vec<FileEntry>,
}

/// What a run did with files.
#[derive(Default)]
struct Done {
    linked: u64,
    copied_bytes: u64,
}

impl<'a> Job<'a> {
    fn new(store: &'a Store, options: &'a PlaceOptions, progress: &'a dyn Progress) -> Result<Self> {
        workers::check_threads(options.threads)?;
        let wanted: BTreeSet<u32> = options.chunks.iter().cloned().flatten().collect();
        if wanted.is_empty() {
            return Err(Error::out_of_range("--chunks", "at least one chunk", "none"));
        }
        for &chunk in &wanted {
            store.span(ChunkId(chunk))?;
        }
        let mut manifest = store.manifest().clone();
        for (chunk, entry) in (0..).zip(&mut manifest.chunks) {
            if !wanted.contains(&chunk) {
                *entry = ChunkEntry {
                    present: false,
                    edges: 0,
                    bucket_edges: Vec::new(),
                };
            }
        }
        manifest.edges = manifest.chunks.iter().map(|entry| entry.edges).sum();
        let of_splits: BTreeSet<String> = manifest.splits.iter().map(|entry| files::split(&entry.name)).collect();
        let shared = files::required(&manifest)
            .into_keys()
            .filter(|path| !of_splits.contains(path));
        let shared = shared.map(|path| store.file_entry(&path).clone()).collect();
        Ok(Self {
            store,
            options,
            progress,
            manifest,
            shared,
        })
    }

    fn bytes(&self) -> u64 {
        self.shared.iter().map(|file| file.bytes).sum()
    }

    /// Fails if files must be copied and do not fit the disk.
    fn check_disk(&self) -> Result<()> {
        let target = durable::parent(&self.options.out);
        let device = |path: &Path| fs::metadata(path).map(|of| of.dev()).map_err(Error::io("open", path));
        let is_copied = self.options.copy || device(self.store.path())? != device(target)?;
        match free_disk_bytes(target) {
            // A resumed run has written a part already.
            Some(free) if is_copied && !self.options.resume && self.bytes() > free => Err(Error::conflict(
                format!(
                    "the chunks take {}, and {} are free in {}",
                    ByteSize(self.bytes()),
                    ByteSize(free),
                    target.display()
                ),
                "free some, place fewer chunks, or choose a --to on the disk of the store, where files are linked",
            )),
            _ => Ok(()),
        }
    }

    fn run(&self, folder: &StoreFolder) -> Result<Placed> {
        let path = folder.path().join(JOURNAL);
        let earlier = match path.exists() {
            true => Some(self.resume(folder, &path)?),
            false => None,
        };
        if let Some(manifest) = folder.committing()? {
            let bytes = folder.commit(&manifest)?;
            return Ok(self.placed(&manifest, &Done::default(), bytes));
        }
        let (journal, finished) = match earlier {
            Some(earlier) => earlier,
            None => {
                let journal = Journal::create(&path)?;
                journal.append(&Record::Started(self.fingerprint()?))?;
                (journal, BTreeSet::new())
            }
        };
        let done = self.share_files(folder, &journal, &finished)?;
        let mut manifest = self.manifest.clone();
        manifest.files.clone_from(&self.shared);
        self.write_splits(folder, &mut manifest)?;
        manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = folder.commit(&manifest)?;
        Ok(self.placed(&manifest, &done, bytes))
    }

    fn placed(&self, manifest: &Manifest, done: &Done, bytes: u64) -> Placed {
        let present = (0..)
            .map(ChunkId)
            .zip(&manifest.chunks)
            .filter(|(_, entry)| entry.present);
        Placed {
            nodes: manifest.nodes,
            nodes_present: present.clone().map(|(chunk, _)| self.store.chunks().len(chunk)).sum(),
            edges: manifest.edges,
            chunks: manifest.chunks.len() as u32,
            chunks_present: present.count() as u32,
            files_linked: done.linked,
            bytes_copied: done.copied_bytes,
            bytes,
        }
    }

    /// Everything that the slice depends on. A run can be resumed only with an equal fingerprint.
    fn fingerprint(&self) -> Result<BTreeMap<String, String>> {
        let present = (0..).zip(&self.manifest.chunks).filter(|(_, entry)| entry.present);
        let present: Vec<u32> = present.map(|(chunk, _)| chunk).collect();
        Ok(BTreeMap::from([
            (
                "manifest".to_owned(),
                format!("{:016x}", manifest_digest(self.store.path())?),
            ),
            ("--chunks".to_owned(), text::ranges(&present)),
            ("--copy".to_owned(), self.options.copy.to_string()),
        ]))
    }

    /// Reads the journal of an earlier run. Returns the paths of the files that it finished.
    fn resume(&self, folder: &StoreFolder, path: &Path) -> Result<(Journal, BTreeSet<String>)> {
        let (journal, records) = Journal::resume(path)?;
        let mut records = records.into_iter();
        let Some(Record::Started(before)) = records.next() else {
            return Err(not_begun(path));
        };
        same_options(folder.path(), &before, &self.fingerprint()?)?;
        let path_of = |record| match record {
            Record::File(path) => Some(path),
            Record::Started(_) => None,
        };
        Ok((journal, records.filter_map(path_of).collect()))
    }

    /// Links or copies the files that are not finished, and checks them.
    fn share_files(&self, folder: &StoreFolder, journal: &Journal, finished: &BTreeSet<String>) -> Result<Done> {
        // A recorded link may be lost in a power failure.
        let is_done = |file: &FileEntry| finished.contains(&file.path) && files::open(folder.path(), file).is_ok();
        let missing: Vec<&FileEntry> = self.shared.iter().filter(|file| !is_done(file)).collect();
        self.progress
            .stage("placing chunks", Some(missing.iter().map(|file| file.bytes).sum()));
        let done = Mutex::new(Done::default());
        workers::for_each(self.options.threads, &missing, |file| {
            let copied = self.share(folder, file)?;
            journal.append(&Record::File(file.path.clone()))?;
            let mut done = done.lock().expect("no thread panics");
            match copied {
                true => done.copied_bytes += file.bytes,
                false => done.linked += 1,
            }
            Ok(())
        })?;
        Ok(done.into_inner().expect("no thread panicked"))
    }

    /// Links or copies a file, and compares it with its checksums. Returns whether it was copied.
    fn share(&self, folder: &StoreFolder, file: &FileEntry) -> Result<bool> {
        let (from, to) = (self.store.path().join(&file.path), folder.path().join(&file.path));
        // The header is that of the manifest, so this is a regular file.
        files::open(self.store.path(), file)?;
        durable::create_folder(durable::parent(&to))?;
        durable::remove_file(&to)?;
        // A user may have replaced a file by a symbolic link to another disk.
        let from = fs::canonicalize(&from).map_err(Error::io("open", &from))?;
        let is_linked = !self.options.copy && durable::link(&from, &to)?;
        if !is_linked {
            copy(&from, &to)?;
        }
        let mut problem = None;
        let on_problem = |error| {
            problem.get_or_insert(error);
        };
        files::open(folder.path(), file)?.verify(|bytes| self.progress.advance(bytes, 0), on_problem)?;
        match problem {
            Some(problem) => Err(problem),
            None => Ok(!is_linked),
        }
    }

    /// Writes the splits with the nodes of the slice's chunks.
    fn write_splits(&self, folder: &StoreFolder, manifest: &mut Manifest) -> Result<()> {
        let chunks = self.store.chunks();
        if !self.manifest.splits.is_empty() {
            folder.folder("splits")?;
        }
        let mut entries = Vec::new();
        for SplitEntry { name, .. } in &self.manifest.splits {
            let mut nodes = self.store.split(name)?.unwrap_or_default();
            for (chunk, entry) in (0..).map(ChunkId).zip(&self.manifest.chunks) {
                if !entry.present {
                    nodes.remove_range(chunks.range(chunk));
                }
            }
            let encoded = splits::encode(name, chunks.nodes(), &nodes);
            manifest.files.push(folder.write_file(&files::split(name), encoded)?);
            entries.push(SplitEntry {
                name: name.clone(),
                nodes: nodes.len(),
            });
        }
        manifest.splits = entries;
        Ok(())
    }
}

/// Copies a file to a new one, and syncs it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let source: File = regular::open(from)?;
    let target = Temporary::replace(to)?;
    loop {
        // The system copies from file to file, without a buffer here.
        let copied = io::copy(&mut (&source).take(COPY_BYTES), &mut &target.file);
        if copied.map_err(Error::io("write", &target.path))? == 0 {
            return target.finish();
        }
    }
}
