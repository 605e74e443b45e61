//! The rows of the partitions that are in memory.
//!
//! Two partitions are in memory while the triples between them train. Meanwhile, another thread writes the last partition, then reads the next
//! one. So three partitions are in memory at a time, and training waits for the disk only if a visit takes less time than the write and the
//! read.

use std::{panic::resume_unwind, thread::JoinHandle};

use crate::{
    Result,
    buckets::Pair,
    matrix::Matrix,
    rows::{Generation, Generations, GradientOf, RowOptimizer, Rows, TableShape},
};

/// Random values of the rows of entities before the first step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InitialRows {
    /// Values are uniform in `-range..range`.
    pub range: f32,
    /// The key of random values.
    pub key: u64,
}

/// The rows of the entities of one partition or two.
#[derive(Debug)]
pub struct Residents {
    generations: Generations,
    optimizer: RowOptimizer,
    initial: InitialRows,
    /// Partitions with their rows, in the order of the pair.
    slots: Vec<Slot>,
    moving: Option<JoinHandle<Result<Moved>>>,
    /// Bytes that were read and written.
    pub moved_bytes: u64,
}

#[derive(Debug)]
struct Slot {
    part: u32,
    rows: Rows,
    /// Whether the rows changed since they were read or written.
    is_changed: bool,
}

/// The result of the thread that moves partitions.
#[derive(Debug, Default)]
struct Moved {
    written: Option<Generation>,
    read: Option<Slot>,
}

impl Residents {
    /// Rows of no partition yet.
    pub fn new(generations: Generations, optimizer: RowOptimizer, initial: InitialRows) -> Self {
        Self { generations, optimizer, initial, slots: Vec::new(), moving: None, moved_bytes: 0 }
    }

    /// The shape of the table.
    pub fn shape(&self) -> TableShape {
        self.generations.shape()
    }

    /// The files of the table.
    pub fn generations(&mut self) -> &mut Generations {
        &mut self.generations
    }

    /// Brings a pair of partitions into memory, and starts to read the other partition of `next`.
    ///
    /// # Errors
    /// If rows cannot be read or written.
    pub fn enter(&mut self, pair: Pair, next: Option<Pair>) -> Result<()> {
        let mut moved = self.wait()?;
        let mut parts = pair.to_vec();
        parts.dedup();
        let (mut stay, leave): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.slots).into_iter().partition(|slot| parts.contains(&slot.part));
        let mut leaving = leave.into_iter().filter(|slot| slot.is_changed);
        let to_write = leaving.next();
        // More than one leaves after a visit without triples was skipped.
        for slot in leaving {
            self.write_now(&slot)?;
        }
        for &part in &parts {
            if stay.iter().any(|slot| slot.part == part) {
                continue;
            }
            let read = moved.read.take_if(|read| read.part == part);
            stay.push(read.map_or_else(|| self.read_now(part), Ok)?);
        }
        stay.sort_by_key(|slot| parts.iter().position(|&part| part == slot.part));
        self.slots = stay;
        let to_read = next.and_then(|next| next.into_iter().find(|part| !parts.contains(part)));
        self.start(to_write, to_read);
        Ok(())
    }

    /// Starts to write a partition, then to read one.
    fn start(&mut self, to_write: Option<Slot>, to_read: Option<u32>) {
        let to_write = to_write.map(|slot| (self.generations.next(slot.part), slot));
        let (optimizer, initial) = (self.optimizer, self.initial);
        let again = to_write.as_ref().filter(|(_, slot)| Some(slot.part) == to_read).map(|(next, _)| next.clone());
        let reader = to_read.map(|part| (part, again.or_else(|| self.generations.newest(part))));
        if to_write.is_none() && reader.is_none() {
            return;
        }
        let shape = self.shape();
        self.moving = Some(std::thread::spawn(move || {
            let written = match to_write {
                Some((next, slot)) => {
                    next.write(&slot.rows)?;
                    Some(next)
                }
                None => None,
            };
            let read = match reader {
                Some((part, file)) => Some(Slot {
                    part,
                    is_changed: file.is_none(),
                    rows: match file {
                        Some(file) => file.read(optimizer)?,
                        None => initial.rows(shape, part, optimizer),
                    },
                }),
                None => None,
            };
            Ok(Moved { written, read })
        }));
    }

    /// Waits for the thread that moves partitions.
    fn wait(&mut self) -> Result<Moved> {
        let Some(moving) = self.moving.take() else { return Ok(Moved::default()) };
        let moved = moving.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        if let Some(written) = &moved.written {
            self.count(written.part);
            self.generations.advance(written)?;
        }
        if let Some(read) = &moved.read
            && !read.is_changed
        {
            self.count(read.part);
        }
        Ok(moved)
    }

    fn count(&mut self, part: u32) {
        let shape = self.shape();
        self.moved_bytes += shape.rows_of(part) as u64 * Rows::row_bytes(shape.dim, self.optimizer);
    }

    fn read_now(&mut self, part: u32) -> Result<Slot> {
        match self.generations.newest(part) {
            Some(file) => {
                self.count(part);
                Ok(Slot { part, rows: file.read(self.optimizer)?, is_changed: false })
            }
            None => Ok(Slot { part, rows: self.initial.rows(self.shape(), part, self.optimizer), is_changed: true }),
        }
    }

    fn write_now(&mut self, slot: &Slot) -> Result<()> {
        let next = self.generations.next(slot.part);
        next.write(&slot.rows)?;
        self.count(slot.part);
        self.generations.advance(&next)?;
        Ok(())
    }

    /// Writes all rows that changed, so that the files are the table. Rows of partitions that were never in memory are made.
    ///
    /// # Errors
    /// If rows cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let moved = self.wait()?;
        let mut slots = std::mem::take(&mut self.slots);
        for slot in &mut slots {
            if std::mem::take(&mut slot.is_changed) {
                self.write_now(slot)?;
            }
        }
        self.slots = slots;
        if let Some(read) = moved.read.filter(|read| read.is_changed) {
            self.write_now(&read)?;
        }
        for part in 0..self.shape().parts {
            if !self.generations.has(part) {
                let slot = Slot { part, rows: self.initial.rows(self.shape(), part, self.optimizer), is_changed: true };
                self.write_now(&slot)?;
            }
        }
        Ok(())
    }

    /// The values of a partition, in `buffer` unless its rows are in memory.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn values<'a>(&'a mut self, part: u32, buffer: &'a mut Vec<f32>) -> Result<&'a [f32]> {
        if let Some(at) = self.slots.iter().position(|slot| slot.part == part) {
            return Ok(self.slots[at].rows.values());
        }
        let moved = self.wait()?;
        if let Some(read) = moved.read {
            if read.is_changed {
                self.write_now(&read)?;
            }
            drop(read);
        }
        match self.generations.has(part) {
            true => self.generations.read_values(part, buffer)?,
            false => *buffer = self.initial.rows(self.shape(), part, self.optimizer).into_values(),
        }
        Ok(buffer)
    }

    /// Rows in memory.
    pub fn len(&self) -> usize {
        self.slots.iter().map(|slot| slot.rows.len()).sum()
    }

    /// Whether no rows are in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of an entity among the rows in memory: rows of the first partition, then rows of the second.
    ///
    /// # Panics
    /// If its partition is not in memory.
    pub fn number(&self, entity: u32) -> u32 {
        let (part, row) = (entity % self.shape().parts, entity / self.shape().parts);
        match &self.slots[..] {
            [one, ..] if one.part == part => row,
            [one, other] if other.part == part => one.rows.len() as u32 + row,
            _ => panic!("the rows of partition {part} are not in memory"),
        }
    }

    /// The values of a row in memory, by its number.
    pub fn row(&self, number: u32) -> &[f32] {
        let (number, first) = (number as usize, self.slots[0].rows.len());
        match number < first {
            true => self.slots[0].rows.row(number),
            false => self.slots[1].rows.row(number - first),
        }
    }

    /// Changes rows by gradients, which are sorted by the numbers of their rows. See [`Rows::update`].
    pub fn update(&mut self, rate: f32, gradients: &[GradientOf], matrix: &Matrix) {
        let mut first = 0;
        let mut rest = gradients;
        for slot in &mut self.slots {
            let end = first + slot.rows.len() as u32;
            let (of_slot, others) = rest.split_at(rest.partition_point(|gradient| gradient.row < end));
            slot.rows.update(self.optimizer, rate, of_slot, first, matrix);
            slot.is_changed |= !of_slot.is_empty();
            (first, rest) = (end, others);
        }
    }
}

impl InitialRows {
    /// The rows of a partition before the first step.
    pub fn rows(self, shape: TableShape, part: u32, optimizer: RowOptimizer) -> Rows {
        let number = |row| row as u64 * u64::from(shape.parts) + u64::from(part);
        Rows::random(shape.rows_of(part), shape.dim, optimizer, self.range, self.key, number)
    }
}
