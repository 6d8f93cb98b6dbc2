"""How many connections the system's limit on open files permits."""

import errno
import os
import resource
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.limits import Limits
from fleximq.services.network import open_files
from fleximq.services.network.open_files import OWN, OpenFilesService, Shortage, lowestFree, raiseLimit, withinOpenFiles
from tests.log_observer import observeLog

SETTINGS = Settings(limits=Limits(clients=100, waiting=50))


class WithinTests(SynchronousTestCase):
    """The limits of clients and waiting connections."""

    def test_enough(self) -> None:
        """With as many files as needed they are those of the settings; with one less they are lower."""
        self.assertIs(withinOpenFiles(SETTINGS, 150 + OWN), SETTINGS.limits)
        self.assertNotEqual(withinOpenFiles(SETTINGS, 149 + OWN), SETTINGS.limits)

    def test_few(self) -> None:
        """Clients leave some room to answer others, and connections before admission take a quarter."""
        cases = {1024: (941, 240), 64: (31, 8), 2: (1, 1)}
        found = {each: withinOpenFiles(Settings(), each) for each in cases}
        self.assertEqual({each: (limits.clients, limits.waiting) for each, limits in found.items()}, cases)

    def test_node(self) -> None:
        """A node of a cluster needs two files for a client."""
        limits = withinOpenFiles(Settings(cluster=("nats://127.0.0.1:4222",), node="a", journal="x"), 1024)
        self.assertEqual(limits.clients, 471)


class LimitTests(SynchronousTestCase):
    """The limit of the process, which the tests only simulate."""

    def setUp(self) -> None:
        """A limit of 100 that may be raised to 180."""
        self.limit = 100, 180
        self.patch(resource, "getrlimit", lambda number: self.limit)
        self.patch(resource, "setrlimit", self.set)

    def set(self, number: int, limit: tuple[int, int]) -> None:
        """Change the limit."""
        self.limit = limit

    def test_raised(self) -> None:
        """It is raised as far as it is needed and permitted, and never lowered."""
        raiseLimit(SETTINGS.limits)
        self.assertEqual(self.limit, (180, 180))
        self.limit = 100, resource.RLIM_INFINITY
        raiseLimit(SETTINGS.limits)
        self.assertEqual(self.limit[0], 150 + OWN)
        self.limit = unlimited = (resource.RLIM_INFINITY,) * 2
        raiseLimit(SETTINGS.limits)
        self.assertEqual(self.limit, unlimited)

    def test_forbidden(self) -> None:
        """A service manager that forbids it does not prevent the start."""

        def refuse(number: int, limit: tuple[int, int]) -> None:
            raise PermissionError(1, "Operation not permitted")

        self.patch(resource, "setrlimit", refuse)
        raiseLimit(SETTINGS.limits)

    def said(self) -> list[str]:
        """Return what a start logs."""
        lines: list[str] = []

        def observe(event: Any) -> None:
            if event.get("log_namespace") == open_files.__name__:
                lines.append(formatEvent(event))

        observeLog(self, observe)
        service = OpenFilesService(SETTINGS)
        service.privilegedStartService()
        service.startService()
        return lines

    def test_said(self) -> None:
        """One line says how many connections there may be, if they are fewer than those of the settings."""
        (line,) = self.said()
        self.assertIn("The system permits 180 open files, so at most 100 clients are admitted, and 29 connect", line)

    def test_silent(self) -> None:
        """Otherwise there is none."""
        self.limit = 100, 1000
        self.assertEqual(self.said(), [])

    def test_closedInput(self) -> None:
        """A closed standard input is a free file; with no free file at all the number is large."""
        for number, found in ((errno.EBADF, 0), (errno.EMFILE, 1 << 30)):

            def refuse(old: int, number: int = number) -> int:
                raise OSError(number, os.strerror(number))

            self.patch(os, "dup", refuse)
            self.assertEqual(lowestFree(), found)

    def test_shortage(self) -> None:
        """A quarter of a low limit stays free, and 32 of a high one; with no free file nothing is left."""
        shortage = Shortage(Clock())
        for limit, number, left in ((40, 20, 10), (40, 30, 0), (1000, 20, 948), (40, 1 << 30, -10)):
            self.limit = limit, limit
            self.patch(open_files, "lowestFree", lambda number=number: number)
            self.assertEqual(shortage.left(), left)
