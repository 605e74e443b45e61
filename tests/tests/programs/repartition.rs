//! Tests of `grappa-store repartition`: its assignments, its errors, and kills.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_sampling::partition::{Schedule, assignment, chunk_sizes};
use grappa_storage::Store;
use grappa_tests::{
    files::{copy_folder, files_of, memory_folder, names_in},
    held::{self, Held, kill},
    program::{command, run},
    random::Random,
};
use serde_json::{Value, json};

/// Number of moments at which a run is killed.
const KILLS: u64 = 50;
const CHUNKS: u32 = 24;

/// An R-MAT store of 4096 nodes with edge factor 16.
fn store_in(folder: &Path, more: &[&str]) -> PathBuf {
    let store = folder.join("graph.grappa");
    let chunks = CHUNKS.to_string();
    run(command("grappa-gen")
        .args(["rmat", "--scale", "12", "--chunks", &chunks, "--quiet", "--out"])
        .arg(&store)
        .args(more))
    .success();
    store
}

fn repartition(store: &Path, more: &[&str]) -> Command {
    let mut command = command("grappa-store");
    command.arg("repartition").arg(store).args(more);
    command
}

fn info(store: &Path, more: &[&str]) -> Value {
    run(command("grappa-store").arg("info").arg(store).arg("--json").args(more))
        .success()
        .json()
}

fn verify(store: &Path) {
    run(command("grappa-store").arg("verify").arg(store)).success();
}

fn sum<'a>(objects: impl IntoIterator<Item = &'a Value>, key: &str) -> u64 {
    objects.into_iter().map(|object| object[key].as_u64().unwrap()).sum()
}

#[test]
fn partitions_are_told_alike_when_they_are_made_and_later() {
    let folder = memory_folder();
    let store = store_in(folder.path(), &[]);
    let whole = info(&store, &[]);
    assert_eq!(
        (&whole["partitions"], &whole["schedule"], &whole["generation"]),
        (&json!(1), &json!("whole"), &json!(0))
    );

    let made = run(&mut repartition(
        &store,
        &["--partitions", "5", "--seed", "3", "--json"],
    ))
    .success()
    .json();
    for (key, value) in [
        ("generation", json!(1)),
        ("schedule", json!("sweep")),
        ("partitions", json!(5)),
        ("seed", json!(3)),
        ("super_epoch", json!(0)),
    ] {
        assert_eq!(made[key], value, "{key}");
    }
    let described = info(&store, &[]);
    assert_eq!(described["by_partition"], made["by_partition"]);
    assert_eq!(
        (
            &described["partitions"],
            &described["schedule"],
            &described["generation"]
        ),
        (&json!(5), &json!("sweep"), &json!(1))
    );

    let partitions = made["by_partition"].as_array().unwrap();
    let mut bases: Vec<u64> = partitions
        .iter()
        .flat_map(|partition| partition["base_chunks"].as_array().unwrap())
        .map(|chunk| chunk.as_u64().unwrap())
        .collect();
    bases.sort_unstable();
    assert_eq!(bases, (0..u64::from(CHUNKS)).collect::<Vec<_>>(), "each is in one base");
    for (p, partition) in partitions.iter().enumerate() {
        assert_eq!(partition["partition"], p);
        assert_eq!(
            partition["variable_chunks"],
            partitions[(p + 1) % 5]["base_chunks"],
            "the next one's base"
        );
    }
    // Every chunk has two owners.
    assert_eq!(sum(partitions, "nodes"), 2 * 4096);
    let edges = whole["edges"].as_u64().unwrap();
    assert_eq!(
        sum(partitions, "visible_edges") + sum(partitions, "cut_edges"),
        2 * edges
    );
    verify(&store);
}

#[test]
fn coverage_is_counted_when_it_is_asked_for() {
    let folder = memory_folder();
    let store = store_in(folder.path(), &[]);
    run(&mut repartition(&store, &["--partitions", "5", "--quiet"])).success();
    let described = info(&store, &["--coverage", "--memory", "1MiB", "--threads", "2"]);
    for partition in described["by_partition"].as_array().unwrap() {
        let coverage = &partition["coverage"];
        let tenths = coverage["tenths"].as_array().unwrap();
        let counted: u64 = ["no_in_edges", "zero", "one"]
            .iter()
            .map(|key| &coverage[key])
            .chain(tenths)
            .map(|nodes| nodes.as_u64().unwrap())
            .sum();
        assert_eq!((partition["nodes"].as_u64(), tenths.len()), (Some(counted), 10));
        let halo = partition["halo_nodes"].as_u64().unwrap();
        assert!(halo > 0 && halo <= 4096 - counted, "{partition}");
    }
    let by_default = info(&store, &[]);
    assert!(by_default["by_partition"][0].get("coverage").is_none());

    let text = |more: &[&str]| {
        run(command("grappa-store").arg("info").arg(&store).args(more))
            .success()
            .stdout
    };
    assert!(!text(&[]).contains("halo nodes"));
    let text = text(&["--coverage"]);
    for part in [" 5 (sweep, generation 1)\n", "visible edges", "halo nodes"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    run(command("grappa-store")
        .arg("info")
        .arg(&store)
        .args(["--memory", "1MiB"]))
    .misuse(&["--coverage"]);
}

#[test]
fn super_epochs_follow_each_other_or_are_chosen() {
    let folder = memory_folder();
    let store = store_in(folder.path(), &[]);
    let sizes = chunk_sizes(Store::open(&store).unwrap().manifest());
    let expect = |more: &[&str], schedule, super_epoch, generation| {
        let options = [&["--partitions", "4", "--seed", "9", "--json"], more].concat();
        let made = run(&mut repartition(&store, &options)).success().json();
        assert_eq!(
            (&made["super_epoch"], &made["generation"]),
            (&json!(super_epoch), &json!(generation))
        );
        let expected = assignment(schedule, &sizes, 4, 9, super_epoch, generation).unwrap();
        assert_eq!(Store::open(&store).unwrap().assignment(), &expected);
    };
    expect(&[], Schedule::Sweep, 0, 1);
    expect(&["--schedule", "sweep"], Schedule::Sweep, 1, 2);
    expect(&["--schedule", "shuffle"], Schedule::Shuffle, 2, 3);
    expect(
        &["--schedule", "shuffle", "--super-epoch", "77"],
        Schedule::Shuffle,
        77,
        4,
    );
    expect(&["--schedule", "fixed"], Schedule::Fixed, 4, 5);
    let text = run(&mut repartition(&store, &["--partitions", "4"])).success().stdout;
    assert!(
        text.contains("generation 6, 4 partitions for super-epoch 5 of `sweep` with seed 0"),
        "{text}"
    );
}

#[test]
fn wrong_options_and_stores_are_told_and_change_nothing() {
    let folder = memory_folder();
    let store = store_in(folder.path(), &[]);
    let before = files_of(&store);
    run(&mut repartition(&store, &["--partitions", "0"])).failure(&["at least 1"]);
    run(&mut repartition(&store, &["--partitions", "25"])).failure(&["24 chunks", "at most 24", "--chunks"]);
    run(&mut repartition(&store, &["--partitions", "-1"])).misuse(&["-1"]);
    run(&mut repartition(&store, &[])).misuse(&["--partitions"]);
    run(&mut repartition(&store, &["--partitions", "4", "--schedule", "spin"])).misuse(&["sweep, shuffle, fixed"]);
    run(&mut repartition(
        &folder.path().join("none.grappa"),
        &["--partitions", "4"],
    ))
    .failure(&["no such store"]);
    assert_eq!(files_of(&store), before);

    let slice = memory_folder();
    let store = store_in(slice.path(), &["--only-chunks", "3-5"]);
    run(&mut repartition(&store, &["--partitions", "4"])).failure(&["3 chunks", "at most 3"]);
    let made = run(&mut repartition(&store, &["--partitions", "3", "--json"]))
        .success()
        .json();
    let partitions = made["by_partition"].as_array().unwrap();
    let mut bases: Vec<_> = partitions
        .iter()
        .flat_map(|of| of["base_chunks"].as_array().unwrap())
        .collect();
    bases.sort_by_key(|chunk| chunk.as_u64());
    assert_eq!(bases, [&json!(3), &json!(4), &json!(5)]);
}

#[test]
fn a_read_only_store_is_told_and_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path(), &[]);
    let assignments = store.join("assignments");
    let set = |mode| fs::set_permissions(&assignments, fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let mut command = repartition(&store, &["--partitions", "4"]);
    if fs::write(assignments.join("probe.tmp"), "").is_ok() {
        fs::remove_file(assignments.join("probe.tmp")).unwrap();
        // Root may write anywhere unless it drops that privilege.
        let whole = command;
        command = Command::new("setpriv");
        command
            .args(["--bounding-set=-dac_override", "--"])
            .arg(whole.get_program())
            .args(whole.get_args());
    }
    run(&mut command).failure(&["assignments/1.tmp", "denied"]);
    set(0o755);
    assert_eq!(Store::open(&store).unwrap().generation(), 0);
}

/// The moment of a kill.
enum Moment {
    /// After this fraction of the time of a run.
    After(Duration),
    /// Before it makes a change, or so long after it may make it.
    Change(String, Duration),
}

/// Kills a run at that moment. Returns whether that was before its end.
fn killed(store: &Path, options: &[&str], moment: &Moment) -> bool {
    let wait = |delay: Duration| {
        // Shorter than the shortest sleep.
        let begin = Instant::now();
        while begin.elapsed() < delay {
            thread::yield_now();
        }
    };
    let mut command = repartition(store, options);
    match moment {
        Moment::After(delay) => {
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            wait(*delay);
            kill(&mut child)
        }
        Moment::Change(change, delay) => {
            let mut held = Held::before(change, &mut command);
            if !delay.is_zero() {
                held.release();
                wait(*delay);
            }
            held.kill()
        }
    }
}

/// On a disk, so that syncs take time.
#[test]
fn a_repartitioning_killed_at_random_moments_leaves_the_old_or_the_new_generation() {
    if !held::IS_POSSIBLE {
        grappa_skip::skip!("{}", held::WHY_NOT);
    }
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path(), &[]);
    let others = |store: &Path| {
        let mut files = files_of(store);
        files.retain(|path, _| !path.starts_with("assignments"));
        files
    };
    let before = others(&store);
    let sizes = chunk_sizes(Store::open(&store).unwrap().manifest());
    let options = ["--partitions", "7", "--seed", "2", "--quiet"];
    let mut durations: Vec<Duration> = (0..5)
        .map(|_| {
            let begin = Instant::now();
            run(&mut repartition(&store, &options)).success();
            begin.elapsed()
        })
        .collect();
    durations.sort();

    let mut random = Random::new(5);
    // Number of kills, and how often the old and the new generation was current afterwards.
    let (mut old, mut new) = (0, 0);
    for k in 0..KILLS {
        let generation = Store::open(&store).unwrap().generation();
        let assignments = store.join("assignments");
        // Every other one at once, which cannot be too late.
        let a_little = Duration::from_nanos(random.below(400_000) * (k / 4 % 2));
        let moment = match k % 4 {
            0 => Moment::After(durations[2].mul_f64(random.unit())),
            1 => Moment::Change(format!("sync assignments/{}.tmp", generation + 1), a_little),
            2 => Moment::Change("create assignments/CURRENT.tmp".into(), a_little),
            _ => Moment::Change("rename assignments/CURRENT".into(), a_little),
        };
        let was_killed = killed(&store, &options, &moment);
        let opened = Store::open(&store).unwrap();
        let counts = opened.generation();
        assert!(
            counts == generation || counts == generation + 1,
            "{generation} became {counts}"
        );
        assert!(was_killed || counts == generation + 1, "it ended, and nothing changed");
        if was_killed {
            *if counts == generation { &mut old } else { &mut new } += 1;
        }
        let expected = assignment(Schedule::Sweep, &sizes, 7, 2, counts - 1, counts).unwrap();
        assert_eq!(opened.assignment(), &expected);
        verify(&store);

        run(&mut repartition(&store, &options)).success();
        let names = [counts, counts + 1].map(|generation| generation.to_string());
        let mut names = names.to_vec();
        names.push("CURRENT".into());
        names.sort();
        assert_eq!(names_in(&assignments), names, "what was left is removed");
        verify(&store);
    }
    assert_eq!(others(&store), before, "another file changed");
    assert!(
        old + new >= KILLS / 4,
        "most runs were over before they were killed: {} were",
        KILLS - old - new
    );
    println!(
        "killed {} times; {old} times the old generation counted after it, {new} times the new one",
        old + new
    );
}

#[test]
fn a_copy_of_a_partitioned_store_is_the_store() {
    let folder = memory_folder();
    let store = store_in(folder.path(), &[]);
    run(&mut repartition(&store, &["--partitions", "3", "--quiet"])).success();
    let copy = folder.path().join("copy.grappa");
    copy_folder(&store, &copy);
    verify(&copy);
    assert_eq!(
        Store::open(&copy).unwrap().assignment(),
        Store::open(&store).unwrap().assignment()
    );
}
