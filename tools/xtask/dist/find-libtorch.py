"""Prints the folder with the libtorch of this Python's PyTorch. Does not import PyTorch, which takes seconds."""

import importlib.util
import os
import re
import sys

VERSION = "2.11"
REMEDY = (
    f"install it (`{sys.executable} -m pip install torch=={VERSION}.0`), or set GRAPPA_PYTHON to the Python of an environment that has it"
)


def version(folder):
    """The version that PyTorch states, without its suffix such as `+cpu`; None if it states none."""
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            stated = re.search(r"^__version__\s*=\s*['\"]([^'\"+]*)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return stated and stated[1]


def main():
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"error: {sys.executable} has no PyTorch, and PyTorch {VERSION} is needed: {REMEDY}")
    folder = list(spec.submodule_search_locations)[0]
    found = version(folder)
    if found is None or found.split(".")[:2] != VERSION.split("."):
        sys.exit(f"error: {folder} is PyTorch {found or 'of an unknown version'}, and PyTorch {VERSION} is needed: {REMEDY}")
    lib = os.path.join(folder, "lib")
    if not os.path.exists(os.path.join(lib, "libtorch_cpu.so")):
        sys.exit(f"error: {lib} contains no libtorch_cpu.so: {REMEDY}")
    print(lib)


main()
