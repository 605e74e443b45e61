//! Training on edges with times, which it does not use yet.

use grappa_tests::program::run;

use crate::fixture::{TrainFolder, assert_failed};

#[test]
fn times_of_edges_are_warned_about_and_refused_in_partitions() {
    let folder = TrainFolder::empty();
    let edges: String = (0..200).map(|edge| format!("{},{},{}\n", edge % 40, edge * 7 % 40, edge)).collect();
    folder.write("events.csv", format!("src,dst,at\n{edges}"));
    let nodes: String = (0..40).map(|node| format!("{node},{},{}\n", node % 3, node % 2)).collect();
    folder.write("nodes.csv", format!("id,x,class\n{nodes}"));
    folder.write("train.txt", (0..30).map(|node| format!("{node}\n")).collect::<String>());
    folder.success(
        "ingest --edges events.csv --time at --features nodes.csv --features-from x --labels nodes.csv --label class \
         --train train.txt --chunks 4 --quiet --out events.grappa",
    );
    let ran = run(&mut folder.program("events.grappa --epochs 1 --out run")).success();
    assert!(ran.stderr.contains("the edges of the graph have times, and training does not use them"), "{ran:?}");
    let refused = run(&mut folder.program("events.grappa --epochs 1 --partitions 4 --out parts"));
    assert_failed(&refused, &["edges have times", "use one partition"]);
}
