"""Tables with keys as inputs of ingest: a dict of tables in memory, or a `relbench.base.Database`, and tasks of its entities.

The engine reads keys from a folder of Parquet files, as ``grappa-ingest --tables``. Tables in memory are written there batch by batch, with
their keys in the metadata, as RelBench writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .columns import array_of, counts_rows, is_column, packages_of
from .inputs import DATA, Parquet, _column_name, _Option, _pandas, _polars, _require_no_durations
from .optional import needed
from .temporary import private_folder

#: Options that name keys in a folder of tables, and the arguments for tables in memory.
OF_FOLDERS = {"key": "keys", "foreign_key": "foreign_keys", "link_table": "link_tables", "task": "tasks"}

#: The splits of a task, in the order of its rows.
SPLITS = ("train", "val", "test")


@dataclass
class Keyed:
    """A table with its keys, or a part of a task. `reader` gives its batches once."""

    name: str
    #: The table in messages.
    shown: str
    #: The path of its file in the folder, without ``.parquet``.
    file: str
    reader: Any
    key: str | None
    #: The table that each column with foreign keys points to.
    foreign_keys: dict[str, str]
    time: str | None
    #: Whether its index of pandas has no name and does not count rows.
    is_labelled: bool = False
    is_link: bool = False

    @property
    def ids(self) -> Literal["integers", "text", "nothing"] | None:
        """The kind of the ids of its rows."""
        return "integers" if self.key is None else self.kind(self.key)

    def kind(self, column: str) -> Literal["integers", "text", "nothing"] | None:
        """The kind of ids in a column."""
        import pyarrow as pa

        kind = _decoded(self.reader.schema.field(column).type)
        # pandas has foreign keys of which some are missing as floats.
        is_float = pa.types.is_floating(kind) and column in self.foreign_keys
        if pa.types.is_null(kind) and column in self.foreign_keys:
            return "nothing"
        if pa.types.is_integer(kind) or is_float:
            return "integers"
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        return "text" if is_text else None


def folder_options(
    keys: Mapping[str, str] | None,
    foreign_keys: Mapping[str, str] | None,
    link_tables: Iterable[str] | None,
    tasks: Iterable[str] | Mapping[str, Any] | None,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """The keys of a folder of tables, as the program names them. `given` are the other options.

    Raises:
        TypeError: Tasks are data.
        ValueError: Keys are given in both ways.
    """
    if isinstance(tasks, (str, Mapping)):
        raise TypeError(f"tasks={tasks!r}: the tasks of a folder are chosen by a list of their names, such as tasks=['churn']")
    options = {
        "key": [f"{table}.{column}" for table, column in _mapping("keys", keys, '{"users": "id"}').items()],
        "foreign_key": [
            f"{column}={table}" for column, table in _mapping("foreign_keys", foreign_keys, '{"orders.user": "users"}').items()
        ],
        "link_table": _link_tables(link_tables),
        "task": [] if tasks is None else list(tasks) or ["none"],
    }
    twice = next((name for name, values in options.items() if values and name in given), None)
    if twice is not None:
        raise ValueError(f"{twice}= and {OF_FOLDERS[twice]}= say the same; leave out one of both")
    return {name: values for name, values in options.items() if values}


class Folder:
    """The options of a graph whose tables are files in a temporary folder, with names for messages."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.options: dict[str, Any] = {}
        self.names: dict[str, str] = {}

    def write(self, file: str, shown: str, schema: Any, batches: Iterable[Any]) -> str:
        """Writes a table, and returns its path."""
        parquet = needed("pyarrow.parquet", "tables in memory")
        path = os.path.join(self.path, file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with parquet.ParquetWriter(path, schema, compression="none") as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.names[path] = shown
        return path


def scratch(out: str | os.PathLike[str] | None, options: dict[str, Any]) -> Any:
    """A temporary folder for tables.

    Raises:
        TypeError: An option has data, which tables have as columns.
        ValueError: The ingest is to be resumed: its tables are gone.
    """
    for name in DATA:
        value = options.get(name)
        if value is not None and not isinstance(value, (str, os.PathLike, bool)):
            raise TypeError(
                f"{name}={type(value).__name__}: node types and relations have their data as columns or attributes here; name them, "
                'such as features_from=["users=age"] or label="users=plan"'
            )
    if options.get("resume"):
        raise ValueError(
            "resume=True: tables in memory are written to temporary files, which are new each time; start again with force=True, or write "
            "the tables to a folder and give tables=folder"
        )
    beside = options.get("tmp") or (None if out is None else os.path.dirname(os.path.abspath(out)))
    return private_folder(".grappa-tables-", beside, "give tmp= or out= in a folder that exists, is yours and has free space")


def write_tables(
    tables: Any,
    keys: Mapping[str, str] | None,
    foreign_keys: Mapping[str, str] | None,
    link_tables: Iterable[str] | None,
    tasks: Mapping[str, Any] | Iterable[str] | None,
    path: str,
    options: dict[str, Any],
) -> Folder:
    """Writes tables with keys, and tasks of their rows, to the folder `path`.

    Args:
        tables: The tables by name, or a `relbench.base.Database`.
        keys: The column with the ids of the rows of a table, by the table.
        foreign_keys: The table that a column points to, by table and column: ``{"orders.user": "users"}``.
        link_tables: The tables whose rows are edges.
        tasks: The tasks by name: a table, a dict of a table for each split, or a task of RelBench.
        options: The other options of the ingest.

    Raises:
        TypeError: A table or key has a type that is not ingested.
        ValueError: There is no such table or column, or there are no foreign keys.
    """
    folded = next((name for name in OF_FOLDERS if name in options), None)
    if folded is not None:
        raise ValueError(
            f"{folded}={options[folded]!r} is for tables in a folder; tables in memory have "
            '`keys={"users": "id"}, foreign_keys={"orders.user": "users"}, link_tables=["likes"]`'
        )
    tables = getattr(tables, "table_dict", tables)
    if not isinstance(tables, Mapping) or not tables:
        raise TypeError(
            f"tables={type(tables).__name__}: give a folder of Parquet or CSV files, a dict of tables by name, such as "
            'tables={"users": users, "orders": orders}, or a Database of RelBench'
        )
    opened = {name: _opened(name, f"tables[{name!r}]", str(name), table, path) for name, table in tables.items()}
    of_tasks = _opened_tasks(tasks, opened, path)
    # A task has several parts of one name.
    named = {name: [table] for name, table in opened.items()} | of_tasks
    for name, column in _mapping("keys", keys, '{"users": "id"}').items():
        for table in _tables("keys", name, named):
            table.key = _column_name(column)
    for place, target in _mapping("foreign_keys", foreign_keys, '{"orders.user": "users"}').items():
        parts, column = _tables_and_column(place, named)
        for table in parts:
            table.foreign_keys[column] = target
    for name in _link_tables(link_tables):
        for table in _tables("link_tables", name, {name: named[name] for name in opened}):
            table.is_link = True
    every = [table for parts in named.values() for table in parts]
    for table in every:
        _check(table, opened)
    if not any(table.foreign_keys for table in opened.values()):
        raise ValueError('no table has a foreign key, so there are no edges; give foreign_keys={"orders.user": "users"}')
    folder = Folder(path)
    for table in every:
        _write(table, opened, folder)
    # The parts of a task are one table, too. Longer paths come first, because names replace them in text.
    for name in sorted(of_tasks, key=len, reverse=True):
        folder.names[os.path.join(path, "tasks", name)] = f"tasks[{name!r}]"
    links = [table.name for table in opened.values() if table.is_link]
    folder.options = {"tables": path, **({"link_table": links} if links else {})}
    return folder


def _mapping(name: str, value: Any, example: str) -> Mapping[str, str]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name}={value!r}; give a dict, such as {name}={example}")
    return value or {}


def _link_tables(value: Any) -> list[str]:
    if isinstance(value, str):
        raise TypeError(f"link_tables={value!r}; give a list: link_tables=[{value!r}]")
    return list(value or ())


def _tables(argument: str, name: Any, tables: dict[str, list[Keyed]]) -> list[Keyed]:
    if name not in tables:
        raise ValueError(f"{argument} has {name!r}, and there is no such table; there are {', '.join(map(repr, tables))}")
    return tables[name]


def _tables_and_column(path: Any, tables: dict[str, list[Keyed]]) -> tuple[list[Keyed], str]:
    """The table, or the parts of the task, and the column of ``"orders.user"``. Names of tables may have dots."""
    known = [name for name in tables if isinstance(path, str) and path.startswith(f"{name}.")]
    if not known:
        raise ValueError(
            f"foreign_keys has {path!r}; name a table and its column, such as \"orders.user\"; there are the tables "
            f"{', '.join(map(repr, tables))}"
        )
    name = max(known, key=len)
    return tables[name], path[len(name) + 1 :]


# Reading.


def _opened_tasks(tasks: Any, tables: dict[str, Keyed], folder: str) -> dict[str, list[Keyed]]:
    """The parts of each task, in the order of its rows."""
    if tasks is None:
        return {}
    if not isinstance(tasks, Mapping):
        raise TypeError(
            f"tasks={tasks!r}: tables in memory have their tasks in memory; give a dict of them by name, such as "
            'tasks={"churn": {"train": train, "val": val, "test": test}}'
        )
    opened = {}
    for name, task in tasks.items():
        if name in tables:
            raise ValueError(f"tasks has {name!r}, which is the name of a table; rename one of both")
        shown, file = f"tasks[{name!r}]", os.path.join("tasks", str(name))
        if hasattr(task, "get_table"):
            task = {split: task.get_table(split) for split in SPLITS}
        if not isinstance(task, Mapping) or not set(task) & set(SPLITS):
            opened[name] = [_opened(name, shown, file, task, folder)]
            continue
        if "train" not in task or not set(task) <= set(SPLITS):
            raise ValueError(f"{shown} has {', '.join(map(repr, task))}; a task has the tables 'train', 'val' and 'test'")
        parts = [split for split in SPLITS if split in task]
        opened[name] = [_opened(name, f"{shown}[{split!r}]", os.path.join(file, split), task[split], folder) for split in parts]
    return opened


def _opened(name: Any, shown: str, file: str, table: Any, folder: str) -> Keyed:
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        argument = shown.partition("[")[0]
        raise ValueError(f"{argument} has the name {name!r}; a name is a string without /, because it becomes the name of a node type")
    key, foreign_keys, time = None, {}, None
    if hasattr(table, "pkey_col") and hasattr(table, "fkey_col_to_pkey_table"):
        key, foreign_keys, time = table.pkey_col, dict(table.fkey_col_to_pkey_table), getattr(table, "time_col", None)
        table = table.df
    reader = _reader(table, shown, folder)
    _require_no_durations([field.name for field in reader.schema if str(field.type).startswith("duration")])
    return Keyed(name, shown, file, reader, key, foreign_keys, time, _is_labelled(table))


def _reader(table: Any, shown: str, folder: str) -> Any:
    """A `pyarrow.RecordBatchReader` of a table."""
    pa = needed("pyarrow", "tables in memory")
    packages = packages_of(table)
    if isinstance(table, Mapping):
        table = _of_columns(table, shown)
    elif is_column(table) or not (packages & {"pandas", "polars"} or hasattr(table, "__arrow_c_stream__")):
        raise TypeError(
            f"{shown} is a {type(table).__name__}; give a table of pandas, Polars or Arrow, a dict of columns, or a Table of RelBench"
        )
    elif "pandas" in packages:
        table = _pandas(_with_index(table, shown), shown).table
    elif "polars" in packages:
        import polars as pl

        if isinstance(table, pl.LazyFrame):
            spooled = _polars(table, _Option(shown, shown, folder))
            assert isinstance(spooled, Parquet)
            file = needed("pyarrow.parquet", "tables in memory").ParquetFile(pa.py_buffer(spooled.parquet))
            return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        # Arrow has no functions for categories of views of text.
        table = table.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.RecordBatchReader.from_stream(table)


def _of_columns(columns: Mapping[Any, Any], shown: str) -> Any:
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        column = f"{shown}[{name!r}]"
        array = array_of(values, column)
        if array.ndim != 1:
            raise ValueError(
                f"{column} has shape {array.shape}; a column has one value per row: give a column for each dimension, such as "
                f'**{{f"{name}_{{d}}": {name}[:, d] for d in range({array.shape[-1] if array.ndim else 1})}}'
            )
        try:
            arrays[_column_name(name)] = pa.array(array.tolist() if array.dtype.kind in "OS" else array)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise TypeError(f"{column} is a column that Arrow cannot hold: {error}; give values of one type") from None
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the columns of {shown} have different lengths: {lengths}; give each row a value in each column")
    return pa.table(arrays)


def _with_index(table: Any, shown: str) -> Any:
    """A table of pandas with its index as columns. An index without names has no values of rows: filters and sorts leave one behind."""
    names = list(table.index.names)
    if all(name is None for name in names):
        return table.reset_index(drop=True)
    if None in names or set(names) & set(table.columns):
        raise ValueError(f"{shown} has an index with the names {names}, which are missing or names of columns; rename them")
    return table.reset_index()


def _is_labelled(table: Any) -> bool:
    """Whether a table of pandas has an index without names that does not count rows."""
    is_pandas = "pandas" in packages_of(table) and hasattr(table, "index")
    return is_pandas and all(name is None for name in table.index.names) and not counts_rows(table.index)


# Checks.


def _check(table: Keyed, tables: dict[str, Keyed]) -> None:
    columns, shown = table.reader.schema.names, table.shown
    for argument, column in [("the primary key", table.key), *(("the foreign key", column) for column in table.foreign_keys)]:
        if column is None:
            continue
        if column not in columns:
            raise ValueError(f"{shown} has no column {column!r}, {argument}; it has {', '.join(map(repr, columns))}")
        if table.kind(column) is None:
            kind = table.reader.schema.field(column).type
            raise TypeError(f"{argument} {column!r} of {shown} has values of type {kind}; give integers or strings")
    for column, name in table.foreign_keys.items():
        target = tables.get(name)
        if target is None:
            raise ValueError(
                f"the foreign key {column!r} of {shown} points to {name!r}, and there is no such table; there are "
                f"{', '.join(map(repr, tables))}"
            )
        if target.is_link:
            raise ValueError(f"the foreign key {column!r} of {shown} points to {name!r}, whose rows are edges; leave it out of link_tables")
        if target.is_labelled and target.key is None:
            raise ValueError(
                f"the foreign key {column!r} of {shown} points to {name!r}, which has no key, and an index that is not 0, 1, 2, ...; if "
                f'the index has its ids, give {target.shown}.rename_axis("id") and keys={{{name!r}: "id"}}; if its ids are the numbers of '
                f"its rows, give {target.shown}.reset_index(drop=True)"
            )
        if table.kind(column) not in (target.ids, "nothing"):
            key = f"its key {target.key!r}" if target.key is not None else "the numbers of its rows"
            raise TypeError(
                f"the foreign key {column!r} of {shown} has {table.kind(column)}, and {name!r} has {target.ids} in {key}; convert one of both"
            )
    if table.is_link and len(table.foreign_keys) != 2:
        raise ValueError(
            f"link_tables has {table.name!r}, a table with {len(table.foreign_keys)} foreign keys; its rows are edges between the "
            f'tables of two: give foreign_keys={{"{table.name}.COLUMN": "TABLE", ...}}'
        )


# Writing.


def _write(table: Keyed, tables: dict[str, Keyed], folder: Folder) -> None:
    import pyarrow as pa

    keys: dict[str | None, str | None] = {table.key: table.ids}
    keys |= {column: tables[name].ids for column, name in table.foreign_keys.items()}
    metadata = {"pkey_col": table.key, "fkey_col_to_pkey_table": table.foreign_keys, "time_col": table.time}
    # Parquet does not hold categories of all types of text.
    fields = [field.with_type(_decoded(field.type)) for field in table.reader.schema]
    fields = [field.with_type(_id_type(field.type, keys[field.name])) if field.name in keys else field for field in fields]
    schema = pa.schema(fields, {name: json.dumps(value) for name, value in metadata.items()})

    folder.write(f"{table.file}.parquet", table.shown, schema, _batches(table, schema, set(keys)))


def _batches(table: Keyed, schema: Any, keys: set[str | None]) -> Iterator[Any]:
    """The batches of a table with the types of `schema`."""
    import pyarrow as pa

    for batch in table.reader:
        columns = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns]
        columns = [
            _ids(column, field.type, f"{table.shown}[{field.name!r}]") if field.name in keys else column
            for column, field in zip(columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _decoded(kind: Any) -> Any:
    """The type of the values of a column."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _id_type(kind: Any, ids: str | None) -> Any:
    """The type of the column of ids that a column of keys becomes."""
    import pyarrow as pa

    if ids == "text":
        return pa.string()
    return kind if pa.types.is_integer(kind) else pa.int64()


def _ids(column: Any, kind: Any, shown: str) -> Any:
    """A column of keys as a column of ids. pandas has NaN in place of missing numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{shown} has values that are no ids: {error}; give integers or strings") from None
