r"""Parses server endpoint strings as Twisted does: a kind, then positional and named arguments.

Fields are separated by colons, a name from its value by ``=``, and a backslash escapes the next character. Endpoints
within endpoints (``haproxy:tcp:7890``, ``fleximqtls:cert=FILE:inner=tcp\:7890``) are layers.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

#: The kind of a listener for a proxy, and ours that adds TLS to another.
PROXY, TLS = "haproxy", "fleximqtls"
#: The arguments of ours that name files.
FILES = ("cert", "key", "clientCA", "crl")
#: The argument with the endpoint to which TLS is added.
INNER = "inner"
#: Connections that may wait to be accepted. Beyond Twisted's 50, a UNIX socket refuses and TCP delays for a second.
BACKLOG = 1024


class EndpointString(NamedTuple):
    """The parts of one; ``kind`` is as written, and ``text`` the full string."""

    text: str
    kind: str
    arguments: tuple[str, ...]
    named: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "EndpointString":
        """Split a text into its parts. Never fails: the kind may be unknown."""
        fields = _fields(text)
        kind, *arguments = [field[0] for field in fields if len(field) == 1] or [""]
        return cls(text, kind, tuple(arguments), {field[0]: field[1] for field in fields if len(field) == 2})

    @property
    def inner(self) -> str | None:
        """The endpoint within this one, None if this kind has none."""
        kind = self.kind.lower()
        if kind == PROXY:
            return self.text.partition(":")[2]
        return self.named.get(INNER, "") if kind == TLS else None


def layersOf(text: str) -> Iterator[EndpointString]:
    """Yield an endpoint string and those within it, the outermost first."""
    inner: str | None = text
    while inner is not None:
        parsed = EndpointString.parse(inner)
        yield parsed
        inner = parsed.inner


def withBacklog(text: str) -> str:
    """Return an endpoint of Twisted's own, also inside ``haproxy:``, with our backlog unless it may set another."""
    parsed = EndpointString.parse(text)
    if parsed.kind.lower() == PROXY:
        before, colon, inner = text.partition(":")
        return before + colon + withBacklog(inner)
    silent = len(parsed.arguments) < 2 and "backlog" not in parsed.named
    if parsed.kind not in ("tcp", "unix", "ssl") or not silent or text.endswith("\\"):
        return text
    return f"{text}:backlog={BACKLOG}"


def _fields(text: str) -> list[list[str]]:
    fields = [[""]]
    characters = iter(text)
    for character in characters:
        if character == "\\":
            fields[-1][-1] += next(characters, "")
        elif character == ":":
            fields.append([""])
        elif character == "=" and len(fields[-1]) == 1:
            fields[-1].append("")
        else:
            fields[-1][-1] += character
    return fields
