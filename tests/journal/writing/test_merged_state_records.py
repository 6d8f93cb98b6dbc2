"""Notes are put together without changing what they say."""

from array import array

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.writing.commit import MergedStateRecords
from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueOpened,
    StateRecord,
)

OPENED = QueueOpened("q:a", "a", 1, 0, None, 7)


def acknowledged(key: str, *offsets: int) -> QueueAcknowledged:
    """Return a note of these offsets."""
    return QueueAcknowledged(key, array("Q", offsets))


class MergeTests(SynchronousTestCase):
    """What comes out for what went in."""

    def together(self, *notes: StateRecord) -> list[StateRecord]:
        """Return what notes become."""
        noted = MergedStateRecords()
        for note in notes:
            noted.add(note)
        return noted.take()

    def test_nothing(self) -> None:
        """Without notes there is nothing to write."""
        self.assertEqual(MergedStateRecords().take(), [])

    def test_oneForEachQueue(self) -> None:
        """A thousand acknowledgements of two queues are two notes."""
        found = self.together(*(acknowledged(f"q:{number % 2}", number) for number in range(1000)))
        self.assertEqual(found, [acknowledged("q:0", *range(0, 1000, 2)), acknowledged("q:1", *range(1, 1000, 2))])

    def test_handedOut(self) -> None:
        """What was handed out last counts, and all that was handed out again."""
        found = self.together(
            QueueDelivered("q:a", 3, [1, 2], 50), QueueDelivered("q:a", 5, [], 40), QueueDelivered("q:a", 4, [9], 45)
        )
        self.assertEqual(found, [QueueDelivered("q:a", 5, array("Q", [1, 2, 9]), 50)])

    def test_lastWord(self) -> None:
        """Of what consumer groups say the last word of each counts, behind what came before it."""
        found = self.together(
            GroupProgress("a", 1, 10),
            GroupProgress("b", 1, 10),
            GroupProgress("a", 2, 20),
            ClientIdsReserved(5),
            GroupForgotten("b"),
            GroupProgress("c", 1, 9),
        )
        self.assertEqual(
            found, [GroupProgress("a", 2, 20), ClientIdsReserved(5), GroupForgotten("b"), GroupProgress("c", 1, 9)]
        )

    def test_orderAroundOpenedAndClosed(self) -> None:
        """What came before a queue was closed or opened stays before it."""
        notes: list[StateRecord] = [
            acknowledged("q:a", 1),
            QueueClosed("q:a"),
            OPENED,
            QueueDelivered("q:a", 1, array("Q"), 5),
            acknowledged("q:a", 7),
            QueueClosed("q:a"),
        ]
        self.assertEqual(self.together(*notes), notes)

    def test_otherQueuesAreNotHeldUp(self) -> None:
        """Closing one queue does not split the notes of another."""
        found = self.together(acknowledged("q:b", 1), QueueClosed("q:a"), acknowledged("q:b", 2))
        self.assertEqual(found, [acknowledged("q:b", 1, 2), QueueClosed("q:a")])

    def test_ownArray(self) -> None:
        """The array of a note may be used again by whoever noted it."""
        offsets = array("Q", [1])
        noted = MergedStateRecords()
        noted.add(QueueAcknowledged("q:a", offsets))
        offsets.append(2)
        self.assertEqual(noted.take(), [acknowledged("q:a", 1)])

    def test_others(self) -> None:
        """Notes about no queue stay as they are, in order."""
        self.assertEqual(
            self.together(ClientIdsReserved(5), OPENED, ClientIdsReserved(9)),
            [ClientIdsReserved(5), OPENED, ClientIdsReserved(9)],
        )
