"""Inputs of ingest that are not files. Each becomes a file beside the new store, in blocks: it counts as disk, not as memory."""

from __future__ import annotations

import os
import warnings
from typing import Any

from .optional import needed

#: Options that take data.
DATA = ("edges", "val_edges", "test_edges", "features", "labels", "node_ids", "weights", "edge_features", "train", "val", "test")
#: Options that take edges.
EDGES = ("edges", "val_edges", "test_edges")
#: Bytes and rows that are copied at once.
BLOCK_BYTES = 16 << 20
BLOCK_ROWS = 1 << 17
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


def files_of(options: dict[str, Any], folder: str) -> dict[str, Any]:
    """The options with the names of files in `folder` for objects."""
    options = _of_whole_graph(dict(options))
    #: The column of data without columns, in Parquet.
    columns = dict.fromkeys(DATA, next((name for name in _names(options.get("id")) if name != "none"), "id"))
    columns |= {"features": "features", "labels": (_names(options.get("label")) or ["label"])[0]}
    for name in DATA:
        value = options.get(name)
        if value is None or value is False or _is_file(value):
            continue
        if name in EDGES and isinstance(value, (list, tuple)) and not _has_numbers(value):
            stems = [os.path.join(folder, f"{name}{at}") for at in range(len(value))]
            options[name] = [
                item if _is_file(item) else _write(item, name, columns[name], stem) for item, stem in zip(value, stems)
            ]
        else:
            options[name] = _write(value, name, columns[name], os.path.join(folder, name))
    return options


def _is_file(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _has_numbers(values: list | tuple) -> bool:
    """Whether a list of edges has pairs, or sources and destinations, and not files and tables."""
    return bool(values) and all(isinstance(item, (int, list, tuple)) for item in values)


def _packages(value: Any) -> set[str]:
    """The packages that an object's class and its base classes are from."""
    return {base.__module__.partition(".")[0] for base in type(value).__mro__}


# Graphs: several options each.


def _of_whole_graph(options: dict[str, Any]) -> dict[str, Any]:
    """Divides a graph in ``edges`` among the options."""
    edges = options.get("edges")
    if edges is None or _is_file(edges):
        return options
    packages = _packages(edges)
    if "networkx" in packages:
        return _of_networkx(edges, options)
    # A tensor of PyTorch Geometric, such as EdgeIndex, is a tensor.
    if "torch_geometric" in packages and "torch" not in packages:
        options = _of_pyg(edges, options)
    if options.get("weights") is True and not _is_sparse(options["edges"]):
        raise ValueError("weights=True takes the values of a sparse matrix as weights; give an array of weights with other edges")
    if _is_sparse(options["edges"]):
        if options.get("weights") is not True:
            options.setdefault("weight", "none")
        elif str(options["edges"].dtype).endswith("bool"):
            raise ValueError("weights=True: the values of a matrix of booleans are no weights")
        else:
            del options["weights"]
    return options


def _of_pyg(data: Any, options: dict[str, Any]) -> dict[str, Any]:
    if not hasattr(data, "edge_index") or not hasattr(data, "num_nodes"):
        raise TypeError(f"{type(data).__name__} is not ingested; give a Data, such as data.to_homogeneous()")
    if data.edge_index is None:
        raise ValueError(
            "this Data has no edge_index; with adj_t, set "
            "data.edge_index = torch_geometric.utils.to_edge_index(data.adj_t.t())[0]"
        )
    taken = {option: data[name] for name, option in OF_DATA.items() if name in data}
    for name in ("train_mask", "val_mask", "test_mask"):
        if name in data and data[name].dim() > 1:
            raise ValueError(f"data.{name} has {data[name].size(1)} splits; choose one, such as data.{name} = data.{name}[:, 0]")
    if "labels" in taken and taken["labels"].dim() == 2 and taken["labels"].size(1) == 1:
        taken["labels"] = taken["labels"].view(-1)
    if "features" not in taken and "labels" not in taken:
        taken["nodes"] = data.num_nodes
    left_out = sorted(set(data.keys()) - set(OF_DATA) - {"num_nodes"})
    if left_out:
        warnings.warn(f"a store does not keep {', '.join(left_out)} of this Data", stacklevel=4)
    return {**options, **taken, **{name: value for name, value in options.items() if name != "edges"}}


def _of_networkx(graph: Any, options: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    nodes = list(graph.nodes)
    if not graph.is_directed() and options.setdefault("undirected", True) is False:
        raise ValueError("undirected=False: this graph is undirected; leave the option out, or give a DiGraph")
    ids = _ids_of(nodes)
    options.setdefault("ids", ids)
    pairs = [end for pair in graph.edges() for end in pair]
    options["edges"] = np.array(pairs, dtype=np.int64 if ids != "string" else object).reshape(-1, 2)
    weight = options.pop("weight", None)
    if weight not in (None, "none"):
        missing = next((edge for *edge, value in graph.edges(data=weight) if value is None), None)
        if missing is not None:
            raise ValueError(f"weight={weight!r}: the edge from {missing[0]!r} to {missing[1]!r} has no such attribute")
        options["weights"] = np.fromiter((value for *_, value in graph.edges(data=weight)), np.float64, len(pairs) // 2)
    listed = {name: _names(options.get(name)) for name in ("features_from", "label", "split_column")}
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


def _ids_of(nodes: list) -> str:
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


def _names(value: Any) -> list[str]:
    if value is None:
        return []
    return value.split(",") if isinstance(value, str) else list(value)


def _attribute(graph: Any, name: str) -> list:
    values = [attributes.get(name) for _, attributes in graph.nodes(data=True)]
    if all(value is None for value in values):
        raise ValueError(f"no node of this graph has the attribute {name!r}")
    return values


# Single inputs: a file each.


def _write(value: Any, name: str, column: str, stem: str) -> str:
    """Writes the data of an option to a file that begins with `stem`, and returns its path. Data without columns gets the name
    `column`."""
    packages = _packages(value)
    if name == "edge_features" and (hasattr(value, "columns") or hasattr(value, "schema")):
        raise TypeError(
            f"edge_features={type(value).__name__}: give an array of shape (E,) or (E, d), such as table.to_numpy(); or give the "
            'columns to the table of edges, and name them with edge_features_from=["amount"]'
        )
    if "torch" in packages:
        return _write_torch(value, name, column, stem)
    if "scipy" in packages and _is_sparse(value):
        return _write_matrix(value, stem)
    if "polars" in packages:
        return _write_polars(value, name, column, stem)
    if "pandas" in packages:
        return _write_pandas(value, name, column, stem)
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        return _write_arrow(value, name, column, stem)
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, range)):
        return _write_array(value, name, column, stem)
    raise TypeError(
        f"{name}={type(value).__name__}: give a file, a NumPy array, a sparse matrix of SciPy, a tensor of PyTorch, a table of "
        "pandas, Polars or Arrow, or, for edges, a Data of PyTorch Geometric or a graph of NetworkX"
    )


def _write_array(value: Any, name: str, column: str, stem: str) -> str:
    import numpy as np

    # Arrays of other libraries may be larger than the memory, so they are read in blocks.
    if not isinstance(value, (np.ndarray, list, tuple, range)) and getattr(value, "ndim", False) and hasattr(value, "dtype"):
        return _write_blocks(value, np.dtype(value.dtype), np.asarray, stem)
    array = np.asarray(value)
    if array.dtype.kind in "OUT":
        return _write_strings(array, name, column, stem)
    np.save(stem + ".npy", array)
    return stem + ".npy"


def _write_blocks(value: Any, dtype: Any, block_of: Any, stem: str) -> str:
    """Writes rows of `value` block by block, each as `block_of` converts it."""
    import numpy as np

    shape = tuple(value.shape)
    rows = max(1, BLOCK_BYTES * shape[0] // max(1, dtype.itemsize * int(np.prod(shape))))
    with open(stem + ".npy", "wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, shape[0], rows):
            np.ascontiguousarray(block_of(value[first : first + rows]), dtype).tofile(file)
    return stem + ".npy"


def _write_strings(array: Any, name: str, column: str, stem: str) -> str:
    """Writes ids or names of classes."""
    what = f"{name} is an array of {array.dtype} of shape {array.shape}"
    if array.dtype == object and not all(isinstance(value, (str, bytes, type(None))) for value in array.flat):
        raise TypeError(f"{what} with values that are no strings; convert it, for example with .astype(np.int64)")
    pa = needed("pyarrow", "ids that are strings")
    if name in EDGES and array.ndim == 2 and 2 in array.shape:
        columns = array.T if array.shape[1] == 2 else array
        names = ["source", "target"]
    elif array.ndim == 1:
        columns, names = [array], [column]
    else:
        raise TypeError(f"{what}; give numbers, or a table")
    columns = [pa.array(values.tolist(), pa.string()) for values in columns]
    return _write_arrow(pa.table(columns, names), name, column, stem)


def _write_torch(tensor: Any, name: str, column: str, stem: str) -> str:
    import numpy as np
    import torch

    if _is_sparse(tensor):
        return _write_matrix(_scipy_of(tensor), stem)
    # NumPy has no bfloat16.
    kept = tensor.dtype if tensor.dtype != torch.bfloat16 else torch.float32
    if tensor.dim() and (tensor.is_cuda or kept != tensor.dtype):
        dtype = np.dtype(str(kept).removeprefix("torch."))
        return _write_blocks(tensor.detach(), dtype, lambda rows: rows.to("cpu", kept).numpy(), stem)
    return _write_array(tensor.detach().cpu().numpy(), name, column, stem)


def _is_sparse(value: Any) -> bool:
    packages = _packages(value)
    if "torch" in packages:
        return str(value.layout) != "torch.strided"
    return "scipy" in packages and hasattr(value, "tocsr")


def _scipy_of(tensor: Any) -> Any:
    """A sparse tensor as a matrix of SciPy, with its parallel edges."""
    sparse = needed("scipy.sparse", "sparse tensors")
    layout = str(tensor.layout).removeprefix("torch.sparse_")
    tensor = tensor.detach().cpu()
    if layout == "coo":
        return sparse.coo_matrix((tensor._values().numpy(), tuple(tensor._indices().numpy())), tuple(tensor.shape))
    if layout == "csr":
        parts = (tensor.values().numpy(), tensor.col_indices().numpy(), tensor.crow_indices().numpy())
        return sparse.csr_matrix(parts, tuple(tensor.shape))
    if layout == "csc":
        parts = (tensor.values().numpy(), tensor.row_indices().numpy(), tensor.ccol_indices().numpy())
        return sparse.csc_matrix(parts, tuple(tensor.shape))
    raise TypeError(f"a tensor of the layout {tensor.layout} is not ingested; give tensor.to_sparse_csr()")


def _write_matrix(matrix: Any, stem: str) -> str:
    import scipy.sparse

    kept = matrix if matrix.format in ("csr", "csc", "coo") else matrix.tocsr()
    scipy.sparse.save_npz(stem + ".npz", kept, compressed=False)
    return stem + ".npz"


def _write_polars(table: Any, name: str, column: str, stem: str) -> str:
    if hasattr(table, "to_frame"):
        if name in ("weights", "edge_features") or not _has_text(str(table.dtype)):
            return _write_array(table.to_numpy(), name, column, stem)
        table = table.rename(column).to_frame()
    write = table.sink_parquet if hasattr(table, "sink_parquet") else table.write_parquet
    write(stem + ".parquet", compression="uncompressed")
    return stem + ".parquet"


def _has_text(dtype: str) -> bool:
    return dtype.startswith(("String", "Categorical", "Enum"))


def _write_pandas(table: Any, name: str, column: str, stem: str) -> str:
    import pandas as pd

    pa = needed("pyarrow", "tables of pandas")
    index = table.index
    is_numbered = isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1)
    if isinstance(table, pd.Series):
        if name not in ("features", "labels"):
            if table.dtype == bool and not is_numbered:
                raise ValueError(f"{name} is a mask with an index; give the ids: {name}=series.index[series]")
            return _write_array(table.to_numpy(), name, column, stem)
        table = table.to_frame(column if table.name is None else table.name)
    # An index that counts rows has no ids. Others have: pandas leaves out RangeIndex(5, 9) if it decides.
    schema = pa.Schema.from_pandas(table, preserve_index=not is_numbered)
    blocks = (
        pa.RecordBatch.from_pandas(table.iloc[first : first + BLOCK_ROWS], schema, preserve_index=not is_numbered)
        for first in range(0, max(1, len(table)), BLOCK_ROWS)
    )
    return _write_arrow(pa.RecordBatchReader.from_batches(schema, blocks), name, column, stem)


def _write_arrow(table: Any, name: str, column: str, stem: str) -> str:
    """Writes the batches of an Arrow C stream."""
    pa = needed("pyarrow", "Arrow tables")
    parquet = needed("pyarrow.parquet", "Arrow tables")
    if isinstance(table, (pa.Array, pa.ChunkedArray)):
        if name in ("weights", "edge_features") or not pa.types.is_string(table.type) and not pa.types.is_large_string(table.type):
            values = table.to_numpy(zero_copy_only=False) if isinstance(table, pa.Array) else table.to_numpy()
            return _write_array(values, name, column, stem)
        table = pa.table([table], [column])
    reader = pa.RecordBatchReader.from_stream(table)
    with parquet.ParquetWriter(stem + ".parquet", reader.schema, compression="none") as writer:
        pending: list = []
        for batch in reader:
            pending.append(batch)
            if sum(batch.num_rows for batch in pending) >= BLOCK_ROWS:
                writer.write_table(pa.Table.from_batches(pending, reader.schema))
                pending = []
        if pending:
            writer.write_table(pa.Table.from_batches(pending, reader.schema))
    return stem + ".parquet"
