"""When a service manager hears that the broker is ready."""

from typing import Any, NoReturn

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase

from fleximq.endpoints.listen import Listen
from fleximq.services.network.listeners import ListenerService
from fleximq.services.process.service_manager import NotifySocket, Readiness


def leave(sentence: str, reactor: object = None) -> NoReturn:
    """Depart as far as a test can."""
    raise AssertionError(sentence)


class Told(NotifySocket):
    """Notes what is told."""

    def __init__(self) -> None:
        super().__init__({})
        self.lines: list[str] = []

    def send(self, state: str) -> None:
        """Note it."""
        self.lines += state.split("\n")


class ReadinessTests(SynchronousTestCase):
    """A listener, and what is told of it."""

    def setUp(self) -> None:
        """Nothing has started."""
        self.reactor = MemoryReactor()
        self.listener = ListenerService(self.reactor, Listen.parse("tcp:1"), Factory(), leave, leave)
        self.told = Told()
        self.readiness = Readiness(self.reactor, self.told, [self.listener])

    def turn(self) -> None:
        """Let the reactor run."""
        for call, arguments, named in self.reactor.whenRunningHooks:
            call(*arguments, **named)

    def test_ready(self) -> None:
        """With everything open and the reactor running."""
        self.listener.startService()
        self.readiness.startService()
        self.assertEqual((self.told.lines, self.readiness.isReady), ([], False))
        self.turn()
        self.assertEqual((self.told.lines, self.readiness.isReady), (["READY=1", "STATUS=serving on 1 listener"], True))

    def test_late(self) -> None:
        """Not before the last listener is open."""
        opening: Deferred[Any] = Deferred()
        self.patch(ListenerService, "_begin", lambda service: opening)
        self.listener.startService()
        self.readiness.startService()
        self.turn()
        self.assertEqual(self.told.lines, [])
        opening.callback(self.reactor.listenTCP(1, Factory()))
        self.assertEqual(self.told.lines[0], "READY=1")

    def test_never(self) -> None:
        """Not at all if it ends before."""
        opening: Deferred[Any] = Deferred()
        self.patch(ListenerService, "_begin", lambda service: opening)
        self.listener.startService()
        self.readiness.startService()
        self.turn()
        self.readiness.stopService()
        opening.callback(self.reactor.listenTCP(1, Factory()))
        self.assertEqual(self.told.lines, ["STOPPING=1", "STATUS=ending connections"])

    def test_reload(self) -> None:
        """Around a reload it says so, and when; not before it is ready, nor at the end."""
        self.readiness.reloading()
        self.readiness.reloaded()
        self.listener.startService()
        self.readiness.startService()
        self.turn()
        self.told.lines.clear()
        self.readiness.reloading()
        self.assertEqual(self.told.lines[0], "RELOADING=1")
        self.assertRegex(self.told.lines[1], "^MONOTONIC_USEC=[0-9]+$")
        self.readiness.reloaded()
        self.assertEqual(self.told.lines[3:], ["READY=1", "STATUS=serving on 1 listener"])
        self.readiness.stopService()
        self.told.lines.clear()
        self.readiness.reloading()
        self.assertEqual(self.told.lines, [])

    def test_words(self) -> None:
        """The status counts listeners."""
        self.assertEqual(Readiness(self.reactor, self.told, [self.listener] * 2).words, "serving on 2 listeners")
