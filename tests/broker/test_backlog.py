"""The backlog: order, and sizes that stay right."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.backlog import OVERHEAD, Backlog, cost
from tests.broker.queueing import message, messages, names


class BacklogTests(SynchronousTestCase):
    """First in, first out."""

    def setUp(self) -> None:
        self.backlog = Backlog()
        run = messages("abcd")
        self.backlog.append(run, cost(run))

    def test_costIsPayloadsAndOverhead(self) -> None:
        self.assertEqual(cost([message("abc"), message("")]), 3 + 2 * OVERHEAD)

    def test_popleft(self) -> None:
        self.assertEqual(names([self.backlog.popleft() for _ in range(5)]), "abcd-")

    def test_popMany(self) -> None:
        self.assertEqual([names(self.backlog.popMany(number)) for number in (0, 1, 2, 9, 1)], ["", "a", "bc", "d", ""])

    def test_dropOldest(self) -> None:
        self.assertEqual(self.backlog.dropOldest(), 1 + OVERHEAD)
        self.assertEqual(names([self.backlog.popleft()]), "b")

    def test_dropOldestOfNothing(self) -> None:
        self.assertEqual(Backlog().dropOldest(), 0)

    def test_sizeFollowsEveryMethod(self) -> None:
        sizes = [self.backlog.size]
        self.backlog.popleft()
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
