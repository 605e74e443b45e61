"""Minibatches of links."""

import pickle

import grappa
import numpy as np
import pytest

MODES = ["binary", {"mode": "triplet", "amount": 3}, {"mode": "shared", "amount": 20}]


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """A store with held-out edges, and the edges of its parts."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 120, (900, 2))
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    features = np.arange(120, dtype=np.float32)[:, None]
    out = tmp_path_factory.mktemp("links") / "split.grappa"
    return grappa.ingest(edges, features=features, undirected=True, edge_split="70/20/10", out=out), edges


def pairs_of(loader):
    """The positives of an epoch, as nodes of the store."""
    pairs = [batch.n_id[batch.edge_label_index[:, : len(batch.input_id)]] for batch in loader]
    return np.concatenate(pairs, axis=1)


def as_set(pairs):
    return {(min(pair), max(pair)) for pair in np.asarray(pairs).T.tolist()}


def test_parts_have_all_edges_once_and_messages_never_have_those_of_the_batch(split):
    store, edges = split
    parts = {}
    for part in ("train", "val", "test"):
        loader = grappa.LinkNeighborLoader(store, [-1, -1], 16, part, shuffle=False)
        pairs = pairs_of(loader)
        assert pairs.shape[1] == loader.num_edges
        parts[part] = as_set(pairs)
        assert len(parts[part]) == pairs.shape[1]
    assert set.union(*parts.values()) == as_set(edges.T)
    assert sum(map(len, parts.values())) == len(edges)
    seen = set()
    for batch in grappa.LinkNeighborLoader(store, [-1, -1], 16, "train"):
        positives = as_set(batch.n_id[batch.edge_label_index[:, : len(batch.input_id)]])
        messages = as_set(batch.n_id[batch.edge_index])
        assert not messages & (positives | parts["val"] | parts["test"])
        seen |= messages
    assert seen == parts["train"]


def test_destinations_are_among_the_nodes_that_the_user_names(tmp_path):
    random = np.random.default_rng(2)
    items = np.arange(50, 70)
    pairs = np.unique(np.stack([random.integers(0, 50, 300), random.choice(items, 300)]), axis=1)
    features = np.ones((70, 2), np.float32)
    store = grappa.ingest(pairs, features=features, undirected=True, edge_split="80/10/10", out=tmp_path / "shop.grappa")
    for among in (store.nodes(items), np.isin(store.ids(np.arange(70)), items)):
        seen = []
        for batch in grappa.LinkNeighborLoader(store, [4], 32, "train", among=among):
            sources, destinations = (store.ids(ends) for ends in batch.n_id[batch.edge_label_index])
            positives = len(batch.input_id)
            assert np.isin(destinations, items).all() and not np.isin(sources[:positives], items).any()
            assert len(destinations) > positives
            seen.append(np.stack([sources, destinations])[:, :positives])
        assert set(map(tuple, np.concatenate(seen, axis=1).T)) <= set(map(tuple, pairs.T))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("candidates", ["uniform", "degree", "in-batch"])
def test_negatives_are_no_edges(split, mode, candidates):
    store, edges = split
    known = {"train": 0, "test": 0}
    everything = as_set(edges.T)
    for part in known:
        allowed = everything if part == "test" else as_set(pairs_of(grappa.LinkNeighborLoader(store, [1], 64, "train")))
        loader = grappa.LinkNeighborLoader(store, [2], 32, part, neg_sampling=mode, candidates=candidates)
        for batch in loader:
            if mode == "binary":
                negatives = batch.n_id[batch.edge_label_index[:, batch.edge_label == 0]]
            else:
                sources, destinations = np.broadcast_arrays(batch.src_index[:, None], batch.dst_neg_index)
                keep = np.ones(sources.shape, bool) if batch.neg_mask is None else batch.neg_mask.astype(bool)
                negatives = batch.n_id[np.stack([sources[keep], destinations[keep]])]
            assert negatives.size and not as_set(negatives) & allowed
            assert (negatives[0] != negatives[1]).all()
            known[part] += 1
    assert all(known.values())


def test_listed_negatives_belong_to_their_source(split):
    store, edges = split
    known = as_set(edges.T)
    # Of each node, twelve nodes: some of them have an edge to it, and are left out.
    listed = np.stack([np.repeat(np.arange(120), 12), np.arange(1440) * 7 % 120])
    triplets = {"mode": "triplet", "amount": 2}
    for batch in grappa.LinkNeighborLoader(store, [2], 16, "test", neg_sampling=triplets, candidates=listed):
        sources, destinations = np.broadcast_arrays(batch.src_index[:, None], batch.dst_neg_index)
        assert destinations.shape == (len(batch.input_id), 2)
        drawn = set(zip(batch.n_id[sources].ravel().tolist(), batch.n_id[destinations].ravel().tolist(), strict=True))
        assert drawn <= set(map(tuple, listed.T.tolist())) and not drawn & known
    loader = grappa.LinkNeighborLoader(store, [2], 16, neg_sampling="triplet", candidates=[[0], [7]])
    with pytest.raises(grappa.Error, match="the list of negatives has no pair of"):
        list(loader)


def test_given_edges_keep_order_ids_and_labels(split):
    store, edges = split
    given, labels = edges.T[:, :50], np.arange(50) % 3
    loader = grappa.LinkNeighborLoader(store, [3], 8, given, edge_label=labels, shuffle=False, seed=4)
    batches = list(loader)
    ids = np.concatenate([batch.input_id for batch in batches])
    np.testing.assert_array_equal(ids, np.arange(50))
    np.testing.assert_array_equal(pairs_of(loader), given)
    for batch in batches:
        p = len(batch.input_id)
        # Negatives have 0, so labels begin with 1.
        np.testing.assert_array_equal(batch.edge_label, np.concatenate([labels[batch.input_id] + 1, np.zeros(p)]))
        np.testing.assert_array_equal(batch.x[:, 0], batch.n_id)


def test_epochs_draw_other_edges_if_asked_and_copies_of_a_loader_agree(split):
    store, _ = split
    loader = grappa.LinkNeighborLoader(store, [3, 2], 8, edges_per_epoch=40, seed=1)
    assert (loader.num_edges, len(loader)) == (40, 5)
    first, second = (as_set(pairs_of(loader)) for _ in range(2))
    assert len(first) == len(second) == 40 and first != second
    again = pickle.loads(pickle.dumps(loader))
    loader.set_epoch(1)
    again.set_epoch(1)
    for a, b in zip(loader, again, strict=True):
        np.testing.assert_array_equal(a.edge_label_index, b.edge_label_index)
        np.testing.assert_array_equal(a.edge_index, b.edge_index)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"edge_label_index": "valid"}, "give train, val or test"),
        ({"edge_label_index": np.zeros((3, 4), int)}, r"of shape \(3, 4\)"),
        ({"sampler": [0], "edges_per_epoch": 3}, "both decide which edges"),
        ({"sampler": [0], "shuffle": True}, "leave out shuffle"),
        ({"edge_label_index": [[0], [1]], "edges_per_epoch": 3}, "edges_per_epoch is for the edges of the store"),
        ({"neg_sampling": "ternary"}, '"binary", "triplet"'),
        ({"neg_sampling": {"mode": "triplet", "amount": 1.5}}, "whole number"),
        ({"neg_sampling": {"mode": "binary", "amount": 0}}, "above 0"),
        ({"neg_sampling": {"amount": 2}}, 'dict with "mode"'),
        ({"neg_sampling": {"mode": "triplet", "amount": 2**31}}, "a smaller amount"),
        ({"neg_sampling": {"mode": "shared", "amount": 2**31}, "memory": "1GiB"}, "a smaller amount"),
        ({"candidates": "hard"}, '"uniform", "degree" or "in-batch"'),
        ({"candidates": [0, 1]}, r"candidates is an array of int64 of shape \(2,\)"),
        ({"candidates": np.zeros((2, 0), int)}, "candidates has no pairs"),
        ({"exclude_targets": "all"}, '"both", "forward" or "none"'),
        ({"edge_label": [1, 0]}, "give edge_label_index as an array"),
        ({"edge_label_index": [[0], [1]], "edge_label": [1, 0]}, r"expected \(1,\)"),
        ({"edge_label_index": [[0], [1]], "edge_label": [1], "neg_sampling": "triplet"}, "leave edge_label out"),
        ({"edge_label_index": [[0], [1]], "edge_label": [[1, 2]]}, "neg_sampling=None"),
        ({"layout": "induced"}, 'exclude_targets="none"'),
    ],
)
def test_impossible_arguments_are_errors(split, options, message):
    with pytest.raises(ValueError, match=message):
        grappa.LinkNeighborLoader(split[0], [2], 8, **options)


def test_edges_that_are_given_for_a_part_are_not_in_the_graph(tmp_path):
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    held_out = {"val_edges": edges[:1], "test_edges": [[3, 1], [0, 2]]}
    store = grappa.ingest(edges, **held_out, out=tmp_path / "held.grappa")
    for part, expected in {"train": edges[1:].T, "val": [[0], [1]], "test": [[3, 0], [1, 2]]}.items():
        pairs = pairs_of(grappa.LinkNeighborLoader(store, [2], 4, part, neg_sampling=None, shuffle=False))
        assert sorted(pairs.T.tolist()) == sorted(np.transpose(expected).tolist())


def test_missing_parts_and_nodes_are_errors(split, store):
    with pytest.raises(grappa.Error, match="edge_split="):
        grappa.LinkNeighborLoader(store, [2], 8, "val")
    with pytest.raises(IndexError, match="there is no node 120"):
        grappa.LinkNeighborLoader(split[0], [2], 8, [[0], [120]])


def test_samplers_give_positives(split):
    store, edges = split
    for part in (edges.T[:, :50], "train", "val"):
        listed = part if not isinstance(part, str) else store.edge_split(part)
        order = [4, 4, 0, 17, 4]
        loader = grappa.LinkNeighborLoader(store, [3], 2, part, sampler=order, full_batches=True)
        assert len(loader) == 3
        batches = list(loader)
        assert np.concatenate([batch.input_id for batch in batches]).tolist() == order
        np.testing.assert_array_equal(pairs_of(loader), listed[:, order])
    loader = grappa.LinkNeighborLoader(store, [3], 1, edges.T[:, :50], batch_sampler=[[1, 1, 2], [9]])
    assert [batch.input_id.tolist() for batch in loader] == [[1, 1, 2], [9]]
    labels = np.arange(50) % 3
    loader = grappa.LinkNeighborLoader(store, [3], 4, edges.T[:, :50], edge_label=labels, sampler=[8, 8, 3, 2])
    for batch in loader:
        np.testing.assert_array_equal(batch.edge_label[:4], labels[[8, 8, 3, 2]] + 1)
    with pytest.raises(IndexError, match="the position 50, and edge_label_index has 50 seeds"):
        iter(grappa.LinkNeighborLoader(store, [3], 4, edges.T[:, :50], sampler=[50]))


def test_parts_of_an_edge_split_are_arrays_in_the_order_of_loaders(split):
    store, edges = split
    for part in ("train", "val", "test"):
        pairs = store.edge_split(part)
        assert pairs.dtype == np.int64 and as_set(pairs) <= as_set(edges.T)
        np.testing.assert_array_equal(pairs, pairs_of(grappa.LinkNeighborLoader(store, [1], 16, part, shuffle=False)))
        for batch in grappa.LinkNeighborLoader(store, [1], 16, part):
            found = batch.n_id[batch.edge_label_index[:, : len(batch.input_id)]]
            np.testing.assert_array_equal(found, pairs[:, batch.input_id])
    assert sum(store.edge_split(part).shape[1] for part in ("train", "val", "test")) == len(edges)


def test_a_missing_part_of_an_edge_split_says_what_there_is(split, store):
    with pytest.raises(ValueError, match="give train, val or test"):
        split[0].edge_split("valid")
    with pytest.raises(grappa.Error, match="edge_split="):
        store.edge_split("test")


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"distributed": True, "rank": 0, "world_size": 2}])
def test_a_loader_of_no_edges_has_no_batches(split, mode, options):
    loader = grappa.LinkNeighborLoader(split[0], [3], 8, np.zeros((2, 0), int), neg_sampling=mode, **options)
    assert (len(loader), loader.num_edges) == (0, 0) and list(loader) == [] == list(loader)


def whole_neighborhoods(edge_index, hops):
    """A sampler of PyTorch Geometric that takes all in-neighbors. It needs no pyg-lib."""
    import torch
    from torch_geometric.sampler import BaseSampler, SamplerOutput
    from torch_geometric.sampler.neighbor_sampler import edge_sample

    def sample(seeds, _):
        nodes, reached, taken = seeds.tolist(), seeds, []
        for _ in range(hops):
            edges = torch.isin(edge_index[1], reached).nonzero()[:, 0]
            known = set(nodes)
            new = [node for node in dict.fromkeys(edge_index[0, edges].tolist()) if node not in known]
            nodes += new
            reached = torch.tensor(new, dtype=torch.long)
            taken.append(edges)
        place = torch.zeros(int(edge_index.max()) + 1, dtype=torch.long)
        place[nodes] = torch.arange(len(nodes))
        row, col = place[edge_index[:, torch.cat(taken)]]
        return SamplerOutput(node=torch.tensor(nodes), row=row, col=col, edge=torch.cat(taken))

    class Whole(BaseSampler):
        edge_permutation = None

        def sample_from_nodes(self, index):
            raise NotImplementedError

        def sample_from_edges(self, index, neg_sampling=None):
            return edge_sample(index, sample, 120, False, None, neg_sampling)

    return Whole()


class TestPyG:
    """The batches of PyTorch Geometric's loader."""

    @pytest.fixture(autouse=True)
    def need_pyg(self):
        pytest.importorskip("torch_geometric")

    def loaders(self, split, **options):
        import torch
        from torch_geometric.data import Data
        from torch_geometric.loader import LinkLoader

        import grappa.pyg

        store, edges = split
        train = torch.from_numpy(pairs_of(grappa.LinkNeighborLoader(store, [1], 64, "train", shuffle=False)))
        edge_index = torch.cat([train, train.flip(0)], dim=1)
        data = Data(x=torch.arange(120.0)[:, None], edge_index=edge_index, num_nodes=120)
        given = torch.from_numpy(edges.T[:, :40].copy())
        options = {"edge_label_index": given, "batch_size": 16, **options}
        ours = grappa.pyg.LinkNeighborLoader(store, [-1, -1], exclude_targets="none", **options)
        return LinkLoader(data, whole_neighborhoods(edge_index, 2), **options), ours

    @pytest.mark.parametrize("labels", [None, [1.5, 2.5], [0, 1]])
    @pytest.mark.parametrize("mode", [None, "binary", "triplet"])
    def test_batches_have_the_same_attributes_shapes_and_types(self, split, mode, labels):
        import torch

        if mode == "triplet" and labels is not None:
            pytest.skip("triplets have no labels")
        options = {} if labels is None else {"edge_label": torch.tensor(labels * 20)}
        if mode is not None:
            from torch_geometric.sampler import NegativeSampling

            options["neg_sampling"] = NegativeSampling(mode, amount=2)
        theirs, ours = self.loaders(split, **options)
        assert len(theirs) == len(ours)
        for a, b in zip(theirs, ours, strict=True):
            assert torch.equal(a.input_id, b.input_id)
            names = ["edge_label_index", "edge_label"] if mode != "triplet" else ["src_index", "dst_pos_index", "dst_neg_index"]
            for name in names:
                x, y = a.get(name), b.get(name)
                assert (x is None) == (y is None), name
                if x is not None:
                    assert x.shape == y.shape and x.dtype == y.dtype, name
            if mode != "triplet":
                p = len(a.input_id)
                for data in (a, b):
                    data.pairs = data.n_id[data.edge_label_index[:, :p]]
                assert torch.equal(a.pairs, b.pairs)
                if b.get("edge_label") is not None:
                    assert torch.equal(a.edge_label, b.edge_label)
            else:
                assert torch.equal(a.n_id[a.src_index], b.n_id[b.src_index])
            if mode is None:
                # Without negatives, the nodes and all of their edges are the same.
                assert set(a.n_id.tolist()) == set(b.n_id.tolist())
                edges = [set(map(tuple, data.n_id[data.edge_index].t().tolist())) for data in (a, b)]
                assert edges[0] == edges[1]
            counts = {"num_sampled_nodes", "num_sampled_edges"}
            assert set(b.keys()) - counts <= set(a.keys()) | {"num_nodes", "loss_weight"}

    def test_disjoint_links_are_refused_with_a_way_out(self, split):
        import grappa.pyg

        with pytest.raises(ValueError, match="batch_size=1"):
            grappa.pyg.LinkNeighborLoader(split[0], [2], disjoint=True)

    def test_a_model_learns_links(self, split):
        import torch
        from torch_geometric.nn import GraphSAGE

        import grappa.pyg

        store, _ = split
        torch.manual_seed(0)
        model = GraphSAGE(8, 16, num_layers=2)
        embedding = torch.nn.Embedding(120, 8)
        optimizer = torch.optim.Adam([*model.parameters(), *embedding.parameters()], lr=0.02)
        loader = grappa.pyg.LinkNeighborLoader(store, [-1, -1], neg_sampling_ratio=1.0, batch_size=64, shuffle=True)
        losses = []
        for _ in range(10):
            for batch in loader:
                z = model(embedding(batch.n_id), batch.edge_index)
                out = (z[batch.edge_label_index[0]] * z[batch.edge_label_index[1]]).sum(-1)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(out, batch.edge_label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss))
        assert np.mean(losses[-5:]) < np.mean(losses[:5])
