"""What waits in a queue: messages with their cost and ages, and consumers, each served once and in order."""

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import MessageSource
from fleximq.broker.queues.waiting import STEPS, MessageAges, WaitingConsumers, WaitingMessages
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD, cost, costOf
from tests.broker.queueing import message, messages, names

TIME_TO_LIVE = 100.0


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
        self.assertEqual(MessageSource().size([full, message("x")]), 3 + 7 + 1)
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


def _fail() -> None:
    raise ValueError("broken")


class WaitersTests(SynchronousTestCase):
    """Three waiters and a number of things to have."""

    def setUp(self) -> None:
        self.errors: list[Exception] = []
        self.woken: list[str] = []
        self.things = 0
        self.waiters = WaitingConsumers(self.errors.append)

    def wait(self, names: str) -> list[Callable[[], None]]:
        return [self.waiters.add(partial(self.take, name)) for name in names]

    def take(self, name: str, number: int = 1) -> None:
        self.woken.append(name)
        self.things -= number

    def wake(self, things: int) -> None:
        self.things += things
        self.waiters.wake(lambda: self.things)

    def test_inOrder(self) -> None:
        self.wait("abc")
        self.wake(2)
        self.assertEqual((self.woken, len(self.waiters)), (["a", "b"], 1))

    def test_onlyOnce(self) -> None:
        self.wait("a")
        self.wake(2)
        self.wake(2)
        self.assertEqual(self.woken, ["a"])

    def test_nobodyForNothing(self) -> None:
        self.wait("a")
        self.wake(0)
        self.assertEqual(self.woken, [])

    def test_cancelled(self) -> None:
        cancel = self.wait("abc")[0]
        cancel()
        self.wake(1)
        self.assertEqual(self.woken, ["b"])

    def test_cancelAfterwardsIsHarmless(self) -> None:
        cancel = self.wait("a")[0]
        self.wake(1)
        cancel()
        self.assertEqual((self.woken, len(self.waiters)), (["a"], 0))

    def test_whoTakesMoreLeavesLess(self) -> None:
        self.waiters.add(partial(self.take, "greedy", 3))
        self.wait("ab")
        self.wake(4)
        self.assertEqual(self.woken, ["greedy", "a"])

    def test_whoTakesNothingCountsAsServed(self) -> None:
        self.waiters.add(partial(self.take, "shy", 0))
        self.wait("ab")
        self.wake(2)
        self.assertEqual(self.woken, ["shy", "a"])

    def test_whoWaitsAgainIsLast(self) -> None:
        def again() -> None:
            self.take("again")
            self.wait("x")

        self.waiters.add(again)
        self.wait("a")
        self.wake(3)
        self.assertEqual(self.woken, ["again", "a", "x"])

    def test_aBrokenOneIsReportedAndHurtsNobody(self) -> None:
        self.waiters.add(_fail)
        self.wait("a")
        self.wake(2)
        self.assertEqual((len(self.errors), self.woken), (1, ["a"]))

    def test_clear(self) -> None:
        self.wait("abc")
        self.waiters.clear()
        self.wake(3)
        self.assertEqual(self.woken, [])

    def test_aChainIsNoRecursion(self) -> None:
        """A waiter that brings something itself, ten thousand times over, needs no deeper stack."""
        left = 10_000

        def passOn() -> None:
            nonlocal left
            self.things -= 1
            left -= 1
            if left:
                self.waiters.add(passOn)
                self.wake(1)

        self.waiters.add(passOn)
        self.wake(1)
        self.assertEqual((left, self.errors), (0, []))


class AgesTests(SynchronousTestCase):
    """A message expires at its time, or up to a step later."""

    def test_atTheLimit(self) -> None:
        ages = MessageAges(TIME_TO_LIVE)
        ages.add(3, 10.0)
        self.assertEqual([ages.before(now) for now in (109.9, 110.0, 500.0)], [0, 3, 3])

    def test_oneByOne(self) -> None:
        ages = MessageAges(TIME_TO_LIVE)
        for number in range(1, 6):
            ages.add(number, 10.0 * number)
        self.assertEqual([ages.before(now) for now in (109.0, 110.0, 129.0, 150.0)], [0, 1, 2, 5])

    def test_fewAreKept(self) -> None:
        ages = MessageAges(TIME_TO_LIVE)
        for number in range(10_000):
            ages.add(number, number * TIME_TO_LIVE / 10_000)
        self.assertLessEqual(len(list(ages)), 2 * STEPS)

    @given(st.lists(st.floats(0, 5), min_size=1, max_size=200))
    def test_neverEarlyAndHardlyLate(self, gaps: list[float]) -> None:
        ages, times, now = MessageAges(TIME_TO_LIVE), [], 0.0
        for number, gap in enumerate(gaps, 1):
            now += gap
            times.append(now)
            ages.add(number, now)
        for later in (TIME_TO_LIVE / 2, TIME_TO_LIVE, TIME_TO_LIVE + now / 2):
            expired = ages.before(later)
            self.assertTrue(all(time + TIME_TO_LIVE <= later + 1e-5 for time in times[:expired]))
            self.assertTrue(all(time + TIME_TO_LIVE + 2 * TIME_TO_LIVE / STEPS > later for time in times[expired:]))
