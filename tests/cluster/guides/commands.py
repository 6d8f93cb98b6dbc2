"""The commands of a page for the reader's machines, in their order.

A comment before a block says where to run it: ``.. on: WHERE``, or ``.. on: WHERE, NAME`` for one that later
``.. again: NAME on WHERE`` runs once more. In a block of the kind ``console`` the lines after ``$`` are commands, all
others what they print.
"""

import re
import subprocess
import textwrap
from typing import NamedTuple

_STEP = re.compile(
    r"^\.\. on: (?P<where>[\w-]+)(?:, (?P<name>\w+))?\n\.\. code-block:: (?P<kind>\w+)\n\n(?P<code>(?:    .*\n|\n)+)"
    r"|^\.\. again: (?P<again>\w+) on (?P<there>[\w-]+)\n",
    re.MULTILINE,
)
_NUMBERS = re.compile(r"\b(messages|to|term) \d[\d,]*|\b\d[\d,.]* (bytes|seconds|s)\b|(?<![\d.])\d\.\d(?![\d.])")

#: The number of a machine.
_NUMBER = re.compile(r"(east-|10\.0\.0\.)([0-9])\b")
_OWNER = re.compile("shard 0 is owned by east-([0-9])")


class Step(NamedTuple):
    """Lines for a machine; ``printed`` is None if the page does not say what they print."""

    where: str
    command: str
    printed: str | None = None


def steps(page: str, part: str | None = None) -> list[Step]:
    """Return the steps of a page, or of a part of it."""
    named = {each["name"]: textwrap.dedent(each["code"]) for each in _STEP.finditer(page) if each["name"]}
    found: list[Step] = []
    for each in _STEP.finditer(page if part is None else part):
        if each["again"]:
            found.append(Step(each["there"], named[each["again"]]))
        elif each["kind"] == "console":
            parts = re.split(r"^\$ (.*\n)", textwrap.dedent(each["code"]), flags=re.MULTILINE)
            found += [Step(each["where"], *pair) for pair in zip(parts[1::2], parts[2::2], strict=True)]
        else:
            found.append(Step(each["where"], textwrap.dedent(each["code"])))
    return found


def commands(code: str) -> list[str]:
    """Return the commands of some lines; a loop ends at its first command that fails."""
    found: list[str] = []
    command = ""
    for line in code.splitlines(keepends=True):
        command += line
        if command.strip() and not command.endswith("\\\n") and _isWhole(command):
            found.append(f"(set -e\n{command})" if command.startswith("for ") else command)
            command = ""
    return found


def _isWhole(command: str) -> bool:
    return not subprocess.run(["sh", "-n"], input=command, text=True, capture_output=True).returncode


def unmarked(text: str) -> list[str]:
    """Return the first lines of blocks of a shell that no step has."""
    blocks = re.findall(r"(?:::|\.\. code-block:: (?:sh|console))\n\n(    .*)\n", _STEP.sub("", text))
    return [each.strip() for each in blocks]


def section(text: str, heading: str) -> str:
    """Return a section of a page, without its heading."""
    _, _, found = text.partition(f"\n{heading}\n")
    return re.split(r"^.+\n----", found.lstrip("-"), maxsplit=1, flags=re.MULTILINE)[0]


def isSame(printed: str, wanted: str) -> bool:
    """Whether a command has printed what the page says; any of the machines may own the shard."""
    owner, other = (_OWNER.search(text) for text in (printed, wanted))
    if owner and other and owner[1] != other[1]:
        swapped = {owner[1]: other[1], other[1]: owner[1]}
        printed = re.sub(
            r"(east-|10\.0\.0\.)([0-9])\b", lambda found: found[1] + swapped.get(found[2], found[2]), printed
        )
    return sorted(shape(printed)) == sorted(shape(wanted))


def shape(printed: str) -> list[str]:
    """Return lines without numbers of messages, bytes, seconds and terms, and without the widths of columns."""
    printed = _NUMBERS.sub(r"\1 N \2", printed)
    lines = (re.sub(r"─+", "─", " ".join(line.split())) for line in printed.splitlines())
    return [line for line in lines if line]
