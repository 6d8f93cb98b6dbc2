"""The store in memory keeps the interface, and its faults are those that it promises."""

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from fleximq.cluster.interfaces import ICluster, IWatcher, Piece, Refused, ShardOwner, StreamBounds, Unknown
from fleximq.cluster.ownership import Ownership
from tests.cluster.store_case import StoreCase


class MemoryClusterTests(StoreCase):
    """MemoryCluster."""

    def test_interfaces(self) -> None:
        """Store and watcher have the methods of their interfaces."""
        verifyObject(ICluster, self.cluster())

        async def takeOver(term: int) -> None:
            """Nothing."""

        owner = Ownership(
            self.cluster(), "a", 0, self.clock, applied=lambda: 0, takeOver=takeOver, lose=lambda reason: None
        )
        verifyObject(IWatcher, owner)

    def append(self, expected: int, *payloads: bytes) -> Deferred[int]:
        """Append messages."""
        return self.cluster().append(0, expected, [Piece(payload, 0, 1) for payload in payloads])

    def test_append(self) -> None:
        """Appends need the last sequence, and pieces are stored together or not at all."""
        answers = [self.append(0, b"one", b"two"), self.append(0, b"three")]
        self.pass_(1)
        succeeded = [answer for answer in answers if isinstance(answer.result, int)]
        self.assertEqual(len(succeeded), 1)
        self.failureResultOf(next(answer for answer in answers if answer not in succeeded), Unknown)

    def test_late(self) -> None:
        """A late request fails after a timeout, and may be carried out after that."""
        self.servers.faults.late = 1.0
        answers = [self.append(0, b"one") for _ in range(3)]
        self.pass_(2.1)
        for answer in answers:
            self.failureResultOf(answer, Unknown)
        self.pass_(20)
        self.assertEqual(len(self.stream.pieces), 1)

    def test_claim(self) -> None:
        """A record is written only by who knows its revision."""
        first = self.cluster().claim(0, ShardOwner("a", 1))
        self.pass_(0.1)
        self.successResultOf(first)
        second = self.cluster().claim(0, ShardOwner("b", 1))
        self.pass_(0.1)
        self.failureResultOf(second, Refused)
        self.assertEqual(self.servers.owners[0], ShardOwner("a", 1, 1))

    def test_purge(self) -> None:
        """What was removed is neither read nor followed, and a purge never ends after the last message."""
        self.append(0, b"one", b"two")
        self.pass_(0.1)
        received: list[int] = []
        self.cluster().purge(0, 2)
        self.pass_(0.1)
        stop = self.cluster().follow(0, 1, lambda messages: received.extend(sequence for sequence, _ in messages))
        self.pass_(0.1)
        slot, bounds = self.cluster().slot(0, 1), self.cluster().bounds(0)
        self.pass_(0.1)
        self.assertEqual((self.successResultOf(slot), self.successResultOf(bounds)), (None, StreamBounds(1, 2, 2, 3)))
        self.assertEqual(received, [2])
        stop()
        self.cluster().purge(0, 9)
        self.pass_(0.1)
        self.append(2, b"three")
        self.pass_(0.1)
        self.assertEqual((received, self.stream.first), ([2], 3))
