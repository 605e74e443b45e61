//! Results of runs, in a file with one line per run.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::grid::{Dataset, GridRun};

/// The result of a run. Accuracies are in [0, 1].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub test_accuracy: f64,
    pub val_accuracy: f64,
    pub best_epoch: u64,
    /// Wall time of the program.
    pub seconds: f64,
    /// Without the evaluation.
    pub seconds_per_epoch: f64,
    pub gradient_bytes_per_step: f64,
    pub peak_rss_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noted {
    #[serde(flatten)]
    pub run: GridRun,
    #[serde(flatten)]
    pub ended: Ended,
}

/// All finished runs.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    noted: Vec<Noted>,
}

impl State {
    /// Reads the recorded runs, if the file exists.
    ///
    /// # Errors
    /// If the file can't be read, or has invalid lines.
    pub fn open(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        // An unfinished last line is from a bench that was stopped while it wrote.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        if whole.len() < text.len() {
            fs::write(path, whole).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let noted = (1..)
            .zip(whole.lines())
            .map(|(number, line)| {
                serde_json::from_str(line).with_context(|| format!("{}, line {number}: expected a run", path.display()))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            path: path.to_owned(),
            noted,
        })
    }

    pub fn has(&self, run: &GridRun) -> bool {
        self.noted.iter().any(|noted| noted.run == *run)
    }

    /// Records a run with one write.
    pub fn add(&mut self, run: GridRun, ended: Ended) -> Result<()> {
        let noted = Noted { run, ended };
        let line = serde_json::to_string(&noted)? + "\n";
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.noted.push(noted);
        Ok(())
    }

    /// The runs on a dataset.
    pub fn of(&self, dataset: Dataset) -> impl Iterator<Item = &Noted> {
        self.noted.iter().filter(move |noted| noted.run.dataset == dataset)
    }

    /// Estimated processor seconds of `runs`, from similar recorded ones. `None` if one has no similar run.
    pub fn expected_seconds(&self, runs: &[GridRun]) -> Option<f64> {
        let expected = runs.iter().map(|run| {
            let alike: Vec<f64> = self
                .of(run.dataset)
                .filter(|noted| noted.run.layers == run.layers && noted.run.variant.first_hop == run.variant.first_hop)
                .map(|noted| noted.ended.seconds / f64::from(noted.run.epochs) * f64::from(run.epochs))
                .collect();
            (!alike.is_empty()).then(|| alike.iter().sum::<f64>() / alike.len() as f64)
        });
        expected.sum()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::grid::tests::runs;

    pub fn ended(test_accuracy: f64) -> Ended {
        Ended {
            test_accuracy,
            val_accuracy: 0.5,
            best_epoch: 3,
            seconds: 10.0,
            seconds_per_epoch: 0.1,
            gradient_bytes_per_step: 1.0,
            peak_rss_bytes: 1,
        }
    }

    #[test]
    fn finished_runs_are_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let all = runs(&[]);
        let mut state = State::open(&path).unwrap();
        state.add(all[0].clone(), ended(0.7)).unwrap();
        state.add(all[5].clone(), ended(0.8)).unwrap();

        let state = State::open(&path).unwrap();
        let left: Vec<_> = all.iter().filter(|run| !state.has(run)).collect();
        assert_eq!(left.len(), all.len() - 2);
        assert_eq!(
            state
                .of(all[0].dataset)
                .map(|noted| noted.ended.test_accuracy)
                .sum::<f64>(),
            1.5
        );
        let twice = GridRun {
            epochs: 100,
            ..all[0].clone()
        };
        assert!(!state.has(&twice));
        assert_eq!(state.expected_seconds(&[twice]), Some(20.0));
        assert_eq!(
            state.expected_seconds(&[GridRun {
                layers: 7,
                ..all[0].clone()
            }]),
            None
        );
    }

    #[test]
    fn a_line_cut_short_is_forgotten_and_a_strange_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let all = runs(&[]);
        State::open(&path).unwrap().add(all[0].clone(), ended(0.7)).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{}", &whole[..20])).unwrap();
        let mut state = State::open(&path).unwrap();
        assert!(state.has(&all[0]));
        state.add(all[1].clone(), ended(0.7)).unwrap();
        assert_eq!(State::open(&path).unwrap().noted.len(), 2);

        fs::write(&path, format!("{whole}nonsense\n")).unwrap();
        let error = State::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
