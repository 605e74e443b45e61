"""The commands of ``grappa-store`` that stores and graphs with types share."""

from __future__ import annotations

import os
from typing import Any, Literal, Unpack

from ._options import AddFeaturesOptions, InfoOptions, PreaggregateOptions, RepartitionOptions, VerifyOptions
from .command import run


class StoreCommands:
    """What stores and graphs with types can be asked to do."""

    @property
    def path(self) -> os.PathLike[str]:
        """The folder."""
        raise NotImplementedError

    def info(self, *, progress: bool = False, **options: Unpack[InfoOptions]) -> dict[str, Any]:
        """Counts, sizes on disk, degrees and partitions, as ``grappa-store info --json`` prints them.

        Args:
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store info --help``, with ``_`` for ``-``.

        Example:
            >>> store.info()["degree_max"]
            168
        """
        return self._run("info", {**options}, progress)

    def verify(self, *, progress: bool = False, **options: Unpack[VerifyOptions]) -> dict[str, Any]:
        """Checks every byte, and that all files agree.

        Args:
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store verify --help``, with ``_`` for ``-``.

        Returns:
            The number of ``files`` and ``bytes``, and the time.

        Raises:
            grappa.Error: It is damaged. The message has the file, the offset and the description of each problem.

        Example:
            >>> store.verify()["problems"]
            []
        """
        return self._run("verify", {**options}, progress)

    def repartition(self, partitions: int, **options: Unpack[RepartitionOptions]) -> dict[str, Any]:
        """Groups the chunks into `partitions` partitions. No edge moves, so it takes milliseconds.

        Args:
            partitions: Number of partitions.
            **options: Those of ``grappa-store repartition --help``: ``schedule``, ``seed``, ``super_epoch``.

        Returns:
            The partitions, with their chunks, nodes and edges.

        Example:
            >>> blocks = grappa.generate("sbm", nodes=1000, out=folder / "parts.grappa")
            >>> blocks.repartition(4)["partitions"], blocks.num_partitions
            (4, 4)
        """
        return self._run("repartition", {"partitions": partitions, **options})

    def add_features(
        self, kind: Literal["fastrp", "degrees", "mean"], *, progress: bool = False, **options: Unpack[AddFeaturesOptions]
    ) -> dict[str, Any]:
        """Computes features from the graph, and adds them to a store, or to a node type, that has none.

        Args:
            kind: ``"fastrp"`` (node embeddings by random projection) or ``"degrees"``. In a graph with types ``"mean"``: the mean features
                of in-neighbors, side by side for each relation, for the type ``type``.
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store add-features --help``, with ``_`` for ``-``: ``dim``, ``dtype``, ``hops``, ``seed``,
                ``memory``; ``type`` and ``relations`` for ``"mean"``.

        Returns:
            The dimension, the number of nodes and bytes, and the time.

        Raises:
            grappa.Error: The store or the type has features.

        Example:
            >>> bare = grappa.generate("er", nodes=100, edge_factor=4, out=folder / "er.grappa")
            >>> bare.add_features("fastrp", dim=8)["dim"], bare.num_features
            (8, 8)
        """
        return self._run("add-features", {"kind": kind, **options}, progress)

    def preaggregate(
        self,
        kind: Literal["mean", "gcn", "sum", "weighted-mean", "weighted-gcn", "weighted-sum"],
        *,
        progress: bool = False,
        **options: Unpack[PreaggregateOptions],
    ) -> dict[str, Any]:
        """Aggregates the features of each node's in-neighbors once, and stores the result for training. A graph with types gets aggregates
        for each relation whose sources have features, or for ``relation`` alone.

        Args:
            kind: ``"mean"`` for GraphSAGE, ``"gcn"`` for GCN, ``"sum"`` for GIN; ``"weighted-mean"``, ``"weighted-gcn"`` and
                ``"weighted-sum"`` are the same by the weights of edges.
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store preaggregate --help``, with ``_`` for ``-``: ``dtype``, ``with_features``,
                ``relation``, ``replace``, ``memory``.

        Returns:
            The number of nodes and bytes, and the time.

        Example:
            >>> blocks = grappa.generate("sbm", nodes=1000, feature_dim=8, out=folder / "blocks.grappa")
            >>> blocks.preaggregate("mean")["nodes"]
            1000
        """
        return self._run("preaggregate", {"kind": kind, **options}, progress)

    def _run(self, command: str, options: dict[str, Any], progress: bool = False) -> Any:
        """Runs a command of ``grappa-store``. It may change the files, which are opened again."""
        answer = run("grappa-store", command, self.path, options=options, progress=progress)
        self._reopen()
        return answer

    def _reopen(self) -> None:
        raise NotImplementedError
