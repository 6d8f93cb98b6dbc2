"""A transport that also passes the bytes written to it to a tap, while an operator traces the connection."""

from collections.abc import Callable, Sequence
from typing import Any


class _TappedSocket:
    """Sends by the socket, and passes the bytes that the system accepted to ``wrote``."""

    def __init__(self, socket: Any, wrote: Callable[[bytes], None]) -> None:
        self._socket, self._wrote = socket, wrote

    def send(self, chunk: Any) -> int:
        """Send some of these bytes."""
        sent: int = self._socket.send(chunk)
        self._wrote(bytes(chunk[:sent]))
        return sent

    def sendmsg(self, chunks: Sequence[Any]) -> int:
        """Send some of these bytes."""
        sent: int = self._socket.sendmsg(chunks)
        self._wrote(b"".join(chunks)[:sent])
        return sent


class TappedTransport:
    """Behaves as the ``transport``; ``wrote`` gets all bytes that are written from now on."""

    def __init__(self, transport: Any, wrote: Callable[[bytes], None]) -> None:
        self.transport = transport
        self._wrote = wrote

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    @property
    def socket(self) -> _TappedSocket:
        """The socket, tapped."""
        return _TappedSocket(self.transport.socket, self._wrote)

    def write(self, data: bytes) -> None:
        """Write these bytes."""
        self._wrote(data)
        self.transport.write(data)
