"""Where a peer comes from, as an operator reads it in the log and in lists of clients."""

from twisted.internet.address import UNIXAddress
from twisted.internet.stdio import PipeAddress


def whence(address: object) -> str:
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
