"""Each option that is a time reaches the running broker. When exactly is shown in tests.dialects, with a clock."""

from tests.conversations.case import Place, SocketCase
from tests.conversations.clients import FlexiClient, Stream
from tests.wire.flexi_frames import Heard


class HandshakeTests(SocketCase):
    """``--handshake-timeout``."""

    place = Place("--handshake-timeout", "0.1")

    def test_silentConnectionIsClosed(self) -> None:
        """A connection that says nothing is closed without an answer."""
        self.assertEqual(self.stream("fleximq").readAll(), b"")


class KeepAliveTests(SocketCase):
    """``--keepalive``."""

    place = Place("--keepalive", "1")

    def test_silentClientIsPingedAndClosed(self) -> None:
        """A FlexiMQ client that answers no PING is closed; each PING has the interval."""
        heard: list[Heard] = []
        while not heard:  # a broker that was not run for three intervals sends none
            client = self.opened(FlexiClient(Stream(self.place.address("fleximq")), answersPings=False)).join()
            heard = client.untilEnd()
        self.assertEqual({(each.kind, each.header["keepalive"]["interval"]) for each in heard}, {("PING", 1)})


class RequestTests(SocketCase):
    """``--request-timeout``."""

    place = Place("--request-timeout", "0.1")

    def test_requestWithoutAnswerFails(self) -> None:
        """The requester gets REP 504."""
        alice, bob = self.flexi(), self.flexi()
        alice.request(bob.id, "/slow", "R")
        self.assertError(alice.hear(), alice, 504, "R")


class RedeliveryTests(SocketCase):
    """``--redelivery`` and ``--max-deliveries``."""

    place = Place("--redelivery", "0.1", "--max-deliveries", "2")

    def test_unacknowledgedMessageIsDeliveredAgainAndThenDead(self) -> None:
        """After its last delivery it is in the queue of dead letters, and counted."""
        client, dead = self.mini(), f"$dead/{self.topic}"
        client.produce(self.topic, "1", "x")
        for _ in range(2):
            self.eventually(lambda: client.consume(self.topic) != "NO_MSG", "a delivery")
        line = self.eventually(lambda: (found := client.consume(dead)) != "NO_MSG" and found, "a dead letter")
        self.assertEqual(line.split(":::")[:3], ["1", dead, "x"])
        self.assertTrue([name for name, number in self.counts().items() if "dead" in name and number])


class ExpiryTests(SocketCase):
    """``--queue-expiry``."""

    place = Place("--queue-expiry", "0.1")

    def test_queueWithoutConsumerGoes(self) -> None:
        """Its topic has no queue any more."""
        self.mini().produce(self.topic, "1", "x")
        asking = self.flexi()

        def isGone() -> bool:
            rows = asking.ask("/broker/topics", {"after": self.topic[:-1], "limit": 1})["topics"]
            return not [row for row in rows if row["topic"] == self.topic and row["queued"] is not None]

        self.eventually(isGone, "the queue to expire")
