//! The dictionary: all external ids of the edges, sorted, found in one reading of the input within the memory budget.
//!
//! Cost: the input is read and parsed once more than with dense ids; what is sorted, merged and written is in the order
//! of the nodes, not of the edges, where each node has many. A run that is killed before the dictionary is done begins
//! it again.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::{
    NODES_MAX,
    container::FileKind,
    dictionary::{DictionaryMeta, IntegerDictionaryBuilder, KeyKind, StringDictionaryBuilder},
    manifest::FileEntry,
};

use super::{
    plan::Budget,
    runs::{IntegerCollector, Runs, StringCollector},
    source::{EdgeBatch, EdgeSource, IdKind, TextBatch},
    state::Scan,
};
use crate::{
    Error, Result,
    ids::keys::StringHash,
    io::{container::ContainerWriter, durable},
    progress::Progress,
    store::writer::StoreFolder,
    workers,
};

/// Encoded bytes that are kept before they go to the file.
const DRAIN_BYTES: usize = 256 << 10;

/// Where the dictionary is in a store.
pub const DICTIONARY: &str = "ids/dictionary";

/// Where the first hash of each string is while the store is made.
pub fn hashes_path(store: &StoreFolder) -> PathBuf {
    store.lasting_scratch().join("hashes")
}

/// Collects the ids of all edges and writes the dictionary, synced. Returns what was found, and the file's entry.
pub fn build(
    source: &EdgeSource,
    budget: &Budget,
    store: &StoreFolder,
    hash: &StringHash,
    progress: &dyn Progress,
) -> Result<(Scan, FileEntry)> {
    let kind = match source.options().ids {
        IdKind::Integer => KeyKind::Integers,
        IdKind::String => KeyKind::Strings,
    };
    let runs = Runs::new(&store.scratch("ids")?, kind);
    progress.stage("collecting ids", Some(source.total_bytes()));
    // A quarter of the budget is in blocks, one is left for the writing of runs and what is larger than it should be.
    let memory = budget.memory / 2 / budget.threads as u64;
    let edges = match kind {
        KeyKind::Integers => collect_integers(source, &runs, memory, budget.threads, progress)?,
        KeyKind::Strings => collect_strings(source, &runs, memory, budget.threads, progress)?,
    };
    progress.stage("sorting ids", Some(runs.bytes()));
    let folder = store.folder("ids")?;
    let path = store.path().join(DICTIONARY);
    let (nodes, file) = {
        let mut writer = DictionaryWriter::create(&path, kind, &hashes_path(store), hash)?;
        let mut advance = |bytes| progress.advance(bytes, 0);
        runs.merge(budget.memory / 2, &mut advance, &mut |id| writer.push(id))?;
        writer.finish()?
    };
    file.sync()?;
    durable::sync_folder(&folder)?;
    Ok((Scan { nodes, edges }, store.entry(&file)))
}

fn collect_integers(
    source: &EdgeSource,
    runs: &Runs,
    memory: u64,
    threads: usize,
    progress: &dyn Progress,
) -> Result<u64> {
    let edges = AtomicU64::new(0);
    workers::run(threads, |turn| {
        let (mut batch, mut ids) = (EdgeBatch::default(), IntegerCollector::new(runs, memory));
        while turn.goes_on()
            && let Some(block) = source.next_block(&|_| false)?
        {
            block.parse(&mut batch)?;
            for &id in batch.sources.iter().chain(&batch.targets) {
                ids.add(id)?;
            }
            edges.fetch_add(batch.sources.len() as u64, Ordering::Relaxed);
            progress.advance(block.input_bytes(), batch.sources.len() as u64);
        }
        ids.finish()
    })?;
    Ok(edges.into_inner())
}

fn collect_strings(
    source: &EdgeSource,
    runs: &Runs,
    memory: u64,
    threads: usize,
    progress: &dyn Progress,
) -> Result<u64> {
    let edges = AtomicU64::new(0);
    workers::run(threads, |turn| {
        let (mut batch, mut ids) = (TextBatch::default(), StringCollector::new(runs, memory));
        while turn.goes_on()
            && let Some(block) = source.next_block(&|_| false)?
        {
            block.parse_text(&mut batch)?;
            for id in batch.sources.iter().chain(batch.targets.iter()) {
                ids.add(id)?;
            }
            edges.fetch_add(batch.sources.len() as u64, Ordering::Relaxed);
            progress.advance(block.input_bytes(), batch.sources.len() as u64);
        }
        ids.finish()
    })?;
    Ok(edges.into_inner())
}

/// Writes the dictionary and, of strings, the file of their hashes.
struct DictionaryWriter<'a> {
    file: ContainerWriter,
    builder: Builder<'a>,
    keys: u64,
}

enum Builder<'a> {
    Integers(IntegerDictionaryBuilder),
    Strings {
        builder: StringDictionaryBuilder,
        hash: &'a StringHash,
        hashes: File,
        path: PathBuf,
        buffer: Vec<u8>,
    },
}

impl<'a> DictionaryWriter<'a> {
    fn create(path: &Path, kind: KeyKind, hashes: &Path, hash: &'a StringHash) -> Result<Self> {
        let meta_bytes = DictionaryMeta {
            kind,
            keys: 0,
            key_bytes: 0,
        };
        let builder = match kind {
            KeyKind::Integers => Builder::Integers(IntegerDictionaryBuilder::new()),
            KeyKind::Strings => Builder::Strings {
                builder: StringDictionaryBuilder::new(),
                hash,
                hashes: File::create(hashes).map_err(Error::io("create", hashes))?,
                path: hashes.to_owned(),
                buffer: Vec::with_capacity(DRAIN_BYTES),
            },
        };
        Ok(Self {
            file: ContainerWriter::create(path, FileKind::DICTIONARY, meta_bytes.encode().len(), 64)?,
            builder,
            keys: 0,
        })
    }

    fn push(&mut self, id: &[u8]) -> Result<()> {
        if self.keys == NODES_MAX {
            return Err(Error::Options("there are more than 2^40 different ids".into()));
        }
        self.keys += 1;
        let ready = match &mut self.builder {
            Builder::Integers(builder) => {
                let id = id.try_into().expect("integers in runs have eight bytes");
                builder.push(u64::from_be_bytes(id));
                (builder.ready_bytes() >= DRAIN_BYTES).then(|| builder.take_bytes())
            }
            Builder::Strings {
                builder,
                hash,
                hashes,
                path,
                buffer,
            } => {
                builder.push(id);
                buffer.extend_from_slice(&hash.first(id).to_le_bytes());
                if buffer.len() == DRAIN_BYTES {
                    hashes.write_all(buffer).map_err(Error::io("write", path))?;
                    buffer.clear();
                }
                (builder.ready_bytes() >= DRAIN_BYTES).then(|| builder.take_bytes())
            }
        };
        ready.map_or(Ok(()), |bytes| self.file.write(&bytes))
    }

    /// Number of ids, and the file, which is not synced; that of the hashes is.
    fn finish(mut self) -> Result<(u64, crate::io::container::WrittenFile)> {
        let meta = match self.builder {
            Builder::Integers(builder) => {
                let (meta, rest) = builder.finish();
                self.file.write(&rest)?;
                meta
            }
            Builder::Strings {
                builder,
                mut hashes,
                path,
                buffer,
                ..
            } => {
                hashes
                    .write_all(&buffer)
                    .and_then(|()| hashes.sync_all())
                    .map_err(Error::io("write", &path))?;
                let (meta, rest) = builder.finish();
                for piece in rest {
                    self.file.write(&piece)?;
                }
                meta
            }
        };
        Ok((self.keys, self.file.finish(meta.encode())?))
    }
}
