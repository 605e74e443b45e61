//! Tests of `grappa-store repartition`: its assignments, its errors, and kills.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_sampling::partition::{Schedule, assignment, chunk_sizes};
use grappa_storage::Store;
use grappa_tests::{
    files::{copy_folder, names_in},
    folder::ProgramFolder,
    held::{Held, kill},
    program::{run, started_by},
    random::Random,
};
use serde_json::{Value, json};

/// Number of moments at which a run is killed.
const KILLS: u64 = 16;
const CHUNKS: u64 = 24;

/// Makes an R-MAT store of 4096 nodes with edge factor 16.
fn generate(folder: &ProgramFolder, options: &str) {
    let rmat = format!("gen rmat --scale 12 --chunks {CHUNKS} --quiet --out graph.grappa");
    folder.success(&format!("{rmat} {options}"));
}

fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    generate(&folder, "");
    folder
}

fn repartition(options: &str) -> String {
    format!("store repartition graph.grappa {options}")
}

fn info(folder: &ProgramFolder, options: &str) -> Value {
    folder.success(&format!("store info graph.grappa --json {options}")).json()
}

fn open(folder: &ProgramFolder) -> Store {
    Store::open(&folder.path("graph.grappa")).unwrap()
}

fn sum<'a>(objects: impl IntoIterator<Item = &'a Value>, key: &str) -> u64 {
    objects.into_iter().map(|object| object[key].as_u64().unwrap()).sum()
}

/// The chunks of all bases, sorted.
fn bases(partitions: &[Value]) -> Vec<u64> {
    let chunks = partitions.iter().flat_map(|partition| partition["base_chunks"].as_array().unwrap());
    let mut bases: Vec<u64> = chunks.map(|chunk| chunk.as_u64().unwrap()).collect();
    bases.sort_unstable();
    bases
}

#[test]
fn partitions_are_told_alike_when_they_are_made_and_later() {
    let folder = folder();
    let whole = info(&folder, "");
    let summary = |info: &Value| ["partitions", "schedule", "generation"].map(|key| info[key].clone());
    assert_eq!(summary(&whole), [json!(1), json!("whole"), json!(0)]);

    let made = folder.success(&repartition("--partitions 5 --seed 3 --json")).json();
    assert_eq!(summary(&made), [json!(5), json!("sweep"), json!(1)]);
    assert_eq!((&made["seed"], &made["super_epoch"]), (&json!(3), &json!(0)));
    let described = info(&folder, "");
    assert_eq!(described["by_partition"], made["by_partition"]);
    assert_eq!(summary(&described), summary(&made));

    let partitions = made["by_partition"].as_array().unwrap();
    assert_eq!(bases(partitions), (0..CHUNKS).collect::<Vec<_>>(), "each is in one base");
    for (p, partition) in partitions.iter().enumerate() {
        assert_eq!(partition["partition"], p);
        let next = &partitions[(p + 1) % 5]["base_chunks"];
        assert_eq!(&partition["variable_chunks"], next, "the next one's base");
    }
    // Every chunk has two owners.
    assert_eq!(sum(partitions, "nodes"), 2 * 4096);
    let edges = sum(partitions, "visible_edges") + sum(partitions, "cut_edges");
    assert_eq!(Some(edges), whole["edges"].as_u64().map(|edges| 2 * edges));
    folder.success("store verify graph.grappa");
}

#[test]
fn coverage_is_counted_when_it_is_asked_for() {
    let folder = folder();
    folder.success(&repartition("--partitions 5 --quiet"));
    let described = info(&folder, "--coverage --memory 1MiB --threads 2");
    for partition in described["by_partition"].as_array().unwrap() {
        let coverage = &partition["coverage"];
        let tenths = coverage["tenths"].as_array().unwrap();
        let counts = ["no_in_edges", "zero", "one"].iter().map(|key| &coverage[key]);
        let counted: u64 = counts.chain(tenths).map(|nodes| nodes.as_u64().unwrap()).sum();
        assert_eq!((partition["nodes"].as_u64(), tenths.len()), (Some(counted), 10));
        let halo = partition["halo_nodes"].as_u64().unwrap();
        assert!(halo > 0 && halo <= 4096 - counted, "{partition}");
    }
    assert!(info(&folder, "")["by_partition"][0].get("coverage").is_none());

    let [plain, text] =
        ["", "--coverage"].map(|more| folder.success(&format!("store info graph.grappa {more}")).stdout);
    assert!(!plain.contains("halo nodes"));
    for part in [" 5 (sweep, generation 1)\n", "visible edges", "halo nodes"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    folder.run("store info graph.grappa --memory 1MiB").misuse(&["--coverage"]);
}

#[test]
fn super_epochs_follow_each_other_or_are_chosen() {
    let folder = folder();
    let sizes = [chunk_sizes(open(&folder).manifest())];
    for (generation, (options, schedule, super_epoch)) in (1..).zip([
        ("", Schedule::Sweep, 0),
        ("--schedule sweep", Schedule::Sweep, 1),
        ("--schedule shuffle", Schedule::Shuffle, 2),
        ("--schedule shuffle --super-epoch 77", Schedule::Shuffle, 77),
        ("--schedule fixed", Schedule::Fixed, 4),
        ("--schedule local", Schedule::Local, 5),
    ]) {
        let made = folder.success(&repartition(&format!("--partitions 4 --seed 9 --json {options}"))).json();
        let expected = (&json!(super_epoch), &json!(generation));
        assert_eq!((&made["super_epoch"], &made["generation"]), expected);
        let expected = assignment(schedule, &sizes, 4, 9, super_epoch, generation).unwrap();
        assert_eq!(open(&folder).assignment(), &expected);
    }
    let text = folder.success(&repartition("--partitions 4")).stdout;
    let expected = "generation 7, 4 partitions for super-epoch 6 of `sweep` with seed 0";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn wrong_options_and_stores_are_told_and_change_nothing() {
    let folder = folder();
    let before = folder.files("graph.grappa");
    folder.run(&repartition("--partitions 0")).failure(&["at least 1"]);
    folder.run(&repartition("--partitions 25")).failure(&["24 chunks", "at most 24", "--chunks"]);
    folder.run(&repartition("--partitions -1")).misuse(&["-1"]);
    folder.run(&repartition("")).misuse(&["--partitions"]);
    folder.run(&repartition("--partitions 4 --schedule spin")).misuse(&["sweep, shuffle, fixed"]);
    folder.run("store repartition none.grappa --partitions 4").failure(&["no such store"]);
    assert_eq!(folder.files("graph.grappa"), before);

    let slice = ProgramFolder::new();
    generate(&slice, "--only-chunks 3-5");
    slice.run(&repartition("--partitions 4")).failure(&["3 chunks", "at most 3"]);
    let made = slice.success(&repartition("--partitions 3 --json")).json();
    assert_eq!(bases(made["by_partition"].as_array().unwrap()), [3, 4, 5]);
}

#[test]
fn a_read_only_store_is_told_and_stays_as_it_was() {
    let folder = ProgramFolder::on_disk();
    generate(&folder, "");
    let assignments = folder.path("graph.grappa/assignments");
    let set = |mode| fs::set_permissions(&assignments, fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let mut command = folder.command(&repartition("--partitions 4"));
    if fs::write(assignments.join("probe.tmp"), "").is_ok() {
        fs::remove_file(assignments.join("probe.tmp")).unwrap();
        // Root may write anywhere unless it drops that privilege.
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--bounding-set=-dac_override", "--"]);
        command = started_by(setpriv, &command);
    }
    run(&mut command).failure(&["assignments/1.tmp", "denied"]);
    set(0o755);
    assert_eq!(open(&folder).generation(), 0);
}

/// The moment of a kill.
enum Moment {
    /// After this fraction of the time of a run.
    After(Duration),
    /// Before it makes a change, or so long after it may make it.
    Change(String, Duration),
}

/// Waits for a time that may be shorter than the shortest sleep.
fn spin(delay: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < delay {
        thread::yield_now();
    }
}

/// Kills a command at that moment. Returns whether that was before its end.
fn killed(mut command: Command, moment: &Moment) -> bool {
    match moment {
        Moment::After(delay) => {
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            spin(*delay);
            kill(&mut child)
        }
        Moment::Change(change, delay) => {
            let mut held = Held::before(change, &mut command);
            if !delay.is_zero() {
                held.release();
                spin(*delay);
            }
            held.kill()
        }
    }
}

/// On a disk, so that syncs take time.
#[test]
fn a_repartitioning_killed_at_random_moments_leaves_the_old_or_the_new_generation() {
    need_faults!();
    let folder = ProgramFolder::on_disk();
    generate(&folder, "");
    let others = || {
        let mut files = folder.files("graph.grappa");
        files.retain(|path, _| !path.starts_with("assignments"));
        files
    };
    let before = others();
    let sizes = [chunk_sizes(open(&folder).manifest())];
    let line = repartition("--partitions 7 --seed 2 --quiet");
    let mut durations = [Duration::ZERO; 5];
    for duration in &mut durations {
        let begin = Instant::now();
        folder.success(&line);
        *duration = begin.elapsed();
    }
    durations.sort();

    let mut random = Random::new(5);
    // How often the old and the new generation was current after a kill.
    let (mut old, mut new) = (0, 0);
    for k in 0..KILLS {
        let generation = open(&folder).generation();
        // Every other one at once, which cannot be too late.
        let a_little = Duration::from_nanos(random.below(400_000) * (k / 4 % 2));
        let moment = match k % 4 {
            0 => Moment::After(durations[2].mul_f64(random.unit())),
            1 => Moment::Change(format!("sync assignments/{}.tmp", generation + 1), a_little),
            2 => Moment::Change("create assignments/CURRENT.tmp".into(), a_little),
            _ => Moment::Change("rename assignments/CURRENT".into(), a_little),
        };
        let was_killed = killed(folder.command(&line), &moment);
        let opened = open(&folder);
        let found = opened.generation();
        let is_one = found == generation || found == generation + 1;
        assert!(is_one, "{generation} became {found}");
        assert!(was_killed || found == generation + 1, "it ended, and nothing changed");
        if was_killed {
            *if found == generation { &mut old } else { &mut new } += 1;
        }
        let expected = assignment(Schedule::Sweep, &sizes, 7, 2, found - 1, found).unwrap();
        assert_eq!(opened.assignment(), &expected);
        folder.success("store verify graph.grappa");

        folder.success(&line);
        let mut names = vec![found.to_string(), (found + 1).to_string(), "CURRENT".to_owned()];
        names.sort();
        let found = names_in(&folder.path("graph.grappa/assignments"));
        assert_eq!(found, names, "what was left is removed");
    }
    folder.success("store verify graph.grappa");
    assert_eq!(others(), before, "another file changed");
    let survived = KILLS - old - new;
    assert!(old + new >= KILLS / 4, "most runs were over before they were killed: {survived} were");
    println!("after kills {old} times the old generation counted, {new} times the new one");
}

#[test]
fn a_copy_of_a_partitioned_store_is_the_store() {
    let folder = folder();
    folder.success(&repartition("--partitions 3 --quiet"));
    copy_folder(&folder.path("graph.grappa"), &folder.path("copy.grappa"));
    folder.success("store verify copy.grappa");
    let copy = Store::open(&folder.path("copy.grappa")).unwrap();
    assert_eq!(copy.assignment(), open(&folder).assignment());
}
