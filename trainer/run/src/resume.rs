//! The start of a resumed run: whether its files are complete, where training continues, and the time so far.

use std::path::{Path, PathBuf};

use crate::{
    Error, Result,
    checkpoint::{Checkpoint, Checkpoints, RunState},
    config::{LrSchedule, RateOptions},
    journal::EpochRecord,
    stages::{Stage, StageSeconds},
    watcher::Watcher,
};

/// A larger rise of the learning rate is worth a warning.
const RISE_NOTED: f64 = 1.5;

/// Checks the best model of the run that continues from `latest`. If it is missing or damaged, it is written again if `latest` has its
/// parameters. Otherwise training continues without it, and warns.
///
/// # Errors
/// If it cannot be read for another reason.
pub fn check_best(checkpoints: &Checkpoints, latest: &Checkpoint, watcher: &mut dyn Watcher) -> Result<()> {
    let state = &latest.state;
    let error = match checkpoints.best_of(state) {
        Err(error @ Error::RunFile { .. }) => error,
        found => return found.map(|_| ()),
    };
    if state.best.is_some_and(|best| best.step == state.step) {
        let model =
            Checkpoint { optimizer: Vec::new(), historical: Vec::new(), residuals: Vec::new(), ..latest.clone() };
        if checkpoints.save_best(&model).is_ok() {
            watcher.warn(&format!("{error}; it was written again from the last checkpoint, which has the same model"));
            return Ok(());
        }
    }
    watcher.warn(&format!(
        "{error}; the run keeps its scores, but no predictions can be made with it: restore the file from a copy, or train on until a \
         later epoch is better"
    ));
    Ok(())
}

/// The path and the contents of the checkpoint with the best model of the run in `folder`, or with the last one if there was no evaluation.
///
/// # Errors
/// If the run has no checkpoint, or it is damaged or cannot be read.
pub fn model_of(checkpoints: &Checkpoints, folder: &Path) -> Result<(PathBuf, Checkpoint)> {
    let Some((path, latest)) = checkpoints.latest()?.found else {
        return Err(Error::run_file(folder, "the run has no checkpoint yet: train it first"));
    };
    Ok(checkpoints.best_of(&latest.state)?.unwrap_or((path, latest)))
}

/// A warning if the learning rate is much larger than the rate of the last epoch, `last`: more epochs stretch the cosine schedule, which
/// had come to its end.
pub fn rise_of_rate(state: &RunState, options: &RateOptions, last: f64) -> Option<String> {
    let next = state.learning_rate.at(options, state.epoch, 0, 1);
    let rises = options.lr_schedule == LrSchedule::Cosine && state.epoch < options.epochs && next > RISE_NOTED * last;
    rises.then(|| {
        format!(
            "the learning rate rises from {last:.2e} to {next:.2e}, because --epochs {} stretches the cosine schedule; accuracy may \
             fall for some epochs",
            options.epochs
        )
    })
}

/// Says where training continues.
pub fn tell(state: &RunState, [epochs, early_stopping]: [u64; 2], path: &Path, watcher: &mut dyn Watcher) {
    let done = state.epoch;
    if done > epochs {
        watcher.tell(&format!("nothing is left to train: {done} epochs are finished, and --epochs is {epochs}"));
    } else if done < epochs && !state.ended_early(epochs, early_stopping) {
        let steps = match state.partial {
            Some(partial) => format!(" and {} step(s) of the next", partial.steps),
            None => String::new(),
        };
        watcher.tell(&format!("continues after epoch {done} of {epochs}{steps}, from {}", path.display()));
    }
}

/// Wall time of the processes that worked on a run up to a state. Versions that measured no stages only knew the sum: the rest of
/// it counts as opening.
pub fn seconds_before(state: &RunState, records: &[EpochRecord]) -> StageSeconds {
    let known = state.seconds_by_stage.max(sum(records));
    let unknown = (state.seconds - known.total()).max(0.0);
    known + [(Stage::Open, unknown)].into_iter().collect()
}

/// The wall time that records have, or had: if some were lost, the next one must not take their time.
pub fn recorded(state: &RunState, records: &[EpochRecord]) -> StageSeconds {
    match records.len() as u64 == state.epoch {
        true => sum(records),
        false => state.seconds_by_stage.max(sum(records)),
    }
}

fn sum(records: &[EpochRecord]) -> StageSeconds {
    records.iter().map(|record| record.seconds_by_stage).fold(StageSeconds::default(), |sum, seconds| sum + seconds)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use grappa_io::progress::{Progress, Silent};
    use tempfile::tempdir;

    use super::*;
    use crate::{
        checkpoint::{Best, NamedTensor},
        config::TrainConfig,
    };

    #[derive(Default)]
    struct Told {
        told: Vec<String>,
        warnings: Vec<String>,
    }

    impl Watcher for Told {
        fn progress(&self) -> &dyn Progress {
            &Silent
        }

        fn tell(&mut self, message: &str) {
            self.told.push(message.to_owned());
        }

        fn epoch(&mut self, _record: &EpochRecord, _epochs: u64) {}

        fn warn(&mut self, message: &str) {
            self.warnings.push(message.to_owned());
        }
    }

    fn checkpoint(step: u64, best: u64) -> Checkpoint {
        Checkpoint {
            state: RunState {
                epoch: step / 10,
                step,
                best: Some(Best { epoch: best / 10, step: best, val: 0.5, test: None }),
                ..RunState::default()
            },
            parameters: vec![NamedTensor::from_f32("weight", &[1], &[step as f32])],
            buffers: Vec::new(),
            optimizer: vec![NamedTensor::from_f32("first", &[1], &[0.5])],
            historical: Vec::new(),
            residuals: Vec::new(),
            embeddings: Vec::new(),
        }
    }

    #[test]
    fn a_missing_or_damaged_best_model_is_warned_about_or_written_again() {
        let folder = tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
        let warning = |latest: &Checkpoint| {
            let mut told = Told::default();
            check_best(&checkpoints, latest, &mut told).unwrap();
            told.warnings.pop()
        };
        let path = checkpoints.save_best(&checkpoint(20, 20)).unwrap();
        assert_eq!(warning(&checkpoint(30, 20)), None);
        fs::write(&path, "damaged").unwrap();
        let damaged = warning(&checkpoint(30, 20)).unwrap();
        assert!(damaged.contains("best-000000000020") && damaged.contains("restore the file from a copy"), "{damaged}");
        fs::remove_file(&path).unwrap();
        let missing = warning(&checkpoint(30, 20)).unwrap();
        assert!(missing.contains("epoch 2, is missing") && missing.contains("no predictions"), "{missing}");
        // The last checkpoint has the same model.
        let again = warning(&checkpoint(20, 20)).unwrap();
        assert!(again.contains("written again"), "{again}");
        let written = Checkpoint::read(&path).unwrap();
        assert_eq!(written.parameters, checkpoint(20, 20).parameters);
        assert!(written.optimizer.is_empty());
        assert_eq!(warning(&checkpoint(20, 20)), None);
    }

    #[test]
    fn a_resumed_run_says_where_it_continues_or_that_nothing_is_left() {
        let told = |epochs| {
            let mut told = Told::default();
            tell(&checkpoint(30, 20).state, [epochs, 0], Path::new("run/step-30"), &mut told);
            told.told
        };
        assert_eq!(told(9), ["continues after epoch 3 of 9, from run/step-30"]);
        assert_eq!(told(3), Vec::<String>::new());
        assert_eq!(told(2), ["nothing is left to train: 3 epochs are finished, and --epochs is 2"]);
    }

    #[test]
    fn more_epochs_after_the_end_of_a_cosine_are_a_warning() {
        let config = |epochs, lr_schedule| TrainConfig { epochs, lr_schedule, ..TrainConfig::default() }.rate_options();
        let state = RunState { epoch: 20, ..RunState::default() };
        let ended = state.learning_rate.at(&config(20, LrSchedule::Cosine), 19, 9, 10);
        let warning = rise_of_rate(&state, &config(40, LrSchedule::Cosine), ended).expect("it rises");
        assert!(warning.contains("--epochs 40 stretches the cosine"), "{warning}");
        assert_eq!(rise_of_rate(&state, &config(20, LrSchedule::Cosine), ended), None);
        let constant = config(40, LrSchedule::Constant);
        assert_eq!(rise_of_rate(&state, &constant, constant.lr), None);
        // An undisturbed run that continues in the middle.
        let before = state.learning_rate.at(&config(40, LrSchedule::Cosine), 19, 9, 10);
        assert_eq!(rise_of_rate(&state, &config(40, LrSchedule::Cosine), before), None);
    }
}
