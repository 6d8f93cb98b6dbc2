"""Who may come at all while nobody is authenticated: peers on this machine, unless the operator opens the door.

docs/dialects.rst, "One port". A peer that speaks through a proxy is never local, wherever the proxy stands.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twisted.internet.address import UNIXAddress
from twisted.internet.stdio import PipeAddress

#: What a peer is told that is not served; it names the option that would change it.
REFUSAL = "this broker serves only its own machine unless it is started with --auth or --allow-anonymous"

_PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip"})


@dataclass(frozen=True, slots=True)
class AnonymousAccess:
    """The rule for one listener.

    ``allowAnonymous`` lets everybody in. ``proxied`` says that all peers of the listener stand behind a proxy.
    """

    allowAnonymous: bool = False
    proxied: bool = False

    def refusal(self, address: object) -> str | None:
        """Return the sentence with which to refuse this peer, None if it may come.

        :param address: the transport's ``getPeer()``. An address of an unknown kind counts as remote.
        """
        if self.allowAnonymous or (isLocal(address) and not self.proxied):
            return None
        return REFUSAL

    def behindProxy(self) -> "AnonymousAccess":
        """Return the same rule for peers behind a proxy."""
        return replace(self, proxied=True)


def isLocal(address: object) -> bool:
    """Say whether an address is loopback, a UNIX socket's or a pipe's."""
    host = getattr(address, "host", None)
    if host is None:
        return isinstance(address, UNIXAddress | PipeAddress)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def nameProxy(headers: Iterable[str]) -> bool:
    """Say whether HTTP header names, in lower case, show that a proxy passed the request on."""
    return any(name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in headers)
