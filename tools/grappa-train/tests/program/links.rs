//! Link prediction: lists of the user, candidates, and errors of predictions.

use std::fs;

use grappa_tests::program::run;

use crate::fixture::TrainFolder;

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
    format!("user,item\n{}", lines.collect::<String>())
}

/// A folder with the store `shop.grappa`.
fn shop() -> TrainFolder {
    let folder = TrainFolder::empty();
    folder.write("purchases.csv", &lines(purchases()));
    let feature = |kind: char, number: u32| {
        let groups = (0..GROUPS).map(|group| if number % GROUPS == group { ",1" } else { ",0" });
        format!("{kind}{number}{}\n", groups.collect::<String>())
    };
    let users = (0..USERS).map(|user| feature('u', user));
    let features = users.chain((0..ITEMS).map(|item| feature('i', item)));
    folder.write("features.csv", &format!("id,a,b,c,d\n{}", features.collect::<String>()));
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
    folder.write("hard.csv", &lines(others(3)));
    // Purchases are only raw candidates.
    folder.write("candidates.csv", &lines(others(5).chain(purchases())));
    let lists = "--negatives-from hard.csv --negatives 3 --candidates candidates.csv";
    let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 12 {lists} --out listed"))).success();
    for part in [
        "each ranked among up to 11 listed candidates, filtered and raw",
        "negatives are from 480 pairs of hard.csv",
    ] {
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
    assert!(
        links["candidates"]["count"].is_null() && links["raw"]["mrr"].is_f64(),
        "{links}"
    );
}

#[test]
fn lists_that_do_not_fit_the_graph_are_refused() {
    let folder = shop();
    let user = |user: u32| others(3).filter(move |pair| pair.0 == user);
    let in_graph = purchases()[2];
    for (file, text) in [
        ("unknown.csv", lines(user(0).chain([(0, 999)]))),
        ("empty.csv", lines([])),
        ("itself.csv", "user,item\nu0,i1\nu3,u3\n".to_owned()),
        ("edge.csv", lines(user(0).chain(purchases()))),
        ("one.csv", lines(user(0))),
        ("known.csv", lines(purchases())),
        ("hard.csv", lines(others(3))),
    ] {
        folder.write(file, &text);
    }
    assert_eq!(in_graph.0, 0);
    for (options, parts) in grappa_skip::cases![
        "--negatives-from none.csv", ["none.csv", "No such file"];
        "--negatives-from unknown.csv", ["unknown.csv", "row 3", "no node", "i999"];
        "--negatives-from empty.csv", ["empty.csv", "no pairs"];
        "--negatives-from itself.csv", ["itself.csv", "row 1", "u3 with itself"];
        "--negatives-from edge.csv", ["edge.csv", "the graph has an edge from", "remove the pair"];
        "--negatives-from hard.csv --negative-sampling degree", ["negatives-from is hard.csv", "degree"];
        "--candidates none.csv", ["none.csv", "No such file"];
        "--candidates unknown.csv", ["unknown.csv", "row 3", "i999"];
        "--candidates one.csv", ["one.csv", "no candidates for", "--candidates 100"];
        "--candidates known.csv", ["no node without an edge from"];
        "--candidates 0", ["candidates: give 1 to"];
    ] {
        let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --quiet {options} --out refused --force")));
        if options.ends_with(" 0") {
            ran.misuse(&parts);
        } else {
            ran.failure(&parts);
        }
    }
    let train = |more: &str| run(&mut folder.program(&format!("{OPTIONS} --quiet --out run {more}")));
    train("--epochs 1 --negatives-from hard.csv").success();
    folder.write("hard.csv", &lines(others(4)));
    train("--epochs 2 --resume").failure(&["--negatives-from", "other pairs than at the start of the run"]);
    folder.write("hard.csv", &lines(others(3)));
    train("--epochs 2 --resume").success();
    fs::remove_file(folder.path("hard.csv")).unwrap();
    train("--epochs 3 --resume").failure(&["hard.csv", "No such file"]);
}
