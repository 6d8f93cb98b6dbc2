"""Work in threads."""

import threading
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.checkers.passwords import WorkerThreads
from tests.security.secrets_on_disk import ThreadClock


class WorkersTests(SynchronousTestCase):
    """Real threads, and a reactor that waits until it is told to go on."""

    def setUp(self) -> None:
        """Have two threads."""
        self.reactor = ThreadClock()
        self.workers = WorkerThreads(self.reactor.callFromThread, 2)

    def hear(self) -> None:
        """Wait for a thread, and do on this one what it asks for."""
        while not self.reactor.told:
            time.sleep(0.001)
        call, arguments = self.reactor.told.pop(0)
        call(*arguments)

    def test_elsewhere(self) -> None:
        """Work is done in another thread, its outcome is told in this one."""
        done = self.workers.run(threading.get_ident)
        self.hear()
        self.assertNotEqual(self.successResultOf(done), threading.get_ident())

    def test_fails(self) -> None:
        """So is what goes wrong."""
        done = self.workers.run(int, "x")
        self.hear()
        self.failureResultOf(done, ValueError)

    def test_cancelled(self) -> None:
        """Who does not want to know any more is not told."""
        done: Any = self.workers.run(int, "7")
        done.addErrback(lambda _: None)
        done.cancel()
        self.hear()
        self.assertIsNone(self.successResultOf(done))
