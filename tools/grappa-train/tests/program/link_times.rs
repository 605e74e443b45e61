//! Links at times: between nodes with times, and predicted as of a time.

use grappa_tests::program::run;

use crate::{
    fixture::{TrainFolder, assert_failed},
    times::{OPTIONS, letters},
};

/// Articles that cite earlier ones of their own field, each at the time of the citing article, and readers without times.
fn articles() -> TrainFolder {
    let folder = TrainFolder::empty();
    let table: String = (0..400).map(|id| format!("{id},{},{},{}\n", 1000 + id * 10, id % 2, 1 - id % 2)).collect();
    folder.write("article.csv", format!("id,at,odd,even\n{table}"));
    let citations = (8..400u64).flat_map(|id| [2, 6, 8].map(|before| format!("{id},{}\n", id - before)));
    folder.write("cites.csv", format!("citing,cited\n{}", citations.collect::<String>()));
    folder.success(
        "ingest --nodes article=article.csv --edges article:cites:article=cites.csv --src citing --dst cited --ids dense \
         --node-time article=at --time-unit s --features-from article=odd,even --reverse --quiet --out articles.grappa",
    );
    folder
}

#[test]
fn links_between_nodes_with_times_are_learned_at_the_time_of_the_later_end() {
    let folder = articles();
    let train = "articles.grappa --task link --model rsage --layers 2 --fanouts 5,5 --hidden 16 --decoder mlp --candidates 9 --batch 64 \
                 --lr 0.01 --dropout 0 --threads 1 --force";
    let ran = run(&mut folder.program(&format!("{train} --epochs 4 --out run"))).success();
    // 1176 citations, three at a time.
    for told in
        ["825 edges to learn, 177 for validation and 174 for test", "each at its time, from sampled earlier edges"]
    {
        assert!(ran.stdout.contains(told), "{told}: {ran:?}");
    }
    let links = &folder.summary("run")["links"];
    assert!(links["edge_bank"].is_null(), "{links}");
    assert!(links["average_precision"].as_f64().unwrap() > 0.6, "{links}");
    let seen = format!("{train} --epochs 1 --time-equal seen --out seen");
    run(&mut folder.program(&seen)).success();
    let edges = |run: &str| folder.metrics(run)[0]["sampled_edges"].as_u64().unwrap();
    assert!(edges("seen") > edges("run"), "{} and {}", edges("seen"), edges("run"));
    let refused = run(&mut folder.program(&format!("{train} --seed-time none --epochs 1 --out untimed")));
    assert_failed(&refused, &["no edges are held out", "--edge-split"]);
}

#[test]
fn links_are_predicted_from_the_edges_before_a_time() {
    let folder = letters();
    run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --threads 1 --out run"))).success();
    let pairs: String = (0..40).map(|at| format!("{},{}\n", at, at * 13 % 60)).collect();
    folder.write("pairs.csv", format!("from,to\n{pairs}"));
    // The letters before 100,000, of 1650 of 3000.
    let lines = folder.read("letters.csv");
    let early =
        lines.lines().filter(|line| line.rsplit(',').next().unwrap().parse().is_ok_and(|time: i64| time < 100_000));
    let early: Vec<&str> = early.collect();
    folder.write("early.csv", format!("from,to,at\n{}\n", early.join("\n")));
    let inputs = "--edges early.csv --src from --dst to --features people.csv --id id --quiet";
    folder.success(&format!("ingest {inputs} --time at --time-unit s --chunks 4 --out early.grappa"));
    let scores = |store: &str, options: &str| -> Vec<f64> {
        let line = format!("predict run {store}.grappa --links pairs.csv --out scores.csv --force --quiet {options}");
        run(&mut folder.program(&line)).success();
        folder
            .read("scores.csv")
            .lines()
            .skip(1)
            .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
            .collect()
    };
    let at = scores("letters", "--at 100000");
    assert_eq!(at.len(), 40);
    let is_close = |other: &[f64]| at.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-4);
    // Later letters have no part in it, and the time is the one of the prediction, not of the last letter.
    assert!(is_close(&scores("early", "--at 100000")));
    assert!(is_close(&scores("letters", "--at 100000 --threads 2 --memory 64MiB")));
    let last = scores("letters", "");
    assert!(!is_close(&last) && !is_close(&scores("early", "--at 130000")), "{at:?} and {last:?}");
    // The last letter is of 180,940.
    let told =
        run(&mut folder.program("predict run letters.grappa --links pairs.csv --out scores.csv --force")).success();
    assert!(told.stdout.contains("40 links as of 180941"), "{told:?}");
    // The best destinations have the scores of their pairs.
    folder.write("for.txt", "3\n");
    let line = "predict run letters.grappa --top-k 60 --for for.txt --at 100000 --out best.csv --force --quiet";
    run(&mut folder.program(line)).success();
    let best = folder.read("best.csv");
    let score = |target: u64| {
        let row = best.lines().find(|line| line.starts_with(&format!("3,{target},"))).unwrap();
        row.rsplit(',').next().unwrap().parse::<f64>().unwrap()
    };
    assert!((score(39) - at[3]).abs() < 1e-4, "{} and {}", score(39), at[3]);
    run(&mut folder.program("predict run letters.grappa --embeddings --at 100000 --out rows.npy")).success();
    // Runs without times have no time of predictions.
    let plain = inputs.replace("early", "letters");
    folder.success(&format!("ingest {plain} --edge-split 80/10/10 --chunks 4 --out plain.grappa"));
    let train = "plain.grappa --task link --model sage --layers 1 --fanouts 5 --hidden 16 --epochs 1 --out plain";
    run(&mut folder.program(train)).success();
    let refused = run(&mut folder.program("predict plain plain.grappa --links pairs.csv --at 5 --out x.csv"));
    assert_failed(&refused, &["at 5", "did not learn links at their times", "leave out --at"]);
}
