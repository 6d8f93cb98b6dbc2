"""The register of clients: ids, names, bounds (FlexiMQ document 4.1)."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.clients import BLOCK, Clients
from fleximq.broker.envelope import BROKER_ID, FIRST_CLIENT_ID, LAST_CLIENT_ID
from fleximq.errors import NoCapacity
from tests.broker.parts import Friend


class ClientsTests(SynchronousTestCase):
    """Who is here."""

    def setUp(self) -> None:
        """A register for three."""
        self.now = 5.0
        self.hexes = iter(["00000001", "00000001", "00000002", "00000001", "00000003"])
        self.clients = Clients(3, lambda: self.now, lambda digits: next(self.hexes)[-digits:])

    def add(self, user: bool = False, peer: Friend | None = None) -> int:
        """Add somebody and return the id."""
        return self.clients.add("any", peer, None, "here", user).id

    def test_range(self) -> None:
        """The document's range: 1000 to 4294967294, and 1 for the broker."""
        self.assertEqual((BROKER_ID, FIRST_CLIENT_ID, LAST_CLIENT_ID), (1, 1000, 4294967294))

    def test_countUp(self) -> None:
        """Ids count up from 1000, and those of the departed do not come again."""
        self.assertEqual([self.add(), self.add()], [1000, 1001])
        for wanted in range(1002, 1100):
            id = self.add()
            self.assertEqual(id, wanted)
            client = self.clients.find(id)
            assert client is not None
            self.clients.remove(client)

    def test_goOn(self) -> None:
        """Ids that an earlier run may have given do not come again; those of this one are noted in blocks, ahead."""
        noted: list[int] = []
        self.clients.continueFrom(0, noted.append)
        given = []
        for _ in range(2 * BLOCK):
            given.append(self.clients.reserve())
            self.clients.release(given[-1])
            self.assertLess(given[-1], noted[-1] - BLOCK + 1)
        self.assertEqual((given[0], given[-1]), (FIRST_CLIENT_ID, FIRST_CLIENT_ID + 2 * BLOCK - 1))
        self.assertEqual(noted, [3000, 4000])
        self.clients.continueFrom(noted[-1], noted.append)
        self.assertEqual((self.add(), noted[-1]), (5000, 7000))

    def test_lateNote(self) -> None:
        """If the last note was lost with the run that made it, its ids still do not come again."""
        noted: list[int] = []
        self.clients.continueFrom(5000, noted.append)
        given = 0
        while len(noted) < 3:
            given = self.clients.reserve()
        self.clients.continueFrom(noted[-2], noted.append)
        self.assertGreater(self.add(), given)

    def test_goOnAtTheEnd(self) -> None:
        """Where an earlier run came to the last id, the first come again."""
        noted: list[int] = []
        self.clients.continueFrom(LAST_CLIENT_ID - BLOCK + 1, noted.append)
        self.assertEqual((self.add(), noted[0]), (FIRST_CLIENT_ID, 3000))

    def test_wraps(self) -> None:
        """After the last id comes the first again, those in use passed over."""
        self.add()
        self.clients._next = LAST_CLIENT_ID
        self.assertEqual([self.add(), self.add()], [LAST_CLIENT_ID, 1001])

    def test_reserved(self) -> None:
        """A reserved id is nobody else's until it is used or released; then it does not come again."""
        reserved, other = self.clients.reserve(), self.clients.reserve()
        self.assertEqual([reserved, other, self.add()], [1000, 1001, 1002])
        self.assertEqual(len(self.clients), 1)
        self.assertEqual(self.clients.add("any", None, None, "here", False, reserved).id, 1000)
        self.clients.release(other)
        self.clients._next = FIRST_CLIENT_ID
        self.assertEqual(self.add(), 1001)

    def test_reservedPassedOver(self) -> None:
        """When ids come again, those reserved are passed over as those in use are."""
        self.clients.reserve()
        self.clients._next = FIRST_CLIENT_ID
        self.assertEqual(self.add(), 1001)

    def test_notReserved(self) -> None:
        """An id that is not reserved cannot be asked for."""
        self.assertRaises(KeyError, self.clients.add, "any", None, None, "here", False, 1000)
        self.assertEqual(len(self.clients), 0)

    def test_full(self) -> None:
        """At the bound all are let in; above it nobody, until somebody leaves."""
        for _ in range(3):
            self.add()
        self.assertRaises(NoCapacity, self.add)
        self.assertEqual(len(self.clients), 3)
        first = next(iter(self.clients))
        self.clients.remove(first)
        self.assertEqual(self.add(), 1003)

    def test_fields(self) -> None:
        """A client knows its dialect, name, principal, address and when it joined."""
        client = self.clients.add("minimq", None, "me", "there", False)
        self.assertEqual(
            (client.dialect, client.name, client.principal, client.address, client.joined),
            ("minimq", "minimq-1000", "me", "there", 5.0),
        )

    def test_users(self) -> None:
        """Users have random names, which no other living one has."""
        first = self.clients.add("identity", None, None, "", True)
        second = self.clients.add("identity", None, None, "", True)
        self.assertEqual((first.name, second.name), ("user-00000001", "user-00000002"))
        self.clients.remove(first)
        self.assertEqual(self.clients.add("identity", None, None, "", True).name, "user-00000001")

    def test_peers(self) -> None:
        """Those who take direct messages are found among the peers, the others are not."""
        friend = Friend()
        self.add()
        id = self.add(peer=friend)
        self.assertEqual([(key, peer) for key, (_, peer) in self.clients.peers.items()], [(id, friend)])
        client = self.clients.find(id)
        assert client is not None
        self.clients.remove(client)
        self.assertEqual((self.clients.peers, self.clients.find(id)), ({}, None))

    def test_removedOnce(self) -> None:
        """Who is gone cannot be removed again."""
        client = self.clients.add("any", None, None, "", False)
        self.assertEqual([self.clients.remove(client), self.clients.remove(client)], [True, False])
