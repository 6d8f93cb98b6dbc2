"""The names of tables in queries: errors for those that mean no table, or more than one."""

import re
from collections.abc import Callable, Sequence

from fleximq.pipeline.errors import OptionRefused

#: The table of all topics.
ALL = "messages"
#: Maximum number of names in the error for a missing one.
_NAMED = 20
_QUOTES = "a name with a dot or another special character must be in double quotes"
#: A name that needs no quotes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def noTopic(name: str, known: Sequence[str]) -> OptionRefused:
    """Return the error for a topic that is not among the known ones."""
    return OptionRefused(f"there is no topic {name!r}, {_only(known)}")


def noTable(name: str, lake: str, known: Sequence[str]) -> OptionRefused:
    """Return the error for a table that is not among those of a lake."""
    return OptionRefused(f"there is no table {name!r} in {lake}, {_only(known)}")


def _only(known: Sequence[str]) -> str:
    some = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
    special = next((each for each in known if not _PLAIN.fullmatch(each)), None)
    return f"only {some or 'none at all'}" + ("" if special is None else f"; {_QUOTES}: {quoted(special)}")


def unquoted(name: str) -> OptionRefused:
    """Return the error for a table whose name is not quoted, but must be."""
    return OptionRefused(f"{_QUOTES}: {quoted(name)}")


def quoted(name: str) -> str:
    """Return a name in the double quotes of SQL."""
    return '"' + name.replace('"', '""') + '"'


def noTwins(name: str, query: str, isThere: Callable[[str], bool]) -> None:
    """Raise OptionRefused if a query names a second topic that SQL would take for the same."""
    # Listing all topics would need a pass over the whole journal.
    likes = set(re.findall(re.escape(name), query, re.IGNORECASE)) - {name}
    for other in sorted(likes):
        if isThere(other):
            raise OptionRefused(
                f"the topics {name!r} and {other!r} differ in capitals only, which SQL does not tell apart: ask "
                f"{ALL} where topic is the one or the other"
            )


def noColumns(topic: str | None, payloadFormat: str) -> OptionRefused:
    """Return the error for payloads, of a topic or of all, from which no columns can be inferred."""
    where = "any topic" if topic is None else repr(topic)
    return OptionRefused(f"no payload of {where} is {payloadFormat}; --schema can give the columns")
