//! Processes that torchrun starts, and starts again.

use std::{
    env, fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grappa_tests::program::{CommandWords, process_of_rank, run, started_by};
use rustix::process::{Signal, kill_process};

use crate::fixture::{TrainFolder, assert_failed, end, port};

/// Names a Python with PyTorch, for torchrun.
const PYTHON: &str = "GRAPPA_PYG_PYTHON";

/// A run that is killed and continued. With one layer, differences of rounding do not grow over hundreds of steps.
const KILLED: &str = "--partitions 4 --layers 1 --epochs 40 --checkpoint-every 1 --batch 4 --out";

/// Training with these options, started by torchrun with others. `None` if there is no PyTorch.
fn torchrun(folder: &TrainFolder, launch: &str, options: &str) -> Option<Command> {
    let mut torchrun = Command::new(env::var_os(PYTHON)?);
    torchrun.words("-m torch.distributed.run --no-python").words(launch);
    let mut command = started_by(torchrun, &folder.train(options));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    Some(command)
}

#[test]
fn torchrun_starts_processes_that_train_together() {
    let folder = TrainFolder::new();
    let options = "--partitions 4 --epochs 2 --dropout 0 --out";
    let Some(mut together) = torchrun(&folder, "--standalone --nproc-per-node 2", &format!("{options} two")) else {
        grappa_skip::skip!("{PYTHON} names no Python with PyTorch")
    };
    folder.trained(&format!("{options} one"));
    run(&mut together).success();
    folder.assert_same_losses("one", "two", "torchrun");
    for rank in ["0", "1"] {
        let log = folder.read(&format!("two/rank-{rank}.log"));
        assert!(log.contains(&format!("rank {rank} of 2, training in ")), "{log}");
    }
}

/// Trains with agents of torchrun that start the ranks again after `victims` were killed.
fn continue_after_kills(agents: usize, launch: &str, victims: [u32; 2]) {
    let folder = TrainFolder::new();
    let options = format!("{KILLED} two --resume auto");
    let launch = format!("{launch} --max-restarts 3 --monitor-interval 0.1");
    let Some(mut agent) = torchrun(&folder, &launch, &options) else {
        grappa_skip::skip!("{PYTHON} names no Python with PyTorch")
    };
    folder.trained(&format!("{KILLED} one"));
    let agents: Vec<_> = (0..agents).map(|_| agent.spawn().unwrap()).collect();
    for (victim, epochs) in victims.into_iter().zip([2, 12]) {
        folder.wait_for_epochs("two", epochs);
        kill_process(process_of_rank(victim, folder.root()).unwrap(), Signal::KILL).unwrap();
    }
    for agent in agents {
        end(agent).success();
    }
    folder.assert_same_losses("one", "two", "after two kills");
}

#[test]
fn torchrun_continues_from_the_last_checkpoint_after_kills() {
    continue_after_kills(1, "--standalone --nproc-per-node 2", [1, 0]);
}

#[test]
fn two_agents_of_torchrun_continue_after_kills() {
    let rendezvous = format!("--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{} --rdzv-id job", port());
    // Each agent counts its own failures only, so after the second kill the counts differ.
    continue_after_kills(2, &format!("--nnodes 2 --nproc-per-node 1 {rendezvous}"), [1, 1]);
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
    let folder = TrainFolder::new();
    fs::create_dir_all(folder.path("torch/lib")).unwrap();
    folder.write("torch/lib/libtorch_cpu.so", "a library");
    folder.write("torch/version.py", "__version__ = '1.2.3+cu1'\n");
    let mut python = Command::new("python3");
    python.args(["-c", OTHER_TORCHRUN]);
    let begin = Instant::now();
    let ran = run(&mut started_by(python, &folder.train("--partitions 2 --epochs 1 --out run")));
    let versions = ["torchrun is from PyTorch 1.2.3+cu1", "libtorch here is 2.11.0", "pip install torch==2.11.0"];
    assert_failed(&ran, &versions);
    assert_failed(&ran, &["rank 1"]);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}
