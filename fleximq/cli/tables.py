"""Tables for terminals: they use the whole width, and texts are cut before numbers."""

import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Any

from fleximq.values.printable import printable

#: Characters that the first column keeps in a narrow terminal, if its texts have as many.
_FIRST = 12
#: In a terminal with fewer columns numbers are cut as well, or nothing would be left of the texts.
_NARROW = 80
#: The width without a terminal, so that nothing is cut.
_WIDE = 10_000


def console(isWide: bool = True) -> Any:
    """Return a console for standard output; a wide one cuts nothing without a terminal."""
    from rich.console import Console

    class OutputConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which ends all commands in the same way

    return OutputConsole(width=_WIDE if isWide and not sys.stdout.isatty() else None)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], expand: bool = True) -> Any:
    """Return a table; numbers are right-aligned, also those given as texts, and None is an empty cell.

    :param expand: use the whole width.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    found = [tuple(row) for row in rows]
    first = min(max((len(_cell(row[0])) for row in found), default=0), _FIRST)
    made = Table(box=SIMPLE_HEAD, expand=expand, pad_edge=False)
    isNarrow = get_terminal_size().columns < _NARROW
    for place, heading in enumerate(headings):
        isText = not place or any(isinstance(row[place], str) and not row[place].isdecimal() for row in found)
        made.add_column(
            heading,
            justify="left" if isText else "right",
            no_wrap=not isText and not isNarrow,  # of the columns, rich narrows first those that may wrap
            style="" if place else "bold",
            min_width=None if place else first,
        )
    for row in found:
        made.add_row(*(Text(_cell(value), no_wrap=True, overflow="ellipsis") for value in row))
    return made


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}"
    return "" if value is None else printable(str(value))
