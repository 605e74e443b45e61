//! The table of a report about targets of regression.

use grappa_run::{model::significant, scores::ScoreReport};

use crate::html::escape;

/// RMSE, MAE and R2 of each target. Targets without a name are shown by number.
pub(super) fn table(scores: &ScoreReport, names: &[String]) -> String {
    let mut html = "<div class=\"scroll\"><table id=\"targets\">\n<thead><tr><th>target</th><th>nodes</th><th>RMSE</th><th>MAE</th>\
                    <th>R2</th><th>RMSE of the mean</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for (target, score) in scores.per_target.iter().enumerate() {
        let name = names.get(target).map_or_else(|| target.to_string(), |name| escape(name));
        html += &format!(
            "<tr><th>{name}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            score.nodes,
            number(score.rmse),
            number(score.mae),
            number(score.r2),
            number(score.baseline_rmse),
        );
    }
    html + "</tbody></table></div>\n"
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), significant)
}
