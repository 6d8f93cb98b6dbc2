"""``python docs/write_tables.py`` writes what pages say of options and metrics, from the tables of the program.

These are docs/fleximq.toml, the example of a settings file, and the tables of pages between ``.. table: NAME`` and
``.. end``: ``options GROUP`` for the options of a group of the help text, ``metrics``, and ``api``.
"""

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from fleximq.cli.check_config import tomlValue  # noqa: E402
from fleximq.config.option_help import default, words  # noqa: E402
from fleximq.config.option_table import Option, grouped  # noqa: E402
from fleximq.config.option_values import flag  # noqa: E402
from fleximq.rights import Action  # noqa: E402
from fleximq.web.api.api import apiTable  # noqa: E402
from fleximq.web.metric_table import METRICS  # noqa: E402

_WIDTH = 120
_EXAMPLE_WIDTH = 88
_HEAD = """\
# Settings of a FlexiMQ broker, with their defaults. Lines that are commented out are examples.
# twistd -n fleximq --config fleximq.toml
"""
#: The settings that are tables.
_TABLES = """\
# The permissions of roles and principals. Without such a table every client may do
# everything; with one, nothing else is permitted.
# [roles.authenticated]
# subscribe = ["news.#", "inbox.{principal}.#"]
# [principals.operator]
# subscribe = ["#", "$sys/#", "$dead/#"]
# read = true
# admin = true

# Queues with definitions of their own, which clients cannot change.
# [queues.mails]
# sources = ["orders.*.paid", "accounts.#"]
# max_attempts = 5
# retry = {first = 10, most = 3600}

# Messages that are published again and again, every so many seconds or at the times of
# a cron expression (with the package cronsim).
# [schedules.report]
# topic = "reports.daily"
# cron = "30 6 * * MON-FRI"
# timezone = "Europe/Berlin"
# payload = {kind = "daily"}
# catch-up = "last"

# Extensions are plug-ins of other packages; each has a table with its own options,
# which may be empty.
# [extension.audit_trail]
# path = "/var/log/fleximq/audit.jsonl"
# rotate = "16MiB"
# keep = 8
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file that is generated or has generated tables, and the text that it must have."""
    yield DOCS / "fleximq.toml", settingsFile()
    for page in ("operating", "monitoring"):
        path = DOCS / "guides" / f"{page}.rst"
        yield path, re.sub(r"(?ms)^(\.\. table: ([\w ]+)\n\n).*?(^\.\. end$)", _written, path.read_text())


def settingsFile() -> str:
    """Return the example of a settings file."""
    parts = [_HEAD]
    for group, options in grouped().items():
        parts.append(f"# {f' {group} ':-^{_EXAMPLE_WIDTH - 2}}\n")
        for option in options:
            if option.name != "extension":
                comment = textwrap.wrap(option.words, _EXAMPLE_WIDTH - 2, break_on_hyphens=False)
                parts.append("".join(f"# {line}\n" for line in comment) + _setting(option))
    return "\n".join([*parts, _TABLES])


def _setting(option: Option) -> str:
    usual = default(option)
    if option.example:
        return f"# {option.name} = {option.example}" + (f"  # default: {usual}\n" if usual else "\n")
    value = "false" if option.read is flag else usual if re.fullmatch(r"[\d.]+", usual) else tomlValue(usual)
    return f"{option.name} = {value}\n"


def _written(place: re.Match[str]) -> str:
    name, _, group = place[2].partition(" ")
    tables = {"metrics": _metrics, "api": _api, "options": lambda: _options(grouped()[group])}
    table = tables[name]()
    return f"{place[1]}{table}\n{place[3]}"


def _options(options: Sequence[Option]) -> str:
    """Return a table with the value, text and default of each option."""
    rows = []
    for each in options:
        usual = default(each)
        text = " ".join(filter(None, (words(each), each.more, usual and f"Default: {usual}.")))
        rows.append((f"``--{f'{each.name} {each.value}'.rstrip()}``", text))
    return _table(rows)


def _api() -> str:
    rows = []
    for path, page in sorted(apiTable().items(), key=lambda row: (row[1].post, row[0])):
        names = ", ".join(f"``{each.name}``" for each in page.arguments)
        forAdmins = " For admins." if page.action is Action.ADMIN and not page.post else ""
        words = f"{page.words}{forAdmins}{f' ({names})' if names else ''}"
        rows.append((f"``{page.methods[0]} {path}``", words))
    return _table(rows)


def _metrics() -> str:
    rows = []
    for each in METRICS:
        labels = "{" + ",".join(each.labels) + "}" if each.labels else ""
        rows.append((f"``{each.spelt}{labels}``", each.kind.value, each.words))
    return _table(rows, ("Metric{labels}", "Kind", "Meaning"))


def _table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Return a simple table of reStructuredText, whose last column is wrapped."""
    widths = [max(len(row[column]) for row in (*rows, *filter(None, [head]))) for column in range(len(rows[0]) - 1)]
    last = _WIDTH - sum(widths) - 2 * len(widths)
    line = "  ".join("=" * width for width in (*widths, last))
    lines = [line]
    if head:
        lines += [_row(widths, *head), line]
    for *cells, text in rows:
        first, *others = textwrap.wrap(text, last, break_long_words=False, break_on_hyphens=False)
        lines.append(_row(widths, *cells, first))
        lines += [_row(widths, *[""] * len(cells), each) for each in others]
    return "\n".join([*lines, line, ""])


def _row(widths: Sequence[int], *cells: str) -> str:
    *start, last = cells
    return "  ".join([*(f"{cell:<{width}}" for cell, width in zip(start, widths, strict=True)), last])


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text)
