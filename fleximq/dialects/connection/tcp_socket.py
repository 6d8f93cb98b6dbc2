"""The TCP socket below a transport, and its options."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.interfaces import ISystemHandle, ITCPTransport
from twisted.protocols.policies import ProtocolWrapper

#: Probes without an answer after which the system ends a connection, and the longest time in milliseconds for which it
#: waits until sent bytes are taken.
_PROBES, _UNTAKEN = 3, 300_000
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


def tcpSocket(transport: Any) -> socket.socket | None:
    """Return the socket of a transport, below TLS too; None if it has none or is not TCP."""
    while isinstance(transport, ProtocolWrapper):
        transport = transport.transport
    if not ITCPTransport.providedBy(transport):
        return None
    handle: Any = ISystemHandle(transport).getHandle()
    isTcp = isinstance(handle, socket.socket) and handle.family in (socket.AF_INET, socket.AF_INET6)
    return handle if isTcp else None


def tuneSocket(found: socket.socket | None) -> None:
    """Set TCP_NODELAY and keep-alive probes on a TCP socket; the connections of a listening one inherit both."""
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def probePeer(transport: Any, seconds: int) -> None:
    """Let the system probe the peer after so many seconds of silence, and close the connection without an answer."""
    found = tcpSocket(transport)
    options = {
        "TCP_KEEPIDLE": seconds, "TCP_KEEPINTVL": seconds, "TCP_KEEPCNT": _PROBES, "TCP_USER_TIMEOUT": _UNTAKEN
    }  # fmt: skip
    if found is None:
        return
    for name, value in options.items():
        with suppress(OSError, AttributeError):  # closed, or not on this platform
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def quickAcks(transport: Any) -> Callable[[], None]:
    """Return a function that requests immediate acknowledgements on a TCP socket; to be called after every read.

    A client with Nagle's algorithm delays a small message until the previous one is acknowledged, which may take 40 ms
    if that one needs no answer. Linux can be asked to acknowledge sooner, but the option resets itself.
    """
    handle = tcpSocket(transport)
    if _QUICK_ACK is None or handle is None:
        return lambda: None
    setOption, option = handle.setsockopt, _QUICK_ACK

    def ask() -> None:
        try:
            setOption(socket.IPPROTO_TCP, option, 1)
        except OSError:
            return  # the socket was closed while processing the read

    return ask
