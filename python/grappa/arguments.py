"""Checks of arguments. Errors name the argument and what it may be."""

from __future__ import annotations

import operator
from typing import Any


def integer(name: str, value: Any, least: int, bits: int = 64) -> int:
    """`value` as an integer from `least` to below 2 to the power of `bits`.

    Raises:
        TypeError: It is no integer.
        ValueError: It is out of this range.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}; give an integer") from None
    if not least <= number < 1 << bits:
        raise ValueError(f"{name} is {number}; give at least {least}, and less than 2**{bits}")
    return number


def flag(name: str, value: Any) -> bool:
    """`value` as a boolean. Text is none, because ``"no"`` would be true.

    Raises:
        TypeError: It is text.
    """
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name}={value!r}; give True or False")
    return bool(value)


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """`value`, which is one of `choices`.

    Raises:
        ValueError: It is none of them.
    """
    if not any(value is item or isinstance(value, str) and value == item for item in choices):
        *others, last = [item if item is None else f'"{item}"' for item in choices]
        raise ValueError(f"{name}={value!r}; give {', '.join(map(str, others))} or {last}")
    return value
