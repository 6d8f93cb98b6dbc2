"""Finds refused items by halving."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def refused(items: Sequence[_Item], isTaken: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Return the items that are refused alone; items that are refused only together are not found."""
    if not items or isTaken(items):
        return []
    if len(items) == 1:
        return list(items)
    middle = len(items) // 2
    return refused(items[:middle], isTaken) + refused(items[middle:], isTaken)
