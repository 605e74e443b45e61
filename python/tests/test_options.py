"""The types of options are the declarations of the programs."""

import inspect
from pathlib import Path

import grappa
from grappa import _grappa, _options, _types, inputs

FILE = Path(_options.__file__)


def test_the_types_are_those_of_the_programs():
    written = FILE.read_text()
    assert written == _grappa.typed_options(), (
        'python/grappa/_options.py is old; write it again: python -c "from grappa import _grappa; '
        "open('python/grappa/_options.py', 'w').write(_grappa.typed_options())\""
    )


def test_options_that_take_data_have_any_value():
    types = inspect.get_annotations(_options.IngestOptions)
    assert {name for name, kind in types.items() if kind in ("Any", "'Any'") or "Any" in str(kind)} == set(inputs.DATA) - {"edges"}


def test_options_of_loaders_of_links_are_arguments_of_loaders():
    arguments = inspect.signature(grappa.NeighborLoader).parameters
    passed_on = {name for name, argument in arguments.items() if argument.kind == argument.KEYWORD_ONLY} - {"labels"}
    assert passed_on == set(_types.LoaderOptions.__annotations__)
