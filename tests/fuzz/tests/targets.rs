//! Seeds and found inputs keep every promise, and broken promises are noticed.

use std::{fs, panic, path::Path, time::Instant};

use grappa_fuzz::{Input, Target, promises, scratch::Scratch, target::Repair, targets};

/// A slow machine under load runs the slowest input in a hundredth of it.
const SECONDS_MAX: u64 = 20;

#[test]
fn seeds_reach_more_than_errors_and_break_no_promise() {
    let scratch = Scratch::new();
    for target in targets::all() {
        println!("{}", target.name);
        let seeds = (target.seeds)();
        let outcomes = seeds.iter().map(|seed| promises::run(&target, seed, &scratch));
        let accepted = outcomes.filter(|outcome| outcome.contains("accepted")).count();
        // Mutants of refused inputs find little.
        assert!(3 * accepted > seeds.len(), "{accepted} of {}", seeds.len());
    }
}

#[test]
fn found_inputs_break_no_promise_any_more() {
    let (scratch, targets) = (Scratch::new(), targets::all());
    for folder in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("found")).unwrap() {
        let folder = folder.unwrap();
        if folder.file_type().unwrap().is_file() {
            continue;
        }
        let target = targets.iter().find(|target| folder.file_name() == target.name);
        let target = target.unwrap_or_else(|| panic!("no target is called {}", folder.file_name().display()));
        for input in fs::read_dir(folder.path()).unwrap() {
            let path = input.unwrap().path();
            println!("{}", path.display());
            let begin = Instant::now();
            promises::run(target, &fs::read(&path).unwrap(), &scratch);
            let seconds = begin.elapsed().as_secs();
            assert!(seconds < SECONDS_MAX, "took {seconds} s");
        }
    }
}

#[test]
fn every_target_has_a_name_of_its_own() {
    let mut names: Vec<_> = targets::all().iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn memory_that_the_input_does_not_justify_breaks_a_promise() {
    let believing = |input: &Input| format!("accepted {}", vec![1u8; usize::from(input.bytes[0]) << 20].len());
    let target = Target {
        name: "believing",
        seeds: Vec::new,
        words: &[],
        repair: Repair::Nothing,
        run: believing,
        memory_base: 64 << 20,
        memory_per_byte: 16,
    };
    let scratch = Scratch::new();
    assert_eq!(promises::run(&target, &[1], &scratch), "accepted 1048576");
    panic::catch_unwind(|| promises::run(&target, &[200], &scratch)).unwrap_err();
}
