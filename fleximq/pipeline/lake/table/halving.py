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


def refusedFor(items: Sequence[_Item], refusal: Callable[[Sequence[_Item]], str | None]) -> tuple[list[_Item], str]:
    """As :func:`refused`, with the last reason; ``refusal`` returns why some of these items are refused, or None."""
    why = ""

    def isTaken(some: Sequence[_Item]) -> bool:
        nonlocal why
        found = refusal(some)
        why = found or why
        return found is None

    return refused(items, isTaken), why
