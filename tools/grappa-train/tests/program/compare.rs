//! `grappa-train compare`: methods of training, each in runs of its own.

use std::fs;

use grappa_tests::program::run;

use crate::fixture::TrainFolder;

const OPTIONS: &str = "compare graph.grappa --methods full,varco+rate-schedule=fixed:4,isolated --partitions 2,4 --layers 2 --hidden 8 \
                       --threads 1 --out compared";

#[test]
fn methods_are_compared_and_a_killed_comparison_continues() {
    let folder = TrainFolder::new();
    // The first of the runs, as after a kill: it is not finished.
    folder.trained("--method full --partitions 2 --layers 2 --hidden 8 --epochs 2 --out compared/full-2-1");
    let compare = |options: &str| run(&mut folder.program(&format!("{OPTIONS} {options}")));
    let told = compare("--epochs 4").success().stdout;
    for part in [
        "1/6  compared/full-2-1: test accuracy ",
        "6/6  compared/isolated-4-1: test accuracy ",
        "| varco+rate-schedule=fixed:4 | 4 | 1 | ",
        "compared/compare.html: 6 runs on one page; open it in a browser",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let metrics = |name: &str| folder.metrics(&format!("compared/{name}"));
    assert_eq!(metrics("full-2-1").len(), 4, "two epochs, and two more");
    let bytes = |name: &str| metrics(name)[1]["activation_bytes"].as_u64().unwrap();
    let varco = "varco-rate-schedule-fixed-4-4-1";
    assert!(bytes("full-4-1") > 3 * bytes(varco) && bytes(varco) > 0, "{}", bytes(varco));
    assert_eq!(bytes("isolated-4-1"), 0);
    let csv = folder.read("compared/compare.csv");
    assert_eq!(csv.lines().count(), 1 + 6);
    assert!(folder.read("compared/compare.html").contains("<figure id=\"seconds-4\">"));

    // Finished runs are kept, and another method joins them.
    let modified =
        |name: &str| fs::metadata(folder.path(&format!("compared/{name}/metrics.jsonl"))).unwrap().modified().unwrap();
    let before = modified("full-4-1");
    let more = OPTIONS.replace("isolated", "isolated,grappa");
    let told = run(&mut folder.program(&format!("{more} --epochs 4"))).success().stdout;
    assert!(told.contains("2/8  compared/full-4-1: kept, 4 epochs"), "{told}");
    assert!(told.contains("| grappa | 4 | 1 | "), "{told}");
    assert_eq!(modified("full-4-1"), before);

    compare("--epochs 4 --lr 0.5").failure(&["compared/full-2-1: its run has lr ", "not 0.5", "--force", "--out"]);
}

#[test]
fn a_comparison_replaces_other_runs_and_pages_only_if_told() {
    let folder = TrainFolder::new();
    let compare = |options: &str| {
        let options =
            format!("--methods full --partitions 2 --layers 1 --epochs 1 --threads 1 --out compared {options}");
        run(&mut folder.program(&format!("compare graph.grappa {options}")))
    };
    fs::create_dir(folder.path("compared")).unwrap();
    folder.write("compared/compare.md", "notes of a user");
    compare("").failure(&["compared/compare.md exists", "--force", "--out"]);
    assert_eq!(folder.read("compared/compare.md"), "notes of a user");
    compare("--force").success();
    assert!(folder.read("compared/compare.md").contains("| full | 2 | 1 | "));
    // The pages of a comparison that continues are its own.
    compare("").success();
    let told = compare("--lr 0.5 --force").success().stdout;
    assert!(told.contains("compared/full-2-1: test accuracy ") && !told.contains("kept"), "{told}");
    assert!(folder.read("compared/full-2-1/config.toml").contains("lr = 0.5"));
    assert!(!folder.path("compared/full-2-1/replaced").exists());
}

#[test]
fn options_that_do_not_fit_a_method_are_refused_before_anything_is_trained() {
    let folder = TrainFolder::new();
    let compare = |options: &str| run(&mut folder.program(&format!("compare graph.grappa --out compared {options}")));
    compare("--methods full,grappa --batch 50")
        .failure(&["full: batch belongs to `--method grappa`", "grappa+batch=512"]);
    compare("--methods full,full").failure(&["two runs would be in full-4-1"]);
    compare("--methods varco+rate-schedul=fixed:4").misuse(&["`rate-schedul`, which is none of training"]);
    compare("--methods varco+rate-schedule=fixed:0.5").misuse(&["a rate is at least 1"]);
    compare("--methods fool").misuse(&["fool", "full"]);
    compare("--methods full --partitions 1").misuse(&["1 is not in 2.."]);
    assert!(!folder.path("compared").exists());
    compare("--methods full,grappa+batch=50 --epochs 1 --partitions 2").success();
}
