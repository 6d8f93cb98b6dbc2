"""How many calls and files a message takes inside fleximq, from a read to the write of its result.

``python -m tests.run tests.dialects.test_way`` prints the ways. The limits are those of pure Python; the compiled core
takes fewer calls.
"""

import struct
from collections.abc import Callable
from typing import Any

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.identity_ws import IdentityFactory
from tests.dialects.blipmq.case import ack, auth, hello, poll, publish, subscribe
from tests.dialects.conversations import ConversationCase, Peer, makeContext
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.dialects.way import Way
from tests.dialects.websocket_peer import WebSocketPeer
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder


def way(title: str, receiver: Peer, act: Callable[[], Any]) -> Way:
    """Return the calls from the start of ``act`` to the first write to the receiver's transport; print them."""
    recorded = Way()
    transport = receiver.transport
    written = {name: getattr(transport, name) for name in ("write", "writeSequence")}

    def ending(name: str) -> Callable[[Any], None]:
        def write(data: Any) -> None:
            recorded.end()
            written[name](data)

        return write

    for name in written:
        setattr(transport, name, ending(name))
    with recorded:
        act()
    for name, method in written.items():
        setattr(transport, name, method)
    print(f"\n{title}: {recorded}")
    return recorded


class WayCase(ConversationCase):
    """A case with limits."""

    def step(self, act: Callable[[], Any]) -> Callable[[], None]:
        """Return a function that acts and lets the turn of the reactor end."""

        def stepped() -> None:
            act()
            self.clock.advance(0)

        return stepped

    def assertWay(self, way: Way, calls: int, files: int, moves: int) -> None:
        """Check upper limits."""
        measured = len(way.calls), len(way.files), way.moves
        if any(one > limit for one, limit in zip(measured, (calls, files, moves), strict=True)):
            raise AssertionError(way)


class FlexiWayTests(WayCase, FlexiCase):
    """FlexiMQ clients that joined without a header, so that the first message tells the layout."""

    def publishing(self, title: str, publisher: FlexiPeer, subscriber: FlexiPeer, *more: Callable[[], Any]) -> Way:
        """Publish once, and return the way to the subscriber."""

        def act() -> None:
            publisher.publish("news", "hello")
            for call in more:
                call()
            self.clock.advance(0)

        result = way(title, subscriber, act)
        self.assertEqual(subscriber.values(), ["hello"])
        return result

    def test_aVolatilePublicationTakesFewCalls(self) -> None:
        """The first PUB of a topic needs its header read and its routes found, a repeated one neither."""
        subscriber, publisher = self.server.join(), self.server.join()
        subscriber.subscribe("news")
        self.assertWay(self.publishing("first PUB", publisher, subscriber), 43, 20, 56)
        self.assertWay(self.publishing("repeated PUB", publisher, subscriber), 12, 5, 12)

    def test_aDurablePublicationTakesFewCalls(self) -> None:
        """A repeated PUB to a durable topic passes the journal's writer and returns."""
        disk = Recorder()
        disk.makeFolder("/disk")
        journal = JournalAtOnce(disk)
        self.server = self.makeServer(journal=journal, durable=("news",))
        journal.open(self.server.broker.checkpointer)
        journal.begin()
        subscriber, publisher = self.server.join(), self.server.join()
        subscriber.subscribe("news")
        self.publishing("first durable PUB", publisher, subscriber, journal.worker.drain)
        repeated = self.publishing("repeated durable PUB", publisher, subscriber, journal.worker.drain)
        self.assertWay(repeated, 67, 18, 72)

    def settling(self, jobs: int) -> Way:
        """Settle so many jobs at once, and return the way to the next ones, as many."""
        name = f"jobs-{jobs}"
        worker, producer = self.server.join(), self.server.join()
        worker.tell("SUB", {"topic": name, "queue": True, "prefetch": jobs})
        for _ in range(3 * jobs):
            producer.publish(name, "job", queue=True)

        def settle() -> None:
            tags = [heard.header["delivery"]["tag"] for heard in worker.messages()]
            self.assertEqual(len(tags), jobs)
            header = {"routing": [{"client_id": 1, "path": "/queue/settle"}]}
            worker.tell("NOTIF", header, {"queue": name, "ack": tags})

        settle()
        return way(f"{jobs} jobs", worker, self.step(settle))

    def test_settlingAndDeliveringJobsTakesFewCalls(self) -> None:
        """Many jobs at once take no more calls than a single one, but for what is done once for many."""
        one, many = self.settling(1), self.settling(200)
        self.assertWay(one, 72, 24, 100)
        self.assertLess(len(many.calls), len(one.calls) + 10)

    def test_aRequestByNameTakesFewCalls(self) -> None:
        """A REQ to a client's name, from its bytes to the write to the service."""
        client, service = self.server.join(), self.server.join({"client_name": "svc"})

        def ask(id: str) -> Callable[[], None]:
            header = {"routing": [{"client_name": "svc", "path": "/add"}], "reqrep": {"type": "request", "id": id}}
            return self.step(lambda: client.tell("REQ", header, 1))

        self.assertWay(way("first REQ", service, ask("0001")), 49, 17, 54)
        [heard] = service.messages()
        self.assertEqual(heard.kind, "REQ")
        self.assertWay(way("second REQ", service, ask("0002")), 20, 10, 24)


class BlipWayTests(WayCase):
    """A subscriber that polls."""

    def test_aPollAndAnAckTakeFewCalls(self) -> None:
        """POLL is answered with a message; ACK removes it without an answer."""
        factory = BlipFactory(makeContext(self.clock))
        peer, publisher = self.connect(factory), self.connect(factory)
        for each in peer, publisher:
            each.ask(hello() + auth())
        id = int.from_bytes(peer.ask(subscribe("news"))[-8:], "big")
        for number in range(3):
            publisher.ask(publish("news", b"%d" % number, correlation=number))

        def step(frame: bytes) -> Callable[[], None]:
            return self.step(lambda: peer.say(frame))

        self.assertWay(way("first POLL", peer, step(poll(id))), 36, 14, 33)
        tag = _correlation(peer.heard())
        step(ack(tag, id))()
        self.assertWay(way("POLL", peer, step(poll(id))), 26, 12, 29)
        tag = _correlation(peer.heard())
        self.assertWay(way("ACK", peer, step(ack(tag, id))), 18, 10, 22)
        self.assertEqual(peer.heard(), b"")


class IdentityWayTests(WayCase):
    """Two clients on WebSockets."""

    def test_aPublishTakesFewCalls(self) -> None:
        """A repeated PUBLISH of one client to the subscriber of its channel."""
        factory = IdentityFactory(makeContext(self.clock))
        subscriber, publisher = WebSocketPeer(factory).upgrade(), WebSocketPeer(factory).upgrade()
        for each in subscriber, publisher:
            each.askText("SUBSCRIBE:news")

        act = self.step(lambda: publisher.sayText("PUBLISH:news:hello"))
        act()
        self.assertEqual(len(subscriber.texts()), 1)
        self.assertWay(way("PUBLISH", subscriber, act), 34, 14, 50)
        self.assertEqual(len(subscriber.texts()), 1)


def _correlation(frame: bytes) -> int:
    """Return the correlation id of a BlipMQ frame."""
    (correlation,) = struct.unpack_from(">Q", frame, 5)
    return int(correlation)
