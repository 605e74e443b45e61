//! Tables of text.

use grappa_console::{ByteSize, count};

/// Names and values in two columns.
#[derive(Default)]
pub struct Table {
    rows: Vec<(&'static str, String)>,
}

impl Table {
    pub fn row(&mut self, name: &'static str, value: String) {
        self.rows.push((name, value));
    }

    /// The aligned rows, without a line feed at the end.
    pub fn text(&self) -> String {
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines = self.rows.iter().map(|(name, value)| format!("  {name:<width$}  {value}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The exact number, and a short form of large ones.
pub fn exact(n: u64) -> String {
    let short = count(n);
    if short == n.to_string() { short } else { format!("{n} ({short})") }
}

/// A line for the size of each part that is not empty. The last part is the total.
pub fn parts_of(parts: &[(&str, u64)]) -> String {
    let total = parts.last().map_or(0, |(_, total)| *total);
    let lines = parts.iter().filter(|(_, bytes)| *bytes > 0).map(|(name, bytes)| {
        let percent = *bytes as f64 / total as f64 * 100.0;
        format!("  {name:<14}{:>12}  {percent:>5.1} %", ByteSize(*bytes))
    });
    lines.collect::<Vec<_>>().join("\n")
}
