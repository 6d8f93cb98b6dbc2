"""The address of a peer: as text for logs, as key for counters, and checks for loopback names."""

from collections.abc import Hashable
from functools import lru_cache
from ipaddress import IPv6Address

from twisted.internet.address import UNIXAddress
from twisted.internet.stdio import PipeAddress

from fleximq.security.anonymous_access import ipOf


def isAddress(name: str) -> bool:
    """Return whether this is an IP address rather than a name to resolve."""
    return ipOf(name) is not None


def isOwnName(name: str) -> bool:
    """Return whether a name, in lower case, always means this machine (RFC 6761, 6.3)."""
    return name == "localhost" or name.endswith(".localhost")


def addressKey(address: object) -> Hashable | None:
    """Return the key by which a peer is counted: its address, of IPv6 the first 64 bits; None for local peers."""
    host = getattr(address, "host", None)
    return None if host is None else _hostKey(host)


@lru_cache(maxsize=1024)
def _hostKey(host: str) -> Hashable | None:
    ip = ipOf(host)
    if ip is None:
        return str(host)
    return None if ip.is_loopback else int(ip) >> 64 if isinstance(ip, IPv6Address) else ip


def clientKey(principal: str | None, address: object) -> Hashable | None:
    """Return the key by which a client is counted: its principal or address; None for local anonymous clients."""
    return addressKey(address) if principal is None else ("as", principal)


def peerAddress(address: object) -> str:
    """Return a peer's address as text: ``127.0.0.1:50000``, ``[::1]:50000``, ``unix``, ``stdio``, or its ``str``.

    A peer that has bound its own end of a UNIX socket has a path after ``unix:``; unprintable characters are escaped.
    """
    host = getattr(address, "host", None)
    if host is not None:
        words = f"[{host}]:{getattr(address, 'port', '')}" if ":" in host else f"{host}:{getattr(address, 'port', '')}"
    elif isinstance(address, UNIXAddress):
        words = f"unix:{address.name.decode(errors='replace')}" if address.name else "unix"
    else:
        words = "stdio" if isinstance(address, PipeAddress) else str(address)
    if words.isprintable():
        return words
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in words)
