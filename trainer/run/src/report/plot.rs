//! Plots: an SVG of lines or bars that stretches with the page, and labels in HTML of constant size.

use super::{
    html::escape,
    scale::{Axis, Unit},
    series::{self, Point, Series},
};

/// Width and height of the drawing, before the page stretches it.
const SIZE: f64 = 1000.0;

/// Largest number of points that are marked with dots.
const MARKED_MAX: usize = 30;

/// How a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lines over the range of the values; logarithmic if they differ by orders of magnitude.
    Lines,
    /// Lines over a range that includes 0.
    LinesFromZero,
    /// Stacked bars from 0.
    Bars,
}

/// A plot over epochs.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    /// Its id in the page.
    pub id: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    /// The epochs, ascending.
    pub epochs: &'a [f64],
    pub series: Vec<Series>,
    /// An epoch to mark.
    pub best: Option<f64>,
    /// Why there may be no value.
    pub empty: &'static str,
}

impl Plot<'_> {
    /// Whether there is anything to draw: a value, and for bars one that is not 0.
    pub(super) fn has_values(&self) -> bool {
        let is_bar = self.kind == Kind::Bars;
        let mut values = self.series.iter().flat_map(|series| &series.values);
        values.any(|value| value.is_finite() && !(is_bar && *value == 0.0)) && self.axis().is_some()
    }

    /// A `<figure>`.
    ///
    /// # Panics
    /// If there is nothing to draw.
    pub(super) fn html(&self) -> String {
        let axis = self.axis().expect("there are values");
        format!("<figure id=\"{}\">\n{}</figure>\n", self.id, self.body(&axis))
    }

    fn axis(&self) -> Option<Axis> {
        let all = || self.series.iter().flat_map(|series| series.values.iter().copied());
        match self.kind {
            Kind::Lines => Axis::of(all(), self.unit, false, self.unit == Unit::Number),
            Kind::LinesFromZero => Axis::of(all(), self.unit, true, false),
            Kind::Bars => {
                Axis::of(all(), self.unit, true, false)?;
                let bars = series::bars(self.epochs, &self.series);
                Axis::of(bars.iter().map(|bar| bar.means.iter().sum()), self.unit, true, false)
            }
        }
    }

    fn body(&self, y: &Axis) -> String {
        let x = Axis::epochs(self.epochs.last().map_or(1, |epoch| *epoch as u64));
        let mut html = format!(
            "{}<div class=\"plot\"><div class=\"area\">\n<svg viewBox=\"0 0 {SIZE} {SIZE}\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{}\">\n",
            self.caption(),
            escape(self.title)
        );
        for (value, _) in &y.ticks {
            html += &format!("<path class=\"grid\" d=\"M0 {:.1}H{SIZE}\"/>\n", down(y, *value));
        }
        html += &match self.kind {
            Kind::Bars => self.bars(&x, y),
            Kind::Lines | Kind::LinesFromZero => self.lines(&x, y),
        };
        html += "</svg>\n";
        for (value, label) in &y.ticks {
            html += &format!(
                "<span class=\"y\" style=\"top:{:.2}%\">{}</span>",
                down(y, *value) / 10.0,
                escape(label)
            );
        }
        for (epoch, label) in &x.ticks {
            html += &format!(
                "<span class=\"x\" style=\"left:{:.2}%\">{label}</span>",
                across(&x, *epoch) / 10.0
            );
        }
        if let Some(epoch) = self.best {
            let left = across(&x, epoch) / 10.0;
            // The label goes to the side with more room.
            let side = if left < 60.0 { "right" } else { "left" };
            html += &format!(
                "<span class=\"best {side}\" style=\"left:{left:.2}%\"><span>best: epoch {epoch}</span></span>"
            );
        }
        html += "<span class=\"at\" hidden></span></div></div>\n";
        html += &self.readings(&x);
        html
    }

    /// The title, and a legend with the last values.
    fn caption(&self) -> String {
        let last = series::readings(&self.series).last().copied();
        let mut html = format!(
            "<figcaption><h3>{}</h3><span class=\"when\">epoch {}</span><ul>",
            escape(self.title),
            last.map_or(0.0, |last| self.epochs[last]),
        );
        for series in &self.series {
            let value = last.map_or(f64::NAN, |last| series.values[last]);
            let name = if self.series.len() > 1 {
                escape(series.name)
            } else {
                String::new()
            };
            html += &format!(
                "<li><i class=\"{}\"></i>{name} <b>{}</b></li>",
                series.color,
                self.unit.format(value)
            );
        }
        html += "</ul>";
        let epochs = series::epochs_of_a_bar(self.epochs.len());
        if self.kind == Kind::Bars && epochs > 1 {
            html += &format!("<p class=\"note\">A bar is the mean of {epochs} epochs.</p>");
        }
        html + "</figcaption>\n"
    }

    fn lines(&self, x: &Axis, y: &Axis) -> String {
        let mut html = String::new();
        for series in &self.series {
            let points = series::line(self.epochs, &series.values);
            let path = |value: fn(&Point) -> f64| -> Vec<String> {
                let place = |point: &Point| format!("{:.1} {:.1}", across(x, point.epoch), down(y, value(point)));
                points.iter().map(place).collect()
            };
            let means = path(|point| point.mean);
            if means.is_empty() {
                continue;
            }
            if points.iter().any(|point| point.least < point.greatest) {
                let mut around = path(|point| point.greatest);
                around.extend(path(|point| point.least).into_iter().rev());
                html += &format!("<path class=\"band {}\" d=\"M{}Z\"/>\n", series.color, around.join("L"));
            }
            html += &format!("<path class=\"line {}\" d=\"M{}\"/>\n", series.color, means.join("L"));
            if means.len() <= MARKED_MAX {
                // A line of length 0 with round ends is a dot.
                let dots: String = means.iter().map(|place| format!("M{place}h0")).collect();
                html += &format!("<path class=\"dots {}\" d=\"{dots}\"/>\n", series.color);
            }
        }
        html
    }

    fn bars(&self, x: &Axis, y: &Axis) -> String {
        let bars = series::bars(self.epochs, &self.series);
        let mut paths = vec![String::new(); self.series.len()];
        for bar in &bars {
            let (left, right) = (across(x, bar.first - 0.5), across(x, bar.last + 0.5));
            let gap = (right - left) * 0.08;
            let mut below = 0.0;
            for (mean, path) in bar.means.iter().zip(&mut paths) {
                let (bottom, top) = (down(y, below), down(y, below + mean));
                below += mean;
                if bottom - top >= 0.05 {
                    *path += &format!(
                        "M{:.1} {bottom:.1}V{top:.1}H{:.1}V{bottom:.1}Z",
                        left + gap,
                        right - gap
                    );
                }
            }
        }
        let series = self.series.iter().zip(paths);
        series
            .map(|(series, path)| format!("<path class=\"bar {}\" d=\"{path}\"/>\n", series.color))
            .collect()
    }

    /// The data of the script: positions of epochs, and their values as text.
    fn readings(&self, x: &Axis) -> String {
        let readings = series::readings(&self.series);
        let epochs: Vec<f64> = readings.iter().map(|&index| self.epochs[index]).collect();
        let places: Vec<f64> = epochs.iter().map(|epoch| (across(x, *epoch)).round() / 10.0).collect();
        let texts = self.series.iter().map(|series| {
            let texts = readings.iter().map(|&index| self.unit.format(series.values[index]));
            texts.collect::<Vec<String>>()
        });
        let json = serde_json::json!({
            "epochs": epochs,
            "places": places,
            "values": texts.collect::<Vec<_>>(),
        });
        format!("<script type=\"application/json\">{json}</script>\n")
    }
}

/// Position of an epoch in the drawing, from the left.
fn across(axis: &Axis, epoch: f64) -> f64 {
    axis.place(epoch) * SIZE
}

/// Position of a value in the drawing, from the top.
fn down(axis: &Axis, value: f64) -> f64 {
    (1.0 - axis.place(value)) * SIZE
}
