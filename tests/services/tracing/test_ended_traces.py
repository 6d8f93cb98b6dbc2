"""Which ended traces may still be read."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import InvalidTopic, NotFound
from fleximq.services.tracing.traces import ENDED, KEPT, Traces
from tests.dialects.conversations import makeContext


class EndedTraceTests(SynchronousTestCase):
    """Traces of topics of a broker in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.traces = Traces(makeContext(self.clock).broker)

    def begin(self) -> int:
        """Begin a trace of a topic."""
        return self.traces.ofTopic("demo", 10, 60, "anonymous").number

    def test_a_long_trace_can_be_read_after_many_later_ones_have_ended(self) -> None:
        long = self.begin()
        for _ in range(ENDED):
            self.traces.stop(self.begin())
        self.traces.stop(long)
        self.assertEqual(self.traces.find(long).ended, "stopped by an operator")

    def test_the_trace_that_ended_first_is_forgotten_first(self) -> None:
        ended = [self.traces.stop(self.begin()).number for _ in range(ENDED + 1)]
        self.assertRaises(NotFound, self.traces.find, ended[0])
        self.assertEqual([each["trace"] for each in self.traces.list()], ended[1:])

    def test_an_ended_trace_is_forgotten_after_some_time(self) -> None:
        number = self.traces.stop(self.begin()).number
        self.clock.advance(KEPT)
        self.assertRaises(NotFound, self.traces.find, number)

    def test_a_refused_pattern_leaves_no_trace_and_no_timer(self) -> None:
        self.assertRaises(InvalidTopic, self.traces.ofTopic, "", 10, 60, "anonymous")
        self.assertEqual((self.traces.list(), self.clock.getDelayedCalls()), ([], []))
