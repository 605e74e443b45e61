//! Training that is killed before any change of the file system goes on to the same parameters.

use grappa_tests::{
    files::memory_folder,
    kills::{training_jobs, training_jobs_in_buckets, training_jobs_out_of_core},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_grappa-train");

#[test]
fn training_killed_before_any_change_of_the_file_system_goes_on_to_the_same_parameters() {
    let inputs = memory_folder();
    for job in training_jobs(PROGRAM.as_ref(), inputs.path()) {
        let name = job.name.clone();
        let (_, killed) = job.kill_before_changes(memory_folder().path(), 2, 5);
        assert!(killed >= 5, "{name}: killed {killed} times");
    }
}

#[test]
fn training_out_of_core_that_is_killed_goes_on_to_the_same_parameters() {
    let inputs = memory_folder();
    for job in training_jobs_out_of_core(PROGRAM.as_ref(), inputs.path()) {
        let name = job.name.clone();
        let (_, killed) = job.kill_before_changes(memory_folder().path(), 1, 2);
        assert!(killed >= 2, "{name}: killed {killed} times");
    }
}

#[test]
fn training_in_buckets_that_is_killed_goes_on_to_the_same_rows() {
    let inputs = memory_folder();
    for job in training_jobs_in_buckets(PROGRAM.as_ref(), inputs.path()) {
        let name = job.name.clone();
        let (changes, killed) = job.kill_before_changes(memory_folder().path(), 2, 10);
        assert!(changes > 40 && killed >= 10, "{name}: {changes} changes, killed {killed} times");
    }
}
