//! Evaluation while training, by exact inference or by sampled neighbors.
//!
//! Only nodes that the scores depend on are computed ([`Needed`](crate::train::inference::Needed)). Test nodes are scored when the validation
//! score improved, because nothing else needs their score. If the test nodes cost little beside the validation nodes, one inference scores
//! both.
//!
//! If several processes train together, each scores a part of the nodes. Rank 0 adds up the counts, so it reports the scores that a
//! single process has.

use grappa_run::{
    config::{Evaluate, Monitor},
    model::LayerKind,
    scores::ScoreReport,
};
use roaring::RoaringTreemap;

use super::{
    minibatch_scores::sampled_scores,
    scored_nodes::{Scored, ScoredNodes, inference_time},
};
use crate::train::{
    data::splits::{SplitScores, TEST, VAL},
    halo::history::History,
    memory::Room,
    model_on_graph::ModelOnGraph,
};
use crate::{Result, runtime::release_memory};

/// Scores of an evaluation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Scores on the validation nodes.
    pub val: ScoreReport,
    /// Scores on the test nodes; none if the validation score did not improve and they were not computed.
    pub test: Option<ScoreReport>,
    /// How the scores were computed: exactly or by sampling.
    pub method: Evaluate,
}

impl Evaluation {
    /// The number that decides which evaluation is best, higher is better ([`Monitor::value_in`]). None without validation nodes.
    pub fn score(&self, monitor: Monitor) -> Option<f64> {
        monitor.value_in(&self.val)
    }

    /// Accuracy on the test nodes, or the RMSE of targets, if they were scored.
    pub(crate) fn test_score(&self) -> Option<f64> {
        self.test.as_ref().and_then(|test| {
            let mrr = test.links.as_ref().and_then(|links| links.filtered.mrr);
            mrr.or(test.rmse).or(test.accuracy)
        })
    }

    /// Accuracy on the test nodes, if they were scored.
    pub fn test_accuracy(&self) -> Option<f64> {
        self.test.as_ref().and_then(|test| test.accuracy)
    }
}

/// The scores of an inference for validation and test nodes.
fn together(reports: Vec<ScoreReport>, method: Evaluate) -> Evaluation {
    let [val, test] = <[ScoreReport; 2]>::try_from(reports).expect("two splits were scored");
    Evaluation { val, test: Some(test), method }
}

/// How a run evaluates its model.
#[derive(Default)]
pub(crate) struct Evaluations {
    /// The nodes that evaluations compute; none before the first evaluation.
    pub scored: Option<ScoredNodes>,
    /// Seconds per unit of work, by the forward and backward passes of a whole epoch.
    seconds_per_work: Option<f64>,
}

impl Evaluations {
    /// Decides how to evaluate the model. `before` is how the run was evaluated before it was resumed, which only rank 0 knows: `auto`
    /// keeps to that. Returns a sentence about the evaluations.
    ///
    /// # Errors
    /// If an exact evaluation needs more disk than is free. Also if files cannot be read, or progress says to stop.
    pub fn prepare(
        &mut self,
        on: &mut ModelOnGraph<'_>,
        history: &History,
        before: Option<Evaluate>,
    ) -> Result<String> {
        let is_auto = on.config.evaluate == Evaluate::Auto;
        let method = before.filter(|_| is_auto).unwrap_or(on.config.evaluate);
        let retained = history.memory() + self.memory();
        let mut scored = ScoredNodes::choose(on, method)?;
        let mut checked = scored.check_disk(on, retained);
        if let Err(error) = &checked
            && error.is_disk_full()
            && scored.method() == Evaluate::Exact
            && is_auto
        {
            scored = ScoredNodes::of_samples(on)?;
            checked = scored.check_disk(on, retained);
        }
        match checked {
            // Minibatches need no disk.
            Err(error) if error.is_disk_full() && scored.method() == Evaluate::Sampled => {
                scored = ScoredNodes::Minibatches;
            }
            checked => checked?,
        }
        let sentence = scored.describe(on, retained)?;
        self.scored = Some(scored);
        Ok(sentence)
    }

    /// Evaluates the model after `epoch`, as [`Evaluations::prepare`] planned. `improves` says whether a validation score is better than
    /// all before; the test nodes are scored if it is, or if there is no validation score.
    ///
    /// If the next epoch begins with a refresh of the historical embeddings, the same inference makes them.
    ///
    /// None on ranks other than 0. They all have to take part; only rank 0 asks whether a score `improves`.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(
        &mut self,
        on: &mut ModelOnGraph<'_>,
        history: &mut History,
        epoch: u64,
        improves: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Evaluation>> {
        let scored = match self.scored.take() {
            Some(scored) => scored,
            None => ScoredNodes::choose(on, on.config.evaluate)?,
        };
        let evaluated = match &scored {
            ScoredNodes::Together(both) if !both.needed.is_sampled() && history.is_refreshed_with(epoch, on) => {
                evaluate_and_refresh(on, history)
            }
            _ => evaluate_nodes(on, history.memory(), &scored, improves),
        };
        self.scored = Some(scored);
        evaluated
    }

    /// Finds the nodes of an exact evaluation, whatever the configuration says. Frees the historical embeddings.
    ///
    /// # Errors
    /// If files cannot be read, or memory is too small.
    pub fn scored_exactly(&mut self, on: &ModelOnGraph<'_>, history: &mut History) -> Result<Scored> {
        history.clear();
        self.scored.iter_mut().for_each(ScoredNodes::clear);
        let [val, test] = &on.data.scored_splits;
        let needed = on.needed(&[val, test], &[], &[], f64::INFINITY)?;
        Ok(Scored::once(needed.expect("there is no limit"), &on.config.folder))
    }

    /// Bytes of memory of what stays from one evaluation to the next, apart from sets of nodes.
    pub fn memory(&self) -> u64 {
        self.scored.as_ref().map_or(0, ScoredNodes::memory)
    }

    /// Frees what inferences keep only to save time, before a feed opens.
    pub fn free_memory(&mut self) {
        self.scored.iter_mut().for_each(ScoredNodes::free_memory);
        release_memory();
    }

    /// Learns how fast this machine is: the forward and backward passes of an epoch of `work` took `seconds`.
    pub fn took(&mut self, seconds: f64, work: Option<f64>) {
        self.seconds_per_work = work.filter(|&work| work > 0.0).map(|work| seconds / work);
    }

    /// About how many seconds an inference takes, or the next evaluation. None before the first epoch, and if minibatches are evaluated.
    pub fn seconds_of(&self, scored: Option<&Scored>, model: LayerKind) -> Option<f64> {
        let scored = scored.or_else(|| self.scored.as_ref()?.first())?;
        let seconds = self.seconds_per_work?;
        Some(inference_time(model) * seconds * scored.work)
    }
}

/// Evaluates the model exactly. All ranks call it with the result of [`Evaluations::scored_exactly`].
pub(crate) fn evaluate_exactly(on: &mut ModelOnGraph<'_>, scored: Result<Scored>) -> Result<Option<Evaluation>> {
    // Nothing stays from other evaluations.
    let room = on.make_room(0, false)?;
    let [val, test] = &on.data.scored_splits;
    let scores = scored.and_then(|once| scores(on, room, &once, &[val, test]));
    let reports = reports(on, scores)?;
    Ok(reports.map(|reports| together(reports, Evaluate::Exact)))
}

/// Exact scores and historical embeddings, from one inference.
fn evaluate_and_refresh(on: &mut ModelOnGraph<'_>, history: &mut History) -> Result<Option<Evaluation>> {
    let [val, test] = &on.data.scored_splits;
    let mut scores = SplitScores::new([&**val, &**test], on.data.labels().spec(), true, on.target_scale().as_ref());
    let refreshed = history.refresh(on, 0, Some(&mut scores));
    let scores = history.refreshed(refreshed.map(|()| scores), on.processes, on.progress)?;
    let reports = reports_of(on, scores)?;
    Ok(reports.map(|reports| together(reports, Evaluate::Exact)))
}

fn evaluate_nodes(
    on: &mut ModelOnGraph<'_>,
    retained: u64,
    scored: &ScoredNodes,
    improves: &dyn Fn(f64) -> bool,
) -> Result<Option<Evaluation>> {
    let (val_nodes, test_nodes) = match scored {
        ScoredNodes::Minibatches => (None, None),
        ScoredNodes::Apart(both) => (Some(&both[VAL]), Some(&both[TEST])),
        ScoredNodes::Together(both) => {
            let [val, test] = &on.data.scored_splits;
            let room = on.make_room(retained, false)?;
            let scores = scores(on, room, both, &[val, test]);
            let reports = reports(on, scores)?;
            return Ok(reports.map(|reports| together(reports, scored.method())));
        }
    };
    let val = report(on, retained, VAL, val_nodes)?;
    let is_tested = on.processes.broadcast("test", || {
        let val = val.as_ref().expect("rank 0 has the scores");
        Ok(on.config.monitor.value_in(val).is_none_or(improves))
    })?;
    let test = match is_tested {
        true => report(on, retained, TEST, test_nodes)?,
        false => None,
    };
    let method = scored.method();
    Ok(val.map(|val| Evaluation { val, test, method }))
}

/// The scores of the validation or of the test nodes, by an inference or, without one, by minibatches. None on ranks other than 0.
fn report(
    on: &mut ModelOnGraph<'_>,
    retained: u64,
    split: usize,
    scored: Option<&Scored>,
) -> Result<Option<ScoreReport>> {
    let data = on.data;
    let scores = match scored {
        // The processes of a host divide the minibatches, not the nodes.
        None => sampled_scores(on, [data.splits.val(), data.splits.test()][split]),
        Some(scored) => {
            let room = on.make_room(retained, false)?;
            scores(on, room, scored, &[&data.scored_splits[split]])
        }
    };
    let reports = reports(on, scores)?;
    Ok(reports.map(|mut reports| reports.remove(0)))
}

/// The scores of all processes, after each has scored its part. None on ranks other than 0.
fn reports(on: &ModelOnGraph<'_>, scored: Result<SplitScores<'_>>) -> Result<Option<Vec<ScoreReport>>> {
    reports_of(on, on.processes.agree(scored, on.progress)?)
}

/// The scores of all processes, after none has failed.
fn reports_of(on: &ModelOnGraph<'_>, mut scores: SplitScores<'_>) -> Result<Option<Vec<ScoreReport>>> {
    if let Some(group) = &on.processes.group {
        let Some(all) = group.gather_words(&scores.as_words(), on.progress)? else {
            return Ok(None);
        };
        all[1..].iter().for_each(|words| scores.merge_words(words));
    }
    Ok(Some(scores.reports()))
}

/// Scores the nodes of `splits`, which are among the wanted ones.
fn scores<'a>(
    on: &ModelOnGraph<'_>,
    room: Room,
    scored: &Scored,
    splits: &[&'a RoaringTreemap],
) -> Result<SplitScores<'a>> {
    let labels = &on.data.labels();
    let mut scores = SplitScores::new(splits.iter().copied(), labels.spec(), true, on.target_scale().as_ref());
    let mut take = scores.receiver(scored.needed.results(), labels);
    let room = Room { inference: room.inference.saturating_sub(scored.first_inputs.bytes()), ..room };
    on.infer(room, &scored.needed, Some(&scored.first_inputs), &mut take)?;
    drop(take);
    Ok(scores)
}
