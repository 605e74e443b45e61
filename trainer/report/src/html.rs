//! Text in HTML, and the frame of a page.

use grappa_run::stages::Stage;

const STYLE: &str = include_str!("style.css");

/// Small scripts, each for the elements that a page has. A page is complete without them.
const SCRIPTS: [&str; 4] =
    [include_str!("charts.js"), include_str!("tables.js"), include_str!("confusion.js"), include_str!("bandwidth.js")];

/// A page without links to other files. The title is text; the line below the heading and the rest are HTML.
pub(super) fn page(title: &str, heading: &str, line: &str, main: &str) -> String {
    let (title, heading) = (escape(title), escape(heading));
    let scripts: String = SCRIPTS.iter().map(|script| format!("{{\n{script}}}\n")).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{heading}</h1>\n<p>{line}</p>\n</header>\n\
         <main>\n{main}</main>\n<footer>grappa-train {version}</footer>\n<script>\n{scripts}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

/// The style sheet of the colors alone, light and dark.
pub(super) fn palette() -> &'static str {
    STYLE.split_once("* {").map_or("", |(colors, _)| colors)
}

/// A section with a heading. All are HTML.
pub(super) fn section(heading: &str, note: &str, content: &str) -> String {
    let note = match note {
        "" => String::new(),
        note => format!("<p class=\"note\">{note}</p>\n"),
    };
    format!("<section>\n<h2>{heading}</h2>\n{note}{content}</section>\n")
}

/// A table that can be wider than a phone. Keys scroll it.
pub(super) fn wide(id: &str, label: &str, classes: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll {classes}\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\"><table id=\"{id}\">\n{rows}</tbody></table></div>\n"
    )
}

/// A cell: its text, the number by which it sorts, and other attributes.
pub(super) fn td(text: &str, value: Option<f64>, attributes: &str) -> String {
    let value = value.map_or_else(String::new, |value| value.to_string());
    format!("<td data-value=\"{value}\"{attributes}>{text}</td>")
}

/// Text as it is written in HTML, between tags or in quotes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

/// Data of a script. Text in it cannot end its tag.
pub(super) fn data(json: &serde_json::Value) -> String {
    let json = json.to_string().replace('<', "\\u003c");
    format!("<script type=\"application/json\">{json}</script>\n")
}

/// The CSS class of a stage's color, the same in every report.
pub(super) fn color_of_stage(stage: Stage) -> String {
    format!("stage-{}", stage.name())
}
