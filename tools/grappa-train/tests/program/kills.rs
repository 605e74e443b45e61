//! Training that is killed before any change of the file system goes on to the same parameters.

use grappa_tests::{
    files::memory_folder,
    kills::{Moment, Outcome, sample, training_job},
};

#[test]
fn training_killed_before_any_change_of_the_file_system_goes_on_to_the_same_parameters() {
    let [inputs, folder] = [memory_folder(), memory_folder()];
    let program = env!("CARGO_BIN_EXE_grappa-train").into();
    let (job, _) = training_job(program, inputs.path()).tried(folder.path(), 1);
    let changes = job.changes(folder.path());
    let mut killed = 0;
    for number in sample(changes.len(), 2, 14, 5) {
        let outcome = job.kill(folder.path(), &[Moment::Change(number)]);
        let what = changes.get(number as usize - 1).map_or("the end", |change| change);
        assert!(
            matches!(outcome, Outcome::Same | Outcome::NotKilled),
            "killed before {what}: {outcome}"
        );
        killed += usize::from(outcome == Outcome::Same);
    }
    assert!(killed >= 10, "killed {killed} times");
}
