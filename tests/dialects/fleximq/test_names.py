"""Routing by the name that clients join with (docs/reference/dialects.rst, "Names")."""

from collections.abc import Callable

from fleximq.security.permissions import Rights
from tests.dialects.admissions import FakeAdmission
from tests.dialects.flexi_peer import FlexiPeer
from tests.dialects.fleximq.test_direct import DirectCase, lost, notified


class NameCase(DirectCase):
    """Alice and Bob, and two servers of one name."""

    def setUp(self) -> None:
        """Join them."""
        super().setUp()
        self.one, self.two = self.serve("svc"), self.serve("svc")

    def serve(self, name: str) -> FlexiPeer:
        """Return a client that has joined with a name."""
        return self.server.join({"client_name": name})

    def request(self, id: str, name: str = "svc") -> FlexiPeer:
        """Send a request of Alice to a name."""
        header = {"routing": [{"client_name": name, "path": "/p"}], "reqrep": {"type": "request", "id": id}}
        self.alice.tell("REQ", header, id)
        return self.alice

    def requests(self) -> list[list[str]]:
        """Return the ids of the requests that each server has got since the last time."""
        return [[each.header["reqrep"]["id"] for each in peer.messages()] for peer in (self.one, self.two)]


class RequestTests(NameCase):
    """A REQ goes to one of them."""

    def test_inTurn(self) -> None:
        """The same number of open requests: in turn; the header arrives as it was sent, and known headers do too."""
        for number in range(6):
            self.request(f"R{number}")
        self.assertEqual(self.requests(), [["R0", "R2", "R4"], ["R1", "R3", "R5"]])
        self.request("R6")
        [heard] = self.one.messages()
        self.assertEqual(heard.header["routing"], [{"client_name": "svc", "path": "/p"}])
        self.one.reply(self.alice.id, "R6", "done")
        [answer] = self.alice.messages()
        self.assertEqual((answer.sender, answer.value), (self.one.id, "done"))

    def test_leastBusy(self) -> None:
        """Who has answered is asked before those who have not."""
        for number in range(2):
            self.request(f"R{number}")
        self.requests()
        self.two.reply(self.alice.id, "R1", 1)
        for number in range(2, 4):
            self.request(f"R{number}")
        self.assertEqual(self.requests(), [["R3"], ["R2"]])

    def test_nobody(self) -> None:
        """No client of that name, or none any more: REP 600."""
        [heard] = self.request("R", "other").messages()
        self.assertError(heard, self.alice, 600, "R", "/p")
        self.request("R0"), self.requests()
        for peer in (self.one, self.two):
            peer.leave()
        [lost] = self.alice.messages()  # of the one that was asked
        self.assertError(lost, self.alice, 502, "R0", "/p")
        [heard] = self.request("R1").messages()
        self.assertError(heard, self.alice, 600, "R1", "/p")

    def test_announced(self) -> None:
        """In a mesh a JOIN is answered when the other nodes know its name; its input and its messages wait."""
        calls: list[Callable[[], None]] = []
        self.patch(self.server.broker, "announce", lambda topic, call: calls.append(call))
        peer = self.server.connect()
        peer.joinWith({"client_name": "new"})
        peer.id = max(each.id for each in self.server.broker.clients)
        peer.subscribe("t")
        self.alice.publish("t", 1)
        self.alice.tell("BCAST", {}, "all")
        self.alice.tell("NOTIF", {"routing": [{"client_name": "new", "path": "/n"}]}, "one")
        self.assertEqual((peer.messages(), self.alice.messages()), ([], []))
        calls.pop()()
        self.clock.advance(0)
        heard = peer.messages()
        self.assertEqual([each.kind for each in heard], ["REP", "BCAST", "NOTIF"])
        self.assertEqual((heard[0].sender, heard[0].header["status"]), (peer.id, peer.variant.status(200)))
        self.alice.publish("t", 2)
        self.assertEqual(peer.values(), [2])
        gone = self.server.connect()
        gone.joinWith({"client_name": "gone"})
        gone.leave()
        calls.pop()()
        self.clock.advance(0)
        self.assertEqual(gone.heard(), b"")

    def test_idDecides(self) -> None:
        """Where an id stands as well, it decides."""
        entry = {"client_name": "svc", "client_id": self.bob.id, "path": "/p"}
        self.alice.tell("REQ", {"routing": [entry], "reqrep": {"type": "request", "id": "R"}})
        self.assertEqual(([each.kind for each in self.bob.messages()], self.requests()), (["REQ"], [[], []]))

    def test_many(self) -> None:
        """With very many of one name each has its turn."""
        peers = [self.one, self.two, *(self.serve("svc") for _ in range(60))]
        for number in range(62):
            self.request(f"R{number}")
        self.assertEqual([len(peer.messages()) for peer in peers], [1] * 62)


class OtherTests(NameCase):
    """NOTIF, PUB and REP."""

    def test_notif(self) -> None:
        """A NOTIF goes to all of them once, and for a name without a client comes back as it was sent."""
        entries = [{"client_name": "svc", "path": "/n"}, {"client_id": self.one.id, "path": "/n"}]
        self.alice.tell("NOTIF", {"routing": [*entries, {"client_name": "none", "path": "/m"}]}, "word")
        for peer in (self.one, self.two):
            self.assertEqual([(each.kind, each.value) for each in peer.messages()], [("NOTIF", "word")])
        self.assertEqual([notified(each) for each in self.alice.messages()], [lost(client_name="none", path="/m")])

    def test_pub(self) -> None:
        """A PUB for a name reaches those of its subscribers who have it."""
        for peer in (self.one, self.bob):
            peer.subscribe("t")
        self.alice.tell("PUB", {"topic": "t", "routing": [{"client_name": "svc"}]}, 1)
        self.alice.tell("PUB", {"topic": "t", "routing": [{"client_name": "none"}]}, 2)
        self.assertEqual([[each.value for each in peer.messages()] for peer in (self.one, self.bob)], [[1], []])

    def test_rep(self) -> None:
        """A REP by name goes to the only one that has it; of several none gets it: 602; without any NOTIF 600."""
        asker = self.serve("asker")
        asker.request(self.bob.id, "/p", "R")
        self.bob.messages()
        for name, heard in (("svc", 0), ("asker", 1)):
            self.bob.tell("REP", {"routing": [{"client_name": name}], "reqrep": {"type": "correlation", "id": "R"}}, 5)
            self.assertEqual([each.value for each in asker.messages()], [5] * heard)
        [heard602] = self.bob.messages()
        self.assertEqual(heard602.status, 602)
        self.bob.tell("REP", {"routing": [{"client_name": "no"}], "reqrep": {"type": "correlation", "id": "R"}}, 5)
        self.assertEqual([notified(each) for each in self.bob.messages()], [lost(client_name="no")])

    def test_entries(self) -> None:
        """A name that is no text, or empty, is no name: 602."""
        for name in ("", 7, None, b"svc"):
            [heard] = self.alice.answer("NOTIF", {"routing": [{"client_name": name, "path": "/p"}]})
            self.assertError(heard, self.alice, 602, path="/p")


class JoinTests(NameCase):
    """Names in a JOIN."""

    def test_wrong(self) -> None:
        """A name has at most 256 characters: 400; an empty one is none."""
        for name in ("x" * 257, 7, ["x"]):
            peer = self.server.connect()
            [heard] = peer.send("JOIN", {"client_name": name}).messages()
            self.assertEqual((heard.status, peer.closed), (400, True))
        for right in ("", None, "x" * 256):
            self.server.join({"client_name": right})

    def test_listed(self) -> None:
        """/broker/clients shows it."""
        [heard] = self.alice.request(1, "/broker/clients", "R").barrier()
        self.assertEqual([row["client_name"] for row in heard.value["clients"]], [None, None, "svc", "svc"])

    def test_rights(self) -> None:
        """With permissions it needs the right to ``serve``; losing that right ends the name, not the connection."""
        granted = Rights({"serve": ("my.*",), "request": ("#",)})
        self.server = self.makeServer(admission=FakeAdmission({None: None}, rights=granted))
        self.alice, server = self.server.join(), self.serve("my.name")
        peer = self.server.connect()
        [heard] = peer.send("JOIN", {"client_name": "other"}).messages()
        self.assertEqual((heard.status, peer.closed), (403, True))
        self.assertIn("joining as 'other' is not permitted", heard.value)
        self.server.broker.changeRights(self.server.client(server), Rights({"publish": ("#",)}))
        [heard] = self.request("R", "my.name").messages()
        self.assertError(heard, self.alice, 600, "R", "/p")
        self.assertEqual(server.barrier(), [])
