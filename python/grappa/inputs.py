"""Inputs of ingest that are not files: arrays, matrices, tables and graphs. The engine reads them where they are in memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

import numpy as np

from .columns import SPLITS, array_of, counts_rows, is_column, mask_in, packages_of, unmasked
from .command import warn
from .edge_times import Columns, with_times
from .optional import needed
from .temporary import explained
from .whole_graphs import EdgeIndex, is_file, is_sparse, names_in, of_whole_graph

#: Options that take data.
DATA = ("edges", "val_edges", "test_edges", "features", "labels", "node_ids", "weights", "edge_features", "train", "val", "test")
#: Options that take edges.
EDGES = ("edges", "val_edges", "test_edges")
#: Options that name a column, and several.
COLUMN, COLUMNS = ("src", "dst", "weight", "time"), ("id", "label", "features_from", "edge_features_from", "split_column")
#: Options whose k-th value belongs to the k-th row of others.
BY_ROW = ("node_ids", "weights", "edge_features")
#: Rows of a table of pandas that are converted at once.
BLOCK_ROWS = 1 << 17
@dataclass(frozen=True)
class Array:
    """An array of numbers.

    Attributes:
        content: Its bytes, as an array of uint8, or an object with ``row_bytes`` and ``read(first_row, rows)``.
        descr: The type of its elements, as in the header of a `.npy` file.
        shape: The length of each axis.
        column_major: Whether the bytes are column after column.
        is_edge_index: Whether an array of two edges has the sources in its first row.
    """

    content: Any
    descr: str
    shape: tuple[int, ...]
    column_major: bool = False
    is_edge_index: bool = False


@dataclass(frozen=True)
class Matrix:
    """A sparse matrix of SciPy. ``lines`` are its row numbers, or ``indptr``; ``others`` are its column numbers, or ``indices``."""

    format: str
    matrix_shape: tuple[int, int]
    data: Array
    lines: Array
    others: Array


@dataclass(frozen=True)
class Table:
    """A table with the Arrow C stream interface, which may be read more than once."""

    table: Any


@dataclass(frozen=True)
class Parquet:
    """The bytes of a Parquet file."""

    parquet: Any


Value = Array | Matrix | Table | Columns | Parquet


@dataclass(frozen=True)
class Data:
    """The data of an option, at an index among its values. ``name`` is its name in messages."""

    option: str
    index: int
    name: str
    value: Value


class _Option(NamedTuple):
    """An option that takes data, and what is known about it."""

    name: str
    #: The column of data without columns.
    column: str
    #: The folder of the file to which a stream is written.
    folder: str
    #: The index of the edges that values belong to.
    rows: Any = None


def data_of(options: dict[str, Any], folder: str) -> tuple[dict[str, Any], list[Data]]:
    """The options with their names in the place of data, and the data. A stream that can be read only once is written to a file
    without a name in `folder`."""
    options = with_times(of_whole_graph(_with_column_names(options)))
    columns = dict.fromkeys(DATA, next((name for name in names_in(options.get("id")) if name != "none"), "id"))
    columns |= {"features": "features", "labels": (names_in(options.get("label")) or ["label"])[0]}
    rows = _index_of(options.get("edges"))
    data = []
    for name in DATA:
        value = options.get(name)
        if value is None or value is False or is_file(value):
            continue
        option = _Option(name, columns[name], folder, rows if name in ("weights", "edge_features") else None)
        if name in EDGES and _is_list_of_edges(value):
            options[name] = [item if is_file(item) else name for item in value]
            items = [(index, f"{name}[{index}]", item) for index, item in enumerate(value) if not is_file(item)]
        else:
            options[name] = name
            items = [(0, name, value)]
        data += [Data(name, index, shown, _value(item, option)) for index, shown, item in items]
    return options, data


def _with_column_names(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the names that columns have in files."""

    def named(value: Any) -> Any:
        return _column_name(value) if isinstance(value, tuple) else value

    listed = {name: [named(item) for item in value] for name, value in options.items() if name in COLUMNS and isinstance(value, list)}
    return {**options, **listed, **{name: named(options[name]) for name in COLUMN if name in options}}


def _is_list_of_edges(value: Any) -> bool:
    """Whether this is a list of files and tables, and not of pairs, or of sources and destinations."""
    if not isinstance(value, (list, tuple)) or isinstance(value, EdgeIndex):
        return False
    return not value or not all(isinstance(item, (int, list, tuple)) for item in value)


def _index_of(edges: Any) -> Any:
    """The index of a table of pandas."""
    return getattr(edges, "index", None) if "pandas" in packages_of(edges) else None


# Single inputs.


def _value(value: Any, option: _Option) -> Value:
    """The data of an option. Data without columns gets a column of the option's name for it."""
    name = option.name
    if isinstance(value, Columns):
        return value
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
            return _column(value, option)
        return _array(array_of(value, name, by_row=name in BY_ROW, rows=option.rows), option)
    if "torch" in packages:
        return _tensor(value, option, is_edge_index)
    if "scipy" in packages and is_sparse(value):
        return _matrix(value)
    if "polars" in packages:
        return _polars(value, option)
    if "pandas" in packages:
        _require_one_level(value, name)
        return _pandas(value, name)
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        return _arrow(value, option)
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, range)):
        return _array(value, option, is_edge_index)
    raise TypeError(
        f"{name}={type(value).__name__}: give a file, a NumPy array, a sparse matrix of SciPy, a tensor of PyTorch, a table of "
        "pandas, Polars or Arrow, or, for edges, a Data of PyTorch Geometric or a graph of NetworkX"
    )


def _array(value: Any, option: _Option, is_edge_index: bool = False) -> Value:
    name = option.name
    is_foreign = not isinstance(value, (np.ndarray, list, tuple, range)) and getattr(value, "ndim", False)
    is_square = name in EDGES and tuple(getattr(value, "shape", ())) == (2, 2)
    # Arrays of other libraries may be larger than the memory, so they are read by rows.
    if is_foreign and not is_square and hasattr(value, "dtype"):
        return _rows(value, np.dtype(value.dtype), lambda block: unmasked(np.asanyarray(block), name))
    array = array_of(value, name)
    if name in EDGES and array.shape == (2, 2) and not is_edge_index:
        (a, b), (c, d) = array.tolist()
        warn(
            f"{name}: the array of shape (2, 2) is read as two edges, each a row of source and target: from {a!r} to {b!r} and from "
            f"{c!r} to {d!r}; if its first row has the sources and its second one the targets, give {name}=np.transpose({name})"
        )
        array, is_edge_index = array.T, True
    if array.dtype.kind == "m":
        raise ValueError(f"{name} has durations, whose unit a store does not keep; give seconds: {name}={name} / np.timedelta64(1, 's')")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "OUT":
        return _strings(array, option, is_edge_index)
    return _numbers(array, is_edge_index)


def _numbers(array: np.ndarray, is_edge_index: bool = False) -> Array:
    """An array of numbers, which is copied only if it has gaps."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    column_major = not array.flags.c_contiguous
    content = (array.T if column_major else array).reshape(-1).view(np.uint8)
    descr = "[records]" if array.dtype.names else array.dtype.str
    return Array(content, descr, array.shape, column_major, is_edge_index)


@dataclass(frozen=True)
class _Rows:
    """An array of another library, read by rows: each block as `block_of` converts it."""

    array: Any
    dtype: np.dtype
    block_of: Callable[[Any], np.ndarray]
    row_bytes: int

    def read(self, first: int, rows: int) -> bytes:
        return np.ascontiguousarray(self.block_of(self.array[first : first + rows]), self.dtype).tobytes()


def _rows(array: Any, dtype: np.dtype, block_of: Callable[[Any], np.ndarray]) -> Array:
    shape = tuple(int(length) for length in array.shape)
    row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    return Array(_Rows(array, dtype, block_of, row_bytes), dtype.str, shape)


def _strings(array: np.ndarray, option: _Option, is_edge_index: bool) -> Value:
    """Ids or names of classes."""
    if option.name in ("weights", "edge_features"):
        raise TypeError(f"{_described(array, option.name)}; give numbers, such as {option.name}.astype(float)")
    if option.name in EDGES and array.ndim == 2 and 2 in array.shape:
        ends = array if is_edge_index or array.shape[1] != 2 else array.T
        return _text_table(list(ends), ["source", "target"], option.name)
    if array.ndim != 1:
        raise TypeError(f"{_described(array, option.name)}; give numbers, or a table")
    if option.name in ("features", "labels") and array.dtype == object:
        return _objects(array, option)
    return _text_table([array], [option.column], option.name)


def _text_table(columns: list[np.ndarray], names: list[str], name: str) -> Table:
    for column in columns:
        if column.dtype == object and not all(isinstance(value, (str, bytes, type(None))) for value in column):
            raise TypeError(
                f"{_described(column, name)} with values that are no strings; convert it, for example with .astype(np.int64)"
            )
    pa = needed("pyarrow", "ids that are strings")
    return Table(pa.table([pa.array(values.tolist(), pa.string()) for values in columns], names))


def _objects(array: np.ndarray, option: _Option) -> Table:
    """Values of one kind, of which some may be missing."""
    pa = needed("pyarrow", "missing values")
    try:
        values = pa.array(array.tolist())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeError(
            f"{_described(array, option.name)} with values of several kinds: {error}; convert it, for example with .astype(np.int64)"
        ) from None
    return Table(pa.table([values], [option.column]))


def _described(array: np.ndarray, name: str) -> str:
    return f"{name} is an array of {array.dtype} of shape {array.shape}"


def _tensor(tensor: Any, option: _Option, is_edge_index: bool) -> Value:
    import torch

    if is_sparse(tensor):
        return _matrix(_scipy_of(tensor))
    # NumPy has no bfloat16.
    kept = tensor.dtype if tensor.dtype != torch.bfloat16 else torch.float32
    is_square = option.name in EDGES and tuple(tensor.shape) == (2, 2)
    if tensor.dim() and (tensor.is_cuda or kept != tensor.dtype) and not is_square:
        dtype = np.dtype(str(kept).removeprefix("torch."))
        return _rows(tensor.detach(), dtype, lambda rows: rows.to("cpu", kept).numpy())
    return _array(tensor.detach().to("cpu", kept).numpy(), option, is_edge_index)


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


def _matrix(matrix: Any) -> Matrix:
    matrix = matrix if matrix.format in ("csr", "csc", "coo") else matrix.tocsr()
    places = (matrix.row, matrix.col) if matrix.format == "coo" else (matrix.indptr, matrix.indices)
    lines, others = (_numbers(np.asarray(place)) for place in places)
    rows, columns = map(int, matrix.shape)
    return Matrix(matrix.format, (rows, columns), _numbers(np.asarray(matrix.data)), lines, others)


def _column(column: Any, option: _Option) -> Value:
    """Features or labels that are a column, with its type, its missing values and its index."""
    name = option.column
    packages = packages_of(column)
    if "polars" in packages:
        return _polars(column.rename(name).to_frame(), option)
    if "pandas" in packages:
        import pandas as pd

        series = column if isinstance(column, pd.Series) else pd.Series(column)
        return _pandas(series.to_frame(name if series.name is None else series.name), option.name)
    pa = needed("pyarrow", "Arrow arrays")
    array = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
    return _arrow(pa.table([array], [name]), option)


def _require_no_durations(columns: list) -> None:
    """Fails if there are columns of durations. The engine refuses them too, but does not know pandas and Polars."""
    if columns:
        first = columns[0]
        raise ValueError(
            f"the column {first!r} has durations, whose unit a store does not keep; give seconds: in pandas "
            f"table[{first!r}] = table[{first!r}].dt.total_seconds(), in Polars "
            f"table = table.with_columns(pl.col({first!r}).dt.total_seconds())"
        )


def _polars(table: Any, option: _Option) -> Value:
    is_lazy = hasattr(table, "collect_schema") and hasattr(table, "sink_parquet")
    schema = table.collect_schema() if hasattr(table, "collect_schema") else table.schema
    _require_no_durations([name for name, dtype in schema.items() if str(dtype).startswith("Duration")])
    if is_lazy:
        return _spooled(lambda file: table.sink_parquet(file, compression="uncompressed"), option)
    return Table(table)


def _pandas(table: Any, name: str) -> Table:
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
    try:
        schema = pa.Schema.from_pandas(table, preserve_index=not is_numbered)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise TypeError(f"{name} is a table that Arrow cannot hold: {error}; give each column values of one type") from None
    _require_no_durations([field.name for field in schema if pa.types.is_duration(field.type)])
    # A block has several batches if its columns of text are chunks of Arrow, as pandas.concat leaves them.
    blocks = (
        batch
        for first in range(0, max(1, len(table)), BLOCK_ROWS)
        for batch in pa.Table.from_pandas(table.iloc[first : first + BLOCK_ROWS], schema, preserve_index=not is_numbered).to_batches()
    )
    return Table(pa.RecordBatchReader.from_batches(schema, blocks))


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


def _arrow(table: Any, option: _Option) -> Value:
    """A table of Arrow columns. A table that does not know its rows is a stream, which may be larger than the memory."""
    if hasattr(table, "num_rows") and hasattr(table, "__arrow_c_stream__"):
        schema = getattr(table, "schema", None)
        if "pyarrow" in packages_of(table):
            import pyarrow as pa

            _require_no_durations([field.name for field in schema or () if pa.types.is_duration(field.type)])
        return Table(table)
    pa = needed("pyarrow", "Arrow streams")
    parquet = needed("pyarrow.parquet", "Arrow streams")
    reader = pa.RecordBatchReader.from_stream(table)
    _require_no_durations([field.name for field in reader.schema if pa.types.is_duration(field.type)])

    def write(file: Any) -> None:
        with parquet.ParquetWriter(file, reader.schema, compression="none") as writer:
            pending: list = []
            for batch in reader:
                pending.append(batch)
                if sum(batch.num_rows for batch in pending) >= BLOCK_ROWS:
                    writer.write_table(pa.Table.from_batches(pending, reader.schema))
                    pending = []
            if pending:
                writer.write_table(pa.Table.from_batches(pending, reader.schema))

    return _spooled(write, option)


def _spooled(write: Callable[[Any], Any], option: _Option) -> Parquet:
    """A stream as a Parquet file that has no name, so it is gone with the process."""
    remedy = "give out= in a folder that is yours and has free space"
    with explained(option.folder, remedy), tempfile.TemporaryFile(dir=option.folder) as file:
        kept = _FailureKeeper(file)
        try:
            write(kept)
        except Exception:
            # Polars has an error of its own for a full disk.
            if kept.failure is None:
                raise
            raise kept.failure from None
        file.flush()
        return Parquet(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


class _FailureKeeper:
    """A file that keeps the failure of a write."""

    def __init__(self, file: Any):
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return int(self._file.write(data))
        except OSError as error:
            self.failure = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
