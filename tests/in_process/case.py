"""The case of all tests of clients in the process: a broker on a clock that tests move."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.in_process.client import InProcessClient
from fleximq.in_process.clients import InProcessClients
from fleximq.interfaces import IJournal
from fleximq.rights import EVERYTHING
from tests.broker.parts import makeBroker
from tests.in_process.parts import makeClients


class InProcessCase(SynchronousTestCase):
    """A broker and the maker of its clients."""

    clients: InProcessClients

    def broker(self, journal: IJournal | None = None, rules: Any = None, **more: Any) -> None:
        """Make the broker; ``rules`` are its own, further keywords those of :func:`makeClients`."""
        self.clock = Clock()
        self.aBroker = makeBroker(self.clock, journal, **(rules or {}))
        self.clients = makeClients(self.aBroker, self.clock, **more)

    def client(self, rights: Any = EVERYTHING, **more: Any) -> InProcessClient:
        """Return a client of it."""
        return self.clients.connect(rights, **more)

    def turn(self) -> None:
        """Let some reactor turns pass."""
        for _ in range(5):
            self.clock.advance(0)

    def done(self, deferred: "Deferred[Any]") -> Any:
        """Return a result that takes a few turns of the reactor."""
        self.turn()
        return self.successResultOf(deferred)

    def refused(self, deferred: "Deferred[Any]", kind: type[Exception]) -> Any:
        """Return the error of a Deferred that fails within a few turns of the reactor."""
        self.turn()
        return self.failureResultOf(deferred, kind).value
