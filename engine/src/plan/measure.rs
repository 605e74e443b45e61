//! Measures the rates behind a plan on this machine: some seconds, and 400 MB of disk while it runs.
//!
//! A small R-MAT graph is generated, written, read and sampled by the code that training uses. The engine has no model,
//! so the rates of products and of aggregation are scaled: a loop of multiplications and one of row sums are compared
//! with what they reached on the machine of the records.

use std::{
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Instant,
};

use grappa_formats::{
    ChunkId,
    manifest::{FeatureDtype, FeatureSource},
    random::hash,
};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
    read::{self, FileIndex, Read, ReadFile},
    workers,
};
use grappa_sampling::{
    Loader, LoaderOptions, ScratchOptions,
    feed::{MinibatchOptions, RowOptions},
    partition::Owned,
    sample::Sampler,
    view::{PartitionView, ViewKind, ViewOptions},
};
use grappa_storage::{Store, files};
use grappa_synthetic::{Model, Recipe, Rmat};
use serde::Serialize;

use super::train::TrainRates;

/// The graph has 2^SCALE nodes.
const SCALE: u32 = 20;
const EDGE_FACTOR: f64 = 16.0;
const DIM: u32 = 64;
const BATCHES: u64 = 200;
/// Bytes of a read of the disk.
const READ_BYTES: u32 = 256 << 10;
/// Speed of the loops on one thread of the machine of the records: operations per second, and nanoseconds per byte.
const MULTIPLY_FLOPS: f64 = 7.0e10;
const ROW_BYTE_NS: f64 = 0.1;

/// Results of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Bytes read from the disk a second, many at a time.
    pub disk_read: f64,
    /// Bytes written to the disk a second.
    pub disk_write: f64,
    /// Speed of the processors.
    pub rates: TrainRates,
}

/// Measures disk and processors. `folder` is on the disk; it has a store while this runs.
///
/// # Errors
/// If files in the folder cannot be written or read, or `progress` asks to stop.
pub fn measure(folder: &Path, threads: usize, progress: &dyn Progress) -> Result<Measured> {
    let scratch = Scratch(folder.join(format!("grappa-measure-{}.grappa", process::id())));
    progress.stage("measuring", None);
    generate(&scratch.0, threads, progress)?;
    let disk_write = written(&scratch.0)?;
    let store = Arc::new(Store::open(&scratch.0)?);
    let disk_read = read(&store)?;
    let default = TrainRates::default();
    let load_edge_ns = load(&store, threads)?;
    let (sample_edge_ns, _) = sample(&store, threads, ViewKind::Memory, false)?;
    let (with_features, values) = sample(&store, threads, ViewKind::Memory, true)?;
    let (swept_edge_ns, _) = sample(&store, threads, ViewKind::Sweep, false)?;
    let edges = with_features / sample_edge_ns - 1.0;
    let (multiply, row_byte_ns) = (multiply(threads)?, row_sums(threads)?);
    Ok(Measured {
        disk_read,
        disk_write,
        rates: TrainRates {
            load_edge_ns,
            sample_edge_ns,
            sweep_edge_ns: (swept_edge_ns - sample_edge_ns).max(1.0),
            // Both were measured by the edge.
            gather_byte_ns: (edges * sample_edge_ns / values).max(0.01),
            aggregate_byte_ns: default.aggregate_byte_ns * row_byte_ns / ROW_BYTE_NS,
            product_flops: default.product_flops * multiply / MULTIPLY_FLOPS,
            infer_byte_ns: default.infer_byte_ns * row_byte_ns / ROW_BYTE_NS,
            step_seconds: default.step_seconds,
        },
    })
}

/// A folder that is removed when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left has a name that says what it is.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn generate(out: &Path, threads: usize, progress: &dyn Progress) -> Result<()> {
    let options = StoreOptions {
        features: Some(FeatureOptions::new(DIM, FeatureDtype::F32, FeatureSource::Stored)),
        memory: 256 << 20,
        threads,
        writer: "grappa-store plan".into(),
        ..StoreOptions::new(Recipe::new(Model::Rmat(Rmat::graph500(SCALE, EDGE_FACTOR)), 1), out)
    };
    generate_store(&options, progress)?;
    Ok(())
}

/// Bytes written a second, by a copy of the features that is synced.
fn written(store: &Path) -> Result<f64> {
    let bytes = vec![1_u8; 256 << 20];
    let path = store.join("measure");
    let begin = Instant::now();
    write_synced(&path, &bytes).map_err(Error::io("write", &path))?;
    let seconds = begin.elapsed().as_secs_f64();
    fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    Ok(bytes.len() as f64 / seconds)
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

/// Bytes of features read a second.
fn read(store: &Store) -> Result<f64> {
    let chunks = (0..store.chunks().chunks()).map(ChunkId);
    let files: Vec<ReadFile> = chunks
        .map(|chunk| ReadFile::open(&store.path().join(files::of_chunk(chunk, "features")), None))
        .collect::<Result<_>>()?;
    let reads: Vec<Read> = (0..)
        .map(FileIndex)
        .zip(&files)
        .flat_map(|(file, opened)| {
            let starts = (0..opened.bytes()).step_by(READ_BYTES as usize);
            let bytes = opened.bytes();
            starts.map(move |offset| Read {
                file,
                offset,
                length: (bytes - offset).min(READ_BYTES.into()) as u32,
                tag: 0,
            })
        })
        .collect();
    let bytes: u64 = reads.iter().map(|read| u64::from(read.length)).sum();
    let options = read::Options { depth: 64, read_bytes_max: READ_BYTES, ..read::Options::default() };
    let mut engine = read::open(read::Choice::Auto, files.into(), options)?;
    let begin = Instant::now();
    let mut rest = &reads[..];
    while !rest.is_empty() || engine.in_flight() > 0 {
        let submitted = engine.submit(rest)?;
        rest = &rest[submitted..];
        engine.complete(&mut |_, bytes| {
            black_box(bytes);
        })?;
    }
    Ok(bytes as f64 / begin.elapsed().as_secs_f64())
}

/// Nanoseconds of a thread to load an edge into a view in memory.
fn load(store: &Store, threads: usize) -> Result<f64> {
    let options = ViewOptions { threads, ..ViewOptions::default() };
    let begin = Instant::now();
    PartitionView::open(store, Owned::whole(store), &options)?;
    Ok(begin.elapsed().as_nanos() as f64 * threads as f64 / store.manifest().edges as f64)
}

/// Nanoseconds of a thread to sample an edge, with the features of its share of nodes or without, and their bytes as
/// f32.
fn sample(store: &Arc<Store>, threads: usize, view: ViewKind, features: bool) -> Result<(f64, f64)> {
    let options = LoaderOptions {
        view,
        scratch: ScratchOptions { folder: store.path().parent().map(Path::to_owned), bytes_max: None },
        rows: RowOptions { features, ..RowOptions::default() },
        memory: 2 << 30,
        threads,
        ..LoaderOptions::new(MinibatchOptions::new(Sampler::uniform("15,10,5".parse()?, false)))
    };
    let mut loader = Loader::new(store, options);
    let whole = grappa_formats::assignment::Assignment::whole(store.chunks().chunks());
    loader.partition(&whole, &grappa_sampling::Seeds::All, &Silent)?;
    // The first batches fill caches. Sweeps are ahead of the batches, so all of these count.
    let counted_from = if view == ViewKind::Sweep { 0 } else { BATCHES };
    let batches = loader.batches(0, |batches| batches.first(2 * BATCHES))?;
    let (mut begin, mut edges, mut values) = (Instant::now(), 0, 0);
    for (index, batch) in (0..).zip(loader.deliver(&batches)) {
        if index == counted_from {
            (begin, edges, values) = (Instant::now(), 0, 0);
        }
        let batch = batch?;
        edges += batch.minibatch().edges();
        values += batch.minibatch().nodes.len() * DIM as usize;
    }
    let ns = begin.elapsed().as_nanos() as f64 * threads as f64;
    Ok((ns / edges as f64, (values * size_of::<f32>()) as f64 / edges as f64))
}

/// Floating-point operations a second of a thread, while all threads work.
fn multiply(threads: usize) -> Result<f64> {
    const VALUES: usize = 64;
    const ROUNDS: u64 = 20_000_000;
    let begin = Instant::now();
    workers::for_each(threads, &vec![0_u64; threads], |_| {
        let (mut sums, by) = ([1.0_f32; VALUES], black_box([1e-9_f32; VALUES]));
        for _ in 0..ROUNDS {
            for (sum, by) in sums.iter_mut().zip(by) {
                *sum = sum.mul_add(by, by);
            }
        }
        black_box(sums);
        Ok(())
    })?;
    Ok((2 * VALUES as u64 * ROUNDS) as f64 / begin.elapsed().as_secs_f64())
}

/// Nanoseconds of a thread to add a byte of rows in random order, while all threads work.
fn row_sums(threads: usize) -> Result<f64> {
    const WIDTH: usize = 128;
    const ROWS: usize = 1 << 19;
    const ADDED: usize = 1 << 21;
    let rows = vec![1.0_f32; WIDTH * ROWS];
    let begin = Instant::now();
    workers::for_each(threads, &(0..threads as u64).collect::<Vec<_>>(), |thread| {
        let mut sum = [0.0_f32; WIDTH];
        let row = |index: usize| WIDTH * (hash(thread ^ (index as u64) << 8) as usize % ROWS);
        for index in 0..ADDED {
            let ahead = row(index + 8);
            for line in (0..WIDTH).step_by(16) {
                grappa_io::prefetch::prefetch(&rows, ahead + line);
            }
            let start = row(index);
            for (sum, value) in sum.iter_mut().zip(&rows[start..start + WIDTH]) {
                *sum += value;
            }
        }
        black_box(sum);
        Ok(())
    })?;
    Ok(begin.elapsed().as_nanos() as f64 / (ADDED * WIDTH * size_of::<f32>()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_measured_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let measured = measure(folder.path(), 2, &Silent).unwrap();
        let rates = measured.rates;
        for rate in [
            measured.disk_read,
            measured.disk_write,
            rates.load_edge_ns,
            rates.sample_edge_ns,
            rates.gather_byte_ns,
            rates.aggregate_byte_ns,
            rates.product_flops,
            rates.infer_byte_ns,
        ] {
            assert!(rate.is_finite() && rate > 0.0, "{measured:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
