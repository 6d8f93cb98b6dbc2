"""What a service manager is told, word by word."""

import time

from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.service_manager import NotifySocket
from tests.notify_socket import FakeManager


class NotifySocketTests(SynchronousTestCase):
    """Messages on a real socket."""

    def manager(self, abstract: bool = False) -> FakeManager:
        """Return a manager that listens until the test ends."""
        manager = FakeManager(abstract)
        self.addCleanup(manager.close)
        return manager

    def test_words(self) -> None:
        """Each thing is told in the manager's own words."""
        manager = self.manager()
        telling = NotifySocket({"NOTIFY_SOCKET": manager.name})
        self.assertTrue(telling.exists)
        telling.ready("serving")
        telling.alive()
        telling.stopping("ending")
        self.assertEqual(
            manager.look(),
            ["READY=1", "STATUS=serving", "WATCHDOG=1", "STOPPING=1", "STATUS=ending"],
        )

    def test_reloading(self) -> None:
        """The time of a reload is that of the clock which systemd looks at."""
        manager = self.manager()
        NotifySocket({"NOTIFY_SOCKET": manager.name}).reloading("reading")
        begun, at, status = manager.look()
        self.assertEqual((begun, status), ("RELOADING=1", "STATUS=reading"))
        told = int(at.removeprefix("MONOTONIC_USEC="))
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.assertTrue(now - 60_000_000 < told <= now, (told, now))

    def test_abstract(self) -> None:
        """A name that begins with @ is in no folder."""
        manager = self.manager(abstract=True)
        NotifySocket({"NOTIFY_SOCKET": manager.name}).ready("serving")
        self.assertEqual(manager.look(), ["READY=1", "STATUS=serving"])

    def test_nobody(self) -> None:
        """Without the variable nobody is told; a socket that is not there is logged, no more."""
        silent = NotifySocket({})
        silent.ready("serving")
        self.assertFalse(silent.exists)
        NotifySocket({"NOTIFY_SOCKET": self.mktemp()}).ready("serving")
        NotifySocket({"NOTIFY_SOCKET": "vsock:2:1234"}).ready("serving")
