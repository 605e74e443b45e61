//! Training that is killed before any change of the file system goes on to the same parameters.

use grappa_tests::{
    files::memory_folder,
    kills::{Job, Moment, Outcome, sample, training_jobs, training_jobs_out_of_core},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_grappa-train");

#[test]
fn training_killed_before_any_change_of_the_file_system_goes_on_to_the_same_parameters() {
    let inputs = memory_folder();
    for job in training_jobs(PROGRAM.as_ref(), inputs.path()) {
        let name = job.name.clone();
        let killed = kill_before_changes(job, 2, 5);
        assert!(killed >= 5, "{name}: killed {killed} times");
    }
}

#[test]
fn training_out_of_core_that_is_killed_goes_on_to_the_same_parameters() {
    let inputs = memory_folder();
    for job in training_jobs_out_of_core(PROGRAM.as_ref(), inputs.path()) {
        let name = job.name.clone();
        let killed = kill_before_changes(job, 1, 2);
        assert!(killed >= 2, "{name}: killed {killed} times");
    }
}

/// Kills a job before its `last` changes and `others` of the earlier ones. Returns how often it was killed.
fn kill_before_changes(job: Job, last: usize, others: usize) -> usize {
    let folder = memory_folder();
    let (job, _) = job.tried(folder.path(), 1);
    let changes = job.changes(folder.path());
    let mut killed = 0;
    for number in sample(changes.len(), last, others, 5) {
        let outcome = job.kill(folder.path(), &[Moment::Change(number)]);
        let what = changes.get(number as usize - 1).map_or("the end", |change| change);
        assert!(
            matches!(outcome, Outcome::Same | Outcome::NotKilled),
            "{}, killed before {what}: {outcome}",
            job.name
        );
        killed += usize::from(outcome == Outcome::Same);
    }
    killed
}
