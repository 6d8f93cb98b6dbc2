"""MiniMQ on streams: a LineReceiver with a linear buffer that passes lines on in batches.

Lines after a command that waits are buffered, at most those of two reads; then reading pauses until the command is
answered. With no line buffered, reading continues, so that the end of the connection is noticed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.minimq.session import MiniSession
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.pull_stream import PullEvent, PullState, PullStreamProtocol
from fleximq.dialects.stream import READ_SECONDS, StreamFactory
from fleximq.wire.minimq_line import LineScanner
from fleximq.wire.ulids import newUlid

_READY = PullState.READY
#: So many lines are processed at once. Those after the first ``READ_SECONDS`` of a read wait for the next turn.
LINES = 128


class MiniProtocol(PullStreamProtocol, LineReceiver):
    """Passes lines to a MiniMQ session."""

    delimiter = b"\n"
    session: MiniSession

    def __init__(
        self, context: ListenerContext, makeSession: Callable[[ListenerContext, Outbox, IAddress], MiniSession]
    ) -> None:
        super().__init__(context, makeSession)
        self.MAX_LENGTH = context.settings.limits.line
        self._scanner = LineScanner(self.MAX_LENGTH)
        self._lines: list[bytes] = []
        self._batches: Iterator[list[bytes]] = iter(())
        self._reads: deque[bytes] = deque()

    def connectionMade(self) -> None:
        """Start the session."""
        super().connectionMade()
        self.session.onReady = self._continue

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is closed; pending lines are dropped."""
        super().connectionLost(reason)
        self._scanner = LineScanner()
        self._lines = []
        self._batches = iter(())
        self._reads.clear()

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete line."""
        return self._scanner.buffered

    def lineReceived(self, line: bytes) -> None:
        """Pass one line, without its end, to the session."""
        self.session.received(line)

    def linesReceived(self, lines: list[bytes]) -> None:
        """Pass lines to the session until one must wait, and remove those."""
        if len(lines) == 1:
            self.lineReceived(lines.pop())
        else:
            del lines[: self.session.receivedMany(lines)]

    def receiver(self) -> Callable[[bytes], None]:
        """Return :meth:`feed`, which splits reads into lines."""
        return self.feed

    def resume(self) -> None:
        """Resume the session with the first line, then pass it the following ones."""
        super().resume()
        self.feed(b"")

    def feed(self, data: bytes) -> None:
        """Pass all complete lines to the session while it accepts them."""
        session = self.session
        if data:
            self._reads.append(data)
            session.traffic.messagesIn += data.count(b"\n")
        elif session.pullState is PullState.AWAITING_READER and not self.outbox.full:
            session.readerCaughtUp()
        elif session.pullState is PullState.AWAITING_TURN:
            session.step(PullEvent.RESUME)
        until = self._seconds() + READ_SECONDS
        while session.pullState is _READY and (self._lines or self._nextLines()):
            self.linesReceived(self._lines)
            if session.pullState is _READY and self._seconds() > until:
                session.seal()  # the CONSUMEs so far may have to wait for something else
                if session.pullState is _READY:
                    session.step(PullEvent.TURN_OVER)
                    self._context.clock.callLater(0, self._continue)
        session.readProcessed()
        if self._reads:
            self.readPauses.pause(ReadPause.UNANSWERED)
        else:
            self.readPauses.resume(ReadPause.UNANSWERED)
        if session.pullState is PullState.AWAITING_READER:
            self.waitForReader()

    def _nextLines(self) -> bool:
        """Split off the next lines; return whether there are any."""
        while not (lines := next(self._batches, None)) and self._reads:
            scanned = self._scanner.feed(self._reads.popleft())
            admitted = self.session.admittedOf(scanned)
            # Where messages over the rate are refused, the answers before them must be made first.
            self._batches = _batches(admitted, LINES if admitted is scanned else 1)
        self._lines = lines or []
        return bool(lines)


def _batches(lines: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield lists of so many lines; an error of the iterator is raised after the lines before it."""
    remaining, more = iter(lines), True
    while more:
        batch: list[bytes] = []
        try:
            batch.extend(islice(remaining, size))
        finally:
            more = len(batch) == size
            if batch:
                yield batch


class MiniFactory(StreamFactory):
    """Builds MiniMQ connections on streams; ``newId`` returns the ids of v1.0 messages."""

    protocolClass = MiniProtocol

    def __init__(self, context: ListenerContext, newId: Callable[[], str] = newUlid) -> None:
        super().__init__(context, lambda context, outbox, address: MiniSession(context, outbox, address, newId))
