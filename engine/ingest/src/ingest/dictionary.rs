//! Builds the dictionary: all external ids of the edges, and those that the user lists, sorted, within the memory budget.
//!
//! Cost: one more pass over the input than with dense ids. The number of ids that are sorted, merged and written is about
//! the number of nodes, not of edges, if nodes have many edges: most duplicates are dropped before. A run that is killed
//! before the dictionary is complete starts it again.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::{
    NODES_MAX,
    container::FileKind,
    dictionary::{DictionaryMeta, IntegerDictionaryBuilder, KEY_BYTES_MAX, KeyKind, StringDictionaryBuilder},
    manifest::FileEntry,
};
use grappa_input::{EdgeBatch, EdgeSource, IdKind, Keys, RawBlock, SplitSource, TextBatch};
use grappa_io::{
    Error, Result,
    container::{ContainerWriter, WrittenFile},
    durable,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::{files::DICTIONARY, writer::StoreFolder};

use crate::ingest::{
    journal::Scan,
    plan::IngestBudget,
    runs::{self, IntegerCollector, Runs, StringCollector},
};

/// Encoded bytes per write.
const DRAIN_BYTES: usize = 256 << 10;

/// The least memory for the ids of a run. With less, a run would be hardly worth its file.
const RUN_MEMORY_MIN: u64 = 1 << 20;

/// Collects the ids of all edges and of `lists`, and writes the dictionary, synced. Returns the counts and the
/// file's entry.
pub fn build(
    source: &EdgeSource,
    lists: Vec<SplitSource>,
    budget: &IngestBudget,
    store: &StoreFolder,
    progress: &dyn Progress,
) -> Result<(Scan, FileEntry)> {
    let kind = match source.options().ids {
        IdKind::Integer => KeyKind::Integers,
        IdKind::String => KeyKind::Strings,
    };
    let runs = Runs::new(&store.scratch("ids")?, kind);
    progress.stage("collecting ids", Some(source.total_bytes()));
    // A quarter of the budget is for blocks. Another quarter is left for the buffers of runs and for strings that are
    // longer than assumed.
    let memory = (budget.memory / 2 / budget.threads as u64).max(RUN_MEMORY_MIN);
    let edges = match kind {
        KeyKind::Integers => collect(
            source,
            budget.threads,
            progress,
            || Ok((EdgeBatch::default(), IntegerCollector::new(&runs, memory))),
            |(batch, ids), block| {
                block.parse(batch, &mut |_| Ok(()))?;
                let all = batch.sources.iter().chain(&batch.targets);
                all.copied().try_for_each(|id| ids.add(id))?;
                Ok(batch.sources.len())
            },
            |(_, ids)| ids.finish(),
        )?,
        KeyKind::Strings => collect(
            source,
            budget.threads,
            progress,
            || Ok((TextBatch::default(), StringCollector::new(&runs, memory)?)),
            |(batch, ids), block| {
                block.parse_text(batch, &mut |_| Ok(()))?;
                ids.add_all(batch.sources.iter())?;
                ids.add_all(batch.targets.iter())?;
                Ok(batch.sources.len())
            },
            |(_, ids)| ids.finish(),
        )?,
    };
    for ids in lists {
        collect_listed(ids, kind, &runs, memory, progress)?;
    }
    progress.stage("sorting ids", Some(runs.bytes()));
    let folder = store.folder("ids")?;
    let path = store.path().join(DICTIONARY);
    let (nodes, file) = {
        let mut writer = DictionaryWriter::create(&path, kind)?;
        runs::merge(runs, budget.memory / 2, budget.threads, &mut |bytes| progress.advance(bytes, 0), &mut |id| {
            writer.push(id)
        })?;
        writer.finish()?
    };
    file.sync()?;
    durable::sync_folder(&folder)?;
    Ok((Scan { nodes, edges }, store.entry(&file)))
}

/// Collects the ids of all edges on all threads. `new` makes the collector of a thread, `collect` adds the ids of a block to it and returns
/// the number of its edges, and `finish` writes the rest. Returns the number of edges.
fn collect<C>(
    source: &EdgeSource,
    threads: usize,
    progress: &dyn Progress,
    new: impl Fn() -> Result<C> + Sync,
    collect: impl Fn(&mut C, &RawBlock<'_>) -> Result<usize> + Sync,
    finish: impl Fn(C) -> Result<()> + Sync,
) -> Result<u64> {
    let edges = AtomicU64::new(0);
    source.read_ahead(threads, &|_| false, |blocks| {
        workers::run(threads, |turn| {
            let mut collector = new()?;
            while turn.goes_on()
                && let Some(block) = blocks.next()?
            {
                let count = collect(&mut collector, &block)? as u64;
                edges.fetch_add(count, Ordering::Relaxed);
                progress.advance(block.input_bytes(), count);
                check_stopped(progress)?;
            }
            finish(collector)
        })
    })?;
    Ok(edges.into_inner())
}

/// Collects the ids that the user lists.
fn collect_listed(
    mut source: SplitSource,
    kind: KeyKind,
    runs: &Runs,
    memory: u64,
    progress: &dyn Progress,
) -> Result<()> {
    match kind {
        KeyKind::Integers => {
            let (mut batch, mut ids) = (Vec::new(), IntegerCollector::new(runs, memory));
            while source.next_ids(&mut batch)? {
                check_stopped(progress)?;
                batch.iter().try_for_each(|&id| ids.add(id))?;
            }
            ids.finish()
        }
        KeyKind::Strings => {
            let (mut batch, mut ids) = (Keys::default(), StringCollector::new(runs, memory)?);
            while source.next_keys(&mut batch)? {
                check_stopped(progress)?;
                if let Some(long) = batch.iter().position(|id| id.len() > KEY_BYTES_MAX) {
                    let what = format!("a node id is longer than {KEY_BYTES_MAX} bytes; shorten it");
                    return Err(source.place(long).error(what));
                }
                ids.add_all(batch.iter())?;
            }
            ids.finish()
        }
    }
}

/// Writes the dictionary.
struct DictionaryWriter {
    file: ContainerWriter,
    builder: Builder,
    keys: u64,
}

enum Builder {
    Integers(IntegerDictionaryBuilder),
    Strings(StringDictionaryBuilder),
}

impl DictionaryWriter {
    fn create(path: &Path, kind: KeyKind) -> Result<Self> {
        let empty = DictionaryMeta { kind, keys: 0, key_bytes: 0 };
        let builder = match kind {
            KeyKind::Integers => Builder::Integers(IntegerDictionaryBuilder::new()),
            KeyKind::Strings => Builder::Strings(StringDictionaryBuilder::new()),
        };
        Ok(Self { file: ContainerWriter::create(path, FileKind::DICTIONARY, empty.encode().len())?, builder, keys: 0 })
    }

    fn push(&mut self, id: &[u8]) -> Result<()> {
        if self.keys == NODES_MAX {
            return Err(Error::limit(
                "the edges have more different ids than a graph may have nodes",
                format!("{NODES_MAX} (2^40)"),
                "ingest fewer edges",
            ));
        }
        self.keys += 1;
        let ready = match &mut self.builder {
            Builder::Integers(builder) => {
                let id = id.try_into().expect("integers in runs have eight bytes");
                builder.push(u64::from_be_bytes(id));
                &mut builder.ready
            }
            Builder::Strings(builder) => {
                builder.push(id);
                &mut builder.ready
            }
        };
        if ready.len() >= DRAIN_BYTES {
            self.file.write(ready)?;
            ready.clear();
        }
        Ok(())
    }

    /// Completes the file. Returns the number of ids and the dictionary file, which is not synced.
    fn finish(mut self) -> Result<(u64, WrittenFile)> {
        let meta = match self.builder {
            Builder::Integers(builder) => {
                let (meta, rest) = builder.finish();
                self.file.write(&rest)?;
                meta
            }
            Builder::Strings(builder) => {
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

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt};

    use grappa_formats::{NodeId, random::GOLDEN};
    use grappa_input::EdgeSourceOptions;
    use grappa_io::progress::Silent;
    use grappa_storage::{NodePermutation, writer::StoreFolder};

    use super::*;
    use crate::{
        ids::{IdMap, dictionary::Dictionary, keys::StringHash},
        ingest::segments::{self, segment_of},
    };

    /// The ids of the edges in `text`. The hashes of strings have `bits` bits.
    fn listed(folder: &Path, text: &str, ids: IdKind, bits: u32) -> IdMap {
        let edges = folder.join("edges.tsv");
        std::fs::write(&edges, text).unwrap();
        let options =
            EdgeSourceOptions { ids, id_limit: grappa_input::IdLimit::Sparse, ..EdgeSourceOptions::default() };
        let source = EdgeSource::open(&[edges], options).unwrap();
        let (store, _) = StoreFolder::begin(&folder.join("store"), None, false).unwrap();
        let budget = IngestBudget::new(1 << 20, 1, 2);
        let hash = StringHash::with_bits(bits);
        build(&source, Vec::new(), &budget, &store, &Silent).unwrap();
        let dictionary = Dictionary::open(&store.path().join(DICTIONARY), hash).unwrap();
        IdMap::listed(dictionary, NodePermutation::Identity)
    }

    #[test]
    fn every_string_has_its_dense_id_though_some_share_a_hash() {
        let folder = tempfile::tempdir().unwrap();
        // Of 3000 hashes of 20 bits some four are shared by two strings.
        let mut names: Vec<String> = (0..3000u32).map(|i| format!("{:x}-{i}", i.wrapping_mul(0x9e37_79b1))).collect();
        let text: String = names.chunks(2).map(|pair| format!("{}\t{}\n", pair[0], pair[1])).collect();
        let mut ids = listed(folder.path(), &text, IdKind::String, 20);
        names.sort();
        let check = |ids: &IdMap| {
            for (node, name) in (0..).map(NodeId).zip(&names) {
                assert_eq!(ids.node_of_text(name.as_bytes()).unwrap(), Some(node));
                assert_eq!(ids.node_of_known_text(name.as_bytes()).unwrap(), Some(node));
                assert_eq!(&ids.external(node).unwrap(), name);
            }
            for other in (0..3000).map(|i| format!("other {i}")).chain(["".into(), "zzz".into()]) {
                assert_eq!(ids.node_of_text(other.as_bytes()).unwrap(), None);
            }
            assert_eq!(ids.node_of_int(1).unwrap(), None);
        };
        check(&ids);
        ids.load().unwrap();
        check(&ids);
        let separated = ids.dictionary().unwrap().hash.clone();
        assert_ne!(separated, StringHash::with_bits(20), "no hashes were shared");

        // The segments of a join find and tell apart the same strings.
        ids.dictionary_mut().unwrap().hash = StringHash::with_bits(20);
        let scratch = folder.path();
        let plan =
            segments::cut(ids.dictionary_mut().unwrap(), &NodePermutation::Identity, 3, scratch, 1 << 20).unwrap();
        assert_ne!(plan.hash, StringHash::with_bits(20));
        let tables = [0, 1, 2].map(|segment| {
            let mut table = plan.table().unwrap();
            segments::load(&plan, segment, scratch, &mut table, &mut Vec::new()).unwrap();
            table
        });
        for (node, name) in (0..).map(NodeId).zip(&names) {
            let (segment, key) = segment_of(plan.hash.key(name.as_bytes()), 3);
            assert_eq!(tables[segment as usize].find(key), Some(node));
        }
    }

    #[test]
    fn a_dictionary_with_a_zeroed_block_makes_no_table() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..2000).map(|i| format!("user-{i}\tuser-{}\n", i + 1)).collect();
        let mut ids = listed(folder.path(), &text, IdKind::String, 64);
        let file = File::options().write(true).open(folder.path().join("store.partial").join(DICTIONARY));
        file.unwrap().write_all_at(&[0; 64], 5000).unwrap();
        let error = ids.load().unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{error}");
        assert!(error.to_string().contains("ids/dictionary"), "{error}");
    }

    #[test]
    fn integers_are_found_with_and_without_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let mut all: Vec<u64> = (0..2001u64).map(|i| i.wrapping_mul(GOLDEN) >> (i % 50)).collect();
        all.push(u64::MAX - 1);
        let text: String = all.chunks(2).map(|pair| format!("{}\t{}\n", pair[0], pair[1])).collect();
        let mut ids = listed(folder.path(), &text, IdKind::Integer, 64);
        all.sort_unstable();
        all.dedup();
        for loaded in [false, true] {
            if loaded {
                ids.load().unwrap();
            }
            for (node, &id) in (0..).map(NodeId).zip(&all) {
                assert_eq!(ids.node_of_int(id).unwrap(), Some(node));
                assert_eq!(ids.external(node).unwrap(), id.to_string());
            }
            for id in (0..5000).chain(u64::MAX - 5..=u64::MAX) {
                let expected = all.binary_search(&id).ok().map(|index| NodeId(index as u64));
                assert_eq!(ids.node_of_int(id).unwrap(), expected);
            }
            assert_eq!(ids.node_of_text(b"1").unwrap(), None);
        }
        ids.unload();
        assert_eq!(ids.node_of_int(all[7]).unwrap(), Some(NodeId(7)));
    }
}
