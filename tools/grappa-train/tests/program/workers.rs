//! Several processes that train together: the same results as one, and a clear end if one of them is missing.

use std::{
    fs,
    net::TcpListener,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use grappa_tests::program::run;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{TrainFolder, assert_close, assert_failed, end, port, start_as};

#[test]
fn a_rank_that_starts_after_the_run_is_finished_ends_without_the_others() {
    let folder = TrainFolder::new();
    let options = "--partitions 4 --out run --epochs";
    folder.trained(&format!("{options} 1 --workers 2"));
    let again = "--resume auto --join-timeout 2";
    let begin = Instant::now();
    end(folder.rank([1, 2, port()], &format!("{options} 1 {again}"))).success();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    // With an epoch left, it needs the others.
    let ran = end(folder.rank([1, 2, port()], &format!("{options} 2 {again}")));
    assert_failed(&ran, &["within 2 s"]);
}

#[test]
fn one_two_and_four_processes_compute_the_same_losses() {
    let folder = TrainFolder::new();
    for (number, (workers, options)) in grappa_skip::cases![
        &["2", "4"][..], "--partitions 4";
        // Historical embeddings of halo nodes.
        &["4"], "--partitions 8 --concurrent 4 --layers 4 --halo history --evaluate exact";
        // Two of four processes have no partition in a step.
        &["2", "4"], "--partitions 4 --concurrent 2 --correction batch";
        &["4"], "--partitions 4 --concurrent 2 --layers 3 --halo history";
        // Evaluations by minibatches.
        &["4"], "--partitions 8 --concurrent 4 --model pinsage --evaluate sampled";
        // Steps in which some partitions have no seeds.
        &["4"], "--partitions 8 --batch 1 --dropout 0";
        // Dropout of features and of edges.
        &["2"], "--partitions 4 --model gat --hidden 16 --input-dropout 0.2 --attention-dropout 0.3";
    ]
    .into_iter()
    .enumerate()
    {
        let options = format!("{options} --epochs 3 --repartition-every 2");
        let one = format!("{number}-one");
        folder.trained(&format!("{options} --out {one}"));
        for workers in workers {
            let other = format!("{number}-{workers}");
            folder.trained(&format!("{options} --workers {workers} --out {other}"));
            folder.assert_same_losses(&one, &other, &format!("{options} with {workers} workers"));
        }
    }
}

/// A folder with a store whose evaluation takes longer than an epoch of few steps.
fn larger_folder() -> TrainFolder {
    TrainFolder::with("sbm --nodes 60000 --feature-dim 8 --chunks 8")
}

#[test]
fn processes_score_the_best_model_together_at_the_end() {
    let folder = larger_folder();
    for workers in ["1", "3"] {
        let options = "--partitions 4 --layers 3 --epochs 3 --fanouts 2,2,2 --steps-per-epoch 2 --dropout 0";
        folder.trained(&format!("{options} --workers {workers} --out {workers}"));
        let records = folder.metrics(workers);
        let is_sampled = records.iter().all(|record| record["evaluated"] == "sampled");
        assert!(is_sampled, "{records:?}");
    }
    let [one, three] = ["1", "3"].map(|run| folder.summary(run));
    assert_eq!(one["evaluated"], "exact");
    assert_eq!((&one["evaluated"], &one["best_epoch"]), (&three["evaluated"], &three["best_epoch"]));
    for key in ["val_accuracy", "val_loss", "test_accuracy"] {
        assert_close(&one[key], &three[key], key);
    }
}

/// Three ranks that train until `victim` gets a signal, in an epoch after the second. Its end, and the ends of the
/// others, which name it.
pub fn lose_rank(folder: &TrainFolder, options: &str, out: &str, signal: Signal, victim: usize, named: &str) -> Child {
    let port = port();
    let start = |number| Some(folder.rank([number, 3, port], &format!("{options} --epochs 100000 --out {out}")));
    let mut ranks: Vec<Option<Child>> = (0..3).map(start).collect();
    folder.wait_for_epochs(out, 2);
    let victim_child = ranks[victim].take().unwrap();
    kill_process(Pid::from_child(&victim_child), signal).unwrap();
    let begin = Instant::now();
    for (number, child) in ranks.into_iter().enumerate() {
        if let Some(child) = child {
            assert_failed(&end(child), &[&format!("rank {number}: error: rank {victim} {named}")]);
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    victim_child
}

#[test]
fn a_rank_that_is_lost_or_stopped_while_all_evaluate_ends_the_others() {
    let folder = larger_folder();
    let options = "--partitions 4 --layers 3 --hidden 128 --steps-per-epoch 1 --batch 4 --evaluate exact --timeout 10";
    for (signal, victim, named) in
        [(Signal::KILL, 0, ""), (Signal::KILL, 1, ""), (Signal::TERM, 1, "was asked to stop: ")]
    {
        let out = format!("{signal:?}-{victim}");
        let ended = end(lose_rank(&folder, options, &out, signal, victim, named));
        // Any moment is one of an evaluation, nearly.
        let epoch = &folder.metrics(&out)[1];
        let evaluating = epoch["seconds_by_stage"]["evaluate"].as_f64().unwrap_or(0.0);
        assert!(evaluating > 0.8 * epoch["seconds"].as_f64().unwrap(), "{epoch}");
        let is_stop = signal == Signal::TERM;
        assert_eq!(ended.code, is_stop.then_some(143), "{}", ended.stderr);
        if is_stop {
            // Rank 0 has written a checkpoint, which has the epoch that was not evaluated.
            let epochs = folder.metrics(&out).len() + 1;
            folder.trained(&format!("--resume --workers 2 --epochs {epochs} --out {out}"));
            assert_eq!(folder.metrics(&out).len(), epochs);
        }
    }
}

#[test]
fn by_default_each_process_has_a_partition_in_every_step() {
    let folder = TrainFolder::new();
    folder.trained("--epochs 1 --workers 3 --out run");
    // A resumed run keeps the numbers, whatever the number of processes.
    folder.trained("--resume --epochs 2 --workers 2 --out run");
    for epoch in folder.metrics("run") {
        assert_eq!((&epoch["partitions"], &epoch["concurrent"]), (&3.into(), &3.into()));
    }
}

#[test]
fn each_process_sends_its_share_of_two_messages_and_a_single_one_nothing() {
    let folder = TrainFolder::new();
    for (workers, sent) in [("1", 0.0), ("2", 1.0), ("4", 1.5)] {
        folder.trained(&format!("--partitions 4 --epochs 1 --workers {workers} --out {workers}"));
        let epoch = folder.metrics(workers).remove(0);
        let [found, gradient] = ["bytes_sent", "gradient_bytes"].map(|key| epoch[key].as_f64().unwrap());
        assert_eq!(found, sent * gradient, "{workers} workers");
    }
}

#[test]
fn a_rank_that_is_killed_or_stopped_ends_the_others_with_its_name() {
    let folder = TrainFolder::new();
    let options = "--partitions 4 --hidden 8 --dropout 0 --checkpoint-every 1 --timeout 6";
    for (signal, victim) in [(Signal::KILL, 0), (Signal::KILL, 1), (Signal::STOP, 0), (Signal::STOP, 2)] {
        let out = format!("{signal:?}-{victim}");
        let child = lose_rank(&folder, options, &out, signal, victim, "");
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        end(child);
        // The checkpoint is intact, and two processes continue where three ended.
        let epochs = folder.metrics(&out).len() + 2;
        folder.trained(&format!("--resume auto --workers 2 --epochs {epochs} --out {out}"));
        assert_eq!(folder.metrics(&out).len(), epochs);
    }
}

#[test]
fn a_signal_to_one_rank_stops_all_with_a_checkpoint_of_the_same_run() {
    let folder = TrainFolder::new();
    let whole = "--partitions 4 --hidden 8 --dropout 0 --batch 1";
    for victim in [0, 1] {
        let out = format!("stopped-{victim}");
        let ranks = folder.two_ranks(&format!("{whole} --epochs 100000 --checkpoint-every 0 --out {out}"));
        folder.wait_for_epochs(&out, 2);
        kill_process(Pid::from_child(&ranks[victim]), Signal::TERM).unwrap();
        let ran = ranks.map(end);
        for (number, ran) in ran.iter().enumerate() {
            let code = if number == victim { 143 } else { 1 };
            assert_eq!(ran.code, Some(code), "{number}: {}", ran.stderr);
            assert!(ran.stderr.contains("training stopped "), "{}", ran.stderr);
        }
        let other = &ran[1 - victim].stderr;
        assert!(other.contains(&format!("rank {victim} was asked to stop: ")), "{other}");
        // Rank 0 says how to continue: with the launcher, which started the processes.
        let remedy = format!("/{out} --resume`");
        for part in ["a checkpoint has its state", "start the same job again with `--out ", &remedy] {
            assert!(ran[0].stderr.contains(part), "{}", ran[0].stderr);
        }
        assert!(!ran[1].stderr.contains("--resume"), "{}", ran[1].stderr);
        let epochs = folder.metrics(&out).len() + 1;
        folder.trained(&format!("--resume --epochs {epochs} --out {out}"));
        folder.trained(&format!("{whole} --epochs {epochs} --out whole-{victim}"));
        folder.assert_same_losses(&format!("whole-{victim}"), &out, "resumed");
    }
}

#[test]
fn a_rank_has_its_own_machine_options_and_the_other_options_of_all() {
    let folder = TrainFolder::new();
    let both = |options: [&str; 2]| {
        let port = port();
        let start = |number: u16| {
            let options = options[usize::from(number)];
            folder.rank([number, 2, port], &format!("--partitions 4 --hidden 8 --out run {options}"))
        };
        [0, 1].map(start).map(end)
    };
    // No machine has as many GPUs.
    let [first, second] = both(["--epochs 2", "--epochs 2 --device cuda:99"]);
    assert_failed(&first, &["rank 1 ended with an error"]);
    assert_failed(&second, &[]);
    assert!(second.stderr.to_lowercase().contains("cuda"), "{}", second.stderr);
    assert!(!folder.path("run/metrics.jsonl").exists());

    let own = "--memory 200MiB --lookahead 3 --read-engine pread";
    for ran in both(["--epochs 2", &format!("--epochs 2 {own}")]) {
        ran.success();
    }
    let saved = folder.read("run/config.toml");
    assert!(saved.contains("memory = \"4GiB\""), "{saved}");

    // A resumed rank has the options of the run, and not the defaults, where it gives none.
    for ran in both(["--resume --epochs 3", "--resume"]) {
        assert_failed(&ran, &["ranks differ in the option --epochs: rank "]);
    }
    assert_eq!(folder.read("run/config.toml"), saved);
    let longer = "--resume --epochs 3";
    for options in [["--resume --epochs 2", "--resume"], [longer, &format!("{longer} {own}")]] {
        for ran in both(options) {
            ran.success();
        }
    }
    assert_eq!(folder.metrics("run").len(), 3);
}

#[test]
fn the_folder_is_that_of_rank_0_and_another_one_is_warned_about() {
    let folder = TrainFolder::new();
    let port = port();
    let start = |(number, out)| {
        let options = format!("--partitions 2 --hidden 8 --epochs 1 --out {out}");
        start_as([number, 2, port], &mut folder.train_command(&options))
    };
    for child in [(0, "run"), (1, "other")].map(start) {
        end(child).success();
    }
    let [first, second] = [0, 1].map(|rank| folder.read(&format!("run/rank-{rank}.log")));
    let warning = "--out other of rank 1 has no effect: all ranks write to the folder of rank 0, ";
    assert!(second.contains(warning), "{second}");
    assert!(!first.contains("has no effect"), "{first}");
    assert!(!folder.path("other").exists());
}

#[test]
fn ranks_that_do_not_belong_together_say_why() {
    let folder = TrainFolder::new();
    let options = "--partitions 4 --epochs 1 --out run --timeout";
    // Longer than processes take to start on a busy machine.
    let patient = &*format!("{options} 60");
    let start = |[first, second]: [([u16; 2], &str); 2]| {
        let port = port();
        [first, second].map(|([number, ranks], options)| folder.rank([number, ranks, port], options))
    };
    let other = format!("{patient} --hidden 64");
    let [first, second] = start([([0, 2], patient), ([1, 2], &other)]).map(end);
    let differ = "ranks differ in the option --hidden: ";
    assert_failed(&first, &[&format!("{differ}rank 0 has 128, and rank 1 has 64")]);
    assert_failed(&second, &[&format!("{differ}rank 1 has 64, and rank 0 has 128")]);

    let [first, second] = start([([0, 2], patient), ([1, 3], patient)]).map(end);
    assert_failed(&first, &["rank 1 has WORLD_SIZE 3 and rank 0 has 2"]);
    assert_failed(&second, &["rank 0 has WORLD_SIZE 2 and rank 1 has 3"]);

    let [first, _] = start([([0, 3], &format!("{options} 10")), ([1, 3], patient)]).map(end);
    assert_failed(&first, &["rank 2 did not come within 10 s (--join-timeout)"]);

    let mut same = start([([0, 2], patient), ([0, 2], patient)]);
    let refused = loop {
        match same.iter_mut().position(|rank| rank.try_wait().unwrap().is_some()) {
            Some(ended) => break ended,
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    same[1 - refused].kill().unwrap();
    let ran = same.map(end);
    assert_failed(&ran[refused], &["port ", " is in use on this host"]);

    let options = format!("{options} 3");
    let alone = end(folder.rank([1, 2, port()], &options));
    assert_failed(&alone, &["rank 1 found no store at 127.0.0.1:"]);

    let busy = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let refused = end(folder.rank([0, 2, port], &options));
    assert_failed(&refused, &[&format!("port {port} is in use on this host")]);

    let ran = run(folder.train(&options).env("RANK", "0"));
    assert_failed(&ran, &["WORLD_SIZE is not set"]);
    assert!(!fs::exists(folder.path("run")).unwrap(), "no run has begun");
}
