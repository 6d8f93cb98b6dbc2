"""What stands behind ``--listen``: ``[DIALECT+]ENDPOINT`` as a value.

The endpoint is whatever Twisted's ``serverFromString`` takes. It is tried when the value is made, without a reactor
and without binding anything, so that a mistake is one sentence before the broker starts. docs/dialects.rst, "One
port".
"""

import re
from dataclasses import dataclass
from typing import Any

from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint

from fleximq.errors import SettingError

#: What may stand before the ``+``.
DIALECTS = ("fleximq", "blipmq", "minimq", "identity")

_FORM = re.compile(r"(?:([^+:/=]*)\+)?(.*)", re.DOTALL)
_PROXY = "haproxy:"


@dataclass(frozen=True, slots=True)
class Listen:
    """One place to listen on.

    ``dialect`` is the only one served there, None for all of them. ``endpoint`` is a Twisted server endpoint
    string.

    :raises SettingError: for a dialect that does not exist, or an endpoint that Twisted does not understand.
    """

    dialect: str | None
    endpoint: str

    def __post_init__(self) -> None:
        if self.dialect is not None and self.dialect not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise SettingError(f"listen names the dialect {self.dialect!r}, but must name one of {known}, or none")
        if not self.endpoint.strip():
            raise SettingError(f"listen is {str(self)!r}, but must name an endpoint, e.g. tcp:7890")
        if self.socketPath == "":
            raise SettingError(f"listen is {str(self)!r}, but must name the path of a socket, e.g. unix:/run/fleximq")
        # The parsers of endpoints are plug-ins that raise whatever their authors liked.
        try:
            self.open(None)
        except Exception as error:
            reason = " ".join(_reason(self.kind, error).split())
            raise SettingError(f"listen is {str(self)!r}, but {reason}") from error

    @classmethod
    def parse(cls, text: str) -> "Listen":
        """Read ``[DIALECT+]ENDPOINT``.

        :raises SettingError: as the class does.
        """
        found = _FORM.fullmatch(text)
        dialect, endpoint = found.groups() if found else (None, text)
        return cls(dialect, endpoint)

    def __str__(self) -> str:
        return self.endpoint if self.dialect is None else f"{self.dialect}+{self.endpoint}"

    def open(self, reactor: Any) -> IStreamServerEndpoint:
        """Return the endpoint, on which nothing is bound yet. A reactor of None is enough to see whether it could."""
        endpoint: IStreamServerEndpoint = serverFromString(reactor, self.endpoint)
        return endpoint

    @property
    def kind(self) -> str:
        """What stands before the endpoint's arguments: ``tcp``, ``unix``, ``haproxy:tcp`` ..."""
        first, _, rest = self.endpoint.partition(":")
        return f"{first}:{rest.partition(':')[0]}" if self.proxied else first

    @property
    def served(self) -> str:
        """What is served here, in words."""
        return "all dialects" if self.dialect is None else self.dialect

    @property
    def proxied(self) -> bool:
        """Whether the peers stand behind a proxy, so that even a local one speaks for somebody remote."""
        return self.endpoint.lower().startswith(_PROXY)

    @property
    def socketPath(self) -> str | None:
        """The path of the UNIX socket that will be made, None where there is none."""
        rest = self.endpoint
        while rest.lower().startswith(_PROXY):
            rest = rest[len(_PROXY) :]
        kind, _, rest = rest.partition(":")
        if kind != "unix":
            return None
        fields = re.split(r"(?<!\\):", rest)
        named = [each.removeprefix("address=") for each in fields if each.startswith("address=")]
        return re.sub(r"\\(.)", r"\1", (named or fields)[0])


def _reason(kind: str, error: Exception) -> str:
    """Say in words what one of Twisted's endpoint parsers meant."""
    if isinstance(error, TypeError):
        return f"{kind} endpoints take other arguments"
    unknown = re.match(r"Unknown endpoint type: ('.*')", str(error), re.DOTALL)
    if unknown:
        return f"there is no kind of endpoint named {unknown[1]}"
    if isinstance(error, IndexError | KeyError) and kind == "systemd":
        return "systemd passed no such socket"
    number = re.match(r"invalid literal for int.*: (.*)", str(error))
    if number:
        return f"{number[1]} is not a number"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or kind} cannot be read: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return f"it is not a server endpoint of Twisted: {str(error) or type(error).__name__}"
