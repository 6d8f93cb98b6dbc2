"""Output of all commands: control characters from clients do not reach a terminal."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import Any

from fleximq.cli.command import Argument, switch
from fleximq.values.printable import jsonLine, printable

RAW = switch("--raw", "write control characters to a terminal, too")  #: The option for control characters.
_FIRST = 12  #: Minimum characters of the first column of a table in a narrow terminal, if its texts have as many.
_NARROW = 80  #: In a terminal with fewer columns numbers are cut as well, to leave columns for the texts.
_WIDE = 10_000  #: The width without a terminal: no text is cut.


def jsonOption(words: str = "one JSON object per line") -> Argument:
    """Return the option for results as JSON on standard output."""
    return switch("--json", words)


def tell(arguments: Namespace, sentence: str, **fields: object) -> None:
    """Write a result: a sentence, or with ``--json`` these fields."""
    print(jsonLine(fields) if arguments.json else printable(sentence, lines=True), flush=True)


def show(arguments: Namespace, line: str, fields: Mapping[str, Any], lines: bool = False) -> None:
    """Write a result as :func:`out` does: a line, or with ``--json`` these fields."""
    if arguments.json:
        outJson(fields)
    else:
        out(f"{line}\n".encode(), getattr(arguments, "raw", False), lines)


def out(data: bytes, raw: bool = False, lines: bool = True) -> None:
    """Write to standard output and flush, since the reader may wait for it.

    On a terminal control characters are escaped, unless ``raw``; ``lines``: except line ends and tabs.
    """
    if not raw and sys.stdout.isatty():
        text = data.decode("utf-8", "backslashreplace")
        end = "\n" if text.endswith("\n") else ""
        data = (printable(text.removesuffix("\n"), lines) + end).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def outJson(value: object) -> None:
    """Write a value as one line of JSON, always without control characters."""
    out(jsonLine(value).encode() + b"\n", raw=True)


def say(sentence: str) -> None:
    """Print a message that is not a result, to standard error; control characters are escaped."""
    print(printable(sentence, lines=True), file=sys.stderr, flush=True)


def console(isWide: bool = True) -> Any:
    """Return a console for standard output; a wide one is never cut without a terminal."""
    from rich.console import Console

    class OutputConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which ends all commands in the same way

    return OutputConsole(width=_WIDE if isWide and not sys.stdout.isatty() else None)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], expand: bool = True) -> Any:
    """Return a table (``expand``: of full width); numbers are right-aligned and cut last, and None is an empty cell."""
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
