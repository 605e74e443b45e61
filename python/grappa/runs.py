"""Training runs of ``grappa-train``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterable, Literal, TypeVar, Unpack

import numpy as np

from . import _grappa, programs
from ._grappa import Error, in_python
from ._options import PredictOptions, TrainOptions
from .command import arguments, warn
from .graph import Graph, NodeType, has_types
from .links import _pairs
from .optional import needed
from .store import Store, _numbers
from .temporary import private_folder

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from .model import HeteroModel, Model

#: The values that are predicted for nodes.
Values = Literal["classes", "probabilities", "logits", "embeddings"]
#: The option of ``grappa-train predict`` for them.
VALUES: dict[Values, list[str]] = {"classes": [], "probabilities": ["--probabilities"], "logits": ["--logits"], "embeddings": ["--embeddings"]}
#: What a file of predictions becomes.
Result = TypeVar("Result")
#: Scores that are shares, which are shown in percent.
SHARES = ("accuracy", "f1", "roc_auc", "average_precision", "hits_at_10", "recall_at_20")
#: The exit codes of a program that a signal stopped.
STOPPED = (130, 143, 129, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)


def train(
    store: Store | Graph | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    progress: bool = False,
    **options: Unpack[TrainOptions],
) -> Run:
    """Trains a model with the program ``grappa-train``, in a process of its own.

    Options are as in ``grappa-train --help``, with ``_`` for ``-``: ``epochs=20``, ``partitions=4``, ``model="gat"``,
    ``fanouts=[15, 10]``, ``memory="2GiB"``, ``resume=True``. Ctrl-C finishes the step and writes a checkpoint; then ``resume=True``
    continues. A second one ends it at once. What the program warns of is a Python warning.

    Args:
        store: A `Store`, a `Graph` with types, or the path of one.
        out: Folder of the run.
        progress: Whether to print the program's lines on stderr, one per epoch.
        **options: Options of ``grappa-train``.

    Raises:
        ValueError: An option is unknown or has an impossible value.
        grappa.Error: Training failed, or the program or its PyTorch is missing. The message has a remedy.
        KeyboardInterrupt: It was stopped.

    Example:
        >>> run = grappa.train(store, out=folder / "run", epochs=2, hidden=16)
        >>> run.metrics["loss"].shape
        (2,)
    """
    path = store.path if isinstance(store, (Store, Graph)) else store
    # Its lists are values with commas between them.
    listed = {
        name: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value for name, value in options.items()
    }
    line = [os.fspath(path), "--out", os.fspath(out), *arguments(listed)]
    _call(line, print_lines=progress, remedy=f"resume=True continues {os.fspath(out)} from its last checkpoint")
    return Run(out)


class Run:
    """A run of `grappa.train` or ``grappa-train``.

    Args:
        path: The folder of the run.

    Raises:
        grappa.Error: There is no run.

    Example:
        >>> grappa.Run(run.path).summary["epochs"]
        2
    """

    def __init__(self, path: str | os.PathLike):
        self._path = os.fspath(path)
        if not os.path.exists(self._file("config.toml")):
            raise Error(f"{self._path} is no run: it has no config.toml; give the folder that was `out` of grappa.train")

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def config(self) -> dict[str, Any]:
        """The options, as ``grappa-train`` names them.

        Example:
            >>> run.config["hidden"]
            16
        """
        return json.loads(_grappa.run_config(self._path))

    @property
    def summary(self) -> dict[str, Any]:
        """The scores of the best epoch, times and resources, as of the last checkpoint.

        Raises:
            grappa.Error: There was no checkpoint, or the file is damaged.

        Example:
            >>> 0 <= run.summary["test_accuracy"] <= 1
            True
        """
        summary = _grappa.run_summary(self._path)
        if summary is None:
            why = "the run has no checkpoint yet, or was killed before; start it again with force=True"
            raise Error(f"{self._path} has no summary.json: {why}")
        return json.loads(summary)

    @property
    def metrics(self) -> Metrics:
        """A row per epoch: losses, scores, seconds by stage, bytes. While a run trains, the last epochs may be missing.

        Raises:
            grappa.Error: The file is damaged, or lacks an epoch.

        Example:
            >>> run.metrics["epoch"]
            array([1, 2])
        """
        rows = [_flat(json.loads(line)) for line in _grappa.run_metrics(self._path).splitlines()]
        return _table(rows)

    def predict(
        self,
        store: Store | Graph | str | os.PathLike,
        nodes: Any = None,
        *,
        ids: Any = None,
        split: str | None = None,
        values: Values = "classes",
        links: Any = None,
        top_k: int | None = None,
        among: Any = None,
        **options: Unpack[PredictOptions],
    ) -> np.ndarray | BestLinks:
        """Predicts nodes with the parameters of the best epoch, from all their neighbors; or links, with a run of ``task="link"``.

        Args:
            store: A `Store`, a `Graph` with types, or the path of one. It may be another one than the run was trained on.
            nodes: Node numbers, or a mask over all nodes. Default: all nodes, ascending. In a graph with types, they are of the type
                that the run learned; of links of a relation, of the type of sources for `top_k`, and else of destinations or of
                ``type="user"``.
            ids: Ids of the input, instead of ``nodes``.
            split: The name of a split, instead of ``nodes``; its nodes ascend.
            values: ``"classes"``, ``"probabilities"``, ``"logits"`` or ``"embeddings"`` (the input of the last layer).
            links: Pairs to score instead of nodes: sources and destinations, an integer array of shape (2, e).
            top_k: Find the best `top_k` destinations of each node of `nodes` or `split`. With ``exclude_known=True``, known edges
                are left out.
            among: The nodes that the destinations of `top_k` are among, such as the items of a shop: node numbers, or a mask over all
                nodes. Default: all nodes.
            **options: Options of ``grappa-train predict``, such as ``memory="4GiB"``. With ``at=1719792000``, links are predicted as of
                this time, in the unit of the store, by a model that learned links at their times. A model that takes ages predicts after
                the last event by default.

        Returns:
            With `links` a score per pair, of shape (e,), float32. With `top_k` a `BestLinks`. Otherwise a row per node. Classes
            have shape (n,), or (n, C) of 0 and 1 if nodes have sets of classes; the predictions of a regression have shape (n,) or
            (n, T), in the unit of the labels. The others have shape (n, C) or (n, hidden), float32.

        Raises:
            ValueError: Arguments contradict each other.
            grappa.Error: The store does not fit the model, or it predicts no links.

        Example:
            >>> run.predict(store, [0, 5], values="probabilities").shape
            (2, 7)
        """
        store = _opened(store)
        if ids is not None:
            nodes = _nodes_by_ids(self._predicted_nodes(store, top_k, options), nodes, split, ids)
        if links is None and top_k is not None:
            ends = self._ends(store)
            sources, places = np.unique(_sources(ends[0], nodes, split), return_inverse=True)
            table = self._predicted(_grappa.read_table, "links.parquet", store, sources, None, values, None, top_k, among, options)
            best = _best_links(ends, table, sources, top_k)
            return BestLinks(sources[places], best.targets[places], best.scores[places])
        wanted = (store, nodes, split, values, links, top_k, among, options)
        if links is not None:
            return np.asarray(self._predicted(_grappa.read_table, "links.parquet", *wanted)["score"])
        return self._predicted(np.load, "values.npy", *wanted)

    def predict_table(
        self,
        store: Store | Graph | str | os.PathLike,
        nodes: Any = None,
        *,
        ids: Any = None,
        split: str | None = None,
        values: Values = "classes",
        links: Any = None,
        top_k: int | None = None,
        among: Any = None,
        **options: Unpack[PredictOptions],
    ) -> pyarrow.Table:
        """As `predict`, but returns a table of PyArrow, with the ids of the input and the names of classes. Links have the columns
        ``source``, ``target`` and ``score``.

        Example:
            >>> run.predict_table(store, [0, 5]).column_names
            ['id', 'class', 'probability']
        """
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise ImportError("a table needs PyArrow: pip install pyarrow") from None
        store = _opened(store)
        if ids is not None:
            nodes = _nodes_by_ids(self._predicted_nodes(store, top_k, options), nodes, split, ids)

        def read(file: str) -> pyarrow.Table:
            # `read_table` imports data sets and file systems of clouds, which takes seconds.
            with ParquetFile(file) as table:
                return table.read()

        return self._predicted(read, "values.parquet", store, nodes, split, values, links, top_k, among, options)

    def _predicted(
        self,
        read: Callable[[str], Result],
        name: str,
        store: Store | Graph,
        nodes: Any,
        split: str | None,
        values: Values,
        links: Any,
        top_k: int | None,
        among: Any,
        options: PredictOptions,
    ) -> Result:
        if values not in VALUES:
            raise ValueError(f"values={values!r}; give one of {', '.join(map(repr, VALUES))}")
        _check_one(nodes, split)
        if links is not None and (nodes is not None or split is not None or top_k is not None):
            raise ValueError("links has both ends of each pair; leave out nodes, split and top_k")
        if (links is not None or top_k is not None) and values != "classes":
            raise ValueError(f"values={values!r} is for nodes; links have scores, so leave it out")
        if among is not None and top_k is None:
            raise ValueError("among has the destinations of top_k; give top_k, or leave it out")
        with private_folder("grappa-predict-") as scratch:
            file = os.path.join(scratch, name)
            line = ["predict", self._path, os.fspath(store.path), "--out", file, *VALUES[values], *arguments({**options})]
            if links is not None:
                line.append(f"--links={_write_links(self._ends(store), links, scratch)}")
            elif top_k is not None:
                source, destination = self._ends(store)
                ids = source.ids(_sources(source, nodes, split))
                line += [f"--top-k={top_k}", f"--for={_write_ids(ids, scratch)}"]
                if among is not None:
                    ids = destination.ids(_numbers(among, destination.num_nodes, "among"))
                    line.append(f"--among={_write_ids(ids, scratch, 'among')}")
            elif split is not None:
                line.append(f"--split={split}")
            elif nodes is not None:
                predicted = self._predicted_nodes(store, None, options)
                ids = predicted.ids(_numbers(nodes, predicted.num_nodes))
                line.append(f"--ids={_write_ids(ids, scratch)}")
            _call(line)
            return read(file)

    def _predicted_nodes(self, store: Store | Graph, top_k: int | None, options: PredictOptions) -> Store:
        """The nodes that the model predicts, or the sources of the best links."""
        source, predicted = self._ends(store)
        if top_k is not None:
            return source
        node_type = options.get("type")
        return store[node_type]._nodes if isinstance(store, Graph) and node_type is not None else predicted

    def _ends(self, store: Store | Graph) -> tuple[Store, Store]:
        """The sources and the destinations of the links that the model predicts; twice the nodes, if it predicts nodes."""
        if isinstance(store, Store):
            return store, store
        ends = self.summary.get("target", "node").split(":")
        return store[ends[0]]._nodes, store[ends[-1]]._nodes

    def export(self, out: str | os.PathLike, *, force: bool = False) -> None:
        """Writes the model to a file in the safetensors format, for `grappa.model.load`.

        Example:
            >>> run.export(folder / "model.safetensors")
        """
        _call(["export", self._path, "--out", os.fspath(out), *arguments({"force": force})])

    def model(self) -> Model | HeteroModel:
        """The model of the best epoch as a module of PyTorch Geometric: ``model(x, edge_index)`` gives the logits, or, of a graph with types,
        ``model(x_dict, edge_index_dict)`` those of the nodes of type ``model.target``. Of links of a relation, it gives a dict with
        the embeddings of both types, and ``model.decoder`` scores pairs of them.

        Needs PyTorch, PyTorch Geometric and safetensors, in any version.

        Example:
            >>> run.model().task
            'multi-class'
        """
        from . import model

        with private_folder("grappa-model-") as scratch:
            file = os.path.join(scratch, "model.safetensors")
            self.export(file)
            return model.load(file)

    def __repr__(self) -> str:
        if not os.path.exists(self._file("summary.json")):
            return f"grappa.Run({self._path!r}: no checkpoint yet)"
        try:
            summary, config = self.summary, self.config
        except Error as error:
            return f"grappa.Run({self._path!r}: {error})"
        text = f"{summary['epochs']} epochs"
        if summary["epochs"] < config["epochs"] and summary["early_stopping_epoch"] is None:
            text = f"epoch {summary['epochs']} of {config['epochs']}"
        names = dict.fromkeys(["accuracy", "mrr", _key(config["monitor"])])
        for name in (f"{split}_{name}" for name in names for split in ("val", "test")):
            if summary.get(name) is not None:
                shown = format(summary[name], ".2%" if name.endswith(SHARES) else ".4f")
                text += f", {name.replace('_', ' ')} {shown}"
        return f"grappa.Run({self._path!r}: {text})"

    def _repr_html_(self) -> str:
        """The report, in a frame of its own."""
        import html

        # A report in progress, or none.
        if not os.path.isfile(self._file("report.html")):
            return html.escape(repr(self))
        with open(self._file("report.html"), encoding="utf-8", errors="replace") as file:
            report = file.read()
        return f'<iframe srcdoc="{html.escape(report)}" style="width: 100%; height: 48em; border: 0"></iframe>'

    def _file(self, name: str) -> str:
        return os.path.join(self._path, name)


@dataclass
class BestLinks:
    """The best destinations of nodes, the best one first.

    Example:
        >>> best = grappa.runs.BestLinks(np.array([3]), np.array([[7, 1]]), np.array([[0.5, 0.25]]))
        >>> best.targets[best.sources == 3]
        array([[7, 1]])
    """

    #: The nodes that were asked for: shape (n,), int64.
    sources: np.ndarray
    #: Their destinations: shape (n, k), int64. -1 where a node has fewer, because all others are known.
    targets: np.ndarray
    #: The scores of these: shape (n, k), float32. NaN where there is no destination.
    scores: np.ndarray


class Metrics(dict[str, np.ndarray]):
    """Columns by name: an array each, with a value per epoch. Columns like ``seconds_by_stage.sample`` have the time of each stage.
    NaN stands for what an epoch did not measure.

    Example:
        >>> run.metrics["val_accuracy"].shape
        (2,)
    """

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a row per epoch.

        Example:
            >>> run.metrics.to_pandas().shape[0]
            2
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("a data frame needs pandas: pip install pandas") from None
        return pandas.DataFrame(dict(self))


def _key(monitor: str) -> str:
    """The key in the summary of what a run monitors."""
    return "roc_auc" if monitor == "auc" else monitor.replace("-", "_").replace("@", "_at_")


def _table(rows: list[dict[str, Any]]) -> Metrics:
    names = dict.fromkeys(name for row in rows for name in row)
    return Metrics({name: _column([row.get(name) for row in rows]) for name in names})


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics without objects in it, and without its checksum."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": amount for inner, amount in value.items()})
        elif name != "checksum":
            flat[name] = value
    return flat


def _column(values: list) -> np.ndarray:
    if all(value is None or isinstance(value, (int, float)) for value in values):
        return np.array([np.nan if value is None else value for value in values])
    return np.array(values, dtype=object)


def _write_ids(ids: np.ndarray, folder: str, stem: str = "ids") -> str:
    """Writes ids to a file that ``--ids`` reads, and returns its path."""
    path = os.path.join(folder, f"{stem}.txt" if ids.dtype == object else f"{stem}.npy")
    with open(path, "xb") as file:
        if ids.dtype != object:
            np.save(file, ids.astype(np.uint64))
            return path
        lines = [item if isinstance(item, bytes) else item.encode() for item in ids]
        broken = next((line for line in lines if b"\n" in line), None)
        if broken is not None:
            raise ValueError(f"the id {broken!r} has a line break; predict all nodes, or a split")
        file.write(b"".join(line + b"\n" for line in lines))
    return path


def _opened(store: Store | Graph | str | os.PathLike) -> Store | Graph:
    if isinstance(store, (Store, Graph)):
        return store
    return Graph(store) if has_types(store) else Store(store)


def _nodes_by_ids(store: Store | NodeType, nodes: Any, split: str | None, ids: Any) -> np.ndarray:
    """The nodes that have these ids."""
    if nodes is not None or split is not None:
        raise ValueError(f"ids and {'nodes' if nodes is not None else 'split'} are both given; give one of them")
    return store.nodes(ids)


def _check_one(nodes: Any, split: str | None) -> None:
    if nodes is not None and split is not None:
        raise ValueError("nodes and split are both given; give one of them")


def _sources(store: Store, nodes: Any, split: str | None) -> np.ndarray:
    """The nodes whose best destinations are wanted."""
    _check_one(nodes, split)
    if split is not None:
        return store.split(split)
    return _numbers(slice(None) if nodes is None else nodes, store.num_nodes)


def _write_links(ends: tuple[Store, Store], links: Any, folder: str) -> str:
    """Writes the ids of pairs to a file that ``--links`` reads, and returns its path."""
    ids = [end.ids(_numbers(numbers, end.num_nodes, "links")) for end, numbers in zip(ends, _pairs(links))]
    are_strings = any(column.dtype == object for column in ids)
    path = os.path.join(folder, "pairs.parquet" if are_strings else "pairs.npz")
    with open(path, "xb") as file:
        if not are_strings:
            np.savez(file, edge_index=np.stack(ids))
            return path
        pa = needed("pyarrow", "ids that are strings")
        columns = [pa.array(column.tolist(), pa.string()) if column.dtype == object else pa.array(column) for column in ids]
        table = pa.table(columns, ["source", "target"])
        needed("pyarrow.parquet", "ids that are strings").write_table(table, file)
    return path


def _best_links(ends: tuple[Store, Store], table: dict[str, Any], sources: np.ndarray, k: int) -> BestLinks:
    """The links of `sources`, which ascend, in a table of ids and scores. The rows of a source are together, the best one first."""
    best = BestLinks(
        sources=sources,
        targets=np.full((len(sources), k), -1, np.int64),
        scores=np.full((len(sources), k), np.nan, np.float32),
    )
    source = np.searchsorted(sources, _nodes_of(ends[0], table["source"]))
    place = np.arange(len(source)) - np.searchsorted(source, source)
    best.targets[source, place] = _nodes_of(ends[1], table["target"])
    best.scores[source, place] = np.asarray(table["score"])
    return best


def _nodes_of(store: Store, ids: Any) -> np.ndarray:
    """The nodes of the ids in a column of a table."""
    return store.nodes(np.array(ids, object) if store._store.has_string_ids else np.asarray(ids))


def _call(line: list[str], print_lines: bool = False, remedy: str = "") -> None:
    """Runs ``grappa-train`` to its end. `remedy` says how a stopped command continues."""
    try:
        program, environment = programs.command()
    except programs.Missing as error:
        raise Error(str(error)) from None
    with _Reports() as reports:
        # A group of its own: a terminal sends Ctrl-C to all processes of a group, and a second signal would end the program at once.
        process = subprocess.Popen(
            [program, *line],
            env=environment | {"GRAPPA_REPORTS": reports.path},
            pass_fds=[reports.file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )
        assert process.stdout is not None
        last_lines: deque[str] = deque(maxlen=5)
        interrupted = False
        try:
            while True:
                try:
                    for text in process.stdout:
                        last_lines.append(text.rstrip("\n"))
                        reports.read()
                        if print_lines:
                            print(last_lines[-1], file=sys.stderr, flush=True)
                    process.wait()
                    break
                except KeyboardInterrupt:
                    interrupted = True
                    process.send_signal(signal.SIGINT)
            reports.read()
        finally:
            # A warning became an error, or the lines cannot be shown.
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate()
            process.stdout.close()
        if interrupted or process.returncode in STOPPED:
            raise KeyboardInterrupt(remedy)
        if process.returncode != 0:
            raise reports.exception() or _crash(process.returncode, last_lines, remedy)


class _Reports:
    """Warnings and failures of a program and its workers: a file in memory, to which they append lines of JSON."""

    def __init__(self) -> None:
        self.file = os.memfd_create("grappa-reports")
        self.path = f"/proc/self/fd/{self.file}"
        self._position = 0
        self._rest = b""
        self._failures: list[dict[str, Any]] = []

    def __enter__(self) -> _Reports:
        return self

    def __exit__(self, *_) -> None:
        os.close(self.file)

    def read(self) -> None:
        """Reads what was appended since the last call. A warning becomes one of Python."""
        appended = os.pread(self.file, os.fstat(self.file).st_size - self._position, self._position)
        self._position += len(appended)
        *lines, self._rest = (self._rest + appended).split(b"\n")
        reports = [json.loads(line) for line in lines]
        self._failures += [report["failure"] for report in reports if "failure" in report]
        for report in reports:
            if "warning" in report:
                warn(in_python(report["warning"]))

    def exception(self) -> Exception | None:
        """The exception for the failure: of the first worker if there are several, because the launcher repeats no causes."""
        failures = sorted(self._failures, key=lambda failure: "process" not in failure)
        return _grappa.exception_of(json.dumps(failures[0])) if failures else None


def _crash(code: int, last_lines: Iterable[str], remedy: str) -> Error:
    """The exception for a program that ended without a report."""
    end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return Error("\n".join([f"grappa-train {end}" + (f"; {remedy}" if remedy else ""), *last_lines]))
