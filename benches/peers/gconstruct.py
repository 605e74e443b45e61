"""A job of GraphStorm's gconstruct, by GraphStorm and by grappa-ingest.

    gconstruct.py prepare FOLDER EDGES              write the tables and the configuration; needs NumPy and PyArrow
    gconstruct.py grappa FOLDER OUT PROGRAM         PROGRAM is grappa-ingest
    gconstruct.py graphstorm FOLDER OUT PYTHON      PYTHON has graphstorm

Users and items have string ids. The two relations are user:follows:user and user:buys:item, with as many edges each, in Parquet files of 10^6
rows. Of the ten columns of the nodes, nine are numeric features, and one is the label of items, with a random split. Both programs
add reverse edges, and run on two cores.

`grappa` and `graphstorm` print one JSON object: `seconds` from the start of the program to its end, `processor_s` of all its
processes, and `peak_mib`, the largest proportional memory (PSS) of its processes together, read every 100 ms.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ROWS = 1_000_000
FEATURES = {"user": 5, "item": 4}


def prepare(folder, edges):
    import numpy
    import pyarrow
    import pyarrow.parquet

    random = numpy.random.default_rng(1)
    nodes = {"user": edges // 10, "item": edges // 50}
    ids = {}
    for name, count in nodes.items():
        numbers = random.permutation(8 * count)[:count]
        ids[name] = numpy.char.add(f"{name}-", numbers.astype(str)).astype(object)
        columns = {"id": ids[name]}
        for feature in range(FEATURES[name]):
            columns[f"f{feature}"] = random.standard_normal(count, numpy.float32)
        if name == "item":
            columns["area"] = random.integers(0, 20, count)
        write(folder / f"{name}.parquet", columns, pyarrow)
    relations = [("user", "follows", "user"), ("user", "buys", "item")]
    for source, name, destination in relations:
        for first in range(0, edges // 2, ROWS):
            count = min(ROWS, edges // 2 - first)
            # The square of a uniform number: the first nodes have most edges.
            ends = [(nodes[end] * random.random(count) ** 2).astype(numpy.int64) for end in (source, destination)]
            columns = {"source": ids[source][ends[0]], "destination": ids[destination][ends[1]]}
            write(folder / f"{name}-{first // ROWS:03}.parquet", columns, pyarrow)
    (folder / "config.json").write_text(json.dumps(configuration(folder.resolve(), relations), indent=1))


def write(path, columns, pyarrow):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def configuration(folder, relations):
    nodes = []
    for name, features in FEATURES.items():
        node = {"node_type": name, "node_id_col": "id", "format": {"name": "parquet"}, "files": [str(folder / f"{name}.parquet")]}
        node["features"] = [{"feature_col": f"f{feature}"} for feature in range(features)]
        if name == "item":
            node["labels"] = [{"label_col": "area", "task_type": "classification", "split_pct": [0.8, 0.1, 0.1]}]
        nodes.append(node)
    edges = [
        {
            "relation": list(relation),
            "source_id_col": "source",
            "dest_id_col": "destination",
            "format": {"name": "parquet"},
            "files": sorted(str(path) for path in folder.glob(f"{relation[1]}-*.parquet")),
        }
        for relation in relations
    ]
    return {"version": "gconstruct-v0.1", "nodes": nodes, "edges": edges, "add_reverse_edges": True}


def processes(root):
    """A process and its descendants."""
    found = [root]
    for process in found:
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                pass
    return found


def proportional_kib(process):
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(command):
    begin, peak = time.perf_counter(), 0
    child = subprocess.Popen(command, stdout=sys.stderr)
    while child.poll() is None:
        peak = max(peak, sum(map(proportional_kib, processes(child.pid))))
        time.sleep(0.1)
    seconds = time.perf_counter() - begin
    if child.returncode:
        sys.exit(f"{command[0]} failed: {child.returncode}")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = round(usage.ru_utime + usage.ru_stime, 2)
    print(json.dumps({"seconds": round(seconds, 2), "processor_s": processor, "peak_mib": peak >> 10}))


def grappa(folder, out, program):
    measure([program, "--gconstruct", str(folder / "config.json"), "--out", out, "--force"])


def graphstorm(folder, out, python):
    command = [python, "-m", "graphstorm.gconstruct.construct_graph", "--conf-file", str(folder / "config.json"), "--output-dir", out]
    measure([*command, "--graph-name", "job", "--num-parts", "1", "--num-processes", "2", "--add-reverse-edges"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", folder, edges]:
            prepare(Path(folder), int(edges))
        case ["grappa", folder, out, program]:
            grappa(Path(folder), out, program)
        case ["graphstorm", folder, out, python]:
            graphstorm(Path(folder), out, python)
        case _:
            sys.exit(__doc__)
