//! `grappa-train report`: several runs on one page.

use grappa_tests::{
    files::{assert_same, files_of},
    program::run,
};

use crate::fixture::TrainFolder;

#[test]
fn runs_are_compared_on_a_page_that_replaces_none_without_being_told() {
    let folder = TrainFolder::new();
    for (out, lr) in [("slow", "0.001"), ("fast", "0.1")] {
        folder.trained(&format!("--epochs 2 --layers 1 --lr {lr} --out {out}"));
    }
    let before = files_of(&folder.path("fast"));
    let report = |options: &str| run(&mut folder.program(&format!("report {options}")));
    let told = report("slow fast").success().stdout;
    assert_eq!(told, "compare.html: 2 runs on one page; open it in a browser\n");
    let html = folder.read("compare.html");
    let rates = "<tr><th>lr</th><td>0.001</td><td>0.1</td></tr>";
    for part in ["<figure id=\"val-by-time\">", "1 slow", "2 fast", rates] {
        assert!(html.contains(part), "{part}");
    }
    assert_same(&folder.path("fast"), &before, "compared");

    folder.write("compare.html", "mine");
    report("slow fast").failure(&["compare.html exists", "--force"]);
    assert_eq!(folder.read("compare.html"), "mine");
    report("slow fast --force").success();
    assert_eq!(folder.read("compare.html"), html);
    let other = report("fast slow --out other.html --json").success().json();
    let expected = serde_json::json!({ "path": "other.html", "runs": ["fast", "slow"] });
    assert_eq!(other, expected);
    assert!(folder.path("other.html").exists());
    // The report of one run is in its folder.
    report("slow --out one.html").failure(&["two runs or more", "slow/report.html"]);
    assert!(!folder.path("one.html").exists());
}
