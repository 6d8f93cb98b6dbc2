"""Listeners that open and close; real sockets are the subject, on ports that the system chooses."""

import errno
import os
import socket
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.application.service import MultiService
from twisted.internet import reactor as globalReactor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.stdio import PipeAddress
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactor
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from fleximq.endpoints.endpoint_string import BACKLOG
from fleximq.endpoints.listen import Listen
from fleximq.services.network.listeners import (
    ACCEPTS_PER_ROUND,
    REFUSAL_PAUSE,
    SCARCE,
    ListenerService,
    acceptFew,
    listeningAddress,
)
from fleximq.services.network.open_files import SHORTAGE_PAUSE
from tests.log_observer import observeLog


class Left(Exception):
    """Stands for the end of the process."""


def leave(sentence: str) -> NoReturn:
    """Depart as far as a test can."""
    raise Left(sentence)


def leaveLate(sentence: str, reactor: object) -> None:
    """Depart when the reactor runs."""
    raise Left(sentence)


def logged(test: SynchronousTestCase) -> Callable[[], list[str]]:
    """Return a function that returns what the listeners' module has logged since now."""
    texts: list[str] = []

    def observe(event: Any) -> None:
        if event.get("log_namespace") == "fleximq.services.network.listeners":
            texts.append(formatEvent(event))

    observeLog(test, observe)
    return lambda: texts


class MemoryTests(SynchronousTestCase):
    """When a listener opens and closes, without sockets."""

    def setUp(self) -> None:
        """A listener on a reactor that only notes."""
        self.reactor = MemoryReactor()
        self.factory = Factory()
        self.service = ListenerService(self.reactor, Listen.parse("minimq+tcp:5677"), self.factory, leave, leaveLate)
        self.log = logged(self)

    def test_notYet(self) -> None:
        """Nothing is open before the start."""
        self.assertEqual(self.reactor.tcpServers, [])

    def test_privileged(self) -> None:
        """It opens with privileges, once."""
        self.service.privilegedStartService()
        self.service.startService()
        self.assertEqual(self.reactor.tcpServers, [(5677, self.factory, BACKLOG, "")])

    def test_notYetSaid(self) -> None:
        """With privileges nothing is said yet: the journal may still not be there."""
        self.service.privilegedStartService()
        self.assertEqual(self.log(), [])
        self.service.startService()
        self.assertEqual(self.log(), ["Listening on tcp:0.0.0.0:5677 (minimq)"])

    def test_unprivileged(self) -> None:
        """It opens without that step too."""
        self.service.startService()
        self.assertEqual(len(self.reactor.tcpServers), 1)

    def test_log(self) -> None:
        """The log says where, and what is served."""
        self.service.startService()
        self.assertEqual(self.log(), ["Listening on tcp:0.0.0.0:5677 (minimq)"])

    def test_proxyLog(self) -> None:
        """What stands behind a proxy is told as such."""
        ListenerService(self.reactor, Listen.parse("haproxy:tcp:80"), self.factory, leave, leaveLate).startService()
        self.assertEqual(self.log(), ["Listening on haproxy:tcp:0.0.0.0:80 (all dialects)"])

    def test_neverStarted(self) -> None:
        """Stopping what was never started is done at once."""
        self.successResultOf(self.service.stopService())

    def test_again(self) -> None:
        """It can be started anew."""
        self.service.startService()
        self.service.stopService()
        self.service.startService()
        self.assertEqual(len(self.reactor.tcpServers), 2)

    def refused(self, error: Exception, text: str = "tcp:5677") -> str:
        """Return the sentence with which a listener departs whose endpoint fails with this error."""

        class Failing(MemoryReactor):
            def listenTCP(self, *ignored: Any, **more: Any) -> NoReturn:
                raise error

        service = ListenerService(Failing(), Listen.parse(text), self.factory, leave, leaveLate)
        return str(self.assertRaises(Left, service.privilegedStartService))

    def test_sentences(self) -> None:
        """Whatever is raised is told in the system's words, behind what was asked for."""
        taken = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        for error, words in (
            (CannotListenError("", 5677, taken), "address already in use"),
            (CannotListenError("", 5677, PermissionError(errno.EACCES, "Permission denied")), "permission denied"),
            (CannotListenError("", 5677, "Cannot acquire lock"), "cannot acquire lock"),
            (OverflowError("bind(): port must be 0-65535."), "bind(): port must be 0-65535"),
            (OSError("AF_UNIX path too long"), "AF_UNIX path too long"),
            (RuntimeError(), "RuntimeError"),
        ):
            self.assertEqual(self.refused(error), f"cannot listen on tcp:5677: {words}")
        self.assertIn("cannot listen on minimq+tcp:1: ", self.refused(taken, "minimq+tcp:1"))

    def test_spelt(self) -> None:
        """Places are written as they could be asked for."""
        self.assertEqual(listeningAddress("tcp", IPv4Address("TCP", "127.0.0.1", 1)), "tcp:127.0.0.1:1")
        self.assertEqual(listeningAddress("tcp6", IPv6Address("TCP", "::", 1)), "tcp6:[::]:1")
        self.assertEqual(listeningAddress("unix", UNIXAddress(b"/run/x")), "unix:/run/x")
        self.assertEqual(listeningAddress("stdio", PipeAddress()), "stdio:")


class SocketTests(TestCase):
    """Real sockets."""

    def setUp(self) -> None:
        """A folder whose name is short enough for sockets."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "s")
        self.log = logged(self)

    def open(self, text: str) -> ListenerService:
        """Return a listener that is open and will be closed."""
        factory = Factory.forProtocol(Protocol)
        factory.noisy = False
        service = ListenerService(globalReactor, Listen.parse(text), factory, leave, leaveLate)
        service.privilegedStartService()
        service.startService()
        self.addCleanup(service.stopService)
        return service

    def sentence(self, text: str) -> str:
        """Return the sentence with which a listener departs."""
        service = ListenerService(globalReactor, Listen.parse(text), Factory.forProtocol(Protocol), leave, leaveLate)
        return str(self.assertRaises(Left, service.privilegedStartService))

    def test_realPort(self) -> None:
        """Where any port would do the log tells the one that was given."""
        service = self.open("tcp:0:interface=127.0.0.1")
        port = service.port.getHost().port
        self.assertNotEqual(port, 0)
        self.assertEqual(self.log(), [f"Listening on tcp:127.0.0.1:{port} (all dialects)"])
        socket.create_connection(("127.0.0.1", port), 10).close()

    def test_takenPort(self) -> None:
        """A taken port is one sentence."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            text = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
            self.assertEqual(self.sentence(text), f"cannot listen on {text}: address already in use")

    def test_impossiblePort(self) -> None:
        """So is a port that cannot be."""
        self.assertIn("cannot listen on tcp:65536: ", self.sentence("tcp:65536"))

    async def test_stop(self) -> None:
        """After stopping the port is free: what is returned fires when it is."""
        service = self.open("tcp:0:interface=127.0.0.1")
        port = service.port.getHost().port
        await service.stopService()
        socket.create_server(("127.0.0.1", port)).close()

    async def test_unix(self) -> None:
        """A UNIX socket is made, and removed with its lock."""
        service = self.open(f"unix:{self.path}:mode=600")
        self.assertEqual(self.log(), [f"Listening on unix:{self.path} (all dialects)"])
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        await service.stopService()
        self.assertEqual(os.listdir(self.folder), [])

    def test_unixTaken(self) -> None:
        """A UNIX socket that somebody serves is one sentence, and goes on being served."""
        self.open(f"unix:{self.path}")
        self.assertEqual(
            self.sentence(f"unix:{self.path}"), f"cannot listen on unix:{self.path}: address already in use"
        )
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self.path)

    def test_unixStale(self) -> None:
        """What a killed broker left behind is replaced, even if its lock names a living process."""
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(self.path)
        os.symlink(str(os.getpid()), self.path + ".lock")
        self.open(f"unix:{self.path}")
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self.path)

    def test_unixBadPath(self) -> None:
        """A folder that is missing, a file in the way: one sentence each."""
        missing = os.path.join(self.folder, "no", "s")
        self.assertEqual(
            self.sentence(f"unix:{missing}"), f"cannot listen on unix:{missing}: no such file or directory"
        )
        with open(self.path, "w"):
            self.assertIn(": there is a file that is no socket", self.sentence(f"unix:{self.path}"))

    def test_several(self) -> None:
        """Services in one parent open in order, and all are closed when its stop fires."""
        parent = MultiService()
        for text in ("tcp:0:interface=127.0.0.1", f"minimq+unix:{self.path}"):
            ListenerService(
                globalReactor, Listen.parse(text), Factory.forProtocol(Protocol), leave, leaveLate
            ).setServiceParent(parent)
        parent.privilegedStartService()
        parent.startService()
        self.assertEqual([line.split(" ", 3)[2][:5] for line in self.log()], ["tcp:1", "unix:"])
        stopped = parent.stopService()
        assert isinstance(stopped, Deferred)
        stopped.addCallback(lambda ignored: self.assertEqual(os.listdir(self.folder), []))
        return stopped  # type: ignore[return-value]


class LateTests(SynchronousTestCase):
    """Endpoints that take their time."""

    def test_stopWhileOpening(self) -> None:
        """A listener that is stopped before it is open is closed once it is."""
        opening: Deferred[Any] = Deferred()
        service = ListenerService(None, Listen.parse("tcp:0"), Factory(), leave, leaveLate)
        self.patch(ListenerService, "_begin", lambda self: opening)
        service.startService()
        stopped = service.stopService()
        self.assertNoResult(stopped)
        port = MemoryReactor().listenTCP(0, Factory())
        opening.callback(port)
        self.successResultOf(stopped)
        self.assertIsNone(service.port)

    def test_failsLate(self) -> None:
        """A failure that comes later is told with the reactor, which has to be stopped."""
        told: list[object] = []
        opening: Deferred[Any] = Deferred()
        reactor = MemoryReactor()
        service = ListenerService(reactor, Listen.parse("tcp:0"), Factory(), leave, lambda *all: told.append(all))
        self.patch(ListenerService, "_begin", lambda self: opening)
        service.startService()
        self.assertEqual(told, [])
        opening.errback(OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
        self.assertEqual(told, [("cannot listen on tcp:0: address already in use", reactor)])
        self.successResultOf(service.stopService())

    def test_failsAtOnce(self) -> None:
        """A failure that is there at once ends the start."""
        service = ListenerService(None, Listen.parse("tcp:0"), Factory(), leave, leaveLate)
        self.patch(ListenerService, "_begin", lambda self: fail(RuntimeError("no luck")))
        self.assertEqual(str(self.assertRaises(Left, service.startService)), "cannot listen on tcp:0: no luck")


class _Port:
    """A port that accepts as many as it may, and then more, or as many as there are."""

    def __init__(self, there: int) -> None:
        self.numberAccepts = 100
        self.accepted: list[int] = []
        self.connected = True
        self.reading = True
        self._there = there

    def doRead(self) -> None:
        """Accept."""
        self.accepted.append(min(self.numberAccepts, self._there))
        self.numberAccepts = max(1, self.accepted[-1] + 20 * (self.accepted[-1] == self.numberAccepts))

    def stopReading(self) -> None:
        """Accept no more."""
        self.reading = False

    def startReading(self) -> None:
        """Accept again."""
        self.reading = True


class AcceptFewTests(SynchronousTestCase):
    """How many connections are accepted at a time."""

    def accepted(self, there: int) -> list[int]:
        """Return how many are, three times, where so many are there each time."""
        port = _Port(there)
        acceptFew(port, Clock(), lambda: 7)
        for _ in range(3):
            port.doRead()
        return port.accepted

    def test_bounded(self) -> None:
        """However many there are, a port accepts few, and looks for more later; fewer if there are fewer."""
        self.assertEqual(self.accepted(1000), [ACCEPTS_PER_ROUND] * 3)
        self.assertEqual(self.accepted(2)[0], 2)

    def test_others(self) -> None:
        """What accepts nothing is left alone."""
        other = object()
        acceptFew(other, Clock(), lambda: 0)
        self.assertFalse(hasattr(other, "doRead"))

    def test_breath(self) -> None:
        """Behind connections that were refused none is accepted for a moment, and then as before."""
        refused, port, clock = 0, _Port(1000), Clock()
        acceptFew(port, clock, lambda: refused)
        port.doRead()
        refused = 3
        port.doRead()
        self.assertEqual((port.accepted, port.reading), ([ACCEPTS_PER_ROUND], False))
        clock.advance(REFUSAL_PAUSE)
        self.assertTrue(port.reading)
        port.doRead()
        self.assertEqual((port.accepted, port.reading), ([ACCEPTS_PER_ROUND] * 2, True))

    def test_shortage(self) -> None:
        """While the system permits no more none is accepted; with few left they are accepted one by one."""
        left, port, clock = 0, _Port(1000), Clock()
        acceptFew(port, clock, lambda: 0, lambda: left)
        port.doRead()
        self.assertEqual((port.accepted, port.reading), ([], False))
        clock.advance(SHORTAGE_PAUSE)
        self.assertTrue(port.reading)
        left = SCARCE
        port.doRead()
        left += 1
        port.doRead()
        self.assertEqual(port.accepted, [1, ACCEPTS_PER_ROUND])

    def test_closedMeanwhile(self) -> None:
        """A port that was closed in that moment does not begin again."""
        refused, port, clock = 0, _Port(1000), Clock()
        acceptFew(port, clock, lambda: refused)
        refused, port.connected = 1, False
        port.doRead()
        clock.advance(REFUSAL_PAUSE)
        self.assertFalse(port.reading)
