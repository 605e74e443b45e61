//! All engines return the bytes of the files, for any reads in any order, or an error.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex},
};

use grappa_io::{
    Error,
    map::{Access, Mapping},
    read::{
        FileIndex, Options, Read, ReadEngine, ReadFile,
        fault::{FaultInjector, Faults, Reordered},
    },
};
use rustix::{
    fs::{Advice, AtFlags, StatxFlags},
    io::Errno,
};

use crate::common::{Files, KINDS, Kind, Random};

/// Few bytes per read, so tests are quick and have many reads.
fn options() -> Options {
    Options { depth: 16, read_bytes_max: 20_000, threads: 3, ..Options::default() }
}

fn lengths() -> [usize; 6] {
    [1, 511, 4096, 4097, 100_000, 1_000_003]
}

fn read(file: u32, offset: u64, length: u32) -> Read {
    Read { file: FileIndex(file), offset, length, tag: 0 }
}

#[test]
fn reads_of_any_place_and_length_give_the_bytes_of_the_file() {
    let files = Files::with_lengths(&lengths());
    for kind in KINDS {
        let Some(mut engine) = files.engine(kind, options()) else {
            continue;
        };
        files.check(&mut *engine, &files.reads(2000, 20_000, 1));
        files.check(&mut *engine, &files.reads(2000, 600, 2));
    }
}

#[test]
fn short_and_refused_reads_are_continued() {
    let files = Files::with_lengths(&lengths());
    for kind in KINDS {
        for seed in 0..4 {
            let faults = Faults { seed, short_one_in: 2, refuse_one_in: 3, ..Faults::default() };
            let Some(mut engine) = files.engine(kind, faults.meet(options())) else {
                continue;
            };
            files.check(&mut *engine, &files.reads(500, 20_000, seed));
        }
    }
}

#[test]
fn completions_may_come_late_and_in_any_order() {
    let files = Files::with_lengths(&lengths());
    for kind in KINDS {
        for seed in 0..4 {
            let Some(engine) = files.engine(kind, options()) else {
                continue;
            };
            let mut engine = Reordered::new(engine, seed);
            files.check(&mut engine, &files.reads(1000, 2000, seed));
        }
    }
}

#[test]
fn reading_beyond_the_end_is_an_error_that_names_file_and_offset() {
    let files = Files::with_lengths(&[1000, 100_000]);
    for kind in KINDS {
        let Some(mut engine) = files.engine(kind, options()) else {
            continue;
        };
        let beyond = [
            (read(0, 999, 2), 1),
            (read(0, 1000, 1), 0),
            (read(0, 5000, 10), 0),
            (read(1, 99_000, 2000), 1000),
            (read(1, u64::MAX, 1), 0),
            (read(1, u64::MAX - 5, 20), 0),
        ];
        for (wrong, found) in beyond {
            let reads = [read(1, 0, 10), wrong, read(1, 10, 10)];
            let error = files.try_check(&mut *engine, &reads).unwrap_err();
            let expected = format!("expected {} bytes, found {found}", wrong.length);
            assert!(error.to_string().contains(&expected), "{kind:?}: {error}");
            let Error::Read { path, offset, .. } = error else { panic!("{error}") };
            assert_eq!(offset, wrong.offset);
            let number = wrong.file.0.to_string();
            assert!(path.to_str().unwrap().ends_with(&number), "{}", path.display());
            assert_eq!(engine.in_flight(), 0, "reads in flight are lost after an error");
            // The engine still works.
            files.check(&mut *engine, &files.reads(40, 100, 5));
        }
    }
}

#[test]
fn a_truncated_file_is_an_error() {
    for kind in KINDS {
        for left in [0u64, 5000, 8192, 60_000] {
            let files = Files::with_lengths(&[100_000]);
            let list = files.list();
            let Some(mut engine) = files.engine(kind, options()) else {
                continue;
            };
            files.check(&mut *engine, &files.reads(20, 1000, 5));
            File::options().write(true).open(&files.paths[0]).unwrap().set_len(left).unwrap();
            let before = read(0, left.saturating_sub(1000), 1000.min(left).max(1) as u32);
            if left > 0 {
                files.check(&mut *engine, &[before]);
            }
            let error = files.try_check(&mut *engine, &[read(0, left + 500, 700)]).unwrap_err();
            assert!(error.to_string().contains("found 0: the file is truncated"), "{error}");
            let error = files.try_check(&mut *engine, &[read(0, left.saturating_sub(100), 700)]).unwrap_err();
            let found = format!("found {}: the file is truncated", left.min(100));
            assert!(error.to_string().contains(&found), "{kind:?}: {error}");
            let error = list[0].check_unchanged().unwrap_err().to_string();
            assert!(error.contains(&format!("changed from 100000 to {left} bytes")), "{error}");
        }
    }
}

#[test]
fn a_disk_error_names_file_and_offset_and_the_engine_stays_usable() {
    let files = Files::with_lengths(&lengths());
    for kind in KINDS {
        for fail_from in [0, 1, 7, 50] {
            let faults = Faults { fail_from: Some(fail_from), short_one_in: 5, ..Faults::default() };
            let Some(mut engine) = files.engine(kind, faults.meet(options())) else {
                continue;
            };
            for _ in 0..3 {
                let reads = files.reads(100, 2000, fail_from);
                let error = files.try_check(&mut *engine, &reads).unwrap_err();
                let Error::Read { offset, source, .. } = &error else { panic!("{error}") };
                assert_eq!(source.raw_os_error(), Some(5), "{error}");
                assert!(reads.iter().any(|read| read.offset == *offset), "{error}");
                assert_eq!(engine.in_flight(), 0);
            }
        }
    }
}

#[test]
fn errors_pass_through_reordering() {
    let files = Files::with_lengths(&[50_000]);
    let faults = Faults { fail_from: Some(30), ..Faults::default() };
    let engine = files.engine(Kind::Pread, faults.meet(options())).unwrap();
    let mut engine = Reordered::new(engine, 3);
    files.try_check(&mut engine, &files.reads(100, 2000, 3)).unwrap_err();
    assert_eq!(engine.in_flight(), 0);
}

#[test]
fn direct_reads_that_are_refused_go_through_the_page_cache() {
    let files = Files::with_lengths(&lengths());
    let faults = Faults { refuse_first: 1, ..Faults::default() };
    if let Some(mut engine) = files.engine(Kind::UringDirect, faults.meet(options())) {
        // Direct reads of one file are refused, direct reads of the others are not: one engine reads both ways.
        files.check(&mut *engine, &files.reads(300, 20_000, 1));
        files.check(&mut *engine, &files.reads(300, 20_000, 2));
    }
}

/// A file system that accepts direct opens and refuses every direct read, including those in flight at the first refusal.
#[derive(Debug, Default)]
struct RefusesDirect {
    refused: Mutex<HashSet<u64>>,
}

impl FaultInjector for RefusesDirect {
    fn answer(&self, _: FileIndex, offset: u64, _: &mut [u8], answer: io::Result<usize>) -> io::Result<usize> {
        let is_first = self.refused.lock().unwrap().insert(offset);
        if is_first { Err(Errno::INVAL.into()) } else { answer }
    }
}

fn takes_direct_reads(path: &Path) -> bool {
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(path);
    let align = |file: File| rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    direct.is_ok_and(|file| align(file).is_ok_and(|status| status.stx_dio_offset_align > 0))
}

#[test]
fn a_file_that_refuses_direct_reads_is_opened_once_more_and_not_for_each_read() {
    let files = Files::with_lengths(&[16 * 4096]);
    let options = Options { fault_injector: Some(Arc::new(RefusesDirect::default())), ..options() };
    let mut engine = match files.try_engine(Kind::UringDirect, options) {
        Ok(engine) => engine,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    if !takes_direct_reads(&files.paths[0]) {
        grappa_skip::skip!("this file system does not support direct reads");
    }
    let reads: Vec<_> = (0..16).map(|page| read(0, 4096 * page, 4096)).collect();
    assert_eq!(engine.submit(&reads).unwrap(), 16);
    let (mut shown, mut open_max) = (0, 0);
    while engine.in_flight() > 0 {
        // Completions that are held back keep their descriptors.
        let completed = engine.complete(&mut |read, bytes| {
            assert!(bytes == files.wanted(read));
            let names = fs::read_dir("/proc/self/fd").unwrap();
            let targets = names.filter_map(|name| fs::read_link(name.ok()?.path()).ok());
            open_max = open_max.max(targets.filter(|target| *target == files.paths[0]).count());
        });
        shown += completed.unwrap();
    }
    assert_eq!(shown, 16);
    assert!((1..=2).contains(&open_max), "open {open_max} times");
}

#[test]
fn direct_reads_leave_nothing_in_the_page_cache() {
    let files = Files::with_lengths(&[1_000_000]);
    let file = File::open(&files.paths[0]).unwrap();
    // A look by reading would make the kernel read ahead, and it does not forget pages that are being read.
    let mapping = Mapping::new(&file, &files.paths[0], Access::Random).unwrap();
    let cached_pages = || mapping.cached_pages().unwrap();
    let forget = || {
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    };
    for (kind, expected) in [(Kind::UringDirect, 0), (Kind::UringBuffered, 200), (Kind::Pread, 200)] {
        let Some(mut engine) = files.engine(kind, options()) else {
            continue;
        };
        forget();
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(&files.paths[0]);
        if cached_pages() > 0 || direct.is_err() {
            grappa_skip::skip!("this file system has no disk, or does not support direct reads");
        }
        files.check(&mut *engine, &files.reads(1000, 20_000, 1));
        let cached = cached_pages();
        assert!(if expected == 0 { cached == 0 } else { cached > expected }, "{kind:?}: {cached}");
    }
}

#[test]
fn submit_takes_at_most_depth_reads() {
    let files = Files::with_lengths(&[300_000]);
    for kind in KINDS {
        for depth in [1, 3, 700] {
            let Some(mut engine) = files.engine(kind, Options { depth, ..options() }) else {
                continue;
            };
            let reads = files.reads(1000, 300, 9);
            assert_eq!(engine.options().depth, depth);
            assert_eq!(engine.submit(&reads).unwrap(), depth.min(1000));
            assert_eq!(engine.submit(&reads[depth..]).unwrap(), 0);
            assert_eq!(engine.in_flight(), depth);
            let mut completed = 0;
            while engine.in_flight() > 0 {
                completed += engine.complete(&mut |_, _| {}).unwrap();
            }
            assert_eq!(completed, depth);
            assert_eq!(engine.complete(&mut |_, _| {}).unwrap(), 0, "nothing is in flight");
            files.check(&mut *engine, &reads);
        }
    }
}

#[test]
fn an_engine_without_files_has_nothing_to_read() {
    let files = Files::with_lengths(&[]);
    for kind in KINDS {
        let Some(mut engine) = files.engine(kind, options()) else {
            continue;
        };
        assert_eq!(engine.submit(&[]).unwrap(), 0);
        assert_eq!(engine.complete(&mut |_, _| {}).unwrap(), 0);
    }
}

#[test]
fn invalid_reads_panic() {
    let files = Files::with_lengths(&[100_000]);
    for kind in KINDS {
        for wrong in [read(1, 0, 1), read(0, 0, 0), read(0, 0, 20_001)] {
            let Some(mut engine) = files.engine(kind, options()) else {
                continue;
            };
            assert!(catch_unwind(AssertUnwindSafe(|| engine.submit(&[wrong]))).is_err());
            files.check(&mut *engine, &files.reads(40, 100, 5));
        }
    }
}

#[test]
fn an_engine_may_be_dropped_while_it_reads() {
    let files = Files::with_lengths(&[1_000_000]);
    for kind in KINDS {
        for round in 0..20 {
            let Some(mut engine) = files.engine(kind, options()) else {
                continue;
            };
            engine.submit(&files.reads(16, 20_000, round)).unwrap();
            if round % 2 == 0 {
                engine.complete(&mut |_, _| {}).unwrap();
            }
        }
    }
}

#[test]
fn a_panic_in_the_callback_loses_no_other_read() {
    let files = Files::with_lengths(&[100_000]);
    for kind in KINDS {
        let Some(mut engine) = files.engine(kind, options()) else {
            continue;
        };
        let reads = files.reads(16, 100, 5);
        engine.submit(&reads).unwrap();
        let mut shown = 0;
        while engine.in_flight() > 0 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                engine.complete(&mut |read, bytes| {
                    shown += 1;
                    assert!(bytes == files.wanted(read));
                    assert!(shown % 3 != 0, "now and then");
                })
            }));
            if let Ok(completed) = result {
                completed.unwrap();
            }
        }
        assert_eq!(shown, 16);
        files.check(&mut *engine, &reads);
    }
}

#[test]
fn reads_outlive_the_thread_that_submitted_them() {
    let files = Files::with_lengths(&[1_000_000]);
    for kind in KINDS {
        let Some(mut engine) = files.engine(kind, options()) else {
            continue;
        };
        for seed in 0..20 {
            let reads = files.reads(16, 20_000, seed);
            std::thread::scope(|scope| scope.spawn(|| engine.submit(&reads).unwrap()).join().unwrap());
            let mut shown = 0;
            while engine.in_flight() > 0 {
                shown += engine.complete(&mut |read, bytes| assert!(bytes == files.wanted(read))).unwrap();
            }
            assert_eq!(shown, 16);
        }
    }
}

#[test]
fn files_of_another_length_than_expected_are_refused() {
    let files = Files::with_lengths(&[1000]);
    ReadFile::open(&files.paths[0], Some(1000)).unwrap();
    let error = ReadFile::open(&files.paths[0], Some(999)).unwrap_err().to_string();
    assert!(error.contains("expected 999 bytes, found 1000"), "{error}");
}

#[test]
fn a_file_replaced_before_it_is_read_is_an_error() {
    let files = Files::with_lengths(&[1000, 1000]);
    let list = files.list();
    fs::rename(&files.paths[1], &files.paths[0]).unwrap();
    for choice in [grappa_io::read::Choice::Pread, Default::default()] {
        let error = match grappa_io::read::open(choice, list.clone(), options()) {
            Err(error) => error,
            Ok(mut engine) => engine.submit(&[read(0, 0, 10)]).unwrap_err(),
        };
        assert!(error.to_string().contains("replaced by another file"), "{error}");
    }
}

#[test]
fn options_out_of_range_are_errors_that_say_the_range() {
    let files = Files::with_lengths(&[10]);
    let wrong = grappa_skip::cases![
        Options { depth: 0, ..options() }, "expected 1 to 4096 reads in flight, found 0";
        Options { depth: 5000, ..options() }, "expected 1 to 4096 reads in flight, found 5000";
        Options { read_bytes_max: 0, ..options() }, "the longest read: expected 1 B to";
        Options { threads: 0, ..options() }, "reading threads: expected at least 1";
        Options { depth: 4096, read_bytes_max: 1 << 20, ..options() }, "choose a smaller depth";
    ];
    for (options, expected) in wrong {
        let error =
            grappa_io::read::open(Default::default(), files.list(), options).err().expect("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut random = Random(1);
    assert_ne!(random.next(), random.next(), "bytes differ");
}
