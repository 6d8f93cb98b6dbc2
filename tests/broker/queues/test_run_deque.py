"""Messages first in first out, in runs and single, against a plain list."""

from sys import getrefcount

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.run_deque import RunDeque
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import ANY, costOf
from fleximq.values.message_run import MessageRun
from tests.broker.queueing import message, messages, names, run

_STEPS = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 9)),
    st.tuples(st.just("single"), st.integers(1, 9)),
    st.tuples(st.just("take"), st.integers(0, 12)),
    st.tuples(st.just("cost"), st.integers(0, 3000)),
    st.tuples(st.just("remove"), st.integers(0, 12)),
    st.tuples(st.just("withdraw"), st.integers(1, 9)),
)


class RunDequeTests(SynchronousTestCase):
    """What a list would have, in larger parts."""

    def test_aPartOfARunIsARun(self) -> None:
        waiting = RunDeque()
        waiting.extend(run(messages("abcdefgh")))
        first, later = waiting.take(3), waiting.take(9)
        self.assertEqual((type(first), names(first), names(later)), (MessageRun, "abc", "defgh"))

    def test_neighboursOfTwoRunsAreOneRun(self) -> None:
        waiting = RunDeque()
        waiting.extend(run(messages("abcd"), first=7))
        waiting.extend(run(messages("efgh"), first=11))
        found = waiting.take(6)
        assert isinstance(found, MessageRun)
        self.assertEqual((names(found), found.offsets), ("abcdef", range(7, 13)))

    def test_takenMessagesDoNotStayInMemory(self) -> None:
        """At most as many as are left of their run."""
        waiting, payloads = RunDeque(), [bytes([number] * 40) for number in range(8)]
        waiting.extend(run([Message(each, Content.BYTES) for each in payloads]))
        counts = []
        for _ in range(4):
            counts.append(sum(getrefcount(each) > 3 for each in payloads))
            waiting.take(2)
        self.assertEqual(counts, [8, 8, 4, 2])

    def test_foundByTheId(self) -> None:
        """The first one; the messages of a run are not looked at one by one."""
        waiting = RunDeque()
        waiting.extend(run([message(name, id="w") for name in "abcde"]))
        waiting.extend([message("f", id="x"), message("g", id="y"), message("h", id="y")])
        waiting.extend(run([message(name, id="z") for name in "ijklmn"]))
        waiting.take(2)
        waiting.remove(3)
        self.patch(MessageRun, "messages", None)
        self.assertEqual(names([waiting.find(each) for each in "wxyz0"]), "c-gi-")

    def test_lastOneBefore(self) -> None:
        """Among runs, parts of runs, single messages and gaps."""
        waiting = RunDeque()
        for each in (run(messages("abcdab")), messages("ab"), run(messages("abab"))):
            waiting.extend(each)
        waiting.take(2)
        waiting.remove(8)
        self.assertEqual(names([*waiting]), "cdababab-b")
        found = [waiting.last(end, lambda each: each.payload == b"a") for end in (10, 6, 4, 2, 0)]
        self.assertEqual(found, [6, 4, 2, None, None])

    def test_outOfReach(self) -> None:
        waiting = RunDeque()
        waiting.extend(run(messages("abcd")))
        self.assertRaises(IndexError, waiting.__getitem__, 4)

    @given(st.lists(_STEPS, max_size=40))
    def test_model(self, steps: list[tuple[str, int]]) -> None:
        """After each step it has the same as the list."""
        waiting, expected, number = RunDeque(), list[Message | None](), 0
        for step, much in steps:
            new = [message(str(number + place), size=much * 9) for place in range(much)]
            if step in ("run", "single"):
                waiting.extend(run(new) if step == "run" else new)
                expected += new
            elif step == "withdraw":
                waiting.extend(run(new))
                waiting.withdraw(much)
            elif step == "take":
                self.assertEqual([*waiting.take(much)], expected[:much])
                del expected[:much]
            elif step == "cost" and None not in expected:
                taken = [*waiting.take(ANY, much)]
                self.assertEqual(taken, expected[: len(taken)])
                costs = [costOf(each) for each in expected if each is not None]
                self.assertTrue(len(taken) == len(costs) or sum(costs[: len(taken)]) >= much)
                self.assertTrue(not taken or sum(costs[: len(taken) - 1]) < much)
                del expected[: len(taken)]
            elif step == "remove" and much < len(expected):
                self.assertEqual(waiting.remove(much), expected[much])
                expected[much] = None
            number += much
            self.assertEqual(([*waiting], len(waiting)), (expected, len(expected)))
            self.assertEqual([waiting[place] for place in range(len(waiting))], expected)
