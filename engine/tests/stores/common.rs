//! Helpers of several tests.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_engine::verify::verify;
use grappa_ingestion::ingest::{IngestOptions, NodeIngest, Resources, StoreLayout, ingest};
use grappa_io::progress::{Progress, Silent};

/// Options for small graphs, from the edge list `edges` to the store `folder/out.grappa`.
pub fn options(folder: &Path, edges: &Path) -> IngestOptions {
    IngestOptions {
        resources: Resources { memory: 64 << 20, threads: 2, ..Resources::default() },
        nodes: NodeIngest { layout: StoreLayout { seed: 7, ..StoreLayout::default() }, ..NodeIngest::default() },
        ..IngestOptions::new(vec![edges.to_owned()], folder.join("out.grappa"))
    }
}

/// The bytes of every file of a folder, by relative path.
pub fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                files.insert(name.to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Calls `work` with a progress that stops one thread, once, at the report number `steps`: as sudden an end as a thread
/// can have. The other threads finish what they do, so that the run is left half done. Whether it came to that.
pub fn interrupted<T>(steps: u64, work: impl FnOnce(&dyn Progress) -> T) -> bool {
    let interrupt = Interrupt { left: AtomicU64::new(steps) };
    catch_unwind(AssertUnwindSafe(|| work(&interrupt))).is_err()
}

struct Interrupt {
    left: AtomicU64,
}

impl Interrupt {
    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Without the message that a panic prints.
            std::panic::resume_unwind(Box::new("interrupted"));
        }
    }
}

impl Progress for Interrupt {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {
        self.step();
    }

    fn advance(&self, _bytes: u64, _edges: u64) {
        self.step();
    }
}

/// The store of `options`, which is removed.
pub fn store_of(options: &IngestOptions) -> BTreeMap<String, Vec<u8>> {
    ingest(options, &Silent).unwrap();
    assert!(verify(&options.out, 1, &Silent).unwrap().is_ok());
    let files = files_of(&options.out);
    fs::remove_dir_all(&options.out).unwrap();
    files
}

/// Interrupts a run after each number of `steps`, and resumes it: to the store of a run that was not interrupted.
#[track_caller]
pub fn resumes_to_the_same_store(options: &IngestOptions, steps: impl IntoIterator<Item = u64>) {
    let expected = store_of(options);
    let mut options = options.clone();
    let (mut tried, mut resumed) = (0, 0);
    for steps in steps {
        tried += 1;
        options.resume = false;
        if interrupted(steps, |progress| ingest(&options, progress)) {
            assert!(!options.out.exists());
            options.resume = true;
            ingest(&options, &Silent).unwrap();
            resumed += 1;
        }
        assert!(files_of(&options.out) == expected, "interrupted after {steps} steps");
        fs::remove_dir_all(&options.out).unwrap();
    }
    assert!(resumed >= tried / 4, "{resumed} of {tried}");
}
