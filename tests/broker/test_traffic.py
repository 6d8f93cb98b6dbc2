"""Sums of what went over connections."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.traffic import Traffic, TrafficTotals


def traffic(*numbers: int) -> Traffic:
    """Return what went over a connection."""
    made = Traffic()
    made.bytesIn, made.bytesOut, made.messagesIn, made.messagesOut = numbers
    return made


def numbers(each: Traffic) -> tuple[int, ...]:
    """Return all four."""
    return each.bytesIn, each.bytesOut, each.messagesIn, each.messagesOut


class TrafficTests(SynchronousTestCase):
    """Connections that come and go."""

    def setUp(self) -> None:
        """Two of one dialect."""
        self.ledger = TrafficTotals()
        self.one, self.two = traffic(1, 2, 3, 4), traffic(10, 20, 30, 40)
        self.ledger.begin("minimq", self.one)
        self.ledger.begin("minimq", self.two)

    def test_inSteps(self) -> None:
        """All are added up in steps, those that end meanwhile once."""
        self.ledger.end("minimq", self.one)
        many = [traffic(1, 1, 1, 1) for _ in range(4000)]
        for each in many:
            self.ledger.begin("blipmq", each)
        total, steps = Traffic(), 1
        for _ in self.ledger.addTo(total):
            steps += 1
            self.ledger.end("blipmq", many[-1])
        self.assertEqual((steps, numbers(total)), (3, (4011, 4022, 4033, 4044)))

    def sums(self) -> dict[str, tuple[int, ...]]:
        """Return the sums by dialect."""
        return {dialect: numbers(each) for dialect, each in self.ledger.totals().items()}

    def test_open(self) -> None:
        """Open connections count with what they have by now."""
        self.one.bytesIn += 100
        self.assertEqual(self.sums(), {"minimq": (111, 22, 33, 44)})
        self.assertEqual(self.ledger.connections(), {"minimq": 2})

    def test_gone(self) -> None:
        """What went over one that is gone stays counted, once."""
        self.ledger.end("minimq", self.two)
        self.ledger.end("minimq", self.two)
        self.assertEqual((self.sums(), self.ledger.connections()), ({"minimq": (11, 22, 33, 44)}, {"minimq": 1}))

    def test_dialects(self) -> None:
        """Each dialect has its own sums."""
        self.ledger.begin("blipmq", traffic(5, 5, 5, 5))
        self.assertEqual(self.sums()["blipmq"], (5, 5, 5, 5))
