"""A client at a node of a mesh that does not own the journal, and the owner that serves its queues."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import BROKER_ID
from fleximq.broker.paths.settlement import SETTLE
from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq.delegate import Delegate, buildDelegate
from fleximq.journal.broker_journal import ClosedJournal
from fleximq.rights import EVERYTHING
from fleximq.security.permissions import Rights
from fleximq.security.principal import Principal
from fleximq.services.mesh_node import Membership
from fleximq.services.meshed_broker import MeshedBroker
from tests.broker.parts import Collector, makeBroker
from tests.cluster.memory import MemoryCluster, MemoryLink
from tests.dialects.admissions import Everybody, FakeAdmission
from tests.dialects.conversations import HERE
from tests.dialects.flexi_peer import FlexiPeer
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder
from tests.services.test_meshed_broker import MeshCase
from tests.wire.flexi_frames import Heard
from tests.wire.flexi_variants import LAYOUT_B

TO_SETTLE = {"routing": [{"client_id": BROKER_ID, "path": SETTLE}]}


class Link:
    """Connects a client's link with the owner's session; its description has been JSON."""

    def __init__(self, context: ListenerContext, description: Mapping[str, Any], transport: Any) -> None:
        self.transport, self.string = transport, StringTransport(lenient=True)
        self._session: Any = buildDelegate(context, Delegate.of(json.loads(json.dumps(description))), HERE)
        self.isOver = False
        transport.pauseProducing()

    def accept(self) -> None:
        """Answer as the owner."""
        self._session.makeConnection(self.string)
        self.transport.registerProducer(self, True)
        self.transport.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        """Pass messages of the client on."""
        self._session.dataReceived(data)

    def readConnectionLost(self) -> None:
        """Pass the end of the client's input on."""
        self._session.readConnectionLost()

    def connectionLost(self) -> None:
        """End both sides."""
        self.isOver = True
        if self._session.transport is not None:
            self._session.connectionLost(Failure(ConnectionDone()))

    def pauseProducing(self) -> None:
        """The client does not read."""
        self.string.pauseProducing()

    def resumeProducing(self) -> None:
        """The client reads again."""
        self.string.resumeProducing()

    def pass_(self) -> None:
        """Pass the owner's messages on."""
        data = self.string.value()
        self.string.clear()
        if data and not self.isOver:
            self.transport.write(data)
        if self.string.disconnecting and not self.isOver:
            self.transport.loseWriteConnection()


class OwnerLinkCase(MeshCase):
    """Node a owns the journal; the client is at node b."""

    admission: Any = Everybody()

    def setUp(self) -> None:
        self.links: list[Link] = []
        self.accepts = True
        self.journal = JournalAtOnce(Recorder())
        super().setUp()
        self.journal.open(self.a.checkpointer)
        self.journal.begin()
        self.nodes[0].own()
        self.contexts = [
            ListenerContext(broker, Settings(), self.clock, WriteTurn(self.clock), self.admission)
            for broker in self.brokers
        ]
        self.client = self.join()

    def meshedBroker(self, name: str) -> Broker:
        link, cluster = MemoryLink(self.servers, name), MemoryCluster(self.servers, name, self.clock)
        turn = WriteTurn(self.clock)
        words = turn, link, name, "1", self.clock, cluster.nextBlock, lambda: "a owns it", self.connectToOwner
        journal: Any = self.journal if name == "a" else ClosedJournal()
        return makeBroker(self.clock, journal, make=partial(MeshedBroker, Membership(*words)))

    def connectToOwner(self, description: Mapping[str, Any], transport: Any) -> None:
        """Connect a client of b to a."""
        transport.protocol = link = Link(self.contexts[0], description, transport)
        self.links.append(link)
        if self.accepts:
            link.accept()

    def join(self, header: Any = None, node: int = 1) -> FlexiPeer:
        """Return a client of a node."""
        peer = FlexiPeer(FlexiFactory(self.contexts[node]))
        peer.joinWith(header)
        self.pass_()
        peer.id = peer.messages()[0].sender
        return peer

    def pass_(self, seconds: float = 0.02) -> None:
        """Let time and messages pass, and commits be written."""
        for _ in range(3):
            super().pass_(seconds)
            while hasattr(self.journal, "worker") and self.journal.worker.step():
                pass
            for link in self.links:
                link.pass_()

    def heard(self, peer: FlexiPeer | None = None) -> list[Heard]:
        """Return what a client has heard, by default the one at b."""
        self.pass_()
        return (peer or self.client).messages()

    def ask(self, path: str, peer: FlexiPeer | None = None, **arguments: Any) -> Any:
        """Return the value of an answer to a client."""
        (peer or self.client).request(BROKER_ID, path, "r", arguments)
        [answer] = self.heard(peer)
        self.assertEqual((answer.kind, answer.header["reqrep"]["id"]), ("REP", "r"))
        return answer.value

    def enqueue(self, *values: Any, peer: FlexiPeer | None = None, **keys: Any) -> None:
        """Let a client publish values for workers."""
        for value in values:
            (peer or self.client).publish("jobs", value, queue=True, **keys)

    def consume(self, prefetch: int = 10) -> list[Heard]:
        """Let the client consume, and return what it hears."""
        self.client.tell("SUB", {"topic": "jobs", "queue": True, "prefetch": prefetch})
        return self.heard()

    def settle(self, **lists: Any) -> None:
        """Let the client settle."""
        self.client.tell("NOTIF", TO_SETTLE, {"queue": "jobs", **lists})


class OwnerLinkTests(OwnerLinkCase):
    """Messages that the owner serves."""

    def test_aJobIsEnqueuedDeliveredAndSettled(self) -> None:
        """By clients of a node that is not the owner; the PONG waits for the owner."""
        self.enqueue("one", "two", priority=3)
        self.client.ping()
        self.assertEqual([each.kind for each in self.client.messages()], [])
        self.assertEqual([each.kind for each in self.heard()], ["PONG"])
        one, two = self.consume()
        self.assertEqual(
            [(each.value, each.sender) for each in (one, two)], [("one", self.client.id), ("two", self.client.id)]
        )
        self.settle(ack=[one.header["delivery"]["tag"]], retry=[[two.header["delivery"]["tag"], 0]])
        self.client.ping()
        again, pong = self.heard()
        self.assertEqual((again.value, again.header["delivery"]["attempt"], pong.kind), ("two", 2, "PONG"))
        self.assertEqual(len(self.links), 1)

    def test_manyInOneReadArriveInOrder(self) -> None:
        """Also while the link is being made: the client is not read then."""
        self.accepts = False
        self.enqueue(*range(5))
        self.client.ping()
        self.assertTrue(self.client.paused)
        self.links[0].accept()
        self.assertFalse(self.client.paused)
        self.enqueue(*range(5, 10))
        self.assertEqual([each.kind for each in self.heard()], ["PONG"])
        self.assertEqual([each.value for each in self.consume()], list(range(10)))

    def test_requestsAreAnsweredByTheOwner(self) -> None:
        """Definitions, schedules, values, listings."""
        self.assertEqual(self.ask("/queue/define", queue="jobs", lease=5)["lease"], 5)
        self.enqueue("later", deliver_in=60_000)
        self.assertEqual(self.heard(), [])
        self.assertEqual([each["topic"] for each in self.ask("/schedule/list")["schedules"]], ["jobs"])
        self.assertTrue(self.ask("/value/put", key="k", value=b"v"))
        self.assertEqual([each["queue"] for each in self.ask("/queue/list")["queues"]], ["jobs"])

    def test_durablePublicationsAreStored(self) -> None:
        """To a topic that is durable, as the owner has a queue for it."""
        self.ask("/queue/define", queue="jobs")
        self.pass_()
        self.client.publish("jobs", "plain")
        self.client.ping()
        self.assertEqual([each.kind for each in self.heard()], ["PONG"])
        self.assertEqual([each.value for each in self.consume()], ["plain"])

    def test_errorsReachTheClient(self) -> None:
        """Before the PONG, with the owner's words."""
        self.ask("/queue/define", queue="jobs", max_messages=1, when_full="refuse")
        self.enqueue("one", "two")
        self.client.ping()
        error, pong = self.heard()
        self.assertEqual((error.kind, error.header["status"], pong.kind), ("REP", 500, "PONG"))
        self.assertIn("full", error.value)

    def test_aClientOfLayoutBReadsItsForm(self) -> None:
        """Deliveries and answers are written in the layout of the client."""
        self.client = FlexiPeer(FlexiFactory(self.contexts[1]))
        self.client.variant = LAYOUT_B
        self.client.join()
        self.enqueue("job")
        self.assertEqual([each.value for each in self.consume()], ["job"])
        self.assertEqual([each["queue"] for each in self.ask("/queue/list")["queues"]], ["jobs"])

    def test_unsubscribed(self) -> None:
        """A client that stops gives its deliveries back at once."""
        self.enqueue("one")
        self.consume()
        self.client.tell("UNSUB", {"topic": "jobs", "queue": True})
        self.heard()
        self.assertEqual(self.ask("/queue/list", self.join())["queues"][0]["in_flight"], 0)

    def test_volatileMessagesNeedNoOwner(self) -> None:
        got = self.collect(self.c, "t")
        self.client.publish("t", "hello")
        self.client.ping()
        self.pass_(0.1)
        self.assertEqual((len(got.messages), self.links), (1, []))

    def test_theNextOwnerServesItself(self) -> None:
        """A node that has become the owner needs no link."""
        self.brokers[1].node.own()
        self.client.tell("SUB", {"topic": "jobs", "queue": True})
        self.heard()
        self.assertEqual(self.links, [])


class LinkEndTests(OwnerLinkCase):
    """Ends of the client, of the owner, and of the link."""

    def inFlight(self) -> int:
        """Return the number of unsettled jobs, as the owner lists it."""
        [queue] = self.ask("/queue/list", self.join(node=0))["queues"]
        return int(queue["in_flight"])

    def test_lostClient(self) -> None:
        """Its deliveries go back to the queue."""
        self.enqueue("one")
        self.consume()
        self.assertEqual(self.inFlight(), 1)
        self.client.leave()
        self.pass_()
        self.assertEqual((self.inFlight(), self.links[0].isOver), (0, True))

    def test_endedInput(self) -> None:
        """A client that ends its input gets the last answers, and its deliveries go back."""
        self.enqueue("one")
        self.consume()
        self.client.request(BROKER_ID, "/queue/list", "r", {})
        self.client.endInput()
        self.assertFalse(self.client.closed)
        [answer] = self.heard()
        self.assertEqual((answer.header["reqrep"]["id"], self.client.closed), ("r", True))
        self.assertEqual(self.inFlight(), 0)

    def test_lostOwner(self) -> None:
        """Ends the client's connection, so that it connects again and consumes at the next owner."""
        self.enqueue("one")
        self.consume()
        self.links[0].transport.loseConnection()
        self.pass_()
        self.assertTrue(self.client.closed)

    def test_noOwner(self) -> None:
        """Ends it too, without a PONG: nothing was stored."""
        self.accepts = False
        self.enqueue("one")
        self.client.ping()
        self.links[0].transport.loseConnection()
        self.assertEqual((self.heard(), self.client.closed), ([], True))

    def test_slowClient(self) -> None:
        """While it does not read its output, the owner is not read either."""
        self.enqueue(*[bytes(600_000)] * 4)
        self.pass_()
        self.client.producer.pauseProducing()
        self.consume()
        self.assertEqual(self.links[0].string.producerState, "paused")
        self.client.producer.resumeProducing()
        self.pass_()
        self.assertEqual(self.links[0].string.producerState, "producing")


class AdmittedTests(OwnerLinkCase):
    """Clients with names and principals."""

    admission = FakeAdmission({None: Principal("ann", frozenset({"workers"}), {"consume": ("jobs",)}, expires=1e10)})

    def test_principal(self) -> None:
        """Has its name, roles and grants at the owner too."""
        self.enqueue("one")
        self.heard()
        [client] = [each for each in self.a.clients if each.id == self.client.id]
        self.assertEqual((client.identity, client.principal), (self.admission.known[None], "ann"))

    def test_rights(self) -> None:
        """Are those that the owner gives the principal now."""
        self.enqueue("one")
        self.heard()
        [client] = [each for each in self.a.clients if each.id == self.client.id]
        self.a.changeRights(client, Rights({}))
        self.assertEqual([each.header["status"] for each in self.consume()], [603])
        self.assertIs(self.b.clients.find(self.client.id).rights, EVERYTHING)

    def test_unknownPrincipal(self) -> None:
        """The owner refuses one that it does not know, and the client's connection ends."""
        self.contexts[0].admission = Everybody()
        self.enqueue("one")
        [error] = self.heard()
        self.assertEqual((error.header["status"], self.client.closed), (401, True))

    def test_dead(self) -> None:
        """A dead letter names the consumer as it has joined, and messages to its name still reach it."""
        self.client = self.join({"client_name": "worker"})
        self.enqueue("one")
        [job] = self.consume()
        self.settle(reject=[[job.header["delivery"]["tag"], "no"]])
        self.heard()
        other = self.join(node=0)
        [letter] = self.ask("/broker/dead-letters", other, topic="jobs", limit=1)["letters"]
        self.assertEqual(letter["consumer"], "worker")
        other.tell("NOTIF", {"routing": [{"client_name": "worker", "path": "/hi"}]}, "you")
        self.assertEqual([each.value for each in self.heard()], ["you"])
        self.client.leave()
        self.pass_(0.1)
        other.tell("NOTIF", {"routing": [{"client_name": "worker", "path": "/hi"}]}, "you")
        self.assertEqual([each.header["status"] for each in self.heard(other)], [600])

    def test_presence(self) -> None:
        """The client joins and leaves once, and is listed once."""
        got = self.collect(self.c, "$sys/clients/#", collector=Collector())
        self.client = self.join()
        self.enqueue("one")
        self.heard()
        rows = self.ask("/broker/clients", self.join(node=0))["clients"]
        self.assertEqual([row["client_id"] for row in rows].count(self.client.id), 1)
        self.client.leave()
        self.pass_(0.1)
        about = [each.payload for each in got.messages]
        number = self.client.id.to_bytes(2, "big")
        self.assertEqual(sum(number in each for each in about), 2)
