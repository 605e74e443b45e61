"""The command lines of the wheel: ``grappa-train``, a program with the libtorch that it needs, and programs in the compiled module."""

from __future__ import annotations

import os
import re
import shutil
import sys

#: The folder of the wheel's programs.
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_programs")
#: The PyTorch whose libtorch ``grappa-train`` is linked to.
TORCH = "2.11"
REMEDY = f'install it with `{sys.executable} -m pip install torch=={TORCH}.0`, as `pip install "grappa[train]"` does'


class Missing(Exception):
    """A program or its libtorch is not here. The message has a remedy."""


def command() -> tuple[str, dict[str, str]]:
    """The path of ``grappa-train``, and the environment to start it in.

    The program is taken from the folder ``$GRAPPA_PROGRAMS``, else from the wheel, else from the PATH.

    Raises:
        Missing: It is in none of these, or the program of the wheel finds no libtorch.
    """
    name = "grappa-train"
    folder = os.environ.get("GRAPPA_PROGRAMS")
    if folder is not None:
        path = os.path.join(folder, name)
        if not os.access(path, os.X_OK):
            raise Missing(f"GRAPPA_PROGRAMS={folder} has no program {name}; set it to a folder that has it, or unset it")
        return path, dict(os.environ)
    path = os.path.join(FOLDER, name)
    if os.path.exists(path):
        return path, _environment()
    found = shutil.which(name)
    if found is None:
        raise Missing(
            f"this installation of grappa has no {name}: install the wheel, which contains it, or set GRAPPA_PROGRAMS to a folder "
            "that has it, such as target/release"
        )
    return found, dict(os.environ)


def libtorch() -> str:
    """The folder with the libtorch of this Python's PyTorch. PyTorch is not imported, because that takes seconds.

    Raises:
        Missing: PyTorch is not installed, or is another version.
    """
    from importlib.util import find_spec

    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise Missing(f"{sys.executable} has no PyTorch, and grappa-train needs PyTorch {TORCH}: {REMEDY}")
    folder = list(spec.submodule_search_locations)[0]
    version = _version(folder)
    if version is None or version.split(".")[:2] != TORCH.split("."):
        raise Missing(f"{folder} is PyTorch {version or 'of an unknown version'}, and grappa-train needs PyTorch {TORCH}: {REMEDY}")
    lib = os.path.join(folder, "lib")
    if not os.path.exists(os.path.join(lib, "libtorch_cpu.so")):
        raise Missing(f"{lib} contains no libtorch_cpu.so: {REMEDY}")
    return lib


def _version(folder: str) -> str | None:
    """The version that PyTorch states, without its suffix such as `+cpu`; None if it states none."""
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            stated = re.search(r"^__version__\s*=\s*['\"]([^'\"+]*)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return stated and stated[1]


def _environment() -> dict[str, str]:
    """The environment of ``grappa-train`` of the wheel, which finds libtorch by it."""
    paths = [libtorch(), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}


def _run(name: str) -> None:
    """Runs a program of the compiled module, and ends the process with its exit code."""
    from . import _grappa

    # Nothing of Python is left to do, and threads of the program may still run.
    os._exit(_grappa.main(name, sys.argv[1:]))


def ingest() -> None:
    """The command ``grappa-ingest``."""
    _run("grappa-ingest")


def gen() -> None:
    """The command ``grappa-gen``."""
    _run("grappa-gen")


def store() -> None:
    """The command ``grappa-store``."""
    _run("grappa-store")


def train() -> None:
    """The command ``grappa-train``: becomes the program."""
    path = os.path.join(FOLDER, "grappa-train")
    if not os.path.exists(path):
        sys.exit("error: this installation of grappa has no grappa-train: install the wheel, which contains it")
    try:
        environment = _environment()
    except Missing as error:
        sys.exit(f"error: {error}")
    os.execve(path, ["grappa-train", *sys.argv[1:]], environment)


if __name__ == "__main__":
    # Scripts for machines without the wheel ask for the folder.
    try:
        print(libtorch())
    except Missing as error:
        sys.exit(f"error: {error}")
