"""What peers are counted by that have shown no credentials: where they come from."""

import ipaddress
from collections.abc import Hashable

from fleximq.security.anonymous_access import isLocal


def placeOf(address: object) -> Hashable | None:
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


def peerOf(principal: str | None, address: object) -> Hashable | None:
    """Return what a client is counted by: the principal that it is, else its place, None if it has neither."""
    return placeOf(address) if principal is None else ("as", principal)
