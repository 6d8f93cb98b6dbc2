"""Numbers over 0 on a command line, as types for ``argparse``."""

from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def over0(read: Callable[[str], Number], name: str) -> Callable[[str], Number]:
    """Return what reads a finite number that is over 0, and raises ValueError for anything else.

    :param name: what ``argparse`` calls it.
    """

    def number(text: str) -> Number:
        found = read(text)
        if not 0 < found < float("inf"):
            raise ValueError(text)
        return found

    number.__name__ = name
    return number


#: How many.
count = over0(int, "number over 0")
#: How often a second.
rate = over0(float, "number over 0")
#: How long.
seconds = over0(float, "number of seconds")
