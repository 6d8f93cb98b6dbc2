"""A network that delays, cuts and splits, between a client and a broker on loopback.

::

    with BadNetwork(broker.address) as network:
        client = connect(network.url)
        network.cut()
"""

import random
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

_READ_BYTES = 65_536


class BadNetwork:
    """Forwards connections to ``target``, which may be changed.

    ``split``: the most bytes to forward at once. ``delay``: seconds before each piece. ``isDown``: new connections are
    closed at once. ``isSilent``: what comes is swallowed. ``cutAfter``: each connection is cut when it has brought so
    many bytes in one direction; the next one brings a tenth more, so that a client whose JOIN is longer joins at last.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.split = _READ_BYTES
        self.delay = 0.0
        self.isDown = self.isSilent = False
        self.cutAfter: int | None = None
        #: How many connections there were.
        self.made = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where a client finds it."""
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Its port on loopback."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> "BadNetwork":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections there are."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.isDown:
                near.close()
                continue
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.made += 1
                left = self.cutAfter
                if left is not None:
                    self.cutAfter = left + left // 10
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(one, other, left), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket, left: int | None) -> None:
        with suppress(OSError):
            while data := one.recv(_READ_BYTES):
                while data and not self.isSilent:
                    piece = data[: random.randint(1, self.split) if self.split < _READ_BYTES else None]
                    data = data[len(piece) :]
                    if self.delay:
                        time.sleep(self.delay)
                    if left is not None:
                        piece, left = piece[:left], left - len(piece)
                    other.sendall(piece)
                    if left is not None and left <= 0:
                        raise OSError
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
