#!/usr/bin/env python3
"""Test accuracy of training in isolated partitions, next to training on the whole graph, and the contribution of each method.

A grid of runs of grappa-train: datasets x layers x variants x seeds. Finished runs are lines of DIR/accuracy.jsonl and are not repeated, so
the grid can be stopped at any time and continues when it is started again. The table has all runs of the file. Options with lists select
the runs, in all combinations:

    benches/accuracy.py --work DIR                                                halo modes x first hops, sweep, without correction
    benches/accuracy.py --work DIR --schedule fixed --halo stop,history           adds the contribution of repartitioning
    benches/accuracy.py --work DIR --models gat,gin --first-hop auto --halo auto  other models, with the defaults of partitions
    benches/accuracy.py --work DIR --halo history --correction batch,node         adds the contribution of loss weights
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parent.parent
QUESTION = """Which test accuracy does training in partitions reach that exchange nothing but gradients, next to the same model trained on the \
whole graph, and what does each part contribute? Models as named (else GraphSAGE-mean), hidden 128, fanouts 15,10(,5)(,5), 1024 seeds a step \
(64 for each of 16 partitions), Adam 0.003, dropout 0.5, undirected graphs; test accuracy, in %, at the best validation, by exact inference: \
mean ± standard deviation over seeds (number of seeds), and the difference to unpartitioned training with a sampled first hop."""
DATASETS = ["debian-bookworm", "wordnet", "amazon-computers", "coauthor-cs"]
# Test accuracy of SAGE in PyG in %, by dataset and layers.
PYG = {("debian-bookworm", 2): 76.3, ("debian-bookworm", 3): 79.4, ("wordnet", 2): 61.4, ("amazon-computers", 2): 90.9}
# What decides which run it is; the other keys of a line are its result.
KEYS = ["dataset", "layers", "model", "partitions", "first_hop", "halo", "correction", "schedule", "repartition_every", "also", "epochs", "seed"]
RESULTS = ["test_accuracy", "val_accuracy", "best_epoch", "seconds_per_epoch", "gradient_bytes_per_step"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for stores, runs and accuracy.jsonl")
    parser.add_argument("--record", type=Path, help="append the result to this page")
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="the folder with the datasets, a folder each")
    parser.add_argument("--stores", type=Path, help="a folder with stores DATASET.grappa, to use instead; first hops are added to them")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="the folder with Grappa's programs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time, with one thread each")
    parser.add_argument("--runs-max", type=int, help="run at most this many")
    parser.add_argument("--plan", action="store_true", help="print the missing runs; run nothing")
    parser.add_argument("--also", default="", help='more options for runs in partitions, such as "--shrinkage 0.5"')
    parser.add_argument("--epochs", type=int, default=50)
    lists = {
        "datasets": DATASETS,
        "models": ["sage"],
        "layers": [2, 3, 4],
        "seeds": [1, 2, 3],
        "partitions": [1, 16],
        "halo": ["none", "stop", "neighbors", "history"],
        "first-hop": ["sampled", "preaggregated"],
        "correction": ["none"],
        "schedule": ["sweep"],
        "repartition-every": [5],
    }
    for name, values in lists.items():
        kind = type(values[0])
        parser.add_argument(f"--{name}", type=lambda text, kind=kind: [kind(value) for value in text.split(",")], default=values)
    return parser.parse_args()


def grid(args):
    """All combinations, seed by seed, so that an incomplete table has all rows. Small models come first."""
    runs = []
    for seed, layers, dataset, model, partitions, first_hop in itertools.product(
        args.seeds, args.layers, args.datasets, args.models, args.partitions, args.first_hop
    ):
        variants = [("", "", "", 0, "")]
        if partitions > 1:
            variants = [
                # Fixed partitions have no rate of change.
                (halo, correction, schedule, 0 if schedule == "fixed" else every, args.also)
                for halo, correction, schedule, every in itertools.product(args.halo, args.correction, args.schedule, args.repartition_every)
            ]
        for variant in dict.fromkeys(variants):
            values = (dataset, layers, model, partitions, first_hop, *variant, args.epochs, seed)
            runs.append(dict(zip(KEYS, values)))
    return runs


def recorded(path):
    """The runs of a file. An unfinished last line is left out of it: the grid was stopped while it wrote."""
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    # The first records do not name the model.
    return [{"model": "sage", **json.loads(line)} for line in whole.splitlines()]


def identity(run):
    return tuple(run[key] for key in KEYS)


def name_of(run):
    name = "" if run["model"] == "sage" else run["model"] + ", "
    if run["partitions"] == 1:
        name += f"unpartitioned, first hop {run['first_hop']}"
    else:
        every = f" every {run['repartition_every']}" if run["repartition_every"] else ""
        name += f"K = Q = {run['partitions']}, halo {run['halo']}, first hop {run['first_hop']}, {run['schedule']}{every}"
        name += f", correction {run['correction']}" + (f", `{run['also']}`" if run["also"] else "")
    return name + (f", {run['epochs']} epochs" if run["epochs"] != 50 else "")


def store_of(args, dataset, with_first_hop):
    """The store of a dataset, which is made if it does not exist. None if the dataset is missing too."""
    store = args.stores and args.stores / f"{dataset}.grappa"
    if not (store and store.exists()):
        store, data = args.work / f"{dataset}.grappa", args.data / dataset
        if not store.exists():
            if not data.exists():
                print(f"skipped: {dataset}: there is no {data} (--data), and no store (--stores)", file=sys.stderr)
                return None
            features = "features_csr.npz" if dataset == "coauthor-cs" else "features.npy"
            command = [args.programs / "grappa-ingest", "--undirected", "--dedup", "--self-loops", "drop", "--chunks", "64", "--quiet"]
            for name in ["edges", "labels", "train", "val", "test"]:
                command += [f"--{name}", data / f"{name}.npy"]
            subprocess.run([*command, "--features", data / features, "--out", store], check=True)
    if with_first_hop and not (store / "aggregates/mean").exists():
        command = [args.programs / "grappa-store", "preaggregate", store, "--kind", "mean", "--memory", "4GiB", "--quiet"]
        subprocess.run(command, check=True)
    return store


def options_of(run):
    # PinSAGE keeps as many visited nodes at each hop.
    fanouts = ["10"] * 8 if run["model"] == "pinsage" else ["15", "10"] + ["5"] * 6
    options = f"--model {run['model']} --layers {run['layers']} --hidden 128 --fanouts {','.join(fanouts[: run['layers']])}"
    options += f" --batch {1024 // run['partitions']} --lr 0.003 --dropout 0.5 --epochs {run['epochs']} --seed {run['seed']}"
    options += f" --first-hop {run['first_hop']} --partitions {run['partitions']}"
    if run["partitions"] > 1:
        # As many as the epochs, so that fixed partitions are not rebuilt either.
        every = run["repartition_every"] or run["epochs"]
        options += f" --concurrent {run['partitions']} --halo {run['halo']} --correction {run['correction']}"
        options += f" --schedule {run['schedule']} --repartition-every {every} {run['also']}"
    return options.split()


def train(args, run, store, number):
    out = args.work / f"run-{number}"
    shutil.rmtree(out, ignore_errors=True)
    command = [args.programs / "grappa-train", store, *options_of(run), "--threads", "1", "--memory", "4GiB", "--json", "--out", out]
    command += ["--checkpoint-every", "0", "--checkpoint-minutes", "0"]
    begin = time.monotonic()
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.monotonic() - begin
    shutil.rmtree(out)
    result = json.loads(ended.stdout.strip().splitlines()[-1])
    return {**run, **{key: result.get(key, 0) for key in RESULTS}, "seconds": seconds}


def table(runs, dataset):
    """One row per variant, one column per number of layers."""
    cells, layers = {}, sorted({run["layers"] for run in runs})
    for run in runs:
        row = cells.setdefault((run["epochs"], run["model"], run["partitions"], name_of(run)), {})
        row.setdefault(run["layers"], []).append(run["test_accuracy"] * 100)
    pyg = [f"{PYG[dataset, count]:.1f}" if (dataset, count) in PYG else "-" for count in layers]
    rows = [["PyG, SAGE, unpartitioned", *pyg]]
    for (epochs, model, partitions, name), row in sorted(cells.items()):
        is_reference = partitions == 1 and "preaggregated" not in name
        texts = []
        for count in layers:
            values = row.get(count)
            if not values:
                texts.append("-")
                continue
            deviation = statistics.stdev(values) if len(values) > 1 else 0
            text = f"{statistics.mean(values):.2f} ± {deviation:.2f} ({len(values)})"
            for (other_epochs, other_model, other_partitions, other), references in cells.items():
                alike = (other_epochs, other_model, other_partitions) == (epochs, model, 1) and "preaggregated" not in other
                if alike and not is_reference and count in references:
                    text += f", {statistics.mean(values) - statistics.mean(references[count]):+.2f}"
            texts.append(text)
        rows.append([name, *texts])
    return page.table(["", *(f"{count} layers" for count in layers)], rows)


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    path = args.work / "accuracy.jsonl"
    done = recorded(path)
    known = {identity(run) for run in done}
    wanted = grid(args)
    missing = [run for run in wanted if identity(run) not in known][: args.runs_max]
    print(f"{len(wanted)} runs selected, {len(missing)} missing, {args.jobs} at a time", file=sys.stderr)
    if args.plan:
        for run in missing:
            print(f"{run['dataset']}, {run['layers']} layers, {name_of(run)}, seed {run['seed']}")
        return
    load, begin = os.getloadavg()[0], time.monotonic()
    stores = {}
    for dataset in {run["dataset"] for run in missing}:
        stores[dataset] = store_of(args, dataset, any(run["first_hop"] != "sampled" for run in missing if run["dataset"] == dataset))
    missing = [run for run in missing if stores[run["dataset"]]]
    with ThreadPoolExecutor(args.jobs) as pool, path.open("a") as file:
        jobs = [pool.submit(train, args, run, stores[run["dataset"]], number) for number, run in enumerate(missing)]
        try:
            for count, job in enumerate(as_completed(jobs), 1):
                run = job.result()
                file.write(json.dumps(run) + "\n")
                file.flush()
                done.append(run)
                left = (time.monotonic() - begin) / count * (len(jobs) - count)
                name = f"{run['dataset']}, {run['layers']} layers, {name_of(run)}, seed {run['seed']}"
                accuracy = run["test_accuracy"] * 100
                print(f"[{count}/{len(jobs)}, about {left / 60:.0f} min left] {name}: {accuracy:.2f} % in {run['seconds']:.0f} s", file=sys.stderr)
        finally:
            pool.shutdown(cancel_futures=True)

    found = {dataset: [run for run in done if run["dataset"] == dataset] for dataset in args.datasets}
    paragraphs = [f"### {dataset}\n\n{table(runs, dataset)}" for dataset, runs in found.items() if runs]
    seconds = statistics.mean(run["seconds"] for run in done) if done else 0
    paragraphs.append(
        f"{len(done)} runs with one thread each, {seconds:.0f} s on average. PyG is quoted from measurements on a machine of this kind: one seed, "
        f"mini-batches of 1024, evaluation with all neighbors. Load {load:.2f} before and {os.getloadavg()[0]:.2f} after."
    )
    page.finish(QUESTION, args.work, paragraphs, args.record)


if __name__ == "__main__":
    main()
