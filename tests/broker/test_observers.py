"""Those who are told what happens in the broker."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.observers import Counts, Observers
from fleximq.interfaces import IBrokerObserver
from tests.broker.parts import Witness


class Broken(Witness):
    """Raises whatever it is told."""

    def counted(self, event: str, number: int) -> None:
        """Raise."""
        raise ZeroDivisionError

    clientJoined = clientLeft = topicCreated = counted  # type: ignore[assignment]


class ObserversTests(SynchronousTestCase):
    """The list."""

    def setUp(self) -> None:
        """A list that keeps what its members raise."""
        self.errors: list[Exception] = []
        self.observers = Observers(self.errors.append)

    def tell(self) -> list[tuple[Any, ...]]:
        """Tell everything once, and return what a witness has to have heard."""
        client = ConnectedClient(1000, "any", "any-1000")
        self.observers.clientJoined(client)
        self.observers.clientLeft(client, "reason")
        self.observers.topicCreated("t")
        self.observers.counted("event", 3)
        return [("joined", 1000), ("left", 1000, "reason"), ("created", "t"), ("counted", "event", 3)]

    def test_interfaces(self) -> None:
        """The list, and the counts, are observers themselves."""
        verifyObject(IBrokerObserver, self.observers)
        verifyObject(IBrokerObserver, Counts())
        verifyObject(IBrokerObserver, Witness())

    def test_told(self) -> None:
        """All are told, in order."""
        witnesses = [Witness(), Witness()]
        for witness in witnesses:
            self.observers.add(witness)
        told = self.tell()
        self.assertEqual([witness.told for witness in witnesses], [told, told])

    def test_removed(self) -> None:
        """Who was removed is told no more."""
        witness = Witness()
        self.observers.add(witness)
        self.observers.remove(witness)
        self.tell()
        self.assertEqual(witness.told, [])

    def test_broken(self) -> None:
        """What one raises is reported, and the others are told all the same."""
        first, last = Witness(), Witness()
        for observer in (first, Broken(), last):
            self.observers.add(observer)
        told = self.tell()
        self.assertEqual((first.told, last.told), (told, told))
        self.assertEqual(len(self.errors), 4)

    def test_changedMeanwhile(self) -> None:
        """One that removes itself while being told disturbs nobody."""
        observers, last = self.observers, Witness()

        class Deduplication(Witness):
            def topicCreated(self, name: str) -> None:
                observers.remove(self)

        observers.add(Deduplication())
        observers.add(last)
        observers.topicCreated("a")
        observers.topicCreated("b")
        self.assertEqual((last.told, self.errors), ([("created", "a"), ("created", "b")], []))

    def test_counts(self) -> None:
        """Counts by name."""
        counts = Counts()
        self.observers.add(counts)
        self.tell()
        self.tell()
        self.assertEqual(dict(counts.events), {"joined: any": 2, "left: reason": 2, "topics created": 2, "event": 6})
