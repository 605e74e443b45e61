#!/usr/bin/env python3
"""Filtered MRR and triples per second of rows that are learned for the entities and relations of a knowledge graph.

    benches/knowledge.py scores --data DIR --work DIR [--epochs N] [--only fb15k-237/complex]
    benches/knowledge.py speed --data DIR --work DIR [--pykeen PYTHON]
    benches/knowledge.py cold --work DIR [--entities N --triples N --memory SIZE]

DIR of `--data` has a folder for each graph with train.tsv, valid.tsv and test.tsv, packed with gzip or not: FB15k-237 and WN18RR of the
repository TimDettmers/ConvE. `speed` trains ComplEx with rows of 400 values by Grappa and by PyKEEN on a part of the
triples, with the same number of negatives for a triple, and with all entities as negatives. PyKEEN draws negatives for each triple, Grappa for
each batch. `cold` writes random triples and trains an epoch in memory and an epoch in partitions, and measures what the disk needs for
the bytes that partitions move.
"""

import argparse
import gzip
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# One choice each, without a search.
SETTINGS = {
    ("fb15k-237", "complex"): "--embedding 256 --optimizer adagrad --lr 0.1 --n3 0.05 --batch 1024 --negative-sampling shared --negatives 1024",
    ("fb15k-237", "distmult"): "--embedding 256 --optimizer adagrad --lr 0.1 --n3 0.05 --batch 1024 --negative-sampling shared --negatives 1024",
    ("fb15k-237", "rotate"): "--embedding 256 --distance l1 --lr 0.001 --loss bce --self-adversarial 1 --margin 9 --batch 1024 --negatives 256",
    ("wn18rr", "complex"): "--embedding 512 --optimizer adagrad --lr 0.1 --n3 0.1 --batch 512 --negative-sampling shared --negatives 4096",
    ("wn18rr", "distmult"): "--embedding 512 --optimizer adagrad --lr 0.1 --n3 0.1 --batch 512 --negative-sampling shared --negatives 4096",
    ("wn18rr", "rotate"): "--embedding 400 --distance l1 --reciprocal=false --lr 0.003 --lr-schedule cosine --loss bce --self-adversarial 1 --margin 6 --batch 512 --negatives 256",
}
PUBLISHED = {
    ("fb15k-237", "complex"): 0.348,
    ("fb15k-237", "distmult"): 0.343,
    ("fb15k-237", "rotate"): 0.333,
    ("wn18rr", "complex"): 0.475,
    ("wn18rr", "distmult"): 0.452,
    ("wn18rr", "rotate"): 0.478,
}

# Epochs of `speed`; the first one counts in processor time only.
EPOCHS = 2

PYKEEN = """
import sys, time, torch
from pykeen.models import ComplEx
from pykeen.training import SLCWATrainingLoop, SymmetricLCWATrainingLoop
from pykeen.triples import TriplesFactory
path, threads, batch, negatives, count = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
full = TriplesFactory.from_path(path)
drawn = full.mapped_triples[torch.randperm(full.num_triples)[:count]]
part = TriplesFactory(drawn, entity_to_id=full.entity_to_id, relation_to_id=full.relation_to_id)
# 200 complex numbers are 400 values.
model = ComplEx(triples_factory=part, embedding_dim=200, loss="crossentropy")
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
options = dict(model=model, triples_factory=part, optimizer=optimizer)
if negatives:
    loop = SLCWATrainingLoop(**options, negative_sampler_kwargs=dict(num_negs_per_pos=negatives))
else:
    loop = SymmetricLCWATrainingLoop(**options)
loop.train(part, num_epochs=1, batch_size=batch, use_tqdm=False)
begin, processor = time.time(), time.process_time()
loop.train(part, num_epochs=2, batch_size=batch, use_tqdm=False)
print("triples", 2 * count, "seconds", time.time() - begin, "processor", time.process_time() - processor)
"""


def processor_seconds():
    """Processor time of all programs that ran, which other work on the machine hardly changes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command, **options):
    """Runs a program, and returns its output."""
    print("$", " ".join(map(str, command)), file=sys.stderr)
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def unpacked(data, work, graph):
    """The folder with the triples of a graph as text."""
    folder = work / graph
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        out = folder / f"{part}.tsv"
        if not out.exists():
            plain = data / graph / f"{part}.tsv"
            out.write_bytes(plain.read_bytes() if plain.exists() else gzip.open(f"{plain}.gz").read())
    return folder


def ingested(args, graph):
    folder, store = unpacked(args.data, args.work, graph), args.work / f"{graph}.grappa"
    if not store.exists():
        held_out = ["--val-edges", folder / "valid.tsv", "--test-edges", folder / "test.tsv"]
        run([args.programs / "grappa-ingest", "--triples", folder / "train.tsv", *held_out, "--out", store])
    return store


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def trained(args, store, out, options):
    shutil.rmtree(out, ignore_errors=True)
    run([args.programs / "grappa-train", store, "--layers", 0, "--task", "link", *options, "--out", out])
    return json.loads((out / "summary.json").read_text())


def scores(args):
    print("| graph | decoder | published MRR | MRR | Hits@1 | Hits@3 | Hits@10 | best epoch | minutes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (graph, decoder), options in SETTINGS.items():
        if args.only and args.only != f"{graph}/{decoder}":
            continue
        options = ["--decoder", decoder, *options.split(), "--epochs", args.epochs, "--eval-every", args.eval_every]
        out = args.work / f"{graph}-{decoder}"
        summary = trained(args, ingested(args, graph), out, options)
        found = summary["links"]["filtered"]
        hits = " | ".join(f"{100 * found[f'hits_at_{at}']:.1f} %" for at in (1, 3, 10))
        minutes = summary["seconds_total"] / 60
        print(
            f"| {graph} | {decoder} | {PUBLISHED[graph, decoder]} | {found['mrr']:.4f} | {hits} | {summary['best_epoch']} | {minutes:.0f} |",
            flush=True,
        )


def part_with_all_entities(folder, count):
    """A file with `count` training triples. All entities are in them, so that each query has as many candidates as in the whole graph."""
    path = folder / f"train-{count}.tsv"
    if not path.exists():
        lines = (folder / "train.tsv").read_text().splitlines(keepends=True)
        random.Random(1).shuffle(lines)
        seen, first, rest = set(), [], []
        for line in lines:
            head, _, tail = line.split("\t")
            ends = {head, tail.rstrip("\n")}
            (rest if ends <= seen else first).append(line)
            seen |= ends
        if len(first) > count:
            sys.exit(f"--triples: {len(first)} triples are needed for all entities")
        path.write_text("".join((first + rest)[:count]))
    return path


def speed(args):
    folder = unpacked(args.data, args.work, "fb15k-237")
    train, store = part_with_all_entities(folder, args.triples), args.work / f"fb15k-237-{args.triples}.grappa"
    if not store.exists():
        run([args.programs / "grappa-ingest", "--triples", train, "--val-edges", folder / "valid.tsv", "--out", store])
    options = ["--decoder", "complex", "--embedding", 400, "--batch", args.batch, "--threads", args.threads]
    options += ["--epochs", EPOCHS, "--candidates", 10]
    sampled = ["--negative-sampling", "shared", "--negatives", args.negatives]
    print("| negatives | program | triples/s | triples per second of processor time |\n|---|---|---:|---:|")
    for name, negatives, more in [(args.negatives, args.negatives, sampled), ("all entities", 0, ["--negative-sampling", "all"])]:
        out, before = args.work / "speed", processor_seconds()
        trained(args, store, out, [*options, *more])
        own = max(record["sampled_edges_per_second"] for record in records(out))
        # The whole process, with its start and its evaluations.
        by_processor = EPOCHS * args.triples / (processor_seconds() - before)
        print(f"| {name} | Grappa | {own:.0f} | {by_processor:.0f} |", flush=True)
        if args.pykeen:
            # With all entities, PyKEEN has a row for each triple and entity in memory: 24 GB are too few for 512 triples.
            size = [args.batch, args.pykeen_triples] if negatives else [16, args.pykeen_triples // 32]
            words = run([args.pykeen, "-c", PYKEEN, train, args.threads, size[0], negatives, size[1]]).split()
            triples, seconds, processor = (float(words[words.index(word) + 1]) for word in ("triples", "seconds", "processor"))
            print(f"| {name} | PyKEEN | {triples / seconds:.0f} | {triples / processor:.0f} |", flush=True)


def cold(args):
    args.work.mkdir(parents=True, exist_ok=True)
    store = args.work / "random.grappa"
    if not store.exists():
        draw = random.Random(1)
        with open(args.work / "train.tsv", "w") as out:
            for _ in range(args.triples):
                out.write(f"{draw.randrange(args.entities)}\tr{draw.randrange(16)}\t{draw.randrange(args.entities)}\n")
        with open(args.work / "valid.tsv", "w") as out:
            out.writelines(f"{draw.randrange(args.entities)}\tr0\t{draw.randrange(args.entities)}\n" for _ in range(1000))
        paths = ["--triples", args.work / "train.tsv", "--val-edges", args.work / "valid.tsv"]
        run([args.programs / "grappa-ingest", *paths, "--out", store])
        (args.work / "train.tsv").unlink()
    options = ["--decoder", "complex", "--embedding", 100, "--batch", args.batch, "--negative-sampling", "shared"]
    options += ["--negatives", 1024, "--epochs", 1, "--candidates", 100]
    for name, more in [("in memory", ["--memory", "64GiB", "--partitions", 1]), ("in partitions", ["--memory", args.memory])]:
        out = args.work / name.replace(" ", "-")
        try:
            summary = trained(args, store, out, [*options, *more])
        except subprocess.CalledProcessError:
            print(f"{name}: failed", flush=True)
            continue
        record = records(out)[0]
        rate = record["sampled_edges_per_second"]
        print(
            f"{name}: {rate:.0f} triples/s, {summary['partitions']} partition(s), {record['bytes_read'] / 1e9:.1f} GB moved, "
            f"peak memory {summary['peak_rss_bytes'] / 2**30:.2f} GiB",
            flush=True,
        )
    piece, path = os.urandom(1 << 24), args.work / "floor"
    begin = time.time()
    with open(path, "wb") as out:
        for _ in range(64):
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    print(f"disk: {64 * len(piece) / (time.time() - begin) / 1e6:.0f} MB/s written")
    path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in [("scores", scores), ("speed", speed), ("cold", cold)]:
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--work", type=Path, required=True, help="folder for stores and runs")
        command.add_argument("--programs", type=Path, default=ROOT / "target" / "release", help="folder of the programs")
        if name != "cold":
            command.add_argument("--data", type=Path, required=True, help="folder of the graphs")
        if name == "scores":
            command.add_argument("--epochs", type=int, default=100)
            command.add_argument("--eval-every", type=int, default=5)
            command.add_argument("--only", help="one graph and decoder, such as wn18rr/complex")
        if name == "speed":
            command.add_argument("--batch", type=int, default=512)
            command.add_argument("--negatives", type=int, default=256)
            command.add_argument("--threads", type=int, default=os.cpu_count())
            command.add_argument("--triples", type=int, default=20480, help="triples of an epoch of Grappa")
            command.add_argument("--pykeen", help="a Python with PyKEEN")
            command.add_argument("--pykeen-triples", type=int, default=2048, help="random triples of an epoch of PyKEEN")
        if name == "cold":
            command.add_argument("--entities", type=int, default=10_000_000)
            command.add_argument("--triples", type=int, default=100_000_000)
            command.add_argument("--memory", default="2GiB")
            command.add_argument("--batch", type=int, default=8192)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
