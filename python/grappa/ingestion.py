"""Ingest: files, arrays, tables and graphs in, a store out."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, Unpack

from ._grappa import in_python
from ._options import IngestOptions
from .command import run
from .inputs import data_of
from .graph import Graph, has_types
from .store import Store


def ingest(edges: Any = None, *, out: str | os.PathLike | None = None, progress: bool = False, **options: Unpack[IngestOptions]) -> Store | Graph | dict[str, Any]:
    """Builds a store, and opens it.

    Options are as in ``grappa-ingest --help``, with ``_`` for ``-``: ``undirected=True``, ``split="60/20/20"``,
    ``memory="2GiB"``. A list gives an option several values. Arrays and tables are read where they are in memory, which does not count
    as memory of ingest. A stream that can be read only once, such as a ``RecordBatchReader`` or a ``LazyFrame``, is written to a file
    without a name beside `out`. An ingest that was stopped continues with the same arguments and ``resume=True``.

    Args:
        edges: One of these, with edges from the first column or row to the second:

            - files or folders, or a list of them;
            - an integer array or tensor of shape (E, 2) or (2, E), or an array of strings;
            - a table of pandas, Polars or Arrow, or any object with ``__arrow_c_stream__``; ``src``, ``dst`` and ``weight`` name
              its columns. The ids of a column of text need ``ids="string"``;
            - a sparse matrix ``A`` of SciPy or PyTorch: each stored entry ``A[i, j]`` is an edge from i to j. Values are weights
              with ``weights=True`` alone;
            - a graph of NetworkX. ``ids`` and ``undirected`` follow from it, and rows of features and labels are in the order of
              its nodes. ``features_from=["age"]``, ``label="kind"``, ``split_column="part"`` and ``weight="km"`` name attributes;
            - a ``torch_geometric.data.Data``, with its ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask``,
              ``edge_weight`` and ``edge_attr``;
            - a ``torch_geometric.data.HeteroData``, with the same of each node type and relation, and the options ``memory``,
              ``threads``, ``tmp``, ``force``, ``resume``, ``chunks``, ``seed``, and ``edge_split``, a dict with the shares of each
              relation that holds edges out: ``{("user", "buys", "item"): "80/10/10"}``.
        out: Folder of the new store.
        progress: Whether to show a progress bar (needs tqdm), and then how the input was read.
        **options: ``val_edges`` and ``test_edges``, as `edges`, are edges that the graph does not have. ``features`` (shape (N,
            D)), ``labels`` ((N,) or (N, C)), ``node_ids``, ``weights`` ((E,)), ``edge_features`` ((E,) or (E, d)), ``train``,
            ``val`` and ``test`` (ids, or masks of shape (N,)) are files, arrays, tensors, tables or columns; ``features`` and
            ``labels`` may be sparse matrices. A ``str`` is the name of a file, a list has values.

    Returns:
        The store, or a `Graph` if there are several node types. ``print(store.ingested)`` says how the input was read. With ``dry_run=True``, what it would become, as a dict.

    Raises:
        ValueError: An option is unknown or has an impossible value.
        TypeError: Data has a type that is not ingested.
        ImportError: A package that the data needs is missing.
        grappa.Error: The input cannot be read, or contradicts itself. The message names the place and a remedy.

    Example:
        >>> ring = np.stack([np.arange(10), (np.arange(10) + 1) % 10], axis=1)
        >>> store = grappa.ingest(ring, out=folder / "ring.grappa", undirected=True)
        >>> store.num_nodes, store.num_edges
        (10, 20)
    """
    if hasattr(edges, "edge_types") and hasattr(edges, "node_types"):
        from .typed_inputs import ingest_typed

        return ingest_typed(edges, out, progress, {**options})
    given: dict[str, Any] = {**options}
    if edges is not None:
        given["edges"] = edges
    given, data = data_of(given, os.path.dirname(os.path.abspath(out)) if out is not None else tempfile.gettempdir())
    summary = Summary(run("grappa-ingest", options={"out": out, **given}, progress=progress, data=data))
    if progress:
        print(summary, file=sys.stderr)
    if out is None or given.get("dry_run"):
        return summary
    store = Graph(out) if has_types(out) else Store(out)
    store.ingested = summary
    return store


class Summary(dict[str, Any]):
    """What ``grappa-ingest --json`` prints. Printed itself, it says how each input was read, with the columns that were taken and left
    out, and what the store has.

    Example:
        >>> print(grappa.ingest(np.array([[0, 1]]), out=folder / "one.grappa").ingested)
        edges from edges: binary
        2 nodes, 1 edges (1 read)
    """

    def __repr__(self) -> str:
        lines = [in_python(reading["described"]) for reading in self["inputs"]]
        if self.get("class_names"):
            lines.append(f"names of classes or targets: {', '.join(self['class_names'][:10])}")
        if "nodes" in self:
            rejected = f", {self['rejected']:,} rejected" if self["rejected"] else ""
            lines.append(f"{self['nodes']:,} nodes, {self['edges']:,} edges ({self['edges_read']:,} read{rejected})")
        return "\n".join(lines)
