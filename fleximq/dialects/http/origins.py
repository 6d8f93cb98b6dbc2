"""The ``Origin`` rule: which web pages may open a WebSocket (docs/dialects.rst, "Identity").

Browsers send a page's origin with every WebSocket request. The rule prevents a foreign web page from using a broker on
its reader's own machine.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleximq.security.peer_address import isAddress, isOwnName

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(slots=True)
class Origins:
    """The admitted origins; both fields may change.

    Always admitted: no origin at all (no browser), ``null`` and ``file:`` (a local file), pages of this machine, and
    the listener's own origin. ``added`` holds further ones as ``scheme://host[:port]``, or ``*`` for all.

    ``namesTrusted``: whether the listener's own origin may be a host name. A broker that serves only this machine
    accepts addresses only: a foreign name in the Host header is a sign of DNS rebinding.
    """

    added: frozenset[str] = frozenset()
    namesTrusted: bool = False

    def admit(self, origin: str | None, host: str | None) -> bool:
        """Return whether a page of this origin may connect to the listener addressed as ``host``.

        Both are header values, None without the header.
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
    """Return scheme, host name and port of an origin; None if it is malformed."""
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
