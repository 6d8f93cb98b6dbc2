"""A real owner returns with an empty folder, while two full copies of 100,000 commits live."""

import contextlib
import shutil
import signal
import socket
import threading
import time

from tests.cluster.nats.cluster_case import ClusterCase
from tests.nightly import nightly

#: Commits of the journal, and seconds until the service is back.
_COMMITS, _SECONDS = 100_000, 10.0


@nightly
class EmptyOwnerTests(ClusterCase):
    """The servers sync at times only, so that the commits take less time; nothing here loses power."""

    sync = "2m"

    def test_empty(self) -> None:
        """A node serves, whether another one or the empty one is the first to have all of it."""
        self.start("a", "b", "c")
        owner = self.owner()
        self.stop(signal.SIGTERM, *(name for name in "abc" if name != owner))
        began = time.monotonic()
        with socket.create_connection(self.brokers[owner].address, 300) as connection:
            answers = connection.makefile("rb")
            for number in range(_COMMITS):
                connection.sendall(b"PRODUCE:%d:::t:::%d\n" % (number, number))
                self.assertEqual(answers.readline(), b"%d\n" % number)
        print(f"{_COMMITS:,} commits in {time.monotonic() - began:.0f} s")
        self.start(*(name for name in "abc" if name != owner))
        self.until(self.isSettled, 600)
        self.stop(signal.SIGKILL, owner)
        shutil.rmtree(self.folder / owner)
        began = time.monotonic()
        self.start(owner)
        served = threading.Event()
        for name in self.brokers:
            threading.Thread(target=self.store, args=(name, served), daemon=True).start()
        self.until(served.is_set)
        seconds = time.monotonic() - began
        print(f"service {seconds:.1f} s after an owner with {_COMMITS:,} commits was killed and started empty")
        self.until(self.isSettled)
        self.assertLess(seconds, _SECONDS)

    def store(self, name: str, served: threading.Event) -> None:
        """Store a message at a node, as soon as one can."""
        self.brokers[name].waitFor(lambda: self.brokers[name].listeners, "its listener")
        while not served.is_set():
            with contextlib.suppress(OSError), socket.create_connection(self.brokers[name].address, 15) as connection:
                connection.sendall(b"PRODUCE:after:::other:::x\n")
                if connection.recv(99) == b"after\n":
                    served.set()
            time.sleep(0.05)
