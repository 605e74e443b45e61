//! Processes that torchrun starts, and starts again.

use std::{
    env, fs,
    net::TcpListener,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grappa_tests::program::{process_of_rank, run};
use rustix::process::{Signal, kill_process};

use crate::workers::{assert_same_losses, end, folder, train, wait_for_epochs};

/// Names a Python with PyTorch, for torchrun.
const PYTHON: &str = "GRAPPA_PYG_PYTHON";

/// Two processes under torchrun.
const TORCHRUN: [&str; 6] = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--no-python",
    "--nproc-per-node",
    "2",
];

/// A run that is killed and continued. With one layer, differences of rounding do not grow over hundreds of steps.
const KILLED: [&str; 10] = [
    "--partitions",
    "4",
    "--layers",
    "1",
    "--epochs",
    "60",
    "--checkpoint-every",
    "1",
    "--batch",
    "4",
];

#[test]
fn torchrun_starts_processes_that_train_together() {
    let Some(python) = env::var_os(PYTHON) else {
        grappa_skip::skip!("{PYTHON} names no Python with PyTorch")
    };
    let folder = folder();
    let options = ["--partitions", "4", "--epochs", "2", "--dropout", "0", "--out"];
    run(&mut train(folder.path(), &[&options[..], &["one"]].concat())).success();
    let together = train(folder.path(), &[&options[..], &["two"]].concat());
    let mut torchrun = Command::new(python);
    torchrun
        .current_dir(folder.path())
        .args(TORCHRUN)
        .arg(together.get_program())
        .args(together.get_args());
    run(&mut torchrun).success();
    assert_same_losses(&folder.path().join("one"), &folder.path().join("two"), "torchrun");
    for rank in ["0", "1"] {
        let log = fs::read_to_string(folder.path().join(format!("two/rank-{rank}.log"))).unwrap();
        assert!(log.contains(&format!("rank {rank} of 2, training in ")), "{log}");
    }
}

#[test]
fn torchrun_continues_from_the_last_checkpoint_after_kills() {
    let Some(python) = env::var_os(PYTHON) else {
        grappa_skip::skip!("{PYTHON} names no Python with PyTorch")
    };
    let folder = folder();
    let at = folder.path().canonicalize().unwrap();
    run(&mut train(&at, &[&KILLED[..], &["--out", "one"]].concat())).success();
    let together = train(&at, &[&KILLED[..], &["--out", "two", "--resume", "auto"]].concat());
    let mut torchrun = Command::new(python);
    torchrun
        .current_dir(&at)
        .args(TORCHRUN)
        .args(["--max-restarts", "3", "--monitor-interval", "0.1"])
        .arg(together.get_program())
        .args(together.get_args())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let torchrun = torchrun.spawn().unwrap();
    for (victim, epochs) in [(1, 2), (0, 12)] {
        wait_for_epochs(&at.join("two"), epochs);
        kill_process(process_of_rank(victim, &at).unwrap(), Signal::KILL).unwrap();
    }
    end(torchrun).success();
    assert_same_losses(&at.join("one"), &at.join("two"), "after two kills");
}

#[test]
fn two_agents_of_torchrun_continue_after_kills() {
    let Some(python) = env::var_os(PYTHON) else {
        grappa_skip::skip!("{PYTHON} names no Python with PyTorch")
    };
    let folder = folder();
    let at = folder.path().canonicalize().unwrap();
    run(&mut train(&at, &[&KILLED[..], &["--out", "one"]].concat())).success();
    let together = train(&at, &[&KILLED[..], &["--out", "two", "--resume", "auto"]].concat());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let agents = [0, 1].map(|_| {
        let mut agent = Command::new(&python);
        agent
            .current_dir(&at)
            .args(["-m", "torch.distributed.run", "--no-python"])
            .args(["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3"])
            .args(["--rdzv-backend", "c10d", "--rdzv-endpoint"])
            .arg(format!("127.0.0.1:{port}"))
            .args(["--rdzv-id", "job", "--monitor-interval", "0.1"])
            .arg(together.get_program())
            .args(together.get_args())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        agent.spawn().unwrap()
    });
    // Each agent counts its own failures only, so after the second kill the counts differ.
    for (victim, epochs) in [(1, 2), (1, 12)] {
        wait_for_epochs(&at.join("two"), epochs);
        kill_process(process_of_rank(victim, &at).unwrap(), Signal::KILL).unwrap();
    }
    for agent in agents {
        end(agent).success();
    }
    assert_same_losses(&at.join("one"), &at.join("two"), "after two kills");
}

/// A process that has a library of this PyTorch, listens, says nothing, and starts a rank.
const OTHER_TORCHRUN: &str = "\
import mmap, os, socket, subprocess, sys
file = open('torch/lib/libtorch_cpu.so', 'rb')
mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
silent = socket.create_server(('127.0.0.1', 0))
place = dict(RANK='1', WORLD_SIZE='2', LOCAL_RANK='1', LOCAL_WORLD_SIZE='2', MASTER_ADDR='127.0.0.1',
             MASTER_PORT=str(silent.getsockname()[1]), TORCHELASTIC_USE_AGENT_STORE='True')
sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **place}).returncode)
";

#[test]
fn the_torchrun_of_another_pytorch_is_named_with_both_versions() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("torch/lib")).unwrap();
    fs::write(folder.path().join("torch/lib/libtorch_cpu.so"), "a library").unwrap();
    fs::write(folder.path().join("torch/version.py"), "__version__ = '1.2.3+cu1'\n").unwrap();
    let rank = train(folder.path(), &["--partitions", "2", "--epochs", "1", "--out", "run"]);
    let mut python = Command::new("python3");
    python.current_dir(folder.path()).args(["-c", OTHER_TORCHRUN]);
    let begin = Instant::now();
    let ran = run(python.arg(rank.get_program()).args(rank.get_args()));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for part in [
        "rank 1",
        "torchrun is from PyTorch 1.2.3+cu1",
        "libtorch here is 2.11.0",
        "pip install torch==2.11.0",
    ] {
        assert!(ran.stderr.contains(part), "expected {part:?} in: {}", ran.stderr);
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}
