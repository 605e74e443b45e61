//! `grappa-train report`: several runs on one page.

use std::{fs, process::Command};

use grappa_tests::{
    files::{assert_same, files_of},
    program::run,
};

use crate::workers::{folder, train};

#[test]
fn runs_are_compared_on_a_page_that_replaces_none_without_being_told() {
    let folder = folder();
    for (out, lr) in [("slow", "0.001"), ("fast", "0.1")] {
        let options = ["--epochs", "2", "--layers", "1", "--lr", lr, "--out", out];
        run(&mut train(folder.path(), &options)).success();
    }
    let before = files_of(&folder.path().join("fast"));
    let report = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        run(command.current_dir(folder.path()).arg("report").args(options))
    };
    let told = report(&["slow", "fast"]).success().stdout;
    assert_eq!(told, "compare.html: 2 runs on one page; open it in a browser\n");
    let page = folder.path().join("compare.html");
    let html = fs::read_to_string(&page).unwrap();
    for part in [
        "<figure id=\"val-by-time\">",
        "1 slow",
        "2 fast",
        "<tr><th>lr</th><td>0.001</td><td>0.1</td></tr>",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert_same(&folder.path().join("fast"), &before, "compared");

    fs::write(&page, "mine").unwrap();
    report(&["slow", "fast"]).failure(&["compare.html exists", "--force"]);
    assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
    report(&["slow", "fast", "--force"]).success();
    assert_eq!(fs::read_to_string(&page).unwrap(), html);
    let other = report(&["fast", "slow", "--out", "other.html", "--json"])
        .success()
        .json();
    assert_eq!(
        other,
        serde_json::json!({ "path": "other.html", "runs": ["fast", "slow"] })
    );
    assert!(folder.path().join("other.html").exists());
    // The report of one run is in its folder.
    report(&["slow", "--out", "one.html"]).failure(&["two runs or more", "slow/report.html"]);
    assert!(!folder.path().join("one.html").exists());
}
