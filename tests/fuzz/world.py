"""A whole broker in memory, with connections that hostile peers talk over.

Nothing it does may raise: what is logged as a failure, or raised, is an error of the broker.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from fleximq.config.settings import Settings
from fleximq.services.broker_service import BrokerService
from fleximq.services.compose import compose
from tests.fuzz.hostile import Batch
from tests.fuzz.tongues import FLEXI, FLEXI_WS, OWN_ID, Tongue

#: Small enough that a few seconds reach every limit.
LIMITS = {
    "max-message": "64KiB",
    "max-line": "64KiB",
    "max-text": "64KiB",
    "queue-messages": 200,
    "queue-bytes": "256KiB",
    "outbox-bytes": "1MiB",
    "max-subscriptions": 50,
    "max-topics": 200,
    "max-queues": 100,
    "max-requests": 50,
    "max-clients": 1000,
}
HERE = IPv4Address("TCP", "127.0.0.1", 50000)
#: Reads and writes of a string have no end by themselves: a connection is lost after so many batches.
BATCHES = 200
#: The time that goes by with each batch, in seconds.
TICK = 0.02


class Broken(Exception):
    """The broker did what it never must; the text says what."""


class World:
    """A broker, and two connections for each dialect, which are made anew when they are lost.

    :param settings: what it runs with beside small limits.
    """

    def __init__(self, **settings: object) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.reactor = MemoryReactorClock()
        self._service: Any = compose(self.reactor, Settings.of(LIMITS | settings), environment={})
        self._service.privilegedStartService()
        self._service.startService()
        self._factory: Any = self.reactor.tcpServers[0][1]
        self.lines: dict[tuple[str, int], _Line] = {}
        self._failures: list[str] = []
        self._observer = cast(ILogObserver, self._look)
        globalLogPublisher.addObserver(self._observer)

    @property
    def folder(self) -> Path:
        """A folder that is removed at the end."""
        return self._folder

    def say(self, tongue: Tongue, batch: Batch, which: int = 0, cut: int = 0) -> None:
        """Let one of the connections of a dialect read this; behind the last batch it is lost.

        :param cut: it comes in pieces of so many bytes, at first; 0 leaves it whole.
        :raises Broken: something was raised or logged that nobody foresaw.
        """
        line = self.lines.get((tongue.name, which))
        if line is None:
            line = self.lines[tongue.name, which] = _Line(self._factory, tongue)
        line.say(batch.data, cut)
        self.reactor.advance(TICK)
        if batch.last or line.over:
            del self.lines[tongue.name, which]
            line.lose()
        line.transport.clear()
        if self._failures:
            raise Broken("\n".join(self._failures))

    @property
    def broker(self) -> Any:
        """The broker."""
        return next(each.broker for each in self._service if isinstance(each, BrokerService))

    def forgive(self) -> None:
        """Forget what broke."""
        self._failures.clear()

    def clear(self) -> None:
        """Throw away what was written to all."""
        for line in self.lines.values():
            line.transport.clear()

    def quiet(self) -> None:
        """Lose all connections."""
        lines, self.lines = self.lines, {}
        for line in lines.values():
            line.lose()
        self.reactor.advance(TICK)
        if self._failures:
            raise Broken("\n".join(self._failures))

    def close(self) -> None:
        """End it."""
        self.quiet()
        self._service.stopService()
        self.reactor.advance(60)
        globalLogPublisher.removeObserver(self._observer)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _look(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            self._failures.append(failure.getTraceback())


class _Line:
    """One connection."""

    def __init__(self, factory: Any, tongue: Tongue) -> None:
        self.transport = StringTransport(peerAddress=HERE, lenient=True)
        self._protocol: Any = factory.buildProtocol(HERE)
        self._protocol.makeConnection(self.transport)
        self._batches = 0
        if tongue.open:
            self._protocol.dataReceived(tongue.open)
        self._id = self._idOf(tongue)

    def _idOf(self, tongue: Tongue) -> bytes:
        """Return the client id that was given, as it stands in the answer."""
        answer: bytes = self.transport.value()
        self.transport.clear()
        if tongue is FLEXI:
            return answer[2:6]
        if tongue is FLEXI_WS:
            start = answer.find(b"\r\n\r\n") + 4 + 2
            return answer[start + 2 : start + 6]
        return OWN_ID

    @property
    def over(self) -> bool:
        """Whether the broker has closed it, by a WebSocket's close frame perhaps, or it is old."""
        said = self.transport.value()
        close = said.rfind(b"\x88", -127)
        closing = close >= 0 and said[close + 1 :][:1] == bytes([len(said) - close - 2 & 255])
        return closing or self.transport.disconnecting or self._batches >= BATCHES

    def say(self, data: bytes, cut: int) -> None:
        """Let it read this, and nothing more when it has been closed."""
        self._batches += 1
        data = data.replace(OWN_ID, self._id)
        received = 0
        while cut and received < min(len(data), 64 * cut) and not self.transport.disconnecting:
            self._protocol.dataReceived(data[received : received + cut])
            received += cut
        if not self.transport.disconnecting and received < len(data):
            self._protocol.dataReceived(data[received:])

    def lose(self) -> None:
        """Lose it."""
        self.transport.connected = False
        self._protocol.connectionLost(Failure(ConnectionDone()))
