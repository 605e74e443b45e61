"""The model of a run as a module of PyTorch Geometric: what `Run.model` returns, and files of ``grappa-train export``.

    model = grappa.model.load("model.safetensors")
    logits = model(x, edge_index)  # x: [nodes, inputs]; edge_index: [2, edges], sources above destinations
    logits = model(x, edge_index, edge_data)  # if `model.edges` is "weights": weights of edges, [edges];
                                              # if it is {"features": d}: features of edges, [edges, d]

A model of a run at times has `model.time_encoding`. The age of an edge or node is the time from it to the seed of its neighborhood, in the
unit `model.time_encoding["unit"]`. `encoded_ages` are the last features of edges; a model of a graph with types encodes `age_dict`, the
ages of nodes, and `edge_age_dict`, the ages of edges, itself.

To copy this file is fine; it is all there is to know about the format, beside the names of tensors, which follow the modules
below. On their own, GCNConv takes a self-loop of the graph for the one that it adds, and GATConv and GATv2Conv replace it by
theirs. Grappa counts both, so the model adds the self-loops and the layers do not.
"""

import hashlib
import json
import os
import warnings
from typing import Any

try:
    import torch
    from safetensors import safe_open
    from torch import Tensor, nn
    from torch_geometric import nn as pyg
except ImportError as error:
    raise ImportError(f'{error}; a model needs PyTorch and PyTorch Geometric: pip install torch "grappa[pyg]"') from error


def weighted_sum(x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
    source, destination = edge_index
    return torch.zeros_like(x).index_add(0, destination, x[source] * weight[:, None])


def encoded_ages(ages: Tensor, encoding: dict[str, Any]) -> Tensor:
    """Cosines and sines of ages, [ages, values]: each period is a quarter of the one before, and the first is `encoding["period"]`."""
    turns, columns = ages.double() / encoding["period"], []
    for place in range(encoding["values"]):
        angle = turns.frac().float() * (2 * torch.pi)
        columns.append(angle.sin() if place % 2 else angle.cos())
        turns = turns * 4 if place % 2 else turns
    return torch.stack(columns, -1)


class MeanByWeightSAGEConv(pyg.SAGEConv):
    """SAGEConv with the mean of neighbors by the weights of edges, which PyTorch Geometric has not."""

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        sums = weighted_sum(x.new_ones(len(x), 1), edge_index, weight)
        mean = weighted_sum(x, edge_index, weight) / torch.where(sums > 0, sums, torch.ones_like(sums))
        return self.lin_l(mean) + self.lin_r(x)


class SumByWeightGINConv(pyg.GINConv):
    """GINConv with the sum of neighbors by the weights of edges, which PyTorch Geometric has not."""

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.nn(weighted_sum(x, edge_index, weight) + (1 + self.eps) * x)


class SAGEConvOfEdges(pyg.SAGEConv):
    """SAGEConv whose messages are `[x_j, values of the edge]`, which PyTorch Geometric has not."""

    def __init__(self, inputs: tuple[int, int], outputs: int, edge_dim: int):
        super().__init__((inputs[0] + edge_dim, inputs[1]), outputs)

    def forward(self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        sources, own = (x, x) if isinstance(x, Tensor) else x
        source, destination = edge_index
        messages = torch.cat([sources[source], edge_attr], 1)
        sums = messages.new_zeros(len(own), messages.shape[1]).index_add(0, destination, messages)
        count = torch.bincount(destination, minlength=len(own)).clamp(min=1)
        return self.lin_l(sums / count[:, None]) + self.lin_r(own)


class PinSAGEConv(nn.Module):
    """PinSAGE's convolution over all in-neighbors alike, which PyTorch Geometric has not: `relu(W [mean of relu(Q x_j), x])`,
    scaled to length 1."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.Q = nn.Linear(inputs, outputs)
        self.W = nn.Linear(inputs + outputs, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, destination = edge_index
        messages = self.Q(x).relu()
        total = torch.zeros_like(messages).index_add(0, destination, messages[source])
        count = torch.bincount(destination, minlength=len(x)).clamp(min=1)
        z = self.W(torch.cat([total / count[:, None], x], 1)).relu()
        length = z.norm(dim=1, keepdim=True)
        return z / torch.where(length == 0, torch.ones_like(length), length)


ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU, "leaky-relu": nn.LeakyReLU, "prelu": nn.PReLU}
NORMS = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def convolution(
    layer: str,
    inputs: int,
    hidden: int,
    outputs: int,
    heads: int,
    dropout: float,
    last: bool,
    norm: str,
    edges: Any,
) -> nn.Module:
    match layer:
        case "sage":
            return (MeanByWeightSAGEConv if edges == "weights" else pyg.SAGEConv)(inputs, outputs)
        case "sage-max":
            return pyg.SAGEConv(inputs, outputs, aggr="max")
        case "gcn":
            return pyg.GCNConv(inputs, outputs, add_self_loops=False)
        case "gin":
            norms = [] if norm == "none" else [nn.LayerNorm(hidden)]
            mlp = nn.Sequential(nn.Linear(inputs, hidden), *norms, nn.ReLU(), nn.Linear(hidden, outputs))
            return (SumByWeightGINConv if edges == "weights" else pyg.GINConv)(mlp, train_eps=True)
        case "gine":
            norms = [] if norm == "none" else [nn.LayerNorm(hidden)]
            mlp = nn.Sequential(nn.Linear(inputs, hidden), *norms, nn.ReLU(), nn.Linear(hidden, outputs))
            return pyg.GINEConv(mlp, train_eps=True, edge_dim=edges["features"])
        case "gat" | "gatv2" | "transformer":
            conv = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv, "transformer": pyg.TransformerConv}[layer]
            # Heads share the hidden values; the heads of the last layer are averaged.
            outputs = outputs if last else outputs // heads
            more = {"edge_dim": edges["features"]} if isinstance(edges, dict) else {}
            if layer != "transformer":
                more["add_self_loops"] = False
            return conv(inputs, outputs, heads=heads, concat=not last, dropout=dropout, **more)
        case "pinsage":
            return PinSAGEConv(inputs, outputs)
    raise ValueError(f"no layer is called {layer}")


class LinkDecoder(nn.Module):
    """The score of a link from the outputs of its two ends, which are embeddings: `[pairs]` from two arrays `[pairs, values]`."""

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.kind = kind
        if kind == "distmult":
            self.weight = nn.Parameter(torch.ones(width))
        elif kind == "mlp":
            self.hidden, self.out = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, sources: Tensor, destinations: Tensor) -> Tensor:
        if self.kind == "cosine":
            return nn.functional.cosine_similarity(sources, destinations)
        products = sources * destinations
        match self.kind:
            case "dot":
                return products.sum(1)
            case "distmult":
                return (products * self.weight).sum(1)
            case "mlp":
                return self.out(self.hidden(products).relu()).squeeze(1)
        raise ValueError(f"no decoder is called {self.kind}")


class Model(nn.Module):
    """Each layer but the last is followed by the residual, the norm, the activation and dropout; the last makes the logits, or the
    predicted targets in their unit. Features are normalized first."""

    feature_mean: Tensor
    feature_deviation: Tensor
    target_mean: Tensor
    target_deviation: Tensor

    def __init__(self, options: dict[str, Any]):
        super().__init__()
        self.dropout, self.input_dropout = options["dropout"], options["input_dropout"]
        self.features = options["features"]
        # "nothing", "weights", or {"features": number of an edge's features}.
        self.edges = options.get("edges", "nothing")
        # How the last features of edges encode their ages; None if they do not.
        self.time_encoding = options.get("time_encoding")
        self.adds_self_loops = options["layer"] in ("gcn", "gat", "gatv2")
        if self.features == "standard":
            self.register_buffer("feature_mean", torch.zeros(options["inputs"]))
            self.register_buffer("feature_deviation", torch.ones(options["inputs"]))
        # Targets of regression are learned in units of their deviation, and given back in their unit.
        self.standardizes_targets = options.get("standardizes_targets", False)
        if self.standardizes_targets:
            self.register_buffer("target_mean", torch.zeros(options["outputs"]))
            self.register_buffer("target_deviation", torch.ones(options["outputs"]))
        self.residual = options["residual"]
        self.jump, layers = options["jumping_knowledge"], options["layers"]
        # With jumping knowledge, the last layer is like the others, and a linear layer follows.
        inner = layers if self.jump != "none" else layers - 1
        has_head = options["layer"] == "pinsage" or self.jump != "none"
        self.layers, self.norms, self.residuals = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.activations = nn.ModuleList()
        for i in range(layers):
            last = i >= inner
            inputs = options["inputs"] if i == 0 else options["hidden"]
            outputs = options["outputs"] if last and not has_head else options["hidden"]
            heads = (options["last_heads"] if last else None) or options["heads"]
            hidden, dropout, norm = options["hidden"], options["attention_dropout"], options["norm"]
            shape = inputs, hidden, outputs, heads, dropout, last, norm
            self.layers.append(convolution(options["layer"], *shape, self.edges))
            if not last:
                self.activations.append(ACTIVATIONS[options["activation"]]())
                self.norms.append(NORMS[norm](outputs))
                project = self.residual and inputs != outputs
                self.residuals.append(nn.Linear(inputs, outputs, bias=False) if project else nn.Identity())
        width = options["hidden"] * (layers if self.jump == "cat" else 1)
        self.head = nn.Linear(width, options["outputs"]) if has_head else nn.Identity()
        # A model of links: its outputs are embeddings.
        if options.get("decoder"):
            self.decoder = LinkDecoder(options["decoder"], options["outputs"])

    def normalized(self, x: Tensor) -> Tensor:
        match self.features:
            case "row":
                sums = x.abs().sum(1, keepdim=True)
                return x / torch.where(sums > 0, sums, torch.ones_like(sums))
            case "standard":
                return (x - self.feature_mean) / self.feature_deviation
        return x

    def forward(self, x: Tensor, edge_index: Tensor, edge_data: Tensor | None = None) -> Tensor:
        if (edge_data is None) != (self.edges == "nothing"):
            raise ValueError(f"the layers take {self.edges} of edges: give edge_data if that is not nothing")
        out = self.outputs(x, edge_index, edge_data)
        return out * self.target_deviation + self.target_mean if self.standardizes_targets else out

    def outputs(self, x: Tensor, edge_index: Tensor, edge_data: Tensor | None) -> Tensor:
        if self.adds_self_loops:
            loops = torch.arange(len(x), device=edge_index.device).repeat(2, 1)
            edge_index = torch.cat([edge_index, loops], 1)
            if self.edges == "weights" and edge_data is not None:
                edge_data = torch.cat([edge_data, edge_data.new_ones(len(x))])
            elif edge_data is not None:
                # The features of a self-loop are the means of the features of the other in-edges.
                destination = edge_index[1, : len(edge_data)]
                sums = edge_data.new_zeros(len(x), edge_data.shape[1]).index_add(0, destination, edge_data)
                counts = torch.bincount(destination, minlength=len(x)).clamp(min=1)
                edge_data = torch.cat([edge_data, sums / counts[:, None]])
        graph = [edge_index] if edge_data is None else [edge_index, edge_data]
        x = nn.functional.dropout(self.normalized(x), self.input_dropout, self.training)
        states = []
        for conv, norm, residual, activation in zip(self.layers, self.norms, self.residuals, self.activations):
            out = conv(x, *graph)
            if self.residual:
                out = out + residual(x)
            x = nn.functional.dropout(activation(norm(out)), self.dropout, self.training)
            states.append(x)
        if self.jump != "none":
            return self.head(torch.cat(states, 1) if self.jump == "cat" else torch.stack(states).max(0).values)
        return self.head(self.layers[-1](x, *graph))


Names = tuple[str, str, str]


class HeteroModel(nn.Module):
    """A model of a graph with types: `model(x_dict, edge_index_dict)` are the outputs of the nodes of type `model.target`. If links of
    the relation `model.target` are predicted, they are a dict with the embeddings of its two types, and `model.decoder` scores pairs.
    Types with learned embeddings need no features, and `n_id_dict` has the nodes of a minibatch; without it, all nodes are given. Types in
    `model.ages` need `age_dict`: the age of each node. Relations in `model.edge_ages` need `edge_age_dict`: the age of each edge.

    Each layer is HeteroConv of SAGEConv or of GATConv, HGTConv, or RGCNConv on the graph as one of a single type. As in `Model`, each
    layer but the last is followed by the residual, the norm, the activation and dropout, here by type."""

    target_mean: Tensor
    target_deviation: Tensor

    def __init__(self, options: dict[str, Any], relations: list[list[list[int] | None]], num_nodes: dict[str, int]):
        super().__init__()
        graph, self.kind = options["graph"], options["layer"]
        self.node_types = [node_type["name"] for node_type in graph["node_types"]]
        inputs = {node_type["name"]: node_type["inputs"] for node_type in graph["node_types"]}
        ends = [(relation["source"], relation["name"], relation["destination"]) for relation in graph["relations"]]
        self.edge_types: list[Names] = [(self.node_types[source], name, self.node_types[target]) for source, name, target in ends]
        # {"type": number} or {"relation": number}.
        number = graph["target"].get("relation")
        self.target: str | Names = self.edge_types[number] if number is not None else self.node_types[graph["target"]["type"]]
        if options.get("decoder"):
            self.decoder = LinkDecoder(options["decoder"], options["outputs"])
        self.dropout, self.input_dropout = options["dropout"], options["input_dropout"]
        self.normalization, self.residual = options["features"], options["residual"]
        learned = {node_type["name"]: node_type.get("embedding", 0) for node_type in graph["node_types"]}
        #: How ages are encoded; None if they are no inputs.
        self.time_encoding: Any = options.get("time_encoding")
        #: Values of the encoded age by type, without those that have none.
        self.ages = {node_type["name"]: node_type["ages"] for node_type in graph["node_types"] if node_type.get("ages")}
        of_relations = zip(self.edge_types, graph["relations"])
        #: Values of the encoded age of an edge by relation, without those that have none.
        self.edge_ages = {edge_type: relation["ages"] for edge_type, relation in of_relations if relation.get("ages")}
        stored = {name: width - learned[name] - self.ages.get(name, 0) for name, width in inputs.items()}
        self.features = pyg.module_dict.ModuleDict({name: FeatureMoments(width) for name, width in stored.items()})
        tables = {name: nn.Embedding(num_nodes[name], width) for name, width in learned.items() if width}
        self.embeddings = pyg.module_dict.ModuleDict(tables)
        self.standardizes_targets = options.get("standardizes_targets", False)
        if self.standardizes_targets:
            self.register_buffer("target_mean", torch.zeros(options["outputs"]))
            self.register_buffer("target_deviation", torch.ones(options["outputs"]))
        hidden, widths = options["hidden"], dict(inputs)
        self.projections = pyg.module_dict.ModuleDict()
        if self.kind in ("rgcn", "hgt"):
            self.projections = pyg.module_dict.ModuleDict({name: nn.Linear(width, hidden) for name, width in inputs.items()})
            widths = dict.fromkeys(inputs, hidden)
        self.layers, self.norms, self.residuals = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.activations = nn.ModuleList()
        for i, of_types in enumerate(relations):
            last = i == len(relations) - 1
            outputs = options["outputs"] if last and self.kind != "hgt" else hidden
            made = {self.node_types[place]: [self.edge_types[k] for k in of_type] for place, of_type in enumerate(of_types) if of_type}
            self.layers.append(self.convolution(options, made, widths, outputs, last))
            if not last:
                by_type = pyg.module_dict.ModuleDict
                self.norms.append(by_type({name: NORMS[options["norm"]](outputs) for name in made}))
                projects = {name: self.residual and widths[name] != outputs for name in made}
                linear = {name: nn.Linear(widths[name], outputs, bias=False) if projects[name] else nn.Identity() for name in made}
                self.residuals.append(by_type(linear))
                # The nonlinearity of HGT is within its layers.
                activation = nn.Identity if self.kind == "hgt" else ACTIVATIONS[options["activation"]]
                self.activations.append(by_type({name: activation() for name in made}))
            widths = dict.fromkeys(inputs, outputs)
        self.head = nn.Linear(hidden, options["outputs"]) if self.kind == "hgt" else nn.Identity()

    def convolution(
        self, options: dict[str, Any], made: dict[str, list[Names]], widths: dict[str, int], outputs: int, last: bool
    ) -> nn.Module:
        heads = (options["last_heads"] if last else None) or options["heads"]
        edge_types = [edge_type for of_type in made.values() for edge_type in of_type]
        match self.kind:
            case "rsage":
                sage = {edge_type: (widths[edge_type[0]], widths[edge_type[2]]) for edge_type in edge_types}
                convs = {
                    edge_type: SAGEConvOfEdges(inputs, outputs, self.edge_ages[edge_type])
                    if edge_type in self.edge_ages
                    else pyg.SAGEConv(inputs, outputs)
                    for edge_type, inputs in sage.items()
                }
                return by_relation(convs, options)
            case "rgat":
                width = outputs if last else outputs // heads
                more = {"heads": heads, "concat": not last, "dropout": options["attention_dropout"], "add_self_loops": False}
                convs = {
                    (s, r, d): pyg.GATConv((widths[s], widths[d]), width, edge_dim=self.edge_ages.get((s, r, d)), **more)
                    for s, r, d in edge_types
                }
                return by_relation(convs, options)
            case "rgcn":
                return pyg.RGCNConv(options["hidden"], outputs, len(self.edge_types), num_bases=options.get("bases"))
            case "hgt":
                return pyg.HGTConv(options["hidden"], outputs, (self.node_types, self.edge_types), heads=options["heads"])
        raise ValueError(f"no layer is called {self.kind}")

    def convolve(
        self, conv: nn.Module, x_dict: dict[str, Tensor], edges: dict[Names, Tensor], ages: dict[Names, Tensor]
    ) -> dict[str, Tensor]:
        known = {edge_type: index for edge_type, index in edges.items() if edge_type[0] in x_dict and edge_type[2] in x_dict}
        if self.kind != "rgcn":
            return conv(x_dict, known, edge_attr_dict=ages) if ages else conv(x_dict, known)
        starts, count = {}, 0
        for name, x in x_dict.items():
            starts[name], count = count, count + len(x)
        offset = {(s, r, d): torch.tensor([[starts[s]], [starts[d]]], device=index.device) for (s, r, d), index in known.items()}
        kinds = [torch.full((index.shape[1],), self.edge_types.index(key), device=index.device) for key, index in known.items()]
        index = torch.cat([index + offset[key] for key, index in known.items()], 1)
        out = conv(torch.cat(list(x_dict.values())), index, torch.cat(kinds))
        return dict(zip(x_dict, out.split([len(x) for x in x_dict.values()])))

    def inputs(
        self, x_dict: dict[str, Tensor], n_id_dict: dict[str, Tensor] | None, age_dict: dict[str, Tensor] | None
    ) -> dict[str, Tensor]:
        inputs = {}
        for name in self.node_types:
            parts = [self.features[name](x_dict[name], self.normalization)] if name in x_dict else []
            if name in self.ages:
                if age_dict is None or name not in age_dict:
                    raise ValueError(f"age_dict has no ages of the nodes of type {name}; give the time from each to its seed")
                parts.append(encoded_ages(age_dict[name], self.time_encoding))
            if name in self.embeddings:
                table = self.embeddings[name]
                parts.append(table.weight if n_id_dict is None else table(n_id_dict[name]))
            if len({len(part) for part in parts}) != 1:
                raise ValueError(f"x_dict has no row for each node of type {name}; give all nodes, or n_id_dict with the nodes of the rows")
            inputs[name] = torch.cat(parts, 1)
        return inputs

    def encoded_edge_ages(
        self, edge_index_dict: dict[Names, Tensor], edge_age_dict: dict[Names, Tensor] | None
    ) -> dict[Names, Tensor]:
        encoded = {}
        for edge_type in self.edge_ages.keys() & edge_index_dict.keys():
            ages, edges = (edge_age_dict or {}).get(edge_type), edge_index_dict[edge_type].shape[1]
            if ages is None or len(ages) != edges:
                raise ValueError(
                    f"edge_age_dict has no age for each of the {edges} edges of {edge_type}; give the time from each to its seed"
                )
            encoded[edge_type] = encoded_ages(ages, self.time_encoding)
        return encoded

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[Names, Tensor],
        n_id_dict: dict[str, Tensor] | None = None,
        age_dict: dict[str, Tensor] | None = None,
        edge_age_dict: dict[Names, Tensor] | None = None,
    ) -> Tensor | dict[str, Tensor]:
        ages = self.encoded_edge_ages(edge_index_dict, edge_age_dict)
        drop = nn.functional.dropout
        x_dict = {name: drop(x, self.input_dropout, self.training) for name, x in self.inputs(x_dict, n_id_dict, age_dict).items()}
        if len(self.projections):
            x_dict = {name: self.projections[name](x) for name, x in x_dict.items()}
        if self.kind == "hgt":
            x_dict = {name: x.relu() for name, x in x_dict.items()}
        for conv, norms, residuals, activations in zip(self.layers, self.norms, self.residuals, self.activations):
            out = {name: x for name, x in self.convolve(conv, x_dict, edge_index_dict, ages).items() if name in norms}
            if self.residual:
                out = {name: x + residuals[name](x_dict[name]) for name, x in out.items()}
            x_dict = {name: drop(activations[name](norms[name](x)), self.dropout, self.training) for name, x in out.items()}
        last = self.convolve(self.layers[-1], x_dict, edge_index_dict, ages)
        if isinstance(self.target, tuple):
            return {name: self.head(last[name]) for name in dict.fromkeys([self.target[0], self.target[2]])}
        out = self.head(last[self.target])
        return out * self.target_deviation + self.target_mean if self.standardizes_targets else out


def by_relation(convs: dict[Names, nn.Module], options: dict[str, Any]) -> nn.Module:
    with warnings.catch_warnings():
        # Types whose states the outputs do not depend on get none.
        warnings.simplefilter("ignore", UserWarning)
        return pyg.HeteroConv(convs, aggr=options.get("relation_aggregate", "sum"))


class FeatureMoments(nn.Module):
    """Normalizes the features of a type. Its buffers are in files of models that standardize them."""

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("feature_mean", torch.zeros(width))
        self.register_buffer("feature_deviation", torch.ones(width))

    def forward(self, x: Tensor, normalization: str) -> Tensor:
        match normalization:
            case "row":
                sums = x.abs().sum(1, keepdim=True)
                return x / torch.where(sums > 0, sums, torch.ones_like(sums))
            case "standard":
                return (x - self.feature_mean) / self.feature_deviation
        return x


def digest(metadata: dict[str, str], tensors: dict[str, Tensor], types: dict[str, str]) -> str:
    """The SHA-256 of metadata and tensors. The format has no checksum, so a flipped byte would be another parameter."""
    hashed = hashlib.sha256()
    for key in sorted(metadata.keys() - {"digest"}):
        hashed.update(f"{key}\0{metadata[key]}\0".encode())
    for name in sorted(tensors):
        sizes = ",".join(map(str, tensors[name].shape))
        hashed.update(f"{name}\0{types[name]}\0{sizes}\0".encode())
        hashed.update(tensors[name].contiguous().numpy().tobytes())
    return hashed.hexdigest()


def load(path: str | os.PathLike[str]) -> Model | HeteroModel:
    """The model in a file of ``grappa-train export``, ready to be evaluated. `model.task` is "multi-class", "multi-label" or
    "regression". `model.class_names` and `model.feature_names` may be empty. A damaged file raises ValueError.

    Example:
        >>> run.export(folder / "exported.safetensors")
        >>> model = grappa.model.load(folder / "exported.safetensors")
        >>> data = store.to_pyg()
        >>> model(data.x, data.edge_index).shape
        torch.Size([2708, 7])
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        types = {name: file.get_slice(name).get_dtype() for name in tensors}
    if metadata.get("digest") != digest(metadata, tensors, types):
        raise ValueError(f"{path}: damaged, or not a file of `grappa-train export`: its contents do not match its digest; export it again")
    options = json.loads(metadata["model"])
    model: Model | HeteroModel
    if options.get("graph"):
        names = [node_type["name"] for node_type in options["graph"]["node_types"]]
        tables = {name: tensors.get(f"embeddings.{name.replace('.', '#')}.weight") for name in names}
        num_nodes = {name: len(table) for name, table in tables.items() if table is not None}
        model = HeteroModel(options, json.loads(metadata["relations"]), num_nodes)
        # Names of types that are attributes of a ModuleDict have brackets there.
        for name in model.node_types:
            key = pyg.module_dict.ModuleDict.to_internal_key(name)
            plain = name.replace(".", "#")
            tensors = {path.replace(f".{plain}.", f".{key}."): tensor for path, tensor in tensors.items()}
        # Files without moments of features normalize none.
        model.load_state_dict(tensors, strict=options["features"] == "standard")
    else:
        model = Model(options)
        model.load_state_dict(tensors)
    model.task = json.loads(metadata["task"])
    model.class_names = json.loads(metadata["class_names"])
    model.feature_names = json.loads(metadata.get("feature_names", "[]"))
    return model.eval()
