"""Graphs of other libraries as inputs of ingest: each has the data of several options."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from .columns import packages_of
from .command import warn
from .optional import needed

#: What PyTorch Geometric calls the data of nodes and edges.
OF_DATA = {
    "edge_index": "edges",
    "x": "features",
    "y": "labels",
    "train_mask": "train",
    "val_mask": "val",
    "test_mask": "test",
    "edge_weight": "weights",
    "edge_attr": "edge_features",
}


class EdgeIndex(NamedTuple):
    """Edges with sources in the first row and targets in the second one, also where there are two edges."""

    array: Any

    @classmethod
    def checked(cls, array: Any, name: str) -> EdgeIndex:
        shape = tuple(array.shape)
        if len(shape) != 2 or shape[0] != 2:
            raise ValueError(f"{name} has shape {shape}; PyTorch Geometric's has shape (2, E), sources in the first row")
        return cls(array)


def of_whole_graph(options: dict[str, Any]) -> dict[str, Any]:
    """Divides a graph in ``edges`` among the options."""
    edges = options.get("edges")
    if edges is None or is_file(edges):
        return options
    packages = packages_of(edges)
    if "networkx" in packages:
        return _of_networkx(edges, options)
    # A tensor of PyTorch Geometric, such as EdgeIndex, is a tensor.
    if "torch_geometric" in packages and "torch" not in packages:
        options = _of_pyg(edges, options)
    if options.get("weights") is True and not is_sparse(options["edges"]):
        raise ValueError("weights=True takes the values of a sparse matrix as weights; give an array of weights with other edges")
    if is_sparse(options["edges"]):
        if options.get("weights") is not True:
            options.setdefault("weight", "none")
        elif str(options["edges"].dtype).endswith("bool"):
            raise ValueError("weights=True: the values of a matrix of booleans are no weights")
        else:
            del options["weights"]
    return options


def _of_pyg(data: Any, options: dict[str, Any]) -> dict[str, Any]:
    if not hasattr(data, "edge_index") or not hasattr(data, "num_nodes"):
        raise TypeError(f"{type(data).__name__} is not ingested; give a torch_geometric.data.Data")
    if data.edge_index is None:
        raise ValueError(
            "this Data has no edge_index; with adj_t, set "
            "data.edge_index = torch_geometric.utils.to_edge_index(data.adj_t.t())[0]"
        )
    taken = {option: data[name] for name, option in OF_DATA.items() if name in data}
    taken["edges"] = EdgeIndex.checked(data.edge_index, "data.edge_index")
    for name in ("train_mask", "val_mask", "test_mask"):
        if name in data and data[name].dim() > 1:
            raise ValueError(f"data.{name} has {data[name].size(1)} splits; choose one, such as data.{name} = data.{name}[:, 0]")
    if "labels" in taken and taken["labels"].dim() == 2 and taken["labels"].size(1) == 1:
        taken["labels"] = taken["labels"].view(-1)
    if "features" not in taken and "labels" not in taken:
        taken["nodes"] = data.num_nodes
    time = options.get("time")
    if isinstance(time, str):
        if time not in data:
            raise ValueError(f"time={time!r}: this Data has no such attribute; it has {', '.join(sorted(data.keys()))}")
        options = {**options, "time": data[time]}
    left_out = sorted(set(data.keys()) - set(OF_DATA) - {"num_nodes", time if isinstance(time, str) else "num_nodes"})
    if left_out:
        warn(f"a store does not keep {', '.join(left_out)} of this Data")
    return {**options, **taken, **{name: value for name, value in options.items() if name != "edges"}}


def _of_networkx(graph: Any, options: dict[str, Any]) -> dict[str, Any]:
    nodes = list(graph.nodes)
    if not graph.is_directed() and options.setdefault("undirected", True) is False:
        raise ValueError("undirected=False: this graph is undirected; leave the option out, or give a DiGraph")
    ids = ids_of(nodes)
    options.setdefault("ids", ids)
    pairs = [end for pair in graph.edges() for end in pair]
    options["edges"] = EdgeIndex(np.array(pairs, dtype=np.int64 if ids != "string" else object).reshape(-1, 2).T)
    weight = options.pop("weight", None)
    if weight not in (None, "none"):
        missing = next((edge for *edge, value in graph.edges(data=weight) if value is None), None)
        if missing is not None:
            raise ValueError(f"weight={weight!r}: the edge from {missing[0]!r} to {missing[1]!r} has no such attribute")
        options["weights"] = np.fromiter((value for *_, value in graph.edges(data=weight)), np.float64, len(pairs) // 2)
    time = options.get("time")
    if isinstance(time, str):
        missing = next((edge for *edge, value in graph.edges(data=time) if value is None), None)
        if missing is not None:
            raise ValueError(f"time={time!r}: the edge from {missing[0]!r} to {missing[1]!r} has no such attribute")
        options["time"] = np.array([value for *_, value in graph.edges(data=time)])
    listed = {name: names_in(options.get(name)) for name in ("features_from", "label", "split_column")}
    attributes = [name for names in listed.values() for name in names]
    if attributes and not {"features", "labels"} & options.keys():
        table = needed("pyarrow", 'node attributes, such as label="kind"').table(
            {"node_id": nodes, **{name: _attribute(graph, name) for name in attributes}}
        )
        options["id"] = "node_id"
        if listed["features_from"]:
            options["features"] = table
        if listed["label"]:
            options["labels"] = table
    has_rows = bool({"features", "labels"} & options.keys()) and options.get("id") != "node_id"
    if ids == "dense":
        options.setdefault("nodes", len(nodes))
    if ids != "dense" or (has_rows and nodes != sorted(nodes)):
        options.setdefault("node_ids", np.array(nodes, dtype=np.int64 if ids != "string" else object))
    return options


def ids_of(nodes: list) -> str:
    """The kind of the ids of nodes."""
    import numbers

    if all(isinstance(node, str) for node in nodes):
        return "string"
    wrong = next((node for node in nodes if not isinstance(node, numbers.Integral) or isinstance(node, bool) or node < 0), None)
    if wrong is not None:
        raise TypeError(
            f"the node {wrong!r}: nodes are all strings, or all integers from 0; "
            'networkx.convert_node_labels_to_integers(graph, label_attribute="name") numbers them'
        )
    return "dense" if max(nodes) == len(nodes) - 1 else "sparse"


def names_in(value: Any) -> list[str]:
    if value is None:
        return []
    return value.split(",") if isinstance(value, str) else list(value)


def _attribute(graph: Any, name: str) -> list:
    values = [attributes.get(name) for _, attributes in graph.nodes(data=True)]
    if all(value is None for value in values):
        raise ValueError(f"no node of this graph has the attribute {name!r}")
    return values


def is_sparse(value: Any) -> bool:
    packages = packages_of(value)
    if "torch" in packages:
        return str(value.layout) != "torch.strided"
    return "scipy" in packages and hasattr(value, "tocsr")


def is_file(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))
