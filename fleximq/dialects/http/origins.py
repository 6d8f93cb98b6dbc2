"""Which web pages may open a WebSocket: the rule about the ``Origin`` header.

docs/dialects.rst, "Identity". A browser sends a page's origin with every WebSocket it opens, so this is what keeps
a page somewhere on the web from talking to a broker on its reader's own machine.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleximq.security.peer_address import isAddress, isOwnName

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(slots=True)
class Origins:
    """The origins that are admitted; both fields may be changed.

    Always: no origin at all (no browser), ``null`` and ``file:`` (a page opened from a file), pages of this machine,
    and the listener's own. ``added`` holds further ones as ``scheme://host[:port]``, or ``*`` for all.

    ``namesTrusted``: whether the listener's own may go by a name. Where only this machine is served, a foreign name
    in the Host header is one that was bent to point here (DNS rebinding), so only an address is believed.
    """

    added: frozenset[str] = frozenset()
    namesTrusted: bool = False

    def admit(self, origin: str | None, host: str | None) -> bool:
        """Say whether a page of this origin may connect to the listener that was addressed as ``host``.

        Both are the values of their headers, None where there is none.
        """
        if origin is None or origin == "null" or "*" in self.added:
            return True
        page = _place(origin)
        if page is None:
            return False
        scheme, name, _ = page
        if scheme == "file" or _isLoopback(name):
            return True
        return self._isOwn(page, host) or page in {_place(each) for each in self.added}

    def _isOwn(self, page: tuple[str, str, int | None], host: str | None) -> bool:
        scheme, name, _ = page
        return (self.namesTrusted or isAddress(name)) and host is not None and _place(f"{scheme}://{host}") == page


def _place(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host name and port of an origin; None if it is none."""
    try:
        parts = urlsplit(url.lower())
        port = parts.port
    except ValueError:
        return None
    name = parts.hostname or ""
    if not parts.scheme or parts.path or parts.query or parts.fragment or parts.username is not None:
        return ("file", "", None) if parts.scheme == "file" else None
    if not name and parts.scheme != "file":
        return None
    return parts.scheme, name, port or _PORTS.get(parts.scheme)


def _isLoopback(name: str) -> bool:
    return isOwnName(name) or (isAddress(name) and ipaddress.ip_address(name).is_loopback)
