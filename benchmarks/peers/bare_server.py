"""Copies what publishers send to all subscribers, with blocking sockets and without a look at it.

Usage: ``python bare_server.py PORT``. A connection's first byte says that it publishes, a second one that it listens
instead; each is answered by itself.
"""

import selectors
import socket
import sys

PUBLISHES, LISTENS = b"\x00", b"\xff"
READ_BYTES = 1 << 18


def serve(port: int) -> None:
    """Serve until the process is ended."""
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    selector.register(listener, selectors.EVENT_READ)
    listeners: list[socket.socket] = []
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ)
            else:
                assert isinstance(key.fileobj, socket.socket)
                _copy(key.fileobj, selector, listeners)


def _copy(connection: socket.socket, selector: selectors.BaseSelector, listeners: list[socket.socket]) -> None:
    said = connection.recv(READ_BYTES)
    if said in (PUBLISHES, LISTENS):
        if said == LISTENS:
            listeners.append(connection)
        connection.sendall(said)
    elif said:
        for each in listeners:
            each.sendall(said)
    else:
        selector.unregister(connection)
        if connection in listeners:
            listeners.remove(connection)
        connection.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
