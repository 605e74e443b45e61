use grappa_formats::schema::{Column, Schema};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use tempfile::tempdir;

use super::*;
use crate::{
    checkpoint::{Checkpoint, RunState},
    stages::StageSeconds,
};

fn error(result: Result<RunFolder>) -> String {
    result.expect_err("it fails").to_string()
}

/// A run with a checkpoint of this many epochs.
fn begun_run(path: &Path, epochs: u64) {
    let config = TrainConfig { epochs, ..TrainConfig::default() };
    let run = RunFolder::replace(path, &config).unwrap();
    fs::write(path.join(METRICS), format!("{{\"epoch\": {epochs}}}\n")).unwrap();
    fs::create_dir(path.join(CHECKPOINTS)).unwrap();
    fs::write(path.join(CHECKPOINTS).join("1"), [epochs as u8]).unwrap();
    drop(run);
}

/// The epochs of the run in a folder, by its checkpoint.
fn epochs_of(path: &Path) -> Option<u8> {
    fs::read(path.join(CHECKPOINTS).join("1")).ok().map(|bytes| bytes[0])
}

#[test]
fn a_replaced_run_stays_until_the_new_one_has_finished() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run");
    let config = TrainConfig::default();
    begun_run(&path, 1);
    // One that ends with an error before it begins puts it back.
    let run = RunFolder::replace(&path, &config).unwrap();
    assert_eq!((epochs_of(&path), epochs_of(&path.join("replaced"))), (None, Some(1)));
    run.remove_if_not_begun();
    assert_eq!((epochs_of(&path), path.join("replaced").exists()), (Some(1), false));
    assert_eq!(config_of(&path).unwrap().epochs, 1);
    // One that was killed is replaced itself, and the older one stays.
    for killed in [2, 3] {
        begun_run(&path, killed);
        assert_eq!((epochs_of(&path), epochs_of(&path.join("replaced"))), (Some(killed as u8), Some(1)));
    }
    RunFolder::resume(&path).unwrap().remove_replaced().unwrap();
    assert_eq!((epochs_of(&path), path.join("replaced").exists()), (Some(3), false));
    // A move that was interrupted is continued.
    fs::create_dir(path.join("replaced")).unwrap();
    fs::rename(path.join(METRICS), path.join("replaced").join(METRICS)).unwrap();
    drop(RunFolder::replace(&path, &config).unwrap());
    assert!([METRICS, CONFIG].iter().all(|name| path.join("replaced").join(name).exists()));
}

#[test]
fn only_a_run_is_replaced_and_nobody_works_on_it() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run");
    let config = TrainConfig::default();
    begun_run(&path, 1);
    let first = RunFolder::resume(&path).unwrap();
    error(RunFolder::replace(&path, &config));
    drop(first);
    fs::write(path.join("letter.txt"), "dear").unwrap();
    let text = error(RunFolder::replace(&path, &config));
    assert!(text.contains("letter.txt") && text.contains("--force does not replace"), "{text}");
    assert_eq!(epochs_of(&path), Some(1));
    let mine = folder.path().join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("letter.txt"), "dear").unwrap();
    let text = error(RunFolder::replace(&mine, &config));
    assert!(text.contains("contains no run"), "{text}");
}

#[test]
fn a_new_run_needs_a_folder_of_its_own() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a/run");
    let config = TrainConfig::default();
    let run = RunFolder::create(&path, &config).unwrap();
    assert_eq!(run.config().unwrap(), config);
    drop(run);
    let text = error(RunFolder::create(&path, &config));
    assert!(text.contains("it already contains a run") && text.contains("--resume"), "{text}");
    let text = error(RunFolder::create(&folder.path().join("a"), &config));
    assert!(text.contains("not empty and contains no run"), "{text}");
    // A run that did not begin leaves nothing; one that has metrics stays.
    RunFolder::resume(&path).unwrap().remove_if_not_begun();
    RunFolder::create(&path, &config).unwrap().remove_if_not_begun();
    assert!(path.exists(), "the first of these found the folder");
    fs::remove_dir(&path).unwrap();
    RunFolder::create(&path, &config).unwrap().remove_if_not_begun();
    assert!(!path.exists());
    let run = RunFolder::create(&path, &config).unwrap();
    drop(run.journal(0, 0).unwrap());
    run.remove_if_not_begun();
    assert!(!path.exists());
    let run = RunFolder::create(&path, &config).unwrap();
    fs::write(path.join(METRICS), "{}\n").unwrap();
    run.remove_if_not_begun();
    assert_eq!(RunFolder::resume(&path).unwrap().config().unwrap(), config);
    // One that has only logs of ranks is accepted, too.
    let logs = folder.path().join("logs");
    let run = RunFolder::create(&logs, &config).unwrap();
    fs::write(logs.join(log_of_rank(12)), "rank 12: error").unwrap();
    assert!(error(RunFolder::create(&logs, &config)).contains("already contains a run"));
    run.remove_if_not_begun();
    drop(RunFolder::create(&logs, &config).unwrap());
    assert!(logs.join("rank-12.log").exists());
    // An empty folder is accepted.
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    drop(RunFolder::create(&empty, &config).unwrap());
    // So will one that a run was killed in before it had its configuration.
    fs::rename(empty.join(CONFIG), empty.join("config.toml.tmp")).unwrap();
    let run = RunFolder::create(&empty, &config).unwrap();
    assert_eq!(run.config().unwrap(), config);
}

#[test]
fn folders_without_a_run_are_not_resumed() {
    let folder = tempdir().unwrap();
    let text = error(RunFolder::resume(&folder.path().join("nowhere")));
    assert!(text.contains("it contains no run") && text.contains("without --resume"), "{text}");
}

#[test]
fn two_processes_do_not_work_on_one_run() {
    let folder = tempdir().unwrap();
    let run = RunFolder::create(folder.path(), &TrainConfig::default()).unwrap();
    let text = error(RunFolder::resume(folder.path()));
    assert!(text.contains("another process") && text.contains("is writing here"), "{text}");
    drop(run);
    RunFolder::resume(folder.path()).unwrap();
}

#[test]
fn a_link_to_the_folder_of_a_run_is_followed() {
    let folder = tempdir().unwrap();
    let [target, link] = ["target", "link"].map(|name| folder.path().join(name));
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let run = RunFolder::create(&link, &TrainConfig::default()).unwrap();
    assert!(error(RunFolder::resume(&target)).contains("is writing here"));
    drop(run);
}

#[test]
fn links_in_place_of_the_files_of_a_run_are_refused() {
    use std::os::unix::fs::symlink;
    let folder = tempdir().unwrap();
    let [path, victim, new] = ["run", "victim", "new"].map(|name| folder.path().join(name));
    drop(RunFolder::create(&path, &TrainConfig::default()).unwrap());
    fs::write(&victim, "precious").unwrap();
    for name in [METRICS, CHECKPOINTS, ASSIGNMENTS, "events.out.tfevents.1", "rank-0.log"] {
        symlink(&victim, path.join(name)).unwrap();
        let text = error(RunFolder::resume(&path));
        assert!(text.contains(name) && text.contains("remove the link"), "{text}");
        fs::remove_file(path.join(name)).unwrap();
    }
    RunFolder::resume(&path).unwrap();
    // A run that begins in a folder of somebody else.
    fs::create_dir(&new).unwrap();
    symlink(&victim, new.join("rank-0.log")).unwrap();
    let text = error(RunFolder::create(&new, &TrainConfig::default()));
    assert!(text.contains("rank-0.log") && text.contains("remove the link"), "{text}");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn a_run_whose_folder_was_replaced_writes_and_removes_nothing_in_the_other_one() {
    let folder = tempdir().unwrap();
    let [path, renamed] = ["run", "renamed"].map(|name| folder.path().join(name));
    let config = TrainConfig::default();
    let old = RunFolder::create(&path, &config).unwrap();
    let old_checkpoints = old.checkpoints(1).unwrap();
    let checkpoint = |step| Checkpoint { state: RunState { step, ..RunState::default() }, ..Checkpoint::default() };
    fs::rename(&path, &renamed).unwrap();
    assert!(old.check().is_err());
    let new = RunFolder::create(&path, &config).unwrap();
    let saved = new.checkpoints(1).unwrap().save(&checkpoint(1)).unwrap();
    new.write_report("new").unwrap();
    let errors = [
        old.write_report("old").unwrap_err(),
        old.write_config(&config).unwrap_err(),
        old_checkpoints.save(&checkpoint(2)).unwrap_err(),
        old_checkpoints.save_best(&checkpoint(2)).unwrap_err(),
        old_checkpoints.forget_after(0).unwrap_err(),
    ];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.contains("removed or renamed") && error.contains("--resume"), "{error}");
    }
    old.remove_if_not_begun();
    assert!(saved.exists() && new.check().is_ok());
    assert_eq!(fs::read(path.join(REPORT)).unwrap(), b"new");
    fs::remove_file(path.join(CONFIG)).unwrap();
    assert!(new.check().unwrap_err().to_string().contains("emptied"));
}

#[test]
fn a_run_goes_on_where_the_file_system_has_no_locks() {
    // The answers of network file systems.
    for answer in [libc::ENOLCK, libc::EINVAL, libc::EBADF, libc::EOPNOTSUPP] {
        // The kernel then refuses locks to this thread only.
        let run = std::thread::spawn(move || {
            let filter = SeccompFilter::new(
                [(libc::SYS_flock, Vec::new())].into(),
                SeccompAction::Allow,
                SeccompAction::Errno(answer as u32),
                std::env::consts::ARCH.try_into().unwrap(),
            );
            let program: BpfProgram = filter.unwrap().try_into().unwrap();
            seccompiler::apply_filter(&program).unwrap();
            let folder = tempdir().unwrap();
            drop(RunFolder::create(folder.path(), &TrainConfig::default()).unwrap());
            drop(RunFolder::resume(folder.path()).unwrap());
        });
        run.join().unwrap();
    }
}

#[test]
fn a_run_goes_on_with_what_it_left() {
    let folder = tempdir().unwrap();
    let config = TrainConfig { epochs: 77, ..TrainConfig::default() };
    drop(RunFolder::create(folder.path(), &config).unwrap());
    let run = RunFolder::resume(folder.path()).unwrap();
    let longer = TrainConfig { epochs: 99, ..run.config().unwrap() };
    // Paths are left out, because they are wrong as soon as files move.
    run.write_config(&TrainConfig {
        class_names: Some("classes.txt".into()),
        out: Some("run".into()),
        ..longer.clone()
    })
    .unwrap();
    assert_eq!(run.config().unwrap(), longer);
    run.write_summary(&Summary::new(&[], &RunState::default(), &longer, StageSeconds::default())).unwrap();
    run.write_report("<html>").unwrap();
    run.checkpoints(2).unwrap();
    run.journal(0, 0).unwrap();
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join(SUMMARY)).unwrap()).unwrap();
    assert!(summary["checksum"].is_string());
    assert_eq!(summary["config"]["epochs"], 99);
}

#[test]
fn a_flipped_byte_of_the_configuration_or_the_names_of_classes_is_found() {
    let folder = tempdir().unwrap();
    let config = TrainConfig { epochs: 77, ..TrainConfig::default() };
    let run = RunFolder::create(folder.path(), &config).unwrap();
    let names = ["admin", "web", "non-free/libs"].map(str::to_owned);
    run.write_class_names(&names).unwrap();
    for (file, lines) in [(CONFIG, config.to_toml()), (CLASSES, class_names::text(&names))] {
        let path = folder.path().join(file);
        let sound = fs::read(&path).unwrap();
        for at in 0..sound.len() {
            for flip in [1, 0x20, 0x80] {
                let mut damaged = sound.clone();
                damaged[at] ^= flip;
                fs::write(&path, &damaged).unwrap();
                let read = (run.config(), class_names_of(folder.path(), 3, true));
                // Of the line itself, what is not the checksum does not matter, as long as it is a comment.
                let is_same =
                    matches!(&read, (Ok(found), Ok(found_names)) if *found == config && found_names[..] == names);
                assert!(!is_same || file == CONFIG && at > lines.len(), "{file} at {at} ^ {flip}");
                assert!(is_same || read.0.is_err() || read.1.is_err(), "{file} at {at} ^ {flip}");
            }
        }
        // A file that a user edited.
        fs::write(&path, &lines).unwrap();
        assert_eq!(run.config().unwrap(), config);
        assert_eq!(class_names_of(folder.path(), 3, true).unwrap(), names);
    }
    fs::remove_file(folder.path().join(CLASSES)).unwrap();
    assert!(class_names_of(folder.path(), 3, false).unwrap().is_empty());
    let text = class_names_of(folder.path(), 3, true).unwrap_err().to_string();
    assert!(text.contains("missing") && text.contains("--class-names"), "{text}");
}

#[test]
fn the_schema_of_a_run_is_the_one_that_its_checkpoints_name() {
    let folder = tempdir().unwrap();
    let run = RunFolder::create(folder.path(), &TrainConfig::default()).unwrap();
    let schema = |classes: [&str; 2]| Schema {
        features: vec![Column::number("age"), Column::number("income")],
        classes: classes.map(str::to_owned).to_vec(),
        ..Schema::default()
    };
    let mut state = RunState { inputs: 2, outputs: 2, ..RunState::default() };
    // A store without names.
    state.note_schema(&Schema::default());
    run.write_schema(&Schema::default()).unwrap();
    assert_eq!(schema_of(folder.path(), &state).unwrap(), Schema::default());
    assert!(!folder.path().join(SCHEMA).exists());

    let own = schema(["free", "gold"]);
    state.note_schema(&own);
    let error = || schema_of(folder.path(), &state).unwrap_err().to_string();
    assert!(error().contains("missing") && error().contains("resume the run"), "{}", error());
    run.write_schema(&own).unwrap();
    assert_eq!(schema_of(folder.path(), &state).unwrap(), own);
    run.write_schema(&schema(["gold", "free"])).unwrap();
    assert!(error().contains("belongs to another run"), "{}", error());
    run.write_schema(&own).unwrap();
    let path = folder.path().join(SCHEMA);
    let sound = fs::read(&path).unwrap();
    for at in 0..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x20;
        fs::write(&path, &damaged).unwrap();
        assert!(error().contains("restore it from a copy"), "{at}: {}", error());
    }
}

#[test]
fn runs_without_a_name_are_numbered_after_their_store() {
    let store = Path::new("somewhere/that-is-not-there.grappa");
    assert_eq!(RunFolder::unused(store), Path::new("that-is-not-there.run"));
    assert_eq!(RunFolder::last(store), None);
    assert_eq!(nth_name(&first_name(store), 3), "that-is-not-there.run.3");
}

#[test]
fn the_newest_of_the_default_folders_has_the_highest_number() {
    let folder = tempdir().unwrap();
    let numbers = || numbers_in(folder.path(), "web.run").max();
    assert_eq!(numbers(), None);
    for name in ["web.run", "web.run.3", "web.run.10"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for other in ["web.run.+99", "web.run.099", "web.run.99.old", "web.runs", "web.run.", "web2.run.99", "web.run.1"] {
        fs::create_dir(folder.path().join(other)).unwrap();
    }
    assert_eq!(numbers(), Some(10));
}
