"""The types of options are the declarations of the programs."""

import inspect
import re
import subprocess
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import grappa
from grappa import _grappa, _options, _types, inputs, programs

FILE = Path(_options.__file__)


def test_the_types_are_those_of_the_programs():
    written = FILE.read_text()
    assert written == _grappa.typed_options(), (
        'python/grappa/_options.py is old; write it again: python -c "from grappa import _grappa; '
        "open('python/grappa/_options.py', 'w').write(_grappa.typed_options())\""
    )


def test_options_that_take_data_have_any_value():
    types = inspect.get_annotations(_options.IngestOptions)
    assert {name for name, kind in types.items() if kind in ("Any", "'Any'") or "Any" in str(kind)} == {*inputs.DATA, "time"} - {"edges"}


def test_options_of_loaders_of_links_are_arguments_of_loaders():
    arguments = inspect.signature(grappa.NeighborLoader).parameters
    passed_on = {name for name, argument in arguments.items() if argument.kind == argument.KEYWORD_ONLY} - {"labels", "input_time"}
    assert passed_on == set(_types.LoaderOptions.__annotations__)


def help_of(*command):
    """The help of ``grappa-train``, which links libtorch, so that its options are listed by hand."""
    try:
        program, environment = programs.command()
    except programs.Missing as error:
        pytest.skip(str(error))
    return subprocess.run([program, *command, "--help"], env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("command", "options"), [((), _options.TrainOptions), (("predict",), _options.PredictOptions)])
def test_options_of_training_and_prediction_are_options_of_the_program(command, options):
    shown = help_of(*command)
    flags = set(re.findall(r"--([a-z][a-z0-9-]*)", shown))
    assert {name.replace("_", "-") for name in options.__annotations__} <= flags


def test_methods_are_those_of_the_program():
    shown = help_of()
    methods = get_args(get_type_hints(_options.TrainOptions)["method"])
    listed = shown[shown.index("--method <METHOD>") :].split("\n\n      --")[0]
    assert set(re.findall(r"^ *- ([a-z]+):", listed, re.MULTILINE)) == set(methods)
