"""A proxy that serves a page and cuts the connections of that page to a broker at random bytes."""

import random
import socket
import struct
import threading
from collections.abc import Callable

#: A closed socket with this option resets its connection.
_RESET = struct.pack("ii", 1, 0)
_END = b"\r\n\r\n"


class CuttingProxy:
    """Serves ``page`` at /page, takes a report posted to /report, and passes all else to the address ``broker``.

    ``opened`` connections were made to the broker, ``cuts`` of them were cut, up to ``most``; ``report`` is the body of
    the report, set when ``reported`` is.

    :param size: returns after how many bytes of answers the next connection is cut.
    """

    def __init__(self, page: bytes, most: int, size: Callable[[], int]) -> None:
        self._page, self._size = page, size
        self.most, self.cuts, self.opened = most, 0, 0
        self.broker = "127.0.0.1", 9  # nobody is there
        self.report = b""
        self.reported = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """The port of the proxy."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                head = _headOf(client)
                if head.startswith(b"GET /page "):
                    client.sendall(_answer(self._page))
                elif head.startswith(b"POST /report "):
                    self._take(client, head)
                elif head.startswith(b"GET /topics/"):
                    self._pass(client, head)
            except OSError:
                pass

    def _take(self, client: socket.socket, head: bytes) -> None:
        before, _, body = head.partition(_END)
        [size] = [int(line[15:]) for line in before.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(body) < size:
            body += client.recv(1 << 16)
        client.sendall(_answer(b""))
        self.report = body
        self.reported.set()

    def _pass(self, client: socket.socket, head: bytes) -> None:
        with socket.create_connection(self.broker) as broker:
            with self._lock:
                self.opened += 1
                left = self._size() if self.cuts < self.most else None
            broker.sendall(head)
            while data := broker.recv(1 << 16):
                if left is not None and len(data) >= left:
                    client.sendall(data[:left])
                    with self._lock:
                        self.cuts += 1
                    if random.random() < 0.5:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    return
                left = None if left is None else left - len(data)
                client.sendall(data)


def _headOf(client: socket.socket) -> bytes:
    head = b""
    while _END not in head:
        read = client.recv(1 << 16)
        if not read:
            raise OSError("the client is gone")
        head += read
    return head


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        len(body),
        body,
    )
