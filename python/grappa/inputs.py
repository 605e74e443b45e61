"""Inputs of ingest that are not files. Each becomes a file beside the new store, in blocks: it counts as disk, not as memory."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .columns import SPLITS, array_of, counts_rows, is_column, mask_in, packages_of, unmasked
from .command import warn
from .optional import needed
from .temporary import Folder

#: Options that take data.
DATA = ("edges", "val_edges", "test_edges", "features", "labels", "node_ids", "weights", "edge_features", "train", "val", "test")
#: Options that take edges.
EDGES = ("edges", "val_edges", "test_edges")
#: Options that name a column, and several.
COLUMN, COLUMNS = ("src", "dst", "weight"), ("id", "label", "features_from", "edge_features_from", "split_column")
#: Options whose k-th value belongs to the k-th row of others.
BY_ROW = ("node_ids", "weights", "edge_features")
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


class _File(NamedTuple):
    """A file in `folder` whose name begins with `stem`. Its format decides how the name ends."""

    folder: Folder
    stem: str

    def create(self, suffix: str) -> AbstractContextManager[BinaryIO]:
        return self.folder.create(self.stem + suffix)

    def path(self, suffix: str) -> str:
        return self.folder.file(self.stem + suffix)


class EdgeIndex(NamedTuple):
    """Edges with sources in the first row and targets in the second one, also where there are two edges."""

    array: Any

    @classmethod
    def checked(cls, array: Any, name: str) -> EdgeIndex:
        shape = tuple(array.shape)
        if len(shape) != 2 or shape[0] != 2:
            raise ValueError(f"{name} has shape {shape}; PyTorch Geometric's has shape (2, E), sources in the first row")
        return cls(array)


def files_of(options: dict[str, Any], folder: Folder) -> dict[str, Any]:
    """The options with the names of files in `folder` for objects."""
    options = _of_whole_graph(_with_column_names(options))
    #: The column of data without columns, in Parquet.
    columns = dict.fromkeys(DATA, next((name for name in _names(options.get("id")) if name != "none"), "id"))
    columns |= {"features": "features", "labels": (_names(options.get("label")) or ["label"])[0]}
    rows = _index_of(options.get("edges"))
    for name in DATA:
        value = options.get(name)
        if value is None or value is False or _is_file(value):
            continue
        if name in EDGES and _is_list_of_edges(value):
            files = [_File(folder, f"{name}{at}") for at in range(len(value))]
            options[name] = [
                item if _is_file(item) else _write(item, name, columns[name], file) for item, file in zip(value, files)
            ]
        else:
            index = rows if name in ("weights", "edge_features") else None
            options[name] = _write(value, name, columns[name], _File(folder, name), index)
    return options


def write_links(ends: np.ndarray, folder: Folder, stem: str) -> str:
    """Writes ids of sources and destinations, of shape (2, E), to a file in `folder`, and returns its path."""
    return _write(EdgeIndex(ends), "edges", "", _File(folder, stem))


def _with_column_names(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the names that columns have in files."""

    def named(value: Any) -> Any:
        return _column_name(value) if isinstance(value, tuple) else value

    listed = {name: [named(item) for item in value] for name, value in options.items() if name in COLUMNS and isinstance(value, list)}
    return {**options, **listed, **{name: named(options[name]) for name in COLUMN if name in options}}


def _is_file(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_list_of_edges(value: Any) -> bool:
    """Whether this is a list of files and tables, and not of pairs, or of sources and destinations."""
    if not isinstance(value, (list, tuple)) or isinstance(value, EdgeIndex):
        return False
    return not value or not all(isinstance(item, (int, list, tuple)) for item in value)


def _index_of(edges: Any) -> Any:
    """The index of a table of pandas."""
    return getattr(edges, "index", None) if "pandas" in packages_of(edges) else None


# Graphs: several options each.


def _of_whole_graph(options: dict[str, Any]) -> dict[str, Any]:
    """Divides a graph in ``edges`` among the options."""
    edges = options.get("edges")
    if edges is None or _is_file(edges):
        return options
    packages = packages_of(edges)
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
    if hasattr(data, "edge_types"):
        raise TypeError(
            f"{type(data).__name__}: a store has one type of nodes and of edges, so several are not supported yet; "
            "data.to_homogeneous() has them as one graph, with features if all types have equally many"
        )
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
    left_out = sorted(set(data.keys()) - set(OF_DATA) - {"num_nodes"})
    if left_out:
        warn(f"a store does not keep {', '.join(left_out)} of this Data")
    return {**options, **taken, **{name: value for name, value in options.items() if name != "edges"}}


def _of_networkx(graph: Any, options: dict[str, Any]) -> dict[str, Any]:
    nodes = list(graph.nodes)
    if not graph.is_directed() and options.setdefault("undirected", True) is False:
        raise ValueError("undirected=False: this graph is undirected; leave the option out, or give a DiGraph")
    ids = _ids_of(nodes)
    options.setdefault("ids", ids)
    pairs = [end for pair in graph.edges() for end in pair]
    options["edges"] = EdgeIndex(np.array(pairs, dtype=np.int64 if ids != "string" else object).reshape(-1, 2).T)
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


def _write(value: Any, name: str, column: str, file: _File, rows: Any = None) -> str:
    """Writes the data of an option to a file, and returns its path. Data without columns gets the name `column`. `rows` is the index
    of the edges that values belong to."""
    is_edge_index = isinstance(value, EdgeIndex)
    if is_edge_index:
        value = value.array
    packages = packages_of(value)
    if name in EDGES and {"torch", "torch_geometric"} <= packages:
        EdgeIndex.checked(value, name)
        value, is_edge_index = value.as_tensor() if hasattr(value, "as_tensor") else value, True
    if name == "edge_features" and (hasattr(value, "columns") or hasattr(value, "schema")):
        raise TypeError(
            f"edge_features={type(value).__name__}: give an array of shape (E,) or (E, d), such as table.to_numpy(); or give the "
            'columns to the table of edges, and name them with edge_features_from=["amount"]'
        )
    if name in SPLITS and not is_column(value):
        value = mask_in(value)
    if is_column(value):
        if name in ("features", "labels"):
            _require_one_level(value, name)
            return _write_column(value, column, file)
        return _write_array(array_of(value, name, by_row=name in BY_ROW, rows=rows), name, column, file)
    if "torch" in packages:
        return _write_torch(value, name, column, file, is_edge_index)
    if "scipy" in packages and _is_sparse(value):
        return _write_matrix(value, file)
    if "polars" in packages:
        return _write_polars(value, file)
    if "pandas" in packages:
        _require_one_level(value, name)
        return _write_pandas(value, file)
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        return _write_arrow(value, file)
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, range)):
        return _write_array(value, name, column, file, is_edge_index)
    raise TypeError(
        f"{name}={type(value).__name__}: give a file, a NumPy array, a sparse matrix of SciPy, a tensor of PyTorch, a table of "
        "pandas, Polars or Arrow, or, for edges, a Data of PyTorch Geometric or a graph of NetworkX"
    )


def _write_array(value: Any, name: str, column: str, file: _File, is_edge_index: bool = False) -> str:
    is_large = not isinstance(value, (np.ndarray, list, tuple, range)) and getattr(value, "ndim", False)
    is_square = name in EDGES and tuple(getattr(value, "shape", ())) == (2, 2)
    # Arrays of other libraries may be larger than the memory, so they are read in blocks.
    if is_large and not is_square and hasattr(value, "dtype"):
        return _write_blocks(value, np.dtype(value.dtype), lambda block: unmasked(np.asanyarray(block), name), file)
    array = array_of(value, name)
    if name in EDGES and array.shape == (2, 2):
        return _write_two_edges(array, name, file, is_edge_index)
    if array.dtype.kind == "m":
        raise ValueError(f"{name} has durations, whose unit a store does not keep; give seconds: {name}={name} / np.timedelta64(1, 's')")
    if array.dtype.kind in "OUT":
        return _write_strings(array, name, column, file)
    with file.create(".npy") as out:
        np.save(out, array, allow_pickle=False)
    return file.path(".npy")


def _write_two_edges(array: np.ndarray, name: str, file: _File, is_edge_index: bool) -> str:
    """Writes two edges so that they are read in one way: as columns with names, or as an array that is called ``edge_index``."""
    if not is_edge_index:
        (a, b), (c, d) = array.tolist()
        warn(
            f"{name}: the array of shape (2, 2) is read as two edges, each a row of source and target: from {a!r} to {b!r} and from "
            f"{c!r} to {d!r}; if its first row has the sources and its second one the targets, give {name}=np.transpose({name})"
        )
        array = array.T
    if array.dtype.kind in "OUT":
        return _write_string_edges(array, name, file)
    with file.create(".npz") as out:
        np.savez(out, edge_index=array)
    return file.path(".npz")


def _write_blocks(value: Any, dtype: Any, block_of: Any, file: _File) -> str:
    """Writes rows of `value` block by block, each as `block_of` converts it."""
    shape = tuple(value.shape)
    rows = max(1, BLOCK_BYTES * shape[0] // max(1, dtype.itemsize * int(np.prod(shape))))
    with file.create(".npy") as out:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(out, header)
        for first in range(0, shape[0], rows):
            out.write(np.ascontiguousarray(block_of(value[first : first + rows]), dtype).tobytes())
    return file.path(".npy")


def _write_strings(array: np.ndarray, name: str, column: str, file: _File) -> str:
    """Writes ids or names of classes."""
    if name in EDGES and array.ndim == 2 and 2 in array.shape:
        return _write_string_edges(array.T if array.shape[1] == 2 else array, name, file)
    if array.ndim != 1:
        raise TypeError(f"{_described(array, name)}; give numbers, or a table")
    if name in ("features", "labels") and array.dtype == object:
        return _write_objects(array, name, column, file)
    return _write_arrow(_text_table([array], [column], name), file)


def _write_string_edges(ends: np.ndarray, name: str, file: _File) -> str:
    return _write_arrow(_text_table(list(ends), ["source", "target"], name), file)


def _text_table(columns: list[np.ndarray], names: list[str], name: str) -> Any:
    for column in columns:
        if column.dtype == object and not all(isinstance(value, (str, bytes, type(None))) for value in column):
            raise TypeError(
                f"{_described(column, name)} with values that are no strings; convert it, for example with .astype(np.int64)"
            )
    pa = needed("pyarrow", "ids that are strings")
    return pa.table([pa.array(values.tolist(), pa.string()) for values in columns], names)


def _write_objects(array: np.ndarray, name: str, column: str, file: _File) -> str:
    """Writes values of one kind, of which some may be missing."""
    pa = needed("pyarrow", "missing values")
    try:
        values = pa.array(array.tolist())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeError(
            f"{_described(array, name)} with values of several kinds: {error}; convert it, for example with .astype(np.int64)"
        ) from None
    return _write_arrow(pa.table([values], [column]), file)


def _described(array: np.ndarray, name: str) -> str:
    return f"{name} is an array of {array.dtype} of shape {array.shape}"


def _write_torch(tensor: Any, name: str, column: str, file: _File, is_edge_index: bool) -> str:
    import torch

    if _is_sparse(tensor):
        return _write_matrix(_scipy_of(tensor), file)
    # NumPy has no bfloat16.
    kept = tensor.dtype if tensor.dtype != torch.bfloat16 else torch.float32
    if tensor.dim() and (tensor.is_cuda or kept != tensor.dtype) and not (name in EDGES and tuple(tensor.shape) == (2, 2)):
        dtype = np.dtype(str(kept).removeprefix("torch."))
        return _write_blocks(tensor.detach(), dtype, lambda rows: rows.to("cpu", kept).numpy(), file)
    return _write_array(tensor.detach().to("cpu", kept).numpy(), name, column, file, is_edge_index)


def _is_sparse(value: Any) -> bool:
    packages = packages_of(value)
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


def _write_matrix(matrix: Any, file: _File) -> str:
    import scipy.sparse

    kept = matrix if matrix.format in ("csr", "csc", "coo") else matrix.tocsr()
    with file.create(".npz") as out:
        scipy.sparse.save_npz(out, kept, compressed=False)
    return file.path(".npz")


def _write_column(column: Any, name: str, file: _File) -> str:
    """Writes features or labels that are a column, with its type, its missing values and its index."""
    packages = packages_of(column)
    if "polars" in packages:
        return _write_polars(column.rename(name).to_frame(), file)
    if "pandas" in packages:
        import pandas as pd

        series = column if isinstance(column, pd.Series) else pd.Series(column)
        return _write_pandas(series.to_frame(name if series.name is None else series.name), file)
    pa = needed("pyarrow", "Arrow arrays")
    array = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
    return _write_arrow(pa.table([array], [name]), file)


def _require_no_durations(columns: list) -> None:
    """Fails if there are columns of durations: files have them as counts of a unit that is not read."""
    if columns:
        first = columns[0]
        raise ValueError(
            f"the column {first!r} has durations, whose unit a store does not keep; give seconds: in pandas "
            f"table[{first!r}] = table[{first!r}].dt.total_seconds(), in Polars "
            f"table = table.with_columns(pl.col({first!r}).dt.total_seconds())"
        )


def _write_polars(table: Any, file: _File) -> str:
    schema = table.collect_schema() if hasattr(table, "collect_schema") else table.schema
    _require_no_durations([name for name, dtype in schema.items() if str(dtype).startswith("Duration")])
    write = table.sink_parquet if hasattr(table, "sink_parquet") else table.write_parquet
    with file.create(".parquet") as out:
        write(out, compression="uncompressed")
    return file.path(".parquet")


def _write_pandas(table: Any, file: _File) -> str:
    import pandas as pd

    pa = needed("pyarrow", "tables of pandas")
    if not all(isinstance(name, str) for name in table.columns):
        table = table.set_axis([_column_name(name) for name in table.columns], axis=1)
    repeated = table.columns[table.columns.duplicated()]
    if len(repeated):
        raise ValueError(f"two columns of this table are called {repeated[0]!r}; rename one of them")
    index = table.index
    is_numbered = isinstance(index, pd.RangeIndex) and counts_rows(index)
    # An index that counts rows has no ids. Others have: pandas leaves out RangeIndex(5, 9) if it decides.
    schema = pa.Schema.from_pandas(table, preserve_index=not is_numbered)
    blocks = (
        pa.RecordBatch.from_pandas(table.iloc[first : first + BLOCK_ROWS], schema, preserve_index=not is_numbered)
        for first in range(0, max(1, len(table)), BLOCK_ROWS)
    )
    return _write_arrow(pa.RecordBatchReader.from_batches(schema, blocks), file)


def _require_one_level(table: Any, name: str) -> None:
    levels = getattr(getattr(table, "index", None), "nlevels", 1)
    if name not in EDGES and levels > 1:
        raise ValueError(
            f"{name} has an index of {levels} levels; name the column of ids: {name}={name}.reset_index(), id=..., or give "
            f"{name}={name}.reset_index(drop=True) if its rows are in the order of ids"
        )


def _column_name(name: Any) -> str:
    """The name of a column whose name in pandas is a number, or several names above each other."""
    return ".".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _write_arrow(table: Any, file: _File) -> str:
    """Writes the batches of an Arrow C stream."""
    pa = needed("pyarrow", "Arrow tables")
    parquet = needed("pyarrow.parquet", "Arrow tables")
    reader = pa.RecordBatchReader.from_stream(table)
    _require_no_durations([field.name for field in reader.schema if pa.types.is_duration(field.type)])
    with file.create(".parquet") as out, parquet.ParquetWriter(out, reader.schema, compression="none") as writer:
        pending: list = []
        for batch in reader:
            pending.append(batch)
            if sum(batch.num_rows for batch in pending) >= BLOCK_ROWS:
                writer.write_table(pa.Table.from_batches(pending, reader.schema))
                pending = []
        if pending:
            writer.write_table(pa.Table.from_batches(pending, reader.schema))
    return file.path(".parquet")
