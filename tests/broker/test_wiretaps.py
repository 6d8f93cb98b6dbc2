"""Those who look on: what they get, and that they hurt nobody."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.observers import MAX_FAILURES, Wiretap
from fleximq.errors import InvalidTopic
from fleximq.interfaces import IForm, ISubscriber
from tests.broker.parts import Collector, makeBroker, text


class Broken(Collector):
    """Raises whenever it is handed something, except for the places in ``spared``."""

    spared: frozenset[int] = frozenset()
    met = 0

    def deliver(self, rendered: Any, count: int) -> None:
        self.met += 1
        if self.met not in self.spared:
            raise ValueError("broken")


class Unable:
    """A form that cannot render."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Any:
        raise ValueError("unable")


class TapTests(SynchronousTestCase):
    """A broker with a publisher, and somebody who looks on."""

    def setUp(self) -> None:
        """A broker that keeps what is raised."""
        self.errors: list[Exception] = []
        self.broker = makeBroker(Clock(), onError=self.errors.append)
        self.client = self.broker.join("test")
        self.tapped = Collector()

    def publish(self, name: str, *contents: str) -> None:
        """Publish one run."""
        envelope = Envelope(self.broker.topicFor(self.client, name), self.client, MessageSource())
        self.broker.publish(envelope, text(*contents), len(contents))

    def test_interfaces(self) -> None:
        """A wiretap is a subscriber with a form of its own."""
        wiretap = Wiretap(self.tapped, lambda wiretap, error: None)
        verifyObject(ISubscriber, wiretap)
        verifyObject(IForm, wiretap)

    def test_everything(self) -> None:
        """A wiretap of ``#`` gets what is published anywhere, whole runs at once."""
        self.broker.wiretap(self.tapped, "#")
        self.publish("a", "1", "2")
        self.publish("b.c", "3")
        self.assertEqual((self.tapped.payloads(), self.tapped.counts), ([b"1", b"2", b"3"], [2, 1]))

    def test_pattern(self) -> None:
        """Any pattern will do, a plain name too; what matches twice comes once."""
        for pattern in ("a.*", "a.b", "x"):
            self.broker.wiretap(self.tapped, pattern)
        for name in ("a.b", "x", "y"):
            self.publish(name, name)
        self.assertEqual(self.tapped.payloads(), [b"a.b", b"x"])

    def test_untap(self) -> None:
        """It ends where it was begun; to end what never began changes nothing."""
        self.broker.endWiretap(self.tapped, "#")
        self.broker.wiretap(self.tapped, "#")
        self.broker.endWiretap(self.tapped, "other")
        self.publish("a", "1")
        self.broker.endWiretap(self.tapped, "#")
        self.broker.endWiretap(self.tapped, "#")
        self.publish("a", "2")
        self.assertEqual(self.tapped.payloads(), [b"1"])

    def test_leavesNoTrace(self) -> None:
        """It makes no channel and no topic, and a topic's one route is as before when it is gone."""
        self.broker.wiretap(self.tapped, "a")
        self.assertEqual((self.broker.topics.channels(), len(self.broker.topics)), ([], 0))
        self.broker.endWiretap(self.tapped, "a")
        subscriber = Collector()
        self.broker.subscribe(self.client, subscriber, "a")
        self.publish("a", "1")
        self.assertEqual(self.broker.topics.get("a").routes, ((subscriber.form, (subscriber.deliver,)),))

    def test_wrongPattern(self) -> None:
        """A pattern that no subscription could have is refused, and nothing is left of it."""
        self.assertRaises(InvalidTopic, self.broker.wiretap, self.tapped, "")
        self.broker.endWiretap(self.tapped, "")

    def test_brokenTap(self) -> None:
        """What it raises is told, and others get their copy."""
        subscriber = Collector()
        self.broker.subscribe(self.client, subscriber, "a")
        self.broker.wiretap(Broken(), "#")
        self.broker.wiretap(Collector(Unable()), "#")  # type: ignore[arg-type]
        self.publish("a", "1")
        self.assertEqual(subscriber.payloads(), [b"1"])
        self.assertEqual(sorted(map(str, self.errors)), ["broken", "unable"])

    def test_patience(self) -> None:
        """After too many errors in a row it is taken off, which is told; one success in between begins anew."""
        wiretap = Broken()
        wiretap.spared = frozenset({MAX_FAILURES})
        self.broker.wiretap(wiretap, "#")
        self.broker.wiretap(wiretap, "a")
        for _ in range(2 * MAX_FAILURES + 5):
            self.publish("a", "1")
        self.assertEqual(wiretap.met, 2 * MAX_FAILURES)
        self.assertEqual(str(self.errors[-1]), f"{MAX_FAILURES} publications in a row failed: the wiretap is taken off")
