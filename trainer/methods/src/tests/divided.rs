//! Methods whose partitions several processes divide, as threads of one process: together they have the results of one.

use std::{thread, time::Duration};

use grappa_trainer::distributed::{Hello, StoreServer, Waits, join};

use super::*;

/// Runs the work of each rank in a thread.
fn as_ranks<T: Send>(ranks: u32, work: impl Fn(Arc<ProcessGroup>) -> T + Sync) -> Vec<T> {
    let server = StoreServer::start().unwrap();
    let of_rank = |rank| {
        let (same, waits) = (Vec::new(), Waits::for_timeout(Duration::from_secs(60)));
        let group = Arc::new(join(server.place(rank, ranks), Hello { same }, waits, || false).unwrap());
        let done = work(group.clone());
        group.finish().unwrap();
        done
    };
    thread::scope(|scope| {
        let of_rank = &of_rank;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || of_rank(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn several_processes_train_as_one_and_count_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let full = |model| config(Method::Full, model, |_| {});
    let varco = |schedule: &str, unit: &str| {
        config(Method::Varco, LayerKind::Sage, |options| {
            (options.rate_schedule, options.rate_unit) = (schedule.parse().unwrap(), unit.parse().unwrap());
        })
    };
    for config in [
        full(LayerKind::Sage),
        TrainConfig { dropout: 0.3, input_dropout: 0.2, ..full(LayerKind::Gat) },
        TrainConfig { layers: 1, ..full(LayerKind::Gcn) },
        varco("linear:8:1:2", "value"),
        TrainConfig { input_dropout: 0.2, ..varco("fixed:4", "row") },
        TrainConfig { partitions: Auto::Value(7), ..varco("adaptive:8:1:1", "value") },
    ] {
        let of_rank = |group| trained(&mut prepared(&store, &config, folder.path(), group).0, EPOCHS);
        let (expected, parameters) = of_rank(None);
        for ranks in [2, 4] {
            let found = as_ranks(ranks, |group| of_rank(Some(group)));
            let context = format!("{}, {ranks} processes", config.extension);
            for (found, expected) in found[0].0.iter().zip(&expected) {
                assert_near(&context, found.loss, expected.loss);
                assert_eq!(found.train_accuracy, expected.train_accuracy, "{context}");
                assert_eq!(
                    (found.seeds, found.sampled_edges, found.feature_bytes, found.activation_bytes),
                    (expected.seeds, expected.sampled_edges, expected.feature_bytes, expected.activation_bytes),
                    "{context}"
                );
                assert!(found.feature_bytes + found.activation_bytes > 0 || config.other_method() == Some("full"));
                match (found.message_error, expected.message_error) {
                    (Some(found), Some(expected)) => assert_near(&context, found, expected),
                    (found, expected) => assert_eq!(found, expected, "{context}"),
                }
            }
            for (_, of_rank) in &found {
                assert_eq!(of_rank, &found[0].1, "{context}: all have the same parameters");
                let difference = (of_rank - &parameters).abs().max().double_value(&[]);
                assert!(difference < 1e-4, "{context}: parameters differ by {difference}");
            }
        }
    }
}
