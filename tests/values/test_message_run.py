"""Runs of messages: what they say of their messages, and what they are in parts and together."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message_cost import cost
from fleximq.values.message_run import MessageRun, asOne, headOf, joined
from tests.broker.queueing import messages, run


class MessageRunTests(SynchronousTestCase):
    """A run is a sequence of messages."""

    def test_itsMessages(self) -> None:
        found = run(messages("abcd"), first=7)
        expected = [each._replace(offset=place) for place, each in enumerate(messages("abcd"), 7)]
        self.assertEqual(([*found], found.messages(), len(found)), (expected, expected, 4))
        self.assertEqual(([*found[1:3]], found[-1], [*found.offsets]), (expected[1:3], expected[3], [7, 8, 9, 10]))

    def test_withoutOffsets(self) -> None:
        found = run(messages("abcd"))
        self.assertEqual(([*found[1:]], found[2], [*found.offsets]), (messages("bcd"), messages("c")[0], []))

    def test_costsWhatItsMessagesCost(self) -> None:
        found = run(messages("abcd"), first=7)
        self.assertEqual((cost(found), cost(found[1:3])), (cost([*found]), cost([*found][1:3])))

    def test_fieldsOfAll(self) -> None:
        found = run(messages("ab", qos=0))
        other = found.replaced(qos=1)
        self.assertEqual((found.qos, other.qos, [*other]), (0, 1, messages("ab", qos=1)))
        self.assertEqual((headOf(found), headOf(messages("a"))), (None, None))

    def test_neighboursAreJoined(self) -> None:
        first, later = run(messages("ab"), first=7), run(messages("cd"), first=9)
        whole = joined([first, later])
        assert whole is not None
        self.assertEqual(([*whole], whole.size), ([*first, *later], 4))
        self.assertIsInstance(asOne([first, later]), MessageRun)

    def test_othersAreNotJoined(self) -> None:
        """Those with a gap between their offsets, with other fields, or only one of them in the journal."""
        first = run(messages("ab"), first=7)
        for later in (run(messages("cd"), first=10), run(messages("cd", qos=0), first=9), run(messages("cd"))):
            self.assertIsNone(joined([first, later]))
            self.assertEqual(asOne([first, later]), [*first, *later])
        self.assertIsNone(joined([run(messages("cd")), first]))
        self.assertEqual(asOne([first, messages("x")]), [*first, *messages("x")])
