//! Tests of internals: queues that overflow, and a kernel that completes reads late.

use std::{
    fs,
    io::{Write, pipe},
    os::fd::OwnedFd,
    sync::mpsc,
    thread,
};

use super::*;
use crate::read::FileIndex;

fn options() -> Options {
    Options { depth: 64, read_bytes_max: 4096, ..Options::default() }
}

/// Skips the test that calls it if the machine refuses the ring.
macro_rules! granted {
    ($ring:expr) => {
        match $ring {
            Ok(ring) => ring,
            Err(error) => grappa_skip::skip!("{}", refusal(&error)),
        }
    };
}

/// An engine that reads a file of these bytes through this ring.
fn engine(ring: IoUring, bytes: &[u8], options: Options) -> Uring {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, bytes).unwrap();
    let files = [ReadFile::open(&path, None).unwrap()].into();
    Uring::with_ring(ring, files, options).unwrap()
}

fn read(page: u64) -> Read {
    Read { file: FileIndex(0), offset: 4096 * page, length: 4096, tag: page }
}

#[test]
fn completions_that_overflow_their_queue_are_all_taken() {
    let bytes: Vec<u8> = (0..64 * 4096u32).map(|i| (i / 7) as u8 ^ (i / 4096) as u8).collect();
    for direct in [false, true] {
        let ring = granted!(IoUring::builder().setup_cqsize(4).build(4));
        let options = Options { direct, ..options() };
        let mut engine = engine(ring, &bytes, options);
        let reads: Vec<Read> = (0..64).map(read).collect();
        for round in 0..20 {
            assert_eq!(engine.submit(&reads).unwrap(), 64);
            if !direct && round == 0 && engine.ring.params().is_feature_nodrop() {
                // Reads from the page cache complete at once, so the queue must overflow.
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

/// Waits until `thread`, which runs `work`, sleeps in the kernel until the ring completes a read. `work` must not end
/// before that.
fn wait_until_it_waits<T>(work: &thread::JoinHandle<T>, thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/syscall", thread.as_raw_pid());
    let waiting = format!("{} ", libc::SYS_io_uring_enter);
    loop {
        assert!(!work.is_finished(), "it ended while the kernel may write to the buffers");
        // The file holds `running`, or the number of the system call that the thread sleeps in. It is gone when the thread
        // has ended.
        match fs::read_to_string(&path) {
            Ok(call) if call.starts_with(&waiting) => return,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Starts a read that completes when the pipe is written to.
fn start_to_read(engine: &mut Uring, from: impl Into<OwnedFd>) {
    let file = Arc::new(Open { file: OwnedFd::into(from.into()), align: 1 });
    let slot = engine.free.pop().unwrap();
    let transfer = Transfer::new(read(0), 1);
    engine.slots[slot as usize] = Some(Slot { transfer, file });
    engine.describe(slot).unwrap();
    engine.enter(0).unwrap();
}

#[test]
fn drop_waits_until_the_kernel_writes_no_more() {
    let mut engine = engine(granted!(ring(64)), &[7; 64 * 4096], options());
    let (from, mut to) = pipe().unwrap();
    start_to_read(&mut engine, from);
    assert_eq!(engine.submit(&[read(1), read(2), read(3)]).unwrap(), 3);
    // The other reads are complete, so a wait can only be for the pipe's read.
    while engine.ring.completion().len() < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    let (say, said) = mpsc::channel();
    let dropping = thread::spawn(move || {
        say.send(rustix::thread::gettid()).unwrap();
        drop(engine);
    });
    wait_until_it_waits(&dropping, said.recv().unwrap());
    to.write_all(&[1; 4096]).unwrap();
    dropping.join().unwrap();
}

#[test]
fn a_failed_engine_waits_for_the_kernel_before_it_reuses_buffers() {
    let mut engine = engine(granted!(ring(64)), &[7; 64 * 4096], options());
    let (from, mut to) = pipe().unwrap();
    start_to_read(&mut engine, from);
    let (say, said) = mpsc::channel();
    let failing = thread::spawn(move || {
        say.send(rustix::thread::gettid()).unwrap();
        let beyond = read(64);
        engine.submit(&[beyond]).unwrap_err();
        engine
    });
    wait_until_it_waits(&failing, said.recv().unwrap());
    to.write_all(&[1; 4096]).unwrap();
    let mut engine = failing.join().unwrap();
    assert_eq!((engine.owed, engine.in_flight()), (0, 0));
    assert_eq!(engine.submit(&[read(5)]).unwrap(), 1);
    engine.complete(&mut |_, bytes| assert_eq!(bytes, [7; 4096])).unwrap();
}
