"""fleximq.services.mesh_direct: direct messages between brokers on a mesh in memory, and their common listings."""

from collections.abc import Callable
from typing import Any

import msgpack
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.paths import path_table
from fleximq.broker.presence import JOINED, LEFT
from fleximq.cluster.mesh import SILENCE
from fleximq.config.settings import Settings
from fleximq.errors import BadRequest, BrokerError, ClientNotFound, NotPermitted
from fleximq.interfaces import IBrokerObserver, IPeer
from fleximq.security.bans import Bans
from fleximq.security.permissions import Rights
from fleximq.services.mesh_direct import LISTING
from fleximq.services.operator import Operator
from fleximq.services.reload import Reload
from fleximq.values.message import Content, Message
from tests.broker.parts import Friend, ask
from tests.services.test_meshed_broker import MeshCase
from tests.web.api.test_api import Conversation


class DirectTests(MeshCase):
    """Three brokers, each with a client of its own: ``friends`` are their connections."""

    def setUp(self) -> None:
        super().setUp()
        self.friends = [Friend() for _ in "abc"]
        self.clients = [self.join(*each) for each in zip(self.brokers, self.friends, strict=True)]
        self.pass_()

    def join(self, broker: Any, friend: Friend, name: str = "") -> ConnectedClient:
        """Return a new client of a broker, which joined with this name."""
        client: ConnectedClient = broker.join("fleximq", friend)
        broker.rename(client, name)
        return client

    def test_interfaces(self) -> None:
        """The proxy of a client is a peer."""
        verifyObject(IPeer, self.a.clients.peers[self.clients[1].id][1])
        verifyObject(IBrokerObserver, self.nodes[0].direct)

    def test_request(self) -> None:
        """A request and its answer travel to another node and back, once; a late answer is a notification."""
        asking, serving, _ = self.clients
        self.a.request(asking, serving.id, "id", "/path", b"question")
        self.pass_()
        self.assertEqual((self.friends[1].told, self.a.openRequests(asking)), ([b"question"], 1))
        self.b.reply(serving, asking.id, "id", b"answer", "/path")
        self.pass_()
        self.assertEqual((self.friends[0].told, self.friends[0].done), ([b"answer"], 1))
        self.assertEqual((self.a.openRequests(asking), self.b.requests.answering(serving.id)), (0, 0))
        self.b.reply(serving, asking.id, "id", b"again", "/path")
        self.pass_()
        self.assertEqual((self.friends[0].told, self.friends[0].done), ([b"answer", b"again"], 1))

    def test_aClientMayAcceptDirectMessagesLater(self) -> None:
        """Other nodes know a client that accepts direct messages later, once that is announced."""
        friend, called = Friend(), []
        client = self.a.join("http")
        self.pass_()
        self.a.receiveDirect(client, friend)
        self.a.announce(None, lambda: called.append(True))
        self.assertEqual(called, [])
        self.pass_()
        self.assertEqual(called, [True])
        self.a.request(client, self.clients[1].id, "id", "/path", b"question")
        self.pass_()
        self.b.reply(self.clients[1], client.id, "id", b"answer", "/path")
        self.pass_()
        self.assertEqual(friend.told, [b"answer"])

    def test_disconnected(self) -> None:
        """An answer arrives before the leaving of its client in the same turn; a request without one ends with 502."""
        asking, serving, _ = self.clients
        for id in ("one", "two"):
            self.a.request(asking, serving.id, id, "/path", b"question")
        self.pass_()
        self.b.reply(serving, asking.id, "one", b"answer", "/path")
        self.b.leave(serving, "test")
        self.pass_()
        self.assertEqual((self.friends[0].told, self.friends[0].failures), ([b"answer"], [("two", "/path", 502)]))
        self.assertRaises(ClientNotFound, self.a.request, asking, serving.id, "three", "/path", b"")

    def test_nodeLost(self) -> None:
        """Requests to a silent node end with 502, others with 600; its clients leave, and join again with it."""
        asking, serving, _ = self.clients
        left, joined = (self.collect(self.a, topic) for topic in (LEFT, JOINED))
        elsewhere = self.collect(self.c, LEFT)
        self.a.request(asking, serving.id, "id", "/path", b"question")
        self.servers.cutOut.add("b")
        self.pass_(SILENCE + 2)
        self.assertEqual(self.friends[0].failures, [("id", "/path", 502)])
        self.assertRaises(ClientNotFound, self.a.reply, asking, serving.id, "id", b"")
        events = [msgpack.unpackb(each.payload) for each in left.messages]
        self.assertEqual([(each["client_id"], each["reason"]) for each in events], [(serving.id, "node lost")])
        self.assertEqual(len(elsewhere.messages), 1)
        before = len(joined.messages)
        self.servers.heal()
        self.pass_(2)
        self.assertEqual(
            [msgpack.unpackb(each.payload)["client_id"] for each in joined.messages[before:]], [serving.id]
        )
        self.a.request(asking, serving.id, "id", "/path", b"question")

    def test_timeout(self) -> None:
        """A request that nobody answers ends with 504, at both nodes."""
        asking, serving, _ = self.clients
        self.a.requests.timeout, self.b.requests.timeout = 1, 2
        self.a.request(asking, serving.id, "id", "/path", b"question")
        self.pass_(2.5)
        self.assertEqual(self.friends[0].failures, [("id", "/path", 504)])
        self.assertEqual(self.b.requests.answering(serving.id), 0)

    def test_names(self) -> None:
        """Clients of one name share requests, wherever they are; a name ends with its client, or when it changes."""
        named = [Friend() for _ in "abc"]
        served = [self.join(*each, "svc") for each in zip(self.brokers, named, strict=True)]
        self.pass_()
        for number in range(6):
            self.a.request(self.clients[0], "svc", f"{number}", "/path", b"question")
        self.pass_()
        self.assertEqual([len(friend.told) for friend in named], [2, 2, 2])
        self.c.leave(served[2], "test")
        self.b.rename(served[1], "other")
        self.pass_()
        self.assertEqual([len(self.a.clients.accepting(name)) for name in ("svc", "other")], [1, 1])
        self.assertEqual(self.friends[0].failures, [("2", "/path", 502), ("5", "/path", 502)])

    def test_notifications(self) -> None:
        """Notifications and broadcasts reach clients of all nodes once; the sender gets no broadcast of its own."""
        ids = [client.id for client in self.clients]
        self.a.notify(self.clients[0], [*ids[1:], ids[1], 99], ["/path"], b"notice")
        self.b.broadcast(self.clients[1], b"all")
        self.pass_()
        self.assertEqual([friend.told for friend in self.friends], [[b"all"], [b"notice"], [b"notice", b"all"]])

    def test_routing(self) -> None:
        """A publication with routing reaches those of its subscribers, at all nodes."""
        friends = [Friend() for _ in "abbc"]
        ids = []
        for broker, friend in zip([self.a, self.b, self.b, self.c], friends, strict=True):
            client = self.join(broker, friend)
            ids.append(client.id)
            broker.subscribe(client, friend, "t")
        self.pass_()
        envelope = Envelope(self.a.topicFor(self.clients[0], "t"), self.clients[0], MessageSource())
        self.a.publishNarrowed(envelope, [Message(b"x", Content.TEXT)], 1, (ids[0], ids[1], self.clients[2].id))
        self.pass_()
        self.assertEqual([len(friend.messages) for friend in friends], [1, 1, 0, 0])

    def test_rights(self) -> None:
        """The sender's own node checks its rights."""
        self.a.changeRights(self.clients[0], Rights({}))
        refused: list[Callable[[], None]] = [
            lambda: self.a.request(self.clients[0], self.clients[1].id, "id", "/path", b""),
            lambda: self.a.notify(self.clients[0], [self.clients[1].id], ["/path"], b""),
            lambda: self.a.broadcast(self.clients[0], b""),
        ]
        for each in refused:
            self.assertRaises(NotPermitted, each)
        self.pass_()
        self.assertEqual(self.friends[1].told, [])

    def listed(self, path: str, **arguments: Any) -> Any:
        """Return an answer to a client of the first node."""
        answers: list[Any] = []
        ask(self.a, self.clients[0], path, arguments, answers.append)
        self.pass_(LISTING + 0.1)
        [answer] = answers
        return msgpack.unpackb(msgpack.packb(answer))

    def test_listings(self) -> None:
        """Clients and topics of all nodes are listed with their nodes, page by page; a node that is silent is named."""
        ids = {client.id: node for client, node in zip(self.clients, "abc", strict=True)}
        found = self.listed("/broker/clients")
        self.assertEqual({row["client_id"]: row["node"] for row in found["clients"]}, ids)
        self.assertEqual((found["next"], found["missing"]), (None, []))
        for broker in self.brokers:
            for number in range(5):
                broker.topics.get(f"t{number}").published = 1
                self.collect(broker, f"t{number}")
        names: list[str] = []
        after = ""
        while True:
            page = self.listed("/broker/topics", after=after, limit=4)
            names += [row["topic"] + row["node"] for row in page["topics"]]
            if page["next"] is None:
                break
            after = page["next"]
        self.assertEqual(names, [f"t{number}{node}" for number in range(5) for node in "abc"])
        self.servers.cutIn.add("c")
        self.assertEqual(self.listed("/broker/clients")["missing"], ["c"])
        with self.assertRaises(BrokerError):
            self.listed("/broker/clients", limit=0)

    def test_listingsHide(self) -> None:
        """The node that is asked leaves out the queues that its client has no right to, in rows of other nodes too."""
        for name in ("open", "secret"):
            self.b.consumers.consume(self.clients[1], name, lambda deliveries: None, lambda error: None, 1, None)
        self.a.changeRights(self.clients[0], Rights({"read": ["#"], "consume": ["open"]}))
        rows = {row["node"]: row["queues"] for row in self.listed("/broker/clients")["clients"]}
        self.assertEqual(rows, {"a": [], "b": ["open"], "c": []})

    def test_operator(self) -> None:
        """A client of any node can be disconnected at each, and a ban holds at all; a silent node is named."""
        for broker in self.brokers:
            broker.operator = Operator(broker, Bans(), Reload(Settings(), Settings))
        conversations: list[Any] = [Conversation() for _ in "abc"]
        for client, conversation in zip(self.clients, conversations, strict=True):
            client.conversation, client.principal = conversation, "ann"
        self.assertEqual(self.listed("/broker/kick", client_id=self.clients[1].id), {"disconnected": 1, "missing": []})
        self.assertEqual([len(each.errors) for each in conversations], [0, 1, 0])
        self.assertEqual(self.listed("/broker/ban", principal="ann")["disconnected"], 3)
        self.assertEqual(self.numbersOfBans(), [1, 1, 1])
        self.servers.cutIn.add("c")
        self.assertEqual(self.listed("/broker/unban", principal="ann"), {"removed": True, "missing": ["c"]})
        self.assertEqual(self.numbersOfBans(), [0, 0, 1])

    def numbersOfBans(self) -> list[int]:
        """Return how many bans each node has."""
        return [len(broker.operator.perform("bans", {}, "")[1]["bans"]) for broker in self.brokers]

    def answered(self, path: str, **arguments: Any) -> Any:
        """Return an answer to a client of the first node, with arguments that need not be values of MessagePack."""
        answers: list[Any] = []
        path_table.answer(self.a, self.clients[0], path, arguments, answers.append)
        self.pass_(LISTING + 0.1)
        [answer] = answers
        return answer

    def test_argumentsRead(self) -> None:
        """Only arguments that were read and checked travel to other nodes; others could not be packed."""
        for broker in self.brokers:
            broker.operator = Operator(broker, Bans(), Reload(Settings(), Settings))
        deep: Any = []
        for _ in range(1100):
            deep = [deep]
        huge = 1 << 80
        for path in ("/broker/clients", "/broker/topics"):
            for ignored in (deep, huge, "\ud800", object()):
                self.assertEqual(self.answered(path, x=ignored)["missing"], [])
        seen: list[Any] = []
        for node in self.nodes[1:]:
            self.patch(node.listings, "asked", lambda title, arguments, answer: seen.append(dict(arguments)))
        for path, arguments, read in (
            ("/broker/clients", {"after": 5}, {"after": 5, "limit": 100}),
            ("/broker/topics", {"limit": 7}, {"after": "", "limit": 7}),
            ("/broker/kick", {"client_id": 5, "reason": deep}, {"client_id": 5}),
            ("/broker/kick", {"principal": "ann", "seconds": huge}, {"principal": "ann"}),
            ("/broker/ban", {"principal": "ann", "x": deep}, {"principal": "ann", "seconds": 3600, "reason": ""}),
            ("/broker/unban", {"principal": "ann", "limit": huge}, {"principal": "ann"}),
        ):
            seen.clear()
            self.answered(path, **arguments, y=deep)
            self.assertEqual([{key: each[key] for key in each if key != "by"} for each in seen], [read] * 2)
        for path, wrong in (
            ("/broker/kick", {"client_id": huge}),
            ("/broker/kick", {"principal": "\ud800"}),
            ("/broker/ban", {"principal": "ann", "reason": "\ud800"}),
            ("/broker/ban", {"principal": "ann", "seconds": huge}),
            ("/broker/clients", {"after": huge}),
        ):
            seen.clear()
            self.assertRaises(BadRequest, self.answered, path, **wrong)
            self.pass_(LISTING + 0.1)
            self.assertEqual(seen, [])
