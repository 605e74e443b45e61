"""Initial rows of learned embeddings. The row of a node follows from the seed, its type and its number, so parts of a table are made in any
order, and equal those of ``grappa-train --node-embeddings`` with the same seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: Values that are drawn together.
VALUES = 1 << 20

# SplitMix64, as in `formats/src/random.rs`.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def initial_rows(seed: int, type_number: int, num_nodes: int, dim: int) -> Iterator[np.ndarray]:
    """The rows of all nodes of a type, in blocks of successive nodes: shape (n, dim), float32. Values are uniform, and rows have length 1 on
    average (root mean square)."""
    block = max(1, VALUES // dim)
    key = _combine(_mix(np.array([seed], np.uint64) + _GOLDEN), np.uint64(type_number))
    bound = np.sqrt(np.float32(3) / np.float32(dim))
    places = np.arange(dim, dtype=np.uint64) * _GOLDEN
    for first in range(0, num_nodes, block):
        nodes = np.arange(first, min(first + block, num_nodes), dtype=np.uint64)
        draws = _mix(_combine(key, nodes)[:, None] + places)
        # 24 bits are exact in float32.
        uniform = (draws >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
        yield bound * (2 * uniform - 1)


def _combine(key: np.ndarray, part: np.ndarray | np.uint64) -> np.ndarray:
    return _mix((key + _GOLDEN) ^ part)


def _mix(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * _FACTORS[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _FACTORS[1]
    bits ^= bits >> np.uint64(31)
    return bits
