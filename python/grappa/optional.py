"""Packages that only some inputs and outputs need."""

from __future__ import annotations

import importlib
from types import ModuleType


def needed(module: str, what: str) -> ModuleType:
    """Imports `module`, which `what` needs. If it is missing, the error names the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ImportError(f"{what}: this needs {package}, which cannot be imported ({error}): pip install {package}") from error
