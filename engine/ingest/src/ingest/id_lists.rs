//! The nodes of a list of external ids.

use std::path::Path;

use grappa_formats::NodeId;
use grappa_input::{IdKind, InputPlace, Keys, SplitSource};
use grappa_io::{Result, workers};

use crate::{
    ids::{IdMap, Strings, keys::Id},
    ingest::segments::{self, JoinPlan, segment_of},
};

/// The fewest ids that a thread is started for.
const PART_IDS_MIN: usize = 1 << 10;

/// Bytes of an id in a text file, estimated.
const TEXT_ID_BYTES: u64 = 12;
/// Bytes of a node in a set, if few nodes are in it: then each is alone in its container.
pub const SET_ENTRY_BYTES: u64 = 48;
/// One search of the dictionary takes about as long as to load this number of ids into tables. A search takes 25 us (10^6 strings, cached, two
/// threads); loading an id is estimated at 50 ns.
const SEARCH_COST: u64 = 500;

/// How the ids of a list are looked up.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    pub ids: &'a IdMap,
    pub strings: Strings,
    /// The segments of ids that exceed the memory.
    pub join: Option<Join<'a>>,
    pub threads: usize,
}

/// The segments of a join on disk, from which the nodes of long lists come.
#[derive(Clone, Copy)]
pub struct Join<'a> {
    pub plan: &'a JoinPlan,
    /// The folder of its files.
    pub scratch: &'a Path,
}

enum Batch {
    Integers(Vec<u64>),
    Strings(Keys),
}

impl Batch {
    fn new(kind: IdKind) -> Self {
        match kind {
            IdKind::Integer => Self::Integers(Vec::new()),
            IdKind::String => Self::Strings(Keys::default()),
        }
    }

    /// Reads the next ids of a list. False at its end.
    fn read(&mut self, source: &mut SplitSource) -> Result<bool> {
        match self {
            Self::Integers(ids) => source.next_ids(ids),
            Self::Strings(ids) => source.next_keys(ids),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(ids) => ids.len(),
            Self::Strings(ids) => ids.len(),
        }
    }

    fn get(&self, index: usize) -> Id<'_> {
        match self {
            Self::Integers(ids) => Id::Integer(ids[index]),
            Self::Strings(ids) => Id::String(ids.get(index)),
        }
    }
}

impl Lookup<'_> {
    /// Replaces the contents of `nodes` with the nodes of a batch. Without a table, a lookup waits for several reads, so all threads
    /// look up.
    fn nodes(&self, batch: &Batch, nodes: &mut Vec<Option<NodeId>>) -> Result<()> {
        nodes.clear();
        nodes.resize(batch.len(), None);
        let part = batch.len().div_ceil(self.threads).max(PART_IDS_MIN);
        let parts = nodes.chunks_mut(part).zip((0..).step_by(part));
        workers::each(parts, |(nodes, first)| {
            let ids = (first..first + nodes.len()).map(|index| batch.get(index));
            self.ids.nodes_of(ids, self.strings, nodes)
        })
        .map(drop)
    }
}

/// Calls `each` with the number, place, node and text of each id of a list. The node is none if no node has the id. The ids come in
/// order, or, if the list is long and there is a [`Lookup::join`], in the order of its segments, and within a segment in the order of the list.
///
/// `open` opens the list, which is read once for each segment.
pub fn for_each_node(
    open: impl Fn() -> Result<SplitSource>,
    kind: IdKind,
    lookup: &Lookup<'_>,
    mut each: impl FnMut(u64, InputPlace<'_>, Option<NodeId>, &dyn Fn() -> String) -> Result<()>,
) -> Result<()> {
    let mut source = open()?;
    if let Some(join) = lookup.join
        && is_long(&source, lookup.ids)
    {
        drop(source);
        return for_each_by_segment(open, kind, lookup, join, each);
    }
    let (mut batch, mut nodes, mut row) = (Batch::new(kind), Vec::new(), 0);
    while batch.read(&mut source)? {
        lookup.nodes(&batch, &mut nodes)?;
        for (index, &node) in nodes.iter().enumerate() {
            each(row, source.place(index), node, &|| batch.get(index).to_string())?;
            row += 1;
        }
    }
    Ok(())
}

/// The number of ids of a list, estimated if it is text.
pub fn listed(source: &SplitSource) -> u64 {
    source.ids().unwrap_or_else(|| source.total_bytes() / TEXT_ID_BYTES)
}

/// Whether it takes longer to search the dictionary for each id of a list than to load all segments.
fn is_long(source: &SplitSource, ids: &IdMap) -> bool {
    listed(source).saturating_mul(SEARCH_COST) > ids.nodes()
}

/// Bytes of memory of the set of nodes of a list, if the graph has `nodes` nodes.
pub fn set_memory(source: &SplitSource, nodes: u64) -> u64 {
    listed(source).saturating_mul(SET_ENTRY_BYTES).min(nodes.div_ceil(8))
}

fn for_each_by_segment(
    open: impl Fn() -> Result<SplitSource>,
    kind: IdKind,
    lookup: &Lookup<'_>,
    Join { plan, scratch }: Join<'_>,
    mut each: impl FnMut(u64, InputPlace<'_>, Option<NodeId>, &dyn Fn() -> String) -> Result<()>,
) -> Result<()> {
    let mut table = plan.table()?;
    for segment in 0..plan.segments() {
        // The cut has separated the strings that shared keys.
        segments::load(plan, segment, scratch, &mut table, &mut Vec::new())?;
        let (mut source, mut batch, mut first) = (open()?, Batch::new(kind), 0);
        while batch.read(&mut source)? {
            for index in 0..batch.len() {
                let id = batch.get(index);
                let (id_segment, key) = segment_of(id.key(&plan.hash), plan.segments());
                if id_segment == segment {
                    let node = match table.find(key) {
                        Some(node) if lookup.ids.has(node, id, lookup.strings)? => Some(node),
                        _ => None,
                    };
                    each(first + index as u64, source.place(index), node, &|| id.to_string())?;
                }
            }
            first += batch.len() as u64;
        }
    }
    Ok(())
}

/// The place of the first id of `source` with this text.
pub fn place_of<'a>(source: &'a mut SplitSource, kind: IdKind, id: &str) -> Result<Option<InputPlace<'a>>> {
    let mut batch = Batch::new(kind);
    while batch.read(source)? {
        let found = (0..batch.len()).find(|&index| batch.get(index).to_string() == id);
        if let Some(index) = found {
            return Ok(Some(source.place(index)));
        }
    }
    Ok(None)
}
