//! Checks for lists of targets, shared by tests. They panic if they fail.

use std::{fs, path::Path, time::Instant};

use crate::{
    Target,
    campaign::inputs_in,
    watch::{Ran, SECONDS_MAX, Watch},
};

/// At least a third of each target's seeds is accepted, because mutants of refused inputs find little. No seed breaks a
/// promise.
pub fn seeds_are_accepted(targets: &[Target]) {
    let watch = Watch::new();
    for target in targets {
        let seeds = (target.seeds)();
        let mut accepted = 0;
        for seed in &seeds {
            match watch.run(target, seed) {
                Ran::Kept(outcome) => accepted += usize::from(outcome.contains("accepted")),
                Ran::Broke { place, message } => panic!("{}: {place}: {message}", target.name),
            }
        }
        assert!(
            3 * accepted > seeds.len(),
            "{}: {accepted} of {}",
            target.name,
            seeds.len()
        );
    }
}

/// Inputs that were found earlier break no promise any more. Each folder of inputs belongs to a target.
pub fn found_inputs_are_right(targets: &[Target], found: &Path) {
    let watch = Watch::new();
    for target in targets {
        for (name, input) in inputs_in(&found.join(target.name)).expect("the folder can be read") {
            let begin = Instant::now();
            if let Ran::Broke { place, message } = watch.run(target, &input) {
                panic!("{}/{name}: {place}: {message}", target.name);
            }
            let seconds = begin.elapsed().as_secs();
            assert!(seconds < SECONDS_MAX, "{}/{name}: took {seconds} s", target.name);
        }
    }
    for entry in fs::read_dir(found).expect("the folder can be read") {
        let name = entry.expect("the folder can be read").file_name();
        assert!(
            name == "README.md" || targets.iter().any(|target| name == target.name),
            "no target is called {}",
            name.display()
        );
    }
}

/// Checks that target names are unique.
pub fn names_differ(targets: &[Target]) {
    let mut names: Vec<_> = targets.iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}
