"""Who is not read while too much waits for the disk."""

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.stream import pausePublisher
from tests.dialects.connection.test_slow_consumer import Publisher


class _Broker:
    """Says whether it is crowded, and keeps what is to be called."""

    def __init__(self, overloaded: bool) -> None:
        self.overloaded = overloaded
        self.calls: list[Any] = []

    def whenRelieved(self, call: Any) -> None:
        """Keep it."""
        self.calls.append(call)

    def whenPublicationsDecided(self, call: Any, client: ConnectedClient) -> None:
        """Keep it."""
        self.calls.append(call)


class _Outbox:
    """Has room for 100 bytes."""

    space = 100


class _Session:
    """Has so many bytes of answers that wait."""

    outbox = _Outbox()

    def __init__(self, broker: _Broker, pendingAnswerBytes: int) -> None:
        self.broker = broker
        self.answers = SimpleNamespace(size=pendingAnswerBytes)


class HoldBackTests(SynchronousTestCase):
    """After a read whose publications are on their way to the disk."""

    def read(self, overloaded: bool = False, pendingAnswerBytes: int = 0) -> tuple[Publisher, list[Any]]:
        """Hold somebody back if need be; return him, and what may let him go on."""
        publisher = Publisher()
        broker = _Broker(overloaded)
        self.client = ConnectedClient(1000, "any", "any-1000")
        session: Any = _Session(broker, pendingAnswerBytes)
        reader: Any = publisher
        pausePublisher(session, self.client, reader)
        self.assertIs(self.client.reader, publisher)
        return publisher, broker.calls

    def test_room(self) -> None:
        """Where there is room, he goes on being read."""
        for pendingAnswerBytes in (0, 1, 100):
            publisher, calls = self.read(pendingAnswerBytes=pendingAnswerBytes)
            self.assertEqual((publisher.read, calls), (True, []))

    def test_each(self) -> None:
        """When the journal is crowded, or his answers are more than he may leave unread, not until that is over."""
        for overloaded, pendingAnswerBytes in ((True, 0), (False, 101)):
            publisher, [call] = self.read(overloaded, pendingAnswerBytes)
            self.assertFalse(publisher.read)
            call()
            self.assertEqual((publisher.read, publisher.listened), (True, [False, True]))

    def test_both(self) -> None:
        """Not until both are."""
        publisher, [space, sent] = self.read(True, 101)
        space()
        self.assertFalse(publisher.read)
        sent()
        self.assertTrue(publisher.read)
