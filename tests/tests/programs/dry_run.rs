//! `grappa-ingest --dry-run`: what each column would become.

use std::fs;

use grappa_tests::program::{command, run};
use serde_json::json;

#[test]
fn a_dry_run_tells_what_columns_become_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("e.csv"), "from,to,score\nann,bob,1\nbob,ann,2\n").unwrap();
    fs::write(
        at("u.csv"),
        "name,plan,since,age,extra\nann,free,2024-01-01,,7\nbob,free,2024-01-02,5,7\n",
    )
    .unwrap();
    let ingest = |more: &[&str]| {
        let mut ingest = command("grappa-ingest");
        ingest.args([
            "--edges",
            "e.csv",
            "--ids",
            "string",
            "--features",
            "u.csv",
            "--missing",
            "mean",
            "--dry-run",
        ]);
        run(ingest
            .args(["--features-from", "plan,since,age"])
            .args(more)
            .current_dir(folder.path()))
    };
    let text = ingest(&[]).success().stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        "file column role becomes dimensions missing",
        "e.csv from source",
        "e.csv score weight",
        "u.csv name ids",
        "u.csv plan features category (one-hot): free, other 2 0",
        "u.csv since features date (days since 1970-01-01) 1 0",
        "u.csv age features number 1 1: the mean 5",
        "u.csv extra left out",
        "nothing was written",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(lines.contains(&words), "{line} is not in\n{text}");
    }
    let answer = ingest(&["--json", "--out", "u.grappa"]).success().json();
    let encodings = &answer["inputs"][1]["encodings"];
    assert_eq!(
        encodings[0],
        json!({
            "name": "plan",
            "encoding": {"kind": "category", "values": ["free"], "form": "one_hot"},
            "dimensions": 2,
            "missing_values": 0,
        })
    );
    assert_eq!(
        encodings[2]["encoding"],
        json!({"kind": "number", "missing": {"mean": 5.0}})
    );
    assert_eq!(encodings[2]["missing_values"], 1);
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 2, "a dry run writes nothing");
    // Errors are the same.
    let wrong = ingest(&["--missing", "size=0"]);
    wrong.failure(&["--missing names the column size", "plan, since, age"]);
}
