"""Loaders in several ranks of `torch.distributed`: seeds are divided once, and by all or by none."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import grappa

pytest.importorskip("torch")

#: Two processes that run a script with `rank`, `store`, `train` and `gathered`, and may fail.
PRELUDE = """
import sys, warnings
import numpy as np
import torch.distributed as distributed
import grappa

warnings.simplefilter("always")
rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
store = grappa.open(sys.argv[3])
train = store.split("train")

def gathered(value):
    values = [None, None]
    distributed.all_gather_object(values, value)
    return values
"""


#: The models of a script are gone before the processes part. PyTorch aborts a process whose threads still release tensors when Python ends.
END = """
main()
if distributed.is_initialized():
    distributed.destroy_process_group()
"""


def in_two_ranks(cora, tmp_path, script):
    """Runs a script in two ranks. Returns the exit status and the messages of each."""
    main = textwrap.indent(textwrap.dedent(script), "    ")
    command = [sys.executable, "-c", f"{PRELUDE}\ndef main():\n{main}\n{END}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), tmp_path / "ranks", cora], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    messages = [rank.communicate(timeout=600)[1] for rank in ranks]
    return [(rank.returncode, message) for rank, message in zip(ranks, messages)]


def test_ranks_divide_the_seeds_as_the_sampler_of_pytorch_does(cora, tmp_path):
    script = """
    from torch.utils.data import DistributedSampler
    for seeds in (train, train[:7], train[:1]):
        loader = grappa.NeighborLoader(store, [3], 4, seeds, distributed=True, full_batches=True)
        for epoch in range(2):
            batches = list(loader)
            own = np.concatenate([batch.n_id[: batch.batch_size] for batch in batches])
            assert len(own) == len(DistributedSampler(range(len(seeds)), 2, rank))
            assert all((seeds[batch.input_id] == batch.n_id[: batch.batch_size]).all() for batch in batches)
            of_ranks = gathered((own, [batch.loss_weight for batch in batches], len(loader)))
            assert of_ranks[0][1] == of_ranks[1][1] and of_ranks[0][2] == of_ranks[1][2] == len(batches)
            both = np.concatenate([of_rank[0] for of_rank in of_ranks])
            assert set(both) == set(seeds) and len(both) == len(seeds) + len(seeds) % 2
    links = grappa.LinkNeighborLoader(store, [3], 500, distributed=True)
    both = np.concatenate(gathered(np.concatenate([batch.input_id for batch in links])))
    assert sorted(set(both)) == list(range(links.num_edges)) and len(both) - links.num_edges in (0, 1)
    """
    for status, message in in_two_ranks(cora, tmp_path, script):
        assert status == 0 and "Warning" not in message, message


def test_ranks_with_the_same_batches_are_warned(cora, tmp_path):
    script = """
    def warned(seeds, **options):
        loader = grappa.NeighborLoader(store, [3], 70, seeds, **options)
        distributed.barrier()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                list(loader)
                distributed.barrier()
        return [str(warning.message) for warning in caught]

    for messages in gathered(warned("train")) + gathered(warned(train[:100])):
        assert len(messages) == 1 and "distributed=True" in messages[0]
    # Seeds that the script divided, no shuffling, and ranks that are to see all.
    assert warned(train[rank::2]) == warned("train", shuffle=False) == warned("train", distributed=False) == []
    """
    for status, message in in_two_ranks(cora, tmp_path, script):
        assert status == 0, message


@pytest.mark.parametrize("option", ["distributed=True", "partitions=2"])
def test_seeds_that_are_divided_twice_are_an_error_of_all_ranks(cora, tmp_path, option):
    script = f"list(grappa.NeighborLoader(store, [3], 4, train[rank::2][:20], {option}))"
    for status, message in in_two_ranks(cora, tmp_path, script):
        assert status != 0 and "do not divide them yourself" in message, message


def test_a_loader_that_was_made_too_early_is_an_error(cora, tmp_path):
    script = """
    distributed.destroy_process_group()
    loader = grappa.NeighborLoader(store, [3], 4, distributed=True)
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}-again", rank=rank, world_size=2)
    next(iter(loader))
    """
    for status, message in in_two_ranks(cora, tmp_path, script):
        assert status != 0 and "after torch.distributed.init_process_group" in message, message


def test_processes_that_are_named_divide_seeds_without_pytorch(store):
    seen = [
        np.concatenate([b.input_id for b in grappa.NeighborLoader(store, [3], 9, distributed=True, rank=rank, world_size=3)])
        for rank in range(3)
    ]
    assert [len(of_rank) for of_rank in seen] == [47, 47, 47] and len(set(np.concatenate(seen))) == 140
    with pytest.raises(ValueError, match="partitions divide their seeds"):
        grappa.NeighborLoader(store, [3], distributed=True, partitions=2)
    with pytest.raises(ValueError, match="distributed=True to divide"):
        grappa.NeighborLoader(store, [3], rank=0, world_size=2)


def test_a_loader_says_what_it_has(store):
    text = repr(grappa.NeighborLoader(store, [3, 2], 64))
    assert text.startswith("grappa.NeighborLoader(") and "140 seeds in 3 batches, num_neighbors=[3, 2]" in text
