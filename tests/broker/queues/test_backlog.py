"""The backlog in memory: what is next, what leaves undelivered, and what messages cost."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import MessageSource
from fleximq.broker.queues.backlog import Dropped, MemoryBacklog
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import ANY, OVERHEAD, cost, costOf
from tests.broker.queueing import message, messages, names

ONE = 1 + OVERHEAD


class CostTests(SynchronousTestCase):
    """What messages cost."""

    def test_costIsPayloadsAndOverhead(self) -> None:
        self.assertEqual(cost([message("abc"), message("")]), 3 + 2 * OVERHEAD)

    def test_idsCount(self) -> None:
        """Ids, CorrelationIDs and ReplyTos are the clients' own, and may be long."""
        full = Message(b"abc", Content.TEXT, 1, "1234", "56", "7", line=True)
        self.assertEqual(cost([full, message("x")]), 3 + 7 + 1 + 2 * OVERHEAD)
        self.assertEqual(MessageSource().size([full, message("x")], 2), 3 + 7 + 1)
        self.assertEqual(costOf(full), 3 + 7 + OVERHEAD)

    def test_wideIds(self) -> None:
        """A text that is not ASCII takes up to four bytes a character."""
        for place in ("message_id", "correlation_id", "reply_to"):
            wide = message("x")._replace(**{place: "\U0001f40d\xe9"})  # type: ignore[arg-type]
            self.assertEqual((cost([wide]), costOf(wide)), (1 + 8 + OVERHEAD,) * 2, place)


class BacklogTests(SynchronousTestCase):
    """First in, first out."""

    def setUp(self) -> None:
        self.backlog = MemoryBacklog()
        self.backlog.append(messages("abcd"))

    def take(self, number: int, most: int = ANY) -> str:
        """Return the names of messages taken."""
        return names(self.backlog.take(number, most)[1])

    def test_appendReturnsTheCost(self) -> None:
        self.assertEqual(self.backlog.append(messages("xy")), 2 * ONE)

    def test_takeEndsWhenTheBytesAreReached(self) -> None:
        """The first message is taken in any case."""
        self.assertEqual([self.take(9, most) for most in (0, 1, ONE + 1, 9 * ONE)], ["", "a", "bc", "d"])

    def test_takeOneNeedsAnyBytes(self) -> None:
        self.assertEqual([self.take(1, most) for most in (-1, 0, 1)], ["", "", "a"])

    def test_takeReturnsTheNextOnes(self) -> None:
        self.assertEqual([self.take(number) for number in (0, 1, 2, 9, 1)], ["", "a", "bc", "d", ""])

    def test_tagsAreArrivalNumbers(self) -> None:
        """Also of those after messages that left undelivered."""
        self.assertEqual(list(self.backlog.take(1)[0]), [1])
        self.backlog.drop(1)
        self.assertEqual((list(self.backlog.take(9)[0]), self.backlog.lastTag), ([3, 4], 4))

    def test_dropByNumberOrBytes(self) -> None:
        dropped = [self.backlog.drop(1), self.backlog.drop(-5, ONE + 1), self.backlog.drop(0, -1), self.backlog.drop(9)]
        self.assertEqual(dropped, [Dropped(1, ONE), Dropped(2, 2 * ONE), Dropped(0, 0), Dropped(1, ONE)])

    def test_expireUpToATag(self) -> None:
        self.assertEqual(
            [self.backlog.expire(3, most) for most in (2, 2, 2)], [(2, 2 * ONE, ()), (1, ONE, ()), (0, 0, ())]
        )
        self.assertEqual(self.take(9), "d")

    def test_onlyMessagesThatNeverFitAreLarge(self) -> None:
        """All others could leave for a message: five in the backlog, and some outside of it."""
        for others, excess, left in ((0, 5 * ONE, "abcdxy"), (0, 5 * ONE + 1, "abcdy"), (1, 5 * ONE + 1, "abcdxy")):
            self.setUp()
            run = [message("x", size=500), message("y")]
            self.backlog.dropLarge(run, self.backlog.append(run), others, excess)
            self.assertEqual(self.take(9), left)

    def test_withdrawFindsTheLatestBeforeItsNumber(self) -> None:
        self.assertEqual(self.backlog.withdraw(3, 0, lambda each: each.payload in b"abd"), ONE)
        self.assertIsNone(self.backlog.withdraw(3, 0, lambda each: False))
        self.assertEqual(self.take(9), "acd")

    def test_clear(self) -> None:
        self.assertEqual(len(self.backlog), 4)
        self.backlog.clear()
        self.assertEqual((len(self.backlog), self.backlog.available, cost(list(self.backlog))), (0, 0, 0))
