"""The arrays of a batch as NumPy arrays or tensors, and their way to a device."""

from __future__ import annotations

import warnings

from . import _grappa


def converted(entries, convert):
    """The entries of a batch with each array converted; dicts and lists of them have entries of their own."""

    def value(entry):
        if isinstance(entry, _grappa.Array):
            return convert(entry)
        if isinstance(entry, dict):
            return converted(entry, convert)
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            return [converted(inner, convert) for inner in entry]
        return entry

    return {name: value(entry) for name, entry in entries.items()}


def arrays(entries):
    """The entries of a batch with NumPy arrays."""
    import numpy as np

    return converted(entries, np.asarray)


def tensor(array):
    """A tensor on the memory of an array."""
    import numpy as np
    import torch

    return torch.from_numpy(np.asarray(array))


class Destination:
    """Where tensors of batches go.

    Args:
        device: ``"cpu"`` or a CUDA device.
        pin_memory: Whether tensors on the CPU are in memory that a GPU copies from directly.

    Raises:
        ValueError: PyTorch has no such device.
    """

    def __init__(self, device, pin_memory):
        torch = _torch()
        try:
            self.device = torch.device(device)
        except RuntimeError as error:
            raise ValueError(f"device={device!r}: {error}") from None
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f'device={device!r}; give "cpu" or "cuda", and move batches elsewhere with batch.to({device!r})')
        if self.device.type == "cuda":
            self._check_cuda(torch)
        elif pin_memory and not torch.cuda.is_available():
            # As PyTorch's own loaders do.
            warnings.warn("pin_memory=True: PyTorch finds no CUDA device, so memory is not pinned", stacklevel=4)
            pin_memory = False
        self.pins = pin_memory

    def _check_cuda(self, torch):
        if not torch.cuda.is_available():
            raise ValueError(f'device="{self.device}": PyTorch finds no CUDA device; leave device out, or give "cpu"')
        if self.device.index is not None and self.device.index >= torch.cuda.device_count():
            raise ValueError(f'device="{self.device}": PyTorch finds {torch.cuda.device_count()} CUDA devices')

    def deliver(self, batches):
        """The entries of `batches` with tensors on the device."""
        if self.device.type == "cuda":
            return self._copied(batches)
        # Unlike a generator, a map may be shared by threads.
        return map(self._on_host, batches)

    def _on_host(self, entries):
        return converted(entries, self._host_tensor)

    def _host_tensor(self, array):
        return tensor(array).pin_memory() if self.pins else tensor(array)

    def _copied(self, batches):
        """Copies run on a stream of their own. If another batch is ready when one is handed over, its copy runs meanwhile."""
        torch = _torch()
        stream = torch.cuda.Stream(self.device)

        def start(entries):
            with torch.cuda.stream(stream):
                # PyTorch keeps pinned memory until the stream has copied it.
                copies = converted(entries, lambda array: tensor(array).pin_memory().to(self.device, non_blocking=True))
            return copies, stream.record_event()

        entries = next(batches, None)
        following = None if entries is None else start(entries)
        while following is not None:
            copies, is_copied = following
            current = torch.cuda.current_stream(self.device)
            current.wait_event(is_copied)
            _each_tensor(copies, lambda copy: copy.record_stream(current))
            entries = batches.ready()
            following = None if entries is None else start(entries)
            yield copies
            del copies
            if following is None:
                entries = next(batches, None)
                following = None if entries is None else start(entries)


def _each_tensor(entries, visit):
    for entry in entries.values():
        if hasattr(entry, "record_stream"):
            visit(entry)
        elif isinstance(entry, list) and entry and isinstance(entry[0], dict):
            for inner in entry:
                _each_tensor(inner, visit)


def _torch():
    try:
        import torch
    except ImportError:
        raise ImportError("tensors need PyTorch: pip install torch") from None
    return torch
