"""The rules about ``Origin`` and ``Host``: which web pages may use a broker (docs/guides/security.rst, "Web pages").

They prevent a foreign page from using a broker through its reader's browser, which may add credentials by itself.
"""

import ipaddress
import re
from dataclasses import dataclass

from fleximq.security.peer_address import isAddress, isOwnName

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:([^\s/?#@:\[\]\\]+)|\[([0-9a-f:.]+)\])(?::([0-9]{1,5}))?", re.ASCII)
#: Methods and header fields that pages of other origins may send, and fields that they may read, by plain HTTP.
_METHODS = "GET, HEAD, POST, DELETE"
_ALLOWED = (
    "Authorization, Content-Type, Last-Event-ID, FlexiMQ-Message-Id, FlexiMQ-Key, FlexiMQ-Priority, FlexiMQ-Delay, "
    "FlexiMQ-At, FlexiMQ-Expires"
)
_EXPOSED = "Retry-After, WWW-Authenticate"


@dataclass(slots=True)
class Origins:
    """The admitted origins; all fields may change.

    Always admitted: no origin at all (no browser), and the listener's own origin. ``added`` holds further ones as
    ``scheme://host[:port]``, ``null``, or ``*`` for all.

    ``namesTrusted``: whether a request may name the broker by any host name. A broker that serves only this machine
    accepts addresses and names of this machine: a foreign name in the Host header is a sign of DNS rebinding.

    ``strict``: credentials are checked, and browsers may add them for any page. Otherwise ``null``, ``file:`` and pages
    of this machine may open WebSockets too.
    """

    added: frozenset[str] = frozenset()
    namesTrusted: bool = False
    strict: bool = False

    def admit(
        self, origin: str | None, host: str | None, secure: bool = False, changing: bool = False, site: str = "none"
    ) -> bool:
        """Return whether a page of this origin may connect to the listener addressed as ``host``.

        Both are header values, None without the header.

        :param secure: the request was sent inside TLS, so that a page without TLS has another origin.
        :param changing: the request may change something and is no WebSocket: the strict rule applies, without ``*``.
        :param site: ``Sec-Fetch-Site`` of a changing request.
        """
        page = None if origin is None else _place(origin)
        if origin is not None and self._isAdded(origin):
            return True
        if changing:
            if site not in ("same-origin", "none"):
                return False
        elif "*" in self.added or (not self.strict and (origin == "null" or _isOnThisMachine(page))):
            return True
        return origin is None or (page is not None and self._isOwn(page, host, secure))

    def corsFields(self, origin: str | None) -> tuple[str, ...]:
        """Return the header fields of a response by which a page of this origin may read it: one of ``added`` may.

        Pages may not use credentials that the browser has, such as cookies, only those that they send themselves.
        """
        if origin is None or origin == "*" or not self._isAdded(origin):
            return ()
        return (f"Access-Control-Allow-Origin: {origin}", "Vary: Origin", f"Access-Control-Expose-Headers: {_EXPOSED}")

    def preflightFields(self, origin: str | None) -> tuple[str, ...]:
        """Return the header fields that permit a page of this origin to send requests."""
        fields = self.corsFields(origin)
        if not fields:
            return ()
        allowed = f"Access-Control-Allow-Methods: {_METHODS}", f"Access-Control-Allow-Headers: {_ALLOWED}"
        return (*fields[:2], *allowed, "Access-Control-Max-Age: 600")

    def _isAdded(self, origin: str) -> bool:
        page = _place(origin)
        return (origin in self.added and origin != "*") or (page is not None and page in map(_place, self.added))

    def admitHost(self, host: str | None) -> bool:
        """Return whether a request may name the broker so; None without the header, which all browsers send."""
        if host is None or self.namesTrusted:
            return True
        place = _place(f"http://{host}")
        if place is None:
            return False
        name = place[1]
        return isAddress(name) or isOwnName(name) or name in {each[1] for each in map(_place, self.added) if each}

    def _isOwn(self, page: tuple[str, str, int | None], host: str | None, secure: bool) -> bool:
        scheme, name, _ = page
        return (
            scheme in (("https",) if secure else ("http", "https"))
            and host is not None
            and self.admitHost(host)
            and _place(f"{scheme}://{host}") == page
        )


def _place(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host name and port of an origin; None if it is malformed.

    Python's ``urlsplit`` finds the host ``::1`` in ``[::1]evil.example`` and ignores tabs, so it is not used here.
    """
    url = url.lower()
    if url.startswith("file:"):
        return "file", "", None
    found = _ORIGIN.fullmatch(url)
    if found is None:
        return None
    scheme, name, address, port = found.groups("")
    if (address and not (":" in address and isAddress(address))) or int(port or 0) > 0xFFFF:
        return None
    return scheme, name or address, int(port or 0) or _PORTS.get(scheme)


def _isOnThisMachine(page: tuple[str, str, int | None] | None) -> bool:
    if page is None:
        return False
    scheme, name, _ = page
    return scheme == "file" or isOwnName(name) or (isAddress(name) and ipaddress.ip_address(name).is_loopback)
