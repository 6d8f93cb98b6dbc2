"""Messages by number, in runs and single, against a plain dict."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.numbered_runs import NumberedRuns
from fleximq.values.message import Message
from fleximq.values.message_run import MessageRun
from tests.broker.queueing import message, messages, run

_STEPS = st.tuples(
    st.sampled_from(["run", "single", "skip", "get", "popEach", "popRuns", "between"]),
    st.integers(0, 40),
    st.integers(1, 12),
)


class NumberedRunsTests(SynchronousTestCase):
    """What a dict would have, in larger parts."""

    def test_aRunLeavesInParts(self) -> None:
        """Each as a run: the middle, what is before it, and what is after it."""
        found = NumberedRuns[Message](10, MessageRun.messages)
        found.putRun(range(5, 205, 10), run(messages("abcdefghijklmnopqrst")))
        for numbers, expected in ((range(65, 125, 10), "ghijkl"), (range(5, 65, 10), "abcdef")):
            parts = found.popRuns(numbers)
            assert parts is not None
            self.assertEqual([[*part] for part in parts], [messages(expected)])
        self.assertEqual(([*found], found.single), ([*range(125, 205, 10)], {}))

    def test_severalRunsLeaveTogether(self) -> None:
        found = NumberedRuns[Message](1, MessageRun.messages)
        found.putRun(range(1, 9), run(messages("abcdefgh")))
        found.putRun(range(9, 17), run(messages("ijklmnop")))
        parts = found.popRuns(range(1, 17))
        self.assertEqual((parts and len(parts), len(found)), (2, 0))

    def test_otherNumbersChangeNothing(self) -> None:
        """Those between the numbers of a run, before it, after it, and with another step."""
        found = NumberedRuns[Message](10, MessageRun.messages)
        found.putRun(range(5, 85, 10), run(messages("abcdefgh")))
        for numbers in (range(6, 46, 10), range(0, 40, 10), range(5, 95, 10), range(85, 95, 10), range(5, 25, 20)):
            self.assertIsNone(found.popRuns(numbers), numbers)
        self.assertEqual((len(found), found.get(6), 6 in found, 15 in found), (8, None, False, True))

    @given(st.lists(_STEPS, max_size=40))
    def test_model(self, steps: list[tuple[str, int, int]]) -> None:
        """After each step it has the same as the dict; new numbers are higher than all before."""
        found, expected, next = NumberedRuns[Message](1, MessageRun.messages), dict[int, Message](), 1
        for step, start, count in steps:
            some = range(start, start + count)
            if step in ("run", "single", "skip"):
                numbers = range(next, next + count)
                next += count
                new = [message(str(number)) for number in numbers]
                if step == "run":
                    found.putRun(numbers, run(new))
                elif step == "single":
                    found.put(numbers, new)
                expected |= {} if step == "skip" else dict(zip(numbers, new, strict=True))
            elif step == "get":
                self.assertEqual((start in found, found.get(start)), (start in expected, expected.get(start)))
            elif step == "between":
                self.assertEqual([*found.between(start, start + count)], [each for each in some if each in expected])
            elif step == "popEach":
                self.assertEqual(found.popEach([*some]), [expected.pop(each, None) for each in some])
            elif (parts := found.popRuns(some)) is not None:
                self.assertEqual([each for part in parts for each in part], [expected.pop(each) for each in some])
            self.assertEqual(dict(zip(found, found.values(), strict=True)), expected)
            self.assertEqual(len(found), len(expected))
