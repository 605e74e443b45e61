//! What can't be seen from outside: queues that overflow, and a kernel that answers late.

use std::{
    fs,
    io::{Write, pipe},
    os::fd::OwnedFd,
    thread,
};

use super::*;
use crate::io::read::FileIndex;

fn options() -> Options {
    Options {
        depth: 64,
        read_bytes_max: 4096,
        ..Options::default()
    }
}

/// An engine that reads a file of these bytes through this ring; none, and a word on the terminal, where the machine
/// refuses one.
fn engine(test: &str, ring: io::Result<IoUring>, bytes: &[u8], options: Options) -> Option<Uring> {
    let ring = match ring {
        Ok(ring) => ring,
        Err(error) => {
            // `eprintln!` would be captured.
            writeln!(io::stderr(), "SKIPPED {test}: {}", refusal(&error)).unwrap();
            return None;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, bytes).unwrap();
    let files = [ReadFile::open(&path, None).unwrap()].into();
    let engine = Uring::with_ring(ring, files, options).unwrap();
    Some(engine)
}

fn read(page: u64) -> Read {
    Read {
        file: FileIndex(0),
        offset: 4096 * page,
        length: 4096,
        tag: page,
    }
}

#[test]
fn more_completions_than_their_queue_holds_are_all_taken() {
    let bytes: Vec<u8> = (0..64 * 4096u32).map(|i| (i / 7) as u8 ^ (i / 4096) as u8).collect();
    for direct in [false, true] {
        let ring = IoUring::builder().setup_cqsize(4).build(4);
        let options = Options { direct, ..options() };
        let Some(mut engine) = engine("more_completions_than_their_queue_holds", ring, &bytes, options) else {
            return;
        };
        let reads: Vec<Read> = (0..64).map(read).collect();
        for round in 0..20 {
            assert_eq!(engine.submit(&reads).unwrap(), 64);
            if !direct && round == 0 && engine.ring.params().is_feature_nodrop() {
                // What is in the page cache is read at once, so that nothing is left but to overflow.
                assert!(engine.ring.submission().cq_overflow());
            }
            let mut shown = [false; 64];
            while engine.in_flight() > 0 {
                let completed = engine.complete(&mut |read, found| {
                    let start = read.offset as usize;
                    assert!(found == &bytes[start..start + 4096], "page {}", read.tag);
                    assert!(!std::mem::replace(&mut shown[read.tag as usize], true));
                });
                assert!(completed.unwrap() > 0);
            }
            assert_eq!(shown, [true; 64]);
        }
    }
}

/// Starts a read that is answered when something is written to the pipe.
fn start_to_read(engine: &mut Uring, from: impl Into<OwnedFd>) {
    let file = Arc::new(Open {
        file: OwnedFd::into(from.into()),
        align: 1,
    });
    let slot = engine.free.pop().unwrap();
    let transfer = Transfer::new(read(0), 1);
    engine.slots[slot as usize] = Some(Slot { transfer, file });
    engine.describe(slot).unwrap();
    engine.enter(0).unwrap();
}

#[test]
fn an_engine_that_is_dropped_waits_for_the_kernel_to_write_no_more() {
    let test = "an_engine_that_is_dropped_waits_for_the_kernel";
    let Some(mut engine) = engine(test, ring(64), &[7; 64 * 4096], options()) else {
        return;
    };
    let (from, mut to) = pipe().unwrap();
    start_to_read(&mut engine, from);
    // Others are complete, or on their way.
    assert_eq!(engine.submit(&[read(1), read(2), read(3)]).unwrap(), 3);
    let dropping = thread::spawn(move || drop(engine));
    thread::sleep(Duration::from_millis(100));
    assert!(
        !dropping.is_finished(),
        "the buffers are gone while the kernel may write to them"
    );
    to.write_all(&[1; 4096]).unwrap();
    dropping.join().unwrap();
}

#[test]
fn an_engine_that_failed_waits_for_the_kernel_before_its_buffers_are_used_again() {
    let test = "an_engine_that_failed_waits_for_the_kernel";
    let Some(mut engine) = engine(test, ring(64), &[7; 64 * 4096], options()) else {
        return;
    };
    let (from, mut to) = pipe().unwrap();
    start_to_read(&mut engine, from);
    let failing = thread::spawn(move || {
        let beyond = read(64);
        engine.submit(&[beyond]).unwrap_err();
        engine
    });
    thread::sleep(Duration::from_millis(100));
    assert!(
        !failing.is_finished(),
        "the buffer is free while the kernel may write to it"
    );
    to.write_all(&[1; 4096]).unwrap();
    let mut engine = failing.join().unwrap();
    assert_eq!((engine.owed, engine.in_flight()), (0, 0));
    assert_eq!(engine.submit(&[read(5)]).unwrap(), 1);
    engine.complete(&mut |_, bytes| assert_eq!(bytes, [7; 4096])).unwrap();
}
