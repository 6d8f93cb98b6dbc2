"""Where a peer comes from, as an operator reads it in the log and in lists of clients.

What peers are counted by that have shown no credentials: where they come from.

Which names of hosts need no trust, for nobody can bend them to another place: addresses, and this machine's own.
"""

import ipaddress
from collections.abc import Hashable

from twisted.internet.address import UNIXAddress
from twisted.internet.stdio import PipeAddress

from fleximq.security.anonymous_access import isLocal


def isAddress(name: str) -> bool:
    """Say whether this is an IP address, and not a name that somebody resolves."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def isOwnName(name: str) -> bool:
    """Say whether a name, in lower case, always means this machine (RFC 6761, 6.3)."""
    return name == "localhost" or name.endswith(".localhost")


def addressKey(address: object) -> Hashable | None:
    """Return what a peer is counted by: its address, of IPv6 the first 64 bits; None for this machine's own.

    Behind a local proxy that does not say for whom it speaks, everybody has the address of this machine.
    """
    host = getattr(address, "host", None)
    if host is None or isLocal(address):
        return None
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if isinstance(ip, ipaddress.IPv6Address):
        return ip.ipv4_mapped or int(ip) >> 64
    return ip


def clientKey(principal: str | None, address: object) -> Hashable | None:
    """Return what a client is counted by: the principal that it is, else its place, None if it has neither."""
    return addressKey(address) if principal is None else ("as", principal)


def peerAddress(address: object) -> str:
    """Return a peer's address in few words: ``127.0.0.1:50000``, ``[::1]:50000``, ``unix``, ``stdio``.

    A UNIX socket has a path behind ``unix:`` only if the peer bound its own end. Addresses of other kinds speak for
    themselves.
    """
    host = getattr(address, "host", None)
    if host is not None:
        return f"[{host}]:{getattr(address, 'port', '')}" if ":" in host else f"{host}:{getattr(address, 'port', '')}"
    if isinstance(address, UNIXAddress):
        return f"unix:{address.name.decode(errors='replace')}" if address.name else "unix"
    return "stdio" if isinstance(address, PipeAddress) else str(address)
