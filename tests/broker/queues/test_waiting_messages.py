"""The backlog: order, and sizes that stay right."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.waiting_messages import WaitingMessages
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD, cost, costOf, weigh
from tests.broker.queueing import message, messages, names


class BacklogTests(SynchronousTestCase):
    """First in, first out."""

    def setUp(self) -> None:
        self.backlog = WaitingMessages()
        run = messages("abcd")
        self.backlog.append(run, cost(run))

    def test_costIsPayloadsAndOverhead(self) -> None:
        self.assertEqual(cost([message("abc"), message("")]), 3 + 2 * OVERHEAD)

    def test_idsCount(self) -> None:
        """Ids, CorrelationIDs and ReplyTos are the clients' own, and may be long."""
        full = Message(b"abc", Content.TEXT, 1, "1234", "56", "7", line=True)
        self.assertEqual(cost([full, message("x")]), 3 + 7 + 1 + 2 * OVERHEAD)
        self.assertEqual(weigh([full, message("x")]), 3 + 7 + 1)
        self.assertEqual(costOf(full), 3 + 7 + OVERHEAD)

    def test_wideIds(self) -> None:
        """A text that is not ASCII takes up to four bytes a character."""
        for place in ("message_id", "correlation_id", "reply_to"):
            wide = message("x")._replace(**{place: "\U0001f40d\xe9"})  # type: ignore[arg-type]
            self.assertEqual((cost([wide]), costOf(wide)), (1 + 8 + OVERHEAD,) * 2, place)

    def test_popManyWithinBytes(self) -> None:
        """No more is taken when it costs as much as is wanted; the first is taken in any case."""
        one = 1 + OVERHEAD
        self.assertEqual(names(self.backlog.popMany(9, 0)), "")
        self.assertEqual(names(self.backlog.popMany(9, 1)), "a")
        self.assertEqual(names(self.backlog.popMany(9, one + 1)), "bc")
        self.assertEqual((names(self.backlog.popMany(9, 9 * one)), self.backlog.size), ("d", 0))

    def test_popMany(self) -> None:
        self.assertEqual([names(self.backlog.popMany(number)) for number in (0, 1, 2, 9, 1)], ["", "a", "bc", "d", ""])

    def test_dropOldest(self) -> None:
        self.assertEqual(self.backlog.dropOldest(), 1 + OVERHEAD)
        self.assertEqual(names(self.backlog.popMany(1)), "b")

    def test_dropOldestOfNothing(self) -> None:
        self.assertEqual(WaitingMessages().dropOldest(), 0)

    def test_sizeFollowsEveryMethod(self) -> None:
        sizes = [self.backlog.size]
        self.backlog.popMany(1)
        sizes.append(self.backlog.size)
        self.backlog.popMany(1)
        sizes.append(self.backlog.size)
        self.backlog.dropOldest()
        sizes.append(self.backlog.size)
        self.backlog.clear()
        sizes.append(self.backlog.size)
        self.assertEqual(sizes, [number * (1 + OVERHEAD) for number in (4, 3, 2, 1, 0)])

    def test_len(self) -> None:
        self.assertEqual(len(self.backlog), 4)
        self.backlog.clear()
        self.assertEqual(len(self.backlog), 0)
