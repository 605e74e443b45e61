"""The programs of Grappa as functions: keyword arguments in, the summary of ``--json`` out."""

from __future__ import annotations

import json
import os
import sys
import warnings
from types import MappingProxyType
from typing import Any, Mapping, Sequence

from . import _grappa

# A program of a command line prints its warnings, and never imports this module.
_grappa.keep_warnings()


def run(
    program: str,
    *words: str | os.PathLike[str],
    options: dict[str, Any],
    progress: bool = False,
    data: Sequence[Any] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Runs ``program words... --options...`` in this process, and returns its summary. Ctrl-C stops it. What the program warns of
    is a Python warning.

    Args:
        data: The values of options that are data, each an `inputs.Data`. In the options, their names stand for them.
        names: The names of temporary files in messages and in the summary.

    Raises:
        ValueError: An option is unknown or has an impossible value.
        MemoryError: The system refused memory.
        grappa.Error: The program failed.
    """
    try:
        with _Bar(progress) as bar:
            answer = _grappa.run(program, [*(os.fspath(word) for word in words), *arguments(options)], bar.report, list(data))
    except _grappa.Error as error:
        if not names:
            raise
        raise _grappa.Error(_named(str(error), names)) from None
    finally:
        tell_warnings(names)
    return None if answer is None else _named(json.loads(answer), names)


def tell_warnings(names: Mapping[str, str] = MappingProxyType({})) -> None:
    """Makes Python warnings of what Rust has warned of."""
    for text in _grappa.take_warnings():
        warn(_named(text, names))


def _named(answer: Any, names: Mapping[str, str]) -> Any:
    """Text, or all text of an answer, with the names of temporary files."""
    if not names:
        return answer
    if isinstance(answer, str):
        for path, name in names.items():
            answer = answer.replace(path, name)
        return answer
    if isinstance(answer, dict):
        return {key: _named(value, names) for key, value in answer.items()}
    return [_named(value, names) for value in answer] if isinstance(answer, list) else answer


def warn(text: str) -> None:
    """A warning for the line outside the package that called it."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def arguments(options: dict[str, Any]) -> list[str]:
    """The arguments of options: ``{"dry_run": True, "ids": "string"}`` gives ``--dry-run --ids=string``. A list repeats its option,
    and so does a dict, whose keys are node types or relations: ``{"nodes": {"user": 9}}`` gives ``--nodes=user=9``. A name may end with
    ``_``, as in ``as_="npy"``."""
    line = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(flag)
            continue
        if isinstance(value, Mapping):
            value = [f"{key if isinstance(key, str) else ':'.join(key)}={item}" for key, item in value.items()]
        values = value if isinstance(value, (list, tuple)) else [value]
        if not values:
            raise ValueError(f"{name}={value!r} is empty; leave it out, or give values")
        line += [f"{flag}={os.fspath(item) if isinstance(item, os.PathLike) else item}" for item in values]
    return line


class _Bar:
    """A progress bar of tqdm for each stage, or none."""

    def __init__(self, shown: bool):
        self.report = self._report if shown else None
        self._stage: str | None = None
        self._bar: Any = None
        if shown:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                raise ImportError("progress=True needs tqdm: pip install tqdm") from None
            self._tqdm = tqdm

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.close()

    def _report(self, stage: str, done: int, total: int | None, unit: str) -> None:
        if stage != self._stage or done < self._bar.n:
            self.__exit__()
            self._stage = stage
            self._bar = self._tqdm(total=total, desc=stage, unit=unit, unit_scale=True)
        self._bar.update(done - self._bar.n)
