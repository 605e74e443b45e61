//! `grappa-train STORE`: from a store to a trained model.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use grappa_console::{Bars, ByteSize, Console, Summary, count, print_line, printable, signals};
use grappa_io::{machine::process_age, progress::Progress};
use grappa_run::{
    config::{Evaluate, Monitor, Preset, TrainConfig},
    folder::RunFolder,
    journal::EpochRecord,
    percent, summary,
};
use grappa_storage::Store;
use grappa_trainer::{
    runtime,
    train::{Watcher, train},
};
use serde::Serialize;

use crate::args;

/// Terminal output during a run.
struct Screen {
    /// Whether to print a line per epoch.
    tells: bool,
    bars: EpochBars,
}

/// Bars whose stages are those of an epoch.
struct EpochBars {
    bars: Bars,
    /// Prefix of the stage names: the number of the epoch.
    prefix: String,
}

impl Progress for EpochBars {
    fn stage(&self, name: &str, bytes: Option<u64>) {
        self.bars.stage(&format!("{}{name}", self.prefix), bytes);
    }

    fn steps(&self, name: &str, steps: u64) {
        self.bars.steps(&format!("{}{name}", self.prefix), steps);
    }

    fn advance(&self, bytes: u64, edges: u64) {
        self.bars.advance(bytes, edges);
    }

    fn is_stopped(&self) -> bool {
        self.bars.is_stopped()
    }
}

#[derive(Serialize)]
struct Trained {
    #[serde(flatten)]
    summary: summary::Summary,
    #[serde(skip)]
    folder: String,
}

pub fn run(path: &Path, options: &args::Train, console: &Console) -> anyhow::Result<()> {
    let store = Arc::new(Store::open(path)?);
    if let Some(preset) = options.sources.preset()? {
        check_preset(preset, &store)?;
    }
    let (folder, config) = open_folder(path, options)?;
    let device = runtime::device(config.device)?;
    runtime::set_threads(config.threads());
    runtime::keep_freed_memory();
    runtime::rest_when_idle();
    let mut screen = Screen {
        tells: console.tells(),
        bars: EpochBars {
            bars: console.passing_bars(),
            prefix: String::new(),
        },
    };
    signals::stops_by_itself("finishing the step and writing a checkpoint");
    let trained = train(store, config, &folder, options.resume, device, &mut screen);
    drop(screen);
    let summary = trained.map_err(|error| match error.is_stopped() {
        true => anyhow!(
            "{error}; continue with `grappa-train {} --out {} --resume`",
            path.display(),
            folder.path().display()
        ),
        false => error.into(),
    })?;
    console.finish(&Trained {
        summary,
        folder: folder.path().display().to_string(),
    })
}

/// Refuses a preset for another graph. A store without features or labels is refused later.
fn check_preset(preset: &Preset, store: &Store) -> grappa_run::Result<()> {
    let manifest = store.manifest();
    match (&manifest.features, manifest.labels) {
        (Some(features), Some(labels)) => preset.check_store(features.dim.into(), labels.classes.into()),
        _ => Ok(()),
    }
}

/// The folder of the new or resumed run, and its configuration.
fn open_folder(store: &Path, options: &args::Train) -> anyhow::Result<(RunFolder, TrainConfig)> {
    let wanted = options.sources.configuration()?;
    if !options.resume {
        let path = wanted.out.clone().unwrap_or_else(|| RunFolder::unused(store));
        return Ok((RunFolder::create(&path, &wanted)?, wanted));
    }
    let path = match wanted.out {
        Some(path) => path,
        None => match RunFolder::last(store) {
            Some(path) => path,
            None => bail!(
                "there is no run on {} to resume in this folder: name the folder of the run with --out",
                store.display()
            ),
        },
    };
    let folder = RunFolder::resume(&path)?;
    let config = options.sources.resumed(&folder.config()?)?;
    folder.write_config(&config)?;
    Ok((folder, config))
}

impl Watcher for Screen {
    fn progress(&self) -> &dyn Progress {
        &self.bars
    }

    fn started(&self) -> Duration {
        process_age().unwrap_or_default()
    }

    fn command(&self) -> String {
        let given = std::env::args_os()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = std::iter::once("grappa-train".to_owned()).chain(given).collect();
        // No word has a zero byte, because the system passes them as C strings.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
    }

    fn tell(&mut self, what: &str) {
        if self.tells {
            let _ = print_line(what);
        }
    }

    fn begin(&mut self, epoch: u64, epochs: u64) {
        self.bars.prefix = format!("epoch {epoch}/{epochs}: ");
    }

    fn epoch(&mut self, record: &EpochRecord, epochs: u64) {
        if self.tells {
            // Training continues after the reader of stdout closed it.
            let _ = print_line(&line(record, epochs));
        }
    }

    fn warn(&mut self, what: &str) {
        tracing::warn!("{what}");
    }
}

/// The line of an epoch.
fn line(record: &EpochRecord, epochs: u64) -> String {
    let width = epochs.to_string().len();
    let mut line = format!("epoch {:width$}/{epochs}  loss {:.4}", record.epoch, record.loss);
    if let Some(loss) = record.val_loss {
        line += &format!("  val loss {loss:.4}");
    }
    let accuracies = [
        ("train", record.train_accuracy),
        ("val", record.val_accuracy),
        ("test", record.test_accuracy),
    ];
    for (name, accuracy) in accuracies {
        if let Some(accuracy) = accuracy {
            line += &format!("  {name} {:.2} %", accuracy * 100.0);
        }
    }
    if record.evaluated == Some(Evaluate::Sampled) {
        line += " (sampled)";
    }
    line += &format!(
        "  {:.2} s  {} edges/s  read {}  sent {}",
        record.seconds,
        count(record.sampled_edges_per_second as u64),
        ByteSize(record.bytes_read),
        ByteSize(record.bytes_sent)
    );
    if let Some(coverage) = record.coverage_mean.filter(|&coverage| coverage < 1.0) {
        line += &format!("  coverage {}", percent(coverage));
    }
    line
}

impl Summary for Trained {
    fn text(&self) -> String {
        let summary = &self.summary;
        let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.2} %", part * 100.0));
        let how = match summary.evaluated {
            Some(Evaluate::Sampled) => " (sampled neighbors)",
            _ => "",
        };
        let val = match (summary.config.monitor, summary.val_loss) {
            (Monitor::Loss, Some(loss)) => format!("loss {loss:.4}"),
            _ => percent(summary.val_accuracy),
        };
        let best = summary.best_epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
        format!(
            "{}: test accuracy {} at the best validation {val}{how} (epoch {best} of {}), in {:.1} s",
            printable(&self.folder),
            percent(summary.test_accuracy),
            summary.epochs,
            summary.seconds_total
        )
    }
}
