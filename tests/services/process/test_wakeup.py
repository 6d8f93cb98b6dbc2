"""Calls from other threads reach the reactor's, in order, whatever it is."""

import os
from threading import Thread
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from fleximq.services.process.wakeup import Wakeup


class Slow(MemoryReactorClock):
    """Keeps what is asked of its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def callFromThread(self, callable: Any, *arguments: object, **keywords: object) -> None:
        """Keep it."""
        self.asked.append(callable)


class WakeupTests(SynchronousTestCase):
    """With a reactor that does nothing by itself."""

    def setUp(self) -> None:
        """Hung, and taken down in the end."""
        self.reactor: Any = Slow()
        self.wakeup = Wakeup(self.reactor)
        self.said: list[int] = []

    def test_interface(self) -> None:
        """It is something to read from."""
        verifyObject(IReadDescriptor, self.wakeup)
        self.assertEqual((self.wakeup.fileno(), self.wakeup.logPrefix()), (-1, "journal"))
        self.wakeup.connectionLost(Failure(Exception()))

    def test_notHung(self) -> None:
        """Then the reactor's own way is used."""
        self.wakeup.call(self.said.append, 1)
        self.assertEqual(self.said, [])
        self.reactor.asked.pop()()
        self.assertEqual(self.said, [1])

    def test_rings(self) -> None:
        """One read does all that was asked for, in order; what asks again has to wait for the next."""
        self.wakeup.start()
        self.addCleanup(self.wakeup.stop)
        self.wakeup.call(self.wakeup.call, self.said.append, 3)
        self.wakeup.call(self.said.append, 1)
        self.wakeup.call(self.said.append, 2)
        self.assertEqual((self.said, self.reactor.getReaders(), self.reactor.asked), ([], [self.wakeup], []))
        self.wakeup.doRead()
        self.assertEqual(self.said, [1, 2])
        self.wakeup.doRead()
        self.assertEqual(self.said, [1, 2, 3])

    def test_errors(self) -> None:
        """What one call raises is logged, and hurts no other."""
        self.wakeup.start()
        self.addCleanup(self.wakeup.stop)
        self.wakeup.call(int, "x")
        self.wakeup.call(self.said.append, 1)
        self.wakeup.doRead()
        self.assertEqual((self.said, len(self.flushLoggedErrors(ValueError))), ([1], 1))

    def test_takeDown(self) -> None:
        """What was asked for is done; what comes later goes the other way."""
        self.wakeup.start()
        number = self.wakeup.fileno()
        self.wakeup.call(self.said.append, 1)
        self.wakeup.stop()
        self.assertEqual((self.said, self.reactor.getReaders()), ([1], []))
        self.assertRaises(OSError, os.fstat, number)
        self.wakeup.call(self.said.append, 2)
        self.assertEqual(len(self.reactor.asked), 1)
        self.wakeup.stop()
        self.assertEqual(self.said, [1, 2])


class ThreadTests(TestCase):
    """With the real reactor and real threads."""

    async def test_order(self) -> None:
        """Each thread's calls come in its order, and none is lost."""
        wakeup = Wakeup(reactor)
        wakeup.start()
        self.addCleanup(wakeup.stop)
        said: list[tuple[int, int]] = []
        done: Deferred[None] = Deferred()

        def hear(thread: int, number: int) -> None:
            said.append((thread, number))
            if len(said) == 4000:
                done.callback(None)

        def ask(thread: int) -> None:
            for number in range(1000):
                wakeup.call(hear, thread, number)

        threads = [Thread(target=ask, args=(thread,)) for thread in range(4)]
        for each in threads:
            each.start()
        done.addTimeout(300, reactor)
        await done
        for each in threads:
            each.join(300)
        await deferLater(reactor, 0, lambda: None)
        for thread in range(4):
            self.assertEqual([number for who, number in said if who == thread], list(range(1000)))
