//! `grappa-ingest --dry-run`: what each column would become.

use grappa_tests::folder::ProgramFolder;
use serde_json::json;

#[test]
fn a_dry_run_tells_what_columns_become_and_writes_nothing() {
    let folder = ProgramFolder::new();
    folder.write("e.csv", "from,to,weight\nann,bob,1\nbob,ann,2\n");
    folder.write("u.csv", "name,plan,since,age,extra\nann,free,2024-01-01,,7\nbob,free,2024-01-02,5,7\n");
    let ingest = |more: &str| {
        let files = "--edges e.csv --ids string --features u.csv --features-from plan,since,age";
        folder.run(&format!("ingest {files} --missing mean --dry-run {more}"))
    };
    let text = ingest("").success().stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        "file column role becomes dimensions missing",
        "e.csv from source",
        "e.csv weight weight",
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
    let answer = ingest("--json --out u.grappa").success().json();
    let encodings = &answer["inputs"][1]["encodings"];
    let plan = json!({
        "name": "plan",
        "encoding": {"kind": "category", "values": ["free"], "form": "one_hot"},
        "dimensions": 2,
        "missing_values": 0,
    });
    assert_eq!(encodings[0], plan);
    assert_eq!(encodings[2]["encoding"], json!({"kind": "number", "missing": {"mean": 5.0}}));
    assert_eq!(encodings[2]["missing_values"], 1);
    assert_eq!(folder.names(), ["e.csv", "u.csv"], "a dry run writes nothing");
    // Errors are the same.
    ingest("--missing size=0").failure(&["--missing names the column size", "plan, since, age"]);
}
