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
use grappa_input::{EdgeSource, Keys, SplitSource};
use grappa_io::{
    Error, Result,
    container::{ContainerWriter, WrittenFile},
    durable,
    ledger::{Lease, MemoryShare, split_at_limit},
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::{files::DICTIONARY, writer::StoreFolder};

use crate::ingest::{
    id_columns::ParsedIds,
    journal::Scan,
    plan::IngestBudget,
    runs::{self, IdCollector, Runs},
};

/// Encoded bytes per write.
const DRAIN_BYTES: usize = 256 << 10;

/// The least memory for the ids of a run. With less, a run would be hardly worth its file.
const RUN_MEMORY_MIN: u64 = 1 << 20;
/// The ids that are sorted at once.
const RUNS: MemoryShare = MemoryShare::one(
    "runs of ids",
    2,
    "1/4 is for blocks of the input, and 1/4 for the buffers of runs and for strings that are longer than assumed; at least 1 MiB in each \
     thread; chosen, not measured",
);

/// Collects the ids at these ends of edges, and of `lists`, and writes the dictionary, synced. Returns the counts and the
/// file's entry.
pub fn build(
    sources: &[(&EdgeSource, [bool; 2])],
    kind: KeyKind,
    lists: Vec<SplitSource>,
    budget: &IngestBudget,
    store: &StoreFolder,
    progress: &dyn Progress,
) -> Result<(Scan, FileEntry)> {
    let runs = Runs::new(&store.scratch("ids")?, kind);
    progress.stage("collecting ids", Some(sources.iter().map(|(source, _)| source.total_bytes()).sum()));
    let memory = run_memory(budget);
    let edges = AtomicU64::new(0);
    for &(source, ends) in sources {
        source.read_ahead(budget.threads, &|_| false, |blocks| {
            workers::run(budget.threads, |turn| {
                let (mut batch, mut ids) = (ParsedIds::default(), IdCollector::new(&runs, memory)?);
                while turn.goes_on()
                    && let Some(block) = blocks.next()?
                {
                    let count = batch.parse(source, &block)?;
                    for end in [0, 1].into_iter().filter(|&end| ends[end]) {
                        match &mut ids {
                            IdCollector::Integers(ids) => batch.integers(end).try_for_each(|id| ids.add(id))?,
                            IdCollector::Strings(ids) => {
                                let keys = batch.keys(end).expect("strings are parsed as text");
                                ids.add_all(keys.iter())?;
                            }
                        }
                    }
                    edges.fetch_add(count, Ordering::Relaxed);
                    progress.advance(block.input_bytes(), count);
                    check_stopped(progress)?;
                }
                ids.finish()
            })
        })?;
    }
    for list in lists {
        collect_listed(list, IdCollector::new(&runs, memory)?, progress)?;
    }
    progress.stage("sorting ids", Some(runs.bytes()));
    let folder = store.folder("ids")?;
    let path = store.path().join(DICTIONARY);
    let (nodes, file) = {
        let mut writer = DictionaryWriter::create(&path, kind)?;
        runs::merge(
            runs,
            RUNS.bytes(budget.memory),
            budget.threads,
            &mut |bytes| progress.advance(bytes, 0),
            &mut |id| writer.push(id),
        )?;
        writer.finish()?
    };
    file.sync()?;
    durable::sync_folder(&folder)?;
    Ok((Scan { nodes, edges: edges.into_inner() }, store.entry(&file)))
}

/// The memory of [`build`] by consumer. With very little memory, runs of the least size take more than the limit.
pub fn leases(budget: &IngestBudget) -> Vec<Lease> {
    let runs = RUNS.lease_of(budget.threads as u64 * run_memory(budget));
    let leases = [budget.spill_leases(0, 0), vec![runs]].concat();
    split_at_limit(budget.memory, leases)
}

/// Bytes of the ids that a thread sorts at once.
fn run_memory(budget: &IngestBudget) -> u64 {
    (RUNS.bytes(budget.memory) / budget.threads as u64).max(RUN_MEMORY_MIN)
}

fn collect_listed(mut source: SplitSource, mut ids: IdCollector<'_>, progress: &dyn Progress) -> Result<()> {
    let (mut integers, mut keys) = (Vec::new(), Keys::default());
    loop {
        match &mut ids {
            IdCollector::Integers(ids) if source.next_ids(&mut integers)? => {
                integers.iter().try_for_each(|&id| ids.add(id))?;
            }
            IdCollector::Strings(ids) if source.next_keys(&mut keys)? => {
                if let Some(long) = keys.iter().position(|id| id.len() > KEY_BYTES_MAX) {
                    let problem = format!("a node id is longer than {KEY_BYTES_MAX} bytes; shorten it");
                    return Err(source.place(long).error(problem));
                }
                ids.add_all(keys.iter())?;
            }
            _ => return ids.finish(),
        }
        check_stopped(progress)?;
    }
}

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
    use grappa_input::{EdgeSourceOptions, EndIds, IdKind, IdLimit};
    use grappa_io::progress::Silent;
    use grappa_storage::{NodePermutation, writer::StoreFolder};

    use super::*;
    use crate::{
        ids::{
            IdMap, Strings,
            dictionary::Dictionary,
            keys::{Id, StringHash},
        },
        ingest::segments::{self, KeyFiles, segment_of},
    };

    /// The ids of the edges in `text`. The hashes of strings have `bits` bits.
    fn listed(folder: &Path, text: &str, kind: IdKind, bits: u32) -> IdMap {
        let edges = folder.join("edges.tsv");
        std::fs::write(&edges, text).unwrap();
        let ends = EndIds::both(kind, IdLimit::Sparse);
        let options = EdgeSourceOptions { ends, ..EdgeSourceOptions::default() };
        let source = EdgeSource::open(&[edges], options).unwrap();
        let (store, _) = StoreFolder::begin(&folder.join("store"), None, false).unwrap();
        let budget = IngestBudget::new(1 << 20, 1, 2);
        let hash = StringHash::with_bits(bits);
        let kind = if kind == IdKind::String { KeyKind::Strings } else { KeyKind::Integers };
        build(&[(&source, [true; 2])], kind, Vec::new(), &budget, &store, &Silent).unwrap();
        let dictionary = Dictionary::open(&store.path().join(DICTIONARY), hash).unwrap();
        IdMap::listed(dictionary, NodePermutation::Identity)
    }

    fn node_of(ids: &IdMap, id: Id<'_>, strings: Strings) -> Option<NodeId> {
        let mut nodes = [None];
        ids.nodes_of([id].into_iter(), strings, &mut nodes).unwrap();
        nodes[0]
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
                let id = Id::String(name.as_bytes());
                assert_eq!([Strings::Any, Strings::Known].map(|strings| node_of(ids, id, strings)), [Some(node); 2]);
                assert_eq!(&ids.external(node).unwrap(), name);
            }
            for other in (0..3000).map(|i| format!("other {i}")).chain(["".into(), "zzz".into()]) {
                assert_eq!(node_of(ids, Id::String(other.as_bytes()), Strings::Any), None);
            }
            assert_eq!(node_of(ids, Id::Integer(1), Strings::Any), None);
        };
        check(&ids);
        ids.load().unwrap();
        check(&ids);
        let separated = ids.dictionary().unwrap().hash.clone();
        assert_ne!(separated, StringHash::with_bits(20), "no hashes were shared");

        // The segments of a join find and tell apart the same strings.
        ids.dictionary_mut().unwrap().hash = StringHash::with_bits(20);
        let scratch = folder.path();
        let plan = segments::cut(
            ids.dictionary_mut().unwrap(),
            &NodePermutation::Identity,
            3,
            KeyFiles::Nodes,
            scratch,
            1 << 20,
        )
        .unwrap();
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
                assert_eq!(node_of(&ids, Id::Integer(id), Strings::Any), Some(node));
                assert_eq!(ids.external(node).unwrap(), id.to_string());
            }
            for id in (0..5000).chain(u64::MAX - 5..=u64::MAX) {
                let expected = all.binary_search(&id).ok().map(|index| NodeId(index as u64));
                assert_eq!(node_of(&ids, Id::Integer(id), Strings::Any), expected);
            }
            assert_eq!(node_of(&ids, Id::String(b"1"), Strings::Any), None);
        }
        ids.unload();
        assert_eq!(node_of(&ids, Id::Integer(all[7]), Strings::Any), Some(NodeId(7)));
    }
}
