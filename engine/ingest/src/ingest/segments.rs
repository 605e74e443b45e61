//! Segments of the keys of ids.

use std::path::Path;

use grappa_formats::{NodeId, dictionary::KeyKind};
use grappa_input::EdgeEnd;
use grappa_io::{Result, ledger::MemoryShare};
use grappa_storage::NodePermutation;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{
        IdMap,
        dictionary::Dictionary,
        keys::StringHash,
        table::{BYTES_PER_KEY, KeyTable},
    },
    ingest::{
        plan::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN},
        spill::{Extent, SpillFolder, SpillWriter},
        stage::Stage,
    },
};

/// A segment of average size, of the memory of a table.
const AVERAGE_SEGMENT: MemoryShare = MemoryShare::fraction(
    "segment of average size",
    [15, 16],
    "keys are spread by a hash, so segments are almost equal, and 1/16 covers the largest",
);
/// The buffers of all segments while keys are written.
const KEY_BUFFERS: MemoryShare = MemoryShare::one(
    "buffers of segments",
    4,
    "the dictionary, which is read meanwhile, has the rest; chosen, not measured",
);

/// Records per read.
pub const READ_RECORDS: u64 = 1 << 16;

/// The files of keys of a plan. The ends of a relation between types have a plan each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyFiles {
    /// Of all nodes: both ends have one type.
    Nodes,
    /// Of sources.
    Sources,
    /// Of targets.
    Targets,
}

impl KeyFiles {
    /// The files of (key, node) records, one per segment.
    fn folder(self, scratch: &Path) -> SpillFolder {
        let name = match self {
            Self::Nodes => "keys",
            Self::Sources => "source-keys",
            Self::Targets => "target-keys",
        };
        SpillFolder::new(scratch, name, 2)
    }
}

/// A finished cut of ids into segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPlan {
    pub hash: StringHash,
    keys: KeyFiles,
    /// The file of each segment's keys.
    extents: Vec<Extent>,
}

impl JoinPlan {
    pub fn segments(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Bytes of memory of the table of the largest segment.
    pub fn table_memory(&self) -> u64 {
        self.keys_max() * BYTES_PER_KEY
    }

    /// A table with room for any segment.
    ///
    /// The whole join uses this one table. Allocators do not always return freed memory to the system, so one table per
    /// segment could take more than the budget.
    pub fn table(&self) -> Result<KeyTable> {
        KeyTable::with_capacity(self.keys_max())
    }

    /// The files of its keys.
    pub fn key_files(&self, scratch: &Path) -> SpillFolder {
        self.keys.folder(scratch)
    }

    fn keys_max(&self) -> u64 {
        self.extents.iter().map(|extent| extent.records).max().unwrap_or(0)
    }
}

/// The cuts of the ids at both ends of edges, as far as they do not fit in memory. One at least does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPlans {
    pub source: Option<JoinPlan>,
    pub target: Option<JoinPlan>,
}

impl JoinPlans {
    /// The pass that reads the input.
    pub fn first_stage(&self) -> Stage {
        if self.source.is_some() { Stage::BySource } else { Stage::ByTarget }
    }

    /// The plan of an end. None: its ids are replaced while the input is read.
    pub fn plan(&self, end: EdgeEnd) -> Option<&JoinPlan> {
        match end {
            EdgeEnd::Source => self.source.as_ref(),
            EdgeEnd::Target => self.target.as_ref(),
        }
    }

    /// The end that is replaced last.
    pub fn last_end(&self) -> EdgeEnd {
        if self.target.is_some() { EdgeEnd::Target } else { EdgeEnd::Source }
    }

    /// Bytes of memory of the table of the largest segment of an end.
    pub fn table_memory_of(&self, end: EdgeEnd) -> u64 {
        self.plan(end).map_or(0, JoinPlan::table_memory)
    }

    /// The same, for the larger end.
    pub fn table_memory(&self) -> u64 {
        self.all().map(JoinPlan::table_memory).max().unwrap_or(0)
    }

    /// Removes the files of keys.
    pub fn remove_keys(&self, scratch: &Path) -> Result<()> {
        self.all().try_for_each(|plan| plan.key_files(scratch).remove_all(0..plan.segments(), std::iter::once(0)))
    }

    /// The plans: one, if both ends have one type.
    pub fn all(&self) -> impl Iterator<Item = &JoinPlan> {
        self.source.iter().chain(&self.target)
    }
}

/// The segment of a key, and the key within the segment.
///
/// Both come from the product `key * segments`: the high word is the segment, the low word the key within it. So segments
/// are even ranges of keys, and the keys within a segment are again spread over all 64-bit numbers, as [`KeyTable`]
/// needs. No two keys of a segment coincide, because the product is different for different keys.
#[inline]
pub fn segment_of(key: u64, segments: u32) -> (u32, u64) {
    let product = u128::from(key) * u128::from(segments);
    ((product >> 64) as u32, product as u64)
}

/// The number of segments with which a table takes at most `memory` bytes.
pub fn count(ids: &IdMap, memory: u64) -> u32 {
    ids.table_memory().div_ceil(AVERAGE_SEGMENT.bytes(memory).max(1)) as u32
}

/// Writes the key and node of each id of the dictionary to the file of the key's segment.
///
/// Two strings may have the same key. The table of a segment would then map both to one node, so the cut checks for that,
/// gives such strings keys from another hash, and starts again. Integers have no shared keys.
pub fn cut(
    dictionary: &mut Dictionary,
    permutation: &NodePermutation,
    segments: u32,
    keys: KeyFiles,
    scratch: &Path,
    memory: u64,
) -> Result<JoinPlan> {
    let files = keys.folder(scratch);
    // A cut that was not finished, or with another budget, may have had more segments.
    files.remove_any()?;
    let buffer_bytes =
        (KEY_BUFFERS.bytes(memory) / u64::from(segments)).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize;
    loop {
        let mut writer = SpillWriter::new(files.clone(), 0, segments, buffer_bytes)?;
        dictionary.for_each_key(|key, dense_id| {
            let (segment, key) = segment_of(key, segments);
            writer.push(segment)?.copy_from_slice(&[key, permutation.node(dense_id).0]);
            Ok(())
        })?;
        let extents = writer.flush_all()?.to_vec();
        // Frees its buffers before the table is allocated.
        drop(writer);
        let plan = JoinPlan { hash: dictionary.hash.clone(), keys, extents };
        let mut shared = Vec::new();
        if dictionary.kind() == KeyKind::Strings {
            let mut table = plan.table()?;
            for segment in 0..segments {
                load(&plan, segment, scratch, &mut table, &mut shared)?;
            }
        }
        if shared.is_empty() {
            return Ok(plan);
        }
        let shared: Vec<_> = shared.into_iter().map(|node| permutation.dense_id(node)).collect::<Result<_>>()?;
        dictionary.separate(&shared)?;
    }
}

/// Fills the table with the keys of a segment. Appends the nodes of ids that share a key to `shared`.
pub fn load(
    plan: &JoinPlan,
    segment: u32,
    scratch: &Path,
    table: &mut KeyTable,
    shared: &mut Vec<NodeId>,
) -> Result<()> {
    let (files, extent) = (plan.key_files(scratch), plan.extents[segment as usize]);
    table.reset(extent.records)?;
    files.read_all(0, segment, extent, READ_RECORDS, |words| {
        let records = words.as_chunks().0;
        table.insert_all(records, |index, other| shared.extend([other, NodeId(records[index][1])]));
        Ok(())
    })
}
