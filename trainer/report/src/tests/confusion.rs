//! The confusion matrix, and what is read from it.

use super::*;

/// Scores with this confusion matrix.
fn confused(matrix: &[&[u64]]) -> ScoreReport {
    let spec = LabelSpec::new(LabelKind::Single, matrix.len() as u32);
    let mut scores = Scores::new(spec, false);
    for (class, row) in (0..).zip(matrix) {
        for (predicted, &nodes) in row.iter().enumerate() {
            let mut logits = vec![0.0; matrix.len()];
            logits[predicted] = 1.0;
            for _ in 0..nodes {
                scores.add(&logits, Labels::Classes(&[class]));
            }
        }
    }
    scores.report()
}

fn html(matrix: &[&[u64]]) -> String {
    let names: Vec<String> = (0..matrix.len()).map(|class| format!("<name {class}>")).collect();
    page("store", &records(4), Some(&confused(matrix)), &names)
}

#[test]
fn the_most_confused_pairs_are_listed() {
    let html = html(&[&[80, 12, 8], &[0, 40, 10], &[1, 0, 9]]);
    assert_well_formed(&html);
    let table = part(&html, "<table id=\"pairs\">", "</table>");
    let rows: Vec<&str> = table.split("<tr><th>").skip(2).collect();
    let expected = [("0", "1", 12, "12.0"), ("1", "2", 10, "20.0"), ("0", "2", 8, "8.0"), ("2", "0", 1, "10.0")];
    assert_eq!(rows.len(), expected.len(), "{table}");
    for (row, (class, predicted, nodes, percentage)) in rows.iter().zip(expected) {
        let names = format!("&lt;name {class}&gt;</th><th>&lt;name {predicted}&gt;</th><td>{nodes}</td>");
        assert!(row.starts_with(&names) && row.contains(&format!(">{percentage}</td>")), "{row}");
    }
    let perfect = self::html(&[&[5, 0], &[0, 5]]);
    assert!(perfect.contains("No two classes are confused.") && !perfect.contains("id=\"pairs\""));
}

#[test]
fn each_class_can_be_chosen_also_one_that_the_matrix_has_no_room_for() {
    let html = page("store", &records(4), Some(&scores(40)), &names(40));
    let chooser = part(&html, "<section id=\"chooser\" hidden>", "</section>");
    assert_eq!(chooser.matches("<option ").count(), 40);
    let json = part(chooser, "<script type=\"application/json\">", "</script>");
    let classes: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    assert_eq!(classes.len(), 40);

    let html = self::html(&[&[80, 12, 8], &[0, 40, 10], &[1, 0, 9]]);
    let chooser = part(&html, "<section id=\"chooser\" hidden>", "</section>");
    let json = part(chooser, "<script type=\"application/json\">", "</script>");
    let classes: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(
        classes[0],
        serde_json::json!({
            "told": "Predicted right: 80 of 100 nodes (80 %). Predicted to be in this class, but of others: 1.",
            "others": [[1, 12, 0], [2, 8, 1]],
        })
    );
    assert_eq!(classes[1]["others"], serde_json::json!([[0, 0, 12], [2, 10, 0]]));
}

#[test]
fn a_matrix_of_many_classes_keeps_the_page_small() {
    let scores = scores(1000);
    let html = page("store", &records(4), Some(&scores), &[]);
    assert!(html.len() < 700_000, "{} bytes", html.len());
}
