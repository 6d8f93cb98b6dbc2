"""The MiniMQ dialect on streams: a LineReceiver whose buffer is linear.

Lines behind a command that waits are kept, at most those of two reads; then nothing more is read until it is
answered. While there are none, the connection is read all the same, so that its end is noticed.
"""

from collections import deque
from collections.abc import Callable, Iterator

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from fleximq.dialects.connection.connection_rate import admittedLines, overRate
from fleximq.dialects.context import Context
from fleximq.dialects.minimq.session import MiniSession
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.pull_stream import PullPause, PullStreamProtocol
from fleximq.dialects.stream import StreamFactory
from fleximq.wire.minimq_line import LineScanner
from fleximq.wire.ulids import newUlid


class MiniProtocol(PullStreamProtocol, LineReceiver):
    """Feeds a MiniMQ session line by line."""

    delimiter = b"\n"
    session: MiniSession

    def __init__(self, context: Context, makeSession: Callable[[Context, Outbox, IAddress], MiniSession]) -> None:
        super().__init__(context, makeSession)
        self.MAX_LENGTH = context.settings.limits.line
        self._scanner = LineScanner(self.MAX_LENGTH)
        self._lines: Iterator[bytes] = iter(())
        self._reads: deque[bytes] = deque()

    def connectionMade(self) -> None:
        """Begin the session."""
        super().connectionMade()
        self.session.onReady = self._continue

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone; what was not worked through is forgotten."""
        super().connectionLost(reason)
        self._scanner = LineScanner(self.MAX_LENGTH)
        self._lines = iter(())
        self._reads.clear()

    @property
    def buffered(self) -> int:
        """How many bytes are kept of an unfinished line."""
        return self._scanner.buffered

    def lineReceived(self, line: bytes) -> None:
        """Hand one line, without its end, to the session."""
        self.session.received(line)

    def receiver(self) -> Callable[[bytes], None]:
        """Return :meth:`feed`, which cuts reads into lines."""
        return self.feed

    def resume(self) -> None:
        """Let the session take the first line, then hand it those behind."""
        super().resume()
        self.feed(b"")

    def feed(self, data: bytes) -> None:
        """Hand all lines to the session that are complete by now, as far as it takes them."""
        session = self.session
        if data:
            self._reads.append(data)
            session.traffic.messagesIn += data.count(b"\n")
        elif session.suspended and not self.outbox.full:
            session.readerCaughtUp()
        while not session.busy:
            for line in self._lines:
                self.lineReceived(line)
                if session.busy:
                    break
            else:
                if not self._reads:
                    break
                self._lines = self._admitted(self._scanner.feed(self._reads.popleft()))
        session.readEnded()
        if self._reads:
            self.readPauses.pause(PullPause.UNANSWERED)
        else:
            self.readPauses.resume(PullPause.UNANSWERED)
        if session.suspended:
            self.waitForReader()

    def _admitted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Return the lines that are within the client's rates, if what is over them is refused."""
        session = self.session
        if session.rate is None or not session.rate.refuses:
            return lines
        return admittedLines(session.rate.meter, lines, lambda: session.failed(overRate()))


class MiniFactory(StreamFactory):
    """Builds MiniMQ connections on streams.

    :param newId: makes the ids of v1.0 messages.
    """

    protocolClass = MiniProtocol

    def __init__(self, context: Context, newId: Callable[[], str] = newUlid) -> None:
        super().__init__(context, lambda context, outbox, address: MiniSession(context, outbox, address, newId))
