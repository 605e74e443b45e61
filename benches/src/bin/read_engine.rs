//! Speed of the read engines on a file that is not cached: scattered pages, and sequentially.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    cache,
    disk::Disk,
    record::{Record, Table},
    stats::{median, range},
};
use grappa_formats::random::GOLDEN;
use grappa_io::read::{self, Choice, FileIndex, Options, Read, ReadFile};
use rustix::time::{ClockId, clock_gettime};

const PAGE_BYTES: u32 = 4096;

/// Measure the read engines
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// Read a file of 2^N bytes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(20..=40))]
    scale: u32,
    /// Seconds that a contender reads in a round, unless the file ends before
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// A way to read.
#[derive(Debug, Clone, Copy)]
struct Contender {
    engine: Engine,
    /// Reads in flight.
    depth: usize,
    read_bytes: u32,
    order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Direct,
    Buffered,
    Pread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// In random order, no place twice.
    Scattered,
    Sequential,
}

/// The figures of one round of a contender.
#[derive(Debug, Clone, Copy)]
struct Round {
    reads_per_second: f64,
    bytes_per_second: f64,
    processor_us_per_read: f64,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Reading by io_uring and by threads";
    const QUESTION: &'static str = "How many scattered pages of 4 KiB, and how many bytes in sequence, does a read engine bring a second, from a file that \
        is not cached? Contenders take turns in one process on one thread; medians of the rounds. No page is read twice in a round. Processor \
        time is the process's, the threads of pread and the kernel's work for it included.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let path = written(&self.files.work, self.scale)?;

        let contenders = contenders();
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); contenders.len()];
        let (mut sequential, mut cold) = (Vec::new(), true);
        for _ in 0..self.runs {
            sequential.push(Disk::measure(&path)?.read);
            for (contender, rounds) in contenders.iter().zip(&mut rounds) {
                cold &= cache::forget(std::slice::from_ref(&path))?;
                rounds.push(contender.read(&path, Duration::from_secs_f64(self.seconds))?);
            }
        }

        let floor = median(sequential.iter().copied());
        record.add(format_args!(
            "A file of {} MiB. Sequential `read` calls of 4 MiB bring {:.2} GB/s ({}); ratios are relative to that.",
            (1u64 << self.scale) >> 20,
            floor / 1e9,
            range(sequential.iter().map(|rate| rate / 1e9)),
        ));
        if !cold {
            record.add("WARM: the file could not be dropped from the page cache, so buffered reads are too fast.");
        }
        for order in [Order::Scattered, Order::Sequential] {
            record.add(match order {
                Order::Scattered => "Scattered:",
                Order::Sequential => "In sequence:",
            });
            let mut table = Table::new(&[
                "engine",
                "KiB a read",
                "at once",
                "reads/s",
                "range",
                "MB/s",
                "to sequential",
                "us of processor a read",
            ]);
            for (contender, rounds) in contenders
                .iter()
                .zip(&rounds)
                .filter(|(contender, _)| contender.order == order)
            {
                let bytes = median(rounds.iter().map(|round| round.bytes_per_second));
                table.row([
                    contender.engine.title().to_owned(),
                    format!("{}", f64::from(contender.read_bytes) / 1024.0),
                    contender.depth.to_string(),
                    format!("{:.0}", median(rounds.iter().map(|round| round.reads_per_second))),
                    range(rounds.iter().map(|round| round.reads_per_second)),
                    format!("{:.0}", bytes / 1e6),
                    format!("{:.2}", bytes / floor),
                    format!("{:.1}", median(rounds.iter().map(|round| round.processor_us_per_read))),
                ]);
            }
            record.add(table);
        }
        Ok(())
    }
}

fn contenders() -> Vec<Contender> {
    let mut contenders = Vec::new();
    let mut add = |order, read_bytes, engine, depths: &[usize]| {
        contenders.extend(depths.iter().map(|&depth| Contender {
            engine,
            depth,
            read_bytes,
            order,
        }));
    };
    add(Order::Scattered, 512, Engine::Direct, &[128]);
    add(
        Order::Scattered,
        PAGE_BYTES,
        Engine::Direct,
        &[1, 32, 64, 128, 256, 512],
    );
    add(Order::Scattered, PAGE_BYTES, Engine::Buffered, &[128]);
    add(Order::Scattered, PAGE_BYTES, Engine::Pread, &[1, 4, 8, 32]);
    add(Order::Scattered, 16 << 10, Engine::Direct, &[128]);
    for (read_bytes, depths) in [
        (64 << 10, &[32usize, 128] as &[usize]),
        (256 << 10, &[4, 8, 16, 32, 128]),
        (1 << 20, &[2, 4, 8, 32]),
    ] {
        add(Order::Sequential, read_bytes, Engine::Direct, depths);
    }
    add(Order::Sequential, 256 << 10, Engine::Buffered, &[8, 32]);
    add(Order::Sequential, 256 << 10, Engine::Pread, &[1, 4, 8]);
    add(Order::Sequential, 1 << 20, Engine::Pread, &[4]);
    contenders
}

impl Contender {
    fn read(&self, path: &Path, limit: Duration) -> Result<Round> {
        let files: Arc<[ReadFile]> = Arc::new([ReadFile::open(path, None)?]);
        let places = files[0].bytes() / u64::from(self.read_bytes);
        let choice = if self.engine == Engine::Pread {
            Choice::Pread
        } else {
            Choice::Uring
        };
        let options = Options {
            depth: self.depth,
            read_bytes_max: self.read_bytes.max(PAGE_BYTES),
            // `pread` has one read in flight per thread.
            threads: self.depth,
            direct: self.engine == Engine::Direct,
            ..Options::default()
        };
        let mut engine = read::open(choice, files, options)?;
        let place = |number| match self.order {
            Order::Sequential => number,
            Order::Scattered => scattered(number, places.ilog2()),
        };
        let (begin, processor) = (Instant::now(), processor_time());
        let (mut next, mut reads, mut sum) = (0, 0u64, 0u64);
        let mut batch = Vec::new();
        while begin.elapsed() < limit || engine.in_flight() > 0 {
            if begin.elapsed() < limit {
                while batch.len() < self.depth && next < places {
                    batch.push(Read {
                        file: FileIndex(0),
                        offset: place(next) * u64::from(self.read_bytes),
                        length: self.read_bytes,
                        tag: next,
                    });
                    next += 1;
                }
                let submitted = engine.submit(&batch)?;
                batch.drain(..submitted);
            }
            let completed = engine.complete(&mut |_, bytes| sum += u64::from(bytes[0]))?;
            reads += completed as u64;
            if completed == 0 && next == places {
                break;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        ensure!(sum > 0, "expected random bytes in the file, found zeros");
        Ok(Round {
            reads_per_second: reads as f64 / seconds,
            bytes_per_second: (reads * u64::from(self.read_bytes)) as f64 / seconds,
            processor_us_per_read: (processor_time() - processor).as_secs_f64() * 1e6 / reads as f64,
        })
    }
}

impl Engine {
    fn title(self) -> &'static str {
        match self {
            Self::Direct => "uring, direct",
            Self::Buffered => "uring, page cache",
            Self::Pread => "pread",
        }
    }
}

/// The `number`-th of 2^`bits` places in a pseudo-random order: an invertible function.
fn scattered(number: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let mut z = number;
    for _ in 0..3 {
        z = z.wrapping_mul(GOLDEN) & mask;
        z ^= z >> (bits / 2 + 1);
    }
    z
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The file of 2^`scale` random bytes; made first if it does not exist.
fn written(work: &Path, scale: u32) -> Result<PathBuf> {
    let path = work.join(format!("random-{scale}"));
    if !path.exists() {
        eprintln!("writing {}", path.display());
        let temporary = path.with_extension("tmp");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temporary)?;
            let mut state = 1u64;
            let mut block = vec![0u8; 1 << 20];
            for _ in 0..(1u64 << scale) >> 20 {
                for word in block.chunks_exact_mut(8) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    word.copy_from_slice(&state.to_le_bytes());
                }
                file.write_all(&block)?;
            }
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_places_are_all_different() {
        let mut places: Vec<u64> = (0..1 << 10).map(|number| scattered(number, 10)).collect();
        assert!(places.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 20);
        places.sort_unstable();
        assert_eq!(places, (0..1 << 10).collect::<Vec<_>>());
    }
}
