"""The URLs of the FlexiMQ document, section 6.2, parsed: ``tcp://``, ``ipc://``, ``ws://``, ``wss://``, ``stdio://``.

``tls://`` is our addition: ``tcp://`` inside TLS. No Twisted here: the client library parses the same URLs.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleximq.errors import SettingError

#: The ports that a URL of this scheme may leave out.
USUAL_PORTS = {"ws": 80, "wss": 443}

_WITH_HOST = frozenset({"tcp", "tls", "ws", "wss"})
_SCHEMES = _WITH_HOST | {"ipc", "stdio"}
_PORT = re.compile(r"^[0-9]{1,5}$")
_BEFORE_URL = re.compile(rf",\s*(?=(?:{'|'.join(sorted(_SCHEMES))})://)", re.IGNORECASE)
_PLACE = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+(?:%[\w.-]+)?)\]|(?P<name>\*|[^\s\[\]/:@?#*]*))(?::(?P<port>[0-9]{1,9}))?(?P<path>/\S*)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Url:
    """One URL.

    ``host`` is a name or an address without brackets, "" for every address of the machine. ``path`` is that of a
    WebSocket, from its slash on and with its query, or of an ``ipc://`` socket as written; "" if there is none.

    :raises SettingError: a part is missing, out of range, or not permitted by its scheme.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __post_init__(self) -> None:
        if self.scheme not in _SCHEMES:
            raise SettingError(f"there is no URL scheme {self.scheme!r}, only {', '.join(sorted(_SCHEMES))}")
        if not 0 <= self.port <= 0xFFFF:
            raise SettingError(f"the port must be at most 65535, not {self.port}")
        if self.scheme in ("tcp", "tls", "stdio") and self.path:
            raise SettingError(f"a {self.scheme}:// URL has no path")
        if self.scheme == "ipc" and (not self.path or self.path.endswith("/") or "\0" in self.path):
            raise SettingError("an ipc:// URL must name the path of a socket, e.g. ipc:///run/fleximq.sock")
        if "#" in self.path and self.scheme != "ipc":
            raise SettingError("the URL has a fragment, which is for browsers only")

    @classmethod
    def parse(cls, text: str) -> "Url":
        """Parse a URL with the scheme in any case; raises SettingError, also for text that is not a URL."""
        scheme, separator, rest = text.partition("://")
        scheme = scheme.lower()
        if not separator:
            raise SettingError(f"{text!r} has no scheme before a ://; a URL is like tcp://localhost:7890")
        if scheme not in _WITH_HOST:
            return cls(scheme, path=rest)
        found = _PLACE.fullmatch(rest)
        if found is None:
            raise SettingError(f"the URL must be like {scheme}://HOST:PORT")
        port = found["port"] or USUAL_PORTS.get(scheme)
        if port is None:
            raise SettingError(f"the URL must name a port, e.g. {scheme}://localhost:7890")
        path = found["path"] or ""
        host = found["six"] or found["name"]
        return cls(scheme, "" if host == "*" else host, int(port), "" if path == "/" else path)

    def __str__(self) -> str:
        if self.scheme not in _WITH_HOST:
            return f"{self.scheme}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host or "*"
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def withoutQuery(self) -> str:
        """The text of the URL without the query of a WebSocket, which may contain credentials."""
        return str(self).partition("?")[0] if self.isWebSocket else str(self)

    @property
    def isWebSocket(self) -> bool:
        """Whether the protocol is WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def isSecure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme in ("tls", "wss")

    def socketPath(self, folder: str) -> str:
        """Return the path of an ``ipc://`` socket (document 6.3.1); ``folder`` is the base of relative ones."""
        return os.path.join(folder, self.path)


def addressesOf(urls: str | Sequence[str]) -> tuple[Url, ...]:
    """Return the addresses of one broker, or of the nodes of a cluster: ``tcp://a:7890,b:7890``, or several URLs.

    ``HOST:PORT`` alone is a ``tcp://`` URL, and ``PORT`` that of this machine. The path of a URL follows its last
    address.

    :raises SettingError: as :class:`Url` does, and if schemes differ or an address is empty.
    """
    texts = (_PORT.sub(r"localhost:\g<0>", each) for each in ((urls,) if isinstance(urls, str) else urls))
    texts = (each if ":/" in each else f"tcp://{each}" for each in texts)
    found = tuple(each for text in texts for url in urlsIn(text) for each in _split(url))
    schemes = sorted({each.scheme for each in found})
    if len(schemes) != 1:
        raise SettingError(f"the URLs of one broker must have the same scheme, not {' and '.join(schemes) or 'none'}")
    return found


def urlsIn(text: str) -> list[str]:
    """Return the URLs of a text in which commas separate them; each may have several addresses."""
    return [each.strip() for each in _BEFORE_URL.split(text)]


def _split(text: str) -> tuple[Url, ...]:
    scheme, separator, rest = text.partition("://")
    place, slash, path = rest.partition("/")
    if scheme.lower() not in _WITH_HOST or "," not in rest.partition("?")[0]:
        return (Url.parse(text),)
    if "," in path.partition("?")[0]:
        raise SettingError(f"several addresses are like {scheme}://HOST:PORT,HOST:PORT, with one path at the end")
    if not all(place.split(",")):
        raise SettingError(f"an address before or after a comma is empty in {scheme}://{place}")
    return tuple(Url.parse(f"{scheme}://{each.strip()}{slash}{path}") for each in place.split(","))


def isUrl(text: str) -> bool:
    """Return whether the text begins with one of the schemes, so that it is meant as a URL."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in _SCHEMES
