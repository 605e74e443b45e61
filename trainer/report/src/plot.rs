//! Plots: an SVG of lines or bars that stretches with the page, and labels in HTML of constant size.

use crate::{
    html::{data, escape},
    scale::{Axis, Unit},
    series::{self, Point, Sample, Series},
};

/// Width and height of the drawing, before the page stretches it.
const SIZE: f64 = 1000.0;

/// Largest number of points that are marked with dots. Beyond it, only points without neighbors have one.
const MARKED_MAX: usize = 30;

/// Length of a dash, in pixels, where several lines have the same points.
const DASH: usize = 8;

/// How a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    #[default]
    /// Lines over the range of the values; logarithmic if they differ by orders of magnitude.
    Lines,
    /// Lines over a range that includes 0.
    LinesFromZero,
    /// Stacked bars from 0.
    Bars,
}

/// What a horizontal axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Across {
    #[default]
    /// Epochs, from 1.
    Epochs,
    /// Seconds of wall time since the run began.
    Seconds,
    /// Bytes that all machines sent, logarithmic.
    Bytes,
    /// Modelled seconds of several machines, logarithmic.
    Modelled,
    /// The share of the nodes in a class that are predicted to be in it.
    Recall,
}

impl Across {
    fn title(self) -> &'static str {
        match self {
            Self::Epochs => "epoch",
            Self::Seconds => "wall time from the start of the program",
            Self::Bytes => "bytes that all machines sent, logarithmic",
            Self::Modelled => "modelled time, logarithmic",
            Self::Recall => "recall",
        }
    }

    /// The axis of the places of all samples.
    fn axis(self, series: &[Series]) -> Axis {
        let places = series.iter().flat_map(|series| &series.samples).map(|sample| sample.x);
        let last = places.clone().fold(0.0, f64::max);
        match self {
            Self::Epochs => Axis::epochs(last as u64),
            Self::Seconds => Axis::seconds(last),
            Self::Bytes => Axis::powers_of_bytes(places),
            Self::Modelled => Axis::powers_of_seconds(places),
            Self::Recall => Axis::parts(),
        }
    }

    fn name(self, x: f64) -> String {
        match self {
            Self::Epochs => format!("epoch {x}"),
            Self::Seconds | Self::Modelled => format!("after {}", Unit::Seconds.format(x)),
            Self::Bytes => format!("after {}", Unit::Bytes.format(x)),
            Self::Recall => format!("recall {}", Unit::Part.format(x)),
        }
    }

    /// The value that a series has at a place. Runs are not measured at the same times, so a value counts until the next one.
    fn value(self, series: &Series, x: f64) -> f64 {
        match self {
            Self::Epochs | Self::Recall => series.at(x),
            Self::Seconds | Self::Bytes | Self::Modelled => series.until(x),
        }
    }
}

/// A plot of values over epochs, time or recall.
#[derive(Debug, Default)]
pub(super) struct Plot {
    /// Its id in the page.
    pub id: String,
    pub title: String,
    pub across: Across,
    /// The title of the vertical axis.
    pub axis: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    pub series: Vec<Series>,
    /// Says where legends rest.
    pub resting: String,
    /// An epoch to mark.
    pub best: Option<f64>,
    /// Said below the legend, in HTML.
    pub note: String,
    /// Said instead of values if there are none; empty: there is no number.
    pub empty: &'static str,
}

impl Plot {
    /// Whether there is anything to draw.
    pub(super) fn has_values(&self) -> bool {
        self.vertical().is_some()
    }

    /// What there is to say if a chart would show no more than that: that there are no values, or the one that all epochs have.
    pub(super) fn text(&self) -> Option<String> {
        if !self.has_values() {
            return Some(if self.empty.is_empty() { "no number" } else { self.empty }.to_owned());
        }
        let [series] = &self.series[..] else { return None };
        let mut texts = series.finite().map(|sample| self.unit.format(sample.value));
        let first = texts.next()?;
        texts.all(|text| text == first).then_some(first)
    }

    /// A `<figure>`.
    ///
    /// # Panics
    /// If there is no value.
    pub(super) fn html(&self) -> String {
        let axis = self.vertical().expect("there are values");
        format!("<figure id=\"{}\">\n{}</figure>\n", self.id, self.body(&axis))
    }

    fn vertical(&self) -> Option<Axis> {
        let values = self.series.iter().flat_map(Series::finite).map(|sample| sample.value);
        match self.kind {
            Kind::Lines => Axis::from_values(values, self.unit, false, self.unit == Unit::Number),
            Kind::LinesFromZero => Axis::from_values(values, self.unit, true, false),
            Kind::Bars => {
                Axis::from_values(values, self.unit, true, false)?;
                let bars = series::bars(&self.series);
                Axis::from_values(bars.iter().map(|bar| bar.means.iter().sum()), self.unit, true, false)
            }
        }
    }

    fn body(&self, y: &Axis) -> String {
        let x = self.across.axis(&self.series);
        let logarithmic = if y.is_log { ", logarithmic" } else { "" };
        let mut html = format!(
            "{}<div class=\"plot\"><span class=\"title\">{}{logarithmic}</span><div class=\"area\">\n\
             <svg viewBox=\"0 0 {SIZE} {SIZE}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\n",
            self.caption(),
            self.axis,
            escape(&self.title)
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
            html += &format!("<span class=\"y\" style=\"top:{:.2}%\">{}</span>", down(y, *value) / 10.0, escape(label));
        }
        for (place, label) in &x.ticks {
            html += &format!("<span class=\"x\" style=\"left:{:.2}%\">{label}</span>", across(&x, *place) / 10.0);
        }
        if let Some(epoch) = self.best {
            let left = across(&x, epoch) / 10.0;
            // The label goes to the side with more room.
            let side = if left < 60.0 { "right" } else { "left" };
            html += &format!(
                "<span class=\"best {side}\" style=\"left:{left:.2}%\"><span>best: epoch {epoch}</span></span>"
            );
        }
        html += &format!(
            "<span class=\"at\" hidden></span></div><span class=\"title\">{}</span></div>\n{}",
            self.across.title(),
            self.readings(&x)
        );
        html
    }

    /// The title, and a legend with the values at rest.
    fn caption(&self) -> String {
        let mut html =
            format!("<figcaption><h3>{}</h3><span class=\"when\">{}</span><ul>", escape(&self.title), self.resting,);
        for series in &self.series {
            let name = if self.series.len() > 1 { escape(&series.name) } else { String::new() };
            html += &format!(
                "<li><i class=\"{}\"></i>{name} <b>{}</b></li>",
                series.color,
                self.unit.format(series.resting())
            );
        }
        html += "</ul>";
        let epochs = series::epochs_of_a_bar(self.series.first().map_or(0, |series| series.samples.len()));
        if self.kind == Kind::Bars && epochs > 1 {
            html += &format!("<p class=\"note\">A bar is the mean of {epochs} epochs.</p>");
        }
        if !self.note.is_empty() {
            html += &format!("<p class=\"note\">{}</p>", self.note);
        }
        html + "</figcaption>\n"
    }

    fn lines(&self, x: &Axis, y: &Axis) -> String {
        let mut html = String::new();
        for (number, series) in self.series.iter().enumerate() {
            let (mut bands, mut line, mut dots) = (String::new(), String::new(), String::new());
            let parts = series::line(&series.samples);
            let marks_all = series.marks.is_none() && parts.iter().map(Vec::len).sum::<usize>() <= MARKED_MAX;
            for part in &parts {
                if part.iter().any(|point| point.least < point.greatest) {
                    let mut around = path(part, x, y, |point| point.greatest);
                    around.extend(path(part, x, y, |point| point.least).into_iter().rev());
                    bands += &format!("M{}Z", around.join("L"));
                }
                let means = path(part, x, y, |point| point.mean);
                line += &format!("M{}", means.join("L"));
                if marks_all || means.len() == 1 {
                    // A line of length 0 with round ends is a dot.
                    dots.extend(means.iter().map(|place| format!("M{place}h0")));
                }
            }
            let marks = series.marks.iter().flatten().filter(|&&place| series.at(place).is_finite());
            dots.extend(marks.map(|&place| format!("M{:.1} {:.1}h0", across(x, place), down(y, series.at(place)))));
            let dashes = self.dashes(number);
            for (class, d, style) in [("band", bands, ""), ("line", line, &*dashes), ("dots", dots, "")] {
                if !d.is_empty() {
                    html += &format!("<path class=\"{class} {}\" d=\"{d}\"{style}/>\n", series.color);
                }
            }
        }
        html
    }

    /// The attribute that shows a line together with the earlier ones that have the same points: each has a share of the dashes. Empty for
    /// the first of them.
    fn dashes(&self, number: usize) -> String {
        let equals = |other: &&Series| {
            let points = |series: &Series| series.finite().map(|sample| (sample.x, sample.value)).collect::<Vec<_>>();
            points(other) == points(&self.series[number])
        };
        let before = self.series[..number].iter().filter(equals).count();
        if before == 0 {
            return String::new();
        }
        let all = before + self.series[number..].iter().filter(equals).count();
        format!(
            " style=\"stroke-dasharray:{DASH} {};stroke-dashoffset:-{};stroke-linecap:butt\"",
            DASH * (all - 1),
            DASH * before
        )
    }

    fn bars(&self, x: &Axis, y: &Axis) -> String {
        let bars = series::bars(&self.series);
        let mut paths = vec![String::new(); self.series.len()];
        for bar in &bars {
            let (left, right) = (across(x, bar.first - 0.5), across(x, bar.last + 0.5));
            let gap = (right - left) * 0.08;
            let mut below = 0.0;
            for (mean, path) in bar.means.iter().zip(&mut paths) {
                let (bottom, top) = (down(y, below), down(y, below + mean));
                below += mean;
                if bottom - top >= 0.05 {
                    *path += &format!("M{:.1} {bottom:.1}V{top:.1}H{:.1}V{bottom:.1}Z", left + gap, right - gap);
                }
            }
        }
        let series = self.series.iter().zip(paths);
        series.map(|(series, path)| format!("<path class=\"bar {}\" d=\"{path}\"/>\n", series.color)).collect()
    }

    /// The data of the script: names and positions of places, their values as text, and the place at which it begins.
    fn readings(&self, x: &Axis) -> String {
        let stops = series::stops(&self.series);
        let rest = self.series.iter().find_map(|series| series.rest);
        let start = stops.iter().position(|&place| Some(place) == rest);
        let names: Vec<String> = stops.iter().map(|&place| self.across.name(place)).collect();
        let places: Vec<f64> = stops.iter().map(|&place| across(x, place).round() / 10.0).collect();
        let values: Vec<Vec<String>> = self.series.iter().map(|series| self.texts(series, &stops)).collect();
        data(&serde_json::json!({
            "names": names,
            "places": places,
            "values": values,
            "start": start.unwrap_or(stops.len().saturating_sub(1)),
        }))
    }

    /// The values of a series at some places, as text.
    fn texts(&self, series: &Series, places: &[f64]) -> Vec<String> {
        let values = places.iter().map(|&place| self.across.value(series, place));
        values.map(|value| self.unit.format(value)).collect()
    }
}

/// The last place at which one of the series has a value.
pub(super) fn last(series: &[Series]) -> Option<f64> {
    let ends = series.iter().filter_map(|series| series.finite().last());
    ends.map(|Sample { x, .. }| x).max_by(f64::total_cmp)
}

/// The places of points in the drawing. `value` is what is drawn of a point.
fn path(points: &[Point], x: &Axis, y: &Axis, value: fn(&Point) -> f64) -> Vec<String> {
    points.iter().map(|point| format!("{:.1} {:.1}", across(x, point.x), down(y, value(point)))).collect()
}

/// Position of a place in the drawing, from the left.
fn across(axis: &Axis, x: f64) -> f64 {
    axis.place(x) * SIZE
}

/// Position of a value in the drawing, from the top.
fn down(axis: &Axis, value: f64) -> f64 {
    (1.0 - axis.place(value)) * SIZE
}
