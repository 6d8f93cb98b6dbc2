"""Notes are put together without changing what they say."""

from array import array

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.writing.commit import Noted
from fleximq.values.records import Acknowledged, ClientIds, Closed, Forgotten, HandedOut, Note, Opened, Reached

OPENED = Opened("q:a", "a", 1, 0, None, 7)


def acknowledged(key: str, *offsets: int) -> Acknowledged:
    """Return a note of these offsets."""
    return Acknowledged(key, array("Q", offsets))


class NotedTests(SynchronousTestCase):
    """What comes out for what went in."""

    def together(self, *notes: Note) -> list[Note]:
        """Return what notes become."""
        noted = Noted()
        for note in notes:
            noted.add(note)
        return noted.take()

    def test_nothing(self) -> None:
        """Without notes there is nothing to write."""
        self.assertFalse(Noted())
        self.assertEqual(Noted().take(), [])

    def test_oneForEachQueue(self) -> None:
        """A thousand acknowledgements of two queues are two notes."""
        found = self.together(*(acknowledged(f"q:{number % 2}", number) for number in range(1000)))
        self.assertEqual(found, [acknowledged("q:0", *range(0, 1000, 2)), acknowledged("q:1", *range(1, 1000, 2))])

    def test_handedOut(self) -> None:
        """What was handed out last counts, and all that was handed out again."""
        found = self.together(
            HandedOut("q:a", 3, [1, 2], 50), HandedOut("q:a", 5, [], 40), HandedOut("q:a", 4, [9], 45)
        )
        self.assertEqual(found, [HandedOut("q:a", 5, array("Q", [1, 2, 9]), 50)])

    def test_lastWord(self) -> None:
        """Of what consumer groups say the last word of each counts, behind what came before it."""
        found = self.together(
            Reached("a", 1, 10),
            Reached("b", 1, 10),
            Reached("a", 2, 20),
            ClientIds(5),
            Forgotten("b"),
            Reached("c", 1, 9),
        )
        self.assertEqual(found, [Reached("a", 2, 20), ClientIds(5), Forgotten("b"), Reached("c", 1, 9)])

    def test_orderAroundOpenedAndClosed(self) -> None:
        """What came before a queue was closed or opened stays before it."""
        notes = [
            acknowledged("q:a", 1),
            Closed("q:a"),
            OPENED,
            HandedOut("q:a", 1, array("Q"), 5),
            acknowledged("q:a", 7),
            Closed("q:a"),
        ]
        self.assertEqual(self.together(*notes), notes)

    def test_otherQueuesAreNotHeldUp(self) -> None:
        """Closing one queue does not split the notes of another."""
        found = self.together(acknowledged("q:b", 1), Closed("q:a"), acknowledged("q:b", 2))
        self.assertEqual(found, [acknowledged("q:b", 1, 2), Closed("q:a")])

    def test_ownArray(self) -> None:
        """The array of a note may be used again by whoever noted it."""
        offsets = array("Q", [1])
        noted = Noted()
        noted.add(Acknowledged("q:a", offsets))
        offsets.append(2)
        self.assertEqual(noted.take(), [acknowledged("q:a", 1)])

    def test_others(self) -> None:
        """Notes about no queue stay as they are, in order."""
        self.assertEqual(self.together(ClientIds(5), OPENED, ClientIds(9)), [ClientIds(5), OPENED, ClientIds(9)])
