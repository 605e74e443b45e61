//! A drawing of scores by bytes that stands alone, for pages that show images.

use grappa_run::model::Task;

use super::row::{Point, Row};
use crate::{
    html::{escape, palette},
    scale::{Axis, Unit},
};

/// Width and height, and the room around the curves: left, top, right, bottom.
const SIZE: (f64, f64) = (760.0, 330.0);
const ROOM: (f64, f64, f64, f64) = (58.0, 30.0, 212.0, 42.0);

/// Where values are in the drawing.
struct Frame {
    x: Axis,
    y: Axis,
}

impl Frame {
    fn across(&self, bytes: f64) -> f64 {
        let (left, _, right, _) = ROOM;
        left + self.x.place(bytes) * (SIZE.0 - left - right)
    }

    fn down(&self, score: f64) -> f64 {
        let (_, top, _, bottom) = ROOM;
        SIZE.1 - bottom - self.y.place(score) * (SIZE.1 - top - bottom)
    }

    /// Grid lines and labels.
    fn svg(&self) -> String {
        let (left, _, right, bottom) = ROOM;
        let mut svg = String::new();
        for (value, label) in &self.y.ticks {
            let at = self.down(*value);
            svg += &format!(
                "<path class=\"grid\" d=\"M{left} {at:.1}H{}\"/>\n<text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
                SIZE.0 - right,
                left - 8.0,
                at + 4.0
            );
        }
        for (value, label) in &self.x.ticks {
            svg += &format!(
                "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n",
                self.across(*value),
                SIZE.1 - bottom + 18.0
            );
        }
        svg
    }

    /// The curve of a row, and its name at a height.
    fn row(&self, row: &Row, at: f64) -> String {
        let places: Vec<String> = sent(row)
            .map(|point| format!("{:.1} {:.1}", self.across(point.costs.bytes()), self.down(point.score)))
            .collect();
        let style = row.color.replace(" dashed", "\" stroke-dasharray=\"6 4");
        let end = SIZE.0 - ROOM.2;
        format!(
            "<path class=\"{style}\" d=\"M{}M{} {at}h16\"/>\n<text x=\"{}\" y=\"{}\">{}</text>\n",
            places.join("L"),
            end + 14.0,
            end + 36.0,
            at + 4.0,
            escape(&row.name)
        )
    }
}

/// The points of a row after something was sent.
fn sent(row: &Row) -> impl Iterator<Item = &Point> {
    row.curve.iter().filter(|point| point.costs.bytes() > 0.0)
}

/// An SVG of the rows with the smallest number of partitions above 1. Empty without one.
pub(super) fn svg(score: &str, rows: &[Row]) -> String {
    let several = rows.iter().filter(|row| row.machines > 1 && sent(row).next().is_some());
    let machines = several.clone().map(|row| row.machines).min();
    let rows: Vec<&Row> = several.filter(|row| Some(row.machines) == machines).collect();
    let (width, height) = SIZE;
    let (left, top, right, _) = ROOM;
    let colors: String = rows
        .iter()
        .filter_map(|row| row.color.split(' ').next())
        .map(|color| format!(".{color} {{ color: var(--{color}); }} "))
        .collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Test {score} by bytes\">\n<style>\n\
         {}text {{ font: 12px system-ui, sans-serif; fill: var(--ink); }} .soft {{ fill: var(--soft); }}\n\
         path {{ fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }} .grid {{ color: var(--rule); stroke-width: 1; }}\n\
         {colors}\n</style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" style=\"fill: var(--card)\"/>\n",
        palette()
    );
    let points: Vec<&Point> = rows.iter().flat_map(|row| sent(row)).collect();
    let unit = Unit::for_task(rows.first().map_or(Task::MultiClass, |row| row.task));
    let scores = points.iter().map(|point| point.score);
    if let Some(y) = Axis::from_values(scores, unit, false, false) {
        let x = Axis::powers_of_bytes(points.iter().map(|point| point.costs.bytes()));
        let frame = Frame { x, y };
        svg += &frame.svg();
        for (row, number) in rows.iter().zip(0..) {
            svg += &frame.row(row, top + 4.0 + 17.0 * f64::from(number));
        }
    }
    svg + &format!(
        "<text x=\"{left}\" y=\"18\">Test {score}, {} partitions</text>\n<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"end\">bytes \
         sent by all machines, logarithmic</text>\n</svg>\n",
        machines.unwrap_or(1),
        width - right,
        height - 8.0
    )
}
