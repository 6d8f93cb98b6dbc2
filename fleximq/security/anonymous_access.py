"""Restricts access until authentication is configured: only local clients may connect, unless the operator allows all.

docs/reference/dialects.rst, "One port for all". A peer that connects through a proxy is never local, even if the proxy
is.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from twisted.internet.address import UNIXAddress
from twisted.internet.stdio import PipeAddress

#: The answer to a refused peer; it names the options that would admit it.
REFUSAL = "this broker serves only its own machine unless it is started with --auth or --allow-anonymous"

_PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip"})


def isLocal(address: object) -> bool:
    """Return whether an address is loopback, a UNIX socket's or a pipe's."""
    host = getattr(address, "host", None)
    if host is None:
        return isinstance(address, UNIXAddress | PipeAddress)
    return _isLoopback(host)


@lru_cache(maxsize=1024)
def _isLoopback(host: str) -> bool:
    ip = ipOf(host)
    return ip is not None and ip.is_loopback


@lru_cache(maxsize=1024)
def ipOf(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address, that of IPv4 for one mapped into IPv6; None for a name to resolve."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None) or ip


def nameProxy(headers: Iterable[str]) -> bool:
    """Return whether HTTP header names, in lower case, show that a proxy forwarded the request."""
    return any(name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in headers)
