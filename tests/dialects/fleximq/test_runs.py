"""FlexiMQ publications that arrive together: whoever takes what, it is as if they had come one by one."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.limits import Limits
from tests.broker.parts import Collector
from tests.dialects.flexi_peer import FlexiCase, FlexiServer
from tests.wire.flexi_frames import cut, frame

#: Who takes which topics: FlexiMQ clients by number, a client of another dialect, a subscription that is polled.
TOPICS: dict[str, list[int | str]] = {
    "one": [0],
    "two": [1],
    "both": [0, 1],
    "same": [0, 1],
    "other": ["collector"],
    "mixed": [0, "collector"],
    "polled": [0, "polled"],
    "none": [],
    "own": ["self"],
    "a.b": [],
    "a.c": [0],
    "long" * 10: [0],
    "$sys/x": [],
}
PATTERNS = {1: "a.*"}


class Everybody:
    """A broker with one of each kind of subscriber, and a publisher whose envelopes are known.

    ``crowded``: as if it had used more envelopes than are remembered.
    """

    def __init__(self, warm: bool, crowded: bool = False) -> None:
        self.server = FlexiServer(Clock(), limits=Limits(message=4096))
        broker = self.server.broker
        self.takers = [self.server.join(), self.server.join()]
        self.publisher = self.server.join()
        self.collector = Collector()
        stranger = self.server.foreign()
        self.polling = self.server.foreign("blipmq")
        for topic, takers in TOPICS.items():
            for taker in takers:
                if taker == "collector":
                    broker.subscribe(stranger, self.collector, topic)
                elif taker == "polled":
                    self.subscription = broker.openSubscription(self.polling, None, topic, 1)
                elif taker == "self":
                    self.publisher.subscribe(topic)
                else:
                    self.takers[int(taker)].subscribe(topic)
        for taker, pattern in PATTERNS.items():
            self.takers[taker].subscribe(pattern)
        if warm:
            for _ in range(2):
                for topic in TOPICS:
                    self.publisher.send("PUB", {"topic": topic})
        if crowded:
            envelopes = self.publisher.protocol.session.reads.envelopes
            envelopes.clear()
            envelopes.hasDropped = True
        self.outcome()

    def outcome(self) -> tuple[Any, ...]:
        """Return all that anybody got since the last time, and what was counted."""
        broker = self.server.broker
        _, polled = broker.subscription(self.polling, None, self.subscription.id).poll(self.polling, 10_000)
        payloads = self.collector.payloads()
        self.collector.messages.clear()
        return (
            [taker.heard() for taker in self.takers],
            self.publisher.heard(),
            self.publisher.closed,
            payloads,
            [message.payload for message in polled],
            {topic.name: topic.published for topic in broker.topics},
        )


def said(steps: list[tuple[str, int]]) -> list[bytes]:
    """Return frames: PUBs to topics, or, by their names, something else."""
    id = 1002
    routing = [{"client_id": 1000, "path": ""}]
    others = {
        "PING": frame("PING", id, {"keepalive": {"timestamp": 1}}),
        "wrong": frame("PUB", id, {"topic": ""}),
        "narrowed": frame("PUB", id, {"topic": "both", "routing": routing}, b"\x01"),
        "new": frame("PUB", id, {"topic": "new"}),
        "wide": frame("PUB", id, b"\x81\xa5topic\xda\x00\x03one", b"\x03"),
        "wider": frame("PUB", id, b"\x81\xa5topic\xd9\x03one", b"\x04"),
        "cut": frame("PUB", id, b"\x81\xa5topic\xd9"),
        "nameless": frame("PUB", id, b"\x81\xa5topic"),
        "number": frame("PUB", id, {"topic": 1}),
        "noText": frame("PUB", id, b"\x81\xa5topic\xa1\xff"),
        "more": frame("PUB", id, {"topic": "one", "x": 1}, b"\x05"),
        "marked": frame("PUB", id, {"topic": "both"}, b"\x02", reserved=b"x" * 16),
        "NOTIF": frame("NOTIF", id, {"routing": routing}),
        "BCAST": frame("BCAST", id),
        "UNSUB": frame("UNSUB", id, {"topic": "own"}),
        "SUB": frame("SUB", id, {"topic": "own"}),
        "join it": frame("SUB", id, {"topic": "one"}),
        "leave it": frame("UNSUB", id, {"topic": "one"}),
        "large": frame("PUB", id, {"topic": "both"}, bytes(5000)),
        "version": frame("PUB", id, {"topic": "both"}, version=2),
    }
    return [others.get(what) or frame("PUB", id, {"topic": what}, bytes((number,))) for what, number in steps]


PUBLICATIONS = st.tuples(st.sampled_from(list(TOPICS)), st.integers(0, 127))
OTHERS = [
    "PING", "wrong", "narrowed", "marked", "NOTIF", "BCAST", "UNSUB", "SUB", "join it", "leave it",
    "new", "wide", "wider", "cut", "nameless", "number", "noText", "more",
]  # fmt: skip
ENDS = [[], [("large", 0)], [("version", 0)]]


class TogetherTests(SynchronousTestCase):
    """In one read, and each in a read of its own."""

    def check(self, steps: list[tuple[str, int]], warm: bool = True) -> tuple[Any, ...]:
        """Check that both lead to the same, and return it."""
        together, apart, crowded = Everybody(warm), Everybody(warm), Everybody(warm, crowded=True)
        frames = said(steps)
        together.publisher.protocol.dataReceived(b"".join(frames))
        for each in frames:
            apart.publisher.protocol.dataReceived(each)
        crowded.publisher.protocol.dataReceived(b"".join(frames))
        outcome = together.outcome()
        self.assertEqual(outcome, apart.outcome())
        self.assertEqual(outcome, crowded.outcome())
        return outcome

    def test_everyPair(self) -> None:
        """Any two topics one behind the other, once and several times."""
        for first in TOPICS:
            for second in TOPICS:
                self.check([(first, 1), (second, 2), (first, 3), (first, 4), (second, 5)])

    def test_whoGetsWhat(self) -> None:
        """Different takers get their own only."""
        (one, two), *_ = self.check([("one", 1), ("two", 2), ("both", 3), ("same", 4), ("one", 5), ("none", 6)])
        self.assertEqual([each.payload for each in cut(one)], [b"\x01", b"\x03", b"\x04", b"\x05"])
        self.assertEqual([each.payload for each in cut(two)], [b"\x02", b"\x03", b"\x04"])

    def test_beforeTheEnd(self) -> None:
        """What stood before a frame that ends the connection is delivered."""
        for end in ("large", "version"):
            (one, two), own, closed, *_ = self.check([("both", 1), ("same", 2), (end, 0)])
            self.assertEqual([each.payload for each in cut(one)], [b"\x01", b"\x02"])
            self.assertEqual((one, len(cut(own)), closed), (two, 1, True))

    def test_counted(self) -> None:
        """Every message is counted for its topic."""
        before = Everybody(True).outcome()[-1]
        after = self.check([("both", 1), ("same", 2), ("both", 3), ("both", 4), ("none", 5)])[-1]
        self.assertEqual(
            {name: after[name] - before[name] for name in ("both", "same", "none")}, {"both": 3, "same": 1, "none": 1}
        )

    def test_order(self) -> None:
        """A publisher's own copies and answers come in the order in which it spoke."""
        *_, own, _, _, _, _ = self.check([("own", 1), ("PING", 0), ("own", 2), ("wrong", 0), ("own", 3)])
        self.assertEqual([each.kind for each in cut(own)], ["PUB", "PONG", "PUB", "REP", "PUB"])

    @settings(deadline=None)
    @given(
        st.lists(st.one_of(PUBLICATIONS, PUBLICATIONS, st.tuples(st.sampled_from(OTHERS), st.just(0))), max_size=30),
        st.sampled_from(ENDS),
        st.booleans(),
    )
    def test_anything(self, steps: list[tuple[str, int]], end: list[tuple[str, int]], warm: bool) -> None:
        """Any publications with any other messages between them."""
        self.check([*steps, *end], warm)


class DeliveredTests(FlexiCase):
    """How many messages an outbox is told of."""

    def test_count(self) -> None:
        """Runs that were put together count all their messages."""
        bob, alice = self.server.join().subscribe("t", "u"), self.server.join()
        for _ in range(2):
            alice.publish("t").publish("u")
        told: list[int] = []
        deliver = bob.protocol.session.deliver
        session = bob.protocol.session

        def spy(chunk: bytes, count: int = 1) -> None:
            told.append(count)
            deliver(chunk, count)

        session.deliver = spy
        bob.subscribe("v")
        for topic in ("t", "u"):
            bob.tell("UNSUB", {"topic": topic}).subscribe(topic)
        bob.messages()
        one, two = (frame("PUB", alice.id, {"topic": topic}, b"\x01") for topic in "tu")
        alice.publish("t").publish("u")
        told.clear()
        alice.say(one * 3 + two * 2 + one)
        self.assertEqual(sum(told), 6)


class SlowTests(FlexiCase):
    """A delivery that is too much for a subscriber."""

    def test_nextTopic(self) -> None:
        """The next run of the read, to a topic with the same subscriber and another one, reaches the other one."""
        self.server = self.makeServer(limits=Limits(outboxBytes=1000))
        slow, other, publisher = (self.server.join() for _ in range(3))
        slow.subscribe("t", "u")
        other.subscribe("u")
        for topic in ("t", "u", "t", "u"):
            publisher.publish(topic, 0)
        slow.messages(), other.messages()
        slow.producer.pauseProducing()
        many = [frame("PUB", publisher.id, {"topic": "t"}, bytes((7,))) * 100]
        publisher.say(b"".join([*many, frame("PUB", publisher.id, {"topic": "u"}, bytes((8,)))]))
        self.assertTrue(slow.protocol.session.reason)
        self.assertEqual(other.values(), [8])
        self.assertEqual(self.server.broker.topics.get("u").published, 3)
