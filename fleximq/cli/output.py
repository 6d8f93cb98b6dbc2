"""Output of all commands: control characters that came from clients do not reach a terminal."""

import sys
from argparse import ArgumentParser, Namespace

from fleximq.values.printable import jsonLine, printable


def addRawOption(parser: ArgumentParser) -> None:
    """Add the option for output without escapes."""
    parser.add_argument("--raw", action="store_true", help="write control characters to a terminal, too")


def addJsonOption(parser: ArgumentParser, words: str = "one JSON object per line") -> None:
    """Add the option for results as JSON on standard output, one object per line."""
    parser.add_argument("--json", action="store_true", help=words)


def tell(arguments: Namespace, sentence: str, **fields: object) -> None:
    """Write a result: a sentence, or with ``--json`` these fields."""
    print(jsonLine(fields) if arguments.json else printable(sentence, lines=True), flush=True)


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
