"""Brokers that exchange volatile messages, on a mesh in memory and on real servers."""

import tempfile
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgpack
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.client.blocking import Client, connect
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.fleximq.forms import FLEXI_FORM, FlexiSource
from fleximq.dialects.identity.form import IDENTITY_FORM
from fleximq.errors import NoCapacity
from fleximq.interfaces import IForm, ISubscriber
from fleximq.services.mesh_direct import RemoteClient
from fleximq.services.mesh_node import AHEAD, REMOTE_FORM, SETTLING, Membership, MeshNode
from fleximq.services.meshed_broker import MeshedBroker
from fleximq.values.header_pairs import SENDER
from fleximq.values.message import Content, Message
from fleximq.wire.fleximq_frame import encodeFrame
from fleximq.wire.fleximq_header import MessageType, checkHeader, packHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES
from tests.broker.parts import AsMessages, Collector, ask, makeBroker
from tests.broker_process import BrokerProcess
from tests.cluster.memory import MemoryCluster, MemoryLink, MemoryServers
from tests.cluster.nats.servers import MISSING, Servers
from tests.wire.flexi_frames import cut


class Frames(Collector):
    """A subscriber that gets frames."""

    def __init__(self) -> None:
        super().__init__()
        self.form = FLEXI_FORM  # type: ignore[assignment]
        self.frames: list[bytes] = []

    def deliver(self, rendered: Any, count: int) -> None:
        """Receive frames."""
        self.frames.append(bytes(rendered))


class MeshCase(SynchronousTestCase):
    """Three brokers on a mesh in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, Random(1))
        self.brokers: list[Any] = [self.meshedBroker(name) for name in "abc"]
        self.nodes: list[MeshNode] = [broker.node for broker in self.brokers]
        for node in self.nodes:
            node.start()
        self.pass_(SETTLING + 0.1)
        self.a, self.b, self.c = self.brokers

    def meshedBroker(self, name: str) -> Broker:
        """Return the broker of a node."""
        link, cluster = MemoryLink(self.servers, name), MemoryCluster(self.servers, name, self.clock)
        turn = WriteTurn(self.clock)
        member = Membership(turn, link, name, "1", self.clock, cluster.nextBlock, lambda: "a owns it")
        return makeBroker(self.clock, make=partial(MeshedBroker, member))

    def pass_(self, seconds: float = 0.1) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def collect(self, broker: Any, *patterns: str, collector: Any = None) -> Any:
        """Return a subscriber to these patterns."""
        found = Collector() if collector is None else collector
        client = broker.join("fleximq", found)
        for pattern in patterns:
            broker.subscribe(client, found, pattern)
        self.pass_()
        return found

    def publish(self, broker: Any, topic: str, *words: str) -> Any:
        """Publish texts; return the publisher."""
        me = broker.join("minimq")
        body = [Message(word.encode(), Content.TEXT, 1, f"id {word}") for word in words]
        broker.publish(Envelope(broker.topicFor(me, topic), me, MessageSource()), body, len(body))
        self.pass_()
        return me


class MeshedBrokerTests(MeshCase):
    """MeshedBroker."""

    def test_interfaces(self) -> None:
        """A remote node is a subscriber with a form."""
        self.collect(self.b, "t")
        verifyObject(ISubscriber, self.nodes[0]._remotes["b"])
        verifyObject(IForm, REMOTE_FORM)

    def test_paused(self) -> None:
        """A client that pauses its publisher pauses those at another node, by way of the confirmations to that."""
        node, paused = self.nodes[1], []

        class Slow(Collector):
            """A client with a full backlog."""

            def deliver(self, rendered: Any, count: int) -> None:
                """Pause the publisher."""
                reader: Any = node._turn.reader
                reader.readPauses.pause("full")
                paused.append(reader.readPauses)

        self.collect(self.b, "t", collector=Slow())
        self.publish(self.a, "t", "one")
        peer = self.nodes[0].mesh.peers["b"]
        self.pass_(3)
        self.assertTrue(peer.packets)
        paused[0].resume("full")
        self.pass_()
        self.assertFalse(peer.packets)

    def test_ids(self) -> None:
        """No two nodes give an id, also not after a thousand clients. Blocks for thousands at once are fetched in
        advance; without a block clients are refused.
        """
        ids = [broker.join("fleximq").id for broker in self.brokers]
        self.assertEqual(len({id // 1000 for id in ids}), 3)
        for _ in range(1999):
            ids.append(self.a.join("fleximq").id)
            self.pass_(0.01)
        self.assertEqual(len(set(ids)), 2002)
        self.pass_(1)
        self.servers.faults.unavailable.add("keys")
        ids += [self.a.join("fleximq").id for _ in range(AHEAD * 1000)]
        self.assertEqual(len(set(ids)), 2002 + AHEAD * 1000)
        with self.assertRaises(NoCapacity):
            for _ in range(1001):
                self.a.join("fleximq")
        self.servers.heal()
        self.pass_(4)
        self.assertNotIn(self.a.join("fleximq").id, ids)

    def test_firstIds(self) -> None:
        """A node that has just started waits for them, at most until the cluster answers again."""
        self.servers.faults.unavailable.add("keys")
        node: Any = self.meshedBroker("d").node  # type: ignore[attr-defined]
        ready: list[int] = []
        node.ids.whenFetched(lambda: ready.append(node.ids.next()))
        node.start()
        self.pass_(1)
        self.assertEqual(ready, [])
        self.servers.heal()
        self.pass_(4)
        self.assertEqual(len(ready), 1)
        node.ids.whenFetched(lambda: ready.append(node.ids.next()))
        self.assertEqual(len(ready), 2)

    def test_messages(self) -> None:
        """Messages arrive with content, ids and publisher, once however many patterns match, and go no further."""
        got = self.collect(self.b, "t.*", "t.#", "t.x")
        alone = self.collect(self.c, "u")
        self.publish(self.a, "t.x", "one", "two")
        texts = [(each.payload, each.content, each.message_id) for each in got.messages]
        self.assertEqual(texts, [(b"one", Content.TEXT, "id one"), (b"two", Content.TEXT, "id two")])
        self.assertEqual((got.counts, alone.messages), ([2], []))
        local = self.collect(self.a, "t.x")
        self.publish(self.a, "t.x", "three")
        self.assertEqual((len(local.messages), len(got.messages)), (1, 3))

    def test_senders(self) -> None:
        """Other nodes learn the principal of a publisher too, in FlexiMQ and in Identity."""
        got, texts = self.collect(self.b, "t", collector=Frames()), Frames()
        texts.form = IDENTITY_FORM  # type: ignore[assignment]
        self.collect(self.b, "t", collector=texts)
        me = self.a.join("minimq")
        me.sender = "alice"
        self.a.publish(Envelope(self.a.topicFor(me, "t"), me, MessageSource()), [Message(b"x", Content.TEXT)], 1)
        self.pass_()
        (frame,) = cut(b"".join(got.frames))
        self.assertEqual((frame.sender, frame.header), (me.id, {"topic": "t", SENDER: "alice"}))
        self.assertIn(b"MSG:t:alice:x", texts.frames[0])

    def test_sendersOfFrames(self) -> None:
        """In Identity the principal is also the sender of what a FlexiMQ client publishes at another node."""
        texts = Frames()
        texts.form = IDENTITY_FORM  # type: ignore[assignment]
        self.collect(self.b, "t", collector=texts)
        me = self.a.join("fleximq")
        me.sender = "alice"
        header = packHeader({"topic": "t", SENDER: "alice"})
        source = FlexiSource(FIXED_BYTES + len(header), checkHeader(MessageType.PUB, msgpack.unpackb(header)))
        frame = encodeFrame(MessageType.PUB, me.id, header, b"\xa1x")
        self.a.publish(Envelope(self.a.topicFor(me, "t"), me, source), memoryview(frame), 1)
        self.pass_()
        self.assertIn(b"MSG:t:alice:x", texts.frames[0])

    def test_frames(self) -> None:
        """Frames of FlexiMQ arrive unchanged, and as messages for other dialects."""
        got = self.collect(self.b, "t", collector=Frames())
        messages = self.collect(self.b, "t", collector=Collector(AsMessages()))
        me = self.a.join("fleximq")
        header = packHeader({"topic": "t", "correlation_id": "c"})
        frames = b"".join(encodeFrame(MessageType.PUB, me.id, header, payload) for payload in (b"\x01", b"\x02"))
        head = FIXED_BYTES + len(header)
        fields = checkHeader(MessageType.PUB, msgpack.unpackb(header))
        envelope = Envelope(self.a.topicFor(me, "t"), me, FlexiSource(head, fields))
        for _ in range(2):
            self.a.publish(envelope, memoryview(frames), 2)
        self.pass_()
        self.assertEqual(b"".join(got.frames), frames * 2)
        self.assertEqual([(each.payload, each.correlation_id) for each in messages.messages[:1]], [(b"\x01", "c")])
        known = next(iter(self.nodes[1]._known.values())).publisher
        self.assertEqual((type(known), known.id, known.name), (RemoteClient, me.id, me.name))

    def test_system(self) -> None:
        """Events of other nodes arrive too."""
        got = self.collect(self.b, "$sys/clients/joined")
        self.a.join("minimq")
        self.pass_()
        self.assertEqual([msgpack.unpackb(each.payload)["dialect"] for each in got.messages], ["minimq"])

    def test_ends(self) -> None:
        """Nothing is sent after the last subscription, nor to a node that has left."""
        me = self.b.join("fleximq")
        got = Collector()
        self.b.subscribe(me, got, "t")
        self.b.subscribe(me, got, "p.#")
        self.pass_()
        self.assertTrue(self.a.topics.hasSubscribers("t") and self.a.topics.hasSubscribers("p.x"))
        self.b.leave(me, "test")
        self.pass_()
        self.assertFalse(self.a.topics.hasSubscribers("t") or self.a.topics.hasSubscribers("p.x"))
        self.collect(self.b, "t", "/".join("x" * 200))
        self.assertTrue(self.a.topics.hasSubscribers("/".join("x" * 200)))
        self.nodes[1].stop()
        self.pass_()
        self.assertFalse(self.a.topics.hasSubscribers("t") or self.a.topics.hasSubscribers("/".join("x" * 200)))
        self.assertEqual(self.a.channels(), [])

    def test_channels(self) -> None:
        """Channels are the topics with subscribers at any node."""
        self.collect(self.a, "b")
        got = Collector()
        me = self.b.join("identity")
        for name in ("a", "b", "p.*"):
            self.b.subscribe(me, got, name)
        self.pass_()
        self.assertEqual(self.a.channels(), ["a", "b"])
        self.assertIs(self.a.channels(), self.a.channels())
        self.b.leave(me, "test")
        self.pass_()
        self.assertEqual(self.a.channels(), ["b"])

    def test_durableQueue(self) -> None:
        """A topic with a durable queue at one node is durable at all of them."""
        queue = Collector()
        self.a.topics.subscribe(queue, "q", queue=True, durable=True)
        self.pass_()
        self.assertTrue(self.b.topics.get("q").durable)
        other = Collector()
        self.a.topics.subscribe(other, "q")
        self.pass_()
        self.a.topics.unsubscribe(other, "q")
        self.pass_()
        self.assertTrue(self.b.topics.get("q").durable)
        self.a.topics.unsubscribe(queue, "q", queue=True)
        self.pass_()
        self.assertFalse(self.b.topics.get("q").durable)

    def test_barrier(self) -> None:
        """A client that waits for its publications waits until the other nodes know its subscriptions."""
        me = self.b.join("fleximq")
        self.assertTrue(self.b.arePublicationsDecided(me))
        self.b.subscribe(me, Collector(), "t")
        done: list[bool] = []
        self.assertFalse(self.b.arePublicationsDecided(me))
        self.b.whenCommitted(lambda: done.append(self.a.topics.hasSubscribers("t")), me)
        self.assertEqual(done, [])
        self.pass_()
        self.assertEqual((done, self.b.arePublicationsDecided(me)), ([True], True))

    def test_announced(self) -> None:
        """An announced topic is known to the other nodes, and only while somebody subscribes to it."""
        found: list[bool] = []
        for node in (self.b, self.c):
            node.announce("t", lambda: found.append(self.a.topics.hasSubscribers("t")))
        self.assertEqual(found, [])
        self.pass_()
        self.assertEqual((found, self.a.topics.hasSubscribers("t")), ([True, True], False))

    def test_refuses(self) -> None:
        """What needs the journal is refused with the owner's name, until this node owns it."""
        me = self.b.join("fleximq")
        refused = [
            lambda: self.b.consume(me, "q"),
            lambda: ask(self.b, me, "/sink/commit", None, print),
            lambda: ask(self.b, me, "/broker/queues", None, print),
        ]
        for each in refused:
            self.assertEqual(str(self.assertRaises(NoCapacity, each)), "a owns it")
        answers: list[Any] = []
        ask(self.b, me, "/broker/about", None, answers.append)
        self.assertEqual(len(answers), 1)
        self.nodes[1].own()
        ask(self.b, me, "/broker/queues", None, answers.append)
        self.assertEqual(len(answers), 2)

    def test_lost(self) -> None:
        """Messages that were lost between nodes are counted."""
        self.collect(self.b, "t")
        self.publish(self.a, "t", "one")
        self.servers.cutIn.add("b")
        self.publish(self.a, "t", "two")
        self.servers.cutIn.clear()
        self.publish(self.a, "t", "three")
        self.assertEqual(self.b.counts.events["dropped: lost between nodes"], 1)


class RealTests(SynchronousTestCase):
    """Two brokers on a real server."""

    if MISSING:
        skip = MISSING

    def test_subscribed(self) -> None:
        """A confirmed subscription misses nothing that is published at another node; a node that takes over the journal
        serves the same connections, if they did not need the owner before.
        """
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        brokers = [self.broker(servers, name) for name in "ab"]
        for each in brokers:
            each.start()
            self.addCleanup(each.stop)
        clients: list[Client] = []
        for each in brokers:
            each.waitFor(lambda: "serves its clients itself" in each.output, "its mesh")  # noqa: B023
            each.waitFor(lambda: any("this node owns" in one.output for one in brokers), "an owner")
            clients.append(
                connect(f"tcp://{each.address[0]}:{each.address[1]}", timeout=30, name="squares" * (not clients))
            )
            self.addCleanup(clients[-1].close)
        first, second = clients
        for number in range(50):
            with first.subscribe(f"t.{number}") as got:
                first.flush()
                second.publish(f"t.{number}", number)
                second.flush()
                message = got.next(timeout=300)
                self.assertIsNotNone(message, number)
        self.checkDirect(first, second)
        owner = next(each for each in brokers if "this node owns" in each.output)
        other = clients[1 - brokers.index(owner)]
        own = clients[brokers.index(owner)]
        live = other.subscribe("d")
        other.flush()
        for number in range(3):
            own.publish("d", number)
        own.flush()
        host, port = brokers[1 - brokers.index(owner)].address
        reader = connect(f"tcp://{host}:{port}", timeout=30)
        self.addCleanup(reader.close)
        replayed = reader.subscribe("#", from_="first")
        for got in (live, replayed):
            found = [got.next(timeout=300) for _ in range(3)]
            self.assertEqual([message and message.value for message in found], [0, 1, 2])
        # The next owner serves the same connection.
        before = other.id
        brokers.remove(owner)
        owner.stop()
        brokers[0].waitFor(lambda: "this node owns" in brokers[0].output, "the next owner")
        with other.subscribe("d") as got:
            other.publish("d", 2)
            other.flush()
            self.assertIsNotNone(got.next(timeout=300))
        self.assertEqual(other.id, before)

    def checkDirect(self, first: Client, second: Client) -> None:
        """Check direct messages between clients of two nodes, by id and by name, and listings of both."""
        first.serve("square", lambda request: request.value**2)
        first.flush()
        self.assertEqual(second.request(first.id, "square", 7), 49)
        self.assertEqual([second.request("squares", "square", number) for number in range(3)], [0, 1, 4])
        told = first.notifications()
        second.notify("squares", "/hi", "you")
        second.broadcast("all")
        self.assertEqual(
            [each and each.value for each in (told.next(timeout=300), told.next(timeout=5))], ["you", "all"]
        )
        found = second.ask("/broker/clients")
        self.assertEqual({row["client_id"] for row in found["clients"]}, {first.id, second.id})
        self.assertEqual(({row["node"] for row in found["clients"]}, found["missing"]), ({"a", "b"}, []))

    def broker(self, servers: Servers, name: str) -> BrokerProcess:
        """Return a node that is not started yet."""
        folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        words = ["--cluster", servers.urls[0], "--node", name, "--mesh", "--durable", "d", "--cluster-bytes", "64MiB"]
        words += ["--listen", "fleximq+tcp:0:interface=127.0.0.1", "--allow-anonymous", "--cluster-wait", "60"]
        return BrokerProcess(*words, "--journal", f"{folder}/journal")


class OwnersPagesTests(MeshCase):
    """Pages of the API about the journal's state."""

    def test_othersRefuse(self) -> None:
        """Nodes that do not own the journal refuse them; the owner, and all nodes for clients and topics, do not."""
        self.a.node.own()
        for path in ("/broker/queues/detail", "/broker/dead-letters", "/broker/schedules", "/broker/values"):
            self.a.checkPath(path)
            with self.assertRaisesRegex(NoCapacity, "a owns it"):
                self.b.checkPath(path)
        self.b.checkPath("/broker/clients")
