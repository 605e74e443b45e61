//! Wall time by stage.
//!
//! A [`StageClock`] is in one stage at any time, so the stages of a run add up to its wall time. They are stages of the training
//! loop: the work of other threads counts only while the loop waits for it.

use std::{
    collections::BTreeMap,
    ops::{Add, Index, Sub},
    time::{Duration, Instant},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::named_enums;

named_enums! {
    /// The work that the training loop does, or waits for. Its name is a key of `seconds_by_stage`.
    "stage" Stage {
        /// Starting the program, opening the store, making the model, reading a checkpoint.
        Open = "open",
        /// Pre-aggregating features.
        Preaggregate = "preaggregate",
        /// Assigning chunks to partitions, opening their views, and loading the features that stay in memory.
        Load = "load",
        /// Computing the historical embeddings of halo nodes.
        History = "history",
        /// Waiting for sampled minibatches; with a GPU also until they are loaded.
        Sample = "sample",
        /// Waiting for feature rows from the disk.
        Read = "read",
        /// Waiting for feature rows to be copied into minibatches.
        Assemble = "assemble",
        /// Loading tensors and computing losses.
        Forward = "forward",
        /// Computing gradients.
        Backward = "backward",
        /// Exchanging gradients and updating the parameters.
        Exchange = "exchange",
        /// Evaluation.
        Evaluate = "evaluate",
        /// Copying checkpoints, and waiting until they are written.
        Checkpoint = "checkpoint",
        /// Writing metrics, and waiting until the report is written.
        Report = "report",
    }
}

impl Stage {
    /// Whether the stage comes before the epochs, of a new run or of a resumed one.
    pub fn is_start_up(self) -> bool {
        matches!(self, Self::Open | Self::Preaggregate)
    }

    /// Whether the stage is part of training an epoch.
    pub fn is_training(self) -> bool {
        match self {
            Self::Load | Self::Sample | Self::Read | Self::Assemble => true,
            Self::Forward | Self::Backward | Self::Exchange => true,
            Self::Open | Self::Preaggregate | Self::History => false,
            Self::Evaluate | Self::Checkpoint | Self::Report => false,
        }
    }
}

/// Seconds of each stage. As JSON it is an object with a key per stage; a missing key is 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageSeconds([f64; Stage::ALL.len()]);

impl StageSeconds {
    /// The sum of all stages.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The sum of the stages of training, without evaluation and files.
    pub fn training(&self) -> f64 {
        let training = self.iter().filter(|(stage, _)| stage.is_training());
        training.map(|(_, seconds)| seconds).sum()
    }

    /// The sum of the stages before the epochs.
    pub fn start_up(&self) -> f64 {
        let start_up = self.iter().filter(|(stage, _)| stage.is_start_up());
        start_up.map(|(_, seconds)| seconds).sum()
    }

    /// Stages and their seconds, in the order of a run.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, f64)> {
        Stage::ALL.iter().copied().zip(self.0)
    }

    /// The larger number of each stage.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|stage| self.0[stage].max(other.0[stage])))
    }
}

impl Index<Stage> for StageSeconds {
    type Output = f64;

    fn index(&self, stage: Stage) -> &f64 {
        &self.0[stage as usize]
    }
}

impl FromIterator<(Stage, f64)> for StageSeconds {
    fn from_iter<I: IntoIterator<Item = (Stage, f64)>>(stages: I) -> Self {
        let mut seconds = Self::default();
        for (stage, value) in stages {
            seconds.0[stage as usize] += value;
        }
        seconds
    }
}

impl Add for StageSeconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|stage| self.0[stage] + other.0[stage]))
    }
}

impl Sub for StageSeconds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(std::array::from_fn(|stage| self.0[stage] - other.0[stage]))
    }
}

impl Serialize for StageSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(stage, seconds)| (stage.name(), seconds)))
    }
}

impl<'de> Deserialize<'de> for StageSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let known = named.iter().filter_map(|(name, seconds)| Some((name.parse().ok()?, *seconds)));
        Ok(known.collect())
    }
}

/// Measures the wall time of the stages of a run.
#[derive(Debug)]
pub struct StageClock {
    finished: StageSeconds,
    stage: Stage,
    since: Instant,
}

impl StageClock {
    /// A clock of a process that started `ago` and was in the stage [`Stage::Open`] since then.
    pub fn started(ago: Duration) -> Self {
        Self {
            finished: [(Stage::Open, ago.as_secs_f64())].into_iter().collect(),
            stage: Stage::Open,
            since: Instant::now(),
        }
    }

    /// Ends the current stage, enters another one, and returns the ended one.
    pub fn enter(&mut self, stage: Stage) -> Stage {
        let now = Instant::now();
        self.finished.0[self.stage as usize] += (now - self.since).as_secs_f64();
        self.since = now;
        std::mem::replace(&mut self.stage, stage)
    }

    /// Says that `seconds` of the stage `from` belong to the stage `to`; at most as many as it has.
    pub fn shift(&mut self, from: Stage, to: Stage, seconds: f64) {
        let shifted = seconds.clamp(0.0, self.finished[from]);
        self.finished.0[from as usize] -= shifted;
        self.finished.0[to as usize] += shifted;
    }

    /// Seconds of all stages until now.
    pub fn seconds(&mut self) -> StageSeconds {
        self.enter(self.stage);
        self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_add_up_to_the_wall_time() {
        let begin = Instant::now();
        let mut clock = StageClock::started(Duration::from_secs(3));
        for stage in Stage::ALL.iter().copied().cycle().take(100) {
            clock.enter(stage);
            std::thread::sleep(Duration::from_micros(100));
        }
        let (seconds, wall) = (clock.seconds(), 3.0 + begin.elapsed().as_secs_f64());
        assert!((seconds.total() - wall).abs() < 0.01, "{seconds:?} of {wall}");
        assert!(seconds.iter().all(|(_, seconds)| seconds > 0.0), "{seconds:?}");
    }

    #[test]
    fn a_shift_changes_no_sum() {
        let mut clock = StageClock::started(Duration::from_secs(3));
        clock.enter(Stage::Read);
        let before = clock.seconds();
        clock.shift(Stage::Open, Stage::Sample, 1.0);
        clock.shift(Stage::Open, Stage::Assemble, 100.0);
        let after = clock.seconds();
        assert_eq!(after[Stage::Sample], 1.0);
        assert_eq!(after[Stage::Open], 0.0);
        assert!((after.total() - before.total()).abs() < 0.1);
    }

    #[test]
    fn all_stages_are_keys_in_order_and_missing_ones_are_zero() {
        let seconds: StageSeconds = Stage::ALL.iter().copied().zip((1..).map(f64::from)).collect();
        let json = serde_json::to_string(&seconds).unwrap();
        assert!(json.starts_with(r#"{"open":1.0,"preaggregate":2.0,"load":3.0,"#), "{json}");
        assert_eq!(serde_json::from_str::<StageSeconds>(&json).unwrap(), seconds);
        let sparse: StageSeconds = serde_json::from_str(r#"{"evaluate":2.5,"later":1}"#).unwrap();
        assert_eq!(sparse, [(Stage::Evaluate, 2.5)].into_iter().collect());
    }
}
