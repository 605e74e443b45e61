//! Seeds and found inputs keep every promise, and planted bugs are found.

use std::{path::Path, process::Command};

use grappa_formats::container::{FileKind, decode_file, encode_file};
use grappa_fuzz::{
    Input, Target,
    campaign::{End, Report, fuzz},
    checks,
    repair::container,
    target::no_repair,
    targets,
    watch::Watch,
};

#[test]
fn seeds_reach_more_than_errors_and_break_no_promise() {
    checks::seeds_are_accepted(&targets::all());
}

#[test]
fn found_inputs_break_no_promise_any_more() {
    checks::found_inputs_are_right(
        &targets::all(),
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/found")),
    );
}

#[test]
fn every_target_has_a_name_of_its_own() {
    checks::names_differ(&targets::all());
}

#[test]
fn a_build_without_counters_is_not_taken_for_one_that_is_guided_by_coverage() {
    let run = Command::new(env!("CARGO_BIN_EXE_grappa-fuzz"))
        .args(["current", "--coverage", "--seconds", "1"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1));
    let message = String::from_utf8_lossy(&run.stderr);
    assert!(message.contains("no counters of edges"), "{message}");
}

fn planted(run: fn(&Input) -> String) -> Target {
    Target {
        name: "planted",
        seeds: || vec![encode_file(FileKind::ROWS, vec![1, 2, 3, 4, 5, 6, 7, 8], b"a payload").0],
        words: &[],
        repair: container,
        run,
        // Other tests allocate at the same time.
        memory_base: 64 << 20,
        memory_per_byte: 16,
    }
}

fn campaign(target: &Target, runs: u64) -> Report {
    fuzz(target, &Watch::new(), Vec::new(), 1, End::Runs(runs), |_| Ok(())).unwrap()
}

#[test]
fn a_panic_behind_a_checksum_is_found_once() {
    let target = planted(|input| match decode_file(input.bytes, FileKind::ROWS) {
        Ok((header, _)) => {
            assert!(header.meta.first() != Some(&0xff), "planted");
            "accepted".to_owned()
        }
        Err(error) => error.to_string(),
    });
    let report = campaign(&target, 50_000);
    assert_eq!(report.found.len(), 1, "{report:?}");
    assert!(report.found[0].place.contains("targets.rs") && report.found[0].message == "planted");
    // Without repaired checksums nothing gets there.
    let report = campaign(
        &Target {
            repair: no_repair,
            ..target
        },
        5000,
    );
    assert_eq!(report.found, []);
}

#[test]
fn memory_that_the_input_does_not_justify_is_found() {
    let target = planted(|input| match decode_file(input.bytes, FileKind::ROWS) {
        Ok((header, _)) => {
            let believed = header.meta.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes));
            let held = vec![1u8; (believed as usize).min(1 << 28)];
            format!("accepted {}", held.len())
        }
        Err(error) => error.to_string(),
    });
    // The seed itself asks for more.
    let report = campaign(&target, 1);
    assert_eq!(report.found.len(), 1);
    assert!(report.found[0].place == "memory", "{:?}", report.found);
}

#[test]
fn outcomes_lead_to_what_no_single_mutation_reaches() {
    let target = Target {
        seeds: || vec![b"....".to_vec()],
        repair: no_repair,
        ..planted(|input| {
            let right = input
                .bytes
                .iter()
                .zip(b"fuzz")
                .take_while(|(found, wanted)| found == wanted)
                .count();
            assert!(right < 4, "planted");
            ["none", "one", "two", "three"][right].to_owned()
        })
    };
    assert_eq!(campaign(&target, 300_000).found.len(), 1);
}
