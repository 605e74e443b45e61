//! Triples in buckets, and the order in which pairs of partitions are in memory.
//!
//! Entity `e` is in partition `e % P`. The triples of a visit have their heads and tails in two partitions, whose rows are in memory. The
//! visits of an epoch are all pairs, in an order that replaces one partition at a time:
//!
//! ```text
//! {0,1} {0,2} {0,3}   {1,3} {1,2}   {2,3}
//! ```
//!
//! so each of P (P - 1) / 2 - 1 moves reads one partition and writes one. PyTorch-BigGraph (Lerer et al. 2019) and Marius (Mohoney et al.
//! 2021) move partitions in such orders. Triples within one partition are trained in the first visit of that partition. Odd epochs go
//! backwards, so the first visit of an epoch is the last one of the epoch before.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::EdgePart;
use grappa_io::{Error as EngineError, durable, progress::Progress};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::{
    Error, Result,
    triples::{Triple, Triples},
};

/// Triples that are written to a bucket at a time.
const BUFFER: usize = 1 << 12;

/// Two partitions that are in memory together; the same one twice if there is only one.
pub type Pair = [u32; 2];

/// The pairs of an epoch, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visits {
    parts: u32,
    pairs: Vec<Pair>,
    /// For each pair of partitions of a head and a tail, the number of its visit.
    of_ends: Vec<u32>,
}

impl Visits {
    /// The visits of a number of partitions.
    ///
    /// # Panics
    /// If it is 0.
    pub fn new(parts: u32) -> Self {
        assert!(parts > 0, "at least one partition");
        let mut pairs = Vec::new();
        for one in 0..parts.saturating_sub(1) {
            let others: Vec<u32> = match one % 2 {
                0 => (one + 1..parts).collect(),
                _ => (one + 1..parts).rev().collect(),
            };
            pairs.extend(others.into_iter().map(|other| [one, other]));
        }
        if parts == 1 {
            pairs.push([0, 0]);
        }
        let mut of_ends = vec![u32::MAX; (parts * parts) as usize];
        for (visit, &[one, other]) in (0..).zip(&pairs) {
            for ends in [[one, other], [other, one], [one, one], [other, other]] {
                let place = &mut of_ends[(ends[0] * parts + ends[1]) as usize];
                *place = visit.min(*place);
            }
        }
        Self { parts, pairs, of_ends }
    }

    /// The pairs, in the order of even epochs.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The numbers of the visits of an epoch, in order.
    pub fn of_epoch(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        if epoch % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// The number of the visit that trains a triple.
    pub fn of_triple(&self, triple: Triple) -> usize {
        let [head, tail] = [triple.head, triple.tail].map(|entity| entity % self.parts);
        self.of_ends[(head * self.parts + tail) as usize] as usize
    }
}

/// The triples of each visit.
#[derive(Debug)]
pub struct Buckets {
    /// The first triple of each visit, then the number of triples.
    starts: Vec<u64>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<[u32; 3]>),
    /// A temporary file, which `drop` removes, and the checksum of each visit's triples.
    Disk {
        file: File,
        path: PathBuf,
        checksums: Vec<u64>,
    },
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Disk { path, .. } = self {
            // The next start of the run removes it, too.
            let _ = durable::remove_file(path);
        }
    }
}

impl Buckets {
    /// Reads the training triples of a graph into buckets: in memory, or in a temporary file `path`.
    ///
    /// # Errors
    /// If files cannot be read or written, or `progress` asks to stop.
    pub fn read(triples: &Triples, visits: &Visits, path: Option<&Path>, progress: &dyn Progress) -> Result<Self> {
        progress.stage("counting triples", None);
        let mut counts = vec![0u64; visits.pairs.len()];
        triples.for_each(EdgePart::Graph, progress, |triple| {
            counts[visits.of_triple(triple)] += 1;
            Ok(())
        })?;
        let starts: Vec<u64> = std::iter::once(0)
            .chain(counts.iter().scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            }))
            .collect();
        let mut next = starts.clone();
        progress.stage("reading triples", None);
        let Some(path) = path else {
            let mut all = vec![[0; 3]; starts[counts.len()] as usize];
            triples.for_each(EdgePart::Graph, progress, |triple| {
                let place = &mut next[visits.of_triple(triple)];
                all[*place as usize] = triple.numbers();
                *place += 1;
                Ok(())
            })?;
            return Ok(Self { starts, place: Place::Memory(all) });
        };
        durable::create_file(path)?;
        let file = File::options().read(true).write(true).open(path).map_err(EngineError::io("open", path))?;
        let mut place = Place::Disk { file, path: path.to_owned(), checksums: Vec::new() };
        let Place::Disk { file, checksums, .. } = &mut place else { unreachable!("it was just made") };
        let mut buffers: Vec<(Vec<[u32; 3]>, Xxh3)> = counts.iter().map(|_| (Vec::new(), Xxh3::new())).collect();
        let flush = |(buffer, hash): &mut (Vec<[u32; 3]>, Xxh3), next: &mut u64| -> Result<()> {
            let bytes: &[u8] = bytemuck::cast_slice(buffer);
            hash.update(bytes);
            file.write_all_at(bytes, *next * size_of::<Triple>() as u64).map_err(EngineError::io("write", path))?;
            *next += buffer.len() as u64;
            buffer.clear();
            Ok(())
        };
        triples.for_each(EdgePart::Graph, progress, |triple| {
            let visit = visits.of_triple(triple);
            buffers[visit].0.push(triple.numbers());
            match buffers[visit].0.len() == BUFFER {
                true => flush(&mut buffers[visit], &mut next[visit]),
                false => Ok(()),
            }
        })?;
        buffers.iter_mut().zip(&mut next).try_for_each(|(buffer, next)| flush(buffer, next))?;
        checksums.extend(buffers.iter().map(|(_, hash)| hash.digest()));
        Ok(Self { starts, place })
    }

    /// Triples of a visit.
    pub fn count(&self, visit: usize) -> u64 {
        self.starts[visit + 1] - self.starts[visit]
    }

    /// The largest number of triples of a visit.
    pub fn count_max(&self) -> u64 {
        (0..self.starts.len() - 1).map(|visit| self.count(visit)).max().unwrap_or(0)
    }

    /// Reads the triples of a visit into `buffer` if they are on disk.
    ///
    /// # Errors
    /// If they cannot be read, or the file was changed.
    pub fn load(&self, visit: usize, buffer: &mut Vec<[u32; 3]>) -> Result<()> {
        let Place::Disk { file, path, checksums } = &self.place else { return Ok(()) };
        buffer.resize(self.count(visit) as usize, [0; 3]);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(buffer);
        let offset = self.starts[visit] * size_of::<Triple>() as u64;
        file.read_exact_at(bytes, offset).map_err(EngineError::io("read", path))?;
        match xxh3_64(bytes) == checksums[visit] {
            true => Ok(()),
            false => Err(Error::Run(grappa_run::Error::run_file(
                path,
                "the triples changed while the run trained: rerun with --resume, which writes them again",
            ))),
        }
    }

    /// The triples of a visit as numbers ([`Triple::numbers`]). `buffer` has them if they are on disk.
    pub fn triples<'a>(&'a self, visit: usize, buffer: &'a [[u32; 3]]) -> &'a [[u32; 3]] {
        match &self.place {
            Place::Memory(all) => &all[self.starts[visit] as usize..][..self.count(visit) as usize],
            Place::Disk { .. } => buffer,
        }
    }
}
