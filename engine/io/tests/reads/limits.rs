//! Engines work without the features that the machine refuses, and log that once. Each test changes the limits of a
//! separate process.

use std::collections::BTreeMap;

use grappa_io::{
    durable::{FolderLock, Patience, write_file},
    read::{self, Choice, Options},
};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, capabilities, set_capabilities},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::common::{Files, KINDS, Kind, in_child, said};

/// Makes a system call fail with `error`, in this thread and in those that it starts. If an argument's number `n` and a `mask`
/// are given, only calls whose argument has these bits fail.
fn refuse(call: libc::c_long, error: i32, bits: Option<(u8, u64)>) {
    let rules = bits.map_or(vec![], |(argument, mask)| {
        let has = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, has, mask).unwrap();
        vec![SeccompRule::new(vec![condition]).unwrap()]
    });
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, rules)]),
        SeccompAction::Allow,
        SeccompAction::Errno(error as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

fn limit(resource: Resource, value: u64) {
    let current = Some(value);
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

fn count(text: &str, pattern: &str) -> usize {
    text.matches(pattern).count()
}

/// Skips the test that calls it if the machine has no io_uring.
macro_rules! need_uring {
    () => {
        if let Err(why) = Files::with_lengths(&[10]).try_engine(Kind::UringDirect, Options::default()) {
            grappa_skip::skip!("{why}");
        }
    };
}

#[test]
fn without_io_uring_threads_read() {
    let rounds = [
        (libc::SYS_io_uring_setup, libc::EPERM, "kernel.io_uring_disabled"),
        (libc::SYS_io_uring_setup, libc::ENOSYS, "allow io_uring_*"),
        (libc::SYS_io_uring_setup, libc::ENOMEM, "ulimit -l"),
        (libc::SYS_io_uring_register, libc::EPERM, "allow io_uring_*"),
        (libc::SYS_io_uring_enter, libc::EPERM, "allow io_uring_*"),
    ];
    for (round, (_, _, reason)) in rounds.iter().enumerate() {
        // The parent tells the child the case.
        let own = std::env::var("GRAPPA_TEST_ROUND").map_or(round, |text| text.parse().unwrap());
        let (call, error, _) = rounds[own];
        let body = || {
            refuse(call, error, None);
            let files = Files::with_lengths(&[100_000, 5000]);
            let error = read::open(Choice::Uring, files.list(), Options::default()).err().unwrap();
            eprintln!("refused: {error}");
            for _ in 0..2 {
                let mut engine = read::open(Choice::Auto, files.list(), Options::default()).unwrap();
                assert_eq!(engine.name(), "pread");
                files.check(&mut *engine, &files.reads(500, 20_000, 1));
            }
        };
        let Some(output) =
            in_child("limits::without_io_uring_threads_read", &[("GRAPPA_TEST_ROUND", round as i32)], body)
        else {
            return;
        };
        let text = said(&output);
        assert_eq!(count(&text, "threads read instead"), 1, "{text}");
        assert_eq!(count(&text, "refused: io_uring is refused"), 1, "{text}");
        assert_eq!(count(&text, reason), 2, "{text}");
    }
}

#[test]
fn without_locked_memory_buffers_are_not_registered() {
    const NAME: &str = "limits::without_locked_memory_buffers_are_not_registered";
    need_uring!();
    let output = in_child(NAME, &[], || {
        limit(Resource::Memlock, 64 << 10);
        // A privileged process has no limit on locked memory.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).unwrap();
        let files = Files::with_lengths(&[1_000_000, 5000]);
        for _ in 0..2 {
            let mut engine = read::open(Choice::Auto, files.list(), Options::default()).unwrap();
            eprintln!("engine: {}", engine.name());
            files.check(&mut *engine, &files.reads(500, 20_000, 1));
        }
    });
    let Some(output) = output else { return };
    let text = said(&output);
    if count(&text, "engine: pread") == 2 {
        // Before Linux 5.12 the rings count as locked memory too.
        assert_eq!(count(&text, "ulimit -l"), 1, "{text}");
    } else {
        assert_eq!(count(&text, "engine: uring"), 2, "{text}");
        assert_eq!(count(&text, "cannot register"), 1, "{text}");
    }
}

#[test]
fn with_too_little_memory_a_smaller_ring_is_used() {
    const NAME: &str = "limits::with_too_little_memory_a_smaller_ring_is_used";
    const DEPTH: usize = 128;
    need_uring!();
    let output = in_child(NAME, &[], || {
        // Rings of 128 and 64 entries take too much memory; one of 32 does not.
        refuse(libc::SYS_io_uring_setup, libc::ENOMEM, Some((0, 128)));
        refuse(libc::SYS_io_uring_setup, libc::ENOMEM, Some((0, 64)));
        let files = Files::with_lengths(&[1_000_000, 5000]);
        let options = Options { depth: DEPTH, ..Options::default() };
        let mut engine = read::open(Choice::Auto, files.list(), options).unwrap();
        eprintln!("engine: {}", engine.name());
        files.check(&mut *engine, &files.reads(1000, 20_000, 1));
    });
    let Some(output) = output else { return };
    let text = said(&output);
    assert_eq!(count(&text, "engine: uring"), 1, "{text}");
    assert_eq!(count(&text, "ulimit -l"), 0, "{text}");
}

#[test]
fn with_few_descriptors_files_are_reopened() {
    let output = in_child("limits::with_few_descriptors_files_are_reopened", &[], || {
        let files = Files::with_lengths(&[3000; 300]);
        let taken = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        limit(Resource::Nofile, taken + 12);
        for kind in KINDS {
            // More reads than descriptors, so reads wait for one.
            let options = Options { depth: 64, ..Options::default() };
            let Some(mut engine) = files.engine(kind, options) else {
                continue;
            };
            files.check(&mut *engine, &files.reads(3000, 3000, 1));
            let now = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
            assert!(now <= taken + 12);
        }
    });
    let Some(output) = output else { return };
    let text = said(&output);
    assert_eq!(count(&text, "300 files are to be read"), 1, "{text}");
    assert_eq!(count(&text, "ulimit -n"), 1, "{text}");
}

#[test]
fn without_direct_reads_the_page_cache_is_used() {
    const NAME: &str = "limits::without_direct_reads_the_page_cache_is_used";
    need_uring!();
    let output = in_child(NAME, &[], || {
        refuse(libc::SYS_openat, libc::EINVAL, Some((2, libc::O_DIRECT as u64)));
        let files = Files::with_lengths(&[1_000_000, 5000]);
        for _ in 0..2 {
            let mut engine = read::open(Choice::Auto, files.list(), Options::default()).unwrap();
            assert_eq!(engine.name(), "uring");
            files.check(&mut *engine, &files.reads(500, 20_000, 1));
        }
    });
    let Some(output) = output else { return };
    let text = said(&output);
    assert_eq!(count(&text, "does not support direct reads"), 1, "{text}");
}

#[test]
fn files_in_memory_are_read_too() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        grappa_skip::skip!("there is no /dev/shm to write to");
    };
    let files = Files::at(folder, &[1, 4096, 1_000_000]);
    for kind in KINDS {
        let Some(mut engine) = files.engine(kind, Options::default()) else {
            continue;
        };
        files.check(&mut *engine, &files.reads(1000, 20_000, 1));
    }
}

#[test]
fn without_file_locks_work_continues_with_one_warning() {
    // The answers of kernels and network file systems. The parent tells the child the case.
    let errors = [libc::ENOLCK, libc::EOPNOTSUPP, libc::ENOSYS, libc::EBADF];
    for (round, _) in errors.iter().enumerate() {
        let own = std::env::var("GRAPPA_TEST_ROUND").map_or(round, |text| text.parse().unwrap());
        let body = || {
            let folder = tempfile::tempdir().unwrap();
            refuse(libc::SYS_flock, errors[own], None);
            let _locks = [(); 2].map(|()| FolderLock::wait(folder.path()).unwrap());
            FolderLock::acquire(folder.path(), Patience::None).unwrap().unwrap();
            let file = folder.path().join("file");
            write_file(&file, b"bytes").unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), b"bytes");
        };
        let Some(output) = in_child(
            "limits::without_file_locks_work_continues_with_one_warning",
            &[("GRAPPA_TEST_ROUND", round as i32)],
            body,
        ) else {
            return;
        };
        let text = said(&output);
        assert_eq!(count(&text, "has no locks"), 1, "{text}");
    }
}
