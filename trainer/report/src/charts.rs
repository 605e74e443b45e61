//! The charts of a run: which values it draws, and which it states as text.

use grappa_run::{
    config::Monitor,
    journal::EpochRecord,
    model::Task,
    scores::ScoreReport,
    stages::{Stage, StageSeconds},
};

use crate::{
    html::color_of_stage,
    plot::{self, Across, Kind, Plot},
    scale::Unit,
    series::{Sample, Series},
    tables,
};

/// The records of a run, as charts.
pub(super) struct Charts<'a> {
    pub records: &'a [EpochRecord],
    pub task: Task,
    pub monitor: Monitor,
    pub best: Option<u64>,
    /// Number of partitions.
    pub partitions: u32,
}

impl Charts<'_> {
    /// All charts, and a list of the values that need none.
    pub(super) fn html(&self) -> String {
        if self.records.is_empty() {
            return "<p class=\"note\">No epoch is finished yet.</p>\n".to_owned();
        }
        let (mut figures, mut texts) = (String::new(), Vec::new());
        for plot in self.plots() {
            match plot.text() {
                Some(text) => texts.push((plot.title, text)),
                None => figures += &plot.html(),
            }
        }
        if !texts.is_empty() {
            let list = tables::facts(texts.iter().map(|(title, text)| (title.as_str(), text.as_str())));
            figures += &format!(
                "<section id=\"constant\">\n<h2>Without a chart</h2>\n<p class=\"note\">The same in every epoch.</p>\n{list}</section>\n"
            );
        }
        format!("<div class=\"plots\">\n{figures}</div>\n")
    }

    /// The first one is the largest on the page: what the run monitors.
    fn plots(&self) -> [Plot; 8] {
        let mut plots = [
            self.score(),
            self.loss(),
            self.stages(),
            self.of_partitions(
                self.plot(
                    ["plot-coverage", "Coverage of seeds", "mean fraction of in-neighbors"],
                    (Unit::Part, Kind::LinesFromZero),
                    vec![self.series("coverage", "single", |record| record.coverage_mean)],
                ),
                "100 %: one partition sees every neighborhood whole",
            ),
            self.plot(
                ["plot-read", "Read from files", "bytes per epoch"],
                (Unit::Bytes, Kind::Bars),
                vec![self.series("read", "single", |record| Some(record.bytes_read as f64))],
            ),
            self.of_partitions(
                self.plot(
                    ["plot-gradients", "Gradients summed over partitions", "bytes per epoch"],
                    (Unit::Bytes, Kind::Bars),
                    vec![self.series("gradients", "single", |record| Some(record.gradient_bytes as f64))],
                ),
                "none: there is one partition",
            ),
            self.plot(
                ["plot-edges", "Sampled edges", "edges per second of training"],
                (Unit::EdgesPerSecond, Kind::LinesFromZero),
                vec![self.series("edges", "single", |record| Some(record.sampled_edges_per_second))],
            ),
            self.plot(
                ["plot-rate", "Learning rate", "learning rate of the last step"],
                (Unit::Number, Kind::LinesFromZero),
                vec![self.series("rate", "single", |record| Some(record.learning_rate))],
            ),
        ];
        if self.monitor == Monitor::Loss {
            plots.swap(0, 1);
        }
        plots
    }

    fn score(&self) -> Plot {
        // Losses have a chart anyway.
        let monitor = if self.monitor == Monitor::Loss { Monitor::Score } else { self.monitor };
        let name = monitor.shown_name(self.task);
        let (title, axis) = match name {
            "accuracy" => ("Accuracy", name),
            "micro F1" => ("Micro F1", name),
            "macro F1" => ("Macro F1", "mean F1 of the classes"),
            "ROC-AUC" => (name, "area under the ROC curve"),
            "average precision" => ("Average precision", "area under precision by recall"),
            "RMSE" => (name, "root of the mean squared error"),
            "MAE" => (name, "mean absolute error"),
            "MRR" => (name, "mean reciprocal rank"),
            "Hits@10" => (name, "share of edges"),
            "Recall@20" => (name, "mean share of held-out destinations"),
            "MAP@20" => (name, "mean average precision"),
            "NDCG@20" => (name, "mean discounted gain"),
            _ => (name, name),
        };
        let is_accuracy = name == Task::MultiClass.score_name();
        // Only classes have an accuracy in training.
        let series = vec![
            self.series("train", "train", |record| {
                record.train_accuracy.filter(|_| is_accuracy && self.task == Task::MultiClass)
            }),
            self.evaluated("val", "val", |record| record.monitored(monitor, self.task)[0]),
            self.evaluated("test", "test", |record| record.monitored(monitor, self.task)[1]),
        ];
        let kind = (Unit::of_monitor(monitor, self.task), Kind::Lines);
        Plot {
            best: self.best.map(|epoch| epoch as f64),
            empty: "no evaluation yet",
            ..self.plot(["plot-accuracy", title, axis], kind, measured(series))
        }
    }

    fn loss(&self) -> Plot {
        let series = vec![
            self.series("train", "loss", |record| Some(record.loss)),
            self.evaluated("val", "val", |record| record.val_loss),
        ];
        let axis = loss_axis(self.task);
        Plot {
            best: self.best.filter(|_| self.monitor == Monitor::Loss).map(|epoch| epoch as f64),
            ..self.plot(["plot-loss", "Loss", axis], (Unit::Number, Kind::Lines), measured(series))
        }
    }

    fn stages(&self) -> Plot {
        let seconds = self.records.iter().map(|record| record.seconds_by_stage);
        let total = seconds.reduce(|sum, seconds| sum + seconds).unwrap_or_default();
        let shown = total.iter().filter(|(stage, seconds)| !stage.is_start_up() && *seconds != 0.0);
        let series = shown.map(|(stage, _)| self.stage(stage)).collect();
        Plot {
            note: start_up(&total),
            ..self.plot(["plot-time", "Time by stage", "wall time per epoch"], (Unit::Seconds, Kind::Bars), series)
        }
    }

    fn stage(&self, stage: Stage) -> Series {
        self.series(stage.name(), &color_of_stage(stage), |record| Some(record.seconds_by_stage[stage]))
    }

    /// A plot of values by epoch: its id, its title and the title of its axis.
    fn plot(&self, [id, title, axis]: [&'static str; 3], (unit, kind): (Unit, Kind), mut series: Vec<Series>) -> Plot {
        let best = self.best.filter(|&best| self.records.iter().any(|record| record.epoch == best));
        let rest = best.map(|epoch| epoch as f64).or_else(|| plot::last(&series));
        series.iter_mut().for_each(|series| series.rest = rest);
        let epoch = if best.is_some() { "best epoch" } else { "epoch" };
        Plot {
            id: id.to_owned(),
            title: title.to_owned(),
            axis,
            unit,
            kind,
            series,
            resting: rest.map_or_else(String::new, |rest| format!("{epoch} {rest}")),
            ..Plot::default()
        }
    }

    /// A value of every epoch.
    fn series(&self, name: &str, color: &str, value: impl Fn(&EpochRecord) -> Option<f64>) -> Series {
        series(name, color, self.records.iter(), value)
    }

    /// A value of the epochs after which the model was evaluated. Lines connect these, whatever was trained in between.
    fn evaluated(&self, name: &str, color: &str, value: impl Fn(&EpochRecord) -> Option<f64>) -> Series {
        series(name, color, self.records.iter().filter(|record| record.evaluated.is_some()), value)
    }

    /// A plot that says something if there are several partitions. Else `alone` does.
    fn of_partitions(&self, plot: Plot, alone: &'static str) -> Plot {
        match self.partitions {
            1 => Plot { series: Vec::new(), empty: alone, ..plot },
            _ => plot,
        }
    }
}

/// The title of an axis of losses.
pub(super) fn loss_axis(task: Task) -> &'static str {
    match task {
        Task::Links => "mean loss of edges",
        Task::MultiClass | Task::MultiLabel | Task::Regression => "mean loss of nodes",
    }
}

/// The curve of precision by recall of class 1 of two. None without it.
pub(super) fn precision_recall(scores: &ScoreReport) -> Option<Plot> {
    let samples: Vec<Sample> = scores.precision_recall.iter().map(|&[x, value]| Sample { x, value }).collect();
    let rest = Some(samples.last()?.x);
    Some(Plot {
        id: "plot-precision-recall".to_owned(),
        title: "Precision by recall".to_owned(),
        across: Across::Recall,
        axis: "precision of class 1",
        unit: Unit::Part,
        kind: Kind::LinesFromZero,
        series: vec![Series {
            name: "precision".to_owned(),
            color: "test".to_owned(),
            samples,
            rest,
            whole: scores.average_precision,
            marks: None,
        }],
        resting: match scores.average_precision {
            Some(_) => "average precision".to_owned(),
            None => "of all nodes in the class".to_owned(),
        },
        ..Plot::default()
    })
}

fn series<'a>(
    name: &str,
    color: &str,
    records: impl Iterator<Item = &'a EpochRecord>,
    value: impl Fn(&EpochRecord) -> Option<f64>,
) -> Series {
    let samples = records.map(|record| Sample { x: record.epoch as f64, value: value(record).unwrap_or(f64::NAN) });
    Series { name: name.to_owned(), color: color.to_owned(), samples: samples.collect(), ..Series::default() }
}

/// Leaves out series without any value: a store without test nodes has no test curve.
fn measured(mut series: Vec<Series>) -> Vec<Series> {
    series.retain(|series| series.finite().next().is_some());
    series
}

/// The time before epochs, in HTML. A resumed run starts more than once.
fn start_up(seconds: &StageSeconds) -> String {
    let start_up = seconds.start_up();
    if start_up.is_nan() || start_up <= 0.0 {
        return String::new();
    }
    let stages: Vec<String> = seconds
        .iter()
        .filter(|(stage, seconds)| stage.is_start_up() && *seconds > 0.0)
        .map(|(stage, seconds)| {
            let color = color_of_stage(stage);
            format!(
                "<span class=\"whole\"><i class=\"{color}\"></i>{} {}</span>",
                stage.name(),
                Unit::Seconds.format(seconds)
            )
        })
        .collect();
    format!("Start-up, apart from epochs: {} ({})", Unit::Seconds.format(start_up), stages.join(", "))
}
