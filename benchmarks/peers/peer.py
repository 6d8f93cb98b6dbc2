"""What the benchmark has to know of a broker and its protocol.

A peer is made for one scene, started, used and stopped. Its methods that return bytes are pure; those that take a
:class:`benchmarks.peers.line.Line` hold a small conversation on it, before the clock starts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from benchmarks.peers.line import Line
from benchmarks.peers.program import Program, freePort

Who = int | bytes | None


class Exchange(NamedTuple):
    """A request and reply in bytes, for one pair of connections.

    ``requests`` are what the requester sends, one at a time. Each arrives with ``requestSize`` bytes, and at
    ``idInRequest`` has what tells it from others; the responder sends ``replyBefore``, that, and ``replyAfter``. The
    requester gets ``replySize`` bytes, with the same at ``idInReply``.
    """

    requests: Sequence[bytes]
    requestSize: int
    idInRequest: slice
    replyBefore: bytes
    replyAfter: bytes
    replySize: int
    idInReply: slice


class Peer(ABC):
    """One broker, spoken to in one protocol."""

    #: Name in tables and for ``--brokers``.
    broker: ClassVar[str]
    #: Whether only a subscriber may publish, so that the publisher has to be one of the subscribers.
    publisherListens: ClassVar[bool] = False
    #: The pattern that all topics of the benchmark match.
    everyTopic: ClassVar[bytes] = b"bench.*"

    #: The kind of its connections.
    line: ClassVar[type[Line]] = Line

    def __init__(self) -> None:
        self.port = 0
        self._program: Program | None = None

    # The process

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Return what would have to be installed, or None if this peer can be started here."""

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """Return the broker's name and version, for the head of the table."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that serves on ``self.port``; its working directory is empty and may be written to."""

    def environment(self) -> dict[str, str]:
        """Return variables that the process needs besides the inherited ones."""
        return {}

    def start(self) -> None:
        """Start the broker, and return when it listens.

        :raises Refused: if it does not.
        """
        self.port = freePort()
        self._program = Program()
        self.again()

    def again(self) -> None:
        """Start the broker after :meth:`kill`, on the same port and in the same folder.

        :raises Refused: if it does not listen.
        """
        assert self._program is not None, "the broker was never started"
        self._program.start(self.command(), self.port, self.environment())

    def kill(self) -> None:
        """End the broker without a chance to say or write anything."""
        assert self._program is not None, "the broker was not started"
        self._program.kill()

    def stop(self) -> None:
        """End the broker, if it runs."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self._program is not None, "the broker was not started"
        return self._program.pid

    @property
    def folder(self) -> Path:
        """The working directory of the broker's process."""
        assert self._program is not None, "the broker was not started"
        return self._program.folder

    # Connections

    @abstractmethod
    def hello(self) -> bytes:
        """Return what a connection says first."""

    @abstractmethod
    def welcome(self, said: bytes) -> Who:
        """Return who the connection is when ``said`` is the whole answer to ``hello``; raise ValueError before.

        Any other word than a welcome is for ever incomplete, so that a refusal ends in a time-out.
        """

    def dial(self) -> Line:
        """Connect and say hello, without waiting for the answer."""
        line = self.line(self.port)
        line.send(self.hello())
        return line

    def settle(self, line: Line) -> None:
        """Read the answer to ``hello``."""
        said = b""
        while True:
            said += line.more(said)
            try:
                line.who = self.welcome(said)
            except ValueError:
                continue
            return

    def connect(self) -> Line:
        """Return a connection that may publish and subscribe.

        :raises Refused: if the broker does not let it.
        """
        line = self.dial()
        self.settle(line)
        return line

    @abstractmethod
    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        """Subscribe, and return when the broker is known to have done so."""

    @abstractmethod
    def barrier(self, line: Line) -> None:
        """Return when the broker has worked through all that this connection sent, and said all that it had to.

        Whatever comes before the answer is dropped: it is also how a connection is cleared of keep-alive messages.
        """

    def becomeQuiet(self, lines: Iterable[Line]) -> None:
        """Wait for what the broker sends of itself soon after a connection is made; most send nothing."""
        return

    # Bytes

    @abstractmethod
    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        """Return what a publisher sends for one message."""

    @abstractmethod
    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        """Return what a subscriber gets for a message of publisher ``who``; ``place`` is the topic's in its list."""

    def reply(self, subscribers: int) -> bytes:
        """Return what the publisher is told for each message; most brokers say nothing."""
        return b""

    def exchange(self, requester: Line, responder: Line, payload: bytes, n: int) -> Exchange:
        """Make two connections ready for requests and replies, and return ``n`` of them."""
        raise NotImplementedError(f"{self.broker} has no requests and replies")
