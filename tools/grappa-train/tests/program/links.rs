//! Link prediction: lists of the user, candidates, and errors of predictions.

use std::fs;

use grappa_tests::program::run;

use crate::fixture::{TrainFolder, assert_close, assert_failed};

const USERS: u32 = 80;
const ITEMS: u32 = 60;
/// Users buy items of their group.
const GROUPS: u32 = 4;

const OPTIONS: &str = "shop.grappa --task link --layers 1 --hidden 8 --dropout 0 --lr 0.03 --batch 64 --threads 1";

/// An item of a group.
fn item(group: u32, number: u32) -> u32 {
    number * GROUPS % ITEMS + group % GROUPS
}

/// What users buy: user and item.
fn purchases() -> Vec<(u32, u32)> {
    let of_user = |user: u32| (0..6).map(move |number| (user, item(user, (user * 7 + number * 2) % 15)));
    (0..USERS).flat_map(of_user).collect()
}

fn lines(pairs: impl IntoIterator<Item = (u32, u32)>) -> String {
    let lines = pairs.into_iter().map(|(user, item)| format!("u{user},i{item}\n"));
    format!("source,target\n{}", lines.collect::<String>())
}

/// The parts of an error's text.
fn parts(words: &str) -> Vec<&str> {
    words.split('|').collect()
}

/// A folder with the store `shop.grappa`.
fn shop() -> TrainFolder {
    let folder = TrainFolder::empty();
    folder.write("purchases.csv", lines(purchases()));
    let feature = |kind: char, number: u32| {
        let groups = (0..GROUPS).map(|group| if number % GROUPS == group { ",1" } else { ",0" });
        format!("{kind}{number}{}\n", groups.collect::<String>())
    };
    let users = (0..USERS).map(|user| feature('u', user));
    let features = users.chain((0..ITEMS).map(|item| feature('i', item)));
    folder.write("features.csv", format!("id,a,b,c,d\n{}", features.collect::<String>()));
    let inputs = "--edges purchases.csv --features features.csv";
    folder.success(&format!(
        "ingest {inputs} --ids string --undirected --dedup --edge-split 80/10/10 --chunks 8 --out shop.grappa"
    ));
    folder
}

/// Items of the next group for each user.
fn others(count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..USERS).flat_map(move |user| (0..count).map(move |number| (user, item(user + 1, number))))
}

#[test]
fn negatives_and_candidates_of_files_are_used_and_told() {
    let folder = shop();
    folder.write("hard.csv", lines(others(3)));
    // Purchases are only raw candidates.
    folder.write("candidates.csv", lines(others(5).chain(purchases())));
    let lists = "--negatives-from hard.csv --negatives 3 --candidates candidates.csv";
    let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 12 {lists} --out listed"))).success();
    for part in
        ["each ranked among up to 11 listed candidates, filtered and raw", "negatives are from 480 pairs of hard.csv"]
    {
        assert!(ran.stdout.contains(part), "{part} in {}", ran.stdout);
    }
    let links = &folder.summary("listed")["links"];
    assert_eq!(links["candidates"]["kind"], "listed", "{links}");
    let mrr = |kind: &str| links[kind]["mrr"].as_f64().unwrap();
    // Groups are easy to tell, and purchases of the same user are not.
    assert!(mrr("filtered") > 0.95 && mrr("raw") < 0.6, "{links}");

    let ranked = |candidates: &str| {
        let options = format!("{OPTIONS} --epochs 2 --candidates {candidates} --out ranked --force");
        let ran = run(&mut folder.program(&options)).success();
        (ran.stdout, folder.summary("ranked")["links"].clone())
    };
    let (told, links) = ranked("7");
    assert!(told.contains("among 7 uniform candidates"), "{told}");
    assert_eq!(links["candidates"]["count"], 7, "{links}");
    let (told, links) = ranked("all");
    assert!(told.contains("among all nodes"), "{told}");
    assert!(links["candidates"]["count"].is_null() && links["raw"]["mrr"].is_f64(), "{links}");
}

#[test]
fn rankings_of_sources_are_in_all_results_and_decide_the_best_epoch() {
    let folder = shop();
    folder.write("items.txt", (0..ITEMS).map(|item| format!("i{item}\n")).collect::<String>());
    for (monitor, name) in [("recall", "Recall"), ("map", "MAP"), ("ndcg", "NDCG")] {
        let options = format!("{OPTIONS} --epochs 4 --among items.txt --monitor {monitor}@20 --out ranked --force");
        let ran = run(&mut folder.program(&options)).success();
        let lines: Vec<&str> = ran.stdout.lines().collect();
        let told = "compares the sources of these edges with all 60 destinations, without known edges, for Recall@K";
        assert!(ran.stdout.contains(told), "{}", ran.stdout);
        let epoch = lines.iter().find(|line| line.starts_with("epoch 1/4")).unwrap();
        assert!(epoch.contains(&format!("  val {name}@20 ")), "{epoch}");
        let last = lines.last().unwrap();
        assert!(
            last.contains(&format!("test {name}@20 ")) && last.contains(&format!("validation {name}@20 ")),
            "{last}"
        );
        let (metrics, summary) = (folder.metrics("ranked"), folder.summary("ranked"));
        let [val, test] = ["val", "test"].map(|split| format!("{split}_{monitor}_at_20"));
        let best = metrics.iter().map(|record| record[&val].as_f64().unwrap()).fold(0.0, f64::max);
        assert_eq!(summary[&val].as_f64(), Some(best), "the best epoch");
        let sources = &summary["links"]["by_source"];
        assert_eq!(sources[format!("{monitor}_at_20")], summary[&test], "{sources}");
        assert!(sources["sources"].as_u64().unwrap() > 20 && sources["recall_at_100"].as_f64() == Some(1.0));
        let html = folder.read("ranked/report.html");
        assert!(html.contains(&format!("<span>test {name}@20</span>")), "{html}");
        assert!(html.contains(&format!("<h3>{name}@20</h3>")) && html.contains("test edges. MRR "), "{html}");
        assert!(html.contains("<dt>training edges</dt>") && !html.contains("training nodes</dt>"), "{html}");
    }
    // Another number may decide.
    let summary = |options: &str| {
        let options = format!("{OPTIONS} --epochs 1 --among items.txt {options} --out other --force");
        run(&mut folder.program(&options)).success();
        folder.summary("other")
    };
    let asked = summary("--rank-destinations");
    assert!(asked["val_ndcg_at_20"].is_f64() && asked["links"]["by_source"]["map_at_10"].is_f64(), "{asked}");
    let usual = summary("");
    assert!(usual["val_ndcg_at_20"].is_null() && usual["links"]["by_source"].is_null(), "it costs time: {usual}");
    assert_eq!(usual["val_mrr"], asked["val_mrr"]);
}

#[test]
fn lists_that_do_not_fit_the_graph_are_refused() {
    let folder = shop();
    let user = |user: u32| others(3).filter(move |pair| pair.0 == user);
    let in_graph = purchases()[2];
    for (file, text) in [
        ("unknown.csv", lines(user(0).chain([(0, 999)]))),
        ("empty.csv", lines([])),
        ("itself.csv", "source,target\nu0,i1\nu3,u3\n".to_owned()),
        ("edge.csv", lines(user(0).chain(purchases()))),
        ("one.csv", lines(user(0))),
        ("known.csv", lines(purchases())),
        ("hard.csv", lines(others(3))),
    ] {
        folder.write(file, &text);
    }
    assert_eq!(in_graph.0, 0);
    for (options, words) in grappa_skip::cases![
        "--negatives-from none.csv", "none.csv|No such file";
        "--negatives-from unknown.csv", "unknown.csv|row 3|no node|i999";
        "--negatives-from empty.csv", "empty.csv|no edges in this file";
        "--negatives-from itself.csv", "itself.csv|row 1|u3 with itself";
        "--negatives-from edge.csv", "edge.csv|the graph has an edge from|remove the pair";
        "--negatives-from hard.csv --negative-sampling degree", "negatives-from is hard.csv|degree";
        "--candidates none.csv", "none.csv|No such file";
        "--candidates unknown.csv", "unknown.csv|row 3|i999";
        "--candidates one.csv", "one.csv|no candidates for|--candidates 100";
        "--candidates known.csv", "no node without an edge from";
        "--candidates 0", "candidates: give 1 to";
    ] {
        let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --quiet {options} --out refused --force")));
        if options.ends_with(" 0") {
            ran.misuse(&parts(words));
        } else {
            ran.failure(&parts(words));
        }
    }
    let train = |more: &str| run(&mut folder.program(&format!("{OPTIONS} --quiet --out run {more}")));
    train("--epochs 1 --negatives-from hard.csv").success();
    folder.write("hard.csv", lines(others(4)));
    train("--epochs 2 --resume").failure(&["--negatives-from", "other lines than at the start of the run"]);
    folder.write("hard.csv", lines(others(3)));
    train("--epochs 2 --resume").success();
    fs::remove_file(folder.path("hard.csv")).unwrap();
    train("--epochs 3 --resume").failure(&["hard.csv", "No such file"]);
}

#[test]
fn scores_are_the_same_for_any_number_of_ranks_and_after_a_stop() {
    let folder = shop();
    folder.write("candidates.csv", lines(others(5).chain(purchases())));
    for candidates in ["20", "all", "candidates.csv"] {
        // Parameters stay what they are, so that all runs score the same model.
        let still = OPTIONS.replace("--lr 0.03", "--lr 1e-30");
        let options = format!("{still} --epochs 1 --candidates {candidates} --quiet --force");
        let scores = |ranks: u32, memory: &str| {
            let out = format!("ranks-{ranks}");
            let placed = format!("--partitions 4 --memory {memory} --workers {ranks} --out {out}");
            run(&mut folder.program(&format!("{options} {placed}"))).success();
            folder.summary(&out)["links"].clone()
        };
        let alone = scores(1, "1GiB");
        assert!(alone["filtered"]["mrr"].is_f64(), "{alone}");
        for ranks in [2, 3] {
            assert_eq!(scores(ranks, "1GiB"), alone, "{candidates}, {ranks} ranks");
        }
        assert_eq!(scores(1, "64MiB"), alone, "{candidates}, less memory");
    }
    let options = format!("{OPTIONS} --partitions 4 --quiet");
    let train = |rest: &str| run(&mut folder.program(&format!("{options} {rest}"))).success();
    train("--epochs 4 --out whole");
    train("--epochs 2 --out parts");
    train("--epochs 4 --out parts --resume --workers 2");
    train("--epochs 4 --out two --workers 2");
    for out in ["parts", "two"] {
        let (whole, other) = (folder.metrics("whole"), folder.metrics(out));
        assert_eq!((whole.len(), other.len()), (4, 4), "{out}");
        for (one, other) in whole.iter().zip(&other) {
            for key in ["loss", "val_roc_auc", "val_mrr"] {
                assert_close(&one[key], &other[key], &format!("{key} of {out}"));
            }
        }
    }
}

#[test]
fn a_slice_neither_trains_links_nor_ranks_all_nodes() {
    let folder = shop();
    run(&mut folder.program(&format!("{OPTIONS} --epochs 2 --quiet --out run"))).success();
    folder.success("store place shop.grappa --chunks 0-3 --halo-features --to half");
    let train = OPTIONS.replace("shop.grappa", "half");
    run(&mut folder.program(&format!("{train} --epochs 1 --out refused")))
        .failure(&["slice of its graph", "whole store"]);
    folder.write("users.txt", "u1\n");
    let top = "predict run half --top-k 3 --for users.txt --out top.csv";
    // Warnings about the slice come first.
    assert_failed(&run(&mut folder.program(top)), &["slice of its graph, so", "--links"]);
    folder.write("pairs.csv", lines(others(2)));
    let pairs = "predict run half --links pairs.csv --out scores.csv";
    let expected = "slice of its graph and has only the chunks 0-3";
    assert_failed(&run(&mut folder.program(pairs)), &[expected]);
    // The destinations of a slice's edges are its own nodes.
    folder.success("store export half --edges edges.csv");
    let edges = folder.read("edges.csv");
    let own: Vec<&str> = edges.lines().skip(1).filter_map(|edge| edge.split(',').nth(1)).collect();
    folder.write("pairs.csv", own[..2].join(","));
    run(&mut folder.program(pairs)).success();
    assert_eq!(folder.read("scores.csv").lines().count(), 2);
}

#[test]
fn predictions_of_links_that_are_impossible_say_why() {
    let folder = shop();
    run(&mut folder.program(&format!("{OPTIONS} --epochs 2 --quiet --out run"))).success();
    folder.generate("graph.grappa", "sbm --nodes 200 --feature-dim 8 --chunks 4");
    folder.trained("--epochs 1 --layers 1 --quiet --out nodes");
    for (file, text) in [
        ("pairs.csv", "source,target\nu1,i2\nu2,i3\n"),
        ("unknown.csv", "source,target\nu1,i2\nu2,i999\n"),
        ("users.txt", "u1\nu2\n"),
        ("strangers.txt", "u1\nstranger\n"),
        ("numbers.csv", "1,2\n"),
        ("there.csv", ""),
    ] {
        folder.write(file, text);
    }
    for (options, words) in grappa_skip::cases![
        "run shop.grappa --links none.csv --out new.csv", "none.csv|No such file";
        "run shop.grappa --links unknown.csv --out new.csv", "unknown.csv|row 1|no node|i999";
        "run shop.grappa --links pairs.csv --out there.csv", "there.csv|exists|--force";
        "run shop.grappa --links pairs.csv --out new.npy", "new.npy|.parquet or .csv";
        "nodes graph.grappa --links numbers.csv --out new.csv", "predicts nodes, not links|--task link";
        "run shop.grappa --top-k 3 --for none.txt --out new.csv", "none.txt|No such file";
        "run shop.grappa --top-k 3 --for strangers.txt --out new.csv", "strangers.txt:2|no node|stranger";
        "run shop.grappa --top-k 3 --for users.txt --out there.csv", "there.csv|exists|--force";
        "run shop.grappa --out new.csv", "predicts links|--embeddings";
        "run shop.grappa --nodes u1", "predicts links|--top-k";
        "run graph.grappa --links numbers.csv --out new.csv", "8 features per node|trained with 4";
    ] {
        assert_failed(&run(&mut folder.program(&format!("predict {options}"))), &parts(words));
        assert!(!folder.path("new.csv").exists() && folder.read("there.csv").is_empty(), "{options}");
    }
    for (options, words) in grappa_skip::cases![
        "--top-k 0 --for users.txt --out new.csv", "--top-k|0";
        "--top-k 3 --out new.csv", "--for";
        "--links pairs.csv", "--out";
        "--links pairs.csv --exclude-known --out new.csv", "--top-k";
        "--links pairs.csv --top-k 3 --for users.txt --out new.csv", "--links|--top-k";
    ] {
        run(&mut folder.program(&format!("predict run shop.grappa {options}"))).misuse(&parts(words));
    }

    // More destinations than there are: all others.
    let top = "predict run shop.grappa --top-k 1000 --for users.txt --out top.csv --force";
    let ran = run(&mut folder.program(top)).success();
    assert!(ran.stderr.contains("2 node(s) of --for have fewer destinations"), "{}", ran.stderr);
    let others = (USERS + ITEMS - 1) as usize;
    assert_eq!(folder.read("top.csv").lines().count(), 2 * others + 1);
    run(&mut folder.program(&format!("{top} --exclude-known"))).success();
    let lines = folder.read("top.csv");
    let bought = purchases().into_iter().filter(|&(user, _)| user == 1 || user == 2);
    assert_eq!(lines.lines().count(), 2 * others - bought.clone().count() + 1);
    for (user, item) in bought {
        assert!(!lines.contains(&format!("u{user},i{item},")), "u{user},i{item}");
    }
}

#[test]
fn tasks_that_a_store_or_a_run_does_not_serve_are_refused() {
    let folder = shop();
    run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --quiet --out links"))).success();
    folder.generate("graph.grappa", "sbm --nodes 200 --feature-dim 4 --chunks 4");
    folder.trained("--epochs 1 --layers 1 --quiet --out nodes");
    for (line, words) in grappa_skip::cases![
        "graph.grappa --task link --out new", "no edges are held out|--edge-split 80/10/10";
        "graph.grappa --candidates all --out new", "candidates all is for links|--task link";
        "graph.grappa --rank-destinations --out new", "rank-destinations is for links|--task link";
        "graph.grappa --monitor recall@20 --out new", "monitor recall@20 is for links|--task link";
        "graph.grappa --negatives-from hard.csv --out new", "negatives-from hard.csv is for links|--task link";
        "graph.grappa --out nodes --resume --task link", "has task \"auto\"";
        "shop.grappa --out links --resume --task classes", "has task \"link\"";
        "shop.grappa --out links --resume --candidates all", "has candidates \"auto\"";
        "shop.grappa --task classes --out new", "shop.grappa|labels";
    ] {
        run(&mut folder.program(&format!("{line} --layers 1 --quiet --epochs 2"))).failure(&parts(words));
        assert!(!folder.path("new").exists(), "{line}");
    }
}

#[test]
fn a_source_with_edges_to_all_nodes_is_learned_and_has_no_filtered_rank() {
    let folder = TrainFolder::empty();
    let nodes = 60;
    let hub = (1..nodes).map(|node| format!("0\t{node}\n"));
    let others = (1..nodes - 1).map(|node| format!("{node}\t{}\n", node + 1));
    folder.write("edges.tsv", hub.chain(others).collect::<String>());
    let features = (0..nodes).map(|node| format!("{},1\n", f64::from(node % 7)));
    folder.write("features.csv", features.collect::<String>());
    folder.success("ingest --edges edges.tsv --features features.csv --edge-split 60/20/20 --out hub.grappa");
    let train = "hub.grappa --task link --layers 1 --epochs 1 --threads 1 --quiet --out run --force";
    for more in ["", "--negative-sampling shared --negatives 20", "--negatives 3 --loss softmax", "--loss bpr"] {
        for candidates in ["50", "all"] {
            run(&mut folder.program(&format!("{train} --candidates {candidates} {more}"))).success();
            let links = &folder.summary("run")["links"];
            let [edges, unranked] = ["edges", "unranked"].map(|name| links[name].as_u64().unwrap());
            assert!(unranked > 0 && unranked < edges, "{more} {candidates}: {links}");
            assert!(links["filtered"]["mrr"].is_f64() && links["raw"]["mrr"].is_f64(), "{links}");
        }
    }
    run(&mut folder.program(&format!("{train} --candidates 61"))).failure(&["candidates is 61", "--candidates all"]);
}

#[test]
fn the_recommender_of_the_docs_recommends_items() {
    let folder = shop();
    let items: String = (0..ITEMS).map(|item| format!("i{item}\n")).collect();
    folder.write("items.txt", &items);
    folder.write("users.txt", "u1\nu2\nu3\n");
    for sampling in ["uniform", "degree", "shared", "in-batch", "pairs"] {
        let line =
            format!("{OPTIONS} --epochs 2 --negative-sampling {sampling} --among items.txt --quiet --out run --force");
        run(&mut folder.program(&line)).success();
        assert_eq!(folder.summary("run")["links"]["candidates"]["among"], u64::from(ITEMS), "{sampling}");
    }
    for (memory, known) in [("1GiB", ""), ("64MiB", "--exclude-known")] {
        let top =
            format!("predict run shop.grappa --top-k 5 --for users.txt --among items.txt --memory {memory} {known}");
        run(&mut folder.program(&format!("{top} --out best.csv --force"))).success();
        let best = folder.read("best.csv");
        let rows: Vec<Vec<&str>> = best.lines().skip(1).map(|row| row.split(',').collect()).collect();
        assert_eq!(rows.len(), 15, "{best}");
        assert!(rows.iter().all(|row| row[0].starts_with('u') && row[1].starts_with('i')), "{best}");
    }
    folder.write("items.txt", "i1\n");
    let resumed =
        format!("{OPTIONS} --epochs 3 --negative-sampling pairs --among items.txt --quiet --out run --resume");
    run(&mut folder.program(&resumed)).failure(&["--among", "other lines than at the start of the run"]);
    folder.write("none.txt", "");
    run(&mut folder.program(&format!("{OPTIONS} --among none.txt --quiet --out refused"))).failure(&["none.txt"]);
}

#[test]
fn a_run_of_links_on_a_store_with_named_classes_predicts_and_exports() {
    let folder = shop();
    let labels: String =
        (0..USERS).map(|user| format!("u{user},{}\n", if user % 2 == 0 { "even" } else { "odd" })).collect();
    folder.write("labels.csv", format!("id,class\n{labels}"));
    let inputs = "--edges purchases.csv --features features.csv --labels labels.csv --label class";
    folder.success(&format!(
        "ingest {inputs} --ids string --undirected --dedup --edge-split 80/10/10 --chunks 8 --out named.grappa"
    ));
    let train = OPTIONS.replace("shop.grappa", "named.grappa");
    run(&mut folder.program(&format!("{train} --epochs 1 --quiet --out named"))).success();
    folder.write("users.txt", "u1\n");
    run(&mut folder.program("predict named named.grappa --top-k 3 --for users.txt --out best.csv")).success();
    run(&mut folder.program("export named --out model.safetensors")).success();
    run(&mut folder.program(&format!("{train} --epochs 2 --quiet --out named --resume"))).success();
}
