"""Answers in order, though some are late."""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.outbox import Outbox


class AnswersTests(SynchronousTestCase):
    """The line before the outbox."""

    def setUp(self) -> None:
        """Write to a string."""
        self.clock = Clock()
        self.transport = StringTransport()
        self.answers = Answers(Outbox(self.transport, WriteTurn(self.clock), 1 << 20, self.fail))

    def written(self) -> bytes:
        """Return all that was written so far."""
        self.clock.advance(0)
        written: bytes = self.transport.value()
        return written

    def test_atOnce(self) -> None:
        """While nothing waits, an answer is sent at once."""
        self.answers.take(b"a")
        self.assertEqual(self.written(), b"a")
        self.assertFalse(self.answers.waiting)

    def test_later(self) -> None:
        """A late answer is sent when it is released."""
        release = self.answers.later([b"a"])
        self.assertEqual(self.written(), b"")
        self.assertTrue(self.answers.waiting)
        release()
        self.assertEqual(self.written(), b"a")
        self.assertFalse(self.answers.waiting)

    def test_behind(self) -> None:
        """What is said behind a late answer waits for it."""
        release = self.answers.later([b"a"])
        self.answers.take(b"b")
        self.assertEqual(self.written(), b"")
        release()
        self.assertEqual(self.written(), b"ab")

    def test_changed(self) -> None:
        """The pieces of a late answer are those that there are when it is sent."""
        pieces = [b"a", b"b", b"c"]
        release = self.answers.later(pieces)
        pieces[1] = b"error"
        release()
        self.assertEqual(self.written(), b"aerrorc")

    def test_size(self) -> None:
        """What the line takes is known, whether it may be sent or not; what was sent takes nothing."""
        self.answers.take(b"sent")
        self.assertEqual(self.answers.size, 0)
        first = self.answers.later([b"ab"])
        one = self.answers.size
        self.answers.take(b"cd")
        second = self.answers.later([b"e", b"f"])
        self.assertEqual((one > 2, self.answers.size), (True, 3 * one))
        first()
        self.assertEqual(self.answers.size, one)
        second()
        self.assertEqual(self.answers.size, 0)

    def test_outOfOrder(self) -> None:
        """Late answers keep their places, in whatever order they are released."""
        first, second = self.answers.later([b"a"]), self.answers.later([b"b"])
        second()
        self.assertEqual(self.written(), b"")
        first()
        self.assertEqual(self.written(), b"ab")

    def test_whenSent(self) -> None:
        """Who asks is told when nothing waits any more, once."""
        release = self.answers.later([b"a"])
        told: list[bytes] = []
        self.answers.whenSent(lambda: told.append(self.written()))
        self.assertEqual(told, [])
        release()
        self.answers.later([b"b"])()
        self.assertEqual(told, [b"a"])

    def test_whenSentAlready(self) -> None:
        """At once if nothing waits."""
        told: list[int] = []
        self.answers.whenSent(lambda: told.append(1))
        self.assertEqual(told, [1])
