"""Something between the pipeline and a broker that speaks TLS and can be cut, as a proxy does.

::

    with Relay(broker.port(), context) as relay:
        BrokerAddress(f"tls://localhost:{relay.port}", ...)
"""

import contextlib
import socket
import ssl
import threading
from types import TracebackType


class Relay:
    """Listens on loopback, on a port that the system chooses, and hands all it gets to another port and back.

    ``port`` is where it listens, ``target`` where it hands to; that may be changed for connections that come later.
    ``certificates`` has the client's certificate of each connection, None where none was shown.

    :param context: how to speak TLS to those who come; None: not at all.
    :param after: cut the first connection that has brought so many bytes to the client; None: none.
    :param forGood: after that, no connection reaches the target any more.
    """

    def __init__(
        self, target: int, context: ssl.SSLContext | None = None, after: int | None = None, forGood: bool = False
    ) -> None:
        self.target = target
        self.certificates: list[object] = []
        self.cuts = 0
        self._context = context
        self._after = after
        self._forGood = forGood
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def __enter__(self) -> "Relay":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections that there are."""
        ended, self._open = self._open, []
        for stream in ended:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(stream,), daemon=True).start()

    def _relay(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            stream = plain
            if self._context is not None:
                stream = self._context.wrap_socket(plain, server_side=True)
                self.certificates.append(stream.getpeercert())
            with stream, socket.create_connection(("127.0.0.1", self.target), 10) as broker:
                broker.settimeout(None)
                self._open += [stream, broker]
                back = threading.Thread(target=self._copy, args=(broker, stream, True), daemon=True)
                back.start()
                self._copy(stream, broker, False)
                back.join(300)

    def _copy(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                if back and self._after is not None:
                    self._after -= len(data)
                    if self._after < 0:
                        self._after = None
                        self.cuts += 1
                        # Nobody can listen on port 0.
                        self.target = 0 if self._forGood else self.target
                        break
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
