"""The front module: what it costs, which names it has, and where it runs."""

import ast
import pathlib
import subprocess
import sys

import pytest

import grappa
from grappa import _grappa, _processor

PACKAGE = pathlib.Path(grappa.__file__).parent
#: A processor with everything.
FLAGS = "fpu sse2 abm fma movbe f16c bmi1 avx2 bmi2 avx512f"


def test_an_import_loads_no_other_package():
    script = "import sys, grappa; print([name for name in ('numpy', 'torch', 'grappa._grappa') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_an_import_takes_less_than_50_ms():
    script = "import time; begin = time.perf_counter(); import grappa; print(time.perf_counter() - begin)"
    # The machine may do other things: the best of a few counts.
    seconds = min(float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5))
    assert seconds < 0.05


def test_public_names_are_the_names_that_type_checkers_see():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    seen = {alias.asname for node in tree.body for alias in node.names}
    assert seen == set(dir(grappa)) == {*grappa.__all__, *grappa._WITH_TORCH, *grappa._SUBMODULES}
    for name in grappa.__all__:
        assert getattr(grappa, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        grappa.opne


@pytest.mark.parametrize(
    ("platform", "machine", "flags", "message"),
    [
        ("linux", "x86_64", FLAGS.replace("avx2", "").replace("abm", ""), "lacks AVX2, LZCNT"),
        ("linux", "aarch64", FLAGS, "linux on aarch64"),
        ("darwin", "x86_64", FLAGS, "darwin on x86_64"),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_why(tmp_path, platform, machine, flags, message):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {FLAGS}\n")
    _processor.require("linux", "x86_64", cpuinfo)
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: {FLAGS}\n")
    with pytest.raises(ImportError, match=message):
        _processor.require(platform, machine, cpuinfo)


def test_the_stub_has_the_names_of_the_compiled_module():
    """A new name belongs into ``grappa/_grappa.pyi``, too."""
    stub = ast.parse((PACKAGE / "_grappa.pyi").read_text())
    stubbed = {name: members for node in stub.body for name, members in _declared(node)}
    compiled = {name: {*vars(value)} if isinstance(value, type) else set() for name, value in vars(_grappa).items()}
    assert {name for name in stubbed if not name.startswith("__")} == {name for name in compiled if not name.startswith("__")}
    for name, members in stubbed.items():
        assert _public(members) == _public(compiled[name]), name


def _declared(node):
    """The name that a statement of a stub declares, with its members."""
    if isinstance(node, ast.ClassDef):
        yield node.name, {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
    elif isinstance(node, ast.FunctionDef):
        yield node.name, set()
    elif isinstance(node, ast.AnnAssign):
        yield node.target.id, set()


def _public(names):
    return {name for name in names if not name.startswith("_")}
