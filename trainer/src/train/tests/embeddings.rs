//! Ranks that learn embeddings of nodes.

use grappa_run::{
    checkpoint::{NamedTensor, RunState},
    config::Optimizer,
};

use super::{
    processes::{as_ranks, prepared},
    *,
};

/// The embeddings after two epochs, which have different partitions, with the state of the optimizer; and the scores.
fn learned(trainer: &mut Trainer) -> (Vec<NamedTensor>, Option<f64>, [u64; 2]) {
    let (mut row_bytes, mut gradient_bytes) = (0, 0);
    for epoch in 0..2 {
        let stats = trainer.epoch(epoch, &|_, _| 0.05, &Silent).unwrap();
        trainer.end_epoch();
        row_bytes += stats.row_bytes;
        gradient_bytes += stats.gradient_bytes;
    }
    let score = trainer.evaluate(1, &|_| true, &Silent).unwrap().and_then(|evaluation| evaluation.val.accuracy);
    let checkpoint = trainer.checkpoint(&RunState::default(), true).unwrap();
    (checkpoint.embeddings, score, [row_bytes, gradient_bytes])
}

#[test]
fn ranks_have_the_embeddings_of_a_process_alone_and_all_have_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for optimizer in [Optimizer::Sgd, Optimizer::Adam] {
        let config = TrainConfig {
            layers: 2,
            node_embeddings: "node=8".parse().unwrap(),
            repartition_every: 1,
            evaluate: Evaluate::Exact,
            optimizer,
            ..config(LayerKind::Rsage)
        };
        let (expected, score, [row_bytes, gradient_bytes]) =
            learned(&mut prepared(&store, &config, folder.path(), None));
        let table_bytes = 600 * 8 * 4;
        assert_eq!(row_bytes, 2 * table_bytes, "copies of two epochs");
        for ranks in [2, 4] {
            let found = as_ranks(ranks, |group| learned(&mut prepared(&store, &config, folder.path(), Some(group))));
            let context = format!("{optimizer}, {ranks} ranks");
            // Of each epoch and each rank: values, and the state of Adam.
            let state_bytes = if optimizer == Optimizer::Adam { 2 * table_bytes + 4 * 600 } else { 0 };
            assert_eq!(
                found[0].2,
                [u64::from(ranks) * 2 * (table_bytes + state_bytes), gradient_bytes],
                "{context}: bytes of rows, and as many of gradients as in one process"
            );
            for rank in &found {
                assert!(rank.0 == found[0].0, "{context}");
            }
            // Sums of gradients are rounded in another order, which Adam magnifies where they are almost 0.
            if optimizer == Optimizer::Sgd {
                for (found, expected) in found[0].0.iter().zip(&expected) {
                    let [found, expected] = [found, expected].map(|tensor| tensor.to_f32().unwrap());
                    let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(error < 1e-5, "{context}: {error}");
                }
                assert!((found[0].1.unwrap() - score.unwrap()).abs() < 0.02, "{context}");
            }
        }
    }
}
