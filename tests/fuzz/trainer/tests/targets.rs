//! Seeds and found inputs keep every promise.

use std::path::Path;

use grappa_fuzz::checks;
use grappa_trainer_fuzz::all;

#[test]
fn seeds_reach_more_than_errors_and_break_no_promise() {
    checks::seeds_are_accepted(&all());
}

#[test]
fn found_inputs_break_no_promise_any_more() {
    checks::found_inputs_are_right(&all(), Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/found")));
}

#[test]
fn every_target_has_a_name_of_its_own() {
    checks::names_differ(&all());
}
