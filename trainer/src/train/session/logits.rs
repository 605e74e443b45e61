//! What the first evaluations of a run say about its logits and its classes.

use grappa_formats::NodeId;
use grappa_io::size::count;
use grappa_run::model::significant;

use super::{run::RunInProgress, watcher::Watcher};
use crate::{
    Error, Result,
    train::{evaluate::evaluations::Evaluation, options::advice},
};

impl RunInProgress<'_, '_> {
    /// Tells the accuracy of the largest class, or the error of the mean, once, beside the first score of the model.
    pub(super) fn tell_baseline(&mut self, evaluation: &Evaluation, watcher: &mut dyn Watcher) {
        if self.output.state.best.is_some() || std::mem::replace(&mut self.told_baseline, true) {
            return;
        }
        let (monitor, val) = (self.trainer.config.monitor, &evaluation.val);
        if val.undecided == 0 && evaluation.score(monitor).is_some_and(f64::is_nan) {
            watcher.warn(&format!(
                "monitor is {monitor}, and it has no value on the {} validation nodes, for example because all have the same label; the run \
                 cannot tell which epoch is the best: use --monitor loss, or other validation nodes",
                count(val.nodes)
            ));
        }
        let baseline = advice::majority_baseline(self.trainer.data.task(), &evaluation.val);
        if let Some(baseline) = baseline {
            watcher.tell(&format!(
                "baseline: predicting the largest class for all {} validation nodes is right for {:.2} %",
                count(evaluation.val.nodes),
                100.0 * baseline
            ));
        }
        if let [target] = &evaluation.val.per_target[..]
            && let Some(rmse) = target.baseline_rmse
        {
            watcher.tell(&format!(
                "baseline: predicting the mean of the training nodes for all {} validation nodes has RMSE {}",
                count(evaluation.val.nodes),
                significant(rmse)
            ));
        }
    }

    /// Warns about scored nodes that have NaN logits, once.
    pub(super) fn check_logits(&mut self, evaluation: &Evaluation, watcher: &mut dyn Watcher) -> Result<()> {
        let (kind, report) = match &evaluation.test {
            Some(test) if evaluation.val.nodes == 0 => ("test", test),
            _ => ("validation", &evaluation.val),
        };
        let Some(first) = report.first_undecided else {
            return Ok(());
        };
        let (epoch, name) = (self.output.state.epoch + 1, self.trainer.data.store.ids().name(NodeId(first)));
        let are_nan = format!(
            "{} of {} {kind} nodes have NaN logits after epoch {epoch}, the first is {name}",
            report.undecided, report.nodes
        );
        if report.is_undecided() {
            return Err(Error::Diverged(format!(
                "{are_nan}: the model predicts nothing; if the store was ingested with --allow-nan, ingest without it to get a list of \
                 NaN features, else try a smaller --lr, or --clip 1; checkpoints of earlier epochs, if there are any, are intact"
            )));
        }
        if !std::mem::replace(&mut self.warned_of_nan, true) {
            watcher.warn(&format!(
                "{are_nan}: they count as wrong, and the loss leaves them out; a NaN feature of theirs, or of a node that they depend on, is \
                 the cause, which ingest names without --allow-nan"
            ));
        }
        Ok(())
    }
}
