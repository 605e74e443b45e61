"""Graphs of NetworkX with types as inputs of ingest: attributes of nodes and edges name their types and relations."""

from __future__ import annotations

from typing import Any

from .databases import Folder
from .graph import EdgeType
from .optional import needed
from .whole_graphs import ids_of

#: Columns of the tables of nodes and edges, beside attributes.
NODE, SOURCE, DESTINATION = "node_id", "source_id", "destination_id"
#: Options that name attributes of nodes, and of edges.
OF_NODES, OF_EDGES = ("features_from", "label", "split_column"), ("weight", "edge_features_from")


def write_types(graph: Any, node_type: str | None, edge_type: str | None, path: str, options: dict[str, Any]) -> Folder:
    """Writes a table of each node type and relation to the folder `path`. The ids of nodes are their keys.

    Raises:
        ValueError: An attribute is missing, or the graph is undirected.
        TypeError: Nodes of a type are neither all strings nor all integers.
    """
    if node_type is None or edge_type is None:
        name, what = ("node_type", "nodes") if node_type is None else ("edge_type", "edges")
        raise ValueError(f"{name}=...: name the attribute of {what}, such as {name}={'type' if node_type is None else 'relation'!r}")
    if not graph.is_directed():
        raise ValueError("this graph is undirected, and a relation has a direction; give graph.to_directed(), which has both directions")
    nodes: dict[str, list[Any]] = {}
    types = {}
    for node, attributes in graph.nodes(data=True):
        types[node] = _type_name(attributes.get(node_type), "node_type", node_type, f"the node {node!r}")
        nodes.setdefault(types[node], []).append(node)
    edges: dict[EdgeType, list[tuple[Any, Any, dict[str, Any]]]] = {}
    for source, destination, attributes in graph.edges(data=True):
        shown = f"the edge from {source!r} to {destination!r}"
        name = _type_name(attributes.get(edge_type), "edge_type", edge_type, shown)
        edges.setdefault((types[source], name, types[destination]), []).append((source, destination, attributes))
    if not edges:
        raise ValueError("this graph has no edges, so it has no relations; add edges to it")
    folder = Folder(path)
    tables, lists = [], []
    for number, (name, of_type) in enumerate(nodes.items()):
        ids = ids_of(of_type)
        columns = {NODE: of_type, **_attributes(OF_NODES, options, [name], [graph.nodes[node] for node in of_type], of_type)}
        shown = f"the nodes of type {name!r}"
        tables.append(f"{name}={_write(folder, f'nodes-{number}.parquet', shown, columns)}")
    for number, (relation, of_relation) in enumerate(edges.items()):
        full = ":".join(relation)
        ends = [edge[:2] for edge in of_relation]
        columns = {SOURCE: [source for source, _ in ends], DESTINATION: [destination for _, destination in ends]}
        columns |= _attributes(OF_EDGES, options, [relation[1], full], [edge[2] for edge in of_relation], ends)
        shown = f"the edges of {full!r}"
        lists.append(f"{full}={_write(folder, f'edges-{number}.parquet', shown, columns)}")
    folder.options = {"nodes": tables, "edges": lists, "id": NODE, "src": SOURCE, "dst": DESTINATION, **_weight(options)}
    return folder


def _type_name(value: Any, argument: str, attribute: str, shown: str) -> str:
    """The name of a type or relation."""
    if value is None:
        raise ValueError(f"{argument}={attribute!r}: {shown} has no such attribute; set it for all, or name another attribute")
    if not isinstance(value, str) or not value or set(value) & set(":=/"):
        raise ValueError(
            f"{argument}={attribute!r}: {shown} has the value {value!r}; a name is a string with at least one character, and without : = /"
        )
    return value


def _attributes(
    names: tuple[str, ...], options: dict[str, Any], scopes: list[str], attributes: list[dict[str, Any]], items: list[Any]
) -> dict[str, list[Any]]:
    """The attributes of the nodes of a type or the edges of a relation that options name, as columns. `items` are these nodes or edges."""
    columns: dict[str, list[Any]] = {}
    for option in names:
        for name in _named(option, options.get(option), scopes):
            if name in (NODE, SOURCE, DESTINATION):
                raise ValueError(f"{option}={name!r}: the column of ids has this name; give the attribute another one")
            columns[name] = [of_item.get(name) for of_item in attributes]
            if option == "weight" and None in columns[name]:
                source, destination = items[columns[name].index(None)]
                raise ValueError(
                    f"weight={name!r}: the edge from {source!r} to {destination!r} has no such attribute; weights of one relation are "
                    f'weight="RELATION={name}"'
                )
            if all(value is None for value in columns[name]):
                raise ValueError(f"{option}={name!r}: {scopes[-1]!r} has no such attribute")
    return columns


def _named(option: str, value: Any, scopes: list[str]) -> list[str]:
    """The attributes that an option names for one of `scopes`. Weights may be named for all."""
    named: list[str] = []
    for item in [value] if isinstance(value, str) else value or []:
        scope, is_scoped, names = item.rpartition("=")
        if not is_scoped and option != "weight":
            raise ValueError(f'{option}={item!r}: say whose attribute it is, such as {option}="{scopes[0]}={item}"')
        if not is_scoped or scope in scopes:
            named += names.split(",")
    return [name for name in named if name != "none"]


def _weight(options: dict[str, Any]) -> dict[str, Any]:
    return {} if "weight" in options else {"weight": "none"}


def _write(folder: Folder, file: str, shown: str, columns: dict[str, list[Any]]) -> str:
    pa = needed("pyarrow", "node_type=, edge_type=")
    try:
        table = pa.table(columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeError(f"{shown} have attributes that Arrow cannot hold: {error}; give each attribute values of one type") from None
    return folder.write(file, shown, table.schema, table.to_batches())
