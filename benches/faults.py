#!/usr/bin/env python3
"""Whether processes that train together end well if one is killed, or if they meet strange peers: the campaigns behind docs/reliability.md.

    benches/faults.py workers [--kills N]    kill one of several processes that train together, and start them again
    benches/faults.py peers [--cases N]      let ranks join beside programs that are silent, slow, strange or stopped
"""

import argparse
import array
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parent.parent
POLL = 0.01

WORKERS = """Does a training of several processes end with the right parameters if one of them is killed by SIGKILL at a random moment? 2 to 4 \
ranks, drawn for each start. After a kill, the other ranks must end by themselves. Then the run is started again with --resume auto, and must end \
with the parameters of an undisturbed run of one process, up to the order of sums. `hung`: processes that did not end in time, and were killed. \
`failed`: the second start ends with an error. `different`: a parameter differs by more than 1e-3 of the largest one."""
OUTCOMES = ["same", "ended before", "hung", "failed", "different"]
# One layer, so that differences of rounding do not grow over hundreds of steps.
OPTIONS = "--partitions 4 --layers 1 --epochs 20 --checkpoint-every 1 --batch 8 --timeout 20 --resume auto".split()
# Ranks that wait longer than these seconds for each other hang.
PATIENCE = 90
# The largest difference of two parameters, relative to the largest parameter. Sums of another order differ by less.
TOLERANCE = 1e-3

PEERS = """Do ranks that join end within their timeouts, whatever the programs do that they meet, and do they say why? Two ranks with \
--join-timeout 5 and --timeout 5. A case is in time if each rank that is not stopped itself ends within both, and 5 s to start and to end. It names \
the cause if one of them prints a text about this kind of peer; beside strangers that connect to rank 0, training has to succeed."""
TIMEOUT = 5
IN_TIME = 3 * TIMEOUT


class Trial:
    """grappa-train, and a folder with a graph of 2000 nodes."""

    def __init__(self, programs, folder):
        self.train, self.folder, self.run = programs / "grappa-train", folder, folder / "run"
        sbm = "sbm --nodes 2000 --feature-dim 8 --chunks 8 --quiet --out".split()
        subprocess.run([programs / "grappa-gen", *sbm, folder / "graph.grappa"], check=True)

    def start(self, *options, stderr=subprocess.DEVNULL, **variables):
        command = [self.train, "graph.grappa", "--threads", "1", "--quiet", "--out", "run", *options]
        environment = {**os.environ, **variables}
        null = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdin=null, stdout=null, stderr=stderr, text=True)

    def process_of_rank(self, rank):
        """The id of the process of a rank, if it runs."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                is_here = process.joinpath("cwd").readlink() == self.folder
                if is_here and f"RANK={rank}".encode() in process.joinpath("environ").read_bytes().split(b"\0"):
                    return int(process.name)
            except OSError:
                pass  # It has ended.
        return None

    def parameters(self):
        """The step of the last checkpoint, and the values of all parameters by name."""
        data = max((self.run / "checkpoints").glob("step-*.safetensors")).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        step = json.loads(header["__metadata__"]["grappa.state"])["step"]
        tensors = {name: tensor["data_offsets"] for name, tensor in header.items() if name.startswith("parameters.")}
        return step, {name: array.array("f", data[8 + length + start : 8 + length + end]) for name, (start, end) in tensors.items()}


def are_close(found, expected):
    """Whether two checkpoints are of the same step, with the same parameters up to the order of sums."""
    (step, found), (expected_step, expected) = found, expected
    if step != expected_step or found.keys() != expected.keys():
        return False
    largest = max(abs(value) for values in expected.values() for value in values)
    pairs = ((one, other) for name in expected for one, other in zip(found[name], expected[name], strict=True))
    return all(abs(one - other) <= TOLERANCE * largest for one, other in pairs)


def start_workers(trial, ranks):
    return trial.start("--workers", str(ranks), *OPTIONS)


def wait(trial, launcher):
    """The exit code of the launcher, which ends after its ranks. None if it does not end in time; then all are killed."""
    try:
        return launcher.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
        for process in filter(None, map(trial.process_of_rank, range(4))):
            kill(process)
        return None


def kill(process):
    """Whether the process was there to be killed."""
    try:
        os.kill(process, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def kill_worker(trial, before, after, victim, moment, expected):
    """Starts a run, kills a rank after some time, and starts it again with another number of ranks."""
    shutil.rmtree(trial.run, ignore_errors=True)
    launcher = start_workers(trial, before)
    time.sleep(moment)
    # A rank may not have started yet.
    while (process := trial.process_of_rank(victim)) is None:
        if launcher.poll() is not None:
            return "ended before"
        time.sleep(POLL)
    killed = kill(process)
    code = wait(trial, launcher)
    if code is None:
        return "hung"
    if not killed or code == 0:
        return "ended before"
    code = wait(trial, start_workers(trial, after))
    if code != 0:
        return "hung" if code is None else "failed"
    return "same" if are_close(trial.parameters(), expected) else "different"


def workers(args, trial):
    begin = time.monotonic()
    assert wait(trial, start_workers(trial, 1)) == 0, "an undisturbed run fails"
    took, expected = time.monotonic() - begin, trial.parameters()
    draw, counts = random.Random(args.seed), dict.fromkeys(OUTCOMES, 0)
    while sum(counts.values()) - counts["ended before"] < args.kills:
        before, after, moment = draw.randint(2, 4), draw.randint(2, 4), took * draw.random()
        victim = draw.randrange(before)
        outcome = kill_worker(trial, before, after, victim, moment, expected)
        counts[outcome] += 1
        if outcome not in ("same", "ended before"):
            print(f"{before} and {after} ranks, rank {victim} after {moment:.2f} s: {outcome}", file=sys.stderr)
    page.finish(WORKERS, trial.folder, [page.table(OUTCOMES, [counts.values()])], args.record)
    return args.kills - counts["same"], args.kills


def listen():
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]


def stay_silent(stream):
    while stream.recv(4096):
        pass


def answer_slowly(stream):
    for byte in b"grappa-store 1\r\n":
        stream.send(bytes([byte]))
        time.sleep(1)


def answer_garbage(stream):
    stream.sendall(b"\xa5" * 4096)
    stay_silent(stream)


def serve(answer, is_over):
    """Serves connections until the event is set. Returns the port."""
    listener, port = listen()

    def guarded(stream):
        with stream:
            try:
                answer(stream)
            except OSError:
                pass  # The rank has ended.

    def accept():
        while not is_over.is_set():
            threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return port


def molest(port, is_over, garbage):
    """Connects to a port until the event is set: to send garbage each time, or to be silent, 200 times."""
    connections = []
    while not is_over.is_set():
        try:
            if not garbage and len(connections) == 200:
                time.sleep(POLL)
                continue
            stream = socket.create_connection(("127.0.0.1", port))
            if garbage:
                with stream:
                    stream.send(b"\xa5" * 64)
            else:
                connections.append(stream)
        except OSError:
            time.sleep(POLL)


def wait_for_port(port):
    begin = time.monotonic()
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() - begin < PATIENCE, "rank 0 never listens"
            time.sleep(POLL)


# What a rank meets, how it answers in place of rank 0, if it does, and a part of an error that names the cause.
KINDS = [
    ("silent port", stay_silent, "got no answer from"),
    ("silent port in place of torchrun", stay_silent, "torchrun is stopped"),
    ("slow port, a byte a second", answer_slowly, "got no answer from"),
    ("port that answers garbage", answer_garbage, "met a stranger at"),
    ("port that closes connections", lambda _: None, "met a stranger at"),
    ("rank 0, stopped before it answers", None, "got no answer from"),
    # Depending on the moment: it came, or it did not.
    ("rank 0 or 1, stopped at a random moment", None, "rank "),
    ("garbage at the port of rank 0", None, None),
    ("200 silent connections to rank 0", None, None),
    ("rank with another secret", None, "have different secrets"),
]


def meet(trial, kind, draw, is_over):
    """Lets ranks join beside a peer. Returns the seconds until they ended, whether they named the cause, and what they printed."""
    shutil.rmtree(trial.run, ignore_errors=True)
    name, answer, cause = KINDS[kind]
    listener, port = listen()
    listener.close()

    def rank(number, port=port, **variables):
        times = ["--join-timeout", str(TIMEOUT), "--timeout", str(TIMEOUT)]
        place = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        return trial.start("--epochs", "1", *times, stderr=subprocess.PIPE, **place, **variables)

    stopped = None
    if answer:
        variables = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if "torchrun" in name else {}
        ranks = [rank(1, serve(answer, is_over), **variables)]
    elif "before it answers" in name:
        stopped = rank(0)
        wait_for_port(port)
        stopped.send_signal(signal.SIGSTOP)
        ranks = [rank(1)]
    elif "random moment" in name:
        ranks = [rank(0), rank(1)]
        time.sleep(draw.random())
        stopped = ranks.pop(draw.randrange(2))
        stopped.send_signal(signal.SIGSTOP)
    else:
        if cause is None:
            threading.Thread(target=molest, args=(port, is_over, "garbage" in name), daemon=True).start()
        secret = {"GRAPPA_SECRET": "0123456789abcdef"} if "secret" in name else {}
        ranks = [rank(0, **secret), rank(1)]

    begin = time.monotonic()
    while any(rank.poll() is None for rank in ranks) and time.monotonic() - begin < PATIENCE:
        time.sleep(POLL)
    took = time.monotonic() - begin
    for rank in [*ranks, *filter(None, [stopped])]:
        rank.kill()
    printed = "".join(rank.communicate()[1] for rank in ranks)
    if stopped:
        stopped.communicate()
    succeeded = all(rank.returncode == 0 for rank in ranks)
    # A stop may have come after the end of training.
    named = succeeded if cause is None else cause in printed or "random moment" in name and succeeded
    return took, named, printed


def peers(args, trial):
    draw, rows, right = random.Random(args.seed), [], 0
    cases = [[] for _ in KINDS]
    for case in range(args.cases):
        kind, is_over = case % len(KINDS), threading.Event()
        took, named, printed = meet(trial, kind, draw, is_over)
        is_over.set()
        cases[kind].append((took, named))
        right += took <= IN_TIME and named
        if took > IN_TIME or not named:
            print(f"{KINDS[kind][0]}: {took:.1f} s: {printed}", file=sys.stderr)
    for (name, *_), met in zip(KINDS, cases):
        if met:
            in_time, causes = sum(took <= IN_TIME for took, _ in met), sum(named for _, named in met)
            rows.append([name, len(met), in_time, causes, f"{max(took for took, _ in met):.1f}"])
    table = page.table(["peer", "cases", "in time", "cause named, or trained", "longest s"], rows)
    page.finish(PEERS, trial.folder, [table], args.record)
    return args.cases - right, args.cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=["workers", "peers"])
    parser.add_argument("--kills", type=int, default=100, help="runs in which one rank is killed")
    parser.add_argument("--cases", type=int, default=50, help="cases, divided among the kinds of peers")
    parser.add_argument("--seed", type=int, default=1, help="selects ranks and moments")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="the folder with grappa-train and grappa-gen")
    parser.add_argument("--record", type=Path, help="append the result to this page")
    args = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        trial = Trial(args.programs.resolve(), Path(folder).resolve())
        wrong, total = (workers if args.campaign == "workers" else peers)(args, trial)
    if wrong:
        sys.exit(f"{wrong} of {total} went wrong")


if __name__ == "__main__":
    main()
