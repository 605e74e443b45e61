//! The slice of a store, or of a member of a graph.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::Mutex,
};

use grappa_formats::{
    ChunkId,
    aggregates::AggregateIndex,
    container::FileKind,
    manifest::{ChunkEntry, FileEntry, Manifest, Sources, SplitEntry},
};
use grappa_io::{
    Error, Result,
    durable::{self, Temporary},
    journal::Journal,
    progress::Progress,
    regular, text, workers,
};
use grappa_storage::{
    Store,
    aggregates::manifest_digest,
    files,
    writer::{JOURNAL, StoreFolder, finished},
};

use super::{
    aggregates,
    degrees::HaloDegrees,
    edges::{self, EdgesInside, SliceEdges},
    options::{PlaceOptions, Placed},
    record::{Finished, Record},
    slice::MemberSlice,
};

/// Bytes that are copied between two reports of progress.
const COPY_BYTES: u64 = 64 << 20;

pub(super) struct Placement<'a> {
    store: &'a Store,
    pub options: &'a PlaceOptions,
    pub progress: &'a dyn Progress,
    /// The manifest of the slice, but for the splits and, if edges are left out, the edges of each chunk.
    manifest: Manifest,
    /// The files that the slice shares with the store, and their kinds.
    shared: Vec<(FileEntry, FileKind)>,
    /// The pre-aggregated features of the slice. Their digest of the manifest is the store's.
    aggregates: Vec<AggregateIndex>,
    /// The filter of edges, if the slice does not have all.
    inside: Option<EdgesInside<'a>>,
    /// The in-degrees of halo nodes that are written anew.
    degrees: HaloDegrees<'a>,
}

/// Counts of files that a run linked or copied.
#[derive(Default)]
struct Done {
    linked: u64,
    copied_bytes: u64,
}

impl<'a> Placement<'a> {
    pub fn new(member: MemberSlice<'a>, options: &'a PlaceOptions, progress: &'a dyn Progress) -> Result<Self> {
        let MemberSlice { store, chunks, halo, sources } = member;
        let mut manifest = store.manifest().clone();
        if options.edges == SliceEdges::Inside && !manifest.held_out().is_empty() {
            return Err(Error::conflict(
                "--edges inside would need other edges for val and test: the store holds edges out of the graph",
                "place all edges (--edges all), or ingest without --edge-split",
            ));
        }
        let mut degrees = HaloDegrees { store, chunks: BTreeSet::new(), threads: options.threads, progress };
        for (chunk, entry) in (0..).zip(&mut manifest.chunks) {
            if chunks.contains(&chunk) {
                continue;
            }
            *entry = ChunkEntry::absent(halo.contains(&chunk));
            // Only layers of one node type take the in-degrees of sources.
            if entry.halo
                && manifest.sources == Sources::Nodes
                && let Some(must_write) = HaloDegrees::must_write(store, ChunkId(chunk))?
            {
                entry.halo_degrees = true;
                degrees.chunks.extend(must_write.then_some(chunk));
            }
        }
        manifest.edges = manifest.chunks.iter().map(|entry| entry.edges).sum();
        let inside = (options.edges == SliceEdges::Inside && manifest.sources != Sources::None).then(|| EdgesInside {
            store,
            chunks: chunks.clone(),
            is_present: (0..store.source_chunks().chunks()).map(|chunk| sources.contains(&chunk)).collect(),
            threads: options.threads,
            progress,
        });
        let mut written: BTreeSet<String> = manifest.splits.iter().map(|entry| files::split(&entry.name)).collect();
        written.extend(degrees.chunks.iter().map(|&chunk| files::of_chunk(ChunkId(chunk), "degrees")));
        if inside.is_some() {
            let chunks = chunks.iter().copied().map(ChunkId);
            written.extend(chunks.flat_map(|chunk| edges::FILES.map(|name| files::of_chunk(chunk, name))));
        }
        let shared = files::required(&manifest).into_iter().filter(|(path, _)| !written.contains(path));
        let mut shared: Vec<_> = shared.map(|(path, kind)| (store.file_entry(&path).clone(), kind)).collect();
        let aggregates = aggregates::indexes(store, &manifest)?;
        shared.extend(of_aggregates(&aggregates));
        Ok(Self { store, options, progress, manifest, shared, aggregates, inside, degrees })
    }

    fn present(&self) -> impl Iterator<Item = ChunkId> {
        let chunks = (0..).map(ChunkId).zip(&self.manifest.chunks);
        chunks.filter(|(_, entry)| entry.present).map(|(chunk, _)| chunk)
    }

    /// The bytes of the files that are copied, if they are, or written.
    pub fn new_bytes(&self, is_copied: bool) -> u64 {
        let mut bytes = match is_copied {
            true => self.shared.iter().map(|(file, _)| file.bytes).sum(),
            false => 0,
        };
        if let Some(inside) = &self.inside {
            bytes += self.present().map(|chunk| inside.bytes_of(chunk)).sum::<u64>();
        }
        bytes + self.degrees.bytes()
    }

    /// Makes the slice of the member. Also returns its manifest.
    pub fn run(&self, folder: &StoreFolder) -> Result<(Manifest, Placed)> {
        let path = folder.path().join(JOURNAL);
        let mut earlier = match path.exists() {
            true => Some(Finished::resume(folder.path(), &self.fingerprint()?)?),
            false => None,
        };
        if let Some((_, finished)) = &mut earlier {
            self.keep_sound(folder, finished)?;
        }
        let (threads, progress) = (self.options.threads, self.progress);
        if let Some(manifest) = folder.committing(threads, progress)? {
            self.expect_sound_aggregates(folder.path())?;
            self.write_indexes(folder, &manifest)?;
            let bytes = folder.commit(&manifest)?;
            let placed = self.placed(&manifest, &Done::default(), bytes);
            return Ok((manifest, placed));
        }
        let (journal, finished) = match earlier {
            Some(earlier) => earlier,
            None => {
                let journal = Journal::create(&path)?;
                journal.append(&Record::Started(self.fingerprint()?))?;
                (journal, Finished::default())
            }
        };
        let done = self.share_files(folder, &journal, &finished.files)?;
        let mut manifest = self.manifest.clone();
        let required = files::required(&manifest);
        let listed = self.shared.iter().filter(|(file, _)| required.contains_key(&file.path));
        manifest.files = listed.map(|(file, _)| file.clone()).collect();
        let degrees = self.degrees.write(folder, &journal, finished.degrees)?;
        manifest.files.extend(degrees.into_values());
        if let Some(inside) = &self.inside {
            for (chunk, edges) in inside.write(folder, &journal, finished.edges)? {
                manifest.chunks[chunk as usize] = ChunkEntry::of_buckets(edges.bucket_edges);
                manifest.files.extend(edges.files);
            }
            manifest.edges = manifest.chunks.iter().map(|entry| entry.edges).sum();
        }
        self.write_splits(folder, &mut manifest)?;
        manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.write_indexes(folder, &manifest)?;
        let bytes = folder.commit(&manifest)?;
        let placed = self.placed(&manifest, &done, bytes);
        Ok((manifest, placed))
    }

    /// What an earlier process made of the member, which is complete in the folder of the graph.
    pub fn complete(&self, folder: &Path, manifest: &Manifest) -> Result<Placed> {
        self.expect_sound_aggregates(folder)?;
        let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        Ok(self.placed(manifest, &Done::default(), files + manifest.encode().len() as u64))
    }

    fn expect_sound_aggregates(&self, folder: &Path) -> Result<()> {
        let of_aggregates = of_aggregates(&self.aggregates).collect::<Vec<_>>();
        finished::expect_sound(folder, &of_aggregates, self.options.threads, self.progress)
    }

    fn write_indexes(&self, folder: &StoreFolder, manifest: &Manifest) -> Result<()> {
        let mut indexes = self.aggregates.iter();
        indexes.try_for_each(|index| aggregates::write_index(folder, index, manifest))
    }

    fn placed(&self, manifest: &Manifest, done: &Done, bytes: u64) -> Placed {
        Placed {
            nodes: manifest.nodes,
            nodes_present: self.present().map(|chunk| self.store.chunks().len(chunk)).sum(),
            edges: manifest.edges,
            edges_left_out: self.manifest.edges - manifest.edges,
            aggregates: self.aggregates.iter().map(|index| index.kind.name()).collect(),
            chunks: manifest.chunks.len() as u32,
            chunks_present: self.present().count() as u32,
            chunks_halo: manifest.chunks.iter().filter(|entry| entry.halo).count() as u32,
            chunks_halo_degrees: manifest.chunks.iter().filter(|entry| entry.halo_degrees).count() as u32,
            files_linked: done.linked,
            bytes_copied: done.copied_bytes,
            bytes: bytes + of_aggregates(&self.aggregates).map(|(file, _)| file.bytes).sum::<u64>(),
        }
    }

    /// Everything that the slice depends on. A run can be resumed only with an equal fingerprint.
    pub fn fingerprint(&self) -> Result<BTreeMap<String, String>> {
        let present: Vec<u32> = self.present().map(|chunk| chunk.0).collect();
        Ok(BTreeMap::from([
            ("manifest".to_owned(), format!("{:016x}", manifest_digest(self.store.path())?)),
            ("--chunks".to_owned(), text::ranges(&present)),
            ("--edges".to_owned(), self.options.edges.to_string()),
            ("--halo-features".to_owned(), self.options.halo_features.to_string()),
            ("--copy".to_owned(), self.options.copy.to_string()),
        ]))
    }

    /// Forgets the files that are damaged, or were lost in a power failure. They are made again.
    fn keep_sound(&self, folder: &StoreFolder, finished: &mut Finished) -> Result<()> {
        let written = finished.edges.values().flat_map(|edges| &edges.files);
        let written = written.chain(finished.degrees.values()).cloned();
        let mut recorded = finished::with_kinds(folder.path(), written.collect())?;
        let shared = self.shared.iter().filter(|(file, _)| finished.files.contains(&file.path));
        recorded.extend(shared.cloned());
        let (threads, progress) = (self.options.threads, self.progress);
        let damaged = finished::to_rewrite(folder.path(), &recorded, threads, progress)?;
        finished.files.retain(|path| !damaged.contains(path));
        finished.edges.retain(|_, edges| !edges.files.iter().any(|file| damaged.contains(&file.path)));
        finished.degrees.retain(|_, file| !damaged.contains(&file.path));
        Ok(())
    }

    /// Links or copies the files that are not finished, and checks them.
    fn share_files(&self, folder: &StoreFolder, journal: &Journal, finished: &BTreeSet<String>) -> Result<Done> {
        let missing: Vec<_> = self.shared.iter().filter(|(file, _)| !finished.contains(&file.path)).collect();
        self.progress.stage("placing chunks", Some(missing.iter().map(|(file, _)| file.bytes).sum()));
        let done = Mutex::new(Done::default());
        workers::for_each(self.options.threads, &missing, |(file, kind)| {
            let copied = self.share(folder, file, *kind)?;
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
    fn share(&self, folder: &StoreFolder, file: &FileEntry, kind: FileKind) -> Result<bool> {
        let (from, to) = (self.store.path().join(&file.path), folder.path().join(&file.path));
        // The header is the one that the store lists, so this is a regular file.
        files::open_as(self.store.path(), file, kind)?;
        durable::create_folder(durable::parent(&to))?;
        durable::remove_file(&to)?;
        // A user may have replaced a file by a symbolic link to another disk.
        let from = fs::canonicalize(&from).map_err(Error::io("open", &from))?;
        let is_linked = !self.options.copy && durable::link(&from, &to)?;
        if !is_linked {
            copy(&from, &to)?;
        }
        files::open_as(folder.path(), file, kind)?.verify_all(|bytes| self.progress.advance(bytes, 0))?;
        Ok(!is_linked)
    }

    /// Writes the splits with the nodes of the slice's chunks.
    fn write_splits(&self, folder: &StoreFolder, manifest: &mut Manifest) -> Result<()> {
        let chunks = self.store.chunks();
        let mut entries = Vec::new();
        for SplitEntry { name, .. } in &self.manifest.splits {
            let mut nodes = self.store.split(name)?.unwrap_or_default();
            for (chunk, entry) in (0..).map(ChunkId).zip(&self.manifest.chunks) {
                if !entry.present {
                    nodes.remove_range(chunks.range(chunk));
                }
            }
            let (entry, file) = folder.write_split(name, chunks.nodes(), &nodes)?;
            manifest.files.push(file);
            entries.push(entry);
        }
        manifest.splits = entries;
        Ok(())
    }
}

/// The files of pre-aggregated features, and their kind.
fn of_aggregates(indexes: &[AggregateIndex]) -> impl Iterator<Item = (FileEntry, FileKind)> {
    indexes.iter().flat_map(aggregates::files_of).map(|file| (file, FileKind::FEATURES))
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
