//! The assignment of edge buckets to partitions for one super-epoch.
//!
//! Each chunk is in the *base* of exactly one partition, and may be in the *variable* part of one other. A partition
//! *owns* the chunks of both parts. It sees edge bucket (i, j) if it owns chunk i and chunk j. Only the owners of chunk
//! i can see bucket (i, j), so a bucket has two entries: the partition with chunk i in its base, and the partition with
//! chunk i in its variable part. An entry is none if that partition does not own chunk j. The diagonal (i, i) lists the
//! owners of each chunk and determines all other entries ([`Assignment::from_owners`]).
//!
//! ```text
//! meta    offset  bytes  content
//!              0      8  generation
//!              8      4  C: number of chunks
//!             12      4  K: number of partitions
//!             16      4  D: number of distinct table rows
//!             20      4  zeros
//!             24     16  name of the schedule, ASCII, then zeros
//! payload    4*i      4  number of the distinct table row that is row i, the buckets (i, 0..C)
//!   4*C + 2*w*(d*C+j)  w  distinct table row d, bucket j: the partition with chunk i in its base; all ones: none
//!                  +w  w  the partition with chunk i in its variable part; all ones: none
//!                         w is 2 if K < 65,535, else 4
//! ```
//!
//! Destination chunks with the same owners have the same table row, which is stored once. So the table takes C entries
//! per group of chunks instead of C x C. Distinct rows are numbered in order of first use, so equal tables have equal
//! bytes.
//!
//! Each repartitioning writes one file, the next generation. The text file `CURRENT` names the generation in use, and
//! is replaced by a rename.

use std::{collections::HashMap, hash::Hash};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    ChunkId, FormatError, PartitionId, Result,
    bytes::{Fields, check_payload_length},
    container::{self, FileKind, HEADER_BYTES, Header},
    error::invalid_if,
};

const META_BYTES: usize = 40;
const SCHEDULE_BYTES: usize = 16;
const NONE: u32 = u32::MAX;

/// The partitions that see an edge bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Serves {
    /// The partition whose base has the destinations, if it also owns the sources.
    pub base: Option<PartitionId>,
    /// The partition whose variable part has the destinations, if it also owns the sources. Never the same as `base`.
    pub variable: Option<PartitionId>,
}

/// The partitions that own a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owners {
    /// The partition whose base has the chunk.
    pub base: PartitionId,
    /// The partition whose variable part has the chunk, if any. Never the same as `base`.
    pub variable: Option<PartitionId>,
}

/// The partitions that see each edge bucket, for one super-epoch.
///
/// ```
/// use grappa_formats::{ChunkId, PartitionId, assignment::{Assignment, Owners}};
///
/// // Two chunks, each in the base of one partition. No partition sees the edges between them.
/// let owners = [0, 1].map(|partition| Owners { base: PartitionId(partition), variable: None });
/// let assignment = Assignment::from_owners(1, 2, "fixed", &owners);
/// assert_eq!(assignment.bucket(ChunkId(0), ChunkId(0)).base, Some(PartitionId(0)));
/// assert_eq!(assignment.bucket(ChunkId(0), ChunkId(1)).base, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    generation: u64,
    chunks: u32,
    partitions: u32,
    schedule: String,
    /// For each destination chunk, the number of its distinct table row.
    row_of: Vec<u32>,
    /// The distinct table rows, one after another: base and variable entry of each bucket, `NONE` for none.
    rows: Vec<[u32; 2]>,
}

impl Assignment {
    /// Generation 0 of a store that was not partitioned: one partition owns everything.
    ///
    /// # Panics
    /// If there are no chunks.
    pub fn whole(chunks: u32) -> Self {
        assert!(chunks > 0, "no chunks");
        Self {
            generation: 0,
            chunks,
            partitions: 1,
            schedule: "whole".into(),
            row_of: vec![0; chunks as usize],
            rows: vec![[0, NONE]; chunks as usize],
        }
    }

    /// The assignment with these owners of chunks: a partition sees the buckets between the chunks it owns.
    ///
    /// Time and space are the size of the table: C buckets for each group of chunks with the same owners.
    ///
    /// # Panics
    /// As for [`Assignment::from_fn`].
    pub fn from_owners(generation: u64, partitions: u32, schedule: &str, owners: &[Owners]) -> Self {
        let keys = owners.iter().copied();
        Self::from_rows(generation, partitions, schedule, keys, |row, rows| {
            let cell = [row.base.0, row.variable.map_or(NONE, |p| p.0)];
            assert!(is_cell(cell, partitions), "a chunk is owned by {row:?} of {partitions}");
            rows.extend(owners.iter().map(|source| seen(cell, source)));
        })
    }

    /// The assignment in which bucket (i, j) serves `serves(i, j)`. For tests: the result is usable for partitions only
    /// if it passes [`Assignment::check_owners`].
    ///
    /// # Panics
    /// If the number of chunks or partitions is 0, there are 2^32 - 1 partitions, a partition does not exist, a bucket
    /// serves a partition twice, or the name of the schedule is not 1 to 16 characters of a-z, 0-9 and `-`.
    pub fn from_fn(
        generation: u64,
        chunks: u32,
        partitions: u32,
        schedule: &str,
        serves: impl Fn(ChunkId, ChunkId) -> Serves,
    ) -> Self {
        let table_rows = (0..chunks).map(|i| {
            let mut row = Vec::with_capacity(chunks as usize);
            for j in 0..chunks {
                let serves = serves(ChunkId(i), ChunkId(j));
                let cell = [serves.base, serves.variable].map(|p| p.map_or(NONE, |p| p.0));
                assert!(is_cell(cell, partitions), "bucket ({i}, {j}) serves {serves:?} of {partitions}");
                row.push(cell);
            }
            row
        });
        Self::from_rows(generation, partitions, schedule, table_rows, |row, rows| {
            rows.extend_from_slice(row);
        })
    }

    /// The assignment whose table row of each chunk follows from a key. `append` appends the row of a key that is new.
    fn from_rows<K: Eq + Hash>(
        generation: u64,
        partitions: u32,
        schedule: &str,
        keys: impl ExactSizeIterator<Item = K>,
        append: impl Fn(&K, &mut Vec<[u32; 2]>),
    ) -> Self {
        let chunks = keys.len() as u32;
        assert!(
            (1..=u32::MAX as usize).contains(&keys.len()) && (1..NONE).contains(&partitions),
            "{chunks} chunks, {partitions} partitions"
        );
        assert!(is_schedule(schedule.as_bytes()), "a schedule named {schedule:?}");
        let (mut row_of, mut rows) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut distinct: HashMap<K, u32> = HashMap::new();
        for key in keys {
            let next = distinct.len() as u32;
            row_of.push(*distinct.entry(key).or_insert_with_key(|key| {
                append(key, &mut rows);
                next
            }));
        }
        Self { generation, chunks, partitions, schedule: schedule.into(), row_of, rows }
    }

    /// The generation: the number of repartitionings before this one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of chunks, C.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Number of partitions, K.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The name of the schedule that made the assignment, such as `whole`, `sweep`, `shuffle` or `fixed`.
    pub fn schedule(&self) -> &str {
        &self.schedule
    }

    /// The partitions that see edge bucket (i, j), with destinations in chunk `i` and sources in chunk `j`.
    ///
    /// # Panics
    /// If there is no such chunk.
    #[inline]
    pub fn bucket(&self, i: ChunkId, j: ChunkId) -> Serves {
        assert!(j.0 < self.chunks, "chunk {j} of {}", self.chunks);
        let row = self.row_of[i.0 as usize] as usize;
        let [base, variable] =
            self.rows[row * self.chunks as usize + j.0 as usize].map(|p| (p != NONE).then_some(PartitionId(p)));
        Serves { base, variable }
    }

    /// The owners of a chunk according to the table: the partitions that see the bucket from the chunk to itself.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn owners(&self, chunk: ChunkId) -> Serves {
        self.bucket(chunk, chunk)
    }

    /// Fails unless each chunk is in the base of a partition, and the table is the one that follows from the owners of
    /// the chunks. Reads the table once.
    pub fn check_owners(&self) -> Result<()> {
        let mut owners = Vec::with_capacity(self.chunks as usize);
        for (i, &row) in self.row_of.iter().enumerate() {
            let Serves { base, variable } = self.owners(ChunkId(i as u32));
            let Some(base) = base else {
                let problem = format!("chunk {i} is in the base of no partition");
                return Err(FormatError::invalid(self.cell_offset(row, i), problem));
            };
            owners.push(Owners { base, variable });
        }
        // Chunks share a table row exactly if they have the same owners. So comparing a row for the first of its chunks
        // suffices; a later chunk with other owners is compared too, and fails.
        let mut checked: Vec<Option<Owners>> = vec![None; self.rows.len() / self.chunks as usize];
        for (i, &row) in self.row_of.iter().enumerate() {
            if checked[row as usize].replace(owners[i]) == Some(owners[i]) {
                continue;
            }
            let destination = [owners[i].base.0, owners[i].variable.map_or(NONE, |p| p.0)];
            let cells = &self.rows[row as usize * self.chunks as usize..][..self.chunks as usize];
            for (j, (source, &cell)) in owners.iter().zip(cells).enumerate() {
                let expected = seen(destination, source);
                let ([base, variable], [found_base, found_variable]) = (expected.map(ShownOwner), cell.map(ShownOwner));
                invalid_if!(
                    cell != expected,
                    self.cell_offset(row, j),
                    "the owners of chunks {i} and {j} make {base} and {variable} see edge bucket ({i}, {j}), but the \
                     table says {found_base} and {found_variable}"
                );
            }
        }
        Ok(())
    }

    /// The offset of bucket `j` of a distinct table row, in bytes from the start of the file.
    fn cell_offset(&self, row: u32, j: usize) -> u64 {
        let cell = u64::from(row) * u64::from(self.chunks) + j as u64;
        let payload = Header::payload_offset(FileKind::ASSIGNMENT, META_BYTES);
        payload + 4 * u64::from(self.chunks) + 2 * entry_bytes(self.partitions) as u64 * cell
    }

    /// Encodes the file `assignments/<generation>`. Returns its bytes and its digest.
    pub fn encode(&self) -> (Vec<u8>, u64) {
        let distinct = (self.rows.len() / self.chunks as usize) as u32;
        let mut meta = self.generation.to_le_bytes().to_vec();
        meta.extend([self.chunks, self.partitions, distinct, 0].into_iter().flat_map(u32::to_le_bytes));
        meta.extend_from_slice(self.schedule.as_bytes());
        meta.resize(META_BYTES, 0);
        let width = entry_bytes(self.partitions);
        let mut payload = Vec::with_capacity(4 * self.row_of.len() + 2 * width * self.rows.len());
        for row in &self.row_of {
            payload.extend_from_slice(&row.to_le_bytes());
        }
        for partition in self.rows.as_flattened() {
            payload.extend_from_slice(&partition.to_le_bytes()[..width]);
        }
        container::encode_file(FileKind::ASSIGNMENT, meta, &payload)
    }

    /// Decodes and fully checks the file `assignments/<generation>` of a store with `chunks` chunks.
    pub fn decode(file: &[u8], generation: u64, chunks: u32) -> Result<Self> {
        let (header, payload) = container::decode_file(file, FileKind::ASSIGNMENT)?;
        let (mut assignment, distinct) = Self::decode_meta(&header)?;
        invalid_if!(
            (assignment.generation, assignment.chunks) != (generation, chunks),
            HEADER_BYTES as u64,
            "the assignment is generation {} of {} chunks, expected generation {generation} of {chunks}; were files \
                     swapped?",
            assignment.generation,
            assignment.chunks
        );
        let width = entry_bytes(assignment.partitions);
        let (chunks, partitions) = (u64::from(chunks), assignment.partitions);
        let expected = 4 * u128::from(chunks) + 2 * width as u128 * u128::from(chunks) * u128::from(distinct);
        check_payload_length(&header, u64::try_from(expected).ok())?;
        let (row_of, cells) = payload.split_at(4 * chunks as usize);
        let mut used = 0;
        for (i, bytes) in row_of.as_chunks().0.iter().enumerate() {
            let row = u32::from_le_bytes(*bytes);
            invalid_if!(
                row > used || row >= distinct,
                header.payload_offset + 4 * i as u64,
                "table row {i} is distinct row {row} of {distinct}, but only the first {used} are in use so far"
            );
            used = used.max(row + 1);
            assignment.row_of.push(row);
        }
        invalid_if!(
            used != distinct,
            header.payload_offset,
            "the assignment has {distinct} distinct table rows but uses only {used}"
        );
        assignment.rows.reserve_exact(cells.len() / (2 * width));
        for (n, cell) in cells.chunks_exact(2 * width).enumerate() {
            let cell = match *cell {
                [a, b, c, d] => [[a, b], [c, d]].map(|p| match u16::from_le_bytes(p) {
                    u16::MAX => NONE,
                    p => p.into(),
                }),
                [a, b, c, d, e, f, g, h] => [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes),
                _ => unreachable!("a cell is two entries of 2 or 4 bytes"),
            };
            invalid_if!(
                !is_cell(cell, partitions),
                header.payload_offset + 4 * chunks + (2 * width * n) as u64,
                "distinct table row {} gives bucket {} to partitions {} and {} of {partitions}",
                n as u64 / chunks,
                n as u64 % chunks,
                cell[0],
                cell[1]
            );
            assignment.rows.push(cell);
        }
        Ok(assignment)
    }

    /// Decodes the meta: an assignment without its table, and the number of distinct table rows.
    fn decode_meta(header: &Header) -> Result<(Self, u32)> {
        let mut fields = Fields::from_header(header, META_BYTES)?;
        let generation = fields.u64();
        let at = fields.offset();
        let (chunks, partitions, distinct) = (fields.u32(), fields.u32(), fields.u32());
        fields.zeros::<4>()?;
        let schedule_at = fields.offset();
        let padded = fields.array::<SCHEDULE_BYTES>();
        invalid_if!(
            chunks == 0 || partitions == 0 || partitions == NONE || distinct == 0 || distinct > chunks,
            at,
            "{chunks} chunks, {partitions} partitions and {distinct} distinct table rows make no assignment"
        );
        let length = padded.iter().position(|&byte| byte == 0).unwrap_or(SCHEDULE_BYTES);
        let (name, zeros) = padded.split_at(length);
        let schedule = String::from_utf8_lossy(name);
        invalid_if!(
            !is_schedule(name) || zeros.iter().any(|&byte| byte != 0),
            schedule_at,
            "{schedule:?} is not a valid name of a schedule"
        );
        let assignment = Self {
            generation,
            chunks,
            partitions,
            schedule: schedule.into_owned(),
            row_of: Vec::new(),
            rows: Vec::new(),
        };
        Ok((assignment, distinct))
    }
}

/// The text file `assignments/CURRENT`: `generation <decimal> <checksum>` and a line feed. The checksum is the XXH3-64
/// of the text before the last space, in 16 hexadecimal digits.
///
/// ```
/// use grappa_formats::assignment::Current;
///
/// let file = Current { generation: 17 }.encode();
/// assert!(file.starts_with("generation 17 "));
/// assert_eq!(Current::decode(file.as_bytes())?.generation, 17);
/// assert!(Current::decode(file.replace("17", "18").as_bytes()).is_err());
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The generation in use. Its file is `assignments/<generation>`.
    pub generation: u64,
}

impl Current {
    /// Encodes the file.
    pub fn encode(&self) -> String {
        let said = format!("generation {}", self.generation);
        format!("{said} {:016x}\n", xxh3_64(said.as_bytes()))
    }

    /// Decodes and checks the file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        // The file is valid if encoding the generation that it names gives the same bytes.
        let generation = std::str::from_utf8(file).ok().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        match generation.map(|generation| Self { generation }) {
            Some(current) if current.encode().as_bytes() == file => Ok(current),
            _ => Err(FormatError::invalid(
                0,
                "CURRENT must be the line `generation <number> <checksum>` with a matching checksum; write it again with \
                 the generation to use",
            )),
        }
    }
}

/// The owners of a destination chunk that also own the source chunk, `NONE` for the others.
fn seen(destination: [u32; 2], source: &Owners) -> [u32; 2] {
    let owners = [Some(source.base), source.variable];
    destination.map(|p| if owners.contains(&Some(PartitionId(p))) { p } else { NONE })
}

/// Displays an entry of the table.
struct ShownOwner(u32);

impl std::fmt::Display for ShownOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            NONE => f.write_str("none"),
            p => write!(f, "partition {p}"),
        }
    }
}

/// Bytes per entry of the table.
fn entry_bytes(partitions: u32) -> usize {
    if partitions < 0xffff { 2 } else { 4 }
}

/// Whether the entries of a bucket are valid: the partitions exist, and none is named twice.
fn is_cell([base, variable]: [u32; 2], partitions: u32) -> bool {
    let exist = [base, variable].iter().all(|&p| p == NONE || p < partitions);
    exist && (base != variable || base == NONE)
}

fn is_schedule(name: &[u8]) -> bool {
    let is_known = name.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
    (1..=SCHEDULE_BYTES).contains(&name.len()) && is_known
}
