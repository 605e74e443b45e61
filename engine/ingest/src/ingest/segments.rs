//! Segments of the keys of ids.

use std::path::Path;

use grappa_formats::{NodeId, dictionary::KeyKind};
use grappa_io::Result;
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
    },
};

/// Records per read.
pub const READ_RECORDS: u64 = 1 << 16;

/// A finished cut of ids into segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPlan {
    pub hash: StringHash,
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

    fn keys_max(&self) -> u64 {
        self.extents.iter().map(|extent| extent.records).max().unwrap_or(0)
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

/// The number of segments with which a table takes at most `memory` bytes. Leaves room for a segment that is 1/15 larger
/// than the average.
pub fn count(ids: &IdMap, memory: u64) -> u32 {
    ids.table_memory().div_ceil((memory - memory / 16).max(1)) as u32
}

/// The files of (key, node) records, one per segment.
pub fn key_files(scratch: &Path) -> SpillFolder {
    SpillFolder::new(scratch, "keys", 2)
}

/// Writes the key and node of each id of the dictionary to the file of the key's segment.
///
/// Two strings may have the same key. The table of a segment would then map both to one node, so the cut checks for that,
/// gives such strings keys from another hash, and starts again. Integers have no shared keys.
pub fn cut(
    dictionary: &mut Dictionary,
    permutation: &NodePermutation,
    segments: u32,
    scratch: &Path,
    memory: u64,
) -> Result<JoinPlan> {
    let files = key_files(scratch);
    // A cut that was not finished, or with another budget, may have had more segments.
    files.remove_any()?;
    let buffer_bytes = (memory / 4 / u64::from(segments)).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize;
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
        let plan = JoinPlan { hash: dictionary.hash.clone(), extents };
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
    let (files, extent) = (key_files(scratch), plan.extents[segment as usize]);
    table.reset(extent.records)?;
    files.read_all(0, segment, extent, READ_RECORDS, |words| {
        let records = words.as_chunks().0;
        table.insert_all(records, |index, other| shared.extend([other, NodeId(records[index][1])]));
        Ok(())
    })
}
