"""The programs of Grappa as functions: keyword arguments in, the summary of ``--json`` out."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from typing import Any

from . import _grappa


def run(
    program: str, *words: str | os.PathLike[str], options: dict[str, Any], progress: bool = False, folder: str | None = None
) -> Any:
    """Runs ``program words... --options...`` in this process, and returns its summary. Ctrl-C stops it. What the program warns of
    is a Python warning.

    Args:
        folder: A folder with the data of arguments, in files that have their names. Messages have the names, not the files.

    Raises:
        ValueError: An option is unknown or has an impossible value.
        grappa.Error: The program failed.
    """
    try:
        with _Bar(progress) as bar:
            answer = _grappa.run(program, [*(os.fspath(word) for word in words), *arguments(options)], bar.report)
    except _grappa.Error as error:
        raise _grappa.Error(_without_files(str(error), folder)) from None
    finally:
        tell_warnings(folder)
    return None if answer is None else json.loads(_without_files(answer, None if folder is None else _in_json(folder)))


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _without_files(message: str, folder: str | None) -> str:
    """A message about data that is in files of `folder`: with names of arguments, and expressions instead of commands for files."""
    if folder is None:
        return message
    file = re.escape(folder) + r"/(?P<name>\w+)\.\w+"
    message = re.sub(rf"(?P<before>: )?python3 -c \"(?P<code>[^\"]*)\" '?{file}'?", _in_expressions, message)
    return re.sub(file, r"\g<name>", message)


def _in_expressions(command: re.Match[str]) -> str:
    """What gives an argument the value that a command gives a file."""
    name, code = command["name"], command["code"]
    cast = re.search(r"t\[i\]\.cast\('(\w+)'\)", code)
    if cast is not None:
        return f"{command['before'] or ''}give {name} with the type {cast[1]} in this column"
    steps = code.partition("a = np.load(sys.argv[1]); ")[2].split("; ")
    saved = [re.fullmatch(r"np\.save\('NEW(?:-(\w+))?\.npy', (.*)\)", step) for step in steps]
    if saved[-1] is None:
        return ""
    before = [step for step, result in zip(steps, saved) if result is None]
    given = ", ".join(f"{result[1] or name}={result[2]}" for result in saved if result is not None)
    return (command["before"] or "") + re.sub(r"\ba\b(?! )|\ba\b(?= (?:=|if))", name, "; ".join([*before, given]))


def tell_warnings(folder: str | None = None) -> None:
    """Makes Python warnings of what Rust has warned of. `folder` is as for `run`."""
    for text in _grappa.take_warnings():
        warn(_without_files(text, folder))


def warn(text: str) -> None:
    """A warning for the line outside the package that called it."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def arguments(options: dict[str, Any]) -> list[str]:
    """The arguments of options: ``{"dry_run": True, "ids": "string"}`` gives ``--dry-run --ids=string``. A list repeats its option.
    A name may end with ``_``, as in ``as_="npy"``."""
    line = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(flag)
            continue
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
