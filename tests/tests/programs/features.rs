//! Tests of `grappa-store add-features`: its features, its errors, and kills.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::{assert_same, copy_folder},
    folder::ProgramFolder,
    graph::Graph,
    random::Random,
};

/// Number of moments at which a run is killed.
const KILLS: u64 = 6;

/// A folder with a store that has labels and splits but no features.
fn folder(graph: &Graph, more: &str) -> ProgramFolder {
    let folder = ProgramFolder::new();
    graph.write(folder.root());
    let files = "--edges edges.tsv --labels labels.npy --train train.npy --val val.npy --test test.npy";
    folder.success(&format!("ingest {files} --chunks 9 --out bare.grappa {more}"));
    folder
}

fn add(options: &str) -> String {
    format!("store add-features bare.grappa {options}")
}

#[test]
fn degrees_are_added_told_and_exported() {
    let graph = Graph::random(3, 2_000, 15_000, 1);
    let folder = folder(&graph, "");
    for line in ["preaggregate bare.grappa --kind mean", "export bare.grappa --features x.npy"] {
        folder.run(&format!("store {line}")).failure(&["no features"]);
    }
    let added = folder.success(&add("--kind degrees --memory 4MiB --json")).json();
    let expected = (&"degrees".into(), &36.into(), &2_000.into());
    assert_eq!((&added["kind"], &added["dim"], &added["nodes"]), expected);
    folder.success("store verify bare.grappa");
    let info = folder.success("store info bare.grappa").stdout;
    assert!(info.contains("--kind degrees") && info.contains("36"), "{info}");

    folder.success("store export bare.grappa --features x.npy");
    let bytes = folder.bytes("x.npy");
    let values = bytes[bytes.len() - 2_000 * 36 * 4..].as_chunks().0.iter();
    let values: Vec<f32> = values.map(|value| f32::from_le_bytes(*value)).collect();
    let mut degrees = vec![[0u32; 2]; 2_000];
    for &(source, target) in &graph.edges {
        degrees[target as usize][0] += 1;
        degrees[source as usize][1] += 1;
    }
    for (node, (row, degrees)) in values.chunks_exact(36).zip(&degrees).enumerate() {
        for (values, &degree) in row.chunks_exact(18).zip(degrees) {
            let is_near = (values[0] - (1.0 + degree as f32).ln()).abs() < 1e-5;
            assert!(is_near, "node {node}: {values:?} for {degree}");
            let bucket = values[2 + (u32::BITS - degree.leading_zeros()) as usize];
            assert_eq!((bucket, values[2..].iter().sum()), (1.0, 1.0), "node {node}");
        }
    }

    folder.run(&add("--kind fastrp")).failure(&["features already"]);
    folder.success("store preaggregate bare.grappa --kind mean");
    folder.success("store verify bare.grappa");
}

#[test]
fn conflicting_options_are_refused() {
    let folder = folder(&Graph::random(4, 300, 2_000, 1), "--undirected");
    for (options, part) in [
        ("", "--kind"),
        ("--kind node2vec", "degrees"),
        ("--kind fastrp --dim 0", "--dim"),
        ("--kind fastrp --hops 2 --hop-weights 1,1", "--hops"),
    ] {
        folder.run(&add(options)).misuse(&[part]);
    }
    for (options, parts) in [
        ("--kind degrees --dim 7", &["--dim", "--kind fastrp"][..]),
        ("--kind fastrp --hop-weights 1,0", &["--hop-weights"]),
        ("--kind fastrp --memory 1KiB", &["MiB is needed"]),
    ] {
        folder.run(&add(options)).failure(parts);
    }
    folder.run("store add-features nothing.grappa --kind degrees").failure(&["no such store"]);
    folder.success("store verify bare.grappa");
    // Even root can't create a file over a folder.
    let blocked = folder.path("bare.grappa/chunk-3/features");
    fs::create_dir(&blocked).unwrap();
    let parts = ["chunk-3/features", "the store is unchanged", "rerun the command"];
    folder.run(&add("--kind degrees")).failure(&parts);
    fs::remove_dir(&blocked).unwrap();
    folder.success("store verify bare.grappa");
    // Earlier failures do not prevent a later run.
    let added = folder.success(&add("--kind fastrp --dtype int8 --dim 20 --json")).json();
    assert_eq!((&added["dim"], &added["bytes"].as_u64().is_some()), (&20.into(), &true));
    folder.success("store verify bare.grappa");
}

#[test]
fn a_run_killed_at_random_moments_is_continued_to_the_same_store() {
    let folder = folder(&Graph::random(5, 20_000, 200_000, 1), "");
    let store = folder.path("bare.grappa");
    let bare = folder.path("before");
    copy_folder(&store, &bare);
    let line = add("--kind fastrp --dim 64 --memory 6MiB --threads 2");
    let begin = Instant::now();
    folder.success(&line);
    let mut duration = begin.elapsed();
    let expected = folder.files("bare.grappa");
    folder.remove("bare.grappa");

    let mut random = Random::new(6);
    for k in 0..KILLS {
        loop {
            copy_folder(&bare, &store);
            let part = (k as f64 + random.unit()) / KILLS as f64;
            let delay = duration.mul_f64(part).max(Duration::from_millis(1));
            let mut child = folder.command(&line).stdout(Stdio::null()).spawn().unwrap();
            thread::sleep(delay);
            child.kill().unwrap();
            let is_killed = !child.wait().unwrap().success();
            if is_killed {
                folder.success("store verify bare.grappa");
            }
            let manifest = Path::new("manifest");
            let has_features = folder.files("bare.grappa").get(manifest) == expected.get(manifest);
            let ran = folder.run(&line);
            if has_features {
                // A kill before the clean-up leaves files, which the next run removes.
                ran.failure(&["features already"]);
            } else {
                ran.success();
            }
            assert_same(&store, &expected, &format!("killed after {part:.3} of a run"));
            folder.remove("bare.grappa");
            if is_killed {
                break;
            }
            // The machine was busier when the run was timed than it is now.
            duration = delay.mul_f64(0.9);
        }
    }
}
