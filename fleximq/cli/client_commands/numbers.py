"""Numbers over 0 on a command line, as types for ``argparse``."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def over0(read: Callable[[str], Number], name: str) -> Callable[[str], Number]:
    """Return what reads a finite number that is over 0, and raises ArgumentTypeError for anything else.

    :param name: what its sentence calls it.
    """

    def number(text: str) -> Number:
        try:
            found = read(text)
        except ValueError:
            found = read("0")
        if not 0 < found < float("inf"):
            raise ArgumentTypeError(f"{text!r} is no {name}")
        return found

    return number


#: How many.
count = over0(int, "whole number over 0")
#: How often a second.
rate = over0(float, "number over 0")
#: How long.
seconds = over0(float, "number of seconds over 0")
