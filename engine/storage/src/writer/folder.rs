//! The folder of an unfinished store, from its creation to the rename.

use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use grappa_formats::{
    ChunkId,
    assignment::{Assignment, Current},
    graph::GraphManifest,
    manifest::{FileEntry, Manifest, Sources, SplitEntry},
    splits,
};
use grappa_io::{
    Error, Position, Result,
    container::WrittenFile,
    durable::{self, Destination, FolderLock, Patience, TEMPORARY},
    journal::Journal,
    progress::Progress,
    regular,
};

use roaring::RoaringTreemap;

use super::{JOURNAL, finished, kept_in, partial_folder, scratch, start_again, with_suffix};
use crate::{
    files::{self, chunk_folder},
    member::{read_manifest_of_member, read_member},
};

/// The number of times that a folder without a journal is looked at again, and the wait in between: 200 ms together, which
/// is enough for the process that made the folder to lock it.
const EMPTY_LOOKS: u32 = 20;
const EMPTY_LOOK: Duration = Duration::from_millis(10);

/// The folder of an unfinished store. No other process writes there while a clone of this value exists.
#[derive(Debug, Clone)]
pub struct StoreFolder {
    store: PathBuf,
    /// Whether the finished store replaces one.
    replaces: bool,
    partial: PathBuf,
    scratch: PathBuf,
    lock: Arc<FolderLock>,
    /// Held if the scratch folder is elsewhere.
    _scratch_lock: Option<Arc<FolderLock>>,
}

/// Whether a run began a store or resumed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// There was no folder of an earlier run.
    Fresh,
    /// An earlier run left its folder, and this run resumes it.
    Resumed,
}

impl StoreFolder {
    /// Creates the folder of the unfinished store `store`, or resumes the one that an earlier run left. Scratch files go
    /// below `tmp`, or into the folder itself.
    ///
    /// If the earlier run recorded nothing, its folder is emptied.
    ///
    /// # Errors
    /// If [`StoreFolder::check`] fails, another process writes it, or an earlier run left its folder and `resume` is false.
    pub fn begin<'a>(store: impl Into<Destination<'a>>, tmp: Option<&Path>, resume: bool) -> Result<(Self, Begun)> {
        let destination = store.into();
        let (store, replaces) = (destination.path, destination.replaces);
        let partial = partial_folder(store);
        let mut looks = 0;
        let (lock, begun) = loop {
            Self::check(destination)?;
            let begun = match durable::create_new_folder(&partial)? {
                true => Begun::Fresh,
                false => Begun::Resumed,
            };
            // A process that made the folder or wants to resume expects the folder to be free, so it waits a moment for the
            // lock: the last process may still be about to exit.
            let patience = match begun == Begun::Fresh || resume {
                true => Patience::Moment,
                false => Patience::None,
            };
            // No lock means that the folder was removed or renamed while we waited: the process that had it finished the
            // store or gave up. Start over.
            let Some(lock) = FolderLock::acquire(&partial, patience)? else {
                continue;
            };
            if !replaces && store.symlink_metadata().is_ok() {
                if begun == Begun::Fresh {
                    durable::remove_folder(&partial)?;
                }
                continue;
            }
            // A process that makes the folder locks it a moment later. A process that gets the lock in between must not
            // take the folder for one that an earlier run left. It looks again until something has begun.
            if begun == Begun::Resumed && !resume && looks < EMPTY_LOOKS && nothing_begun(&partial)? {
                looks += 1;
                drop(lock);
                thread::sleep(EMPTY_LOOK);
                continue;
            }
            break (lock.watch(&partial)?, begun);
        };
        if begun == Begun::Resumed && !resume {
            let with = match scratch::elsewhere(&partial).unwrap_or_default() {
                Some(scratch) => format!(" and its scratch files, {}", scratch.display()),
                None => String::new(),
            };
            let problem = format!(
                "an earlier run left this unfinished store{with}; continue it with --resume, or remove it{with}"
            );
            return Err(Error::input(&partial, Position::Whole, problem));
        }
        if nothing_begun(&partial)? {
            // The files may come from a run with other options. Nothing of them may get into the store.
            clear(&partial)?;
        }
        let scratch = match scratch::create(&partial, tmp) {
            Err(error) if begun == Begun::Fresh => {
                // The folder is still empty. It need not stay because of a wrong --tmp.
                durable::remove_folder(&partial)?;
                return Err(error);
            }
            scratch => scratch.map_err(|error| damage_of(&partial, &partial, error, || start_again(&partial)))?,
        };
        let folder = Self {
            store: store.to_owned(),
            replaces,
            partial,
            scratch: scratch.folder,
            lock: Arc::new(lock),
            _scratch_lock: scratch.lock.map(Arc::new),
        };
        Ok((folder, begun))
    }

    /// Fails if something has the name of the new store, unless it is a store that is to be replaced.
    ///
    /// # Errors
    /// What is there.
    pub fn check(store: Destination<'_>) -> Result<()> {
        if store.path.as_os_str() == "-" {
            let problem = "a store is a folder, so it cannot be printed on stdout; give it a name, usually NAME.grappa";
            return Err(Error::input(store.path, Position::Whole, problem));
        }
        if store.path.symlink_metadata().is_err() {
            return Ok(());
        }
        if store.replaces {
            return expect_store(store.path);
        }
        let problem =
            "cannot create the store: something with this name exists; replace it with --force, or choose another name";
        Err(Error::input(store.path, Position::Whole, problem))
    }

    /// The manifest of a run that died during the commit. The only step left is to repeat [`StoreFolder::commit`].
    ///
    /// # Errors
    /// If the manifest can't be read, or the manifest or a file that it lists is damaged.
    pub fn committing(&self, threads: usize, progress: &dyn Progress) -> Result<Option<Manifest>> {
        let path = self.partial.join(files::MANIFEST);
        let Some(bytes) = regular::read_if_there(&path)? else {
            return Ok(None);
        };
        let manifest = Manifest::decode(&bytes).map_err(Error::format(path))?;
        let listed = finished::with_kinds(&self.partial, manifest.files.clone())?;
        finished::expect_sound(&self.partial, &listed, threads, progress)?;
        Ok(Some(manifest))
    }

    /// As [`StoreFolder::committing`], for a graph with types. The step left is [`StoreFolder::commit_graph`].
    ///
    /// # Errors
    /// If the manifest can't be read or is damaged.
    pub fn committing_graph(&self) -> Result<Option<GraphManifest>> {
        let path = self.partial.join(files::MANIFEST);
        let bytes = regular::read_if_there(&path)?;
        bytes.map(|bytes| GraphManifest::decode(&bytes).map_err(Error::format(path))).transpose()
    }

    /// The manifest of a member of the graph, if an earlier process completed it. Its files are compared with their checksums.
    ///
    /// # Errors
    /// If the manifest can't be read, or the manifest or a file that it lists is damaged.
    pub fn complete_member(&self, name: &str, threads: usize, progress: &dyn Progress) -> Result<Option<Manifest>> {
        let folder = self.partial.join(name);
        if !folder.is_dir() {
            return Ok(None);
        }
        let manifest = read_manifest_of_member(&folder)?;
        finished::expect_sound(&folder, &finished::with_kinds(&folder, manifest.files.clone())?, threads, progress)?;
        Ok(Some(manifest))
    }

    /// Begins a member of the graph, or continues it. Its scratch files are where those of the graph are.
    ///
    /// # Errors
    /// As [`StoreFolder::begin`].
    pub fn member(&self, name: &str) -> Result<Self> {
        let path = self.partial.join(name);
        let tmp = (!self.scratch.starts_with(&self.partial)).then_some(&*self.scratch);
        Ok(Self::begin(&*path, tmp, true)?.0)
    }

    /// Cleans up after a run that failed with `error`, and returns the error for the user.
    ///
    /// After an I/O error or lack of memory the folder stays, and the error says how to resume. It also stays if the run was
    /// stopped. Other errors would occur again, so the folder is removed if this run made it. If a run that was resumed finds damage, the error says how to
    /// start again. If another process has made the folder anew, nothing is touched.
    pub fn failed(&self, begun: Begun, error: Error) -> Error {
        let mut places = [&self.partial, &self.store].into_iter();
        if !places.any(|path| self.lock.is_at(path).unwrap_or(true)) {
            return Error::Taken { path: self.partial.clone() };
        }
        let error = match begun {
            Begun::Fresh => damage_of(&self.partial, &self.scratch, error, || "start again".to_owned()),
            Begun::Resumed => damage_of(&self.partial, &self.scratch, error, || start_again(&self.partial)),
        };
        match error {
            Error::Io { .. } | Error::Memory { .. } | Error::Thread { .. } => {
                Error::Interrupted { kept: self.kept(), source: Box::new(error) }
            }
            // Whoever stopped it may continue it.
            Error::Stopped if !nothing_begun(&self.partial).unwrap_or(false) => error,
            _ if begun == Begun::Fresh => {
                // A failed removal must not hide the error.
                if let Err(left) = self.abandon() {
                    tracing::warn!("{left}");
                }
                error
            }
            _ => error,
        }
    }

    /// Where the work of this run is, for messages.
    pub fn kept(&self) -> String {
        kept_in(&self.partial)
    }

    /// Removes the unfinished store.
    fn abandon(&self) -> Result<()> {
        // The journal goes first: without it, the rest of an interrupted removal is never resumed.
        durable::remove_file(&self.partial.join(JOURNAL))?;
        durable::remove_folder(&self.scratch)?;
        durable::remove_folder(&self.partial)
    }

    /// The folder of the unfinished store.
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Creates an empty folder for scratch files. Files of an earlier run there are removed. The commit removes the folder.
    pub fn scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.join(name);
        durable::remove_folder(&folder)?;
        durable::create_folder(&folder)?;
        Ok(folder)
    }

    /// The folder for scratch files that a resumed run needs. The commit removes it.
    pub fn lasting_scratch(&self) -> &Path {
        &self.scratch
    }

    /// The folder of a chunk. It is created if it does not exist.
    pub fn chunk(&self, chunk: ChunkId) -> Result<PathBuf> {
        self.folder(&chunk_folder(chunk))
    }

    /// A folder of the store. It is created if it does not exist.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.partial.join(name);
        durable::create_folder(&folder)?;
        Ok(folder)
    }

    /// The manifest's entry for a file of this store.
    pub fn entry(&self, file: &WrittenFile) -> FileEntry {
        let path = file.path.strip_prefix(&self.partial).expect("files of a store are inside it");
        let path = path.to_str().expect("names inside a store are ASCII").to_owned();
        FileEntry { path, bytes: file.bytes, digest: file.digest }
    }

    /// Writes and syncs a small file. Returns its entry for the manifest.
    pub fn write_file(&self, path: &str, (bytes, digest): (Vec<u8>, u64)) -> Result<FileEntry> {
        durable::write_file(&self.partial.join(path), &bytes)?;
        Ok(FileEntry { path: path.to_owned(), bytes: bytes.len() as u64, digest })
    }

    /// Writes and syncs the file of the split `name` of a graph with `nodes` nodes. Returns the manifest's entries of both.
    pub fn write_split(&self, name: &str, nodes: u64, set: &RoaringTreemap) -> Result<(SplitEntry, FileEntry)> {
        self.folder("splits")?;
        let file = self.write_file(&files::split(name), splits::encode(name, nodes, set))?;
        let entry = SplitEntry { name: name.to_owned(), nodes: set.len() };
        Ok((entry, file))
    }

    /// Completes the store: writes the first assignment and the manifest, removes everything else, and renames the folder.
    ///
    /// Every file that the manifest names must be synced. Returns the total length of the store's files in bytes. An
    /// interrupted commit can be repeated: from the journal until the manifest has its name, from the manifest after that.
    ///
    /// # Errors
    /// If a file is not the one that the manifest names, or the folder can't be written.
    pub fn commit(&self, manifest: &Manifest) -> Result<u64> {
        manifest.check().expect("what was written makes a valid manifest");
        // This reads only headers. It ensures that an incomplete folder never gets the name of a store.
        for file in &manifest.files {
            files::open(&self.partial, file)?;
        }
        let assigned = match manifest.sources {
            Sources::Nodes => self.write_first_assignment(manifest.chunks.len() as u32)?,
            // The members of a graph have its partitions.
            Sources::Type(_) | Sources::None => 0,
        };
        let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        Ok(files + assigned + self.complete(&manifest.encode())?)
    }

    /// Completes a graph with types, whose members are complete, as [`StoreFolder::commit`] completes a store. Returns the length of the
    /// manifest and the first assignment in bytes.
    ///
    /// # Errors
    /// If a member is not the one that the manifest names, or the folder can't be written.
    pub fn commit_graph(&self, manifest: &GraphManifest) -> Result<u64> {
        manifest.check().expect("what was written makes a valid manifest");
        // An incomplete folder never gets the name of a graph.
        let types = manifest.node_types.iter().enumerate();
        let relations = manifest.relations.iter().enumerate();
        let types = types.map(|(number, entry)| (files::node_type_folder(number), entry.digest));
        let relations = relations.map(|(number, entry)| (files::relation_folder(number), entry.digest));
        let mut chunks = 0;
        for (number, (folder, digest)) in types.chain(relations).enumerate() {
            let member = read_member(&self.partial.join(folder), digest, |_| true)?;
            if number < manifest.node_types.len() {
                chunks += member.chunks.len() as u32;
            }
        }
        Ok(self.write_first_assignment(chunks)? + self.complete(&manifest.encode())?)
    }

    /// Writes the assignment of a new store. Returns the length of its files in bytes.
    fn write_first_assignment(&self, chunks: u32) -> Result<u64> {
        let assignment = Assignment::whole(chunks);
        self.folder(files::ASSIGNMENTS)?;
        let (bytes, _) = assignment.encode();
        durable::write_file(&self.partial.join(files::assignment(0)), &bytes)?;
        let current = Current { generation: assignment.generation() }.encode();
        durable::write_file(&self.partial.join(files::CURRENT), current.as_bytes())?;
        Ok((bytes.len() + current.len()) as u64)
    }

    /// Writes the manifest, removes what is no part of the store, and renames the folder. Returns the length of the manifest.
    fn complete(&self, encoded: &[u8]) -> Result<u64> {
        durable::write_file(&self.partial.join(files::MANIFEST), encoded)?;
        // The folder goes before the file that has its path, so that an interrupted commit still finds it.
        durable::remove_folder(&self.scratch)?;
        durable::remove_file(&self.partial.join(scratch::PATH_FILE))?;
        durable::remove_file(&self.partial.join(JOURNAL))?;
        for entry in fs::read_dir(&self.partial).map_err(Error::io("list", &self.partial))? {
            let path = entry.map_err(Error::io("list", &self.partial))?.path();
            if path.is_dir() {
                durable::sync_folder(&path)?;
            }
        }
        durable::sync_folder(&self.partial)?;
        self.take_name()?;
        Ok(encoded.len() as u64)
    }

    /// Gives the complete store its name. A store that has the name is moved aside and then removed. A run that is killed in between leaves
    /// it under the name with `.replaced`.
    fn take_name(&self) -> Result<()> {
        let replaced = with_suffix(&self.store, ".replaced");
        if self.replaces && self.store.symlink_metadata().is_ok() {
            expect_store(&self.store)?;
            if replaced.symlink_metadata().is_ok() {
                // A killed run may have removed a part of it.
                expect_files_of_store(&replaced)?;
                durable::remove_folder(&replaced)?;
            }
            durable::rename_new(&self.store, &replaced)?;
        }
        durable::rename_new(&self.partial, &self.store)?;
        match self.replaces && replaced.symlink_metadata().is_ok() {
            true => durable::remove_folder(&replaced),
            false => Ok(()),
        }
    }
}

/// Fails unless the path is a folder with a store and nothing else.
fn expect_store(path: &Path) -> Result<()> {
    let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let manifest = match is_folder {
        true => regular::read_if_there(&path.join(files::MANIFEST))?,
        false => None,
    };
    match manifest {
        Some(bytes) if Manifest::decode(&bytes).is_ok() || GraphManifest::decode(&bytes).is_ok() => {
            expect_files_of_store(path)
        }
        _ => Err(not_replaced(path, "this is no store")),
    }
}

/// Fails if a folder has files that are not a store's.
fn expect_files_of_store(path: &Path) -> Result<()> {
    match foreign_file(path)? {
        Some(file) => Err(not_replaced(path, &format!("{} is no part of a store", Path::new(&file).display()))),
        None => Ok(()),
    }
}

/// The name of a file or folder in a folder that no store has there.
fn foreign_file(folder: &Path) -> Result<Option<OsString>> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let name = entry.map_err(Error::io("list", folder))?.file_name();
        if !name.to_str().is_some_and(|name| is_of_store(name) || files::is_left_over(name)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn not_replaced(path: &Path, why: &str) -> Error {
    let problem = format!("{why}, so --force does not replace it; remove it, or choose another name");
    Error::input(path, Position::Whole, problem)
}

/// Whether a finished or unfinished store has a file or folder of this name.
fn is_of_store(name: &str) -> bool {
    let name = name.strip_suffix(TEMPORARY).unwrap_or(name);
    let is_known =
        ["ids", "splits", files::ASSIGNMENTS, files::AGGREGATES, scratch::FOLDER, scratch::PATH_FILE, JOURNAL]
            .contains(&name);
    let folders = ["chunk-", "nodes-", "relation-"];
    is_known || files::kind_of(name).is_some() || folders.iter().any(|folder| name.starts_with(folder))
}

/// Adds how to start again to an error about a file of the unfinished store `partial` or of its scratch folder: the file is
/// damaged, or missing, or ends too early. Other errors stay as they are.
fn damage_of(partial: &Path, scratch: &Path, error: Error, remedy: impl FnOnce() -> String) -> Error {
    let path = match &error {
        Error::Format { path, .. } | Error::Input { path, .. } => path,
        Error::Io { path, source, .. } if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
            path
        }
        _ => return error,
    };
    match path.starts_with(partial) || path.starts_with(scratch) {
        true => Error::Unfinished { source: Box::new(error), remedy: remedy() },
        false => error,
    }
}

/// Whether the run that made the folder has recorded nothing yet.
fn nothing_begun(partial: &Path) -> Result<bool> {
    Ok(!partial.join(files::MANIFEST).exists() && Journal::is_empty(&partial.join(JOURNAL))?)
}

/// Empties the folder of an unfinished store that has neither a manifest nor records in its journal. Its run was killed while
/// it began, or while it removed its files. Files that no run writes are an error.
fn clear(partial: &Path) -> Result<()> {
    if let Some(file) = foreign_file(partial)? {
        let problem = "this file is in the folder of an unfinished store, but is no part of one; move it, or choose another --out";
        return Err(Error::input(partial.join(file), Position::Whole, problem));
    }
    if let Some(scratch) = scratch::elsewhere(partial)? {
        durable::remove_folder(&scratch)?;
    }
    durable::empty_folder(partial)
}
