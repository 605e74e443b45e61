//! Several processes that train together: the same results as one, and a clear end if one of them is missing.

use std::{
    env, fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::memory_folder,
    program::{self, Ran, run},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a store of four chunks or more.
pub fn folder() -> TempDir {
    folder_of("2000")
}

/// A folder with a store of `nodes` nodes.
fn folder_of(nodes: &str) -> TempDir {
    let folder = memory_folder();
    let mut generate = program::command("grappa-gen");
    generate.args(["sbm", "--nodes", nodes, "--feature-dim", "8", "--chunks", "8"]);
    generate
        .args(["--quiet", "--out"])
        .arg(folder.path().join("graph.grappa"));
    run(&mut generate).success();
    folder
}

/// `grappa-train graph.grappa` with options, in `folder`.
pub fn command(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
    command.current_dir(folder).args(["graph.grappa", "--threads", "1"]);
    command.args(options).stdin(Stdio::null());
    for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
        command.env_remove(variable);
    }
    command
}

/// [`command`] without output but errors.
pub fn train(folder: &Path, options: &[&str]) -> Command {
    command(folder, &[options, &["--quiet"]].concat())
}

/// Rank `rank` of `ranks`, as a launcher starts it.
pub fn rank(folder: &Path, place: [u16; 3], options: &[&str]) -> Child {
    start_as(place, &mut train(folder, options))
}

pub fn start_as([rank, ranks, port]: [u16; 3], command: &mut Command) -> Child {
    command
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("GLOO_SOCKET_IFNAME", "lo");
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A port that was free just now.
pub fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

pub fn end(child: Child) -> Ran {
    Ran::from(child.wait_with_output().unwrap())
}

pub fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

pub fn wait_for_epochs(run: &Path, epochs: usize) {
    let begin = Instant::now();
    while metrics(run).len() < epochs {
        assert!(begin.elapsed() < Duration::from_secs(120), "no epoch ends");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The losses of two runs are equal up to the order of sums, and so are counts.
#[track_caller]
pub fn assert_same_losses(one: &Path, other: &Path, context: &str) {
    let (one, other) = (metrics(one), metrics(other));
    assert_eq!(one.len(), other.len(), "{context}");
    assert!(!one.is_empty(), "{context}");
    for (one, other) in one.iter().zip(&other) {
        for key in ["step", "sampled_edges", "gradient_bytes", "halo_bytes", "generation"] {
            assert_eq!(one[key], other[key], "{context}: {key}");
        }
        assert_eq!(one["evaluated"], other["evaluated"], "{context}");
        for key in ["loss", "val_loss", "coverage_mean", "train_accuracy"] {
            let (one, other) = (one[key].as_f64().unwrap(), other[key].as_f64().unwrap());
            assert!(
                (one - other).abs() < 1e-3 * one.abs(),
                "{context}: {key} is {other} and not {one}"
            );
        }
    }
}

#[test]
fn a_rank_that_starts_after_the_run_is_finished_ends_without_the_others() {
    let folder = folder();
    let options = |epochs| ["--partitions", "4", "--epochs", epochs, "--out", "run"];
    run(&mut train(
        folder.path(),
        &[&options("1")[..], &["--workers", "2"]].concat(),
    ))
    .success();
    let again = ["--resume", "auto", "--join-timeout", "2"];
    let begin = Instant::now();
    let ran = end(rank(
        folder.path(),
        [1, 2, port()],
        &[&options("1")[..], &again].concat(),
    ));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    // With an epoch left, it needs the others.
    let ran = end(rank(
        folder.path(),
        [1, 2, port()],
        &[&options("2")[..], &again].concat(),
    ));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("within 2 s"), "{}", ran.stderr);
}

#[test]
fn one_two_and_four_processes_compute_the_same_losses() {
    let folder = folder();
    let trained = |options: &[&str], workers: &str, out: &str| {
        let more = [
            "--epochs",
            "3",
            "--repartition-every",
            "2",
            "--workers",
            workers,
            "--out",
            out,
        ];
        run(&mut train(folder.path(), &[options, &more].concat())).success();
        folder.path().join(out)
    };
    let variants: [&[&str]; 9] = [
        &["--partitions", "4"],
        // Historical embeddings of halo nodes.
        &["--partitions", "4", "--layers", "3", "--halo", "history"],
        &[
            "--partitions",
            "8",
            "--concurrent",
            "4",
            "--layers",
            "4",
            "--halo",
            "history",
            "--evaluate",
            "exact",
        ],
        // Two of four processes have no partition in a step.
        &["--partitions", "4", "--concurrent", "2", "--correction", "batch"],
        &[
            "--partitions",
            "4",
            "--concurrent",
            "2",
            "--layers",
            "3",
            "--halo",
            "history",
        ],
        // Evaluations by minibatches.
        &["--partitions", "4", "--model", "pinsage", "--evaluate", "sampled"],
        &["--partitions", "8", "--concurrent", "4", "--evaluate", "sampled"],
        // Steps in which some partitions have no seeds.
        &["--partitions", "8", "--batch", "1", "--dropout", "0"],
        // Dropout of features and of edges.
        &[
            "--partitions",
            "4",
            "--model",
            "gat",
            "--hidden",
            "16",
            "--input-dropout",
            "0.2",
            "--attention-dropout",
            "0.3",
        ],
    ];
    for (number, options) in variants.into_iter().enumerate() {
        let one = trained(options, "1", &format!("{number}-one"));
        for workers in ["2", "4"] {
            let other = trained(options, workers, &format!("{number}-{workers}"));
            assert_same_losses(&one, &other, &format!("{options:?} with {workers} workers"));
        }
    }
}

/// A folder with a store whose evaluation takes longer than an epoch of few steps.
fn larger_folder() -> TempDir {
    folder_of("60000")
}

#[test]
fn processes_score_the_best_model_together_at_the_end() {
    let folder = larger_folder();
    let summary = |workers: &str| -> Value {
        let options = [
            "--partitions",
            "4",
            "--layers",
            "3",
            "--epochs",
            "3",
            "--fanouts",
            "2,2,2",
            "--steps-per-epoch",
            "2",
            "--dropout",
            "0",
            "--workers",
            workers,
            "--out",
            workers,
        ];
        run(&mut train(folder.path(), &options)).success();
        let records = metrics(&folder.path().join(workers));
        assert!(
            records.iter().all(|record| record["evaluated"] == "sampled"),
            "{records:?}"
        );
        serde_json::from_slice(&fs::read(folder.path().join(workers).join("summary.json")).unwrap()).unwrap()
    };
    let one = summary("1");
    assert_eq!(one["evaluated"], "exact");
    for workers in ["2", "3"] {
        let other = summary(workers);
        assert_eq!(
            (&one["evaluated"], &one["best_epoch"]),
            (&other["evaluated"], &other["best_epoch"])
        );
        for key in ["val_accuracy", "val_loss", "test_accuracy"] {
            let [one, other] = [&one, &other].map(|summary| summary[key].as_f64().unwrap());
            assert!((one - other).abs() < 1e-3 * one.abs(), "{key} is {other} and not {one}");
        }
    }
}

#[test]
fn a_rank_that_is_lost_or_stopped_while_all_evaluate_ends_the_others() {
    let folder = larger_folder();
    for (signal, victim) in [
        (Signal::KILL, 0),
        (Signal::KILL, 1),
        (Signal::TERM, 1),
        (Signal::TERM, 2),
    ] {
        let out = format!("{signal:?}-{victim}");
        let options = [
            "--partitions",
            "4",
            "--layers",
            "3",
            "--hidden",
            "128",
            "--epochs",
            "100000",
            "--steps-per-epoch",
            "1",
            "--batch",
            "4",
            "--evaluate",
            "exact",
            "--timeout",
            "10",
            "--out",
            &out,
        ];
        let port = port();
        let mut ranks: Vec<Option<Child>> = (0..3)
            .map(|number| Some(rank(folder.path(), [number, 3, port], &options)))
            .collect();
        let run = folder.path().join(&out);
        wait_for_epochs(&run, 2);
        // Any moment is one of an evaluation, nearly.
        let epoch = metrics(&run).pop().unwrap();
        let of_stage = |stage: &str| epoch["seconds_by_stage"][stage].as_f64().unwrap_or(0.0);
        assert!(
            of_stage("evaluate") > 0.8 * epoch["seconds"].as_f64().unwrap(),
            "{epoch}"
        );
        let victim_child = ranks[victim].take().unwrap();
        kill_process(Pid::from_child(&victim_child), signal).unwrap();
        let begin = Instant::now();
        let of_victim = end(victim_child);
        let is_stop = signal == Signal::TERM;
        assert_eq!(of_victim.code, is_stop.then_some(143), "{}", of_victim.stderr);
        for (number, child) in ranks.into_iter().enumerate() {
            let Some(child) = child else { continue };
            let ran = end(child);
            let context = format!("{signal:?} to {victim}: {}", ran.stderr);
            assert_eq!(ran.code, Some(1), "{context}");
            let named = match is_stop {
                true => format!("rank {number}: error: rank {victim} was asked to stop: "),
                false => format!("rank {number}: error: rank {victim} "),
            };
            assert!(ran.stderr.contains(&named), "{context}");
        }
        assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
        if !is_stop {
            continue;
        }
        // Rank 0 has written a checkpoint, which has the epoch that was not evaluated.
        let epochs = (metrics(&run).len() + 1).to_string();
        let resumed = ["--resume", "--workers", "2", "--epochs", &epochs, "--out", &out];
        program::run(&mut train(folder.path(), &resumed)).success();
        assert_eq!(metrics(&run).len().to_string(), epochs);
    }
}

#[test]
fn by_default_each_process_has_a_partition_in_every_step() {
    let folder = folder();
    let options = ["--epochs", "1", "--workers", "3", "--out", "run"];
    let ran = run(&mut train(folder.path(), &options));
    ran.success();
    let epoch = metrics(&folder.path().join("run")).remove(0);
    assert_eq!((&epoch["partitions"], &epoch["concurrent"]), (&3.into(), &3.into()));
    // A resumed run keeps the numbers, whatever the number of processes.
    let resumed = ["--resume", "--epochs", "2", "--workers", "2", "--out", "run"];
    run(&mut train(folder.path(), &resumed)).success();
    let epoch = metrics(&folder.path().join("run")).remove(1);
    assert_eq!((&epoch["partitions"], &epoch["concurrent"]), (&3.into(), &3.into()));
}

#[test]
fn each_process_sends_its_share_of_two_messages_and_a_single_one_nothing() {
    let folder = folder();
    for (workers, sent) in [("1", 0.0), ("2", 1.0), ("4", 1.5)] {
        let options = [
            "--partitions",
            "4",
            "--epochs",
            "1",
            "--workers",
            workers,
            "--out",
            workers,
        ];
        run(&mut train(folder.path(), &options)).success();
        let epoch = metrics(&folder.path().join(workers)).remove(0);
        let bytes = |key: &str| epoch[key].as_f64().unwrap();
        assert_eq!(bytes("bytes_sent"), sent * bytes("gradient_bytes"), "{workers} workers");
    }
}

/// Options of a run that does not end by itself.
const ENDLESS: [&str; 12] = [
    "--partitions",
    "4",
    "--hidden",
    "8",
    "--epochs",
    "100000",
    "--dropout",
    "0",
    "--checkpoint-every",
    "1",
    "--timeout",
    "10",
];

#[test]
fn a_rank_that_is_killed_or_stopped_ends_the_others_with_its_name() {
    for (signal, victim) in [
        (Signal::KILL, 0),
        (Signal::KILL, 1),
        (Signal::STOP, 0),
        (Signal::STOP, 2),
    ] {
        let folder = folder();
        let options = [&ENDLESS[..], &["--out", "run"]].concat();
        let port = port();
        let mut ranks: Vec<Option<Child>> = (0..3)
            .map(|number| Some(rank(folder.path(), [number, 3, port], &options)))
            .collect();
        wait_for_epochs(&folder.path().join("run"), 2);
        let victim_child = ranks[victim].take().unwrap();
        kill_process(Pid::from_child(&victim_child), signal).unwrap();
        let begin = Instant::now();
        for (number, child) in ranks.into_iter().enumerate() {
            let Some(child) = child else { continue };
            let ran = end(child);
            let context = format!("{signal:?} to {victim}: {}", ran.stderr);
            assert_eq!(ran.code, Some(1), "{context}");
            let named = format!("rank {number}: error: rank {victim} ");
            assert!(ran.stderr.contains(&named), "{context}");
        }
        assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
        kill_process(Pid::from_child(&victim_child), Signal::KILL).unwrap();
        end(victim_child);
        // The checkpoint is intact, and two processes continue where three ended.
        let finished = metrics(&folder.path().join("run")).len();
        let epochs = (finished + 2).to_string();
        let mut again = train(
            folder.path(),
            &[
                "--resume",
                "auto",
                "--workers",
                "2",
                "--epochs",
                &epochs,
                "--out",
                "run",
            ],
        );
        run(&mut again).success();
        assert_eq!(metrics(&folder.path().join("run")).len(), finished + 2);
    }
}

#[test]
fn a_signal_to_one_rank_stops_all_with_a_checkpoint_of_the_same_run() {
    let folder = folder();
    let whole = ["--partitions", "4", "--hidden", "8", "--dropout", "0", "--batch", "1"];
    for victim in [0, 1] {
        let out = format!("stopped-{victim}");
        let options = [
            &whole[..],
            &["--epochs", "100000", "--checkpoint-every", "0", "--out", &out],
        ]
        .concat();
        let port = port();
        let ranks = [0, 1].map(|number| rank(folder.path(), [number, 2, port], &options));
        wait_for_epochs(&folder.path().join(&out), 2);
        kill_process(Pid::from_child(&ranks[victim]), Signal::TERM).unwrap();
        let ran = ranks.map(end);
        for (number, ran) in ran.iter().enumerate() {
            let code = if number == victim { 143 } else { 1 };
            assert_eq!(ran.code, Some(code), "{number}: {}", ran.stderr);
            assert!(ran.stderr.contains("training stopped "), "{}", ran.stderr);
        }
        let other = &ran[1 - victim].stderr;
        assert!(other.contains(&format!("rank {victim} was asked to stop: ")), "{other}");
        assert!(
            ran[0].stderr.contains("a checkpoint has its state"),
            "{}",
            ran[0].stderr
        );
        // Rank 0 says how to continue: with the launcher, which started the processes.
        let remedy = format!("/{out} --resume`");
        assert!(
            ran[0].stderr.contains("start the same job again with `--out ") && ran[0].stderr.contains(&remedy),
            "{}",
            ran[0].stderr
        );
        assert!(!ran[1].stderr.contains("--resume"), "{}", ran[1].stderr);
        let run_folder = folder.path().join(&out);
        let epochs = (metrics(&run_folder).len() + 1).to_string();
        let resumed = ["--resume", "--epochs", &epochs, "--out", &out];
        run(&mut train(folder.path(), &resumed)).success();
        let undisturbed = format!("whole-{victim}");
        let options = [&whole[..], &["--epochs", &epochs, "--out", &undisturbed]].concat();
        run(&mut train(folder.path(), &options)).success();
        assert_same_losses(&folder.path().join(undisturbed), &run_folder, "resumed");
    }
}

#[test]
fn a_rank_has_its_own_machine_options_and_the_other_options_of_all() {
    let folder = folder();
    let whole = ["--partitions", "4", "--hidden", "8", "--out", "run"];
    let both = |of_first: &[&str], of_second: &[&str]| {
        let port = port();
        [(0, of_first), (1, of_second)]
            .map(|(number, own)| rank(folder.path(), [number, 2, port], &[&whole[..], own].concat()))
            .map(end)
    };
    let run = folder.path().join("run");

    // No machine has as many GPUs.
    let device = ["--epochs", "2", "--device", "cuda:99"];
    let [first, second] = both(&["--epochs", "2"], &device);
    assert_eq!((first.code, second.code), (Some(1), Some(1)));
    assert!(second.stderr.to_lowercase().contains("cuda"), "{}", second.stderr);
    assert!(first.stderr.contains("rank 1 ended with an error"), "{}", first.stderr);
    assert!(!run.join("metrics.jsonl").exists());

    let own = ["--memory", "200MiB", "--lookahead", "3", "--read-engine", "pread"];
    for ran in both(&["--epochs", "2"], &[&["--epochs", "2"], &own[..]].concat()) {
        ran.success();
    }
    let saved = fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(saved.contains("memory = \"4GiB\""), "{saved}");

    // A resumed rank has the options of the run, and not the defaults, where it gives none.
    for ran in both(&["--resume", "--epochs", "3"], &["--resume"]) {
        assert_eq!(ran.code, Some(1));
        let stderr = &ran.stderr;
        assert!(
            stderr.contains("ranks differ in the option --epochs: rank "),
            "{stderr}"
        );
    }
    assert_eq!(fs::read_to_string(run.join("config.toml")).unwrap(), saved);
    for ran in both(&["--resume", "--epochs", "2"], &["--resume"]) {
        ran.success();
    }
    let longer = ["--resume", "--epochs", "3"];
    for ran in both(&longer, &[&longer[..], &own].concat()) {
        ran.success();
    }
    assert_eq!(metrics(&run).len(), 3);
}

#[test]
fn the_folder_is_that_of_rank_0_and_another_one_is_warned_about() {
    let folder = folder();
    let port = port();
    let options = |out| ["--partitions", "2", "--hidden", "8", "--epochs", "1", "--out", out];
    let [first, second] = [(0, "run"), (1, "other")]
        .map(|(number, out)| start_as([number, 2, port], &mut command(folder.path(), &options(out))))
        .map(end);
    first.success();
    second.success();
    let log = |rank: u32| fs::read_to_string(folder.path().join(format!("run/rank-{rank}.log"))).unwrap();
    let warning = "--out other of rank 1 has no effect: all ranks write to the folder of rank 0, ";
    assert!(log(1).contains(warning), "{}", log(1));
    assert!(!log(0).contains("has no effect"), "{}", log(0));
    assert!(!folder.path().join("other").exists());
}

#[test]
fn ranks_that_do_not_belong_together_say_why() {
    let folder = folder();
    let options = |timeout| {
        [
            "--partitions",
            "4",
            "--epochs",
            "1",
            "--timeout",
            timeout,
            "--out",
            "run",
        ]
    };
    // Longer than processes take to start on a busy machine.
    let patient = options("60");
    let start = |[first, second]: [[u16; 2]; 2], of_first: &[&str], of_second: &[&str]| {
        let port = port();
        let place = |[number, ranks]: [u16; 2]| [number, ranks, port];
        [
            rank(folder.path(), place(first), of_first),
            rank(folder.path(), place(second), of_second),
        ]
    };
    let check = |ran: &Ran, expected: &str| {
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{expected} in {}", ran.stderr);
    };

    let other = [&patient[..], &["--hidden", "64"]].concat();
    let [first, second] = start([[0, 2], [1, 2]], &patient, &other).map(end);
    check(
        &first,
        "ranks differ in the option --hidden: rank 0 has 128, and rank 1 has 64",
    );
    check(
        &second,
        "ranks differ in the option --hidden: rank 1 has 64, and rank 0 has 128",
    );

    let [first, second] = start([[0, 2], [1, 3]], &patient, &patient).map(end);
    check(&first, "rank 1 has WORLD_SIZE 3 and rank 0 has 2");
    check(&second, "rank 0 has WORLD_SIZE 2 and rank 1 has 3");

    let [first, _] = start([[0, 3], [1, 3]], &options("10"), &patient).map(end);
    check(&first, "rank 2 did not come within 10 s (--join-timeout)");

    let mut same = start([[0, 2], [0, 2]], &patient, &patient);
    let refused = loop {
        match same.iter_mut().position(|rank| rank.try_wait().unwrap().is_some()) {
            Some(ended) => break ended,
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    same[1 - refused].kill().unwrap();
    let ran = same.map(end);
    check(&ran[refused], "port ");
    check(&ran[refused], " is in use on this host");

    let options = options("3");
    let alone = end(rank(folder.path(), [1, 2, port()], &options));
    check(&alone, "rank 1 found no store at 127.0.0.1:");

    let busy = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let refused = end(rank(folder.path(), [0, 2, port], &options));
    check(&refused, &format!("port {port} is in use on this host"));

    let mut half = train(folder.path(), &options);
    let ran = run(half.env("RANK", "0"));
    check(&ran, "WORLD_SIZE is not set");
    assert!(!folder.path().join("run").exists(), "no run has begun");
}
