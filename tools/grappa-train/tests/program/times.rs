//! Training on edges with times: links at their times, and tasks that do not use times.

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

/// Events of 60 people, each of whom writes to the same three others again and again.
fn letters() -> TrainFolder {
    let folder = TrainFolder::empty();
    let line = |event: u64| {
        let from = event * 31 % 60;
        format!("{from},{},{}\n", (from * 7 + event % 3 * 11 + 1) % 60, 1000 + event * 60)
    };
    folder.write("letters.csv", format!("from,to,at\n{}", (0..3000).map(line).collect::<String>()));
    folder.write("people.csv", format!("id,one\n{}", (0..60).map(|id| format!("{id},1\n")).collect::<String>()));
    let inputs = "--edges letters.csv --src from --dst to --features people.csv --id id --quiet";
    folder.success(&format!("ingest {inputs} --time at --time-unit s --chunks 4 --out letters.grappa"));
    folder
}

const OPTIONS: &str = "letters.grappa --task link --model transformer --layers 1 --fanouts 5 --hidden 16 --heads 2 --time-strategy last \
                       --decoder mlp --dropout 0 --candidates 5 --batch 128 --lr 0.01";

#[test]
fn links_are_learned_and_scored_at_their_times_next_to_edge_bank() {
    let folder = letters();
    let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 2 --threads 1 --out one"))).success();
    for told in [
        "2100 edges to learn, 450 for validation and 450 for test",
        "encoded ages of edges are used",
        "each at its time",
    ] {
        assert!(ran.stdout.contains(told), "{told}: {ran:?}");
    }
    assert!(!ran.stderr.contains("does not use them"), "{ran:?}");
    let links = &folder.summary("one")["links"];
    assert_eq!(links["edges"], 450);
    // Every letter repeats an earlier one.
    assert_eq!(links["edge_bank"]["filtered"]["mrr"], 1.0);
    assert_eq!(links["edge_bank"]["average_precision"], 1.0);
    // Other threads, and a run that is continued, have the same scores.
    run(&mut folder.program(&format!("{OPTIONS} --epochs 2 --threads 2 --out two"))).success();
    assert_eq!(folder.summary("two")["links"], *links);
    run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --threads 1 --out three"))).success();
    run(&mut folder.program("letters.grappa --resume --epochs 2 --threads 1 --out three")).success();
    assert_eq!(folder.summary("three")["links"], *links);
    folder.write("pairs.csv", "from,to\n3,4\n");
    let refused = run(&mut folder.program("predict one letters.grappa --out scores.csv --links pairs.csv"));
    assert_failed(&refused, &["the ages of edges as inputs", "--time-encoding 0"]);
}

#[test]
fn options_that_would_show_later_edges_are_refused() {
    let folder = letters();
    for (options, parts) in [
        ("--partitions 2", ["partitions is 2", "use --partitions 1"]),
        ("--model gcn", ["in-degrees of the whole graph", "use --model sage"]),
        ("--model pinsage", ["random walks do not know times", "use --model sage"]),
        ("--first-hop preaggregated --exclude-targets none", ["its sums have later edges", "use --first-hop sampled"]),
        ("--negative-sampling shared", ["cannot share negatives", "uniform or degree"]),
        ("--candidates all", ["the embeddings of all nodes at its time", "use --candidates 100"]),
        ("--rank-destinations", ["destinations are ranked", "leave out --rank-destinations"]),
        ("--time-split 1/1/98 --time-equal --among none.txt", ["none.txt", ""]),
        ("--replace --time-strategy last", ["the last edges are drawn once each", ""]),
    ] {
        let model = if options.contains("--model") { "" } else { "--model sage" };
        let refused =
            run(&mut folder.program(&format!("letters.grappa --task link {model} {options} --epochs 1 --out refused")));
        assert_failed(&refused, &parts);
    }
}
