//! Tests of `grappa-store add-features`: its features, its errors, and kills.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::{assert_same, copy_folder, files_of, memory_folder},
    graph::{Graph, SPLITS},
    program::{self, command, run},
    random::Random,
};

/// Number of moments at which a run is killed.
const KILLS: u64 = 12;

/// A store with labels and splits but without features.
fn store_of(graph: &Graph, folder: &Path, more: &[&str]) -> PathBuf {
    let files = graph.write(folder);
    let store = folder.join("bare.grappa");
    let mut ingest = program::ingest(&files.edges, &store);
    ingest
        .arg("--labels")
        .arg(&files.labels)
        .args(["--chunks", "9"])
        .args(more);
    for (name, path) in SPLITS.iter().zip(&files.splits) {
        ingest.arg(format!("--{name}")).arg(path);
    }
    run(&mut ingest).success();
    store
}

fn add(store: &Path, more: &[&str]) -> Command {
    let mut add = command("grappa-store");
    add.arg("add-features").arg(store).args(more);
    add
}

fn verified(store: &Path) {
    run(command("grappa-store").arg("verify").arg(store)).success();
}

#[test]
fn degrees_are_added_told_and_exported() {
    let folder = memory_folder();
    let graph = Graph::random(3, 2_000, 15_000, 1);
    let store = store_of(&graph, folder.path(), &[]);
    for refused in [
        &["preaggregate", "--kind", "mean"][..],
        &["export", "--features", "x.npy"],
    ] {
        let (verb, more) = refused.split_first().unwrap();
        run(command("grappa-store").arg(verb).arg(&store).args(more)).failure(&["no features"]);
    }
    let added = run(&mut add(&store, &["--kind", "degrees", "--memory", "4MiB", "--json"]))
        .success()
        .json();
    assert_eq!(
        (&added["kind"], &added["dim"], &added["nodes"]),
        (&"degrees".into(), &36.into(), &2_000.into())
    );
    verified(&store);
    let info = run(command("grappa-store").arg("info").arg(&store)).success().stdout;
    assert!(info.contains("--kind degrees") && info.contains("36"), "{info}");

    let exported = folder.path().join("exported.npy");
    run(command("grappa-store")
        .arg("export")
        .arg(&store)
        .arg("--features")
        .arg(&exported))
    .success();
    let bytes = fs::read(exported).unwrap();
    let values: Vec<f32> = bytes[bytes.len() - 2_000 * 36 * 4..]
        .chunks_exact(4)
        .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
        .collect();
    let mut degrees = vec![[0u32; 2]; 2_000];
    for &(source, target) in &graph.edges {
        degrees[target as usize][0] += 1;
        degrees[source as usize][1] += 1;
    }
    for (node, (row, degrees)) in values.chunks_exact(36).zip(&degrees).enumerate() {
        for (values, &degree) in row.chunks_exact(18).zip(degrees) {
            let expected = (1.0 + degree as f32).ln();
            assert!(
                (values[0] - expected).abs() < 1e-5,
                "node {node}: {values:?} for {degree}"
            );
            assert_eq!(
                values[2 + (u32::BITS - degree.leading_zeros()) as usize],
                1.0,
                "node {node}"
            );
            assert_eq!(values[2..].iter().sum::<f32>(), 1.0, "node {node}");
        }
    }

    run(&mut add(&store, &["--kind", "fastrp"])).failure(&["features already"]);
    run(command("grappa-store")
        .arg("preaggregate")
        .arg(&store)
        .args(["--kind", "mean"]))
    .success();
    verified(&store);
}

#[test]
fn conflicting_options_are_refused() {
    let folder = memory_folder();
    let store = store_of(&Graph::random(4, 300, 2_000, 1), folder.path(), &["--undirected"]);
    run(&mut add(&store, &[])).misuse(&["--kind"]);
    run(&mut add(&store, &["--kind", "node2vec"])).misuse(&["degrees", "fastrp"]);
    run(&mut add(&store, &["--kind", "fastrp", "--dim", "0"])).misuse(&["--dim"]);
    run(&mut add(
        &store,
        &["--kind", "fastrp", "--hops", "2", "--hop-weights", "1,1"],
    ))
    .misuse(&["--hops"]);
    run(&mut add(&store, &["--kind", "degrees", "--dim", "7"])).failure(&["--dim", "--kind fastrp"]);
    run(&mut add(&store, &["--kind", "fastrp", "--hop-weights", "1,0"])).failure(&["--hop-weights"]);
    run(&mut add(&store, &["--kind", "fastrp", "--memory", "1KiB"])).failure(&["MiB is needed"]);
    run(&mut add(&folder.path().join("nothing.grappa"), &["--kind", "degrees"])).failure(&["no such store"]);
    verified(&store);
    // Even root can't create a file over a folder.
    let blocked = store.join("chunk-3/features");
    fs::create_dir(&blocked).unwrap();
    run(&mut add(&store, &["--kind", "degrees"])).failure(&[
        "chunk-3/features",
        "the store is unchanged",
        "rerun the command",
    ]);
    fs::remove_dir(&blocked).unwrap();
    verified(&store);
    // Earlier failures do not prevent a later run.
    let added = run(&mut add(
        &store,
        &["--kind", "fastrp", "--dtype", "int8", "--dim", "20", "--json"],
    ))
    .success()
    .json();
    assert_eq!((&added["dim"], &added["bytes"].as_u64().is_some()), (&20.into(), &true));
    verified(&store);
}

#[test]
fn a_run_killed_at_random_moments_is_continued_to_the_same_store() {
    let folder = memory_folder();
    let bare = store_of(&Graph::random(5, 20_000, 200_000, 1), folder.path(), &[]);
    let options = ["--kind", "fastrp", "--dim", "64", "--memory", "6MiB", "--threads", "2"];
    let whole = folder.path().join("whole.grappa");
    copy_folder(&bare, &whole);
    let begin = Instant::now();
    run(&mut add(&whole, &options)).success();
    let mut duration = begin.elapsed();
    let expected = files_of(&whole);

    let mut random = Random::new(6);
    for k in 0..KILLS {
        let store = folder.path().join(format!("{k}.grappa"));
        loop {
            copy_folder(&bare, &store);
            let part = (k as f64 + random.unit()) / KILLS as f64;
            let delay = duration.mul_f64(part).max(Duration::from_millis(1));
            let mut child = add(&store, &options).stdout(Stdio::null()).spawn().unwrap();
            thread::sleep(delay);
            child.kill().unwrap();
            let is_killed = !child.wait().unwrap().success();
            if is_killed {
                verified(&store);
            }
            let has_features = files_of(&store).get(Path::new("manifest")) == expected.get(Path::new("manifest"));
            if has_features {
                // A kill before the clean-up leaves files, which the next run removes.
                run(&mut add(&store, &options)).failure(&["features already"]);
            } else {
                run(&mut add(&store, &options)).success();
            }
            assert_same(&store, &expected, &format!("killed after {part:.3} of a run"));
            fs::remove_dir_all(&store).unwrap();
            if is_killed {
                break;
            }
            // The machine was busier when the run was timed than it is now.
            duration = delay.mul_f64(0.9);
        }
    }
}
