"""Arrays, tensors and columns of other libraries as NumPy arrays. What belongs to their values is used or refused: the mask of an
array, missing values, and an index, which says what row a value belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Options of ingest that take ids or masks.
SPLITS = ("train", "val", "test")
#: Arguments that list nodes, so that fewer values are possible.
LISTS = (*SPLITS, "nodes", "ids", "input_nodes")


def packages_of(value: Any) -> set[str]:
    """The packages that an object's class and its base classes are from."""
    return {base.__module__.partition(".")[0] for base in type(value).__mro__}


def is_column(value: Any) -> bool:
    """Whether this is a column of pandas, Polars or Arrow: values with a type, which may be missing."""
    packages = packages_of(value)
    if "pandas" in packages:
        import pandas as pd

        return isinstance(value, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray))
    if "polars" in packages:
        return hasattr(value, "to_frame")
    if hasattr(value, "__array_interface__"):
        return False
    if "pyarrow" in packages:
        import pyarrow as pa

        return isinstance(value, (pa.Array, pa.ChunkedArray))
    return hasattr(value, "__arrow_c_array__") and not hasattr(value, "columns") and not hasattr(value, "schema")


def array_of(value: Any, name: str, *, by_row: bool = False, rows: Any = None) -> np.ndarray:
    """An array, tensor, list or column as an array. Objects that are all booleans are booleans.

    An index of pandas says nothing about a list of ids. It does where the k-th value belongs to the k-th row: in a mask, and with
    `by_row` in other values. Then it must count rows from 0, or be the index `rows`.

    Args:
        value: What to convert.
        name: Its name in errors.

    Raises:
        ValueError: Values are masked or missing, or their index has another order.
    """
    packages = packages_of(value)
    if "torch" in packages:
        value = value.detach().cpu().numpy()
    index = None
    if is_column(value):
        index = getattr(value, "index", None) if "pandas" in packages else None
        array = _array_of_column(value, name, packages)
    else:
        array = np.asanyarray(value)
        _require_one_kind(value, array, name)
    array = unmasked(array, name)
    if array.dtype == object and all(item is None or isinstance(item, (bool, np.bool_)) for item in array.flat):
        missing = sum(item is None for item in array.flat)
        if 0 < missing < array.size and name != "labels":
            raise ValueError(f"{name} is a mask with {missing} missing values; give False for them")
        if array.size and not missing:
            array = array.astype(bool)
    if index is not None and (by_row or array.dtype == bool):
        _require_rows(index, rows, name, array.dtype == bool)
    return array


def unmasked(array: Any, name: str) -> np.ndarray:
    """An array without a mask.

    Raises:
        ValueError: It masks values.
    """
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    masked = int(np.ma.count_masked(array))
    if masked:
        remedy = f"give the values that they stand for, such as {name}={name}.filled({_filling(array, name)})"
        if name in LISTS and array.dtype.kind != "b":
            remedy = f"leave them out: {name}={name}.compressed()"
        raise ValueError(f"{name} is a masked array with {masked} masked values; {remedy}")
    return np.ma.getdata(array)


def _filling(array: np.ndarray, name: str) -> str:
    """What masked values of a kind may stand for."""
    if array.dtype.kind == "b":
        return "False"
    return "-1" if name == "labels" else "0"


def mask_in(table: Any) -> Any:
    """The column of a table that is a single mask, or the table."""
    packages = packages_of(table)
    if "pandas" in packages:
        import pandas as pd

        is_mask = table.shape[1] == 1 and (
            pd.api.types.is_bool_dtype(table.dtypes.iloc[0]) or pd.api.types.infer_dtype(table.iloc[:, 0]) == "boolean"
        )
        return table.iloc[:, 0] if is_mask else table
    if "polars" in packages and hasattr(table, "to_series"):
        return table.to_series() if [str(dtype) for dtype in table.dtypes] == ["Boolean"] else table
    if "pyarrow" in packages and hasattr(table, "column") and [str(field.type) for field in table.schema] == ["bool"]:
        return table.column(0)
    return table


def require_int64(array: np.ndarray, name: str) -> None:
    """Fails if an array of integers has one that int64 does not have.

    Raises:
        IndexError: It does.
    """
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise IndexError(f"{name} has {array.max()}, and there is no such node")


def counts_rows(index: Any) -> bool:
    """Whether an index of pandas is 0, 1, 2, ..."""
    return index.nlevels == 1 and index.dtype.kind in "iu" and bool(np.array_equal(index, np.arange(len(index))))


def _require_rows(index: Any, rows: Any, name: str, is_mask: bool) -> None:
    if rows is not None and len(rows) == len(index) and index.equals(rows):
        return
    # Rows of an index that is the same numbers in another order are not the rows that are counted.
    if counts_rows(index) and (rows is None or counts_rows(rows) or not _is_permuted(rows)):
        return
    what = f"{name} is a {'mask' if is_mask else 'series'} with an index that is not 0, 1, 2, ... in this order"
    if is_mask and name in SPLITS:
        raise ValueError(f"{what}; give the ids: {name}=series.index[series]")
    if is_mask:
        raise ValueError(
            f"{what}; if the index has ids, give store.nodes(mask.index[mask]), and if its values are in the order of nodes, give "
            "mask.to_numpy()"
        )
    if counts_rows(index):
        what = f"{name} is a series with the index 0, 1, 2, ..., and the edges have these numbers in another order"
    raise ValueError(f"{what}; if its values are in the order of the rows, give {name}=series.to_numpy()")


def _is_permuted(index: Any) -> bool:
    return index.nlevels == 1 and index.dtype.kind in "iu" and bool(np.array_equal(np.sort(index), np.arange(len(index))))


def _require_one_kind(value: Any, array: np.ndarray, name: str) -> None:
    """NumPy makes numbers of booleans among numbers."""
    if isinstance(value, (list, tuple)) and array.ndim == 1 and array.dtype.kind in "iuf":
        if any(isinstance(item, (bool, np.bool_)) for item in value):
            raise TypeError(f"{name} has booleans among numbers; give a mask, or numbers")


def _array_of_column(column: Any, name: str, packages: set[str]) -> np.ndarray:
    """The values of a column, none of which may be missing. Text is a column of objects."""
    missing = 0
    if "pandas" in packages:
        import pandas as pd

        dtype = column.dtype
        is_float = pd.api.types.is_float_dtype(dtype)
        if not is_float and not isinstance(column, pd.MultiIndex):
            missing = int(np.count_nonzero(pd.isna(column)))
        _require_all(missing, name, pd.api.types.is_bool_dtype(dtype), f"{name}.dropna()", f"{name}.fillna(False)")
        if pd.api.types.is_bool_dtype(dtype):
            return np.asarray(column.to_numpy(dtype=bool)) if hasattr(column, "to_numpy") else np.asarray(column, bool)
        if isinstance(dtype, pd.CategoricalDtype):
            return np.asarray(column)
        kind = getattr(dtype, "numpy_dtype", dtype)
        if is_float and kind is not dtype:
            return column.to_numpy(dtype=kind, na_value=np.nan)
        if pd.api.types.is_integer_dtype(dtype):
            return np.asarray(column, dtype=kind)
        return np.asarray(column)
    if "polars" in packages:
        is_float, dtype = column.dtype.is_float(), str(column.dtype)
        if not is_float:
            _require_all(column.null_count(), name, dtype == "Boolean", f"{name}.drop_nulls()", f"{name}.fill_null(False)")
        return np.array(column.to_list(), object) if dtype.startswith(("String", "Categorical", "Enum")) else column.to_numpy()
    import pyarrow as pa

    array = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
    if not pa.types.is_floating(array.type):
        _require_all(array.null_count, name, pa.types.is_boolean(array.type), f"{name}.drop_null()", f"{name}.fill_null(False)")
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays([chunk for chunk in array.chunks]) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.to_numpy(zero_copy_only=False)


def _require_all(missing: int, name: str, is_mask: bool, rest: str, filled: str) -> None:
    if missing:
        raise ValueError(f"{name} has {missing} missing values; leave them out, such as {name}={filled if is_mask else rest}")
