//! Methods whose partitions several processes divide.

use rustix::process::Signal;

use crate::{
    fixture::{TrainFolder, assert_failed, end},
    workers::lose_rank,
};

#[test]
fn two_and_four_processes_train_by_full_and_varco_as_one() {
    let folder = TrainFolder::new();
    for (number, method) in
        ["full", "varco --rate-schedule linear:16:1:2", "varco --rate-schedule adaptive:8:1:1"].into_iter().enumerate()
    {
        let options = format!("--method {method} --partitions 4 --hidden 16 --layers 3 --epochs 4 --lr 0.01");
        let one = format!("{number}-1");
        folder.trained(&format!("{options} --out {one}"));
        for workers in [2, 4] {
            let other = format!("{number}-{workers}");
            folder.trained(&format!("{options} --workers {workers} --out {other}"));
            folder.assert_same_losses(&one, &other, method);
            for (one, other) in folder.metrics(&one).iter().zip(&folder.metrics(&other)) {
                for key in ["activation_bytes", "feature_bytes"] {
                    assert_eq!(one[key], other[key], "{method}, {workers} processes: {key}");
                }
                for key in ["loss", "val_loss"] {
                    let [one, other] = [one, other].map(|epoch| epoch[key].as_f64().unwrap());
                    assert!((one - other).abs() < 1e-5 * one, "{method}: {key} is {other} and not {one}");
                }
            }
        }
    }
}

#[test]
fn a_run_of_full_continues_with_another_number_of_processes() {
    let folder = TrainFolder::new();
    let options = "--method full --partitions 4 --hidden 16 --layers 2 --lr 0.01 --dropout 0";
    folder.trained(&format!("{options} --epochs 6 --out whole"));
    folder.trained(&format!("{options} --epochs 2 --workers 2 --out parts"));
    folder.trained("--resume --epochs 4 --workers 4 --out parts");
    folder.trained("--resume --epochs 6 --out parts");
    folder.assert_same_losses("whole", "parts", "resumed");
}

#[test]
fn a_process_that_is_lost_during_an_exchange_ends_the_others() {
    let folder = TrainFolder::new();
    let options = "--method full --partitions 3 --hidden 64 --layers 3 --dropout 0 --timeout 10 --eval-every 1000";
    for victim in [0, 1] {
        let out = format!("lost-{victim}");
        let ended = end(lose_rank(&folder, options, &out, Signal::KILL, victim, ""));
        assert_eq!(ended.code, None, "{}", ended.stderr);
    }
}

#[test]
fn methods_and_partitions_that_processes_cannot_divide_are_refused() {
    let folder = TrainFolder::new();
    let refused = |options: &str| {
        let mut command = folder.train(&format!("{options} --epochs 1 --out run"));
        grappa_tests::program::run(&mut command)
    };
    for method in ["bns", "isolated", "adaqp", "pipegcn", "cofree", "llcg"] {
        let ran = refused(&format!("--method {method} --partitions 4 --workers 2"));
        assert_failed(
            &ran,
            &[&format!(
                "--method {method} trains all partitions in one process: leave out --workers and launchers, or use `--method full`"
            )],
        );
    }
    let ran = refused("--method full --partitions 2 --workers 3");
    assert_failed(&ran, &["each needs one: use --partitions 3, or fewer processes"]);
    assert!(!folder.path("run/metrics.jsonl").exists());
}
