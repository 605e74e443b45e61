//! Which partitions see an edge bucket in a super-epoch.
//!
//! Each chunk is in the *base* of one partition, and in the *variable* part of at most one other. A partition *owns* the
//! chunks of both, and sees edge bucket (i, j) if it owns chunk i and chunk j. So a bucket (i, j) can be seen by the owners
//! of chunk i at most: one of its two entries is for the partition whose base has chunk i, the other for the one whose
//! variable part has it, and either is none if that partition does not own chunk j. On the diagonal, where i = j, the table
//! says who owns a chunk, and that decides the rest ([`Assignment::from_owners`]).
//!
//! ```text
//! meta    offset  bytes  what
//!              0      8  generation
//!              8      4  C: number of chunks
//!             12      4  K: number of partitions
//!             16      4  D: number of distinct rows
//!             20      4  zeros
//!             24     16  name of the schedule, ASCII, then zeros
//! payload    4*i      4  which of the distinct rows is row i of the table, the buckets (i, 0..C)
//!   4*C + 2*w*(d*C+j)  w  distinct row d, bucket j: the partition with its destinations in the base; all ones: none
//!                  +w  w  the partition with its destinations in the variable part; all ones: none
//!                         w is 2 if K < 65,535, else 4
//! ```
//!
//! Destination chunks with the same owners share a row, so a table of C x C takes the space of as many rows as there
//! are groups of chunks. Distinct rows are numbered in the order in which the table first uses them: the same table is
//! always the same bytes.
//!
//! Assignments are written by repartitioning, one file a generation. The text file `CURRENT` beside them names the
//! generation that counts, and is replaced by renaming another over it.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    ChunkId, FormatError, PartitionId, Result,
    bytes::{Fields, check_payload_length},
    container::{self, FileKind, HEADER_BYTES, Header},
};

const META_BYTES: usize = 40;
const SCHEDULE_BYTES: usize = 16;
const NONE: u32 = u32::MAX;

/// The partitions that see an edge bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Serves {
    /// The partition that has its destinations in the base, if that one has its sources at all.
    pub base: Option<PartitionId>,
    /// The partition, another one, that has its destinations in the variable part, if that one has its sources at all.
    pub variable: Option<PartitionId>,
}

/// The partitions that own a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owners {
    /// The partition in whose base it is.
    pub base: PartitionId,
    /// The partition, another one, in whose variable part it is.
    pub variable: Option<PartitionId>,
}

/// Edge bucket -> partitions, for one super-epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    generation: u64,
    chunks: u32,
    partitions: u32,
    schedule: String,
    /// For each destination chunk, which of the rows is its.
    row_of: Vec<u32>,
    /// Distinct rows, one after another: base and variable of each bucket, `NONE` for none.
    rows: Vec<[u32; 2]>,
}

impl Assignment {
    /// Generation 0: one partition that owns everything. For a store that was not partitioned.
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

    /// The assignment that follows from who owns each chunk: a partition sees the buckets between the chunks it owns.
    ///
    /// Takes the time and the space of the table: C buckets for each group of chunks with the same owners.
    ///
    /// # Panics
    /// As [`Assignment::from_fn`].
    pub fn from_owners(generation: u64, partitions: u32, schedule: &str, owners: &[Owners]) -> Self {
        let (mut row_of, mut rows) = (Vec::with_capacity(owners.len()), Vec::new());
        let mut distinct: HashMap<Owners, u32> = HashMap::new();
        check_shape(owners.len() as u64, partitions, schedule);
        for (i, row) in owners.iter().enumerate() {
            let next = distinct.len() as u32;
            row_of.push(*distinct.entry(*row).or_insert_with(|| {
                let cell = [row.base.0, row.variable.map_or(NONE, |p| p.0)];
                assert!(
                    is_cell(cell, partitions),
                    "chunk {i} is owned by {row:?} of {partitions}"
                );
                rows.extend(owners.iter().map(|of_source| seen(cell, of_source)));
                next
            }));
        }
        Self {
            generation,
            chunks: owners.len() as u32,
            partitions,
            schedule: schedule.into(),
            row_of,
            rows,
        }
    }

    /// The assignment in which bucket (i, j) serves `serves(i, j)`, whatever that is. For tests: a table is one that
    /// partitions can be made from if it passes [`Assignment::check_owners`].
    ///
    /// # Panics
    /// If there are no chunks or no partitions, 2^32 - 1 partitions, a partition that is not below their number or
    /// that a bucket serves twice, or the schedule's name is not 1 to 16 of a-z, 0-9 and `-`.
    pub fn from_fn(
        generation: u64,
        chunks: u32,
        partitions: u32,
        schedule: &str,
        serves: impl Fn(ChunkId, ChunkId) -> Serves,
    ) -> Self {
        check_shape(chunks.into(), partitions, schedule);
        let mut row_of = Vec::with_capacity(chunks as usize);
        let mut distinct: HashMap<Vec<[u32; 2]>, u32> = HashMap::new();
        let mut rows = Vec::new();
        for i in 0..chunks {
            let row: Vec<[u32; 2]> = (0..chunks)
                .map(|j| {
                    let serves = serves(ChunkId(i), ChunkId(j));
                    let cell = [serves.base, serves.variable].map(|p| p.map_or(NONE, |p| p.0));
                    assert!(
                        is_cell(cell, partitions),
                        "bucket ({i}, {j}) serves {serves:?} of {partitions}"
                    );
                    cell
                })
                .collect();
            let next = distinct.len() as u32;
            row_of.push(*distinct.entry(row).or_insert_with_key(|row| {
                rows.extend_from_slice(row);
                next
            }));
        }
        Self {
            generation,
            chunks,
            partitions,
            schedule: schedule.into(),
            row_of,
            rows,
        }
    }

    /// Counts the repartitionings.
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

    /// What made the assignment, such as `whole`, `sweep`, `shuffle` or `fixed`.
    pub fn schedule(&self) -> &str {
        &self.schedule
    }

    /// What edge bucket (i, j), with destinations in chunk `i` and sources in chunk `j`, serves.
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

    /// The partitions that own a chunk, as the table says it: which see the bucket from the chunk to itself.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn owners(&self, chunk: ChunkId) -> Serves {
        self.bucket(chunk, chunk)
    }

    /// Fails unless the table follows from who owns each chunk, and each is in the base of one partition.
    ///
    /// Takes the time of the table.
    pub fn check_owners(&self) -> Result<()> {
        let wrong = |row: u32, j: usize, what: String| {
            let cell = u64::from(row) * u64::from(self.chunks) + j as u64;
            let width = entry_bytes(self.partitions) as u64;
            let payload = Header::payload_offset(FileKind::ASSIGNMENT, META_BYTES);
            Err(FormatError::invalid(
                payload + 4 * u64::from(self.chunks) + 2 * width * cell,
                what,
            ))
        };
        let mut owners = Vec::with_capacity(self.chunks as usize);
        for (i, &row) in self.row_of.iter().enumerate() {
            match self.owners(ChunkId(i as u32)) {
                Serves {
                    base: Some(base),
                    variable,
                } => owners.push(Owners { base, variable }),
                Serves { base: None, .. } => {
                    return wrong(row, i, format!("chunk {i} is in the base of no partition"));
                }
            }
        }
        // Chunks with the same owners have the same row, and no others can: each row is compared once, or is wrong.
        let mut checked: Vec<Option<Owners>> = vec![None; self.rows.len() / self.chunks as usize];
        for (i, &row) in self.row_of.iter().enumerate() {
            if checked[row as usize].replace(owners[i]) == Some(owners[i]) {
                continue;
            }
            let of_destination = [owners[i].base.0, owners[i].variable.map_or(NONE, |p| p.0)];
            let cells = &self.rows[row as usize * self.chunks as usize..][..self.chunks as usize];
            for (j, (of_source, &cell)) in owners.iter().zip(cells).enumerate() {
                let expected = seen(of_destination, of_source);
                if cell != expected {
                    let what = format!(
                        "the owners of chunks {i} and {j} make {} and {} see edge bucket ({i}, {j}), but the table says {} \
                         and {}",
                        Entry(expected[0]),
                        Entry(expected[1]),
                        Entry(cell[0]),
                        Entry(cell[1])
                    );
                    return wrong(row, j, what);
                }
            }
        }
        Ok(())
    }

    /// The bytes of the file `assignments/<generation>`, and their digest.
    pub fn encode(&self) -> (Vec<u8>, u64) {
        let distinct = (self.rows.len() / self.chunks as usize) as u32;
        let mut meta = Vec::with_capacity(META_BYTES);
        meta.extend_from_slice(&self.generation.to_le_bytes());
        meta.extend_from_slice(&self.chunks.to_le_bytes());
        meta.extend_from_slice(&self.partitions.to_le_bytes());
        meta.extend_from_slice(&distinct.to_le_bytes());
        meta.extend_from_slice(&0u32.to_le_bytes());
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

    /// Decodes and fully checks the bytes of the file `assignments/<generation>` of a store of `chunks` chunks.
    pub fn decode(file: &[u8], generation: u64, chunks: u32) -> Result<Self> {
        let (header, payload) = container::decode_file(file, FileKind::ASSIGNMENT)?;
        let (mut assignment, distinct) = Self::decode_meta(&header)?;
        if (assignment.generation, assignment.chunks) != (generation, chunks) {
            return Err(FormatError::invalid(
                HEADER_BYTES as u64,
                format!(
                    "the assignment is generation {} of {} chunks, but in the place of generation {generation} of \
                     {chunks}; were files swapped?",
                    assignment.generation, assignment.chunks
                ),
            ));
        }
        let width = entry_bytes(assignment.partitions);
        let (chunks, partitions) = (u64::from(chunks), assignment.partitions);
        let expected = 4 * u128::from(chunks) + 2 * width as u128 * u128::from(chunks) * u128::from(distinct);
        check_payload_length(&header, u64::try_from(expected).ok())?;
        let (row_of, cells) = payload.split_at(4 * chunks as usize);
        let mut used = 0;
        for (i, bytes) in row_of.as_chunks().0.iter().enumerate() {
            let row = u32::from_le_bytes(*bytes);
            if row > used || row >= distinct {
                return Err(FormatError::invalid(
                    header.payload_offset + 4 * i as u64,
                    format!(
                        "row {i} of the assignment is number {row} of {distinct}, of which {used} were used before"
                    ),
                ));
            }
            used = used.max(row + 1);
            assignment.row_of.push(row);
        }
        if used != distinct {
            return Err(FormatError::invalid(
                header.payload_offset,
                format!("the assignment has {distinct} rows and uses {used}"),
            ));
        }
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
            if !is_cell(cell, partitions) {
                return Err(FormatError::invalid(
                    header.payload_offset + 4 * chunks + (2 * width * n) as u64,
                    format!(
                        "row {} of the assignment gives bucket {} to partitions {} and {} of {partitions}",
                        n as u64 / chunks,
                        n as u64 % chunks,
                        cell[0],
                        cell[1]
                    ),
                ));
            }
            assignment.rows.push(cell);
        }
        Ok(assignment)
    }

    /// What the meta says: an assignment without its table, and the number of distinct rows.
    fn decode_meta(header: &Header) -> Result<(Self, u32)> {
        let mut fields = Fields::of(header, META_BYTES)?;
        let generation = fields.u64();
        let at = fields.offset();
        let (chunks, partitions, distinct) = (fields.u32(), fields.u32(), fields.u32());
        fields.zeros::<4>()?;
        let schedule_at = fields.offset();
        let padded = fields.array::<SCHEDULE_BYTES>();
        if chunks == 0 || partitions == 0 || partitions == NONE || distinct == 0 || distinct > chunks {
            return Err(FormatError::invalid(
                at,
                format!("{chunks} chunks, {partitions} partitions and {distinct} rows make no assignment"),
            ));
        }
        let length = padded.iter().position(|&byte| byte == 0).unwrap_or(SCHEDULE_BYTES);
        let (name, zeros) = padded.split_at(length);
        let schedule = String::from_utf8_lossy(name);
        if !is_schedule(name) || zeros.iter().any(|&byte| byte != 0) {
            return Err(FormatError::invalid(
                schedule_at,
                format!("no schedule is named {schedule:?}"),
            ));
        }
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

/// The text file `assignments/CURRENT`: `generation <decimal> <XXH3-64 of what is before the last space, 16 hexadecimal digits>` and
/// a line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The assignment that counts is `assignments/<generation>`.
    pub generation: u64,
}

impl Current {
    /// The bytes of the file.
    pub fn encode(&self) -> String {
        let said = format!("generation {}", self.generation);
        format!("{said} {:016x}\n", xxh3_64(said.as_bytes()))
    }

    /// Decodes and checks the bytes of the file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        // It is right if it is what would be written for the generation that it seems to name.
        let generation = std::str::from_utf8(file)
            .ok()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        match generation.map(|generation| Self { generation }) {
            Some(current) if current.encode().as_bytes() == file => Ok(current),
            _ => Err(FormatError::invalid(
                0,
                "CURRENT must be the line `generation <number> <checksum>`, and its checksum must be right; write it \
                 anew with the generation that is to count",
            )),
        }
    }
}

/// Which of the owners of a destination, `NONE` for none, own the source too.
fn seen(of_destination: [u32; 2], of_source: &Owners) -> [u32; 2] {
    let owns = |p: u32| p == of_source.base.0 || of_source.variable.is_some_and(|variable| p == variable.0);
    of_destination.map(|p| if owns(p) { p } else { NONE })
}

/// # Panics
/// If no assignment has this shape.
fn check_shape(chunks: u64, partitions: u32, schedule: &str) {
    assert!(
        (1..=u64::from(u32::MAX)).contains(&chunks) && (1..NONE).contains(&partitions),
        "{chunks} chunks, {partitions} partitions"
    );
    assert!(is_schedule(schedule.as_bytes()), "a schedule named {schedule:?}");
}

/// An entry of the table, for people.
struct Entry(u32);

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            NONE => f.write_str("none"),
            p => write!(f, "partition {p}"),
        }
    }
}

fn entry_bytes(partitions: u32) -> usize {
    if partitions < 0xffff { 2 } else { 4 }
}

/// Whether a bucket can serve these: partitions that exist, and no partition twice.
fn is_cell([base, variable]: [u32; 2], partitions: u32) -> bool {
    let is_entry = |p| p == NONE || p < partitions;
    is_entry(base) && is_entry(variable) && (base != variable || base == NONE)
}

fn is_schedule(name: &[u8]) -> bool {
    let known = |&b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=SCHEDULE_BYTES).contains(&name.len()) && name.iter().all(known)
}
