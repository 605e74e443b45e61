"""Ingest: files, arrays, tables and graphs in, a store out."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Unpack

from ._grappa import in_python
from ._options import IngestOptions
from .columns import packages_of
from .command import run
from .inputs import Data, data_of
from .graph import Graph, has_types
from .store import Store


def ingest(
    edges: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    tables: Any = None,
    keys: Mapping[str, str] | None = None,
    foreign_keys: Mapping[str, str] | None = None,
    link_tables: Sequence[str] | None = None,
    tasks: Sequence[str] | Mapping[str, Any] | None = None,
    num_nodes_dict: Mapping[str, int] | None = None,
    node_type: str | None = None,
    edge_type: str | None = None,
    progress: bool = False,
    **options: Unpack[IngestOptions],
) -> Store | Graph | dict[str, Any]:
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
              ``threads``, ``tmp``, ``force``, ``resume``, ``chunks``, ``seed``, ``time``, ``time_unit``, and ``edge_split``, a dict with the shares of each
              relation that holds edges out: ``{("user", "buys", "item"): "80/10/10"}``;
            - a dict with the edges of each relation, ``{("user", "buys", "item"): (sources, destinations)}``, as ``dgl.heterograph``
              accepts it, or a ``dgl.DGLGraph`` with types, with the same options. ``features``, ``labels``, ``train``, ``val`` and
              ``test`` are dicts by node type then, and ``weights`` and ``edge_features`` by relation.
        out: Folder of the new store.
        tables: A folder, a dict of tables of pandas, Polars or Arrow or of dicts of columns, or a ``Database`` of RelBench, which names
            its keys itself. Every row is a node, and every foreign key a relation with its reverse.
        keys: The column with the ids of the rows, by table: ``{"users": "id"}``.
        foreign_keys: The table that a column points to: ``{"orders.user": "users"}``.
        link_tables: Tables with two foreign keys, whose rows are edges instead of nodes.
        tasks: Tasks of entities, whose rows become nodes with times, labels and splits. Of a folder, the names of those that are read:
            all of them by default, none with ``[]``. Of tables in memory, a dict by name: a table of all rows, a dict with the tables
            ``"train"``, ``"val"`` and ``"test"``, or a task of RelBench. ``foreign_keys={"churn.user": "users"}`` names its entities.
        num_nodes_dict: The number of nodes of each type in a dict of edges. Without it, types have as many as rows of features or
            labels, or else as the largest number in edges asks for.
        node_type: The attribute of the nodes of a graph of NetworkX that names their type.
        edge_type: The attribute of its edges that names their relation. ``features_from=["user=age"]``, ``label="item=kind"`` and
            ``weight="buys=price"`` name attributes of one type or relation.
        progress: Whether to show a progress bar (needs tqdm), and then how the input was read.
        **options: ``val_edges`` and ``test_edges``, as `edges`, are edges that the graph does not have. ``features`` (shape (N,
            D)), ``labels`` ((N,) or (N, C)), ``node_ids``, ``weights`` ((E,)), ``edge_features`` ((E,) or (E, d)), ``train``,
            ``val`` and ``test`` (ids, or masks of shape (N,)) are files, arrays, tensors, tables or columns; ``features`` and
            ``labels`` may be sparse matrices. A ``str`` is the name of a file, a list has values. ``time`` has the times of edges: the name
            of a column of a table or file, or of an attribute of a graph; or, for edges in an array, integers or dates of shape (E,). For a
            dict of edges, it is a dict by relation. Dates keep their unit, and ``time_unit="s"`` says what integers count.

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
    given: dict[str, Any] = {**options}
    of_tables, of_attributes = (keys, foreign_keys, link_tables, tasks), (node_type, edge_type)
    _check_kinds(edges, tables, of_tables, num_nodes_dict, of_attributes)
    if isinstance(tables, (str, os.PathLike)):
        from .databases import folder_options

        given |= {"tables": tables, **folder_options(*of_tables, given)}
    elif tables is not None:
        from .databases import scratch, write_tables

        with scratch(out, given) as folder:
            files = write_tables(tables, *of_tables, folder, given)
            return _built(out, {**given, **files.options}, progress, names=files.names)
    elif of_attributes != (None, None):
        from .databases import scratch
        from .typed_networkx import write_types

        with scratch(out, given) as folder:
            files = write_types(edges, *of_attributes, folder, given)
            return _built(out, {**given, **files.options}, progress, names=files.names)
    elif isinstance(edges, Mapping):
        from .edge_lists import ingest_edge_lists

        return ingest_edge_lists(edges, num_nodes_dict, out, progress, given)
    elif hasattr(edges, "canonical_etypes") and hasattr(edges, "ntypes"):
        from .edge_lists import ingest_dgl

        return ingest_dgl(edges, out, progress, given)
    elif hasattr(edges, "edge_types") and hasattr(edges, "node_types"):
        from .typed_inputs import ingest_typed

        return ingest_typed(edges, out, progress, given)
    if edges is not None:
        given["edges"] = edges
    given, data = data_of(given, os.path.dirname(os.path.abspath(out)) if out is not None else tempfile.gettempdir())
    return _built(out, given, progress, data=data)


def _check_kinds(edges: Any, tables: Any, of_tables: tuple[Any, ...], num_nodes_dict: Any, of_attributes: tuple[Any, ...]) -> None:
    """Fails if an argument is of another kind of graph."""
    if tables is None and any(argument is not None for argument in of_tables):
        raise ValueError("keys=, foreign_keys=, link_tables= and tasks= are for tables with keys; give tables=")
    if tables is not None and edges is not None:
        raise ValueError("a graph is of edges or of tables; leave out one of both")
    if num_nodes_dict is not None and not isinstance(edges, Mapping):
        raise ValueError('num_nodes_dict= is for a dict of edges, such as {("user", "buys", "item"): (sources, destinations)}')
    if any(argument is not None for argument in of_attributes) and "networkx" not in packages_of(edges):
        raise ValueError("node_type= and edge_type= name attributes of a graph of NetworkX; leave them out with other edges")


def _built(
    out: str | os.PathLike[str] | None,
    options: dict[str, Any],
    progress: bool,
    data: Sequence[Data] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> Store | Graph | dict[str, Any]:
    """Runs ``grappa-ingest``, and opens what it built."""
    summary = Summary(run("grappa-ingest", options={"out": out, **options}, progress=progress, data=data, names=names))
    if progress:
        print(summary, file=sys.stderr)
    if out is None or options.get("dry_run"):
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
        lines += self.get("notes", [])
        if self.get("class_names"):
            lines.append(f"names of classes or targets: {', '.join(self['class_names'][:10])}")
        if "relations" in self and "nodes" in self:
            types, relations = len(self["node_types"]), len(self["relations"])
            lines.append(f"{self['nodes']:,} nodes of {types} types, {self['edges']:,} edges of {relations} relations")
            lines += [f"{of['name']}: {of['rejected']:,} rows were no edges" for of in self["relations"] if of["rejected"]]
        elif "nodes" in self:
            rejected = f", {self['rejected']:,} rejected" if self["rejected"] else ""
            lines.append(f"{self['nodes']:,} nodes, {self['edges']:,} edges ({self['edges_read']:,} read{rejected})")
        return "\n".join(lines)
