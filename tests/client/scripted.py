"""A broker that says what a test tells it to, and nothing else.

::

    def script(peer):
        peer.letIn()
        ping = peer.hear("PING")
        peer.pong(ping)

    with Scripted(script) as url:
        client = connect(url)

The script runs in a thread, on the first connection that comes; what it raises is raised again where the block ends.
All waits have an end.
"""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgpack

from tests.wire.flexi_frames import Heard, cut, frame

#: Seconds that anything may take; they cost nothing while both sides do as they should.
PATIENCE = 300.0
#: The id that clients are given.
ID = 1000


class Peer:
    """The broker's side of one connection."""

    def __init__(self, stream: socket.socket) -> None:
        stream.settimeout(PATIENCE)
        self.stream = stream
        self._file = stream.makefile("rb")

    def next(self) -> Heard:
        """Return the next frame, whatever it is.

        :raises EOFError: the client closed the connection.
        """
        fixed = self._exactly(26)
        header = self._exactly(int.from_bytes(fixed[22:], "big"))
        length = self._exactly(8)
        [heard] = cut(fixed + header + length + self._exactly(int.from_bytes(length, "big")))
        return heard

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def hear(self, kind: str) -> Heard:
        """Return the next frame, which must be of this kind."""
        heard = self.next()
        if heard.kind != kind:
            raise AssertionError(f"heard {heard}, not {kind}")
        return heard

    def say(self, kind: str, sender: int, header: Any = None, *value: Any) -> None:
        """Send a frame; a further argument is the value of its payload."""
        self.stream.sendall(frame(kind, sender, header, *(msgpack.packb(each) for each in value)))

    def letIn(self) -> Heard:
        """Answer a JOIN, and return it; the PING with the interval, which follows, is heard as well."""
        join = self.hear("JOIN")
        self.say("REP", ID, {"status": 200})
        self.hear("PING")
        return join

    def pong(self, ping: Heard) -> None:
        """Answer a PING."""
        self.say("PONG", 1, {"keepalive": {"timestamp": ping.header["keepalive"]["timestamp"]}})

    def passBarrier(self) -> None:
        """Hear a PING and answer it."""
        self.pong(self.hear("PING"))

    def subscribed(self) -> Heard:
        """Do what a broker does when it is asked for a subscription, and return the SUB."""
        self.passBarrier()
        first, sub, second = self.hear("PING"), self.hear("SUB"), self.hear("PING")
        self.pong(first)
        self.pong(second)
        return sub

    def refuse(self, status: int, words: str = "no", path: str = "", id: str | None = None) -> None:
        """Send an error as the broker does."""
        header: dict[str, Any] = {"status": status, "routing": [{"client_id": ID, "path": path}]}
        if id is not None:
            header["reqrep"] = {"type": "correlation", "id": id}
        self.say("REP", 1, header, words)

    def answer(self, request: Heard, value: Any, sender: int | None = None) -> None:
        """Answer a REQ, as who was asked unless told otherwise."""
        target = request.header["routing"][0]["client_id"]
        header = {
            "routing": [{"client_id": ID}],
            "reqrep": {"type": "correlation", "id": request.header["reqrep"]["id"]},
        }
        self.say("REP", target if sender is None else sender, header, value)

    def publish(self, topic: str, value: Any, **header: Any) -> None:
        """Send a delivery."""
        self.say("PUB", 7, {"topic": topic, **header}, value)

    def untilEnd(self) -> list[Heard]:
        """Return all that comes until the client closes the connection."""
        heard = []
        try:
            while True:
                heard.append(self.next())
        except (EOFError, ConnectionError):
            return heard

    def hangUp(self) -> None:
        """Close the connection."""
        self._file.close()
        self.stream.close()


class Scripted:
    """Listens on loopback, on a port that the system chooses; entered, it is the URL."""

    def __init__(self, script: Callable[[Peer], object]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        try:
            stream, _ = self._listener.accept()
            peer = Peer(stream)
            try:
                self._script(peer)
            finally:
                peer.hangUp()
        except BaseException as error:
            self._failure = error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(PATIENCE)
        self._listener.close()
        if self._failure is not None and error is None:
            raise self._failure
        if self._thread.is_alive() and error is None:
            raise AssertionError("the script goes on")


class InThread:
    """Runs a function in a thread of its own; ``result`` waits for what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._call()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise AssertionError("the thread goes on")
        if self._error is not None:
            raise self._error
        return self._outcome
